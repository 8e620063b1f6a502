/**
 * A growing answer: puts block n into part p. Events may come twice; what was seen is passed over by its number.
 * HTML comes from the server's renderer, already sanitised, and is the same as on the finished page.
 *
 * @typedef {import("./socket.js").WireEvent} WireEvent
 */

import { showApproval } from "./approval.js";
import { whenReleased } from "./updates.js";
import { say } from "./words.js";

/** @type {WeakMap<Element, string>} */
const rendered = new WeakMap();
const OVER = { RUN_FINISHED: "done", RUN_STOPPED: "stopped", RUN_ERROR: "failed", SNAPSHOT: "done" };

export class Answer {
  /**
   * @param {HTMLElement} article as the server rendered it: `data-turn`, and `data-seq` of what it holds already
   * @param {{onDoing: (word: string) => void, onEnd: (status: string) => void}} tell
   */
  constructor(article, tell) {
    this.article = article;
    this.turn = article.dataset.turn;
    this.seq = Number(article.dataset.seq);
    this.parts = article.querySelector("[data-parts]");
    this.tell = tell;
    this.ended = false;
  }

  /** @param {WireEvent} event */
  receive(event) {
    whenReleased(() => this.#take(event));
  }

  #take(event) {
    if (this.ended || (event.seq && event.seq <= this.seq)) return;
    this.seq = event.seq ?? this.seq;
    this.article.dataset.seq = String(this.seq);
    if (event.type in OVER) {
      this.ended = true;
      this.tell.onEnd(event.status ?? OVER[event.type]);
    } else {
      this.#apply(event);
    }
  }

  #apply(event) {
    switch (event.type) {
      case "RUN_STARTED":
        return this.tell.onDoing("waiting");
      case "TEXT_MESSAGE_START":
        return void this.#add("text", event.part);
      case "TEXT_MESSAGE_CONTENT":
        this.tell.onDoing("answering");
        return this.#grow(this.#part(event.part, "text"), event);
      case "TEXT_MESSAGE_END":
        return this.#complete(this.#part(event.part, "text"), event);
      case "REASONING_START":
        this.tell.onDoing("thinking");
        return void (this.#add("reasoning", event.part).dataset.state = "running");
      case "REASONING_CONTENT":
        return this.#part(event.part, "reasoning").querySelector("[data-text]").append(event.delta);
      case "REASONING_END":
        return void (this.#part(event.part, "reasoning").dataset.state = "done");
      default:
        if (event.type.startsWith("TOOL_CALL_")) this.#tool(event);
    }
  }

  #tool(event) {
    if (event.type === "TOOL_CALL_START") {
      const part = this.#add("tool_call", event.part);
      part.dataset.call = event.call;
      part.querySelector("[data-label]").textContent = event.name;
      return;
    }
    const part = this.parts.querySelector(`[data-call="${CSS.escape(event.call)}"]`);
    if (!part) return;
    if (event.type === "TOOL_CALL_ARGS") part.querySelector("[data-arguments]").append(event.delta);
    if (event.type === "TOOL_CALL_END") {
      part.querySelector("[data-label]").textContent = event.label;
      this.tell.onDoing(event.label);
    }
    if (event.type === "TOOL_CALL_APPROVAL") {
      this.tell.onDoing(event.state === "waiting" ? "approval" : "waiting");
      showApproval(part, this.turn);
    }
    if (event.type === "TOOL_CALL_RESULT") {
      const result = part.querySelector("[data-result]");
      result.textContent = event.text;
      result.classList.toggle("failed", event.error);
      part.dataset.state = event.error ? "failed" : "done";
    }
  }

  #part(index, type) {
    return this.parts.querySelector(`[data-part="${index}"]`) ?? this.#add(type, index);
  }

  #add(type, index) {
    const there = this.parts.querySelector(`[data-part="${index}"]`);
    if (there) return there;
    const template = /** @type {HTMLTemplateElement} */ (document.getElementById(`part-${type}`));
    const part = /** @type {HTMLElement} */ (template.content.cloneNode(true)).firstElementChild;
    part.dataset.part = String(index);
    this.parts.append(part);
    return part;
  }

  /** In the middle of a very long block no HTML comes for a while; its raw text is shown at its end meanwhile. */
  #grow(part, { blocks, delta }) {
    if (blocks.length) {
      part.querySelector("[data-raw]")?.remove();
      for (const [index, html] of blocks) place(part, index, html);
    } else if (delta.trim()) {
      raw(part).append(delta);
    }
  }

  #complete(part, { blocks, count }) {
    part.querySelector("[data-raw]")?.remove();
    for (const [index, html] of blocks) place(part, index, html);
    for (const block of [...part.children].slice(count)) block.remove();
  }
}

function place(part, index, html) {
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
  // Whoever rendered it does not know the reader's language.
  for (const button of block.querySelectorAll("[data-copy]")) button.textContent = say("copyCode");
}

function raw(part) {
  const there = part.querySelector("[data-raw]");
  if (there) return there;
  if (!part.lastElementChild) place(part, 0, "");
  const span = document.createElement("span");
  span.dataset.raw = "";
  const last = part.lastElementChild;
  const ends = last.querySelectorAll("pre > code, p, li, td, h1, h2, h3, h4, h5, h6");
  (ends[ends.length - 1] ?? last).append(span);
  return span;
}
