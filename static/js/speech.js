/**
 * Speech: dictation into a field, and answers read aloud, by the browser's own engine or by a server of the workspace.
 * Pages fetch this when somebody presses a button for it; the buttons are shown where one of both is there.
 */
import { all, find, need, sentences, speechServer } from "./page.js";

const sayOfSpeech = sentences("speech");

// --- dictation ---

/** What listens at present. @type {{stop: () => void, leave: () => void} | null} */
let listening = null;
/** A recording that the server could not turn into text. @type {Blob | null} */
let unsent = null;

const MAX_SECONDS = 600; // of one dictation

/**
 * Starts the dictation into the field, or stops a running one.
 * @param {HTMLButtonElement} button `data-denied` and `data-failed` are the sentences for errors
 * @param {HTMLTextAreaElement} field
 * @param {(text: string) => void} tell
 */
export async function dictate(button, field, tell) {
  if (listening) return listening.stop();
  const address = speechServer("transcriptions");
  if (!address) return recognise(button, field, tell);
  if (unsent) return transcribe(unsent, address, button, field, tell);
  return record(address, button, field, tell);
}

/** By the browser's engine. @param {HTMLButtonElement} button @param {HTMLTextAreaElement} field @param {(text: string) => void} tell */
function recognise(button, field, tell) {
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
    listening = null;
    button.ariaPressed = "false";
  });
  listening = { stop: () => engine.stop(), leave: () => engine.abort() };
  button.ariaPressed = "true";
  tell("");
  engine.start();
}

/**
 * Records until the button is pressed again, then has the server write it down.
 * @param {string} address @param {HTMLButtonElement} button @param {HTMLTextAreaElement} field @param {(text: string) => void} tell
 */
async function record(address, button, field, tell) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).catch((error) => {
    tell((error.name === "NotAllowedError" ? button.dataset.denied : button.dataset.failed) ?? "");
  });
  if (!stream) return;
  if (listening) return end(stream); // pressed twice while the browser asked
  const recorder = new MediaRecorder(stream, { audioBitsPerSecond: 32_000 });
  /** @type {Blob[]} */
  const pieces = [];
  const showLength = () => tell(sayOfSpeech("recording", { count: pieces.length }));
  recorder.addEventListener("dataavailable", ({ data }) => {
    pieces.push(data);
    if (recorder.state === "recording") showLength();
  });
  const limit = setTimeout(() => recorder.stop(), MAX_SECONDS * 1000);
  recorder.addEventListener("stop", () => {
    clearTimeout(limit);
    end(stream);
    listening = null;
    button.ariaPressed = "false";
    const recording = new Blob(pieces, { type: recorder.mimeType });
    if (recording.size) transcribe(recording, address, button, field, tell);
    else tell(sayOfSpeech("silent"));
  });
  listening = { stop: () => recorder.stop(), leave: () => end(stream) };
  button.ariaPressed = "true";
  showLength();
  recorder.start(1000); // a piece a second
}

/** Switches the microphone off. @param {MediaStream} stream */
function end(stream) {
  for (const track of stream.getTracks()) track.stop();
}

/**
 * A recording that fails is kept: the next press sends it again.
 * @param {Blob} recording @param {string} address @param {HTMLButtonElement} button @param {HTMLTextAreaElement} field @param {(text: string) => void} tell
 */
async function transcribe(recording, address, button, field, tell) {
  const body = new FormData();
  body.append("file", recording, "dictation");
  button.disabled = true;
  tell(sayOfSpeech("transcribing"));
  const response = await post(address, body);
  button.disabled = false;
  const answer = await response?.json().catch(() => null);
  if (!response?.ok || !answer) {
    unsent = recording;
    const reason = answer?.detail ?? sayOfSpeech("unreachable");
    return tell(`${reason} ${sayOfSpeech("kept")}`);
  }
  unsent = null;
  if (answer.text) insertText(field, answer.text);
  tell(answer.text ? "" : sayOfSpeech("silent"));
}

/** @param {string} address @param {FormData | string} body @returns {Promise<Response | null>} null: the server cannot be reached */
function post(address, body) {
  /** @type {Record<string, string>} */
  const headers = { "X-CSRFToken": need(HTMLInputElement, "[name=csrfmiddlewaretoken]").value };
  if (typeof body === "string") headers["Content-Type"] = "application/json";
  return fetch(address, { method: "POST", body, headers }).catch(() => null);
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
const PIECE = 600; // characters that are sent to a server at a time: the first sound comes soon
const MAX_PIECE = 4000; // characters; a block may have more

/** What a server's voice reads at present. @type {{stop: () => void} | null} */
let reading = null;

/** Reads the answer from its beginning, or stops reading. @param {HTMLButtonElement} button @param {Element} article */
export function readAloud(button, article) {
  const reads = button.ariaPressed === "true";
  if ("speechSynthesis" in window) speechSynthesis.cancel();
  reading?.stop();
  for (const each of all(HTMLButtonElement, "[data-read-aloud]")) each.ariaPressed = "false";
  if (reads) return;
  const blocks = all(HTMLElement, BLOCKS, article).filter((each) => !find(HTMLElement, BLOCKS, each));
  // One utterance for each block, since some engines stop in the middle of a long text.
  const texts = blocks.map((each) => each.textContent.replace(/\[\d+\]/gu, "").trim()).filter(Boolean);
  const address = speechServer("spoken");
  button.ariaPressed = String(texts.length > 0);
  if (address) play(button, piecesOf(texts.slice(0, MAX_BLOCKS)), address);
  else speak(button, texts.slice(0, MAX_BLOCKS));
}

/** By the browser's engine. @param {HTMLButtonElement} button @param {string[]} texts */
function speak(button, texts) {
  const parts = texts.map((text) => {
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
}

/** Blocks together, as far as they are short. @param {string[]} texts */
function piecesOf(texts) {
  /** @type {string[]} */
  const pieces = [];
  for (const text of texts) {
    for (let rest = text; rest; ) {
      const cut = rest.length > MAX_PIECE ? Math.max(rest.lastIndexOf(" ", MAX_PIECE), 1) : rest.length;
      const part = rest.slice(0, cut);
      rest = rest.slice(cut).trim();
      const last = pieces.at(-1);
      if (last !== undefined && last.length + part.length < PIECE) pieces[pieces.length - 1] = `${last}\n${part}`;
      else pieces.push(part);
    }
  }
  return pieces;
}

/**
 * By a server: each piece is fetched while the one before it sounds.
 * @param {HTMLButtonElement} button @param {string[]} pieces @param {string} address
 */
async function play(button, pieces, address) {
  const audio = new Audio();
  const me = {
    stopped: false,
    stop: () => {
      me.stopped = true;
      audio.pause();
      audio.dispatchEvent(new Event("ended"));
    },
  };
  reading = me;
  const status = find(HTMLElement, "#status");
  let next = pieces.length ? fetchSound(address, pieces[0] ?? "") : null;
  for (let at = 0; next; at++) {
    const sound = await next;
    if (me.stopped) break;
    if (typeof sound === "string") {
      if (status) status.textContent = sound;
      break;
    }
    next = at + 1 < pieces.length ? fetchSound(address, pieces[at + 1] ?? "") : null;
    const played = new Promise((resolve) => {
      for (const event of ["ended", "error"]) audio.addEventListener(event, resolve, { once: true });
    });
    audio.src = URL.createObjectURL(sound);
    await audio.play().catch(() => audio.dispatchEvent(new Event("error")));
    await played;
    URL.revokeObjectURL(audio.src);
    if (me.stopped) break;
  }
  if (reading === me) {
    reading = null;
    button.ariaPressed = "false";
  }
}

/** @param {string} address @param {string} text @returns {Promise<Blob | string>} the sound, or why there is none */
async function fetchSound(address, text) {
  const response = await post(address, JSON.stringify({ text }));
  if (response?.ok) return response.blob();
  const answer = await response?.json().catch(() => null);
  return answer?.detail ?? sayOfSpeech("unreachable");
}

addEventListener("pagehide", () => {
  listening?.leave();
  reading?.stop();
  if ("speechSynthesis" in window) speechSynthesis.cancel();
});
