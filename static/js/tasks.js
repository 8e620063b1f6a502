/** The pages of tasks: what a swap of the list would forget, keys, and dragging. The selection is where the focus is. */
import { Drag } from "./drag.js";
import { onNews } from "./live.js";

const region = document.getElementById("tasks");
const again = document.getElementById("tasks-again"); // asks for the list as it is now
const dialog = document.getElementById("keys");
const keysOn = document.getElementById("keys-on");
const KEYS_OFF = "glasshouse.tasks.keys-off";

const link = (selector) => document.querySelector(selector)?.click();
const rows = () => [...region.querySelectorAll("[data-row]")].filter((row) => row.checkVisibility());
const current = () => document.activeElement.closest("[data-row]");
/** An element of the row itself, not of a row inside it. */
const own = (row, selector) => [...(row?.querySelectorAll(selector) ?? [])].find((each) => each.closest("[data-row]") === row);

// --- what a swap would forget ---

let kept = null;
let wanted = null; // what is to have the focus after the swap, where it is not what had it
let shown = bare(document);
const asked = new WeakMap(); // the requests of the list, numbered as they were sent
let [newest, taken] = [0, 0];

/** What a list shows, without what is new in every response. @param {Document} page */
function bare(page) {
  return page.getElementById("tasks").innerHTML.replace(/(name="csrfmiddlewaretoken" value)="[^"]*"/g, "$1");
}

document.body.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target !== region) return;
  if (!event.detail.serverResponse.includes('id="tasks"')) {
    event.detail.shouldSwap = false; // signed out meanwhile
    location.reload();
    return;
  }
  const number = asked.get(event.detail.xhr);
  if (number < taken) {
    event.detail.shouldSwap = false; // overtaken: the list is newer than this
    return;
  }
  taken = number;
  const page = new DOMParser().parseFromString(event.detail.serverResponse, "text/html");
  const theirs = bare(page);
  const form = event.detail.requestConfig.elt;
  if (form === again && (busy() || theirs === shown)) {
    event.detail.shouldSwap = false;
    return;
  }
  shown = theirs;
  if (!form.isConnected) inherit(event.detail, page);
  const row = current();
  const edited = region.querySelector("[data-editing]");
  const unsaved = written && edited && !edited.contains(form);
  kept = {
    unsaved: unsaved && [edited.closest("[data-row]").id, edited],
    open: [...region.querySelectorAll("[data-checklist][open]")].map((each) => each.id),
    drafts: [...region.querySelectorAll("[data-draft]")]
      .filter((each) => each.value && !form.contains(each))
      .map((each) => [each.id, each.value]),
    focus: document.activeElement.id,
    row: row?.id,
    at: rows().indexOf(row),
    changed: event.detail.requestConfig.verb !== "get",
  };
  if (unsaved) edited.remove(); // before htmx takes it apart
});

/**
 * Another response has replaced what sent this request. htmx looks only now for how to swap, and there is nothing to
 * inherit it from any more.
 */
function inherit(detail, page) {
  detail.selectOverride = "#tasks > *";
  detail.swapOverride = "innerHTML settle:0ms";
  for (const id of ["said", "name", "tasks-today"]) {
    const [here, there] = [document, page].map((each) => each.getElementById(id));
    if (here && there) here.innerHTML = there.innerHTML;
  }
}

document.body.addEventListener("htmx:afterSettle", () => {
  if (!kept) return;
  for (const id of kept.open) document.getElementById(id)?.setAttribute("open", "");
  for (const [id, text] of kept.drafts) {
    const field = document.getElementById(id);
    if (field) field.value = text;
  }
  written = Boolean(kept.unsaved && restored(...kept.unsaved));
  refocus(kept);
  if (kept.changed) document.body.dispatchEvent(new CustomEvent("nextchange")); // runs stay as they are until they look
  kept = null;
  prepare();
});

/** What is being written in a row stays there when another row is changed. @param {string} id @param {HTMLElement} edited */
function restored(id, edited) {
  const row = document.getElementById(id);
  if (!row) return false;
  own(row, "[data-editing]")?.remove();
  own(row, ".row-line").after(edited);
  return true;
}

function refocus({ focus, row, at }) {
  const field = wanted && region.querySelector(wanted);
  wanted = null;
  if (field) field.focus();
  if (document.activeElement !== document.body) return;
  const same = document.getElementById(focus) ?? own(document.getElementById(row), "[data-focus]");
  (same ?? own(rows()[Math.min(at, rows().length - 1)], "[data-focus]"))?.focus();
}

// A page that refreshes itself takes nothing away that somebody is editing or dragging: what is new comes with their own
// change. Drafts and what is written to a run stay where they are.
const busy = () => written || drag.row || region.querySelector("[data-editing]");
let written = false;

region.addEventListener("input", ({ target }) => (written ||= !target.closest("[data-draft], [data-runs]")));
document.body.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.elt === again && busy()) event.preventDefault();
  else if (event.detail.target === region) asked.set(event.detail.xhr, ++newest);
});
onNews("tasks", () => document.body.dispatchEvent(new CustomEvent("taskschange")));

document.body.addEventListener("htmx:afterRequest", (event) => {
  const form = event.detail.elt;
  if (!form.matches("form")) return;
  if (event.detail.successful) form.querySelector("[data-problem]")?.replaceChildren();
  if (event.detail.successful && form.matches("[data-add]")) form.reset();
});

// --- keys ---

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  x: () => own(current(), "[data-tick]")?.click(),
  e: () => edit("[data-editing] [name=title], [data-title]"),
  m: () => edit("[data-day-field]"),
  J: () => own(current(), "[data-down]")?.click(),
  K: () => own(current(), "[data-up]")?.click(),
  n: () => document.querySelector("[data-add] textarea")?.focus(),
  o: unfold,
  "[": () => link('[rel="prev"]'),
  "]": () => link('[rel="next"]'),
  t: () => link("[data-today]"),
};

function step(by) {
  const all = rows();
  const at = all.indexOf(current());
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1);
  own(all[next], "[data-focus]")?.focus();
}

function edit(selector) {
  const opener = own(current(), "[data-edit]");
  const shown = opener ? own(current(), selector) : region.querySelector(selector);
  if (shown) return shown.focus();
  wanted = selector;
  opener?.click();
}

function unfold() {
  const list = current()?.closest("[data-checklist]") ?? own(current(), "[data-checklist]");
  if (!list) return;
  if (list.contains(document.activeElement)) list.querySelector("summary").focus();
  list.open = !list.open;
}

function escape(event) {
  const cancel = event.target.closest("[data-editing]")?.querySelector("[data-cancel]");
  if (cancel) return cancel.click();
  if (event.target.matches("[data-add] textarea")) event.target.blur();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape") return escape(event);
  if (event.key === "Enter" && !event.shiftKey && event.target.matches("[data-enter]")) {
    event.preventDefault();
    return event.target.form.requestSubmit();
  }
  const typing = event.target.closest("input:not([type=checkbox]), textarea, select, [popover]");
  if (typing || !keysOn.checked) return;
  if (event.key === "?") dialog.showPopover();
  else if (Object.hasOwn(KEYS, event.key)) KEYS[event.key]();
  else return;
  event.preventDefault();
});

keysOn.checked = localStorage.getItem(KEYS_OFF) === null;
keysOn.addEventListener("change", () => {
  if (keysOn.checked) localStorage.removeItem(KEYS_OFF);
  else localStorage.setItem(KEYS_OFF, "yes");
});

// --- dragging ---

const drag = new Drag(region, {
  place(row, before) {
    const button = own(row, "[data-down]");
    button.disabled = false;
    button.value = before ? before.id.replace("task-", "") : "";
    button.click();
  },
  move(row, day) {
    const { value: token } = row.querySelector("[name=csrfmiddlewaretoken]");
    const values = { day, back: again.getAttribute("hx-get"), csrfmiddlewaretoken: token };
    window.htmx.ajax("POST", row.dataset.move, { source: region, values });
  },
});

function prepare() {
  for (const grip of region.querySelectorAll("[data-grip]")) grip.hidden = false;
}

document.getElementById("keys-opener").hidden = false;
region.addEventListener("pointerdown", (event) => {
  const grip = event.target.closest("[data-grip]");
  if (grip && event.button === 0) drag.start(event, grip.closest("[data-row]"));
});
prepare();
