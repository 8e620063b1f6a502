/**
 * The frame of every page: the list of conversations with its menus, changes from other tabs, the undo of a deletion, the
 * palette, the keys of every page, and the tab's title, which shows when a run waits.
 */
import { onNews } from "./live.js";
import {
  all,
  announce,
  around,
  find,
  need,
  notify,
  opensNewTab,
  parse,
  placeBeside,
  toggleNotifications,
} from "./page.js";

const TOAST_TIME = 15_000; // ms; longer while it has the pointer or the focus
const MAX_REFRESHED_ROWS = 600; // rows that one refresh can load
const list = need(HTMLElement, "#side-list");
const toast = need(HTMLElement, "[data-toast]");

// --- the service worker, which shows a page when there is no network ---

if (isSecureContext && "serviceWorker" in navigator)
  addEventListener("load", () => navigator.serviceWorker.register("/service-worker.js").catch(() => {}));

// --- the browser's time zone, for users without one ---

const zone = find(HTMLFormElement, "#browsers-zone");
if (zone) {
  need(HTMLInputElement, "[name=timezone]", zone).value = Intl.DateTimeFormat().resolvedOptions().timeZone;
  fetch(zone.action, { method: "POST", body: new FormData(zone) }).catch(() => {}); // the next page tries it again
}

// --- menus ---

const MENUS = "#organise, #menu, #message-menu"; // their contents are loaded when they are opened
/** The element that opened the menu. @type {HTMLElement | null} */
let opener = null;

document.addEventListener("click", async (event) => {
  const link = around(HTMLAnchorElement, "[data-organise]", event.target);
  if (!link || opensNewTab(event)) return;
  event.preventDefault();
  const menu = need(HTMLElement, `#${link.dataset.organise}`);
  opener = link;
  await htmx.ajax("GET", link.href, { target: menu, swap: "innerHTML" });
  if (!menu.firstElementChild) return;
  menu.showPopover();
  if (menu.id !== "menu") placeBeside(menu, link); // `#menu` is placed by the style sheet
  find(HTMLElement, "input:not([type=hidden]), button, a", menu)?.focus();
});

// On the document, since `#menu` is inserted with the first message of a conversation.
document.addEventListener(
  "toggle",
  ({ target, newState }) => {
    const menu = around(HTMLElement, MENUS, target);
    if (!menu || newState !== "closed") return;
    // Above a sheet the browser does not return the focus.
    if (document.activeElement === document.body || menu.contains(document.activeElement)) opener?.focus();
    menu.replaceChildren();
  },
  true,
);

// --- changes ---

need(HTMLElement, "#organise").addEventListener("htmx:afterSwap", ({ target }) => {
  const bar = find(HTMLElement, "#choose-form");
  if (!(target instanceof HTMLElement) || !bar || target.matches(":popover-open")) return;
  target.showPopover();
  placeBeside(target, bar);
  find(HTMLElement, "input:not([type=hidden]), button", target)?.focus();
});

// --- several conversations at once: checkboxes in the list, and acts on the ticked ones ---

/** The last box that was ticked; with Shift, all boxes from there are ticked. @type {HTMLInputElement | null} */
let lastTicked = null;

function checkboxes() {
  return all(HTMLInputElement, "input[name=conversation]", list);
}

function countChosen() {
  const number = checkboxes().filter((box) => box.checked).length;
  const bar = find(HTMLElement, "#choose-form");
  if (!bar) return;
  need(HTMLElement, "[data-chosen-count]", bar).textContent = number ? `(${number})` : "";
  need(HTMLButtonElement, "[type=submit]", bar).disabled = number === 0;
  need(HTMLElement, "[data-choose-all]", bar).hidden = false;
}

list.addEventListener("click", (event) => {
  const there = checkboxes();
  if (around(Element, "[data-choose-all]", event.target)) {
    const every = there.every((box) => box.checked);
    for (const box of there) box.checked = !every;
  }
  // A click anywhere in the row counts, since a finger does not hit the box.
  const row = around(HTMLElement, "li:has(> input)", event.target);
  const box = row && find(HTMLInputElement, "input", row);
  if (around(HTMLAnchorElement, "a", event.target) && box && !opensNewTab(event)) {
    event.preventDefault();
    box.checked = !box.checked;
  }
  if (box) {
    if (event.shiftKey && lastTicked) {
      const [first, last] = [there.indexOf(lastTicked), there.indexOf(box)].sort((one, other) => one - other);
      for (const each of there.slice(Math.max(first, 0), last + 1)) each.checked = box.checked;
    }
    lastTicked = box;
  }
  countChosen();
});
list.addEventListener("keydown", (event) => {
  const done = find(HTMLElement, "#choose-done", list);
  if (event.key !== "Escape" || !done) return;
  event.preventDefault(); // otherwise the sheet would close, too
  done.click();
});
list.addEventListener("htmx:afterSwap", ({ detail: { requestConfig } }) => {
  countChosen();
  const next = { "side-choose": "[data-choose-all]", "choose-done": "#side-choose" }[requestConfig.elt.id];
  if (next) find(HTMLElement, next, list)?.focus();
  const menu = need(HTMLElement, "#organise");
  const done = !find(HTMLElement, "#choose-form") && find(HTMLElement, "[name=do]", menu); // the menu for the chosen conversations
  if (done && menu.matches(":popover-open")) menu.hidePopover();
});

function closeMenus() {
  for (const menu of all(HTMLElement, MENUS)) if (menu.matches(":popover-open")) menu.hidePopover();
}

document.body.addEventListener("markchange", closeMenus);
document.body.addEventListener("sidechange", ({ detail }) => {
  if (!detail?.conversation) return; // the change came from elsewhere
  closeMenus();
  if (location.pathname === `/c/${detail.conversation}/`) announce("titlechange", detail);
});
onNews("conversations", refresh);
onNews("tasks", refresh); // a run may wait for the user now
onNews("invitations", () => announce("invitationschange"));
onNews("shared", () => announce("sharedchange"));
document.addEventListener("visibilitychange", refresh);

/** Refreshes the list. If the user scrolled below the rows that one refresh loads, it waits until they scroll up again. */
function refresh() {
  if (document.hidden) return;
  const far = list.scrollTop > 0 && list.querySelectorAll("li").length > MAX_REFRESHED_ROWS;
  if (far) list.addEventListener("scrollend", refresh, { once: true });
  else announce("sidechange");
}

// After a refresh the visible rows stay in place, except for rows that moved in the list.

/** @param {Element} row */
const topOf = (row) => row.getBoundingClientRect().top;
/** @type {{id: string, at: number}[]} */
let visibleRows = [];

list.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.requestConfig.elt !== list || detail.xhr.status !== 200) return;
  if (!detail.serverResponse.includes('name="seen"')) return void location.reload(); // signed out meanwhile
  const { top, bottom } = list.getBoundingClientRect();
  const rows = all(HTMLElement, "li > a[id^=c-]", list).map((row) => ({ id: row.id, at: topOf(row) }));
  visibleRows = list.scrollTop ? rows.filter(({ at }) => at >= top && at < bottom) : [];
});

list.addEventListener("htmx:afterSwap", () => {
  const shifts = visibleRows
    .flatMap(({ id, at }) => {
      const row = document.getElementById(id);
      return row ? [topOf(row) - at] : [];
    })
    .sort((one, other) => one - other);
  if (shifts.length) list.scrollTop += shifts[shifts.length >> 1];
  visibleRows = [];
});

// --- the toast that offers to undo a deletion ---

let toastTimer = 0;

function showToast() {
  clearTimeout(toastTimer);
  const open = toast.matches(":popover-open");
  if (!toast.querySelector("form")) return void (open && toast.hidePopover());
  toast.popover = "manual"; // so that it is above an open sheet
  if (!open) toast.showPopover();
  toastTimer = window.setTimeout(hideToast, TOAST_TIME);
}

function hideToast() {
  if (toast.matches(":hover, :focus-within")) {
    toastTimer = window.setTimeout(hideToast, TOAST_TIME);
    return;
  }
  toast.replaceChildren();
  toast.hidePopover();
}

toast.addEventListener("htmx:afterSwap", () => {
  const { activeElement: at } = document;
  showToast();
  const undo = find(HTMLElement, "button", toast);
  if (undo && at?.matches(":focus-visible"))
    undo.focus(); // it is far from the deleted row
  else if (!undo && at === document.body) find(HTMLElement, "a[id^=c-]", list)?.focus(); // the focus was on Undo, which is gone
});
showToast();

// --- the palette: one field for conversations, messages, files, projects, personas and commands ---

const SEARCH_DELAY = 100; // milliseconds without a key press before the request
const palette = need(HTMLDialogElement, "#palette");
const searchField = need(HTMLInputElement, "input", palette);
const results = need(HTMLElement, "#palette-results", palette);
const resultStatus = need(HTMLElement, "[data-palette-said]", palette);
const address = need(HTMLElement, "[data-palette]").dataset.palette ?? "";
let searchTimer = 0;
let latestSearch = 0;
let shownQuery = ""; // the query that the results are of

function openPalette() {
  if (!palette.open) palette.showModal();
  searchField.select();
  searchPalette();
}

async function searchPalette() {
  const query = searchField.value.trim();
  const number = ++latestSearch;
  const response = await fetch(`${address}?${new URLSearchParams({ q: query })}`, {
    headers: { "HX-Request": "true" },
  }).catch(() => null);
  if (number !== latestSearch) return; // the query changed since
  if (!response?.ok) return tellPalette(results.dataset.unfound ?? "");
  results.replaceChildren(...parse(await response.text()).body.children);
  shownQuery = query;
  results.scrollTop = 0;
  selectOption(options()[0]);
  resultStatus.textContent = options()
    .filter((each) => each.matches(".palette-all"))
    .map((each) => each.textContent.trim())
    .join(". ");
}

/** @param {string} text */
function tellPalette(text) {
  const line = document.createElement("p");
  line.className = "muted";
  line.textContent = text;
  results.replaceChildren(line);
  resultStatus.textContent = text;
  searchField.removeAttribute("aria-activedescendant");
}

function options() {
  return all(HTMLAnchorElement, "[role=option]", results);
}

/** @param {HTMLElement | undefined} option */
function selectOption(option) {
  for (const each of options()) each.ariaSelected = String(each === option);
  if (!option) return;
  searchField.setAttribute("aria-activedescendant", option.id);
  option.scrollIntoView({ block: "nearest" });
}

/** @param {number} step */
function moveSelection(step) {
  const there = options();
  const at = there.findIndex((each) => each.ariaSelected === "true");
  selectOption(there[(at + step + there.length) % there.length]);
}

searchField.addEventListener("input", () => {
  clearTimeout(searchTimer);
  searchTimer = window.setTimeout(searchPalette, SEARCH_DELAY);
});

searchField.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "ArrowDown") moveSelection(1);
  else if (event.key === "ArrowUp") moveSelection(-1);
  else if (event.key === "Enter") {
    // If the query changed since, the form opens the search page instead.
    const option = find(HTMLAnchorElement, '[aria-selected="true"]', results);
    if (!option || shownQuery !== searchField.value.trim()) return;
    option.click();
  } else return;
  event.preventDefault();
});

results.addEventListener("click", (event) => {
  const option = around(HTMLAnchorElement, "[role=option]", event.target);
  if (!option || opensNewTab(event)) return;
  palette.close();
  const { does } = option.dataset;
  if (!does) return;
  event.preventDefault();
  announce("command", { does });
});

palette.addEventListener("click", ({ target }) => {
  if (target === palette || around(Element, "[data-close-palette]", target)) palette.close(); // a click on the backdrop has the dialog as its target
});

// --- the keys of every page ---

const side = need(HTMLElement, "#side");
const railSwitch = need(HTMLButtonElement, "[data-rail-switch]", side);
railSwitch.hidden = false;
railSwitch.addEventListener("click", switchRail);

/** Narrows or widens the list. A cookie keeps the choice, so that the server renders the next page in the same way. */
function switchRail() {
  const narrow = side.toggleAttribute("data-rail");
  // biome-ignore lint/suspicious/noDocumentCookie: the Cookie Store exists on secure origins only
  document.cookie = `side=${narrow ? "rail" : ""};path=/;max-age=31536000;samesite=lax`;
}

/** Starts the choice of several conversations, and shows the list if it is narrow or hidden. */
function chooseSeveral() {
  if (side.hasAttribute("data-rail")) switchRail();
  if (getComputedStyle(side).position === "fixed" || getComputedStyle(side).display === "none") side.showPopover();
  find(HTMLElement, "#side-choose", list)?.click();
}

async function showShortcuts() {
  if (!find(HTMLDialogElement, "#shortcuts")) {
    const response = await fetch(`${address}?keys`).catch(() => null);
    if (!response?.ok) return;
    document.body.append(need(HTMLDialogElement, "#shortcuts", parse(await response.text())));
  }
  const sheet = need(HTMLDialogElement, "#shortcuts");
  if (!sheet.open) sheet.showModal();
}

document.addEventListener("click", (event) => {
  if (!around(HTMLElement, "[data-palette]", event.target) || opensNewTab(event)) return;
  event.preventDefault();
  if (side.matches(":popover-open")) side.hidePopover();
  openPalette();
});

document.body.addEventListener("command", ({ detail }) => {
  if (detail.does === "rail") switchRail();
  if (detail.does === "keys") showShortcuts();
  if (detail.does === "choose") chooseSeveral();
  if (detail.does === "notify") tellNotifications();
});

async function tellNotifications() {
  const on = await toggleNotifications();
  const line = document.createElement("p");
  line.textContent = (on ? results.dataset.notified : results.dataset.unnotified) ?? "";
  toast.replaceChildren(line, document.createElement("form")); // the toast shows its contents only if it has a form
  showToast();
}

function focusField() {
  const field = find(HTMLTextAreaElement, "#text");
  if (field) field.focus();
  else openPalette();
}

/** Moves the focus to the next message or, with -1, to the previous one. @param {number} step */
function focusMessage(step) {
  const there = all(HTMLElement, "#messages article");
  const here = around(HTMLElement, "article", document.activeElement);
  const to = there[here ? there.indexOf(here) + step : step > 0 ? 0 : there.length - 1];
  if (!to) return;
  to.tabIndex = -1;
  to.focus();
}

/** Keys with Ctrl or Command. @type {Record<string, () => void>} */
const CONTROL_KEYS = {
  k: openPalette,
  b: switchRail,
  ".": () => (find(HTMLElement, "#panel:not([hidden]) [data-close-panel]") ?? find(HTMLElement, ".plan-line"))?.click(),
};
/** @type {Record<string, () => void>} */
const CONTROL_SHIFT_KEYS = {
  o: () => need(HTMLAnchorElement, ".new-conversation").click(),
  c: () => all(HTMLElement, "[data-copy-answer]").at(-1)?.click(),
};
/** Keys outside of fields. @type {Record<string, () => void>} */
const PLAIN_KEYS = {
  "/": focusField,
  "?": showShortcuts,
  j: () => focusMessage(1),
  k: () => focusMessage(-1),
};

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing || event.altKey) return;
  const control = event.ctrlKey || event.metaKey;
  const writing = around(
    HTMLElement,
    "input:not([type=checkbox], [type=radio]), textarea, select, dialog",
    event.target,
  );
  if (!control && (writing || find(HTMLElement, "#keys-opener"))) return; // tasks have keys of their own
  const keys = control ? (event.shiftKey ? CONTROL_SHIFT_KEYS : CONTROL_KEYS) : PLAIN_KEYS;
  const key = event.key.toLowerCase();
  if (!Object.hasOwn(keys, key)) return;
  event.preventDefault();
  keys[key]();
});

// The address may name a message by `?at=` without a fragment, or by a fragment for a message above the loaded ones.
const at = new URLSearchParams(location.search).get("at");
if (at && !location.hash) location.replace(`#m-${at}`);

function loadOlderMessage() {
  const message = /^#m-([0-9a-f-]{36})$/.exec(location.hash)?.[1];
  if (message && message !== at && find(HTMLElement, "#messages") && !document.getElementById(`m-${message}`))
    location.replace(`?at=${message}#m-${message}`);
}

addEventListener("hashchange", loadOlderMessage);
loadOlderMessage();

// --- runs: fragments that htmx refreshes ---

let waitingMark = ""; // empty until a run was on the page

/** Puts the mark before the title while a run on this page waits. */
function markTitle() {
  const runs = all(HTMLElement, "[data-run]");
  waitingMark = runs[0]?.dataset.mark ?? waitingMark;
  if (!waitingMark) return;
  const bare = document.title.replaceAll(waitingMark, "").trim();
  const wanted = runs.some((run) => run.dataset.run === "waiting") ? `${waitingMark} ${bare}` : bare;
  if (document.title === wanted) return;
  if (wanted !== bare && !document.title.includes(waitingMark)) notify(bare, waitingMark);
  document.title = wanted;
}

new MutationObserver(markTitle).observe(need(HTMLTitleElement, "title"), { childList: true });
document.body.addEventListener("htmx:afterSettle", markTitle);
// The pages of tasks refresh their list first, since a run may be deleted with its task.
if (find(HTMLElement, "[data-run]") && !find(HTMLElement, "#tasks")) onNews("tasks", () => announce("nextchange"));
if (find(HTMLElement, "#reading")) onNews("readings", () => announce("readingschange"));
