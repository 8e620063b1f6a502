/**
 * How what comes from the server gets onto a page that somebody is working on.
 *
 * The page hears over its one socket that there is something new, and asks for what it shows. An element that asks by itself
 * has `data-live` and hears the event `update`. Three rules keep what a person has begun:
 *
 * - While a pointer is pressed nothing on the page is swapped, until the click or the drop has been dealt with.
 * - A live element neither asks nor is heard while something of its region has been asked for by the person; what comes
 *   then may be older than what they did. It asks again afterwards, so no page is out of date for good.
 * - What is swapped is morphed (`hx-swap="innerMorph"` or `"outerMorph"`): what is in both the old HTML and the new stays
 *   the element it is, with its focus, its selection and what is unfolded. Three things stay as the person has them: a field
 *   in which something is written that is not sent; what has `data-editing`, which was opened to be worked in, although the
 *   new HTML does not have it; and what has `data-apart`, which refreshes itself.
 *
 * @typedef {{type: string, id?: number, turn?: string, seq?: number, [field: string]: any}} WireEvent
 * @typedef {{seq: number, receive: (event: WireEvent) => void}} Follower
 * @typedef {{resolve: () => void, reject: (error: Error) => void, timer: number}} Asked
 */
import { isWritten, refuse, settle, writtenForms } from "./drafts.js";
import { all } from "./page.js";

const EVERY = 1_000; // ms
const TAP_TAKES = 300; // ms from when a finger lifts until its click

// --- the page's one WebSocket: acknowledged frames, back-off, and every turn resumed from the last event seen ---

const FIRST_WAIT = 500; // ms
const LONGEST_WAIT = 15_000;
const PING_EVERY = 25_000;
const ACK_WITHIN = 10_000;
const SILENCE = 5_000; // ms without a word while an answer is written, after which the server is asked for one
const HINTS = new Set([
  "STATE",
  "TURN",
  "TITLE",
  "NEXT",
  "MARKS",
  "CONVERSATIONS",
  "TASKS",
  "INVITATIONS",
  "READINGS",
  "SHARED",
]);
const NOT_SIGNED_IN = 4401;
const LEAVING_TAKES = 10_000; // ms
const FOR_GOOD = new Set([4400, 4403, 4413]); // trying again would end the same way

/** A frame that was refused, or not acknowledged; `code` says why. */
export class Refused extends Error {
  /** @param {WireEvent} event */
  constructor({ code, detail }) {
    super(detail ?? code);
    /** @type {string} */
    this.code = code;
  }
}

/**
 * Events: `open` whenever there is a connection, `again` when it is not the first, `lost`, `ended` for good, `signedout`
 * once the session has ended, and the hints of the server by their types in small letters.
 */
class Socket extends EventTarget {
  /** @type {WebSocket | null} */ #socket = null;
  /** @type {Map<string, Follower>} */ #followers = new Map();
  /** @type {Map<number, Asked>} */ #asked = new Map();
  /** @type {string | null} */ #watched = null;
  #wait = FIRST_WAIT;
  #begun = Infinity; // when the connection that there is was made
  #heard = 0; // when the last frame came
  #id = 0;
  #opened = false; // ever
  #leaving = -Infinity; // when the page last began to go to another
  /** @type {number | undefined} */ #retry;

  /** @param {string} since when the server began to write this page: it tells at once what has changed in between */
  constructor(since) {
    super();
    this.url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/`;
    this.since = since;
    addEventListener("online", () => this.#soon(0));
    addEventListener("beforeunload", () => (this.#leaving = performance.now()));
    addEventListener("pagehide", () => this.#socket?.close());
    addEventListener("pageshow", (event) => event.persisted && this.#soon(0));
    setInterval(() => this.#ping(), PING_EVERY);
    setInterval(() => {
      if (this.#followers.size && performance.now() - this.#heard >= SILENCE) this.#ping();
    }, SILENCE);
    this.connect();
  }

  get open() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  connect() {
    if (this.#socket && this.#socket.readyState <= WebSocket.OPEN) return;
    const socket = new WebSocket(this.#opened ? this.url : `${this.url}?since=${this.since}`);
    this.#socket = socket;
    socket.onopen = () => this.#begin();
    socket.onmessage = (message) => this.#received(JSON.parse(message.data));
    socket.onclose = (event) => socket === this.#socket && this.#closed(event.code);
  }

  /** Tells of a conversation, as `state`, `turn`, `title`, `next` and `marks` events: what changed, not how. @param {string} conversation */
  watch(conversation) {
    this.#watched = conversation;
    if (this.open) this.#tell({ type: "watch", conversation });
  }

  /** @param {string} turn @param {Follower} follower its `seq` is where to go on from */
  follow(turn, follower) {
    this.#followers.set(turn, follower);
    if (this.open) this.#subscribe(turn, follower);
  }

  /** @param {string} turn */
  unfollow(turn) {
    this.#followers.delete(turn);
  }

  /** Resolves when the server has acknowledged the frame; rejected with `Refused`. @param {object} frame @returns {Promise<void>} */
  ask(frame) {
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN) return Promise.reject(new Refused({ type: "ERROR", code: "closed" }));
    const id = ++this.#id;
    return new Promise((resolve, reject) => {
      const timer = window.setTimeout(() => this.#settle({ type: "ERROR", id, code: "timeout" }), ACK_WITHIN);
      this.#asked.set(id, { resolve, reject, timer });
      socket.send(JSON.stringify({ ...frame, id }));
    });
  }

  /** A connection over which nothing comes any more is given up, so that another is tried. */
  #ping() {
    if (this.open) this.ask({ type: "ping" }).catch(() => this.#socket?.close());
  }

  /** @param {object} frame */
  #tell(frame) {
    this.ask(frame).catch(() => {}); // a lost connection asks again when it is back
  }

  /** @param {string} turn @param {Follower} follower */
  #subscribe(turn, follower) {
    this.#tell({ type: "subscribe", turn, after_seq: follower.seq });
  }

  #begin() {
    this.#begun = performance.now();
    this.dispatchEvent(new Event("open"));
    if (this.#opened) this.dispatchEvent(new Event("again"));
    this.#opened = true;
    if (this.#watched) this.watch(this.#watched);
    for (const [turn, follower] of this.#followers) this.#subscribe(turn, follower);
  }

  /** @param {WireEvent} event */
  #received(event) {
    this.#heard = performance.now();
    if (event.type === "ACK" || event.type === "ERROR") this.#settle(event);
    else if (HINTS.has(event.type)) this.dispatchEvent(new CustomEvent(event.type.toLowerCase(), { detail: event }));
    else if (event.turn) this.#followers.get(event.turn)?.receive(event);
  }

  /** @param {WireEvent} event */
  #settle(event) {
    const asked = this.#asked.get(event.id ?? 0);
    if (!event.id || !asked) return;
    this.#asked.delete(event.id);
    clearTimeout(asked.timer);
    if (event.type === "ACK") asked.resolve();
    else asked.reject(new Refused(event));
  }

  /** @param {number} code */
  #closed(code) {
    this.#socket = null;
    for (const id of [...this.#asked.keys()]) this.#settle({ type: "ERROR", id, code: "closed" });
    if (code === NOT_SIGNED_IN) return this.#signIn();
    if (FOR_GOOD.has(code)) return void this.dispatchEvent(new Event("ended"));
    this.dispatchEvent(new Event("lost"));
    // One that is closed as soon as it is there would otherwise be opened twice a second for ever.
    if (performance.now() - this.#begun > LONGEST_WAIT) this.#wait = FIRST_WAIT;
    this.#begun = Infinity;
    this.#soon(this.#wait * (0.75 + Math.random() / 2)); // many pages must not come back at the same moment
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
  }

  /** A form that ends the session, as one for a new password does, is on its way to a page that begins another. */
  #signIn() {
    const leaving = performance.now() - this.#leaving < LEAVING_TAKES;
    setTimeout(() => this.dispatchEvent(new Event("signedout")), leaving ? LEAVING_TAKES : 0);
  }

  /** @param {number} wait in milliseconds */
  #soon(wait) {
    clearTimeout(this.#retry);
    this.#retry = window.setTimeout(() => this.connect(), wait);
  }
}

// --- news ---

export const socket = new Socket(document.body.dataset.since ?? "");

/**
 * Has the page look again: at news of this kind, and when the socket is there again, since some may have been missed.
 * However much comes, it looks once a second, and once after the last of it.
 *
 * @param {"conversations" | "tasks" | "invitations" | "readings" | "shared"} kind
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

socket.addEventListener("signedout", async () => {
  const forms = writtenForms();
  if (!forms.length) return location.reload(); // the draft of a message is kept in this browser
  const headers = { "HX-Request": "true", "HX-Current-URL": location.href };
  const response = await fetch(location.href, { headers }).catch(() => null);
  const sentence = response?.status === 401 ? await response.text() : null;
  if (sentence) for (const form of forms) refuse(form, sentence);
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

// A request that is given up, because its page is left or another takes its place, is no error; htmx would write it to the
// console as two. What is wrong with one that fails is said by the event after `htmx:afterRequest`.
const NO_ERRORS = new Set(["htmx:sendAbort", "htmx:afterRequest"]);
htmx.logger = (_element, name, detail) => {
  if (NO_ERRORS.has(name)) delete detail.error;
};

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

// --- updates: new HTML in the place of old, by idiomorph, which changes only what differs ---

/**
 * @param {Element} target
 * @param {Element | DocumentFragment} content what `target` becomes or, as a fragment, what is to be in it; it is used up
 * @param {Element | null} [sender] what asked for it: where it was, nothing stays that is not in the content any more
 * @param {Element[]} [waiting] what has asked for something else, and stays until it has it
 * @returns {Node[]} the outermost nodes that are new on the page
 */
export function morph(target, content, sender = null, waiting = []) {
  const focused = /** @type {HTMLInputElement} */ (document.activeElement);
  const { selectionStart, selectionEnd } = focused;
  const around = surroundings(focused, target);
  const opensAnother = content.querySelector("[data-editing]") !== null;
  /** @type {Set<Node>} */
  const added = new Set();
  if (content instanceof Element) target.id = content.id; // else idiomorph would put a new element in its place
  const marked = markUnmatched(target, content);
  Idiomorph.morph(target, content, {
    morphStyle: content instanceof Element ? "outerHTML" : "innerHTML",
    restoreFocus: false, // it knows fields with an id only
    callbacks: {
      beforeNodeMorphed: prepare,
      afterNodeMorphed: finishSelect,
      afterNodeAdded: (node) => added.add(node),
      beforeNodeRemoved: (node) => !stays(node, { opensAnother, sender, waiting }),
      beforeAttributeUpdated: takesAttribute,
    },
  });
  for (const each of marked) each.removeAttribute("id");
  if (document.activeElement !== focused && focused.isConnected) {
    focused.focus({ preventScroll: true }); // it was moved
    if (selectionStart !== null) focused.setSelectionRange?.(selectionStart, selectionEnd);
  } else if (!focused.isConnected && !target.closest(KEEPS_FOCUS)) {
    focusNear(around);
  }
  return [...added].filter((node) => !isInside(node, added));
}

/**
 * Gives an id for the time of the update to each element that has none and holds only ids that the new HTML does not have.
 * Idiomorph takes an element without an id for another of its kind; with one it is removed, or left where it is.
 *
 * @param {Element} target
 * @param {Element | DocumentFragment} content
 * @returns {Element[]} the elements, whose ids the caller removes
 */
function markUnmatched(target, content) {
  const wanted = new Set(Array.from(content.querySelectorAll("[id]"), (each) => each.id));
  const present = [...target.querySelectorAll("[id]")];
  /** @type {Set<Element>} */
  const matched = new Set([target]);
  for (const { id, parentElement } of present)
    for (let each = parentElement; wanted.has(id) && each && !matched.has(each); each = each.parentElement)
      matched.add(each);
  const marked = [];
  for (const { id, parentElement } of present)
    for (
      let each = parentElement;
      !wanted.has(id) && each && !each.id && !matched.has(each);
      each = each.parentElement
    ) {
      each.id = `unmatched-${marked.length}`;
      marked.push(each);
    }
  return marked;
}

/**
 * Whether an element that the new HTML does not have is left on the page.
 *
 * @param {Node} node
 * @param {{opensAnother: boolean, sender: Element | null, waiting: Element[]}} update
 */
function stays(node, { opensAnother, sender, waiting }) {
  if (!(node instanceof Element)) return false;
  if (waiting.some((each) => node.contains(each))) return true;
  if (node.contains(sender)) return false;
  const inside = [node, ...node.querySelectorAll("[data-editing], input, select, textarea")];
  return inside.some((each) => (each.matches("[data-editing]") ? !opensAnother : isWritten(each)));
}

/** What was written in a select before its options change. @type {WeakMap<Element, string>} */
const chosen = new WeakMap();

/**
 * Puts into the new HTML what the page knows and the server does not. Idiomorph then finds no difference, so that a field
 * keeps its selection and what can be undone.
 *
 * @param {Node} here
 * @param {Node} node what it becomes
 * @returns {boolean} whether it is to be changed at all
 */
function prepare(here, node) {
  if (!(here instanceof Element && node instanceof Element)) return true;
  if (here.hasAttribute("data-apart")) return false;
  if (here.classList.contains("lit")) node.classList.add("lit"); // by what is pointed at
  if (!isWritten(here)) return true;
  if (here instanceof HTMLSelectElement) {
    chosen.set(here, here.value);
  } else if (here instanceof HTMLInputElement && node instanceof HTMLInputElement) {
    if (here.type === "checkbox" || here.type === "radio") {
      node.checked = here.checked;
    } else if (here.type !== "file") {
      node.setAttribute("value", node.defaultValue); // without the attribute idiomorph empties the field
      node.value = here.value;
    }
  }
  return true;
}

/** @param {string} name @param {Element} here @returns {boolean} whether it is changed as in the new HTML */
function takesAttribute(name, here) {
  if (name === "open") return false;
  if (name === "selected") return false; // see finishSelect
  if (name === "value" && here instanceof HTMLTextAreaElement) return !isWritten(here); // it has no such attribute
  return !(name.includes("disabled") && here.hasAttribute("data-disabled-by-htmx")); // until what it sent is answered
}

/** Options are chosen once all of them are there. @param {Node} here @param {Node} node */
function finishSelect(here, node) {
  if (!(here instanceof HTMLSelectElement && node instanceof HTMLSelectElement)) return;
  const value = chosen.get(here) ?? node.value;
  chosen.delete(here);
  for (const [index, { defaultSelected }] of [...node.options].entries()) {
    const option = here.options[index];
    if (option && option.defaultSelected !== defaultSelected) option.defaultSelected = defaultSelected;
  }
  if (here.value !== value) here.value = value;
}

/** @param {Node} node @param {Set<Node>} others */
function isInside(node, others) {
  for (let each = node.parentNode; each; each = each.parentNode) if (others.has(each)) return true;
  return false;
}

const KEEPS_FOCUS = "[data-keeps-focus]"; // a part of a page that sees to its focus itself
const MOST_CONTROLS = 500; // of which it is looked whether they are visible; beyond that nothing is near

/** What keys reach. @param {Element} place */
function controls(place) {
  const found = place.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary");
  if (found.length > MOST_CONTROLS) return [];
  return [...found].filter((each) => each.checkVisibility({ visibilityProperty: true }));
}

/**
 * The elements that hold the focused one, from the inside out, each with its place among what keys reach there.
 *
 * @typedef {{place: Element, index: number}[]} Around
 * @param {Element} focused
 * @param {Element} end the outermost
 */
function surroundings(focused, end) {
  /** @type {Around} */
  const found = [];
  for (let place = focused.parentElement; place && end.contains(place); place = place.parentElement)
    found.push({ place, index: controls(place).indexOf(focused) });
  return found;
}

/**
 * What had the focus is gone: it goes to what stands there now, else to its nearest neighbour. Without this it would be
 * back at the top of the page.
 *
 * @param {Around} around
 */
function focusNear(around) {
  for (const { place, index } of around) {
    const there = place.isConnected ? controls(place) : [];
    const next = there[Math.min(index, there.length - 1)];
    if (next instanceof HTMLElement) return next.focus({ preventScroll: true });
  }
}

// --- the focus: what somebody pressed may be gone, or shut, once there is an answer to it ---

/** @type {{pressed: HTMLElement, around: Around} | null} */
let left = null;

document.body.addEventListener("htmx:beforeRequest", ({ detail: { elt } }) => {
  const { activeElement: pressed } = document;
  if (pressed === document.body) return; // what was pressed before may be shut until its answer is there
  if (pressed instanceof HTMLElement && elt.contains(pressed))
    left = pressed.closest(KEEPS_FOCUS) ? null : { pressed, around: surroundings(pressed, document.body) };
});
for (const type of /** @type {const} */ (["htmx:afterRequest", "htmx:afterSettle"]))
  document.body.addEventListener(type, () => {
    if (!left || document.activeElement !== document.body) return;
    if (left.pressed.isConnected) left.pressed.focus({ preventScroll: true });
    if (document.activeElement === document.body && type === "htmx:afterSettle") focusNear(left.around);
  });
document.addEventListener("pointerdown", () => (left = null));
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape") left = null; // whoever leaves a field, before the answer is there, does not want it back
});
document.addEventListener("focusin", ({ target }) => {
  if (target !== left?.pressed) left = null;
});
