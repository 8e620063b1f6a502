/**
 * What is around every page: the list of conversations with its menus, changes from elsewhere, the way back after a
 * deletion, the palette, the keys of every page, and the tab's title, which says when a run waits.
 */
import { onNews } from "./live.js";
import {
  all,
  announce,
  around,
  beside,
  find,
  need,
  notify,
  opensElsewhere,
  parse,
  switchNotifications,
} from "./page.js";

const SHOWN_FOR = 15_000; // ms; whoever points at it or is in it gets longer
const DEEPEST = 600; // rows that the server refreshes at once
const list = need(HTMLElement, "#side-list");
const toast = need(HTMLElement, "[data-toast]");

// --- as an app: a worker that says so when there is no network ---

if (isSecureContext && "serviceWorker" in navigator)
  addEventListener("load", () => navigator.serviceWorker.register("/service-worker.js").catch(() => {}));

// --- the browser's time zone, for somebody who has none of their own yet ---

const zone = find(HTMLFormElement, "#browsers-zone");
if (zone) {
  need(HTMLInputElement, "[name=timezone]", zone).value = Intl.DateTimeFormat().resolvedOptions().timeZone;
  fetch(zone.action, { method: "POST", body: new FormData(zone) }).catch(() => {}); // the next page tries again
}

// --- menus ---

const MENUS = "#organise, #menu, #message-menu"; // filled when they are opened
/** Of the menu. @type {HTMLElement | null} */
let opener = null;

document.addEventListener("click", async (event) => {
  const link = around(HTMLAnchorElement, "[data-organise]", event.target);
  if (!link || opensElsewhere(event)) return;
  event.preventDefault();
  const menu = need(HTMLElement, `#${link.dataset.organise}`);
  opener = link;
  await htmx.ajax("GET", link.href, { target: menu, swap: "innerHTML" });
  if (!menu.firstElementChild) return;
  menu.showPopover();
  if (menu.id !== "menu") beside(menu, link); // the one of the page's head has its place
  find(HTMLElement, "input:not([type=hidden]), button, a", menu)?.focus();
});

// The one of the page's head comes with the first message of a conversation.
document.addEventListener(
  "toggle",
  ({ target, newState }) => {
    const menu = around(HTMLElement, MENUS, target);
    if (!menu || newState !== "closed") return;
    // Over a sheet the browser does not bring it back.
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
  beside(target, bar);
  find(HTMLElement, "input:not([type=hidden]), button", target)?.focus();
});

// --- several conversations at once: boxes in the list, and what is done with those that are ticked ---

/** The box from which Shift ticks all as far as the next. @type {HTMLInputElement | null} */
let from = null;

function boxes() {
  return all(HTMLInputElement, "input[name=conversation]", list);
}

function countChosen() {
  const number = boxes().filter((box) => box.checked).length;
  const bar = find(HTMLElement, "#choose-form");
  if (!bar) return;
  need(HTMLElement, "[data-chosen-count]", bar).textContent = number ? `(${number})` : "";
  need(HTMLButtonElement, "[type=submit]", bar).disabled = number === 0;
  need(HTMLElement, "[data-choose-all]", bar).hidden = false;
}

list.addEventListener("click", (event) => {
  const there = boxes();
  if (around(Element, "[data-choose-all]", event.target)) {
    const every = there.every((box) => box.checked);
    for (const box of there) box.checked = !every;
  }
  // Of a row as a whole: a finger hits no box.
  const row = around(HTMLElement, "li:has(> input)", event.target);
  const box = row && find(HTMLInputElement, "input", row);
  if (around(HTMLAnchorElement, "a", event.target) && box && !opensElsewhere(event)) {
    event.preventDefault();
    box.checked = !box.checked;
  }
  if (box) {
    if (event.shiftKey && from) {
      const [first, last] = [there.indexOf(from), there.indexOf(box)].sort((one, other) => one - other);
      for (const each of there.slice(Math.max(first, 0), last + 1)) each.checked = box.checked;
    }
    from = box;
  }
  countChosen();
});
list.addEventListener("keydown", (event) => {
  const done = find(HTMLElement, "#choose-done", list);
  if (event.key !== "Escape" || !done) return;
  event.preventDefault(); // which would close the sheet as well
  done.click();
});
list.addEventListener("htmx:afterSwap", ({ detail: { requestConfig } }) => {
  countChosen();
  const next = { "side-choose": "[data-choose-all]", "choose-done": "#side-choose" }[requestConfig.elt.id];
  if (next) find(HTMLElement, next, list)?.focus();
  const menu = need(HTMLElement, "#organise");
  const done = !find(HTMLElement, "#choose-form") && find(HTMLElement, "[name=do]", menu); // with those that were chosen
  if (done && menu.matches(":popover-open")) menu.hidePopover();
});

function closeMenus() {
  for (const menu of all(HTMLElement, MENUS)) if (menu.matches(":popover-open")) menu.hidePopover();
}

document.body.addEventListener("markchange", closeMenus);
document.body.addEventListener("sidechange", ({ detail }) => {
  if (!detail?.conversation) return; // it was not changed here
  closeMenus();
  if (location.pathname === `/c/${detail.conversation}/`) announce("titlechange", detail);
});
onNews("conversations", refresh);
onNews("tasks", refresh); // a run may wait for its person by now
onNews("invitations", () => announce("invitationschange"));
onNews("shared", () => announce("sharedchange"));
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
  const rows = all(HTMLElement, "li > a[id^=c-]", list).map((row) => ({ id: row.id, at: topOf(row) }));
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

toast.addEventListener("htmx:afterSwap", () => {
  const { activeElement: at } = document;
  showToast();
  const undo = find(HTMLElement, "button", toast);
  if (undo && at?.matches(":focus-visible"))
    undo.focus(); // it is far from where the row was
  else if (!undo && at === document.body) find(HTMLElement, "a[id^=c-]", list)?.focus(); // it was on Undo, which is gone
});
showToast();

// --- the palette: one field for conversations, messages, files, projects, personas and commands ---

const ASK_AFTER = 100; // milliseconds without a key before the server is asked
const palette = need(HTMLDialogElement, "#palette");
const sought = need(HTMLInputElement, "input", palette);
const results = need(HTMLElement, "#palette-results", palette);
const counted = need(HTMLElement, "[data-palette-said]", palette);
const address = need(HTMLElement, "[data-palette]").dataset.palette ?? "";
let asking = 0;
let askedFor = 0;
let shownFor = ""; // the query that the results are of

function openPalette() {
  if (!palette.open) palette.showModal();
  sought.select();
  askPalette();
}

async function askPalette() {
  const query = sought.value.trim();
  const number = ++askedFor;
  const response = await fetch(`${address}?${new URLSearchParams({ q: query })}`, {
    headers: { "HX-Request": "true" },
  }).catch(() => null);
  if (number !== askedFor) return; // something else has been typed since
  if (!response?.ok) return tellPalette(results.dataset.unfound ?? "");
  results.replaceChildren(...parse(await response.text()).body.children);
  shownFor = query;
  results.scrollTop = 0;
  choose(options()[0]);
  counted.textContent = options()
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
  counted.textContent = text;
  sought.removeAttribute("aria-activedescendant");
}

function options() {
  return all(HTMLAnchorElement, "[role=option]", results);
}

/** @param {HTMLElement | undefined} option */
function choose(option) {
  for (const each of options()) each.ariaSelected = String(each === option);
  if (!option) return;
  sought.setAttribute("aria-activedescendant", option.id);
  option.scrollIntoView({ block: "nearest" });
}

/** @param {number} step */
function moveChoice(step) {
  const there = options();
  const at = there.findIndex((each) => each.ariaSelected === "true");
  choose(there[(at + step + there.length) % there.length]);
}

sought.addEventListener("input", () => {
  clearTimeout(asking);
  asking = window.setTimeout(askPalette, ASK_AFTER);
});

sought.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "ArrowDown") moveChoice(1);
  else if (event.key === "ArrowUp") moveChoice(-1);
  else if (event.key === "Enter") {
    // What was typed since is no question to these results: then the form opens the page of the search.
    const option = find(HTMLAnchorElement, '[aria-selected="true"]', results);
    if (!option || shownFor !== sought.value.trim()) return;
    option.click();
  } else return;
  event.preventDefault();
});

results.addEventListener("click", (event) => {
  const option = around(HTMLAnchorElement, "[role=option]", event.target);
  if (!option || opensElsewhere(event)) return;
  palette.close();
  const { does } = option.dataset;
  if (!does) return;
  event.preventDefault();
  announce("command", { does });
});

palette.addEventListener("click", ({ target }) => {
  if (target === palette || around(Element, "[data-close-palette]", target)) palette.close(); // its backdrop is it, too
});

// --- the keys that hold on every page, and what they do ---

const side = need(HTMLElement, "#side");
const railSwitch = need(HTMLButtonElement, "[data-rail-switch]", side);
railSwitch.hidden = false;
railSwitch.addEventListener("click", switchRail);

/** Kept in a cookie, so that the server writes the next page as it is. */
function switchRail() {
  const narrow = side.toggleAttribute("data-rail");
  // biome-ignore lint/suspicious/noDocumentCookie: the Cookie Store exists on secure origins only
  document.cookie = `side=${narrow ? "rail" : ""};path=/;max-age=31536000;samesite=lax`;
}

/** In the list, which may be narrow or out of sight. */
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
  if (!around(HTMLElement, "[data-palette]", event.target) || opensElsewhere(event)) return;
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
  const on = await switchNotifications();
  const line = document.createElement("p");
  line.textContent = (on ? results.dataset.notified : results.dataset.unnotified) ?? "";
  toast.replaceChildren(line, document.createElement("form")); // what it holds is what it shows
  showToast();
}

function toField() {
  const field = find(HTMLTextAreaElement, "#text");
  if (field) field.focus();
  else openPalette();
}

/** From one message to the next or, with -1, the one before. @param {number} step */
function toMessage(step) {
  const there = all(HTMLElement, "#messages article");
  const here = around(HTMLElement, "article", document.activeElement);
  const to = there[here ? there.indexOf(here) + step : step > 0 ? 0 : there.length - 1];
  if (!to) return;
  to.tabIndex = -1;
  to.focus();
}

/** By the key, with Ctrl or the command key. @type {Record<string, () => void>} */
const WITH_CONTROL = {
  k: openPalette,
  b: switchRail,
  ".": () => (find(HTMLElement, "#panel:not([hidden]) [data-close-panel]") ?? find(HTMLElement, ".plan-line"))?.click(),
};
/** @type {Record<string, () => void>} */
const WITH_CONTROL_AND_SHIFT = {
  o: () => need(HTMLAnchorElement, ".new-conversation").click(),
  c: () => all(HTMLElement, "[data-copy-answer]").at(-1)?.click(),
};
/** Where nobody writes. @type {Record<string, () => void>} */
const ALONE = {
  "/": toField,
  "?": showShortcuts,
  j: () => toMessage(1),
  k: () => toMessage(-1),
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
  const keys = control ? (event.shiftKey ? WITH_CONTROL_AND_SHIFT : WITH_CONTROL) : ALONE;
  const key = event.key.toLowerCase();
  if (!Object.hasOwn(keys, key)) return;
  event.preventDefault();
  keys[key]();
});

// A conversation opened at one of its messages, by an address without a place in it, or at a place further up than
// the page reaches.
const at = new URLSearchParams(location.search).get("at");
if (at && !location.hash) location.replace(`#m-${at}`);

function goFurtherUp() {
  const message = /^#m-([0-9a-f-]{36})$/.exec(location.hash)?.[1];
  if (message && message !== at && find(HTMLElement, "#messages") && !document.getElementById(`m-${message}`))
    location.replace(`?at=${message}#m-${message}`);
}

addEventListener("hashchange", goFurtherUp);
goFurtherUp();

// --- runs: fragments that htmx keeps as they are on the server ---

let mark = ""; // known once a run was on the page

/** Whatever else changes the title, the mark stands before it as long as a run on this page waits. */
function markTitle() {
  const runs = all(HTMLElement, "[data-run]");
  mark = runs[0]?.dataset.mark ?? mark;
  if (!mark) return;
  const bare = document.title.replaceAll(mark, "").trim();
  const wanted = runs.some((run) => run.dataset.run === "waiting") ? `${mark} ${bare}` : bare;
  if (document.title === wanted) return;
  if (wanted !== bare && !document.title.includes(mark)) notify(bare, mark);
  document.title = wanted;
}

new MutationObserver(markTitle).observe(need(HTMLTitleElement, "title"), { childList: true });
document.body.addEventListener("htmx:afterSettle", markTitle);
// On the pages of tasks the list comes first: a run can have gone with its task.
if (find(HTMLElement, "[data-run]") && !find(HTMLElement, "#tasks")) onNews("tasks", () => announce("nextchange"));
if (find(HTMLElement, "#reading")) onNews("readings", () => announce("readingschange"));
