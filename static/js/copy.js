/** Copies a code block or a whole answer. */
import { say } from "./words.js";

const SHOWN_FOR = 1_600; // ms

/** The clipboard's own interface exists on secure origins only; an office server without TLS needs the old way. */
async function write(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "visually-hidden";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("copying was refused");
}

function textFor(button) {
  if (button.matches("[data-copy]")) return button.closest(".code").querySelector("code").textContent;
  const prose = button.closest("article").querySelectorAll(".prose");
  return [...prose].map((part) => part.innerText.trim()).join("\n\n");
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
