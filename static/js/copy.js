/** Copies a code block, or a whole answer as the Markdown in which it was written. */
import { say } from "./words.js";

const SHOWN_FOR = 1_600; // ms

/** The clipboard's own interface exists on secure origins only; an office server without TLS needs the old way. */
async function write(/** @type {Promise<string>} */ text) {
  if (navigator.clipboard) {
    // The promise itself: Safari forgets, while a text is being fetched, that somebody has clicked.
    const blob = text.then((found) => new Blob([found], { type: "text/plain" }));
    return navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
  }
  const field = document.createElement("textarea");
  field.value = await text;
  field.className = "visually-hidden";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("copying was refused");
}

async function textFor(button) {
  if (button.matches("[data-copy]")) return button.closest(".code").querySelector("code").textContent;
  const response = await fetch(button.dataset.copyAnswer);
  if (!response.ok) throw new Error(`the text was refused with ${response.status}`);
  return response.text();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy], [data-copy-answer]");
  if (!button) return;
  const label = button.querySelector("[data-copy-label]") ?? button;
  const before = (label.dataset.before ??= label.textContent);
  label.textContent = await write(textFor(button)).then(
    () => say("copied"),
    () => say("uncopied"),
  );
  setTimeout(() => (label.textContent = before), SHOWN_FOR);
});
