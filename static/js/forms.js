/** Pages other than conversations: files that are too large, the time zone, and the passage of a source. */
import { all, find, need } from "./page.js";
import "./uploads.js";

// --- files that are too large are refused before the upload, which the server would abort ---

for (const field of all(HTMLInputElement, "input[type=file][data-most]"))
  field.addEventListener("change", () => {
    const fits = [...(field.files ?? [])].every((file) => file.size <= Number(field.dataset.most));
    field.setCustomValidity(fits ? "" : (field.dataset.tooLarge ?? ""));
    field.reportValidity();
  });

// --- the browser's time zone is offered if another one is set ---

const zoneField = find(HTMLInputElement, "#timezone");
if (zoneField) offerZone(zoneField, need(HTMLButtonElement, "#use-zone"));

/** @param {HTMLInputElement} field @param {HTMLButtonElement} offer */
function offerZone(field, offer) {
  const legacy = JSON.parse(need(HTMLScriptElement, "#legacy-zones").textContent);
  const browserZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const zone = legacy[browserZone] ?? browserZone; // browsers may name an old zone, such as Asia/Saigon for Asia/Ho_Chi_Minh
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

// --- a question from the composer is carried to the form that asks it over a whole file ---

const carriedQuestion = new URLSearchParams(location.hash.slice(1)).get("question");
const question = find(HTMLTextAreaElement, "#ask-all textarea");
if (carriedQuestion && question && !question.value) {
  question.value = carriedQuestion;
  history.replaceState(null, "", location.pathname + location.search);
  addEventListener("load", () => question.dispatchEvent(new Event("change"))); // after the load, when htmx listens and updates the plan
}

// --- error responses to parts of a page ---

// An error with HX-Retarget is a sentence for that place. Other error pages are not inserted.
document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.xhr.status >= 400 && !detail.xhr.getResponseHeader("HX-Retarget")) detail.shouldSwap = false;
});
// The browser scrolls to `#passage`, but does not focus it. If the page's picture is above the text, not beside it, the
// picture is scrolled into view instead.
const passage = location.hash === "#passage" ? document.getElementById("passage") : null;
if (passage) {
  passage.focus();
  const picture = passage.closest("section")?.querySelector(".page-picture");
  if (picture && picture.getBoundingClientRect().right > passage.getBoundingClientRect().left) {
    addEventListener("load", () => picture.scrollIntoView()); // after the browser has scrolled to the passage
  }
}

// A sentence replaces a picture that cannot be drawn. Errors of images do not bubble, so the listener captures.
document.addEventListener("error", ({ target }) => showUndrawn(target), true);
for (const picture of all(HTMLImageElement, ".page-picture img")) {
  if (picture.complete && picture.currentSrc && !picture.naturalWidth) showUndrawn(picture);
}

/** @param {EventTarget | null} target */
function showUndrawn(target) {
  const place = target instanceof HTMLImageElement ? target.closest(".page-picture") : null;
  if (!place) return;
  need(HTMLElement, "a", place).hidden = true;
  need(HTMLElement, "[data-undrawn]", place).hidden = false;
}
