/**
 * The base of all scripts: typed look-ups of elements; sentences in the reader's language; the placement of floating
 * elements; the display of passwords; the clipboard.
 */

// --- elements ---

/** @typedef {Document | DocumentFragment | Element} Root */

/**
 * @template {Element} Kind
 * @param {new () => Kind} kind
 * @param {string} selector
 * @param {Root | null} [root]
 * @returns {Kind | null} the first match of this kind
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
 * @returns {Kind} the first match; throws an Error that names the missing selector
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
 * @param {unknown} place such as the target of an event, which need not be an element
 * @returns {Kind | null} the nearest match around the place, or the place itself
 */
export function around(kind, selector, place) {
  const found = place instanceof Element ? place.closest(selector) : null;
  return found instanceof kind ? found : null;
}

/** @param {string} html from the server @returns {Document} */
export function parse(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

/** Returns whether a click opens a new tab or window. @param {MouseEvent} event */
export function opensNewTab(event) {
  return event.ctrlKey || event.metaKey || event.shiftKey;
}

/** Announces a change to the elements that show it. @param {string} name @param {object} [detail] */
export function announce(name, detail) {
  document.body.dispatchEvent(new CustomEvent(name, { detail }));
}

// --- the reader's language ---

const plural = new Intl.PluralRules(document.documentElement.lang || "en");

/**
 * Returns a function for the sentences in the data attributes of an element, such as `data-done`. A sentence with a
 * `count` may have a form for one, such as `data-done-one`.
 *
 * @param {string} id of the element
 * @returns {(name: string, values?: Record<string, string | number>) => string} `values` replace placeholders like `{name}`
 */
export function sentences(id) {
  return (name, values = {}) => {
    const words = document.getElementById(id)?.dataset ?? {};
    const one = typeof values.count === "number" && plural.select(values.count) === "one";
    const sentence = (one && words[`${name}One`]) || (words[name] ?? "");
    return Object.entries(values).reduce((text, [key, value]) => text.replace(`{${key}}`, String(value)), sentence);
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

// --- notifications while the page is hidden ---

const NOTIFY_KEY = "notify"; // the key in this browser's storage

/** Switches notifications on, with the browser's permission, or off. @returns {Promise<boolean>} whether they are on */
export async function toggleNotifications() {
  const wanted = localStorage.getItem(NOTIFY_KEY) === null;
  const granted = wanted && "Notification" in window && (await Notification.requestPermission()) === "granted";
  if (granted) localStorage.setItem(NOTIFY_KEY, "yes");
  else localStorage.removeItem(NOTIFY_KEY);
  return granted;
}

/** Shows a notification if they are on and the page is hidden. @param {string} title @param {string} text */
export function notify(title, text) {
  if (!document.hidden || localStorage.getItem(NOTIFY_KEY) === null) return;
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  const shown = new Notification(title, { body: text, tag: location.pathname });
  shown.onclick = () => {
    window.focus();
    shown.close();
  };
}

// --- floating elements ---

const GAP = 4; // pixels to the anchor
const EDGE = 8; // pixels to the edge of the window

/**
 * Places a floating element below its anchor, else above it, within the window. The content security policy forbids style
 * attributes, but not this.
 *
 * @param {HTMLElement} floating
 * @param {Element} anchor
 */
export function placeBeside(floating, anchor) {
  const at = anchor.getClientRects()[0] ?? anchor.getBoundingClientRect();
  const { offsetHeight: height, offsetWidth: width } = floating;
  const below = at.bottom + GAP;
  const top = below + height + EDGE <= innerHeight ? below : at.top - GAP - height;
  const left = Math.max(EDGE, Math.min(at.left, innerWidth - width - EDGE));
  floating.style.inset = `${Math.max(EDGE, top)}px auto auto ${left}px`;
}

// --- blocks of code that have a preview ---

/** Kinds of blocks with a preview, by the language that a model names. @type {Record<string, string>} */
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

/** @param {HTMLElement} code a block @returns {string} the kind of its preview; empty without one */
export function previewKind(code) {
  const language = find(HTMLElement, ".lang", code)?.textContent.trim().toLowerCase() ?? "";
  if (language === "xml" && /<svg[\s>]/.test(find(HTMLElement, "code", code)?.textContent ?? "")) return "svg";
  return PREVIEWS[language] ?? "";
}

// --- buttons that show a password ---

for (const button of all(HTMLButtonElement, "[data-reveal]")) {
  button.hidden = false;
  button.form?.addEventListener("submit", () => reveal(button, false)); // browsers remember the contents of text fields
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

// --- the clipboard: a block of code, a whole answer as Markdown, a table, or a link ---

const COPIED_LABEL_TIME = 1_600; // ms

/**
 * Copies a text. The clipboard API exists on secure origins only; servers without TLS need `execCommand`.
 *
 * @param {Promise<string>} text
 */
async function writeToClipboard(text) {
  if (navigator.clipboard) {
    // The promise itself, since Safari allows copying only at the click, not after the text is loaded.
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

/** Returns a table as CSV by RFC 4180. @param {HTMLTableElement | null} table */
function tableToCsv(table) {
  const cell = (/** @type {Element} */ each) => {
    const text = (each.textContent ?? "").trim();
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [...(table?.rows ?? [])].map((row) => [...row.cells].map(cell).join(",")).join("\r\n");
}

/** @param {HTMLElement} button */
async function copyText(button) {
  const { copyAnswer, copyTable } = button.dataset;
  if (copyTable !== undefined)
    return tableToCsv(find(HTMLTableElement, "table", button.parentElement?.previousElementSibling));
  if (copyAnswer === undefined) return around(HTMLElement, ".code", button)?.querySelector("code")?.textContent ?? "";
  const response = await fetch(copyAnswer);
  if (!response.ok) throw new Error(`the text was refused with ${response.status}`);
  return response.text();
}

document.addEventListener("click", ({ target }) => {
  const button = around(HTMLElement, "[data-copy], [data-copy-answer], [data-copy-table]", target);
  if (button) copyFrom(button, copyText(button));
});

/** Copies the text, and shows the outcome on the button. @param {HTMLElement} button @param {Promise<string>} text */
export async function copyFrom(button, text) {
  const label = find(HTMLElement, "[data-copy-label]", button) ?? button;
  label.dataset.before ??= label.textContent;
  const copied = await writeToClipboard(text).then(
    () => "copied",
    () => "uncopied",
  );
  label.textContent = say(copied);
  setTimeout(() => (label.textContent = label.dataset.before ?? ""), COPIED_LABEL_TIME);
}

// Without a clipboard API the link is only selected.
for (const button of all(HTMLButtonElement, "[data-copy-link]")) button.hidden = false;
document.addEventListener("click", async ({ target }) => {
  const button = around(HTMLButtonElement, "[data-copy-link]", target);
  const field = button && find(HTMLInputElement, "input[readonly]", button.parentElement);
  field?.select();
  if (!field || !navigator.clipboard) return;
  await navigator.clipboard.writeText(field.value);
  button.textContent = button.dataset.copied ?? "";
});
