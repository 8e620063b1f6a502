/** The pages beside conversations: uploads with progress, what is too large, the time zone, the way to a passage. */
import { all, find, need, parse } from "./page.js";
import { catchFiles, dismissal, queue, sayOfFile, send, tokenOf } from "./uploads.js";

// --- uploads ---

const uploads = find(HTMLFormElement, "[data-upload]");
if (uploads) takeUploads(uploads);

/** @param {HTMLFormElement} form */
function takeUploads(form) {
  const field = need(HTMLInputElement, "input[type=file]", form);
  /** @param {File[]} files */
  const take = (files) => {
    for (const file of files) enqueue(form, file);
  };
  for (const each of all(HTMLElement, "[data-without-scripts]", form)) each.hidden = true;
  for (const each of all(HTMLElement, "[data-with-scripts]", form)) each.hidden = false;
  field.addEventListener("change", () => {
    take([...(field.files ?? [])]);
    field.value = "";
  });
  field.classList.add("visually-hidden"); // its label is the button; the keyboard reaches it as before
  catchFiles(take, form);
}

/** @param {HTMLFormElement} form @param {File} file */
function enqueue(form, file) {
  const line = document.createElement("li");
  const name = document.createElement("span");
  const bar = document.createElement("progress");
  const word = document.createElement("span");
  name.textContent = file.name;
  name.className = "upload-name";
  bar.max = 1;
  bar.setAttribute("aria-label", file.name);
  line.append(name, bar, word);
  need(HTMLElement, "#uploads").append(line);
  queue(() => upload(form, file, { line, bar, word }));
}

/**
 * @param {HTMLFormElement} form
 * @param {File} file
 * @param {{line: HTMLElement, bar: HTMLProgressElement, word: HTMLElement}} shown where its progress is
 */
async function upload(form, file, { line, bar, word }) {
  /** @param {string} words @param {number} share */
  const onProgress = (words, share) => {
    word.textContent = words;
    bar.value = share;
  };
  try {
    const html = await send(file, { url: form.getAttribute("action") ?? "", token: tokenOf(form), onProgress });
    const repeated = find(HTMLElement, "[data-repeated]", parse(`<ul>${html}</ul>`));
    if (repeated) dismissible(line, bar, word, repeated.textContent);
    else line.remove();
    htmx.trigger(form.dataset.refresh ?? "", "refresh");
  } catch (error) {
    line.className = "problem";
    dismissible(line, bar, word, error instanceof Error ? error.message : sayOfFile("refused"));
  }
}

/** @param {HTMLElement} line @param {HTMLProgressElement} bar @param {HTMLElement} word @param {string} sentence */
function dismissible(line, bar, word, sentence) {
  bar.remove();
  word.textContent = sentence;
  const button = dismissal();
  button.addEventListener("click", () => line.remove());
  line.append(button);
}

// --- what is too large is said before it is sent: the server would break off in the middle of it ---

for (const field of all(HTMLInputElement, "input[type=file][data-most]"))
  field.addEventListener("change", () => {
    const fits = [...(field.files ?? [])].every((file) => file.size <= Number(field.dataset.most));
    field.setCustomValidity(fits ? "" : (field.dataset.tooLarge ?? ""));
    field.reportValidity();
  });

// --- the browser's time zone is offered where another one is set ---

const zones = find(HTMLInputElement, "#timezone");
if (zones) offerZone(zones, need(HTMLButtonElement, "#use-zone"));

/** @param {HTMLInputElement} field @param {HTMLButtonElement} offer */
function offerZone(field, offer) {
  const legacy = JSON.parse(need(HTMLScriptElement, "#legacy-zones").textContent);
  const browsers = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const zone = legacy[browsers] ?? browsers; // browsers still say Asia/Saigon, which is stored as Asia/Ho_Chi_Minh
  const compare = () => {
    offer.hidden = !zone || field.value === zone;
  };
  need(HTMLElement, "[data-zone]", offer).textContent = zone;
  offer.addEventListener("click", () => {
    field.value = zone;
    compare();
    field.focus();
  });
  field.addEventListener("input", compare);
  compare();
}

// --- a question that was being written comes along to where it is asked over all of a file ---

const carried = new URLSearchParams(location.hash.slice(1)).get("question");
const question = find(HTMLTextAreaElement, "#ask-all textarea");
if (carried && question && !question.value) {
  question.value = carried;
  history.replaceState(null, "", location.pathname + location.search);
  addEventListener("load", () => question.dispatchEvent(new Event("change"))); // by then htmx listens, and plans with it
}

// --- answers that are no part of a page ---

// A refusal that names its place is a sentence; any other page of an error has no place in this one.
document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.xhr.status >= 400 && !detail.xhr.getResponseHeader("HX-Retarget")) detail.shouldSwap = false;
});
// A browser goes to `#passage` by itself, but does not move the focus there. Where the page's picture stands above the text
// and not beside it, that comes first.
const passage = location.hash === "#passage" ? document.getElementById("passage") : null;
if (passage) {
  passage.focus();
  const picture = passage.closest("section")?.querySelector(".page-picture");
  if (picture && picture.getBoundingClientRect().right > passage.getBoundingClientRect().left) {
    addEventListener("load", () => picture.scrollIntoView()); // until then the browser goes to the passage
  }
}

// A page that cannot be drawn is told in words. Errors of pictures do not bubble.
document.addEventListener("error", ({ target }) => undrawn(target), true);
for (const picture of all(HTMLImageElement, ".page-picture img")) {
  if (picture.complete && picture.currentSrc && !picture.naturalWidth) undrawn(picture);
}

/** @param {EventTarget | null} target */
function undrawn(target) {
  const place = target instanceof HTMLImageElement ? target.closest(".page-picture") : null;
  if (!place) return;
  need(HTMLElement, "a", place).hidden = true;
  need(HTMLElement, "[data-undrawn]", place).hidden = false;
}
