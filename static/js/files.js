/** The pages of files and projects: uploads with progress, and the way to a passage. */
import { catchFiles, queue, say, send } from "./upload.js";

const form = document.querySelector("[data-upload]");
const list = document.getElementById("uploads");

if (form) {
  const field = form.querySelector("input[type=file]");
  for (const each of form.querySelectorAll("[data-without-scripts]")) each.hidden = true;
  for (const each of form.querySelectorAll("[data-with-scripts]")) each.hidden = false;
  field.addEventListener("change", () => {
    take([...field.files]);
    field.value = "";
  });
  field.classList.add("visually-hidden"); // its label is the button; the keyboard reaches it as before
  catchFiles(take, form);
}

/** @param {File[]} files */
function take(files) {
  for (const file of files) {
    const line = document.createElement("li");
    const [name, bar, word] = ["span", "progress", "span"].map((tag) => document.createElement(tag));
    name.textContent = file.name;
    name.className = "upload-name";
    bar.max = 1;
    bar.setAttribute("aria-label", file.name);
    line.append(name, bar, word);
    list.append(line);
    queue(() => upload(file, line, bar, word));
  }
}

async function upload(file, line, bar, word) {
  const token = form.elements.namedItem("csrfmiddlewaretoken").value;
  const onProgress = (share) => {
    bar.value = share;
    word.textContent = share < 1 ? say("progress", { percent: Math.floor(share * 100) }) : say("storing");
  };
  try {
    await send(file, { url: form.getAttribute("action"), token, onProgress });
    line.remove();
    window.htmx.trigger(form.dataset.refresh, "refresh");
  } catch (error) {
    bar.remove();
    line.className = "problem";
    word.textContent = error.message;
    line.append(dismissal(line));
  }
}

function dismissal(line) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = say("dismiss");
  button.addEventListener("click", () => line.remove());
  return button;
}

// A refusal that names its place is a sentence; any other page of an error has no place in this one.
document.body.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr } = event.detail;
  if (xhr.status >= 400 && !xhr.getResponseHeader("HX-Retarget")) event.detail.shouldSwap = false;
});
// A browser goes to `#passage` by itself, but does not move the focus there.
if (location.hash === "#passage") document.getElementById("passage")?.focus();
