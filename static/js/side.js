/** The list of conversations: its menus, search by keyboard, the way back after a deletion, and changes from elsewhere. */
import { onNews } from "./updates.js";

const SHOWN_FOR = 15_000; // ms; whoever points at it or is in it gets longer
const toast = document.querySelector("[data-toast]");
const DEEPEST = 600; // rows that the server refreshes at once
const list = document.getElementById("side-list");

// Menus

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("[data-organise]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const menu = document.getElementById(link.dataset.organise);
  await window.htmx.ajax("GET", link.href, { target: menu, swap: "innerHTML" });
  if (!menu.firstElementChild) return;
  menu.showPopover();
  place(menu, link);
  menu.querySelector("input:not([type=hidden])").focus();
});

/** Below the link, or above where there is no room. The policy forbids style attributes, not this. */
function place(menu, link) {
  if (menu.id !== "organise") return; // the one of the page's head has its place
  const at = link.getBoundingClientRect();
  const top = Math.max(8, Math.min(at.bottom + 4, innerHeight - menu.offsetHeight - 8));
  const left = Math.max(8, Math.min(at.left, innerWidth - menu.offsetWidth - 8));
  menu.style.inset = `${top}px auto auto ${left}px`;
}

for (const menu of document.querySelectorAll("#organise, #menu"))
  menu.addEventListener("toggle", (event) => event.newState === "closed" && menu.replaceChildren());

// Changes

document.body.addEventListener("sidechange", ({ detail }) => {
  if (!detail?.conversation) return; // it was not changed here
  for (const menu of document.querySelectorAll("#organise:popover-open, #menu:popover-open")) menu.hidePopover();
  if (location.pathname === `/c/${detail.conversation}/`)
    document.body.dispatchEvent(new CustomEvent("titlechange", { detail }));
});
onNews("conversations", refresh);
document.addEventListener("visibilitychange", refresh);

/** Who has gone down further than the server refreshes would lose their place: for them it waits until they are back. */
function refresh() {
  if (document.hidden) return;
  const far = list.scrollTop > 0 && list.querySelectorAll("li").length > DEEPEST;
  if (far) list.addEventListener("scrollend", refresh, { once: true });
  else document.body.dispatchEvent(new CustomEvent("sidechange"));
}

// What comes anew stands where it stood: the rows in view stay there, but for those that have moved themselves.

const topOf = (row) => row.getBoundingClientRect().top;
let inView = [];

list.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.requestConfig.elt !== list || detail.xhr.status !== 200) return;
  if (!detail.serverResponse.includes('name="seen"')) return void location.reload(); // signed out meanwhile
  const { top, bottom } = list.getBoundingClientRect();
  const rows = [...list.querySelectorAll("li > a:first-child[id]")].map((row) => [row.id, topOf(row)]);
  inView = list.scrollTop ? rows.filter(([, at]) => at >= top && at < bottom) : [];
});

list.addEventListener("htmx:afterSwap", () => {
  const shifts = inView
    .filter(([id]) => document.getElementById(id))
    .map(([id, at]) => topOf(document.getElementById(id)) - at)
    .sort((one, other) => one - other);
  if (shifts.length) list.scrollTop += shifts[shifts.length >> 1];
  inView = [];
});

// What was deleted can come back

let going = 0;

function show() {
  clearTimeout(going);
  if (!toast.querySelector("form")) return void (toast.matches(":popover-open") && toast.hidePopover());
  toast.popover = "manual"; // above a sheet that is open
  if (!toast.matches(":popover-open")) toast.showPopover();
  going = setTimeout(hide, SHOWN_FOR);
}

function hide() {
  if (toast.matches(":hover, :focus-within")) return void (going = setTimeout(hide, SHOWN_FOR));
  toast.replaceChildren();
  toast.hidePopover();
}

toast.addEventListener("htmx:afterSwap", show);
show();

// Search

document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
  event.preventDefault();
  const side = document.getElementById("side");
  const field = document.getElementById("search");
  if (!field.checkVisibility()) side.showPopover();
  field.focus();
  field.select();
});

// A conversation opened at one of its messages, by an address without a place in it

const at = new URLSearchParams(location.search).get("at");
if (at && !location.hash) location.replace(`#m-${at}`);
