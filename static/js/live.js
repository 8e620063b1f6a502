/**
 * How what comes from the server gets onto a page that somebody is working on.
 *
 * The page hears over its one socket that there is something new, and asks for what it shows. An element that asks by itself
 * has `data-live` and hears the event `update`. Three rules keep what a person has begun:
 *
 * - While a pointer is pressed nothing on the page is swapped, until the click or the drop has been dealt with.
 * - A live element neither asks nor is heard while something of its region has been asked for by the person; what comes
 *   then may be older than what they did. It asks again afterwards, so no page is out of date for good.
 * - What is swapped is morphed (`hx-swap="innerMorph"` or `"outerMorph"`), so that what is the same stays.
 */
import { isWritten, morph, settle } from "./morph.js";
import { all, find } from "./page.js";
import { Socket } from "./socket.js";

const EVERY = 1_000; // ms
const TAP_TAKES = 300; // ms from when a finger lifts until its click

// --- news ---

export const socket = new Socket(document.body.dataset.since ?? "");

/**
 * Has the page look again: at news of this kind, and when the socket is there again, since some may have been missed.
 * However much comes, it looks once a second, and once after the last of it.
 *
 * @param {"conversations" | "tasks" | "invitations"} kind
 * @param {() => void} look
 */
export function onNews(kind, look) {
  let last = performance.now(); // the page as it came
  let timer = 0;
  const soon = () => {
    if (timer) return;
    timer = window.setTimeout(
      () => {
        timer = 0;
        last = performance.now();
        look();
      },
      Math.max(0, last + EVERY - performance.now()),
    );
  };
  socket.addEventListener(kind, soon);
  socket.addEventListener("again", soon);
}

// --- the end of the session: the page is not for whoever comes next, but nothing that was begun on it goes ---

const BEGUN = "textarea:not(#text), input:not([type=checkbox], [type=radio], [type=search], [type=hidden])";

socket.addEventListener("signedout", async () => {
  const place = find(HTMLElement, "#problem");
  // The draft of a message is kept in this browser; of other forms nothing is.
  if (!place || !all(Element, BEGUN).some(isWritten)) return location.reload();
  const response = await fetch(location.href, { headers: { "HX-Request": "true" } }).catch(() => null);
  if (response?.status === 401) place.innerHTML = await response.text(); // a sentence, rendered by the server
});

// --- the pointer ---

let pressed = false;
let release = 0;
/** @type {(() => void)[]} */
const held = [];

/** Does it now, or when the pointer is no longer pressed; in the order in which it came. @param {() => void} work */
export function whenReleased(work) {
  if (pressed) held.push(work);
  else work();
}

/** @param {number} wait in milliseconds */
function releaseIn(wait) {
  if (!pressed) return;
  clearTimeout(release);
  release = window.setTimeout(() => {
    pressed = false;
    for (const work of held.splice(0)) {
      try {
        work();
      } catch (error) {
        reportError(error);
      }
    }
    askAgain();
  }, wait);
}

addEventListener(
  "pointerdown",
  (event) => {
    if (!event.isPrimary || event.button !== 0) return;
    clearTimeout(release);
    pressed = true;
  },
  true,
);
// With a mouse the click comes with the lifting of the button, before any timer; with a finger it comes by itself.
addEventListener(
  "pointerup",
  (event) => event.isPrimary && releaseIn(event.pointerType === "mouse" ? 0 : TAP_TAKES),
  true,
);
addEventListener("click", () => releaseIn(0), true);
addEventListener("pointercancel", (event) => event.isPrimary && releaseIn(0), true);
// The list of a select, or another window, can take the end of it.
addEventListener("pointermove", (event) => event.isPrimary && !(event.buttons & 1) && releaseIn(0), true);
addEventListener("blur", () => releaseIn(0));

// --- requests ---

const LIVE = "[data-live]";
/** @typedef {{elt: Element, target: Element, live: boolean, outdated: boolean, crossed: boolean}} Request */
/** @type {Map<XMLHttpRequest, Request>} */
const underWay = new Map();
/** @type {Set<Element>} live elements that are to ask again */
const due = new Set();
/** @type {Element | null} */
let sender = null; // of what is being swapped, if it is a person's

/** What a live element fills: as htmx finds it. @param {Element} elt @returns {Element} */
function regionOf(elt) {
  const named = elt.closest("[hx-target]");
  const target = named?.getAttribute("hx-target");
  if (!named || !target) return elt;
  return (target === "this" ? named : document.querySelector(target)) ?? elt;
}

/** @param {Request} request @param {Element} region */
function touches({ elt, target }, region) {
  return region.contains(elt) || region.contains(target) || target.contains(region);
}

/** @param {Element} region @param {boolean} live */
function requestsOf(region, live) {
  return [...underWay.values()].filter((each) => each.live === live && touches(each, region));
}

/** @type {(() => void)[]} */
const resting = [];

/** Resolves once nothing that a person has asked for is on its way to the region. @param {Element} region */
export async function atRest(region) {
  while (requestsOf(region, false).length) await new Promise((resolve) => resting.push(() => resolve(null)));
}

/** @param {Element} elt a live one */
function mayAsk(elt) {
  if (pressed || requestsOf(regionOf(elt), false).length) return false;
  return [...underWay.values()].every((each) => each.elt !== elt);
}

function askAgain() {
  for (const elt of [...due]) {
    if (elt.isConnected && !mayAsk(elt)) continue;
    due.delete(elt);
    if (elt.isConnected) elt.dispatchEvent(new Event("update"));
  }
}

/** @param {Element} region @returns {boolean} whether anything looks after it */
function lookAgain(region) {
  const live = all(Element, LIVE).filter((each) => regionOf(each).contains(region));
  for (const each of live) due.add(each);
  return live.length > 0;
}

/** @param {XMLHttpRequest} xhr */
function ended(xhr) {
  const request = underWay.get(xhr);
  if (!request) return;
  underWay.delete(xhr);
  if (!request.live) {
    for (const each of requestsOf(request.target, true)) each.outdated = true;
    if (request.crossed) lookAgain(request.target);
  }
  askAgain();
  for (const goOn of resting.splice(0)) goOn();
}

document.body.addEventListener("htmx:confirm", (event) => {
  const { elt } = event.detail;
  if (!elt.matches(LIVE) || mayAsk(elt)) return;
  event.preventDefault();
  due.add(elt);
});

document.body.addEventListener("htmx:beforeSend", ({ detail: { elt, target, xhr } }) => {
  const request = { elt, target, live: elt.matches(LIVE), outdated: false, crossed: false };
  if (!request.live) {
    for (const other of requestsOf(target, false)) {
      other.crossed = true;
      request.crossed = true;
    }
  }
  underWay.set(xhr, request);
  const { onload } = xhr;
  xhr.onload = (event) =>
    whenReleased(() => {
      try {
        onload?.call(xhr, event);
      } finally {
        ended(xhr);
      }
    });
  for (const way of ["error", "abort", "timeout"]) xhr.addEventListener(way, () => ended(xhr));
});

document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const request = underWay.get(detail.xhr);
  if (!request || !detail.shouldSwap) return;
  request.target = detail.target; // the answer may have named another
  sender = request.live ? null : request.elt;
  if (request.live && detail.xhr.status >= 400) {
    detail.shouldSwap = false; // nobody has asked for it
  } else if (request.live && (request.outdated || requestsOf(request.target, false).length)) {
    detail.shouldSwap = false;
    due.add(request.elt);
  } else if (!request.elt.isConnected && lookAgain(request.target)) {
    detail.shouldSwap = false; // htmx finds out only now how to swap, and there is nothing left to tell
  } else if (sender instanceof HTMLFormElement && detail.xhr.status < 400) {
    settle(sender, detail.requestConfig.unfilteredFormData);
  }
});

htmx.defineExtension("morph", {
  isInlineSwap: (style) => style === "outerMorph",
  handleSwap(style, target, fragment, settleInfo) {
    if (style !== "innerMorph" && style !== "outerMorph") return false;
    const waiting = [...underWay.values()].filter((each) => !each.live && each.elt !== sender).map((each) => each.elt);
    const content = style === "outerMorph" ? fragment.firstElementChild : fragment;
    const made = content ? morph(target, content, sender, waiting) : [];
    settleInfo.tasks.push(() => htmx.process(target)); // the attributes that htmx reads may have changed
    return made;
  },
});
