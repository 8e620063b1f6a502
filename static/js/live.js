/**
 * Updates a page from the server while somebody works on it.
 *
 * The server announces news over the page's one socket. Elements that show them request their HTML again: they have
 * `data-live` and listen for the event `update`. Three rules protect the work of the user:
 *
 * - While a pointer is pressed, nothing on the page is swapped, until the click or the drop has been handled.
 * - While a request of the user for a region is under way, live elements of the region send no request, and their
 *   responses are dropped, since they may be older than the user's change. They send a request afterwards, so the page
 *   does not stay out of date.
 * - A swap is a morph (`hx-swap="innerMorph"` or `"outerMorph"`): elements in both the old and the new HTML stay the same
 *   elements, with focus, selection and open details. Three kinds of elements stay unchanged: fields with text that was
 *   not sent; elements with `data-editing`, which the user opened, even if the new HTML lacks them; and elements with
 *   `data-apart`, which refresh themselves.
 *
 * @typedef {{type: string, id?: number, turn?: string, seq?: number, [field: string]: any}} WireEvent
 * @typedef {{seq: number, receive: (event: WireEvent) => void}} Follower
 * @typedef {{resolve: () => void, reject: (error: Error) => void, timer: number}} Asked
 */
import { changedForms, isChanged, markAsStored, showRefusal } from "./drafts.js";
import { all } from "./page.js";

const NEWS_INTERVAL = 1_000; // ms
const TAP_DELAY = 300; // ms between the lifting of a finger and its click

// --- the page's one WebSocket: acknowledged frames, back-off, and every turn resumed from the last event seen ---

const MIN_RETRY_DELAY = 500; // ms
const MAX_RETRY_DELAY = 15_000;
const PING_INTERVAL = 25_000;
const ACK_TIMEOUT = 10_000;
const SILENCE_LIMIT = 5_000; // ms without a frame while an answer is written; then a ping is sent
const HINT_TYPES = new Set([
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
const SIGNED_OUT_CODE = 4401;
const LEAVING_TIME = 10_000; // ms
const FINAL_CODES = new Set([4400, 4403, 4413]); // trying again would end the same way

/** Error for a frame that was refused or not acknowledged. `code` says why. */
export class FrameRefused extends Error {
  /** @param {WireEvent} event */
  constructor({ code, detail }) {
    super(detail ?? code);
    /** @type {string} */
    this.code = code;
  }
}

/**
 * The page's WebSocket. Events: `open` for each connection, `again` when it is not the first, `lost`, `ended` for good, `signedout`
 * once the session has ended, and the hints of the server by their types in small letters.
 */
class Socket extends EventTarget {
  /** @type {WebSocket | null} */ #socket = null;
  /** @type {Map<string, Follower>} */ #followers = new Map();
  /** @type {Map<number, Asked>} */ #asked = new Map();
  /** @type {string | null} */ #watched = null;
  #wait = MIN_RETRY_DELAY;
  #begun = Infinity; // when the present connection was made
  #heard = 0; // when the last frame came
  #id = 0;
  #opened = false; // ever
  #leaving = -Infinity; // when the page last began to unload
  /** @type {number | undefined} */ #retry;

  /** @param {string} since when the server rendered this page; the server sends the changes since then at once */
  constructor(since) {
    super();
    this.url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/`;
    this.since = since;
    addEventListener("online", () => this.#soon(0));
    addEventListener("beforeunload", () => (this.#leaving = performance.now()));
    addEventListener("pagehide", () => this.#socket?.close());
    addEventListener("pageshow", (event) => event.persisted && this.#soon(0));
    setInterval(() => this.#ping(), PING_INTERVAL);
    setInterval(() => {
      if (this.#followers.size && performance.now() - this.#heard >= SILENCE_LIMIT) this.#ping();
    }, SILENCE_LIMIT);
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

  /** Subscribes to the hints of a conversation: `state`, `turn`, `title`, `next` and `marks` events. They say what changed, not how. @param {string} conversation */
  watch(conversation) {
    this.#watched = conversation;
    if (this.open) this.#tell({ type: "watch", conversation });
  }

  /** @param {string} turn @param {Follower} follower its `seq` is the last event that it has */
  follow(turn, follower) {
    this.#followers.set(turn, follower);
    if (this.open) this.#subscribe(turn, follower);
  }

  /** @param {string} turn */
  unfollow(turn) {
    this.#followers.delete(turn);
  }

  /** Resolves when the server has acknowledged the frame; rejected with `FrameRefused`. @param {object} frame @returns {Promise<void>} */
  ask(frame) {
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN)
      return Promise.reject(new FrameRefused({ type: "ERROR", code: "closed" }));
    const id = ++this.#id;
    return new Promise((resolve, reject) => {
      const timer = window.setTimeout(() => this.#settle({ type: "ERROR", id, code: "timeout" }), ACK_TIMEOUT);
      this.#asked.set(id, { resolve, reject, timer });
      socket.send(JSON.stringify({ ...frame, id }));
    });
  }

  /** Closes a connection that no longer answers, so that a new one is opened. */
  #ping() {
    if (this.open) this.ask({ type: "ping" }).catch(() => this.#socket?.close());
  }

  /** @param {object} frame */
  #tell(frame) {
    this.ask(frame).catch(() => {}); // sent again with the next connection
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
    else if (HINT_TYPES.has(event.type))
      this.dispatchEvent(new CustomEvent(event.type.toLowerCase(), { detail: event }));
    else if (event.turn) this.#followers.get(event.turn)?.receive(event);
  }

  /** @param {WireEvent} event */
  #settle(event) {
    const asked = this.#asked.get(event.id ?? 0);
    if (!event.id || !asked) return;
    this.#asked.delete(event.id);
    clearTimeout(asked.timer);
    if (event.type === "ACK") asked.resolve();
    else asked.reject(new FrameRefused(event));
  }

  /** @param {number} code */
  #closed(code) {
    this.#socket = null;
    for (const id of [...this.#asked.keys()]) this.#settle({ type: "ERROR", id, code: "closed" });
    if (code === SIGNED_OUT_CODE) return this.#signIn();
    if (FINAL_CODES.has(code)) return void this.dispatchEvent(new Event("ended"));
    this.dispatchEvent(new Event("lost"));
    // Otherwise a connection that is always closed at once would be opened twice a second.
    if (performance.now() - this.#begun > MAX_RETRY_DELAY) this.#wait = MIN_RETRY_DELAY;
    this.#begun = Infinity;
    this.#soon(this.#wait * (0.75 + Math.random() / 2)); // spread, so that pages do not reconnect at the same moment
    this.#wait = Math.min(this.#wait * 2, MAX_RETRY_DELAY);
  }

  /** Waits if the page is unloading: a form for a new password, for example, ends the session and begins another. */
  #signIn() {
    const leaving = performance.now() - this.#leaving < LEAVING_TIME;
    setTimeout(() => this.dispatchEvent(new Event("signedout")), leaving ? LEAVING_TIME : 0);
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
 * Calls `look` at news of this kind, and after a reconnection, since news may have been missed. It is called at most once
 * per second, and once after the last news.
 *
 * @param {"conversations" | "tasks" | "invitations" | "readings" | "shared"} kind
 * @param {() => void} look
 */
export function onNews(kind, look) {
  let last = performance.now(); // the time at which the page was loaded
  let timer = 0;
  const soon = () => {
    if (timer) return;
    timer = window.setTimeout(
      () => {
        timer = 0;
        last = performance.now();
        look();
      },
      Math.max(0, last + NEWS_INTERVAL - performance.now()),
    );
  };
  socket.addEventListener(kind, soon);
  socket.addEventListener("again", soon);
}

// --- the end of the session: the page is reloaded for the next user, unless a form has unsaved text ---

socket.addEventListener("signedout", async () => {
  const forms = changedForms();
  if (!forms.length) return location.reload(); // the draft of a message stays in this browser
  const headers = { "HX-Request": "true", "HX-Current-URL": location.href };
  const response = await fetch(location.href, { headers }).catch(() => null);
  const sentence = response?.status === 401 ? await response.text() : null;
  if (sentence) for (const form of forms) showRefusal(form, sentence);
});

// --- the pointer ---

let pressed = false;
let releaseTimer = 0;
/** @type {(() => void)[]} */
const heldWork = [];

/** Runs the work now or, while the pointer is pressed, after its release, in the order of the calls. @param {() => void} work */
export function whenReleased(work) {
  if (pressed) heldWork.push(work);
  else work();
}

/** @param {number} wait in milliseconds */
function releaseAfter(wait) {
  if (!pressed) return;
  clearTimeout(releaseTimer);
  releaseTimer = window.setTimeout(() => {
    pressed = false;
    for (const work of heldWork.splice(0)) {
      try {
        work();
      } catch (error) {
        reportError(error);
      }
    }
    askDueElements();
  }, wait);
}

addEventListener(
  "pointerdown",
  (event) => {
    if (!event.isPrimary || event.button !== 0) return;
    clearTimeout(releaseTimer);
    pressed = true;
  },
  true,
);
// With a mouse the click follows the release at once, before any timer. With a finger it comes later.
addEventListener(
  "pointerup",
  (event) => event.isPrimary && releaseAfter(event.pointerType === "mouse" ? 0 : TAP_DELAY),
  true,
);
addEventListener("click", () => releaseAfter(0), true);
addEventListener("pointercancel", (event) => event.isPrimary && releaseAfter(0), true);
// The list of a select, or another window, can swallow the release.
addEventListener("pointermove", (event) => event.isPrimary && !(event.buttons & 1) && releaseAfter(0), true);
addEventListener("blur", () => releaseAfter(0));

// --- requests ---

const LIVE = "[data-live]";
/** @typedef {{elt: Element, target: Element, live: boolean, outdated: boolean, crossed: boolean}} Request */
/** @type {Map<XMLHttpRequest, Request>} */
const requests = new Map();
/** @type {Set<Element>} live elements that must send a request again */
const dueElements = new Set();
/** @type {Element | null} */
let sender = null; // the element whose request by the user is being swapped in

/** Finds the region that a live element fills, as htmx does. @param {Element} elt @returns {Element} */
function findRegion(elt) {
  const named = elt.closest("[hx-target]");
  const target = named?.getAttribute("hx-target");
  if (!named || !target) return elt;
  return (target === "this" ? named : document.querySelector(target)) ?? elt;
}

/** @param {Request} request @param {Element} region */
function overlaps({ elt, target }, region) {
  return region.contains(elt) || region.contains(target) || target.contains(region);
}

/** @param {Element} region @param {boolean} live */
function overlappingRequests(region, live) {
  return [...requests.values()].filter((each) => each.live === live && overlaps(each, region));
}

/** @type {(() => void)[]} */
const idleWaiters = [];

/** Resolves when no request of the user for the region is under way. @param {Element} region */
export async function waitForIdle(region) {
  while (overlappingRequests(region, false).length)
    await new Promise((resolve) => idleWaiters.push(() => resolve(null)));
}

/** @param {Element} elt a live one */
function mayAsk(elt) {
  if (pressed || overlappingRequests(findRegion(elt), false).length) return false;
  return [...requests.values()].every((each) => each.elt !== elt);
}

function askDueElements() {
  for (const elt of [...dueElements]) {
    if (elt.isConnected && !mayAsk(elt)) continue;
    dueElements.delete(elt);
    if (elt.isConnected) elt.dispatchEvent(new Event("update"));
  }
}

/** Marks the live elements of a region. @param {Element} region @returns {boolean} whether there are any */
function markDue(region) {
  const live = all(Element, LIVE).filter((each) => findRegion(each).contains(region));
  for (const each of live) dueElements.add(each);
  return live.length > 0;
}

/** @param {XMLHttpRequest} xhr */
function endRequest(xhr) {
  const request = requests.get(xhr);
  if (!request) return;
  requests.delete(xhr);
  if (!request.live) {
    for (const each of overlappingRequests(request.target, true)) each.outdated = true;
    if (request.crossed) markDue(request.target);
  }
  askDueElements();
  for (const goOn of idleWaiters.splice(0)) goOn();
}

document.body.addEventListener("htmx:confirm", (event) => {
  const { elt } = event.detail;
  if (!elt.matches(LIVE) || mayAsk(elt)) return;
  event.preventDefault();
  dueElements.add(elt);
});

document.body.addEventListener("htmx:beforeSend", ({ detail: { elt, target, xhr } }) => {
  const request = { elt, target, live: elt.matches(LIVE), outdated: false, crossed: false };
  if (!request.live) {
    for (const other of overlappingRequests(target, false)) {
      other.crossed = true;
      request.crossed = true;
    }
  }
  requests.set(xhr, request);
  const { onload } = xhr;
  xhr.onload = (event) =>
    whenReleased(() => {
      try {
        onload?.call(xhr, event);
      } finally {
        endRequest(xhr);
      }
    });
  for (const way of ["error", "abort", "timeout"]) xhr.addEventListener(way, () => endRequest(xhr));
});

document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const request = requests.get(detail.xhr);
  if (!request || !detail.shouldSwap) return;
  request.target = detail.target; // the response may have named another target
  sender = request.live ? null : request.elt;
  if (request.live && detail.xhr.status >= 400) {
    detail.shouldSwap = false; // the user did not send the request
  } else if (request.live && (request.outdated || overlappingRequests(request.target, false).length)) {
    detail.shouldSwap = false;
    dueElements.add(request.elt);
  } else if (!request.elt.isConnected && markDue(request.target)) {
    detail.shouldSwap = false; // its element is gone, so the live elements show the result
  } else if (sender instanceof HTMLFormElement && detail.xhr.status < 400) {
    markAsStored(sender, detail.requestConfig.unfilteredFormData);
  }
});

// An aborted request, because its page is left or another replaces it, is not an error, but htmx would log it as two. The
// event after `htmx:afterRequest` reports the requests that fail.
const HARMLESS_EVENTS = new Set(["htmx:sendAbort", "htmx:afterRequest"]);
htmx.logger = (_element, name, detail) => {
  if (HARMLESS_EVENTS.has(name)) delete detail.error;
};

htmx.defineExtension("morph", {
  isInlineSwap: (style) => style === "outerMorph",
  handleSwap(style, target, fragment, settleInfo) {
    if (style !== "innerMorph" && style !== "outerMorph") return false;
    const waiting = [...requests.values()].filter((each) => !each.live && each.elt !== sender).map((each) => each.elt);
    const content = style === "outerMorph" ? fragment.firstElementChild : fragment;
    const made = content ? morph(target, content, sender, waiting) : [];
    settleInfo.tasks.push(() => htmx.process(target)); // htmx reads the changed attributes
    return made;
  },
});

// --- updates: idiomorph replaces old HTML by new, and changes only the differences ---

/**
 * @param {Element} target
 * @param {Element | DocumentFragment} content replaces `target` or, as a fragment, the contents of `target`; it is used up
 * @param {Element | null} [sender] the element that sent the request; the elements around it do not stay if the content
 *   lacks them
 * @param {Element[]} [waiting] elements with other requests under way; they stay
 * @returns {Node[]} the outermost nodes that are new on the page
 */
export function morph(target, content, sender = null, waiting = []) {
  const focused = /** @type {HTMLInputElement} */ (document.activeElement);
  const { selectionStart, selectionEnd } = focused;
  const around = focusSurroundings(focused, target);
  const opensAnother = content.querySelector("[data-editing]") !== null;
  /** @type {Set<Node>} */
  const added = new Set();
  if (content instanceof Element) target.id = content.id; // otherwise idiomorph would insert a new element
  const marked = markUnmatched(target, content);
  Idiomorph.morph(target, content, {
    morphStyle: content instanceof Element ? "outerHTML" : "innerHTML",
    restoreFocus: false, // idiomorph only knows fields with an id
    callbacks: {
      beforeNodeMorphed: prepare,
      afterNodeMorphed: finishSelect,
      afterNodeAdded: (node) => added.add(node),
      beforeNodeRemoved: (node) => !mustStay(node, { opensAnother, sender, waiting }),
      beforeAttributeUpdated: mayUpdateAttribute,
    },
  });
  for (const each of marked) each.removeAttribute("id");
  if (document.activeElement !== focused && focused.isConnected) {
    focused.focus({ preventScroll: true }); // the element was moved
    if (selectionStart !== null) focused.setSelectionRange?.(selectionStart, selectionEnd);
  } else if (!focused.isConnected && !target.closest(KEEPS_FOCUS)) {
    focusNear(around);
  }
  return [...added].filter((node) => !isInsideAny(node, added));
}

/**
 * Gives a temporary id to each element without an id that contains only ids which the new HTML lacks. Idiomorph would reuse
 * an element without an id for another one of its kind; with an id it is removed or stays.
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
 * Returns whether an element that the new HTML lacks stays on the page.
 *
 * @param {Node} node
 * @param {{opensAnother: boolean, sender: Element | null, waiting: Element[]}} update
 */
function mustStay(node, { opensAnother, sender, waiting }) {
  if (!(node instanceof Element)) return false;
  if (waiting.some((each) => node.contains(each))) return true;
  if (node.contains(sender)) return false;
  const inside = [node, ...node.querySelectorAll("[data-editing], input, select, textarea")];
  return inside.some((each) => (each.matches("[data-editing]") ? !opensAnother : isChanged(each)));
}

/** The value of a changed select before its options are updated. @type {WeakMap<Element, string>} */
const changedSelects = new WeakMap();

/**
 * Copies the state that only the page has into the new HTML. Idiomorph then finds no difference, so that a field keeps its
 * selection and its undo history.
 *
 * @param {Node} here
 * @param {Node} node its new HTML
 * @returns {boolean} whether it may be changed at all
 */
function prepare(here, node) {
  if (!(here instanceof Element && node instanceof Element)) return true;
  if (here.hasAttribute("data-apart")) return false;
  if (here.classList.contains("lit")) node.classList.add("lit"); // by the pointer, see glass.js
  if (!isChanged(here)) return true;
  if (here instanceof HTMLSelectElement) {
    changedSelects.set(here, here.value);
  } else if (here instanceof HTMLInputElement && node instanceof HTMLInputElement) {
    if (here.type === "checkbox" || here.type === "radio") {
      node.checked = here.checked;
    } else if (here.type !== "file") {
      node.setAttribute("value", node.defaultValue); // idiomorph empties a field without the attribute
      node.value = here.value;
    }
  }
  return true;
}

/** @param {string} name @param {Element} here @returns {boolean} whether it may be updated */
function mayUpdateAttribute(name, here) {
  if (name === "open") return false;
  if (name === "selected") return false; // see finishSelect
  if (name === "value" && here instanceof HTMLTextAreaElement) return !isChanged(here); // idiomorph also uses this name for its text
  return !(name.includes("disabled") && here.hasAttribute("data-disabled-by-htmx")); // until its response comes
}

/** Chooses the option after all options are inserted. @param {Node} here @param {Node} node */
function finishSelect(here, node) {
  if (!(here instanceof HTMLSelectElement && node instanceof HTMLSelectElement)) return;
  const value = changedSelects.get(here) ?? node.value;
  changedSelects.delete(here);
  for (const [index, { defaultSelected }] of [...node.options].entries()) {
    const option = here.options[index];
    if (option && option.defaultSelected !== defaultSelected) option.defaultSelected = defaultSelected;
  }
  if (here.value !== value) here.value = value;
}

/** @param {Node} node @param {Set<Node>} others */
function isInsideAny(node, others) {
  for (let each = node.parentNode; each; each = each.parentNode) if (others.has(each)) return true;
  return false;
}

const KEEPS_FOCUS = "[data-keeps-focus]"; // parts of a page that manage their focus themselves
const MAX_CONTROLS = 500; // controls whose visibility is checked; with more, none is used

/** Returns the controls that the keyboard can reach. @param {Element} place */
function controls(place) {
  const found = place.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary");
  if (found.length > MAX_CONTROLS) return [];
  return [...found].filter((each) => each.checkVisibility({ visibilityProperty: true }));
}

/**
 * Returns the elements around the focused one, innermost first, each with the index of the focused one among its controls.
 *
 * @typedef {{place: Element, index: number}[]} Around
 * @param {Element} focused
 * @param {Element} end the outermost
 */
function focusSurroundings(focused, end) {
  /** @type {Around} */
  const found = [];
  for (let place = focused.parentElement; place && end.contains(place); place = place.parentElement)
    found.push({ place, index: controls(place).indexOf(focused) });
  return found;
}

/**
 * Moves the focus near an element that is gone: to the control in its place, else to the nearest one. Otherwise the focus
 * would return to the top of the page.
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

// --- the focus: a pressed control may be removed or disabled by the response ---

/** @type {{pressed: HTMLElement, around: Around} | null} */
let lostFocus = null;

document.body.addEventListener("htmx:beforeRequest", ({ detail: { elt } }) => {
  const { activeElement: pressed } = document;
  if (pressed === document.body) return; // the pressed control may be disabled until its response comes
  if (pressed instanceof HTMLElement && elt.contains(pressed))
    lostFocus = pressed.closest(KEEPS_FOCUS) ? null : { pressed, around: focusSurroundings(pressed, document.body) };
});
for (const type of /** @type {const} */ (["htmx:afterRequest", "htmx:afterSettle"]))
  document.body.addEventListener(type, () => {
    if (!lostFocus || document.activeElement !== document.body) return;
    if (lostFocus.pressed.isConnected) lostFocus.pressed.focus({ preventScroll: true });
    if (document.activeElement === document.body && type === "htmx:afterSettle") focusNear(lostFocus.around);
  });
document.addEventListener("pointerdown", () => (lostFocus = null));
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape") lostFocus = null; // the user left the field before the response
});
document.addEventListener("focusin", ({ target }) => {
  if (target !== lostFocus?.pressed) lostFocus = null;
});
