/**
 * Speech by the browser's own engine: dictation into a field, and answers read aloud. Pages load this module at the first
 * press of a button for it. The buttons are shown if the browser has the engine.
 */
import { all, find } from "./page.js";

// --- dictation ---

/** The running dictation. @type {{engine: SpeechRecognition, button: HTMLButtonElement} | null} */
let dictation = null;

/**
 * Starts the dictation into the field, or stops a running one.
 * @param {HTMLButtonElement} button `data-denied` and `data-failed` are the sentences for errors
 * @param {HTMLTextAreaElement} field
 * @param {(text: string) => void} tell
 */
export function dictate(button, field, tell) {
  if (dictation) return dictation.engine.stop();
  const Engine = window.SpeechRecognition ?? window.webkitSpeechRecognition;
  if (!Engine) return;
  const engine = new Engine();
  engine.lang = document.documentElement.lang;
  engine.continuous = true;
  engine.interimResults = false;
  engine.addEventListener("result", ({ results, resultIndex }) => {
    for (const result of [...results].slice(resultIndex))
      if (result.isFinal) insertText(field, result[0]?.transcript ?? "");
  });
  engine.addEventListener("error", ({ error }) => {
    const denied = error === "not-allowed" || error === "service-not-allowed";
    if (error !== "no-speech" && error !== "aborted")
      tell((denied ? button.dataset.denied : button.dataset.failed) ?? "");
  });
  engine.addEventListener("end", () => {
    dictation = null;
    button.ariaPressed = "false";
  });
  dictation = { engine, button };
  button.ariaPressed = "true";
  tell("");
  engine.start();
}

/** Inserts spoken words at the cursor, after a space if needed. @param {HTMLTextAreaElement} field @param {string} spoken */
function insertText(field, spoken) {
  const before = field.value.slice(0, field.selectionStart);
  const blank = before && !/\s$/u.test(before) ? " " : "";
  field.setRangeText(`${blank}${spoken.trim()}`, field.selectionStart, field.selectionEnd, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

// --- reading aloud ---

const BLOCKS = "p, li, h1, h2, h3, h4, h5, h6, td, th";
const MAX_BLOCKS = 400; // blocks that are read of one answer

/** Reads the answer from its beginning, or stops reading. @param {HTMLButtonElement} button @param {Element} article */
export function readAloud(button, article) {
  const reads = button.ariaPressed === "true";
  speechSynthesis.cancel();
  for (const each of all(HTMLButtonElement, "[data-read-aloud]")) each.ariaPressed = "false";
  if (reads) return;
  const blocks = all(HTMLElement, BLOCKS, article).filter((each) => !find(HTMLElement, BLOCKS, each));
  // One utterance for each block, since some engines stop in the middle of a long text.
  const texts = blocks.map((each) => each.textContent.replace(/\[\d+\]/gu, "").trim()).filter(Boolean);
  const parts = texts.slice(0, MAX_BLOCKS).map((text) => {
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
  dictation?.engine.abort();
  speechSynthesis.cancel();
});
