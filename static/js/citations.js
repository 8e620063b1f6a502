/**
 * What a citation leads to, on a card beside it: title, page and passage. It is there for whoever points at the number
 * or reaches it with the keyboard; where nothing can point, a tap shows it and the title on it opens the source.
 */
import { beside } from "./place.js";
import { say } from "./words.js";

const SHOW_AFTER = 150; // milliseconds of pointing
const HIDE_AFTER = 250; // time to get onto the card
const card = document.getElementById("citation-preview");
/** @type {Map<string, string>} the server's HTML by address */
const known = new Map();
/** @type {HTMLAnchorElement | null} */
let shown = null;
let title = ""; // the browser's own tip, taken away while the card says more
let timer = 0;

const citation = (event) => event.target.closest?.(".answer:not([data-status=pending]) .citation");

function address(link) {
  return `${link.closest("article").dataset.url}sources/${link.textContent}/`;
}

/** @param {HTMLAnchorElement} link */
async function show(link) {
  if (link === shown) return;
  hide();
  shown = link;
  title = link.title;
  link.removeAttribute("title");
  const html = known.get(address(link)) ?? (await load(address(link)));
  if (shown !== link || !link.isConnected) return;
  card.innerHTML = html; // rendered and escaped by the server
  link.setAttribute("aria-describedby", card.id);
  card.showPopover();
  beside(card, link);
}

async function load(url) {
  const response = await fetch(url).catch(() => null);
  if (!response?.ok) {
    const line = document.createElement("p");
    line.textContent = say("offline");
    return line.outerHTML;
  }
  known.set(url, await response.text());
  return known.get(url);
}

function hide() {
  clearTimeout(timer);
  if (!shown) return;
  shown.title = title;
  shown.removeAttribute("aria-describedby");
  shown = null;
  if (card.matches(":popover-open")) card.hidePopover();
}

function soon(work, wait) {
  clearTimeout(timer);
  timer = window.setTimeout(work, wait);
}

document.addEventListener("pointerover", (event) => {
  if (event.pointerType === "touch") return;
  const link = citation(event);
  if (link) soon(() => show(link), SHOW_AFTER);
  else if (card.contains(event.target)) clearTimeout(timer);
  else if (shown && document.activeElement !== shown) soon(hide, HIDE_AFTER);
  else if (!shown) clearTimeout(timer);
});
document.addEventListener("focusin", (event) => {
  const link = citation(event);
  if (link && link.matches(":focus-visible")) show(link);
  else if (!card.contains(event.target)) hide();
});
document.addEventListener("click", (event) => {
  const link = citation(event);
  if (link && event.pointerType === "touch") {
    event.preventDefault();
    show(link);
  } else if (!card.contains(event.target) || event.target.closest("a")) hide();
});
document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
document.getElementById("transcript").addEventListener("scroll", () => shown && beside(card, shown), { passive: true });
