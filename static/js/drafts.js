/**
 * Drafts: text in forms survives the end of the session, failures of the network or the server, and an accidental click on
 * a link. All forms of the workspace and of the admin use them.
 *
 * 1. The changes in a form that posts text are saved as a draft in this browser, for the signed-in user. Passwords, codes
 *    and fields with `data-no-draft` are never saved. A draft is removed when the server has stored the text, when the
 *    user discards it, after 30 days, and at the sign-out.
 * 2. A form that is shown again gets its draft back, with a note and a button that discards it.
 * 3. This script sends such a form, unless htmx does. If the server refuses it or does not answer, the page stays, with a
 *    sentence at the button. `config/http/forms.py` is the server's part.
 *
 * The composer has `data-own-draft`: it saves its draft with this module, but sends and restores it itself.
 */
import { all, around, find, parse, sentences } from "./page.js";

const say = sentences("draft-words");
const person = document.getElementById("draft-words")?.dataset.person ?? ""; // empty if nobody is signed in

// --- what this browser stores ---

const DRAFT = "draft:";
const MAX_DRAFT_LENGTH = 1_000_000; // characters of one draft
const MAX_DRAFTS = 100; // drafts
const MAX_DRAFT_AGE = 30 * 86_400_000; // ms; an unused session lasts half as long

/** @typedef {{at: number, value: any}} Stored */

/** @param {string} name */
function draftKey(name) {
  return `${DRAFT}${person}/${name}`;
}

/** @param {string} key @returns {Stored | null} */
function readStored(key) {
  try {
    const found = JSON.parse(localStorage.getItem(key) ?? "null");
    return typeof found?.at === "number" ? found : null;
  } catch {
    return null;
  }
}

/** Returns the keys of all drafts, oldest first. */
function draftKeys() {
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(DRAFT));
  const since = new Map(keys.map((key) => [key, readStored(key)?.at ?? 0]));
  return keys.sort((one, other) => (since.get(one) ?? 0) - (since.get(other) ?? 0));
}

/** Saves a draft; without a value, removes it. If the storage is full, removes the oldest drafts. @param {string} name @param {unknown} value */
export function saveDraft(name, value) {
  if (!person) return;
  const key = draftKey(name);
  const text = value ? JSON.stringify({ at: Date.now(), value }) : "";
  if (!text || text.length > MAX_DRAFT_LENGTH) return localStorage.removeItem(key);
  for (const older of [...draftKeys().filter((each) => each !== key), null]) {
    try {
      return localStorage.setItem(key, text);
    } catch {
      if (older) localStorage.removeItem(older); // the storage is full
    }
  }
}

/** @param {string} name @returns {any} null without a draft */
export function readDraft(name) {
  return readStored(draftKey(name))?.value ?? null;
}

/** @param {string} name */
export function removeDraft(name) {
  localStorage.removeItem(draftKey(name));
}

function removeOldDrafts() {
  for (const key of draftKeys()) adoptOldDraft(key);
  const keys = draftKeys();
  keys.forEach((key, index) => {
    const { at } = readStored(key) ?? { at: 0 };
    if (Date.now() - at > MAX_DRAFT_AGE || keys.length - index > MAX_DRAFTS) localStorage.removeItem(key);
  });
}

/** Moves a draft of the previous version of the product, whose key names no user, to the signed-in user. @param {string} key */
function adoptOldDraft(key) {
  const name = key.slice(DRAFT.length);
  if (name.includes("/") || name.startsWith("prompt:")) return;
  if (readDraft(name) === null) saveDraft(name, localStorage.getItem(key));
  localStorage.removeItem(key);
}

// A sign-out removes all drafts.
document.addEventListener("submit", ({ target }) => {
  if (!around(HTMLFormElement, '[data-sign-out], [action$="/logout/"]', target)) return;
  for (const key of draftKeys()) localStorage.removeItem(key);
});

// --- forms and their fields ---

/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Field */
/** @typedef {{name: string, nth: number, value: string | boolean | string[]}} Change of a field; `nth` is its index among the fields of its name */
/** @typedef {{page: string, opener: string, changes: Change[]}} FormDraft the page of the form, and the `hx-get` that opens it there */

const TEXT_FIELDS = `textarea, input:is(:not([type]), ${["text", "url", "email", "tel", "number"].map((type) => `[type=${type}]`).join()})`;
const SECRET_FIELDS =
  "[type=password], [autocomplete=one-time-code], [autocomplete$=password], [data-no-draft], [data-no-draft] *";
const UNSAVED_FIELDS =
  "[type=hidden], [type=file], [type=submit], [type=button], [type=image], [type=reset], [type=search]";

/** Returns whether this module saves drafts of the form. @param {unknown} form @returns {form is HTMLFormElement} */
export function isTextForm(form) {
  if (!person || !(form instanceof HTMLFormElement) || form.matches("[data-own-draft]")) return false;
  return (
    form.getAttribute("method")?.toLowerCase() === "post" &&
    editableFields(form).some((field) => field.matches(TEXT_FIELDS))
  );
}

/** @param {HTMLFormElement} form @returns {Field[]} the fields that a user fills in */
function editableFields(form) {
  const kinds = [HTMLInputElement, HTMLTextAreaElement, HTMLSelectElement];
  const fields = /** @type {Field[]} */ (
    [...form.elements].filter((each) => kinds.some((kind) => each instanceof kind))
  );
  return fields.filter((field) => field.name && !field.disabled && !field.matches(UNSAVED_FIELDS));
}

/** @param {HTMLFormElement} form */
function savedFields(form) {
  return editableFields(form).filter((field) => !field.matches(SECRET_FIELDS) && !field.matches("[readonly]"));
}

/** Returns the forms of the page with text fields. @param {Document | Element} [root] */
function textForms(root = document) {
  const forms = all(HTMLElement, TEXT_FIELDS, root).map((field) => /** @type {HTMLInputElement} */ (field).form);
  return [...new Set(forms)].filter(isTextForm);
}

/** Returns the address of a form. `form.action` may be a field of the form instead. @param {HTMLFormElement} form @param {Element | null} [submitter] */
function formAddress(form, submitter = null) {
  const action = submitter?.getAttribute("formaction") ?? form.getAttribute("action");
  return new URL(action || location.href, location.href);
}

/** @param {HTMLFormElement} form */
function draftName(form) {
  return `form ${formAddress(form).pathname}${form.id && `#${form.id}`}`;
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
function serverValue(field) {
  if (field instanceof HTMLInputElement && ["checkbox", "radio"].includes(field.type)) return field.defaultChecked;
  if (!(field instanceof HTMLSelectElement)) return field.defaultValue;
  const chosen = [...field.options].filter((option) => option.defaultSelected).map(({ value }) => value);
  return field.multiple ? chosen : (chosen[0] ?? field.options[0]?.value ?? "");
}

// --- saving ---

/** The `hx-get` of the element that loaded a form later than the page. @type {WeakMap<HTMLFormElement, string>} */
const openers = new WeakMap();

/** The changes, as JSON, that this tab saved or restored for a form. Another tab may have saved a different draft since. @type {WeakMap<HTMLFormElement, string>} */
const ownChanges = new WeakMap();

/** Returns the changed fields of a form. @param {HTMLFormElement} form */
function readChanges(form) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  /** @type {Change[]} */
  const changes = [];
  for (const field of savedFields(form)) {
    const nth = counts.get(field.name) ?? 0;
    counts.set(field.name, nth + 1);
    if (isChanged(field)) changes.push({ name: field.name, nth, value: currentValue(field) });
  }
  return changes;
}

/** @param {HTMLFormElement} form @param {Change[]} [changes] */
function saveChanges(form, changes = readChanges(form)) {
  const page = location.pathname;
  saveDraft(draftName(form), changes.length ? { page, opener: openers.get(form) ?? "", changes } : null);
  ownChanges.set(form, JSON.stringify(changes));
}

for (const type of ["input", "change"])
  document.addEventListener(type, ({ target }) => {
    const { form } = /** @type {HTMLInputElement} */ (target);
    if (!isTextForm(form)) return;
    const changes = readChanges(form);
    if (JSON.stringify(changes) !== ownChanges.get(form)) saveChanges(form, changes); // the blur of an unchanged field is no change
  });

/** Removes the draft of a stored form, unless another tab saved a different one. @param {HTMLFormElement} form */
function removeOwnDraft(form) {
  if (JSON.stringify(readDraft(draftName(form))?.changes ?? []) === ownChanges.get(form)) removeDraft(draftName(form));
}

/** Removes the draft of a form that was stored or cancelled, and its note. @param {HTMLFormElement} form */
export function discardDraft(form) {
  removeDraft(draftName(form));
  restoreNotes.get(form)?.remove();
  restoreNotes.delete(form);
}

document.addEventListener("click", ({ target }) => {
  const form = around(Element, "[data-cancel]", target)?.closest("form") ?? null;
  if (isTextForm(form)) discardDraft(form);
});

// --- restoring ---

/** The notes in restored forms. @type {WeakMap<HTMLFormElement, HTMLElement>} */
const restoreNotes = new WeakMap();
/** @type {WeakSet<HTMLFormElement>} */
const restoredForms = new WeakSet();

/** Restores the draft of a form, once. @param {HTMLFormElement} form */
export function restoreDraft(form) {
  if (restoredForms.has(form)) {
    const note = restoreNotes.get(form);
    if (note && !note.isConnected) form.prepend(note); // a swap removed the note
    return;
  }
  restoredForms.add(form);
  const draft = readStored(draftKey(draftName(form)));
  const changes = /** @type {FormDraft | undefined} */ (draft?.value)?.changes ?? [];
  ownChanges.set(form, JSON.stringify(changes));
  const restored = changes.flatMap(({ name, nth, value }) => {
    const field = savedFields(form).filter((each) => each.name === name)[nth];
    const same = !field || JSON.stringify(serverValue(field)) === JSON.stringify(value);
    if (same || (isChanged(field) && JSON.stringify(currentValue(field)) !== JSON.stringify(value))) return [];
    setValue(field, value);
    return [field];
  });
  if (!draft || !restored.length) return;
  showRestoreNote(form, draft.at, restored);
  const tell = () => restored.forEach(tellChange);
  if (document.readyState === "complete") tell();
  else addEventListener("load", tell); // by then htmx listens
}

/** Triggers the listeners of a field, for example for its size. @param {Field} field */
function tellChange(field) {
  for (const type of ["input", "change"]) field.dispatchEvent(new Event(type, { bubbles: true }));
}

/** @param {HTMLFormElement} form @param {number} at when the draft was saved, in ms @param {Field[]} restored */
function showRestoreNote(form, at, restored) {
  const note = document.createElement("p");
  const button = document.createElement("button");
  const time = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "short" });
  note.className = "note restored";
  note.role = "status";
  button.type = "button";
  button.textContent = say("discard");
  button.addEventListener("click", () => {
    for (const field of restored) {
      setValue(field, serverValue(field));
      tellChange(field);
    }
    discardDraft(form);
    restored[0].focus();
  });
  note.append(`${say("restored", { time: time.format(at) })} `, button);
  restoreNotes.set(form, note);
  form.prepend(note);
  for (let place = form.parentElement; place; place = place.parentElement)
    if (place instanceof HTMLDetailsElement) place.open = true;
}

/** Reopens forms with drafts that are loaded on request, such as the edit of a message. */
function reopenForms() {
  const here = new Set(textForms().map((form) => draftKey(draftName(form))));
  for (const key of draftKeys().filter((each) => each.startsWith(draftKey("form ")) && !here.has(each))) {
    const { page, opener } = /** @type {FormDraft} */ (readStored(key)?.value ?? {});
    if (page !== location.pathname || !opener) continue;
    find(HTMLElement, `[hx-get="${CSS.escape(opener)}"]`)?.click();
  }
}

// --- sending ---

const pageAddress = () => location.href.split("#")[0];
/** @type {Set<HTMLFormElement>} */
const sendingForms = new Set();

document.addEventListener("submit", (event) => {
  const { target: form, submitter } = event;
  if (event.defaultPrevented || !isTextForm(form) || form.target || submitter?.getAttribute("formtarget")) return;
  event.preventDefault();
  send(form, submitter);
});

/** @param {HTMLFormElement} form @param {HTMLElement | null} [submitter] */
export async function send(form, submitter = null) {
  if (sendingForms.has(form)) return;
  sendingForms.add(form);
  form.ariaBusy = "true";
  const headers = { "Form-Submission": "script", "HX-Current-URL": pageAddress() };
  const body = new FormData(form, submitter);
  const address = formAddress(form, submitter);
  const response = await fetch(address, { method: "POST", body, headers, redirect: "manual" }).catch(() => null);
  const to = response?.headers.get("Form-Location");
  if (response && to) {
    if (response.headers.get("Form-Stored") === "yes") removeOwnDraft(form);
    return followLocation(form, new URL(to, location.href));
  }
  endSending(form);
  showRefusal(form, response ? await response.text() : null, submitter);
}

/** @param {HTMLFormElement} form */
function endSending(form) {
  sendingForms.delete(form);
  form.ariaBusy = null;
}

/** @param {HTMLFormElement} form @param {URL} to */
function followLocation(form, to) {
  if (to.hash && to.href.split("#")[0] === pageAddress()) {
    form.reset(); // otherwise the browser would fill the sent text into the form again
    location.hash = to.hash;
    location.reload();
  } else {
    location.assign(to);
  }
}

// A page from the browser's back-forward cache can be sent again.
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) for (const form of [...sendingForms]) endSending(form);
});

/**
 * Shows at the button why the server refused a form.
 *
 * @param {HTMLFormElement} form
 * @param {string | null} html of the server; null without an answer
 * @param {HTMLElement | null} [submitter]
 */
export function showRefusal(form, html, submitter = null) {
  const sentence = html === null ? null : find(HTMLElement, ".problem", parse(html));
  const line = document.createElement("p");
  line.className = "problem";
  line.role = "alert";
  if (sentence) line.append(...sentence.childNodes);
  else line.textContent = say(html === null ? "unreachable" : "refused");
  const place = find(HTMLElement, "[data-problem]", form) ?? refusalPlace(form, submitter);
  place.replaceChildren(line);
  line.scrollIntoView({ block: "nearest" });
}

/** @param {HTMLFormElement} form @param {HTMLElement | null} submitter */
function refusalPlace(form, submitter) {
  const there = document.getElementById(form.dataset.refusal ?? "");
  if (there) return there;
  const place = document.createElement("div");
  place.id = form.dataset.refusal = `refusal-${Math.random().toString(36).slice(2)}`;
  place.className = "refusal";
  const button = submitter ?? [...form.elements].find((each) => each.matches("[type=submit]")) ?? form.lastElementChild;
  const bar = button?.closest("#submit-row"); // of the admin: it is outside the form and always visible
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

/** Returns whether the user changed the field since the server rendered it. @param {Element} field */
export function isChanged(field) {
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
 * Marks the sent fields as stored, so that they count as unchanged and updates may replace them. Fields that were changed
 * again since then stay changed.
 *
 * @param {HTMLFormElement} form
 * @param {FormData} sent
 */
export function markAsStored(form, sent) {
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

/** Returns the forms with changes that are not stored. */
export function changedForms() {
  return textForms().filter((form) => editableFields(form).some(isChanged));
}

// Drafts are saved again before the page is left, since a sign-out in another tab removed them.
document.addEventListener("click", (event) => {
  const link = around(HTMLAnchorElement, ".problem a[href]", event.target);
  if (!link) return;
  for (const form of changedForms()) saveChanges(form);
  if (!link.matches("[data-reload]")) return;
  event.preventDefault();
  location.reload();
});

// --- forms that htmx sends ---

/** Returns whether the product sent the response. A proxy or a network's sign-in page has no such header. @param {XMLHttpRequest} xhr */
export function isFromProduct(xhr) {
  return xhr.getResponseHeader("X-Request-ID") !== null;
}

document.body.addEventListener("htmx:beforeOnLoad", ({ detail: { requestConfig, xhr } }) => {
  const { elt } = requestConfig;
  if (!isTextForm(elt) || xhr.status >= 400 || !isFromProduct(xhr)) return;
  discardDraft(elt);
});
document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const { elt } = detail.requestConfig;
  if (!isTextForm(elt) || (detail.xhr.status < 400 && isFromProduct(detail.xhr))) return;
  const retarget = detail.xhr.getResponseHeader("HX-Retarget");
  if (retarget && retarget !== "#problem") return; // the error has its own place
  detail.shouldSwap = false;
  showRefusal(elt, detail.xhr.responseText);
});
document.body.addEventListener("htmx:afterRequest", ({ detail: { requestConfig, xhr } }) => {
  const { elt, unfilteredFormData } = requestConfig;
  if (!isTextForm(elt) || !xhr.status || xhr.status >= 400 || !isFromProduct(xhr) || !elt.isConnected) return;
  document.getElementById(elt.dataset.refusal ?? "")?.replaceChildren();
  markAsStored(elt, unfilteredFormData);
  saveChanges(elt); // the changes since the request
});
document.body.addEventListener("htmx:sendError", ({ detail: { requestConfig } }) => {
  if (isTextForm(requestConfig.elt)) showRefusal(requestConfig.elt, null);
});
document.body.addEventListener("htmx:afterSettle", ({ detail: { requestConfig } }) => {
  const opener = requestConfig?.elt.getAttribute("hx-get");
  for (const form of textForms()) {
    if (opener && !restoredForms.has(form) && !requestConfig.elt.matches("[data-live]")) openers.set(form, opener);
    restoreDraft(form);
  }
});

// --- the loaded page ---

/** Removes the parameter of a response that can be shown only once, so that a reload shows the page. */
function cleanAddress() {
  const address = new URL(location.href);
  if (!address.searchParams.has("form-answer")) return;
  address.searchParams.delete("form-answer");
  history.replaceState(history.state, "", address);
}

if (person) {
  cleanAddress();
  removeOldDrafts();
  for (const form of textForms()) restoreDraft(form);
  addEventListener("load", reopenForms); // by then htmx listens
}
