/**
 * The composer: the field for a message, the message that waits for the answer, starter messages, and suggestions after
 * an @ or a /.
 *
 * Enter sends, Shift+Enter inserts a new line, Esc stops the answer, and the arrow up in an empty field edits the last
 * message. A message that is sent while an answer is being written waits on the server until the answer is complete. This
 * browser keeps a draft for each conversation until it is sent.
 */
import { discardDraft, isChanged, readDraft, removeDraft, restoreDraft, saveDraft, showRefusal } from "./drafts.js";
import { all, announce, around, find, hasSpeech, need, opensNewTab, parse, say, speechServer } from "./page.js";
import { Attachments } from "./uploads.js";
import { setUpModelChoice } from "./who.js";

const touch = matchMedia("(pointer: coarse)");

/**
 * `onSay`: shows a sentence in the status line; "" removes it. `onSend`: the message is being sent, with the chips of its
 * files. `onUnsent`: it was not stored, and its text is in the field again.
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
    this.usable = !this.send.disabled; // without a model nothing can be sent
    this.fits = true;
    this.whyNot = "";
    this.tell = tell;
    this.said = "";
    if (!this.text.value) this.text.value = readDraft(this.draft) ?? "";
    this.#renewKey();
    this.attachments = new Attachments(this.form, `${this.draft}:files`, () => this.#show());
    const pasted = find(HTMLElement, "#pasted", this.form); // missing for users who may not upload
    this.pasted = pasted && new PastedText(pasted, this.text, this.attachments);
    this.#listen(tell);
    this.#showPlan(find(HTMLElement, "#plan"));
    setUpSuggestions(this.form, this.text);
    offerDictation(this.form, this.text, (text) => this.tell.onSay(text));
    setUpModelChoice(this.form);
    setUpStarters(this.text);
    for (const press of ["click", "auxclick"])
      document.addEventListener(press, ({ target }) =>
        this.#carry(around(HTMLAnchorElement, "[data-reads-all]", target)),
      );
    this.#typed();
  }

  /** Adds the text and the other files to a link to the page that asks a question over a whole file. The text is in the
   * fragment, which has no limit of length and is in no log. @param {HTMLAnchorElement | null} link */
  #carry(link) {
    if (!link || around(Element, "[data-saw]", link)) return; // a link under an answer has the question of the answer
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
    // Chips in the form send requests, too. Only the form's own request sends the message.
    form.addEventListener("htmx:beforeRequest", (event) => event.detail.elt === form && this.#begin(event));
    form.addEventListener("htmx:afterRequest", ({ detail: { elt, xhr } }) => {
      // The status does not tell: sign-in pages of the product or of a network have 200, too.
      if (elt === form) this.#end(isAccepted(xhr), xhr.getResponseHeader("Content-Location"));
    });
  }

  /** Shows the plan. The page has the plan for the form as the server rendered it. @param {HTMLElement | null} plan */
  #showPlan(plan) {
    if (!plan) return;
    plan.hidden = false;
    plan.addEventListener("htmx:afterSwap", () => this.#planned(plan));
    this.#planned(plan);
    // After the load, when htmx listens and the browser has restored the fields.
    addEventListener("load", () => [...this.form.elements].some(isChanged) && announce("planchange"));
  }

  /** Takes over a new plan: sizes of files, and whether the message fits. @param {HTMLElement} plan */
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

  /** Prevents sending while older messages are summarised. @param {boolean} held */
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
    this.text.required = !this.attachments.any; // files can be sent without a text
    this.pasted?.look();
    this.stop.hidden = !this.answering;
    this.send.hidden = this.answering && !written;
    const why = this.#reason();
    // Not `disabled`, since a press shows why nothing can be sent.
    this.send.ariaDisabled = String(why !== null);
    this.send.title = written ? (why ?? "") : "";
    if (this.said && this.said !== why) this.#tell("");
    const label = need(HTMLElement, "span", this.send);
    const words = say(this.answering ? "sendNext" : "send");
    if (label.textContent !== words) label.textContent = words; // only if changed, since each key press would cause a layout of the page
    if (focused && !this.answering) this.text.focus();
  }

  /** Returns why nothing can be sent now: a sentence, or "" if there is nothing to send; null if it can be sent. */
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
    saveDraft(this.draft, joinTexts(this.sent, this.text.value));
    this.#show();
  }

  /** Grows the field. The content security policy allows this, but no style attribute. */
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
    // While an input method composes a word, Enter chooses the word. On a touch keyboard Enter inserts a new line.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || touch.matches) return;
    event.preventDefault();
    const why = this.#reason();
    if (why === null) this.form.requestSubmit();
    else this.#tell(why);
  }

  /** Starts sending. Text that is typed now belongs to the next message; the draft keeps both until the first is stored. @param {Event} event */
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

  /** @param {boolean} successful @param {string | null} opens the address of a conversation that this message started */
  #end(successful, opens) {
    const { sent } = this;
    this.sending = false;
    this.sent = "";
    if (successful) {
      this.attachments.clear();
      if (opens) this.#moveTo(opens);
      this.#renewKey();
      if (!touch.matches) this.text.focus(); // on a phone the keyboard would cover the answer
    } else {
      this.text.value = joinTexts(sent, this.text.value);
      this.tell.onUnsent();
    }
    this.attachments.release();
    this.#typed();
  }

  /** Saves the draft under this conversation from now on. @param {string} address */
  #moveTo(address) {
    removeDraft(this.draft);
    this.draft = address.split("/").at(-2) ?? "";
    this.attachments.keepAs(`${this.draft}:files`);
  }

  /** Inserts a message that waited on the server above the text in the field. @param {string} text @param {string[]} files ids */
  take(text, files) {
    this.text.value = joinTexts(text, this.text.value);
    this.attachments.put(files);
    this.#typed();
    this.text.focus();
  }

  /** Sets a new key. A repeated request with the same key returns the same turn. `crypto.randomUUID` needs a secure origin. */
  #renewKey() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    const key = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    need(HTMLInputElement, "[name=key]", this.form).value = key;
  }
}

// --- a long pasted text can become a file ---

const MAX_NAME_LENGTH = 40; // characters of the text in the file's name

/** Offers to turn a pasted text into a file. The text stays in the field until the file is uploaded. */
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
      if (pasted.length >= least) this.pasted = pasted; // the text is in the field at the next `input`
    });
    need(HTMLButtonElement, "[data-as-file]", offer).addEventListener("click", () => this.#upload());
    need(HTMLButtonElement, "[data-as-text]", offer).addEventListener("click", () => {
      this.#drop();
      text.focus();
    });
  }

  /** Shows the offer while the field contains the unchanged pasted text. */
  look() {
    const offered = Boolean(this.pasted) && this.text.value.includes(this.pasted);
    if (offered === !this.offer.hidden) return;
    if (!offered) return this.#drop();
    this.offer.hidden = false;
    const { content } = need(HTMLTemplateElement, "template", this.offer);
    need(HTMLElement, "p", this.offer).textContent = content.textContent.trim(); // after it is shown, so that screen readers read it
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
      .slice(0, MAX_NAME_LENGTH)
      .trim();
    const file = new File([pasted], `${words || this.offer.dataset.fileName}.txt`, { type: "text/plain" });
    this.#drop();
    text.focus();
    const uploaded = await this.attachments.add(file);
    const start = uploaded ? text.value.indexOf(pasted) : -1;
    if (start < 0) return; // the upload failed, as its chip shows, or the text was sent or changed
    text.setRangeText("", start, start + pasted.length, "end");
    text.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

/** Returns whether the response says that the message is stored. @param {XMLHttpRequest} xhr */
export function isAccepted(xhr) {
  return xhr.status >= 200 && xhr.status < 300 && xhr.getResponseHeader("Message-Accepted") !== null;
}

/** @param {string} before @param {string} after */
function joinTexts(before, after) {
  return before && after.trim() ? `${before}\n\n${after}` : before || after;
}

// --- the message that waits for the answer, above the composer: htmx fills it ---

/** Reloads the waiting message, which may have been sent, removed or replaced. */
export function refreshNext() {
  announce("nextchange");
}

/** @param {(text: string, files: string[]) => void} onEdit called when the server has removed it for editing */
export function watchNextMessage(onEdit) {
  const place = find(HTMLElement, "#next"); // missing before the first message
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

// --- starter messages of a persona: a click writes one into the field ---

/** @param {HTMLTextAreaElement} field */
function setUpStarters(field) {
  let written = "";
  need(HTMLElement, "#messages").addEventListener("click", (event) => {
    const starter = around(HTMLElement, "[data-starter]", event.target);
    if (!starter || opensNewTab(event)) return;
    event.preventDefault();
    // Typed text stays. An unchanged starter is replaced by the next one.
    const own = field.value === written ? "" : field.value;
    written = [own, starter.dataset.starter].filter(Boolean).join("\n");
    field.value = written;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.focus();
  });
}

// --- suggestions after an @ (tasks by code or title, files by name) and after a / at the beginning (prompts) ---

/** @typedef {{name: string, typed: string, behind: string}} Begun a trigger and the text between it and the caret */
const TRIGGERS = [
  { name: "mentions", begun: /(?:^|[^0-9A-Za-z_.])@([^\s@]{0,60})$/u, behind: " " },
  { name: "prompts", begun: /^\/([^\n]{0,60})$/u, behind: "" },
];
const SUGGEST_DELAY = 120; // milliseconds without a key press before the request

/**
 * Sets up the list above the field: arrows select, Enter and Tab insert, Esc closes. The server renders the options. The
 * focus stays in the field.
 *
 * @param {HTMLFormElement} form
 * @param {HTMLTextAreaElement} text
 */
function setUpSuggestions(form, text) {
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
  let closed = null; // the text after the trigger when the user closed the list

  const options = () => all(HTMLElement, "[role=option]", list);

  /** @returns {Begun | null} */
  function findTrigger() {
    const before = text.value.slice(0, text.selectionStart);
    for (const { name, begun: pattern, behind } of TRIGGERS) {
      const found = pattern.exec(before);
      if (found) return { name, typed: found[1], behind };
    }
    return null;
  }

  /** Returns the address of the suggestions. A new conversation has its persona in the form. @param {Begun} begun */
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
    const found = findTrigger();
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
  function take({ dataset: { insert, file, fill, attach, name } }) {
    const found = findTrigger();
    close();
    if (!found) return;
    const end = text.selectionStart;
    const start = end - found.typed.length - 1;
    /** Replaces the trigger and the text after it. @param {string} put */
    const replace = (put) => {
      text.setRangeText(put, start, end, "end");
      text.dispatchEvent(new Event("input", { bubbles: true }));
    };
    if (fill) return void fillPrompt(fill, replace, text);
    replace(insert ? insert + found.behind : "");
    if (file) form.dispatchEvent(new CustomEvent("attachfile", { detail: { id: file } }));
    if (attach)
      form.dispatchEvent(new CustomEvent("attachconversation", { detail: { url: attach, name: name ?? "" } }));
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    const there = options();
    const at = there.findIndex((each) => each.ariaSelected === "true");
    if (event.key === "ArrowDown") choose(there[(at + 1) % there.length]);
    else if (event.key === "ArrowUp") choose(there[(at - 1 + there.length) % there.length]);
    else if ((event.key === "Enter" && !event.shiftKey) || event.key === "Tab") take(there[at]);
    else if (event.key === "Escape") {
      closed = findTrigger()?.typed ?? null;
      close();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  text.addEventListener("input", () => {
    clearTimeout(timer);
    asked += 1; // a response that is under way belongs to an earlier text
    if (!findTrigger()) {
      closed = null;
      return close();
    }
    timer = window.setTimeout(ask, SUGGEST_DELAY);
  });
  text.addEventListener("blur", close);
  list.addEventListener("pointerdown", (event) => event.preventDefault()); // the focus stays in the field
  list.addEventListener("click", ({ target }) => {
    const option = around(HTMLElement, "[role=option]", target);
    if (option) take(option);
  });
  // Captures, since Enter would send the message, and Esc would stop the answer.
  form.addEventListener("keydown", (event) => list.hidden || event.isComposing || key(event), true);
}

// --- prompts with variables: a dialog asks for the values, and remembers the last ones ---

/**
 * @param {string} address
 * @param {(text: string) => void} take called with the filled text
 * @param {HTMLTextAreaElement} back where the focus goes afterwards
 */
async function fillPrompt(address, take, back) {
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
  restoreDraft(form);
  restoreLastValues(key, [...fields, ...choices]);
  /** @type {string | null} */
  let filled = null;
  dialog.addEventListener("close", () => {
    dialog.remove();
    back.focus();
    back.setSelectionRange(caret, caret); // an open dialog loses the caret
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
    if (!sent?.ok) return showRefusal(form, sent && (await sent.text()));
    saveDraft(
      key,
      [...fields, ...choices].map(({ name, value }) => [name, value]),
    );
    discardDraft(form);
    filled = await sent.text();
    dialog.close();
  });
  dialog.showModal();
  fields[0]?.select();
}

/** Fills in the last values, if they are still possible. @param {string} key @param {(HTMLTextAreaElement | HTMLSelectElement)[]} fields */
function restoreLastValues(key, fields) {
  const said = new Map(readDraft(key) ?? []);
  for (const field of fields) {
    const before = said.get(field.name);
    if (typeof before !== "string" || isChanged(field)) continue;
    if (field instanceof HTMLTextAreaElement || [...field.options].some(({ value }) => value === before))
      field.value = before;
  }
}
