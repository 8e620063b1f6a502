/**
 * An answer: how it grows, its sources, its tabs beside others, and the menu to have it written again.
 *
 * @typedef {import("./live.js").WireEvent} WireEvent
 */
import { whenReleased } from "./live.js";
import { all, around, find, hasSpeech, need, opensNewTab, placeBeside, previewKind, say } from "./page.js";

// --- growing ---

const NIL = "00000000-0000-0000-0000-000000000000"; // stands for the id in an address
const TEXT_ENDS = "pre > code, p, li, td, h1, h2, h3, h4, h5, h6"; // elements at whose end raw text is appended
const FINISHED_ANSWER = ".answer:not([data-status=pending])";
/** @type {WeakMap<Element, string>} */
const rendered = new WeakMap();
/** @type {Record<string, string>} */
const END_STATUSES = { RUN_FINISHED: "done", RUN_STOPPED: "stopped", RUN_ERROR: "failed" };
const LIVE_STATUSES = new Set(["queued", "running"]);

/**
 * An answer that is being written. Applies the events of its turn to the page. Events may come twice; an event with a
 * number that was applied already is skipped. HTML comes sanitised from the server's renderer, as on the finished page.
 */
export class Answer {
  /**
   * @param {HTMLElement} article as the server rendered it: `data-turn`, and `data-seq`: the last event that it contains
   * @param {{onDoing: (word: string) => void, onEnd: (status: string) => void, onLost: () => Promise<void>}} tell
   *   `onLost`: events are lost; load the current state from the server
   */
  constructor(article, tell) {
    this.article = article;
    this.turn = article.dataset.turn ?? "";
    this.seq = Number(article.dataset.seq);
    this.parts = need(HTMLElement, "[data-parts]", article);
    this.tell = tell;
    this.ended = false;
    /** @type {WireEvent[] | null} events that came while the page loads the current state */
    this.held = null;
  }

  /** @param {WireEvent} event */
  receive(event) {
    whenReleased(() => this.#take(event));
  }

  /** @param {WireEvent} event */
  #take(event) {
    if (this.ended) return;
    if (this.held) this.held.push(event);
    else if (event.type === "SNAPSHOT") this.#leap(event);
    else if (!event.seq || event.seq > this.seq) this.#follow(event);
  }

  /** @param {WireEvent} event */
  async #leap(event) {
    if (!LIVE_STATUSES.has(event.status)) {
      this.ended = true;
      this.tell.onEnd(event.status);
      return;
    }
    /** @type {WireEvent[]} */
    const held = [];
    this.held = held;
    await this.tell.onLost();
    this.held = null;
    this.seq = Math.max(this.seq, event.seq ?? 0); // also if loading failed: the end of the answer loads all of it
    for (const each of held) this.#take(each);
  }

  /** @param {WireEvent} event */
  #follow(event) {
    this.seq = event.seq ?? this.seq;
    this.article.dataset.seq = String(this.seq);
    const over = END_STATUSES[event.type];
    if (over) {
      this.ended = true;
      this.tell.onEnd(event.status ?? over);
    } else {
      this.#apply(event);
    }
  }

  /** @param {WireEvent} event */
  #apply(event) {
    switch (event.type) {
      case "QUEUED":
        this.tell.onDoing(say("queued").replace("{number}", event.position));
        break;
      case "RUN_STARTED":
        this.tell.onDoing("waiting");
        break;
      case "MODEL_FALLBACK":
        need(HTMLElement, "[data-by]", this.article).textContent = event.model;
        break;
      case "TEXT_MESSAGE_START":
        this.#add("text", event.part);
        break;
      case "TEXT_MESSAGE_CONTENT":
        this.tell.onDoing("answering");
        addContent(this.#part(event.part, "text"), event);
        break;
      case "TEXT_MESSAGE_END":
        completePart(this.#part(event.part, "text"), event);
        break;
      case "REASONING_START":
        this.tell.onDoing("thinking");
        this.#add("reasoning", event.part).dataset.state = "running";
        break;
      case "REASONING_CONTENT":
        need(HTMLElement, "[data-text]", this.#part(event.part, "reasoning")).append(event.delta);
        break;
      case "REASONING_END":
        this.#part(event.part, "reasoning").dataset.state = "done";
        break;
      case "TEXT_BECAME_REASONING":
        this.tell.onDoing("thinking");
        this.#becomeReasoning(event);
        break;
      default:
        if (event.type.startsWith("TOOL_CALL_")) this.#tool(event);
    }
  }

  /** Replaces a text that turned out to be reasoning. @param {WireEvent} event */
  #becomeReasoning(event) {
    const text = this.#there(event.part);
    const next = text?.nextElementSibling ?? null;
    text?.remove();
    const part = this.#add("reasoning", event.part);
    if (next) this.parts.insertBefore(part, next);
    need(HTMLElement, "[data-text]", part).textContent = event.text;
    part.dataset.state = "done";
  }

  /** @param {WireEvent} event */
  #tool(event) {
    if (event.type === "TOOL_CALL_START") {
      const part = this.#add("tool_call", event.part);
      part.dataset.call = event.call;
      need(HTMLElement, "[data-label]", part).textContent = event.name;
      return;
    }
    const part = find(HTMLElement, `[data-call="${CSS.escape(event.call)}"]`, this.parts);
    if (!part) return;
    if (event.type === "TOOL_CALL_ARGS") need(HTMLElement, "[data-arguments]", part).append(event.delta);
    if (event.type === "TOOL_CALL_END") {
      need(HTMLElement, "[data-label]", part).textContent = event.label;
      this.tell.onDoing(event.label);
    }
    if (event.type === "TOOL_CALL_APPROVAL") {
      this.tell.onDoing(event.state === "waiting" ? "approval" : "waiting");
      showApproval(part, this.turn);
    }
    if (event.type === "TOOL_CALL_PROGRESS") need(HTMLElement, "[data-progress]", part).textContent = event.text;
    if (event.type === "TOOL_CALL_RESULT") {
      need(HTMLElement, "[data-progress]", part).textContent = "";
      need(HTMLElement, "[data-arguments]", part).textContent = event.arguments;
      const result = need(HTMLElement, "[data-result]", part);
      result.textContent = event.text;
      result.classList.toggle("failed", event.error);
      part.dataset.state = event.error ? "failed" : "done";
      showOutgoing(need(HTMLElement, "[data-outgoing]", part), event.outgoing ?? []);
      showReturned(need(HTMLElement, "[data-returned]", part), event.files ?? []);
    }
  }

  /** @param {number} index @param {string} type */
  #part(index, type) {
    return this.#there(index) ?? this.#add(type, index);
  }

  /** @param {number} index */
  #there(index) {
    return find(HTMLElement, `[data-part="${index}"]`, this.parts);
  }

  /** @param {string} type @param {number} index */
  #add(type, index) {
    const there = this.#there(index);
    if (there) return there;
    const { content } = need(HTMLTemplateElement, `#part-${type}`);
    const part = need(HTMLElement, "*", /** @type {DocumentFragment} */ (content.cloneNode(true)));
    part.dataset.part = String(index);
    this.parts.append(part);
    return part;
  }
}

/**
 * Adds new text to a part. While a very long block is written, no HTML comes; its raw text is shown at the end meanwhile.
 *
 * @param {HTMLElement} part
 * @param {WireEvent} event
 */
function addContent(part, { blocks, delta }) {
  if (blocks.length) {
    part.querySelector("[data-raw]")?.remove();
    for (const [index, html] of blocks) putBlock(part, index, html);
    offerDiagrams(all(HTMLElement, ":scope > .block:not(:last-child) .diagram-source", part));
  } else if (delta.trim()) {
    rawText(part).append(delta);
  }
}

/** @param {HTMLElement} part @param {WireEvent} event */
function completePart(part, { blocks, count }) {
  part.querySelector("[data-raw]")?.remove();
  for (const [index, html] of blocks) putBlock(part, index, html);
  for (const block of [...part.children].slice(count)) block.remove();
  offerDiagrams(all(HTMLElement, ".diagram-source", part));
}

/** @param {HTMLElement} part @param {number} index @param {string} html */
function putBlock(part, index, html) {
  while (part.children.length <= index) {
    const block = document.createElement("div");
    block.className = "block";
    block.dataset.block = String(part.children.length);
    part.append(block);
  }
  const block = part.children[index];
  if ((rendered.get(block) ?? block.innerHTML) === html) return;
  rendered.set(block, html);
  block.innerHTML = html;
  // The HTML is rendered without the reader's language.
  for (const button of block.querySelectorAll("[data-copy]")) button.textContent = say("copyCode");
}

/** @param {HTMLElement} part */
function rawText(part) {
  const there = find(HTMLElement, "[data-raw]", part);
  if (there) return there;
  if (!part.lastElementChild) putBlock(part, 0, "");
  const last = part.lastElementChild;
  const span = document.createElement("span");
  span.dataset.raw = "";
  ([...(last?.querySelectorAll(TEXT_ENDS) ?? [])].at(-1) ?? last)?.append(span);
  return span;
}

/** Lists the data that a tool call sent out of the workspace. @param {HTMLElement} place @param {{ host: string, what: string }[]} sent */
function showOutgoing(place, sent) {
  place.hidden = !sent.length;
  const lines = sent.map(({ host, what }) => {
    const line = document.createElement("li");
    const [to, exactly] = [document.createElement("strong"), document.createElement("code")];
    [to.textContent, exactly.textContent, exactly.dir] = [host, what, "auto"];
    line.append(to, " ", exactly);
    return line;
  });
  need(HTMLElement, "ul", place).replaceChildren(...lines);
}

/** Lists the files that a tool returned. @param {HTMLElement} place @param {{ file: string, name: string, image: boolean }[]} files */
function showReturned(place, files) {
  place.hidden = !files.length;
  const { content } = need(HTMLTemplateElement, "#returned-file");
  const items = files.map(({ file, name, image }) => {
    const item = need(HTMLElement, "li", /** @type {DocumentFragment} */ (content.cloneNode(true)));
    for (const link of all(HTMLAnchorElement, "a", item)) link.href = link.href.replace(NIL, file);
    const [picture, title] = [need(HTMLAnchorElement, ".thumbnail", item), need(HTMLAnchorElement, ".chip-name", item)];
    [title.textContent, title.title] = [name, name];
    if (image) need(HTMLImageElement, "img", picture).src = picture.href;
    else picture.remove();
    return item;
  });
  place.replaceChildren(...items);
}

/** Loads the state of a call that the user must allow. @param {HTMLElement} part @param {string} turn */
async function showApproval(part, turn) {
  const address = need(HTMLElement, "#part-tool_call").dataset.approvalUrl?.replace(NIL, turn);
  const place = need(HTMLElement, "[data-approval]", part);
  const focused = place.contains(document.activeElement);
  const call = encodeURIComponent(part.dataset.call ?? "");
  await htmx.ajax("GET", `${address}?call=${call}`, { target: place, swap: "innerHTML" });
  if (focused && !place.querySelector("button")) part.closest("article")?.focus();
}

// --- the time until a call stops waiting for the user ---

setInterval(() => {
  for (const each of all(HTMLElement, "[data-until]")) {
    const left = Math.max(0, Math.round((Date.parse(each.dataset.until ?? "") - Date.now()) / 1_000));
    each.textContent = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
  }
}, 1_000);

// --- answers side by side; on narrow screens tabs select the visible answer ---

const TAB = ".column-tabs [role=tab]";
/** @type {Record<string, number>} */
const STEPS = { ArrowRight: 1, ArrowLeft: -1 };

/** @param {HTMLElement} root */
export function showTabs(root) {
  for (const tabs of all(HTMLElement, ".column-tabs[hidden]", root)) {
    const columns = around(HTMLElement, ".columns", tabs);
    const picked = find(HTMLElement, ".answer:has(.picked)", columns) ?? find(HTMLElement, ".answer", columns);
    tabs.hidden = false;
    showTab(need(HTMLElement, `[data-shows="${picked?.id}"]`, tabs));
  }
}

/** @param {HTMLElement} tab */
function showTab(tab) {
  const columns = tab.closest(".columns");
  if (!columns) return;
  for (const each of all(HTMLElement, "[role=tab]", columns)) {
    each.ariaSelected = String(each === tab);
    each.tabIndex = each === tab ? 0 : -1;
  }
  for (const answer of columns.querySelectorAll(":scope > .answer"))
    answer.toggleAttribute("data-shown", answer.id === tab.dataset.shows);
}

document.addEventListener("click", ({ target }) => {
  const tab = around(HTMLElement, TAB, target);
  if (tab) showTab(tab);
});
document.addEventListener("keydown", (event) => {
  const tab = around(HTMLElement, TAB, event.target);
  const step = STEPS[event.key];
  if (!step || !tab?.parentElement) return;
  event.preventDefault();
  const tabs = all(HTMLElement, ":scope > *", tab.parentElement);
  const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
  showTab(next);
  next.focus();
});

// --- the menu “again”: one for the page, opened at the answer ---

const againMenu = document.getElementById("again"); // where there is more than one model

/** @param {HTMLElement} table of an answer that is complete */
function offerTable(table) {
  if (around(HTMLElement, '[data-status="pending"]', table)) return;
  const acts = document.createElement("div");
  const button = document.createElement("button");
  acts.className = "table-acts";
  button.type = "button";
  button.className = "copy";
  button.dataset.copyTable = "";
  button.textContent = say("copyTable");
  acts.append(button);
  table.after(acts);
}

/** @param {HTMLElement} code a block of an answer that is complete */
function offerPreview(code) {
  if (!document.getElementById("panel") || !previewKind(code)) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.dataset.preview = "";
  button.textContent = say("preview");
  find(HTMLElement, "[data-copy]", code)?.before(button);
}

document.addEventListener("click", async ({ target }) => {
  const code = around(HTMLElement, "[data-preview]", target) && around(HTMLElement, ".code", target);
  if (!code) return;
  const { openPreview } = await import("./previews.js");
  await openPreview(code);
});

document.addEventListener("click", async ({ target }) => {
  const button = around(HTMLButtonElement, "[data-read-aloud]", target);
  const article = button && around(HTMLElement, "article", button);
  if (!article) return;
  const { readAloud } = await import("./speech.js");
  readAloud(button, need(HTMLElement, "[data-parts]", article));
});

/** Shows the controls that need scripts. @param {HTMLElement} root */
export function showScriptControls(root) {
  for (const button of all(HTMLElement, "[data-read-aloud]", root)) button.hidden = !hasSpeech("spoken");
  for (const button of all(HTMLElement, "[data-copy-answer]", root)) button.hidden = false;
  for (const button of all(HTMLElement, "[data-again]", root)) button.hidden = !againMenu;
  for (const table of all(HTMLElement, ".prose .table:not(:has(+ .table-acts))", root)) offerTable(table);
  for (const code of all(HTMLElement, `${FINISHED_ANSWER} .prose .code:not(:has([data-preview]))`, root))
    offerPreview(code);
  showTabs(root);
  offerDiagrams(all(HTMLElement, `${FINISHED_ANSWER} .diagram-source`, root));
}

/** Loads the script for diagrams if there are any. @param {HTMLElement[]} found blocks with complete sources */
async function offerDiagrams(found) {
  if (!found.length) return;
  const { drawWhenVisible } = await import("./diagrams.js");
  for (const each of found) drawWhenVisible(each);
}

document.addEventListener("click", ({ target }) => {
  const opener = around(HTMLElement, "[data-again]", target);
  if (!opener || !againMenu) return;
  need(HTMLFormElement, "form", againMenu).action = opener.dataset.again ?? "";
  againMenu.showPopover();
  placeBeside(againMenu, opener);
  need(HTMLElement, "button", againMenu).focus();
});

// --- sources: a card beside a citation shows its source ---
// It opens when a pointer or the keyboard focus is on the number. On touch screens a tap opens it, and its title opens
// the source.

const SHOW_DELAY = 150; // milliseconds that the pointer is on the number
const HIDE_DELAY = 250; // milliseconds to move onto the card
const card = need(HTMLElement, "#citation-preview");
/** @type {Map<string, string>} the server's HTML by address */
const cardCache = new Map();
/** @type {HTMLAnchorElement | null} */
let shownCitation = null;
let title = ""; // the link's tooltip, removed while the card is shown
let cardTimer = 0;

/** @param {Event} event */
function citationAt({ target }) {
  return around(HTMLAnchorElement, ".answer:not([data-status=pending]) .citation", target);
}

/** @param {Event} event */
function isOnCard({ target }) {
  return target instanceof Node && card.contains(target);
}

/** @param {HTMLAnchorElement} link */
async function showCard(link) {
  if (link === shownCitation) return;
  hideCard();
  shownCitation = link;
  title = link.title;
  link.removeAttribute("title");
  const address = `${around(HTMLElement, "article", link)?.dataset.url}sources/${link.textContent}/${citationQuery(link)}`;
  // Always waits: a closing menu returns the focus first.
  const html = await (cardCache.get(address) ?? loadCard(address));
  if (shownCitation !== link || !link.isConnected) return;
  card.innerHTML = html; // rendered and escaped by the server
  link.setAttribute("aria-describedby", card.id);
  card.showPopover();
  placeBeside(card, link);
}

/** Returns the query that names this citation's sentence. @param {HTMLAnchorElement} link */
function citationQuery(link) {
  return link.dataset.place ? `?citation=${link.dataset.place}` : "";
}

/** @param {string} url */
async function loadCard(url) {
  const response = await fetch(url).catch(() => null);
  if (!response?.ok) {
    const line = document.createElement("p");
    line.textContent = say("offline");
    return line.outerHTML;
  }
  const html = await response.text();
  cardCache.set(url, html);
  return html;
}

function hideCard() {
  clearTimeout(cardTimer);
  if (!shownCitation) return;
  shownCitation.title = title;
  shownCitation.removeAttribute("aria-describedby");
  shownCitation = null;
  if (card.matches(":popover-open")) card.hidePopover();
}

/** @param {() => void} work @param {number} wait in milliseconds */
function schedule(work, wait) {
  clearTimeout(cardTimer);
  cardTimer = window.setTimeout(work, wait);
}

document.addEventListener("pointerover", (event) => {
  if (event.pointerType === "touch") return;
  const link = citationAt(event);
  if (link) schedule(() => showCard(link), SHOW_DELAY);
  else if (isOnCard(event)) clearTimeout(cardTimer);
  else if (shownCitation && document.activeElement !== shownCitation) schedule(hideCard, HIDE_DELAY);
  else if (!shownCitation) clearTimeout(cardTimer);
});
document.addEventListener("focusin", (event) => {
  const link = citationAt(event);
  if (link?.matches(":focus-visible")) showCard(link);
  else if (!isOnCard(event)) hideCard();
});
document.addEventListener("click", (event) => {
  const link = citationAt(event);
  const doubt = around(HTMLAnchorElement, ".answer .doubt", event.target);
  if (doubt && !opensNewTab(event)) {
    event.preventDefault();
    showDoubt(doubt);
  } else if (link && event instanceof PointerEvent && event.pointerType === "touch") {
    event.preventDefault();
    showCard(link);
  } else if (link && !opensNewTab(event)) {
    event.preventDefault();
    showSource(link);
  } else if (!isOnCard(event) || around(HTMLAnchorElement, "a", event.target)) hideCard();
});
/** Opens the panel at the cited passage; without a panel, opens the source itself. @param {HTMLAnchorElement} link */
async function showSource(link) {
  hideCard();
  const sources = find(HTMLAnchorElement, "[data-sources]", around(HTMLElement, "article", link));
  if (!sources) return void window.open(link.href, "_blank", "noopener");
  const address = sources.href + citationQuery(link);
  await htmx.ajax("GET", address, { source: sources, target: "#panel-body", swap: "innerHTML" });
  const source = document.getElementById(`source-${link.textContent}`);
  source?.setAttribute("aria-current", "true");
  source?.scrollIntoView({ block: "center" });
  source?.focus({ preventScroll: true });
}

/** Opens the panel with a doubted sentence and the passage that does not support it. @param {HTMLAnchorElement} doubt */
async function showDoubt(doubt) {
  hideCard();
  const sources = find(HTMLAnchorElement, "[data-sources]", around(HTMLElement, "article", doubt));
  if (!sources) return void window.open(doubt.href, "_blank", "noopener");
  await htmx.ajax("GET", doubt.href, { source: sources, target: "#panel-body", swap: "innerHTML" });
  find(HTMLElement, "#panel-title")?.focus({ preventScroll: true });
}

document.addEventListener("keydown", (event) => event.key === "Escape" && hideCard());
need(HTMLElement, "#transcript").addEventListener("scroll", () => shownCitation && placeBeside(card, shownCitation), {
  passive: true,
});
