/**
 * What every script stands on: elements of the page, with the kind they are known to have; the reader's language; places
 * for what floats; passwords that are shown; the clipboard.
 */

// --- elements ---

/** @typedef {Document | DocumentFragment | Element} Root */

/**
 * @template {Element} Kind
 * @param {new () => Kind} kind
 * @param {string} selector
 * @param {Root | null} [root]
 * @returns {Kind | null} the first of them
 */
export function find(kind, selector, root = document) {
  const found = root?.querySelector(selector);
  return found instanceof kind ? found : null;
}

/**
 * @template {Element} Kind
 * @param {new () => Kind} kind
 * @param {string} selector
 * @param {Root} [root]
 * @returns {Kind} the first of them; an Error says which one the page lacks
 */
export function need(kind, selector, root = document) {
  const found = find(kind, selector, root);
  if (!found) throw new Error(`${selector} is not on the page`);
  return found;
}

/**
 * @template {Element} Kind
 * @param {new () => Kind} kind
 * @param {string} selector
 * @param {Root} [root]
 * @returns {Kind[]}
 */
export function all(kind, selector, root = document) {
  return [...root.querySelectorAll(selector)].flatMap((each) => (each instanceof kind ? [each] : []));
}

/**
 * @template {Element} Kind
 * @param {new () => Kind} kind
 * @param {string} selector
 * @param {unknown} place as an event names it: what it happened to, which need not be an element
 * @returns {Kind | null} the nearest of them that the place is in
 */
export function around(kind, selector, place) {
  const found = place instanceof Element ? place.closest(selector) : null;
  return found instanceof kind ? found : null;
}

/** @param {string} html of the server @returns {Document} */
export function parse(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

/** Whether a click is to open a new tab or window. @param {MouseEvent} event */
export function opensElsewhere(event) {
  return event.ctrlKey || event.metaKey || event.shiftKey;
}

/** Tells the page that something changed, for whatever shows it. @param {string} name @param {object} [detail] */
export function announce(name, detail) {
  document.body.dispatchEvent(new CustomEvent(name, { detail }));
}

// --- the reader's language ---

const plural = new Intl.PluralRules(document.documentElement.lang || "en");

/**
 * Sentences that the server wrote into an element of the page: `data-done`, and `data-done-one` where a `count` of one
 * has a form of its own.
 *
 * @param {string} id of the element
 * @returns {(name: string, values?: Record<string, string | number>) => string} `values` go in place of `{name}`
 */
export function sentences(id) {
  return (name, values = {}) => {
    const words = document.getElementById(id)?.dataset ?? {};
    const one = typeof values.count === "number" && plural.select(values.count) === "one";
    const said = (one && words[`${name}One`]) || (words[name] ?? "");
    return Object.entries(values).reduce((text, [key, value]) => text.replace(`{${key}}`, String(value)), said);
  };
}

export const say = sentences("words");

// --- speech ---

/** Whether the browser can do it by itself. @param {"transcriptions" | "spoken"} part */
function hasEngine(part) {
  return part === "spoken"
    ? "speechSynthesis" in window
    : !!(window.SpeechRecognition ?? window.webkitSpeechRecognition);
}

/**
 * @param {"transcriptions" | "spoken"} part
 * @returns {string | null} the address of the workspace's server for it; null where the browser's own engine is used
 */
export function speechServer(part) {
  const offer = document.getElementById("speech")?.dataset ?? {};
  if (part === "transcriptions" && !(navigator.mediaDevices && "MediaRecorder" in window)) return null;
  const address = offer[part];
  return address && (offer[`${part}First`] !== undefined || !hasEngine(part)) ? address : null;
}

/** @param {"transcriptions" | "spoken"} part */
export function hasSpeech(part) {
  return hasEngine(part) || speechServer(part) !== null;
}

// --- what happens while somebody looks elsewhere ---

const NOTIFY = "notify"; // in this browser's storage, once somebody wants it

/** Asks the browser for leave, or gives it up again. @returns {Promise<boolean>} whether they come from now on */
export async function switchNotifications() {
  const wanted = localStorage.getItem(NOTIFY) === null;
  const granted = wanted && "Notification" in window && (await Notification.requestPermission()) === "granted";
  if (granted) localStorage.setItem(NOTIFY, "yes");
  else localStorage.removeItem(NOTIFY);
  return granted;
}

/** A word from the browser, where that is wanted and nobody looks at the page. @param {string} title @param {string} text */
export function notify(title, text) {
  if (!document.hidden || localStorage.getItem(NOTIFY) === null) return;
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  const shown = new Notification(title, { body: text, tag: location.pathname });
  shown.onclick = () => {
    window.focus();
    shown.close();
  };
}

// --- places ---

const GAP = 4; // pixels to what it belongs to
const EDGE = 8; // pixels to the edge of the window

/**
 * Puts what floats below, or above where there is more room; never out of the window. The policy forbids style
 * attributes, not the object model.
 *
 * @param {HTMLElement} floating
 * @param {Element} anchor
 */
export function beside(floating, anchor) {
  const at = anchor.getClientRects()[0] ?? anchor.getBoundingClientRect();
  const { offsetHeight: height, offsetWidth: width } = floating;
  const below = at.bottom + GAP;
  const top = below + height + EDGE <= innerHeight ? below : at.top - GAP - height;
  const left = Math.max(EDGE, Math.min(at.left, innerWidth - width - EDGE));
  floating.style.inset = `${Math.max(EDGE, top)}px auto auto ${left}px`;
}

// --- blocks of code that have a preview ---

/** Kinds of blocks that have a preview, by what a model calls their language. @type {Record<string, string>} */
const PREVIEWS = {
  html: "html",
  xhtml: "html",
  svg: "svg",
  csv: "csv",
  tsv: "tsv",
  markdown: "markdown",
  md: "markdown",
  mermaid: "mermaid",
};

/** @param {HTMLElement} code a block @returns {string} the kind of its preview; empty where it has none */
export function kindOf(code) {
  const language = find(HTMLElement, ".lang", code)?.textContent.trim().toLowerCase() ?? "";
  if (language === "xml" && /<svg[\s>]/.test(find(HTMLElement, "code", code)?.textContent ?? "")) return "svg";
  return PREVIEWS[language] ?? "";
}

// --- passwords, shown to whoever is writing them ---

for (const button of all(HTMLButtonElement, "[data-reveal]")) {
  button.hidden = false;
  button.form?.addEventListener("submit", () => reveal(button, false)); // browsers keep what text fields had
}
document.addEventListener("click", ({ target }) => {
  const button = around(HTMLButtonElement, "[data-reveal]", target);
  if (button) reveal(button, button.ariaPressed !== "true");
});

/** @param {HTMLButtonElement} button @param {boolean} shown */
function reveal(button, shown) {
  button.ariaPressed = String(shown);
  for (const id of (button.dataset.reveal ?? "").split(" "))
    need(HTMLInputElement, `#${id}`).type = shown ? "text" : "password";
}

// --- the clipboard: a block of code, a whole answer as the Markdown in which it was written, or a link ---

const SHOWN_FOR = 1_600; // ms

/**
 * The clipboard's own interface exists on secure origins only; an office server without TLS needs the old way.
 *
 * @param {Promise<string>} text
 */
async function write(text) {
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

/** As in RFC 4180. @param {HTMLTableElement | null} table */
function csv(table) {
  const cell = (/** @type {Element} */ each) => {
    const text = (each.textContent ?? "").trim();
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [...(table?.rows ?? [])].map((row) => [...row.cells].map(cell).join(",")).join("\r\n");
}

/** @param {HTMLElement} button */
async function textFor(button) {
  const { copyAnswer, copyTable } = button.dataset;
  if (copyTable !== undefined)
    return csv(find(HTMLTableElement, "table", button.parentElement?.previousElementSibling));
  if (copyAnswer === undefined) return around(HTMLElement, ".code", button)?.querySelector("code")?.textContent ?? "";
  const response = await fetch(copyAnswer);
  if (!response.ok) throw new Error(`the text was refused with ${response.status}`);
  return response.text();
}

document.addEventListener("click", ({ target }) => {
  const button = around(HTMLElement, "[data-copy], [data-copy-answer], [data-copy-table]", target);
  if (button) copyFrom(button, textFor(button));
});

/** Copies the text, and says on the button whether that went well. @param {HTMLElement} button @param {Promise<string>} text */
export async function copyFrom(button, text) {
  const label = find(HTMLElement, "[data-copy-label]", button) ?? button;
  label.dataset.before ??= label.textContent;
  const copied = await write(text).then(
    () => "copied",
    () => "uncopied",
  );
  label.textContent = say(copied);
  setTimeout(() => (label.textContent = label.dataset.before ?? ""), SHOWN_FOR);
}

/** Without a clipboard a link is selected, to be copied by hand. */
for (const button of all(HTMLButtonElement, "[data-copy-link]")) button.hidden = false;
document.addEventListener("click", async ({ target }) => {
  const button = around(HTMLButtonElement, "[data-copy-link]", target);
  const field = button && find(HTMLInputElement, "input[readonly]", button.parentElement);
  field?.select();
  if (!field || !navigator.clipboard) return;
  await navigator.clipboard.writeText(field.value);
  button.textContent = button.dataset.copied ?? "";
});
