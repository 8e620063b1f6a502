/**
 * The field in which a message is written. Enter sends, Shift+Enter is a new line, Esc stops the answer, and the arrow up
 * takes back the last message to edit it, as long as nothing is written.
 * What is sent while an answer is being written waits on the server until that is complete.
 * A draft is kept per conversation, in this browser, until it is sent.
 */
import { Attachments } from "./attachments.js";
import { say } from "./words.js";

const DRAFT = "draft:";
const ASKED = "asked";
const touch = matchMedia("(pointer: coarse)");

export class Composer {
  /**
   * @param {HTMLFormElement} form
   * @param {string} conversation its id, or "" for one that does not exist yet
   * @param {{onStop: () => void, onEditLast: () => void}} tell
   */
  constructor(form, conversation, tell) {
    this.form = form;
    this.text = form.querySelector("textarea");
    this.send = form.querySelector("#send");
    this.stop = form.querySelector("#stop");
    this.draft = DRAFT + (conversation || "new");
    this.sending = false;
    this.sent = "";
    this.answering = false;
    this.held = false;
    this.usable = !this.send.disabled; // without a model there is nothing to send to
    this.fits = true;
    this.whyNot = "";
    if (!this.text.value) this.text.value = localStorage.getItem(this.draft) ?? "";
    this.#renewKey();
    this.text.addEventListener("input", () => this.#typed());
    this.text.addEventListener("keydown", (event) => this.#key(event, tell.onEditLast));
    this.stop.addEventListener("click", () => tell.onStop());
    this.attachments = new Attachments(form, `${this.draft}:files`, () => this.#show());
    // The chips in the form ask for their state; only the form's own request sends the message.
    form.addEventListener("htmx:beforeRequest", (event) => event.detail.elt === form && this.#begin(event));
    form.addEventListener("htmx:afterRequest", ({ detail: { elt, xhr } }) => {
      // Not htmx's `successful`: it is not set for the redirect that the first message of a conversation ends with.
      if (elt === form) this.#end(xhr.status >= 200 && xhr.status < 300, xhr.getResponseHeader("HX-Redirect"));
    });
    document.getElementById("plan")?.addEventListener("htmx:afterSwap", (event) => this.#planned(event.currentTarget));
    this.#typed();
  }

  /** What does not fit cannot be sent; the line under the field says why. */
  #planned(plan) {
    const line = plan.querySelector("[data-fits]");
    this.fits = line?.dataset.fits !== "false";
    this.whyNot = this.fits ? "" : line.textContent.trim();
    this.#show();
  }

  /** While older messages are being summarised one can write, but not send. @param {boolean} held */
  hold(held) {
    this.held = held;
    this.#show();
  }

  /** @param {boolean} answering */
  show(answering) {
    this.answering = answering;
    this.#show();
  }

  #show() {
    const focused = document.activeElement === this.stop;
    const written = Boolean(this.text.value.trim());
    this.stop.hidden = !this.answering;
    this.send.hidden = this.answering && !written;
    const { ready } = this.attachments;
    this.send.disabled = !this.usable || !this.fits || !ready || this.sending || this.held || !written;
    this.send.title = this.held ? say("summarising") : ready ? this.whyNot : this.attachments.whyNot;
    this.send.querySelector("span").textContent = say(this.answering ? "sendNext" : "send");
    if (focused && !this.answering) this.text.focus();
  }

  #typed() {
    if (!CSS.supports("field-sizing", "content")) this.#grow();
    const draft = joined(this.sent, this.text.value);
    if (draft) localStorage.setItem(this.draft, draft);
    else localStorage.removeItem(this.draft);
    this.#show();
  }

  /** Set through the object model, which the content security policy allows; a style attribute it would not. */
  #grow() {
    this.text.style.height = "auto";
    this.text.style.height = `${this.text.scrollHeight}px`;
  }

  /** @param {KeyboardEvent} event @param {() => void} onEditLast */
  #key(event, onEditLast) {
    if (event.key === "ArrowUp" && !this.text.value && !event.isComposing && !event.shiftKey) {
      event.preventDefault();
      return onEditLast();
    }
    // While an input method composes a word, Enter chooses the word. On a touch keyboard Enter is a new line.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || touch.matches) return;
    event.preventDefault();
    if (!this.send.disabled) this.form.requestSubmit();
  }

  /** What is written from here on is the next message; the draft still holds both, in case this one never arrives. */
  #begin(event) {
    if (this.sending) return event.preventDefault();
    this.sending = true;
    this.sent = this.text.value;
    this.attachments.hold();
    this.text.value = "";
    document.getElementById("problem").replaceChildren();
    this.#show();
  }

  /** @param {boolean} successful @param {string | null} opens the address of the conversation that began with this message */
  #end(successful, opens) {
    const { sent } = this;
    this.sending = false;
    this.sent = "";
    if (successful) {
      this.attachments.clear();
      if (opens) this.#moveTo(opens);
      this.#renewKey();
      if (!touch.matches) this.text.focus(); // on a phone it would bring the keyboard up over the answer
    } else this.text.value = joined(sent, this.text.value);
    this.attachments.release();
    this.#typed();
  }

  /** The page that opens next has what is being written there, and tells how the answer ends. @param {string} address */
  #moveTo(address) {
    localStorage.removeItem(this.draft);
    this.draft = DRAFT + address.split("/").at(-2);
    this.attachments.keepAs(`${this.draft}:files`);
    sessionStorage.setItem(ASKED, "yes");
  }

  /** What waited on the server comes back, above what is being written. @param {string} text @param {string[]} files ids */
  take(text, files) {
    this.text.value = joined(text, this.text.value);
    this.attachments.put(files);
    this.#typed();
    this.text.focus();
  }

  /** The same key for a repeated try makes it the same turn; crypto.randomUUID exists on secure origins only. */
  #renewKey() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    this.form.elements.namedItem("key").value = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }
}

/** @param {string} before @param {string} after */
function joined(before, after) {
  return before && after.trim() ? `${before}\n\n${after}` : before || after;
}

/** Whether this page opened because a message was sent from the page before; true once. */
export function justAsked() {
  const asked = sessionStorage.getItem(ASKED) !== null;
  sessionStorage.removeItem(ASKED);
  return asked;
}

/** Whoever signs out leaves no drafts behind. */
export function forgetDrafts() {
  for (const key of Object.keys(localStorage)) if (key.startsWith(DRAFT)) localStorage.removeItem(key);
}
