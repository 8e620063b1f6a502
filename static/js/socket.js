/**
 * The page's one WebSocket: acknowledged frames, back-off, and resumption of every turn from the last event seen.
 *
 * @typedef {{type: string, id?: number, turn?: string, seq?: number, [field: string]: any}} WireEvent
 * @typedef {{seq: number, receive: (event: WireEvent) => void}} Follower
 * @typedef {{resolve: () => void, reject: (error: Error) => void, timer: number}} Asked
 */

const FIRST_WAIT = 500; // ms
const LONGEST_WAIT = 15_000;
const PING_EVERY = 25_000;
const ACK_WITHIN = 10_000;
const HINTS = new Set(["STATE", "TURN", "TITLE", "NEXT", "MARKS", "CONVERSATIONS", "TASKS", "INVITATIONS"]);
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
export class Socket extends EventTarget {
  /** @type {WebSocket | null} */ #socket = null;
  /** @type {Map<string, Follower>} */ #followers = new Map();
  /** @type {Map<number, Asked>} */ #asked = new Map();
  /** @type {string | null} */ #watched = null;
  #wait = FIRST_WAIT;
  #begun = Infinity; // when the connection that there is was made
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
    setInterval(() => this.open && this.ask({ type: "ping" }).catch(() => this.#socket?.close()), PING_EVERY);
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
