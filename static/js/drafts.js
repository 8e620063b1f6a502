/**
 * What somebody writes is not lost: not with the session, the network or the server away, nor by a link that was clicked
 * by mistake. One mechanism for every form, of the workspace and of the admin.
 *
 * 1. A form that posts text keeps what is changed in it as a draft, in this browser, for its person. Passwords, codes and
 *    what has `data-no-draft` are never kept. A draft goes once the server has stored the text, when it is discarded,
 *    after 30 days, and with a sign-out.
 * 2. A form that is shown again gets its draft back, and says so, with a button that discards it.
 * 3. Such a form is sent by this script, unless htmx sends it. What is refused, or not answered, leaves the page as it
 *    is, with a sentence at the button. `config/http/forms.py` is the server's side of it.
 *
 * The composer has `data-own-draft`: it stores its draft here, but sends and restores by itself.
 */
import { all, around, find, parse, sentences } from "./page.js";

const say = sentences("draft-words");
const person = document.getElementById("draft-words")?.dataset.person ?? ""; // empty where nobody is signed in

// --- what this browser stores ---

const DRAFT = "draft:";
const LONGEST = 1_000_000; // characters of one draft
const MOST = 100; // drafts
const OLDEST = 30 * 86_400_000; // ms: twice as long as a session lasts that nobody uses

/** @typedef {{at: number, value: any}} Stored */

/** @param {string} name */
function keyOf(name) {
  return `${DRAFT}${person}/${name}`;
}

/** @param {string} key @returns {Stored | null} */
function stored(key) {
  try {
    const found = JSON.parse(localStorage.getItem(key) ?? "null");
    return typeof found?.at === "number" ? found : null;
  } catch {
    return null;
  }
}

/** The keys of all drafts, the oldest first. */
function draftKeys() {
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(DRAFT));
  const since = new Map(keys.map((key) => [key, stored(key)?.at ?? 0]));
  return keys.sort((one, other) => (since.get(one) ?? 0) - (since.get(other) ?? 0));
}

/** Stores a draft, or removes it where nothing is written. @param {string} name @param {unknown} value */
export function keepDraft(name, value) {
  if (!person) return;
  const key = keyOf(name);
  const text = value ? JSON.stringify({ at: Date.now(), value }) : "";
  if (!text || text.length > LONGEST) return localStorage.removeItem(key);
  for (const older of [...draftKeys().filter((each) => each !== key), null]) {
    try {
      return localStorage.setItem(key, text);
    } catch {
      if (older) localStorage.removeItem(older); // the browser's store is full
    }
  }
}

/** @param {string} name @returns {any} null without a draft */
export function draftOf(name) {
  return stored(keyOf(name))?.value ?? null;
}

/** @param {string} name */
export function dropDraft(name) {
  localStorage.removeItem(keyOf(name));
}

function removeOld() {
  for (const key of draftKeys()) adopt(key);
  const keys = draftKeys();
  keys.forEach((key, index) => {
    const { at } = stored(key) ?? { at: 0 };
    if (Date.now() - at > OLDEST || keys.length - index > MOST) localStorage.removeItem(key);
  });
}

/** A message that was being written when the version before this one was replaced: its draft names no person. @param {string} key */
function adopt(key) {
  const name = key.slice(DRAFT.length);
  if (name.includes("/") || name.startsWith("prompt:")) return;
  if (draftOf(name) === null) keepDraft(name, localStorage.getItem(key));
  localStorage.removeItem(key);
}

// Whoever signs out leaves no drafts behind.
document.addEventListener("submit", ({ target }) => {
  if (!around(HTMLFormElement, '[data-sign-out], [action$="/logout/"]', target)) return;
  for (const key of draftKeys()) localStorage.removeItem(key);
});

// --- forms and their fields ---

/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Field */
/** @typedef {{name: string, nth: number, value: string | boolean | string[]}} Change of a field; `nth` among those of its name */
/** @typedef {{page: string, opener: string, changes: Change[]}} FormDraft where the form is, and what opens it there */

const TEXT = `textarea, input:is(:not([type]), ${["text", "url", "email", "tel", "number"].map((type) => `[type=${type}]`).join()})`;
const SECRET =
  "[type=password], [autocomplete=one-time-code], [autocomplete$=password], [data-no-draft], [data-no-draft] *";
const UNKEPT = "[type=hidden], [type=file], [type=submit], [type=button], [type=image], [type=reset], [type=search]";

/** Whether this module sends the form, or tells of it where htmx does. @param {unknown} form @returns {form is HTMLFormElement} */
export function holdsText(form) {
  if (!person || !(form instanceof HTMLFormElement) || form.matches("[data-own-draft]")) return false;
  return form.getAttribute("method")?.toLowerCase() === "post" && fieldsOf(form).some((field) => field.matches(TEXT));
}

/** @param {HTMLFormElement} form @returns {Field[]} those that a person fills in */
function fieldsOf(form) {
  const kinds = [HTMLInputElement, HTMLTextAreaElement, HTMLSelectElement];
  const fields = /** @type {Field[]} */ (
    [...form.elements].filter((each) => kinds.some((kind) => each instanceof kind))
  );
  return fields.filter((field) => field.name && !field.disabled && !field.matches(UNKEPT));
}

/** @param {HTMLFormElement} form */
function keptFieldsOf(form) {
  return fieldsOf(form).filter((field) => !field.matches(SECRET) && !field.matches("[readonly]"));
}

/** The forms of the page that hold text. @param {Document | Element} [root] */
function formsIn(root = document) {
  const forms = all(HTMLElement, TEXT, root).map((field) => /** @type {HTMLInputElement} */ (field).form);
  return [...new Set(forms)].filter(holdsText);
}

/** Not `form.action`: a field of the form may have that name. @param {HTMLFormElement} form @param {Element | null} [submitter] */
function addressOf(form, submitter = null) {
  const action = submitter?.getAttribute("formaction") ?? form.getAttribute("action");
  return new URL(action || location.href, location.href);
}

/** @param {HTMLFormElement} form */
function nameOf(form) {
  return `form ${addressOf(form).pathname}${form.id && `#${form.id}`}`;
}

/** @param {Field} field @returns {Change["value"]} */
function currentValue(field) {
  if (field instanceof HTMLInputElement && ["checkbox", "radio"].includes(field.type)) return field.checked;
  if (field instanceof HTMLSelectElement && field.multiple) return [...field.selectedOptions].map(({ value }) => value);
  return field.value;
}

/** @param {Field} field @param {Change["value"]} value */
function setValue(field, value) {
  if (field instanceof HTMLInputElement && typeof value === "boolean") field.checked = value;
  else if (field instanceof HTMLSelectElement && Array.isArray(value))
    for (const option of field.options) option.selected = value.includes(option.value);
  else if (typeof value === "string") field.value = value;
}

/** @param {Field} field @returns {Change["value"]} as the server rendered it */
function valueByServer(field) {
  if (field instanceof HTMLInputElement && ["checkbox", "radio"].includes(field.type)) return field.defaultChecked;
  if (!(field instanceof HTMLSelectElement)) return field.defaultValue;
  const chosen = [...field.options].filter((option) => option.defaultSelected).map(({ value }) => value);
  return field.multiple ? chosen : (chosen[0] ?? field.options[0]?.value ?? "");
}

// --- keeping ---

/** What opened a form that came after the page, as `hx-get` of it. @type {WeakMap<HTMLFormElement, string>} */
const openers = new WeakMap();

/** The changes in the draft that a form has written or was restored from; another tab may have written its own since. @type {WeakMap<HTMLFormElement, string>} */
const own = new WeakMap();

/** What is written in a form. @param {HTMLFormElement} form */
function changesIn(form) {
  /** @type {Map<string, number>} */
  const seen = new Map();
  /** @type {Change[]} */
  const changes = [];
  for (const field of keptFieldsOf(form)) {
    const nth = seen.get(field.name) ?? 0;
    seen.set(field.name, nth + 1);
    if (isWritten(field)) changes.push({ name: field.name, nth, value: currentValue(field) });
  }
  return changes;
}

/** @param {HTMLFormElement} form @param {Change[]} [changes] */
function keep(form, changes = changesIn(form)) {
  const page = location.pathname;
  keepDraft(nameOf(form), changes.length ? { page, opener: openers.get(form) ?? "", changes } : null);
  own.set(form, JSON.stringify(changes));
}

for (const type of ["input", "change"])
  document.addEventListener(type, ({ target }) => {
    const { form } = /** @type {HTMLInputElement} */ (target);
    if (!holdsText(form)) return;
    const changes = changesIn(form);
    if (JSON.stringify(changes) !== own.get(form)) keep(form, changes); // leaving a field changes nothing
  });

/** The server has stored it: the draft of the same form in another tab stays. @param {HTMLFormElement} form */
function dropOwn(form) {
  if (JSON.stringify(draftOf(nameOf(form))?.changes ?? []) === own.get(form)) dropDraft(nameOf(form));
}

/** The server has stored it, or it was given up. @param {HTMLFormElement} form */
export function forget(form) {
  dropDraft(nameOf(form));
  notes.get(form)?.remove();
  notes.delete(form);
}

document.addEventListener("click", ({ target }) => {
  const form = around(Element, "[data-cancel]", target)?.closest("form") ?? null;
  if (holdsText(form)) forget(form);
});

// --- restoring ---

/** What was restored into a form, with the note that says so. @type {WeakMap<HTMLFormElement, HTMLElement>} */
const notes = new WeakMap();
/** @type {WeakSet<HTMLFormElement>} */
const looked = new WeakSet();

/** Gives a form its draft back. @param {HTMLFormElement} form */
export function restore(form) {
  if (looked.has(form)) {
    const note = notes.get(form);
    if (note && !note.isConnected) form.prepend(note); // what was swapped around it did not know of the note
    return;
  }
  looked.add(form);
  const draft = stored(keyOf(nameOf(form)));
  const changes = /** @type {FormDraft | undefined} */ (draft?.value)?.changes ?? [];
  own.set(form, JSON.stringify(changes));
  const restored = changes.flatMap(({ name, nth, value }) => {
    const field = keptFieldsOf(form).filter((each) => each.name === name)[nth];
    const same = !field || JSON.stringify(valueByServer(field)) === JSON.stringify(value);
    if (same || (isWritten(field) && JSON.stringify(currentValue(field)) !== JSON.stringify(value))) return [];
    setValue(field, value);
    return [field];
  });
  if (!draft || !restored.length) return;
  show(form, draft.at, restored);
  const tell = () => restored.forEach(tellChange);
  if (document.readyState === "complete") tell();
  else addEventListener("load", tell); // by then htmx listens
}

/** Tells what counts, plans or grows with a field. @param {Field} field */
function tellChange(field) {
  for (const type of ["input", "change"]) field.dispatchEvent(new Event(type, { bubbles: true }));
}

/** @param {HTMLFormElement} form @param {number} at @param {Field[]} restored */
function show(form, at, restored) {
  const note = document.createElement("p");
  const button = document.createElement("button");
  const time = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
  note.className = "note restored";
  note.role = "status";
  button.type = "button";
  button.textContent = say("discard");
  button.addEventListener("click", () => {
    for (const field of restored) {
      setValue(field, valueByServer(field));
      tellChange(field);
    }
    forget(form);
    restored[0].focus();
  });
  note.append(`${say("restored", { time: time.format(at) })} `, button);
  notes.set(form, note);
  form.prepend(note);
  for (let place = form.parentElement; place; place = place.parentElement)
    if (place instanceof HTMLDetailsElement) place.open = true;
}

/** Opens again what was written in on this page, and came only when it was asked for: the edit of a message. */
function openAgain() {
  const here = new Set(formsIn().map((form) => keyOf(nameOf(form))));
  for (const key of draftKeys().filter((each) => each.startsWith(keyOf("form ")) && !here.has(each))) {
    const { page, opener } = /** @type {FormDraft} */ (stored(key)?.value ?? {});
    if (page !== location.pathname || !opener) continue;
    find(HTMLElement, `[hx-get="${CSS.escape(opener)}"]`)?.click();
  }
}

// --- sending ---

const HERE = () => location.href.split("#")[0];
/** @type {Set<HTMLFormElement>} */
const underWay = new Set();

document.addEventListener("submit", (event) => {
  const { target: form, submitter } = event;
  if (event.defaultPrevented || !holdsText(form) || form.target || submitter?.getAttribute("formtarget")) return;
  event.preventDefault();
  send(form, submitter);
});

/** @param {HTMLFormElement} form @param {HTMLElement | null} [submitter] */
export async function send(form, submitter = null) {
  if (underWay.has(form)) return;
  underWay.add(form);
  form.ariaBusy = "true";
  const headers = { "Form-Submission": "script", "HX-Current-URL": HERE() };
  const body = new FormData(form, submitter);
  const address = addressOf(form, submitter);
  const response = await fetch(address, { method: "POST", body, headers, redirect: "manual" }).catch(() => null);
  const to = response?.headers.get("Form-Location");
  if (response && to) {
    if (response.headers.get("Form-Stored") === "yes") dropOwn(form);
    return go(form, new URL(to, location.href));
  }
  ready(form);
  refuse(form, response ? await response.text() : null, submitter);
}

/** @param {HTMLFormElement} form */
function ready(form) {
  underWay.delete(form);
  form.ariaBusy = null;
}

/** @param {HTMLFormElement} form @param {URL} to */
function go(form, to) {
  if (to.hash && to.href.split("#")[0] === HERE()) {
    form.reset(); // the browser would write what was sent into the form of the same page
    location.hash = to.hash;
    location.reload();
  } else {
    location.assign(to);
  }
}

// A page that comes back from the browser's memory can be sent again.
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) for (const form of [...underWay]) ready(form);
});

/**
 * Says at the button why the server has not taken a form.
 *
 * @param {HTMLFormElement} form
 * @param {string | null} html of the server; null without an answer
 * @param {HTMLElement | null} [submitter]
 */
export function refuse(form, html, submitter = null) {
  const sentence = html === null ? null : find(HTMLElement, ".problem", parse(html));
  const line = document.createElement("p");
  line.className = "problem";
  line.role = "alert";
  if (sentence) line.append(...sentence.childNodes);
  else line.textContent = say(html === null ? "unreachable" : "refused");
  const place = find(HTMLElement, "[data-problem]", form) ?? placeAt(form, submitter);
  place.replaceChildren(line);
  line.scrollIntoView({ block: "nearest" });
}

/** @param {HTMLFormElement} form @param {HTMLElement | null} submitter */
function placeAt(form, submitter) {
  const there = document.getElementById(form.dataset.refusal ?? "");
  if (there) return there;
  const place = document.createElement("div");
  place.id = form.dataset.refusal = `refusal-${Math.random().toString(36).slice(2)}`;
  place.className = "refusal";
  const button = submitter ?? [...form.elements].find((each) => each.matches("[type=submit]")) ?? form.lastElementChild;
  const bar = button?.closest("#submit-row"); // of the admin: it stays in sight, outside the form
  if (bar) {
    bar.firstElementChild?.prepend(place);
    return place;
  }
  let row = button;
  while (row?.parentElement?.matches(".row, .line, .actions")) row = row.parentElement;
  if (row) row.before(place);
  else form.append(place);
  return place;
}

// --- fields ---

/** Whether somebody has changed the field since the server rendered it. @param {Element} field */
export function isWritten(field) {
  if (field instanceof HTMLTextAreaElement) return field.value !== field.defaultValue;
  if (field instanceof HTMLSelectElement) {
    const options = [...field.options];
    return field.value !== (options.find((each) => each.defaultSelected) ?? options[0])?.value;
  }
  if (!(field instanceof HTMLInputElement) || field.type === "hidden") return false;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  return field.type === "file" ? Boolean(field.files?.length) : field.value !== field.defaultValue;
}

/**
 * What the server has taken is not only the person's any more: from here on these fields show what the server says, but for
 * those that were changed again meanwhile.
 *
 * @param {HTMLFormElement} form
 * @param {FormData} sent
 */
export function settle(form, sent) {
  for (const field of form.elements) {
    if (
      !(field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement || field instanceof HTMLSelectElement)
    )
      continue;
    const taken = sent.getAll(field.name).includes(field.value);
    if (field instanceof HTMLInputElement && (field.type === "checkbox" || field.type === "radio")) {
      if (field.checked === taken) field.defaultChecked = taken;
    } else if (taken && field instanceof HTMLSelectElement) {
      for (const option of field.options) option.defaultSelected = option.selected;
    } else if (taken && !(field instanceof HTMLSelectElement)) {
      field.defaultValue = field.value;
    }
  }
}

/** The forms in which something is written that is not stored. */
export function writtenForms() {
  return formsIn().filter((form) => fieldsOf(form).some(isWritten));
}

// The draft is written again: signing out, in another tab, has removed it.
document.addEventListener("click", (event) => {
  const link = around(HTMLAnchorElement, ".problem a[href]", event.target);
  if (!link) return;
  for (const form of writtenForms()) keep(form);
  if (!link.matches("[data-reload]")) return;
  event.preventDefault();
  location.reload();
});

// --- forms that htmx sends ---

/** Only what our server answers has it: a network before the server answers with pages of its own. @param {XMLHttpRequest} xhr */
export function isOurs(xhr) {
  return xhr.getResponseHeader("X-Request-ID") !== null;
}

document.body.addEventListener("htmx:beforeOnLoad", ({ detail: { requestConfig, xhr } }) => {
  const { elt } = requestConfig;
  if (!holdsText(elt) || xhr.status >= 400 || !isOurs(xhr)) return;
  forget(elt);
});
document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const { elt } = detail.requestConfig;
  if (!holdsText(elt) || (detail.xhr.status < 400 && isOurs(detail.xhr))) return;
  const retarget = detail.xhr.getResponseHeader("HX-Retarget");
  if (retarget && retarget !== "#problem") return; // a place of its own for it
  detail.shouldSwap = false;
  refuse(elt, detail.xhr.responseText);
});
document.body.addEventListener("htmx:afterRequest", ({ detail: { requestConfig, xhr } }) => {
  const { elt, unfilteredFormData } = requestConfig;
  if (!holdsText(elt) || !xhr.status || xhr.status >= 400 || !isOurs(xhr) || !elt.isConnected) return;
  document.getElementById(elt.dataset.refusal ?? "")?.replaceChildren();
  settle(elt, unfilteredFormData);
  keep(elt); // what was written meanwhile
});
document.body.addEventListener("htmx:sendError", ({ detail: { requestConfig } }) => {
  if (holdsText(requestConfig.elt)) refuse(requestConfig.elt, null);
});
document.body.addEventListener("htmx:afterSettle", ({ detail: { requestConfig } }) => {
  const opener = requestConfig?.elt.getAttribute("hx-get");
  for (const form of formsIn()) {
    if (opener && !looked.has(form) && !requestConfig.elt.matches("[data-live]")) openers.set(form, opener);
    restore(form);
  }
});

// --- the page as it came ---

/** The answer to a form has an address that works once: a reload, and a form without an address, want that of the page. */
function cleanAddress() {
  const address = new URL(location.href);
  if (!address.searchParams.has("form-answer")) return;
  address.searchParams.delete("form-answer");
  history.replaceState(history.state, "", address);
}

if (person) {
  cleanAddress();
  removeOld();
  for (const form of formsIn()) restore(form);
  addEventListener("load", openAgain); // by then htmx listens
}
