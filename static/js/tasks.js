/** The pages of tasks: what a swap of the list would forget, keys, and dragging. The selection is where the focus is. */
import { Drag } from "./drag.js";
import { onNews } from "./updates.js";

const region = document.getElementById("tasks");
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

document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.target !== region) return;
  if (!detail.serverResponse.includes('id="tasks"')) {
    detail.shouldSwap = false; // signed out meanwhile
    location.reload();
    return;
  }
  if (!detail.shouldSwap) return;
  kept = { row: current()?.id, at: rows().indexOf(current()) };
});

document.body.addEventListener("htmx:afterSettle", () => {
  if (!kept) return;
  refocus(kept);
  kept = null;
  prepare();
  document.body.dispatchEvent(new CustomEvent("nextchange")); // runs stay as they are until they look
});

function refocus({ row, at }) {
  const field = wanted && region.querySelector(wanted);
  wanted = null;
  if (field) field.focus();
  if (document.activeElement !== document.body) return;
  const same = own(document.getElementById(row), "[data-focus]");
  (same ?? own(rows()[Math.min(at, rows().length - 1)], "[data-focus]"))?.focus();
}

onNews("tasks", () => document.body.dispatchEvent(new CustomEvent("taskschange")));

// What is sent leaves its field at once, so that the next can be written there; what is refused comes back.
const sent = new WeakMap();

document.body.addEventListener("htmx:beforeSend", ({ detail: { elt, xhr } }) => {
  const field = elt.matches("form") && elt.querySelector("[data-enter]");
  if (!field) return;
  sent.set(xhr, { field, text: field.value });
  field.value = "";
});
document.body.addEventListener("htmx:afterRequest", ({ detail: { elt, successful, xhr } }) => {
  if (successful) return elt.querySelector("[data-problem]")?.replaceChildren();
  const { field, text } = sent.get(xhr) ?? {};
  if (field) field.value = [text, field.value].filter(Boolean).join("\n");
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
    const values = { day, back: region.dataset.back, csrfmiddlewaretoken: token };
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
