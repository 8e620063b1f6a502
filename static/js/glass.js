/**
 * What the model sees, in the transcript: a line at the first message that it sees, and the highlight that connects a row
 * of the panel, its message and its piece of the bar. Also the dialog that shares the conversation.
 *
 * The plan, and a report in the panel, name the first message (templates/chat/_sight.html).
 */
import { all, around, find, need, opensNewTab } from "./page.js";

const messages = need(HTMLElement, "#messages");
const panel = need(HTMLElement, "#panel");
const lineTemplate = need(HTMLTemplateElement, "#sight-line");

// --- the line at the first message that the model sees ---

function showSight() {
  find(HTMLElement, ":scope > .sight", messages)?.remove();
  for (const each of all(HTMLElement, "[data-unseen]", messages)) delete each.dataset.unseen;
  const report = find(HTMLElement, "[data-saw]", panel); // the report of an answer takes precedence while it is open
  const sight = find(HTMLElement, "[data-sight]", report ?? need(HTMLElement, "#plan"));
  if (!sight) return;
  for (const pk of sight.dataset.unseen?.split(" ") ?? []) {
    const unseen = document.getElementById(`m-${pk}`);
    if (unseen) unseen.dataset.unseen = "";
  }
  const first = sight.dataset.sight ? messageChild(`m-${sight.dataset.sight}`) : null;
  const summary = first?.previousElementSibling?.matches(".summary"); // a summary is the line itself
  if (summary || (sight.dataset.sight && !first) || !messages.querySelector(".message")) return;
  const border = lineTemplate.content.cloneNode(true);
  if (!(border instanceof DocumentFragment)) return;
  need(HTMLElement, "[data-words]", border).textContent = sight.dataset.words ?? "";
  messages.insertBefore(border, first);
}

/** Returns the child of `#messages` that is or contains this element. @param {string} id */
function messageChild(id) {
  /** @type {Element | null} */
  let place = document.getElementById(id);
  while (place && place.parentElement !== messages) place = place.parentElement;
  return place;
}

document.body.addEventListener("htmx:afterSettle", showSight);
new MutationObserver(showSight).observe(need(HTMLElement, "#panel-body"), { childList: true });
if (find(HTMLElement, "#plan")) showSight();

// --- highlights ---

/** @param {EventTarget | null} target */
function lightUp(target) {
  const lit = new Set(panel.hidden ? [] : relatedElements(target));
  for (const each of all(Element, ".lit")) if (!lit.has(each)) each.classList.remove("lit");
  for (const each of lit) each.classList.add("lit");
}

/** @param {EventTarget | null} target @returns {Element[]} the elements that belong to the target */
function relatedElements(target) {
  const row = around(HTMLElement, "[data-lights]", target);
  const message = row ? document.getElementById(row.dataset.lights ?? "") : around(HTMLElement, ".message", target);
  const rows = !row && message ? all(HTMLElement, `[data-lights="${CSS.escape(message.id)}"]`, panel) : [];
  const group = around(Element, "[data-group]", row ?? rows[0] ?? target)?.getAttribute("data-group");
  const pieces = group ? all(Element, `[data-group="${CSS.escape(group)}"]`, panel) : [];
  return [...rows, ...pieces, ...(row && message ? [message] : [])];
}

/** @type {EventTarget | null} */
let pointedAt = null;
document.addEventListener("focusin", ({ target }) => lightUp(target));
// Not `pointerover`, which also fires when the page scrolls under a resting pointer, and would override the focus.
document.addEventListener("pointermove", ({ target }) => {
  if (target !== pointedAt) lightUp(target);
  pointedAt = target;
});

// --- the dialog that shares the conversation ---

document.addEventListener("click", async (event) => {
  const link = around(HTMLAnchorElement, "[data-share]", event.target);
  const dialog = find(HTMLElement, "#share-dialog");
  if (!link || !dialog || opensNewTab(event) || !link.pathname.startsWith(location.pathname)) return;
  event.preventDefault();
  need(HTMLElement, "#share-title", dialog).textContent = link.dataset.share ?? "";
  const body = need(HTMLElement, "#share-body", dialog);
  await htmx.ajax("GET", link.href, { target: body, swap: "innerHTML" });
  dialog.showPopover();
  find(HTMLElement, "select, input:not([type=hidden])", body)?.focus();
});
document.addEventListener(
  "toggle",
  ({ target, newState }) => {
    const dialog = around(Element, "#share-dialog", target);
    const { activeElement: at } = document;
    if (dialog && newState === "closed" && (at === document.body || dialog.contains(at)))
      find(HTMLElement, "header .menu-opener")?.focus(); // the menu that opened it is closed
  },
  true,
);
