/**
 * Speech by the browser's own engine: dictation into a field, and answers read aloud. Pages fetch this when somebody
 * presses a button for it; the buttons are shown where the browser has the engine.
 */
import { all, find } from "./page.js";

// --- dictation ---

/** What listens at present. @type {{engine: SpeechRecognition, button: HTMLButtonElement} | null} */
let listening = null;

/**
 * Begins to write what is said into the field, or ends that.
 * @param {HTMLButtonElement} button `data-denied` and `data-failed` are what it says when nothing can be heard
 * @param {HTMLTextAreaElement} field
 * @param {(text: string) => void} tell
 */
export function dictate(button, field, tell) {
  if (listening) return listening.engine.stop();
  const Engine = window.SpeechRecognition ?? window.webkitSpeechRecognition;
  if (!Engine) return;
  const engine = new Engine();
  engine.lang = document.documentElement.lang;
  engine.continuous = true;
  engine.interimResults = false;
  engine.addEventListener("result", ({ results, resultIndex }) => {
    for (const result of [...results].slice(resultIndex)) if (result.isFinal) write(field, result[0]?.transcript ?? "");
  });
  engine.addEventListener("error", ({ error }) => {
    const denied = error === "not-allowed" || error === "service-not-allowed";
    if (error !== "no-speech" && error !== "aborted")
      tell((denied ? button.dataset.denied : button.dataset.failed) ?? "");
  });
  engine.addEventListener("end", () => {
    listening = null;
    button.ariaPressed = "false";
  });
  listening = { engine, button };
  button.ariaPressed = "true";
  tell("");
  engine.start();
}

/** At the cursor, with a blank before it where one is due. @param {HTMLTextAreaElement} field @param {string} said */
function write(field, said) {
  const before = field.value.slice(0, field.selectionStart);
  const blank = before && !/\s$/u.test(before) ? " " : "";
  field.setRangeText(`${blank}${said.trim()}`, field.selectionStart, field.selectionEnd, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

// --- reading aloud ---

const BLOCKS = "p, li, h1, h2, h3, h4, h5, h6, td, th";
const MOST = 400; // blocks that are read

/** Reads the answer from its beginning, or stops. @param {HTMLButtonElement} button @param {Element} article */
export function readAloud(button, article) {
  const reads = button.ariaPressed === "true";
  speechSynthesis.cancel();
  for (const each of all(HTMLButtonElement, "[data-read-aloud]")) each.ariaPressed = "false";
  if (reads) return;
  const blocks = all(HTMLElement, BLOCKS, article).filter((each) => !find(HTMLElement, BLOCKS, each));
  // One for each block: some engines stop in the middle of a long text.
  const texts = blocks.map((each) => each.textContent.replace(/\[\d+\]/gu, "").trim()).filter(Boolean);
  const parts = texts.slice(0, MOST).map((text) => {
    const part = new SpeechSynthesisUtterance(text);
    part.lang = document.documentElement.lang;
    return part;
  });
  const done = () => {
    button.ariaPressed = "false";
  };
  parts.at(-1)?.addEventListener("end", done);
  for (const part of parts) {
    part.addEventListener("error", done);
    speechSynthesis.speak(part);
  }
  button.ariaPressed = String(parts.length > 0);
}

addEventListener("pagehide", () => {
  listening?.engine.abort();
  speechSynthesis.cancel();
});
