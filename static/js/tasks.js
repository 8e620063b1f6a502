/** The pages of tasks: what a swap of the list would forget, keys, and dragging. The selection is where the focus is. */
import { holdsText, isOurs } from "./drafts.js";
import { onNews } from "./live.js";
import { all, announce, around, find, need } from "./page.js";

const region = need(HTMLElement, "#tasks");
const dialog = need(HTMLElement, "#keys");
const keysOn = need(HTMLInputElement, "#keys-on");
const KEYS_OFF = "glasshouse.tasks.keys-off";
const ROW = "[data-row]";

/** @param {string} selector */
const follow = (selector) => find(HTMLElement, selector)?.click();
const rows = () => all(HTMLElement, ROW, region).filter((row) => row.checkVisibility());
const current = () => around(HTMLElement, ROW, document.activeElement);

/**
 * An element of the row itself, not of a row inside it.
 *
 * @param {Element | null | undefined} row
 * @param {string} selector
 */
function own(row, selector) {
  return row ? all(HTMLElement, selector, row).find((each) => each.closest(ROW) === row) : undefined;
}

// --- what a swap would forget ---

/** @type {{id: string, at: number} | null} the row that had the focus */
let kept = null;
let wanted = ""; // what is to have the focus after the swap, where it is not what had it

document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.target !== region) return;
  if (!detail.serverResponse.includes('id="tasks"')) {
    detail.shouldSwap = false; // signed out meanwhile
    if (!holdsText(detail.requestConfig.elt)) location.reload(); // a form with a text says so itself
    return;
  }
  if (!detail.shouldSwap) return;
  const row = current();
  kept = { id: row?.id ?? "", at: row ? rows().indexOf(row) : -1 };
});

document.body.addEventListener("htmx:afterSettle", () => {
  if (!kept) return;
  refocus(kept);
  kept = null;
  prepare();
  announce("nextchange"); // runs stay as they are until they look
});

/** @param {{id: string, at: number}} row */
function refocus({ id, at }) {
  if (wanted) find(HTMLElement, wanted, region)?.focus();
  wanted = "";
  if (document.activeElement !== document.body) return;
  const there = rows();
  const row =
    own(document.getElementById(id), "[data-focus]") ?? own(there[Math.min(at, there.length - 1)], "[data-focus]");
  row?.focus();
}

onNews("tasks", () => announce("taskschange"));

// What is sent leaves its field at once, so that the next can be written there; what is refused comes back.
/** @type {WeakMap<XMLHttpRequest, {field: HTMLTextAreaElement | HTMLInputElement, text: string}>} */
const sent = new WeakMap();

document.body.addEventListener("htmx:beforeSend", ({ detail: { elt, xhr } }) => {
  const field = elt.matches("form") ? elt.querySelector("[data-enter]") : null;
  if (!(field instanceof HTMLTextAreaElement || field instanceof HTMLInputElement)) return;
  sent.set(xhr, { field, text: field.value });
  field.value = "";
});
document.body.addEventListener("htmx:afterRequest", ({ detail: { elt, successful, xhr } }) => {
  if (successful && isOurs(xhr)) return elt.querySelector("[data-problem]")?.replaceChildren();
  const { field, text } = sent.get(xhr) ?? {};
  if (field) field.value = [text, field.value].filter(Boolean).join("\n");
});

// --- keys ---

/** @type {Record<string, () => void>} */
const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  x: () => own(current(), "[data-tick]")?.click(),
  e: () => edit("[data-editing] [name=title], [data-title]"),
  m: () => edit("[data-day-field]"),
  J: () => own(current(), "[data-down]")?.click(),
  K: () => own(current(), "[data-up]")?.click(),
  n: () => find(HTMLElement, "[data-add] textarea")?.focus(),
  o: unfold,
  "[": () => follow('[rel="prev"]'),
  "]": () => follow('[rel="next"]'),
  t: () => follow("[data-today]"),
};

/** @param {number} by */
function step(by) {
  const there = rows();
  const row = current();
  const first = by > 0 ? 0 : there.length - 1;
  const next = row ? Math.min(Math.max(there.indexOf(row) + by, 0), there.length - 1) : first;
  own(there[next], "[data-focus]")?.focus();
}

/** @param {string} selector */
function edit(selector) {
  const row = current();
  const opener = own(row, "[data-edit]");
  const shown = opener ? own(row, selector) : find(HTMLElement, selector, region);
  if (shown) return shown.focus();
  wanted = selector;
  opener?.click();
}

function unfold() {
  const row = current();
  const list = around(HTMLDetailsElement, "[data-checklist]", row) ?? own(row, "[data-checklist]");
  if (!(list instanceof HTMLDetailsElement)) return;
  if (list.contains(document.activeElement)) need(HTMLElement, "summary", list).focus();
  list.open = !list.open;
}

/** @param {KeyboardEvent} event */
function leave({ target }) {
  const editing = around(HTMLElement, "[data-editing]", target);
  const cancel = find(HTMLElement, "[data-cancel]", editing);
  if (cancel) cancel.click();
  else if (target instanceof HTMLElement && target.matches("[data-add] textarea")) target.blur();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape") return leave(event);
  if (
    event.key === "Enter" &&
    !event.shiftKey &&
    event.target instanceof Element &&
    event.target.matches("[data-enter]")
  ) {
    event.preventDefault();
    return around(HTMLFormElement, "form", event.target)?.requestSubmit();
  }
  const typing = around(HTMLElement, "input:not([type=checkbox]), textarea, select, [popover]", event.target);
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
need(HTMLElement, "#keys-opener").hidden = false;

// --- dragging, to another place in the list or onto a day ---

/**
 * The row that is dragged stays in the page all the while and the others change sides, since a pointer is lost with the
 * element that it holds.
 *
 * @typedef {object} Drag
 * @property {HTMLElement} row
 * @property {Element | null} behind what it stood behind at the beginning
 * @property {HTMLElement | null} day what it is held over
 */
/** @type {Drag | null} */
let drag = null;

region.addEventListener("pointerdown", (event) => {
  const row = around(HTMLElement, ROW, around(HTMLElement, "[data-grip]", event.target));
  if (!row || event.button !== 0) return;
  event.preventDefault();
  drag = { row, behind: row.previousElementSibling, day: null };
  region.setPointerCapture(event.pointerId);
  region.classList.add("dragging");
  row.classList.add("dragged");
});

region.addEventListener("pointermove", (event) => {
  if (!drag) return;
  aim(drag, event);
  if (drag.day) return;
  const { previousElementSibling: above, nextElementSibling: below } = drag.row;
  if (above && event.clientY < middle(above)) drag.row.after(above);
  else if (below && event.clientY > middle(below)) drag.row.before(below);
});

region.addEventListener("pointerup", () => {
  if (!drag) return;
  const { row, day, behind } = drag;
  letGo(drag);
  if (day) moveTo(row, day.dataset.day ?? "");
  else if (row.previousElementSibling !== behind) place(row, row.previousElementSibling);
});

region.addEventListener("pointercancel", () => drag && putBack(drag));
document.addEventListener("keydown", (event) => event.key === "Escape" && drag && putBack(drag));

/** A day task over a day of the week. @param {Drag} drag @param {PointerEvent} event */
function aim(drag, { clientX, clientY }) {
  const under = drag.row.dataset.move ? document.elementFromPoint(clientX, clientY) : null;
  const day = around(HTMLElement, "[data-day]:not([aria-current])", under);
  if (day === drag.day) return;
  drag.day?.classList.remove("aimed");
  day?.classList.add("aimed");
  drag.day = day;
}

/** @param {Drag} held */
function letGo({ row, day }) {
  drag = null;
  row.classList.remove("dragged");
  region.classList.remove("dragging");
  day?.classList.remove("aimed");
}

/** @param {Drag} held */
function putBack(held) {
  letGo(held);
  if (held.behind) held.behind.after(held.row);
  else held.row.parentElement?.prepend(held.row);
}

/** @param {Element} element */
function middle(element) {
  const { top, height } = element.getBoundingClientRect();
  return top + height / 2;
}

/** @param {HTMLElement} row @param {Element | null} before */
function place(row, before) {
  const button = own(row, "[data-down]");
  if (!(button instanceof HTMLButtonElement)) return;
  button.disabled = false;
  button.value = before ? before.id.replace("task-", "") : "";
  button.click();
}

/** @param {HTMLElement} row @param {string} day */
function moveTo(row, day) {
  const { value: csrfmiddlewaretoken } = need(HTMLInputElement, "[name=csrfmiddlewaretoken]", row);
  const values = { day, back: region.dataset.back, csrfmiddlewaretoken };
  htmx.ajax("POST", row.dataset.move ?? "", { source: region, values });
}

function prepare() {
  for (const grip of all(HTMLElement, "[data-grip]", region)) grip.hidden = false;
}
prepare();
