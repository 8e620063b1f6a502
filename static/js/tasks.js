/** The pages of tasks: the focus across swaps of the list, keys, and dragging. The focused row is the selected one. */
import { isFromProduct, isTextForm } from "./drafts.js";
import { onNews } from "./live.js";
import { all, announce, around, find, need } from "./page.js";

const region = need(HTMLElement, "#tasks");
const dialog = need(HTMLElement, "#keys");
const keysOn = need(HTMLInputElement, "#keys-on");
const KEYS_OFF = "glasshouse.tasks.keys-off";
const ROW = "[data-row]";

/** @param {string} selector */
const clickLink = (selector) => find(HTMLElement, selector)?.click();
const rows = () => all(HTMLElement, ROW, region).filter((row) => row.checkVisibility());
const currentRow = () => around(HTMLElement, ROW, document.activeElement);

/**
 * An element of the row itself, not of a row inside it.
 *
 * @param {Element | null | undefined} row
 * @param {string} selector
 */
function findInRow(row, selector) {
  return row ? all(HTMLElement, selector, row).find((each) => each.closest(ROW) === row) : undefined;
}

// --- the focus and texts across swaps ---

/** @type {{id: string, at: number} | null} the row that had the focus */
let focusedRow = null;
let focusAfterSwap = ""; // selector of the element that gets the focus after the swap; empty: the element that had it

document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.target !== region) return;
  if (!detail.serverResponse.includes('id="tasks"')) {
    detail.shouldSwap = false; // the user is signed out
    if (!isTextForm(detail.requestConfig.elt)) location.reload(); // a form with text shows the error itself
    return;
  }
  if (!detail.shouldSwap) return;
  const row = currentRow();
  focusedRow = { id: row?.id ?? "", at: row ? rows().indexOf(row) : -1 };
});

document.body.addEventListener("htmx:afterSettle", () => {
  if (!focusedRow) return;
  refocus(focusedRow);
  focusedRow = null;
  showGrips();
  announce("nextchange"); // runs are refreshed on this event
});

/** @param {{id: string, at: number}} row */
function refocus({ id, at }) {
  if (focusAfterSwap) find(HTMLElement, focusAfterSwap, region)?.focus();
  focusAfterSwap = "";
  if (document.activeElement !== document.body) return;
  const there = rows();
  const row =
    findInRow(document.getElementById(id), "[data-focus]") ??
    findInRow(there[Math.min(at, there.length - 1)], "[data-focus]");
  row?.focus();
}

onNews("tasks", () => announce("taskschange"));

// A sent text leaves its field at once, so that the next one can be written. If it is refused, it comes back.
/** @type {WeakMap<XMLHttpRequest, {field: HTMLTextAreaElement | HTMLInputElement, text: string}>} */
const sentTexts = new WeakMap();

document.body.addEventListener("htmx:beforeSend", ({ detail: { elt, xhr } }) => {
  const field = elt.matches("form") ? elt.querySelector("[data-enter]") : null;
  if (!(field instanceof HTMLTextAreaElement || field instanceof HTMLInputElement)) return;
  sentTexts.set(xhr, { field, text: field.value });
  field.value = "";
});
document.body.addEventListener("htmx:afterRequest", ({ detail: { elt, successful, xhr } }) => {
  if (successful && isFromProduct(xhr)) return elt.querySelector("[data-problem]")?.replaceChildren();
  const { field, text } = sentTexts.get(xhr) ?? {};
  if (field) field.value = [text, field.value].filter(Boolean).join("\n");
});

// --- keys ---

/** @type {Record<string, () => void>} */
const KEYS = {
  j: () => moveFocus(1),
  k: () => moveFocus(-1),
  x: () => findInRow(currentRow(), "[data-tick]")?.click(),
  e: () => openEditor("[data-editing] [name=title], [data-title]"),
  m: () => openEditor("[data-day-field]"),
  J: () => findInRow(currentRow(), "[data-down]")?.click(),
  K: () => findInRow(currentRow(), "[data-up]")?.click(),
  n: () => find(HTMLElement, "[data-add] textarea")?.focus(),
  o: toggleChecklist,
  "[": () => clickLink('[rel="prev"]'),
  "]": () => clickLink('[rel="next"]'),
  t: () => clickLink("[data-today]"),
};

/** @param {number} by */
function moveFocus(by) {
  const there = rows();
  const row = currentRow();
  const first = by > 0 ? 0 : there.length - 1;
  const next = row ? Math.min(Math.max(there.indexOf(row) + by, 0), there.length - 1) : first;
  findInRow(there[next], "[data-focus]")?.focus();
}

/** @param {string} selector */
function openEditor(selector) {
  const row = currentRow();
  const opener = findInRow(row, "[data-edit]");
  const shown = opener ? findInRow(row, selector) : find(HTMLElement, selector, region);
  if (shown) return shown.focus();
  focusAfterSwap = selector;
  opener?.click();
}

function toggleChecklist() {
  const row = currentRow();
  const list = around(HTMLDetailsElement, "[data-checklist]", row) ?? findInRow(row, "[data-checklist]");
  if (!(list instanceof HTMLDetailsElement)) return;
  if (list.contains(document.activeElement)) need(HTMLElement, "summary", list).focus();
  list.open = !list.open;
}

/** @param {KeyboardEvent} event */
function cancelEditing({ target }) {
  const editing = around(HTMLElement, "[data-editing]", target);
  const cancel = find(HTMLElement, "[data-cancel]", editing);
  if (cancel) cancel.click();
  else if (target instanceof HTMLElement && target.matches("[data-add] textarea")) target.blur();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape") return cancelEditing(event);
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

// --- dragging a row to another place in the list or to a day ---

/**
 * The dragged row stays in the page and the other rows move around it, since a pointer capture ends if its element is
 * removed.
 *
 * @typedef {object} Drag
 * @property {HTMLElement} row
 * @property {Element | null} behind the row before it at the beginning
 * @property {HTMLElement | null} day the day under the pointer
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
  aimAtDay(drag, event);
  if (drag.day) return;
  const { previousElementSibling: above, nextElementSibling: below } = drag.row;
  if (above && event.clientY < middleOf(above)) drag.row.after(above);
  else if (below && event.clientY > middleOf(below)) drag.row.before(below);
});

region.addEventListener("pointerup", () => {
  if (!drag) return;
  const { row, day, behind } = drag;
  endDrag(drag);
  if (day) moveTo(row, day.dataset.day ?? "");
  else if (row.previousElementSibling !== behind) storePlace(row, row.previousElementSibling);
});

region.addEventListener("pointercancel", () => drag && putBack(drag));
document.addEventListener("keydown", (event) => event.key === "Escape" && drag && putBack(drag));

/** Marks the day of the week under a dragged day task. @param {Drag} drag @param {PointerEvent} event */
function aimAtDay(drag, { clientX, clientY }) {
  const under = drag.row.dataset.move ? document.elementFromPoint(clientX, clientY) : null;
  const day = around(HTMLElement, "[data-day]:not([aria-current])", under);
  if (day === drag.day) return;
  drag.day?.classList.remove("aimed");
  day?.classList.add("aimed");
  drag.day = day;
}

/** @param {Drag} held */
function endDrag({ row, day }) {
  drag = null;
  row.classList.remove("dragged");
  region.classList.remove("dragging");
  day?.classList.remove("aimed");
}

/** @param {Drag} held */
function putBack(held) {
  endDrag(held);
  if (held.behind) held.behind.after(held.row);
  else held.row.parentElement?.prepend(held.row);
}

/** @param {Element} element */
function middleOf(element) {
  const { top, height } = element.getBoundingClientRect();
  return top + height / 2;
}

/** @param {HTMLElement} row @param {Element | null} before */
function storePlace(row, before) {
  const button = findInRow(row, "[data-down]");
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

function showGrips() {
  for (const grip of all(HTMLElement, "[data-grip]", region)) grip.hidden = false;
}
showGrips();
