/**
 * What is around every page: the list of conversations with its menus, changes from elsewhere, the way back after a
 * deletion, search by keyboard, and the tab's title, which says when a run waits.
 */
import { onNews } from "./live.js";
import { all, announce, around, beside, DRAFT, find, need, opensElsewhere } from "./page.js";

const SHOWN_FOR = 15_000; // ms; whoever points at it or is in it gets longer
const DEEPEST = 600; // rows that the server refreshes at once
const list = need(HTMLElement, "#side-list");
const toast = need(HTMLElement, "[data-toast]");

// --- menus ---

document.addEventListener("click", async (event) => {
  const link = around(HTMLAnchorElement, "[data-organise]", event.target);
  if (!link || opensElsewhere(event)) return;
  event.preventDefault();
  const menu = need(HTMLElement, `#${link.dataset.organise}`);
  await htmx.ajax("GET", link.href, { target: menu, swap: "innerHTML" });
  if (!menu.firstElementChild) return;
  menu.showPopover();
  if (menu.id === "organise") beside(menu, link); // the one of the page's head has its place
  need(HTMLElement, "input:not([type=hidden])", menu).focus();
});

for (const menu of all(HTMLElement, "#organise, #menu"))
  menu.addEventListener("toggle", ({ newState }) => newState === "closed" && menu.replaceChildren());

// --- changes ---

document.body.addEventListener("sidechange", ({ detail }) => {
  if (!detail?.conversation) return; // it was not changed here
  for (const menu of all(HTMLElement, "#organise:popover-open, #menu:popover-open")) menu.hidePopover();
  if (location.pathname === `/c/${detail.conversation}/`) announce("titlechange", detail);
});
onNews("conversations", refresh);
onNews("invitations", () => announce("invitationschange"));
document.addEventListener("visibilitychange", refresh);

/** Who has gone down further than the server refreshes would lose their place: for them it waits until they are back. */
function refresh() {
  if (document.hidden) return;
  const far = list.scrollTop > 0 && list.querySelectorAll("li").length > DEEPEST;
  if (far) list.addEventListener("scrollend", refresh, { once: true });
  else announce("sidechange");
}

// What comes anew stands where it stood: the rows in view stay there, but for those that have moved themselves.

/** @param {Element} row */
const topOf = (row) => row.getBoundingClientRect().top;
/** @type {{id: string, at: number}[]} */
let inView = [];

list.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.requestConfig.elt !== list || detail.xhr.status !== 200) return;
  if (!detail.serverResponse.includes('name="seen"')) return void location.reload(); // signed out meanwhile
  const { top, bottom } = list.getBoundingClientRect();
  const rows = all(HTMLElement, "li > a:first-child[id]", list).map((row) => ({ id: row.id, at: topOf(row) }));
  inView = list.scrollTop ? rows.filter(({ at }) => at >= top && at < bottom) : [];
});

list.addEventListener("htmx:afterSwap", () => {
  const shifts = inView
    .flatMap(({ id, at }) => {
      const row = document.getElementById(id);
      return row ? [topOf(row) - at] : [];
    })
    .sort((one, other) => one - other);
  if (shifts.length) list.scrollTop += shifts[shifts.length >> 1];
  inView = [];
});

// --- what was deleted can come back ---

let going = 0;

function showToast() {
  clearTimeout(going);
  const open = toast.matches(":popover-open");
  if (!toast.querySelector("form")) return void (open && toast.hidePopover());
  toast.popover = "manual"; // above a sheet that is open
  if (!open) toast.showPopover();
  going = window.setTimeout(hideToast, SHOWN_FOR);
}

function hideToast() {
  if (toast.matches(":hover, :focus-within")) {
    going = window.setTimeout(hideToast, SHOWN_FOR);
    return;
  }
  toast.replaceChildren();
  toast.hidePopover();
}

toast.addEventListener("htmx:afterSwap", showToast);
showToast();

// --- search ---

document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
  event.preventDefault();
  const field = need(HTMLInputElement, "#search");
  if (!field.checkVisibility()) need(HTMLElement, "#side").showPopover();
  field.focus();
  field.select();
});

// A conversation opened at one of its messages, by an address without a place in it.
const at = new URLSearchParams(location.search).get("at");
if (at && !location.hash) location.replace(`#m-${at}`);

// --- runs: fragments that htmx keeps as they are on the server ---

let mark = ""; // known once a run was on the page

/** Whatever else changes the title, the mark stands before it as long as a run on this page waits. */
function markTitle() {
  const runs = all(HTMLElement, "[data-run]");
  mark = runs[0]?.dataset.mark ?? mark;
  if (!mark) return;
  const bare = document.title.replaceAll(mark, "").trim();
  const wanted = runs.some((run) => run.dataset.run === "waiting") ? `${mark} ${bare}` : bare;
  if (document.title !== wanted) document.title = wanted;
}

new MutationObserver(markTitle).observe(need(HTMLTitleElement, "title"), { childList: true });
document.body.addEventListener("htmx:afterSettle", markTitle);
// On the pages of tasks the list comes first: a run can have gone with its task.
if (find(HTMLElement, "[data-run]") && !find(HTMLElement, "#tasks")) onNews("tasks", () => announce("nextchange"));

// --- signing out: whoever does leaves no drafts behind ---

document.addEventListener("submit", ({ target }) => {
  if (!around(HTMLFormElement, "[data-sign-out]", target)) return;
  for (const key of Object.keys(localStorage)) if (key.startsWith(DRAFT)) localStorage.removeItem(key);
});
