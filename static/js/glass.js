/**
 * What the model sees, shown in the transcript: a line where its sight begins, and the light that a row of the panel, its
 * message and its piece of the bar throw on each other; and the dialog in which it is shown to others.
 *
 * The server says with the plan, and with a report in the panel, where that is (templates/chat/_sight.html).
 */
import { all, around, find, need, opensElsewhere } from "./page.js";

const messages = need(HTMLElement, "#messages");
const panel = need(HTMLElement, "#panel");
const line = need(HTMLTemplateElement, "#sight-line");

// --- where the model's sight begins ---

function showSight() {
  find(HTMLElement, ":scope > .sight", messages)?.remove();
  for (const each of all(HTMLElement, "[data-unseen]", messages)) delete each.dataset.unseen;
  const report = find(HTMLElement, "[data-saw]", panel); // of an answer: it holds while one looks at it
  const sight = find(HTMLElement, "[data-sight]", report ?? need(HTMLElement, "#plan"));
  if (!sight) return;
  for (const pk of sight.dataset.unseen?.split(" ") ?? []) {
    const unseen = document.getElementById(`m-${pk}`);
    if (unseen) unseen.dataset.unseen = "";
  }
  const first = sight.dataset.sight ? onPage(`m-${sight.dataset.sight}`) : null;
  const summary = first?.previousElementSibling?.matches(".summary"); // which says it itself
  if (summary || (sight.dataset.sight && !first) || !messages.querySelector(".message")) return;
  const border = line.content.cloneNode(true);
  if (!(border instanceof DocumentFragment)) return;
  need(HTMLElement, "[data-words]", border).textContent = sight.dataset.words ?? "";
  messages.insertBefore(border, first);
}

/** What stands among the messages and is, or holds, this one. @param {string} id */
function onPage(id) {
  /** @type {Element | null} */
  let place = document.getElementById(id);
  while (place && place.parentElement !== messages) place = place.parentElement;
  return place;
}

document.body.addEventListener("htmx:afterSettle", showSight);
new MutationObserver(showSight).observe(need(HTMLElement, "#panel-body"), { childList: true });
if (find(HTMLElement, "#plan")) showSight();

// --- light ---

/** @param {EventTarget | null} target */
function lightUp(target) {
  const lit = new Set(panel.hidden ? [] : lights(target));
  for (const each of all(Element, ".lit")) if (!lit.has(each)) each.classList.remove("lit");
  for (const each of lit) each.classList.add("lit");
}

/** @param {EventTarget | null} target @returns {Element[]} what belongs to the place that is pointed at */
function lights(target) {
  const row = around(HTMLElement, "[data-lights]", target);
  const message = row ? document.getElementById(row.dataset.lights ?? "") : around(HTMLElement, ".message", target);
  const rows = !row && message ? all(HTMLElement, `[data-lights="${CSS.escape(message.id)}"]`, panel) : [];
  const group = around(Element, "[data-group]", row ?? rows[0] ?? target)?.getAttribute("data-group");
  const pieces = group ? all(Element, `[data-group="${CSS.escape(group)}"]`, panel) : [];
  return [...rows, ...pieces, ...(row && message ? [message] : [])];
}

/** @type {EventTarget | null} */
let pointed = null;
document.addEventListener("focusin", ({ target }) => lightUp(target));
// Not `pointerover`: that comes, too, when the page moves beneath a pointer that rests, and would take the light of the focus.
document.addEventListener("pointermove", ({ target }) => {
  if (target !== pointed) lightUp(target);
  pointed = target;
});

// --- the dialog over the conversation in which it is shared ---

document.addEventListener("click", async (event) => {
  const link = around(HTMLAnchorElement, "[data-share]", event.target);
  const dialog = find(HTMLElement, "#share-dialog");
  if (!link || !dialog || opensElsewhere(event) || !link.pathname.startsWith(location.pathname)) return;
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
      find(HTMLElement, "header .menu-opener")?.focus(); // the menu in which it was chosen is closed
  },
  true,
);
