/**
 * The field in which a message is written, the message that waits for the answer, starter messages, and what may be
 * meant by an @ or a /.
 *
 * Enter sends, Shift+Enter is a new line, Esc stops the answer, and the arrow up takes back the last message to edit it,
 * as long as nothing is written. What is sent while an answer is being written waits on the server until that is
 * complete. A draft is kept per conversation, in this browser, until it is sent.
 */
import { draftOf, dropDraft, forget, isWritten, keepDraft, refuse, restore } from "./drafts.js";
import { all, announce, around, find, hasSpeech, need, opensElsewhere, parse, say, speechServer } from "./page.js";
import { Attachments } from "./uploads.js";
import { whoAnswers } from "./who.js";

const touch = matchMedia("(pointer: coarse)");

/**
 * `onSay`: a sentence for the status line, or "" when it no longer holds. `onSend`: the message is on its way, with the
 * chips of its files. `onUnsent`: it did not arrive, and is in the field again.
 *
 * @typedef {{onStop: () => void, onEditLast: () => void, onSay: (text: string) => void,
 *   onSend: (text: string, chips: Element[]) => void, onUnsent: () => void}} Tell
 */

/**
 * The button is shown where the browser, or a server of the workspace, turns speech into text.
 * @param {HTMLFormElement} form @param {HTMLTextAreaElement} text @param {(text: string) => void} tell
 */
function offerDictation(form, text, tell) {
  const button = need(HTMLButtonElement, "#dictate", form);
  button.hidden = !hasSpeech("transcriptions");
  if (speechServer("transcriptions")) button.title = button.dataset.byServer ?? "";
  button.addEventListener("click", async () => {
    const { dictate } = await import("./speech.js");
    dictate(button, text, tell);
  });
}

export class Composer {
  /**
   * @param {string} conversation its id, or "" for one that does not exist yet
   * @param {Tell} tell
   */
  constructor(conversation, tell) {
    this.form = need(HTMLFormElement, "#composer");
    this.text = need(HTMLTextAreaElement, "textarea", this.form);
    this.send = need(HTMLButtonElement, "#send", this.form);
    this.stop = need(HTMLButtonElement, "#stop", this.form);
    this.draft = conversation || "new";
    this.sending = false;
    this.sent = "";
    this.answering = false;
    this.held = false;
    this.usable = !this.send.disabled; // without a model there is nothing to send to
    this.fits = true;
    this.whyNot = "";
    this.tell = tell;
    this.said = "";
    if (!this.text.value) this.text.value = draftOf(this.draft) ?? "";
    this.#renewKey();
    this.attachments = new Attachments(this.form, `${this.draft}:files`, () => this.#show());
    const pasted = find(HTMLElement, "#pasted", this.form); // not there for those who may not upload
    this.pasted = pasted && new PastedText(pasted, this.text, this.attachments);
    this.#listen(tell);
    this.#showPlan(find(HTMLElement, "#plan"));
    offerMeant(this.form, this.text);
    offerDictation(this.form, this.text, (text) => this.tell.onSay(text));
    whoAnswers(this.form);
    takeStarters(this.text);
    for (const press of ["click", "auxclick"])
      document.addEventListener(press, ({ target }) =>
        this.#carry(around(HTMLAnchorElement, "[data-reads-all]", target)),
      );
    this.#typed();
  }

  /** What is written goes along, with the other files, to the page on which it is asked over all of a file, behind the # where no length is
   * too much and no log has it. @param {HTMLAnchorElement | null} link */
  #carry(link) {
    if (!link || around(Element, "[data-saw]", link)) return; // under an answer the question is that of the answer
    const address = new URL(link.href);
    const { conversation } = need(HTMLElement, "main").dataset;
    if (conversation) address.searchParams.set("conversation", conversation);
    address.searchParams.delete("with");
    for (const { value } of all(HTMLInputElement, "#composer [name=files]"))
      if (!address.pathname.includes(value)) address.searchParams.append("with", value);
    address.hash = this.text.value.trim() ? `question=${encodeURIComponent(this.text.value)}` : "";
    link.href = address.href;
  }

  /** @param {Tell} tell */
  #listen({ onStop, onEditLast }) {
    const { form } = this;
    this.text.addEventListener("input", () => this.#typed());
    this.text.addEventListener("keydown", (event) => this.#key(event, onEditLast));
    this.stop.addEventListener("click", () => onStop());
    // The chips in the form ask for their state; only the form's own request sends the message.
    form.addEventListener("htmx:beforeRequest", (event) => event.detail.elt === form && this.#begin(event));
    form.addEventListener("htmx:afterRequest", ({ detail: { elt, xhr } }) => {
      // Not by the status: a sign-in page, or that of a network before the server, comes with 200, too.
      if (elt === form) this.#end(isAccepted(xhr), xhr.getResponseHeader("Content-Location"));
    });
  }

  /** The page came with the plan of what the server wrote into the form. @param {HTMLElement | null} plan */
  #showPlan(plan) {
    if (!plan) return;
    plan.hidden = false;
    plan.addEventListener("htmx:afterSwap", () => this.#planned(plan));
    this.#planned(plan);
    // By then htmx listens, and what the browser restores is there.
    addEventListener("load", () => [...this.form.elements].some(isWritten) && announce("planchange"));
  }

  /** What does not fit cannot be sent; the line under the field says why. @param {HTMLElement} plan */
  #planned(plan) {
    const line = find(HTMLElement, "[data-fits]", plan);
    for (const size of all(HTMLElement, "[data-size-of]", plan)) {
      const place = find(HTMLElement, `#chip-${size.dataset.sizeOf} [data-size]`);
      place?.replaceChildren(...size.childNodes);
    }
    this.fits = line?.dataset.fits !== "false";
    this.whyNot = this.fits ? "" : (line?.textContent.trim() ?? "");
    this.#show();
  }

  /** The name of the model that will answer. */
  get answerer() {
    return find(HTMLInputElement, "input[name=model]:checked", this.form)?.dataset.name ?? "";
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
    const written = Boolean(this.text.value.trim()) || this.attachments.any;
    this.text.required = !this.attachments.any; // files can go without a word
    this.pasted?.look();
    this.stop.hidden = !this.answering;
    this.send.hidden = this.answering && !written;
    const why = this.#reason();
    // Not `disabled`: who presses it is told why nothing is sent.
    this.send.ariaDisabled = String(why !== null);
    this.send.title = written ? (why ?? "") : "";
    if (this.said && this.said !== why) this.#tell("");
    const label = need(HTMLElement, "span", this.send);
    const words = say(this.answering ? "sendNext" : "send");
    if (label.textContent !== words) label.textContent = words; // with every key, which a long page would have to look at
    if (focused && !this.answering) this.text.focus();
  }

  /** Why nothing can be sent now, as a sentence, "" where there is nothing to say; null when it can. */
  #reason() {
    if (!this.usable) return say("noModel");
    if (this.sending) return say("sending");
    if (this.held) return say("summarising");
    if (!this.attachments.ready) return this.attachments.whyNot;
    if (!this.text.value.trim() && !this.attachments.any) return "";
    return this.fits ? null : this.whyNot;
  }

  /** @param {string} text */
  #tell(text) {
    this.said = text;
    this.tell.onSay(text);
  }

  #typed() {
    if (!CSS.supports("field-sizing", "content")) this.#grow();
    keepDraft(this.draft, joined(this.sent, this.text.value));
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
    const why = this.#reason();
    if (why === null) this.form.requestSubmit();
    else this.#tell(why);
  }

  /** What is written from here on is the next message; the draft holds both, in case this one never arrives. @param {Event} event */
  #begin(event) {
    const why = this.#reason();
    if (why !== null) {
      event.preventDefault();
      return this.#tell(why);
    }
    this.sending = true;
    this.sent = this.text.value;
    this.attachments.hold();
    this.text.value = "";
    need(HTMLElement, "#problem").replaceChildren();
    this.tell.onSend(this.sent, this.attachments.going);
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
    } else {
      this.text.value = joined(sent, this.text.value);
      this.tell.onUnsent();
    }
    this.attachments.release();
    this.#typed();
  }

  /** What is being written is a draft of that conversation from here on. @param {string} address */
  #moveTo(address) {
    dropDraft(this.draft);
    this.draft = address.split("/").at(-2) ?? "";
    this.attachments.keepAs(`${this.draft}:files`);
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
    const key = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    need(HTMLInputElement, "[name=key]", this.form).value = key;
  }
}

// --- a long text that is pasted can become a file ---

const LONGEST_NAME = 40; // characters of the text that name its file

/** The text stays in the field until its file is on the server, so that nothing is lost on the way. */
class PastedText {
  /** @param {HTMLElement} offer @param {HTMLTextAreaElement} text @param {Attachments} attachments */
  constructor(offer, text, attachments) {
    this.offer = offer;
    this.text = text;
    this.attachments = attachments;
    this.pasted = "";
    const least = Number(offer.dataset.least);
    text.addEventListener("paste", ({ clipboardData }) => {
      const pasted = (clipboardData?.getData("text/plain") ?? "").replaceAll("\r\n", "\n");
      if (pasted.length >= least) this.pasted = pasted; // it is in the field with the next `input`
    });
    need(HTMLButtonElement, "[data-as-file]", offer).addEventListener("click", () => this.#upload());
    need(HTMLButtonElement, "[data-as-text]", offer).addEventListener("click", () => {
      this.#drop();
      text.focus();
    });
  }

  /** Offers it as long as the field has the text as it was pasted. */
  look() {
    const offered = Boolean(this.pasted) && this.text.value.includes(this.pasted);
    if (offered === !this.offer.hidden) return;
    if (!offered) return this.#drop();
    this.offer.hidden = false;
    const { content } = need(HTMLTemplateElement, "template", this.offer);
    need(HTMLElement, "p", this.offer).textContent = content.textContent.trim(); // once it shows, so that it is read out
  }

  #drop() {
    this.pasted = "";
    this.offer.hidden = true;
    need(HTMLElement, "p", this.offer).textContent = "";
  }

  async #upload() {
    const { pasted, text } = this;
    const words = pasted
      .slice(0, 200)
      .replace(/[^\p{L}\p{N}-]+/gu, " ")
      .trim()
      .slice(0, LONGEST_NAME)
      .trim();
    const file = new File([pasted], `${words || this.offer.dataset.fileName}.txt`, { type: "text/plain" });
    this.#drop();
    text.focus();
    const uploaded = await this.attachments.add(file);
    const start = uploaded ? text.value.indexOf(pasted) : -1;
    if (start < 0) return; // its chip says why, and the text is still in the field; or it was sent or rewritten
    text.setRangeText("", start, start + pasted.length, "end");
    text.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

/** Whether what the server answers says that the message is stored. @param {XMLHttpRequest} xhr */
export function isAccepted(xhr) {
  return xhr.status >= 200 && xhr.status < 300 && xhr.getResponseHeader("Message-Accepted") !== null;
}

/** @param {string} before @param {string} after */
function joined(before, after) {
  return before && after.trim() ? `${before}\n\n${after}` : before || after;
}

// --- the message that waits for the answer, above the composer: htmx fills it ---

/** Has it looked at again: it was sent, removed, or is another one by now. */
export function refreshNext() {
  announce("nextchange");
}

/** @param {(text: string, files: string[]) => void} onEdit the server has given it up, so it is the composer's now */
export function editNext(onEdit) {
  const place = find(HTMLElement, "#next"); // not there before there is a conversation
  let text = "";
  /** @type {string[]} */
  let files = [];
  place?.addEventListener("htmx:beforeRequest", ({ detail }) => {
    if (!isEdit(detail)) return;
    text = need(HTMLElement, "[data-next] [data-text]", place).textContent;
    files = (need(HTMLElement, "[data-next]", place).dataset.files ?? "").split(" ").filter(Boolean);
  });
  place?.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (isEdit(detail) && detail.xhr.status < 300) onEdit(text, files);
    else if (detail.xhr.status === 404) refreshNext();
  });
}

/** @param {HtmxRequest} request */
function isEdit({ requestConfig }) {
  return requestConfig.elt.matches("[data-edit-next]");
}

// --- starter messages of a persona: a click writes one into the field instead of loading the page again ---

/** @param {HTMLTextAreaElement} field */
function takeStarters(field) {
  let written = "";
  need(HTMLElement, "#messages").addEventListener("click", (event) => {
    const starter = around(HTMLElement, "[data-starter]", event.target);
    if (!starter || opensElsewhere(event)) return;
    event.preventDefault();
    // What a person has typed stays; a starter that was only being looked at makes place for the next.
    const own = field.value === written ? "" : field.value;
    written = [own, starter.dataset.starter].filter(Boolean).join("\n");
    field.value = written;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.focus();
  });
}

// --- what may be meant by an @ (tasks by code or title, files by name) and by a / at the beginning (prompts) ---

/** @typedef {{name: string, typed: string, behind: string}} Begun a sign and what stands behind it, as far as the caret */
const SIGNS = [
  { name: "mentions", begun: /(?:^|[^0-9A-Za-z_.])@([^\s@]{0,60})$/u, behind: " " },
  { name: "prompts", begun: /^\/([^\n]{0,60})$/u, behind: "" },
];
const WAIT = 120; // milliseconds without a key before the server is asked

/**
 * A list above the field: arrows choose, Enter and Tab take, Esc closes. The server renders the options; the focus stays
 * in the field.
 *
 * @param {HTMLFormElement} form
 * @param {HTMLTextAreaElement} text
 */
function offerMeant(form, text) {
  const list = document.createElement("ul");
  list.id = "mentions";
  list.className = "mentions";
  list.role = "listbox";
  list.hidden = true;
  const said = document.createElement("p");
  said.className = "visually-hidden";
  said.role = "status";
  form.prepend(list, said);
  text.setAttribute("aria-autocomplete", "list");
  text.setAttribute("aria-controls", list.id);
  let timer = 0;
  let asked = 0;
  /** @type {string | null} */
  let closed = null; // what stood behind the sign when somebody closed the list

  const options = () => all(HTMLElement, "[role=option]", list);

  /** @returns {Begun | null} */
  function begun() {
    const before = text.value.slice(0, text.selectionStart);
    for (const { name, begun: pattern, behind } of SIGNS) {
      const found = pattern.exec(before);
      if (found) return { name, typed: found[1], behind };
    }
    return null;
  }

  /** A conversation that does not exist yet has its persona in the form. @param {Begun} begun */
  function address({ name, typed }) {
    const persona = find(HTMLSelectElement, "[name=persona]", form)?.value ?? "";
    const project = find(HTMLInputElement, "[name=project]", form)?.value ?? "";
    return `${form.dataset[`${name}Url`]}?${new URLSearchParams({ q: typed, persona, project })}`;
  }

  function close() {
    list.hidden = true;
    said.textContent = "";
    text.removeAttribute("aria-activedescendant");
  }

  /** @param {HTMLElement | undefined} option */
  function choose(option) {
    for (const each of options()) each.ariaSelected = String(each === option);
    if (!option) return;
    text.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  }

  async function ask() {
    const found = begun();
    const number = ++asked;
    if (!found || found.typed === closed) return close();
    const response = await fetch(address(found)).catch(() => null);
    if (!response?.ok || number !== asked) return;
    const shown = all(HTMLElement, "[role=option]", parse(`<ul>${await response.text()}</ul>`));
    if (number !== asked || !shown.length || document.activeElement !== text) return close();
    list.setAttribute("aria-label", form.dataset[`${found.name}Label`] ?? "");
    list.replaceChildren(...shown);
    list.hidden = false;
    said.textContent = form.dataset.mentionsCount?.replace("{count}", String(shown.length)) ?? "";
    choose(options()[0]);
  }

  /** @param {HTMLElement} option */
  function take({ dataset: { insert, file, fill } }) {
    const found = begun();
    close();
    if (!found) return;
    const end = text.selectionStart;
    const start = end - found.typed.length - 1;
    /** In the place of the sign and of what is typed behind it. @param {string} put */
    const replace = (put) => {
      text.setRangeText(put, start, end, "end");
      text.dispatchEvent(new Event("input", { bubbles: true }));
    };
    if (fill) return void askFor(fill, replace, text);
    replace(insert ? insert + found.behind : "");
    if (file) form.dispatchEvent(new CustomEvent("attachfile", { detail: { id: file } }));
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    const there = options();
    const at = there.findIndex((each) => each.ariaSelected === "true");
    if (event.key === "ArrowDown") choose(there[(at + 1) % there.length]);
    else if (event.key === "ArrowUp") choose(there[(at - 1 + there.length) % there.length]);
    else if ((event.key === "Enter" && !event.shiftKey) || event.key === "Tab") take(there[at]);
    else if (event.key === "Escape") {
      closed = begun()?.typed ?? null;
      close();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  text.addEventListener("input", () => {
    clearTimeout(timer);
    asked += 1; // an answer that is on its way is about what stood there before
    if (!begun()) {
      closed = null;
      return close();
    }
    timer = window.setTimeout(ask, WAIT);
  });
  text.addEventListener("blur", close);
  list.addEventListener("pointerdown", (event) => event.preventDefault()); // the focus stays in the field
  list.addEventListener("click", ({ target }) => {
    const option = around(HTMLElement, "[role=option]", target);
    if (option) take(option);
  });
  // Before the composer, for which Enter sends, and before the page, for which Esc stops the answer.
  form.addEventListener("keydown", (event) => list.hidden || event.isComposing || key(event), true);
}

// --- a prompt that leaves something open: a dialog asks for it, and remembers what was said last ---

/**
 * @param {string} address
 * @param {(text: string) => void} take the text with everything that was asked for
 * @param {HTMLTextAreaElement} back where the focus goes afterwards
 */
async function askFor(address, take, back) {
  const headers = { "HX-Request": "true" };
  const caret = back.selectionStart;
  const response = await fetch(address, { headers }).catch(() => null);
  if (!response?.ok) return void back.focus();
  const dialog = need(HTMLDialogElement, "dialog", parse(await response.text()));
  const form = need(HTMLFormElement, "form", dialog);
  const key = `prompt:${form.dataset.fillForm}`;
  const fields = all(HTMLTextAreaElement, "textarea", form);
  const choices = all(HTMLSelectElement, "select", form);
  document.body.append(dialog);
  restore(form);
  recall(key, [...fields, ...choices]);
  /** @type {string | null} */
  let filled = null;
  dialog.addEventListener("close", () => {
    dialog.remove();
    back.focus();
    back.setSelectionRange(caret, caret); // the browser does not keep it while a dialog is open
    if (filled !== null) take(filled);
  });
  dialog.addEventListener("click", ({ target }) => {
    if (target === dialog || around(Element, "[data-close-fill]", target)) dialog.close();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || touch.matches) return;
    if (!around(HTMLTextAreaElement, "textarea", event.target)) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = new FormData(form);
    const sent = await fetch(address, { method: "POST", body, headers }).catch(() => null);
    if (!sent?.ok) return refuse(form, sent && (await sent.text()));
    keepDraft(
      key,
      [...fields, ...choices].map(({ name, value }) => [name, value]),
    );
    forget(form);
    filled = await sent.text();
    dialog.close();
  });
  dialog.showModal();
  fields[0]?.select();
}

/** What was said the last time, as far as it can be said again. @param {string} key @param {(HTMLTextAreaElement | HTMLSelectElement)[]} fields */
function recall(key, fields) {
  const said = new Map(draftOf(key) ?? []);
  for (const field of fields) {
    const before = said.get(field.name);
    if (typeof before !== "string" || isWritten(field)) continue;
    if (field instanceof HTMLTextAreaElement || [...field.options].some(({ value }) => value === before))
      field.value = before;
  }
}
