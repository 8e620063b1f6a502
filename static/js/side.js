/** The list of conversations: its menus, search by keyboard, the way back after a deletion, and news from other tabs. */
const SHOWN_FOR = 15_000; // ms; whoever points at it or is in it gets longer
const toast = document.querySelector("[data-toast]");
const tabs = "BroadcastChannel" in window ? new BroadcastChannel("conversations") : null;

// Menus

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.("[data-organise]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const menu = document.getElementById(link.dataset.organise);
  // Settled at once: a click in the 20 ms that htmx would wait is the browser's, not htmx's.
  await window.htmx.ajax("GET", link.href, { target: menu, swap: "innerHTML settle:0ms" });
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
  for (const menu of document.querySelectorAll("#organise:popover-open, #menu:popover-open")) menu.hidePopover();
  if (!detail?.conversation) return;
  if (location.pathname === `/c/${detail.conversation}/`)
    document.body.dispatchEvent(new CustomEvent("titlechange", { detail }));
  tabs?.postMessage("changed");
});
tabs?.addEventListener("message", refresh);
document.addEventListener("visibilitychange", () => document.hidden || refresh());

function refresh() {
  document.body.dispatchEvent(new CustomEvent("sidechange"));
}

/** Something was said or named in a conversation. */
export function changed() {
  refresh();
  tabs?.postMessage("changed");
}

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
