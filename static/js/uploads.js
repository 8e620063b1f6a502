/**
 * Uploads with progress, two at a time. Files for the next message are chips under its field. Other files go into the list
 * of a page.
 */
import { readDraft, removeDraft, saveDraft } from "./drafts.js";
import { all, announce, around, find, need, opensNewTab, parse, sentences } from "./page.js";

// --- sending ---

const MAX_UPLOADS = 2;
const WORDS_ID = "file-words";
const sayOfFile = sentences(WORDS_ID);

/**
 * Uploads a file. Uses XMLHttpRequest, since `fetch` does not report the progress of uploads.
 * @param {File} file
 * @param {{url: string, token: string, onProgress: (words: string, share: number) => void}} how `share` is 0 to 1
 * @returns {Promise<string>} the server's HTML; rejected with an Error whose message is a sentence for people
 */
function sendFile(file, { url, token, onProgress }) {
  return new Promise((resolve, reject) => {
    const most = Number(need(HTMLElement, `#${WORDS_ID}`).dataset.most);
    if (file.size > most) return reject(new Error(sayOfFile("tooLarge"))); // the server would abort the upload
    const request = new XMLHttpRequest();
    const form = new FormData();
    form.append("file", file);
    request.upload.addEventListener("progress", ({ lengthComputable, loaded, total }) => {
      if (!lengthComputable) return;
      const percent = Math.floor((100 * loaded) / total);
      onProgress(percent < 100 ? sayOfFile("progress", { percent }) : sayOfFile("storing"), loaded / total);
    });
    request.addEventListener("load", () => {
      if (request.status < 300) resolve(request.responseText);
      else reject(new Error(refusalSentence(request.responseText) || sayOfFile("refused")));
    });
    request.addEventListener("error", () => reject(new Error(sayOfFile("unreachable"))));
    request.open("POST", url);
    request.setRequestHeader("HX-Request", "true"); // errors are fragments, too
    request.setRequestHeader("X-CSRFToken", token);
    request.send(form);
  });
}

/** @param {string} html */
function refusalSentence(html) {
  return parse(html).querySelector(".problem")?.textContent.trim();
}

/** Returns the CSRF token of a form. @param {Element} form */
function csrfToken(form) {
  return need(HTMLInputElement, "[name=csrfmiddlewaretoken]", form).value;
}

/**
 * Returns dropped or pasted files. If the clipboard also has text, as for a copied table, it returns none.
 *
 * @param {DataTransfer | null} transfer
 */
function transferredFiles(transfer) {
  if (!transfer?.files.length || transfer.types.includes("text/plain")) return [];
  return [...transfer.files];
}

/** The element that is highlighted as a drop target. @type {HTMLElement | null} */
let dropTarget = null;

/** @param {HTMLElement | null} place */
function highlight(place) {
  if (dropTarget === place) return;
  dropTarget?.classList.remove("dropping");
  place?.classList.add("dropping");
  dropTarget = place;
}

/**
 * Accepts files that are dropped or pasted anywhere on the page; otherwise the browser would open them in its place. With a
 * zone, accepts only files that are dropped on it.
 *
 * @param {(files: File[]) => void} take
 * @param {HTMLElement} marked
 * @param {HTMLElement | null} [zone]
 */
function acceptFiles(take, marked, zone) {
  const place = zone ?? document.documentElement;
  /** @param {DragEvent} event */
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  place.addEventListener("dragover", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    event.stopPropagation();
    highlight(marked);
  });
  place.addEventListener("dragleave", (event) => event.relatedTarget || highlight(null));
  place.addEventListener("drop", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    event.stopPropagation();
    highlight(null);
    take([...(event.dataTransfer?.files ?? [])]);
  });
  if (zone) return;
  document.addEventListener("paste", (event) => {
    const files = transferredFiles(event.clipboardData);
    if (!files.length) return;
    event.preventDefault();
    take(files);
  });
}

let running = 0;
/** @type {(() => Promise<void>)[]} */
const waiting = [];

/** Adds an upload. Two run at a time. @param {() => Promise<void>} job */
function enqueueJob(job) {
  waiting.push(job);
  startNext();
}

function startNext() {
  const job = running < MAX_UPLOADS && waiting.shift();
  if (!job) return;
  running += 1;
  job().finally(() => {
    running -= 1;
    startNext();
  });
}

/** Returns a button that removes the message about a file. @returns {HTMLButtonElement} */
function dismissButton() {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = sayOfFile("dismiss");
  return button;
}

// --- files for the next message ---

const NIL = "00000000-0000-0000-0000-000000000000"; // placeholder for the id in the address of a chip

/**
 * The files of the next message. The server renders their chips, which refresh themselves until the files are read. The
 * form sends the hidden inputs in the chips. This browser keeps the ids until then.
 */
export class Attachments {
  /**
   * @param {HTMLFormElement} form
   * @param {string} kept the name of the draft that keeps the ids
   * @param {() => void} onChange called when a chip is added, removed or changes its state
   */
  constructor(form, kept, onChange) {
    this.form = form;
    this.kept = kept;
    this.chips = need(HTMLElement, "#chips", form);
    /** @type {Element[]} the chips of the message that is being sent */
    this.going = [];
    const field = need(HTMLInputElement, "#attach-files", form);
    need(HTMLElement, "#attach", form).hidden = false;
    this.picker = new Picker(form, { onUpload: () => field.click(), onChoose: (id) => this.#add(id) });
    field.addEventListener("change", () => {
      this.#take([...(field.files ?? [])]);
      field.value = "";
    });
    acceptFiles((files) => this.#take(files), form);
    form.addEventListener("attachfile", ({ detail }) => this.#add(detail.id));
    form.addEventListener("attachconversation", ({ detail }) => this.#addConversation(detail.url, detail.name));
    this.chips.addEventListener("click", ({ target }) => {
      if (!around(Element, "[data-remove-chip]", target)) return;
      around(Element, ".chip", target)?.remove();
      need(HTMLElement, "textarea", form).focus();
    });
    let sent = this.#ids();
    new MutationObserver(() => {
      onChange();
      this.#keep();
      const now = this.#ids();
      if (now === sent) return;
      sent = now;
      announce("planchange");
      this.picker.refresh();
    }).observe(this.chips, { childList: true, subtree: true, attributeFilter: ["data-status"] });
    this.put((readDraft(kept) ?? "").split(" ").filter(Boolean));
    this.#keep();
  }

  /** Whether all files can be sent. Other chips show their problems. */
  get ready() {
    return all(HTMLElement, ".chip", this.chips).every((chip) => chip.dataset.status === "ready");
  }

  get any() {
    return this.chips.querySelector(".chip") !== null;
  }

  get whyNot() {
    return sayOfFile(this.chips.querySelector('[data-status="failed"], [data-status="too_long"]') ? "unfit" : "unread");
  }

  /** @param {string[]} ids of files that are on the server */
  put(ids) {
    for (const id of ids) this.#add(id);
  }

  /** Assigns the present files to the message that is being sent. Files that are added later belong to the next one. */
  hold() {
    this.going = [...this.chips.children];
  }

  /** Returns the files of a message that was not sent. */
  release() {
    this.going = [];
  }

  /** Removes the files of a message that was sent. */
  clear() {
    for (const chip of this.going) chip.remove();
    this.#keep(); // at once, since the observer runs too late if the page is left
  }

  /** @param {string} kept the new name of the draft that keeps the ids */
  keepAs(kept) {
    removeDraft(this.kept);
    this.kept = kept;
    this.#keep();
  }

  #keep() {
    const ids = all(Element, '[id^="chip-"]', this.chips).map((chip) => chip.id.slice("chip-".length));
    saveDraft(this.kept, ids.join(" "));
  }

  #ids() {
    return all(HTMLInputElement, "input[type=hidden]", this.chips)
      .map((input) => input.name + input.value)
      .join();
  }

  /** @param {File[]} files */
  #take(files) {
    for (const file of files) this.add(file);
  }

  /** @param {File} file @returns {Promise<boolean>} whether it was uploaded and belongs to the message */
  add(file) {
    const { chip, word } = this.#placeholder(file.name);
    return new Promise((resolve) => enqueueJob(async () => resolve(await this.#upload(file, chip, word))));
  }

  /** @param {string} text */
  #placeholder(text) {
    const chip = document.createElement("li");
    const name = document.createElement("span");
    const word = document.createElement("span");
    chip.className = "chip";
    chip.dataset.status = "sending";
    name.className = "chip-name";
    name.textContent = text;
    word.className = "muted";
    chip.append(name, word);
    this.chips.append(chip);
    return { chip, word };
  }

  /** Adds a chip for a file on the server. The chip of a deleted file disappears. @param {string} id */
  async #add(id) {
    if (document.getElementById(`chip-${id}`)) return;
    const { chip, word } = this.#placeholder("…");
    chip.id = `chip-${id}`;
    const address = this.chips.dataset.chipUrl?.replace(NIL, id) ?? "";
    const response = await fetch(address).catch(() => null);
    if (!chip.isConnected) return;
    if (response?.ok) this.#arrived(chip, await response.text());
    else if (response?.status === 404) chip.remove();
    else this.#failed(chip, word, sayOfFile("unloaded"));
  }

  /** The server makes a file of it, as much as the message may carry. @param {string} url @param {string} name */
  async #addConversation(url, name) {
    const { chip, word } = this.#placeholder(name);
    const body = new FormData(this.form);
    const { conversation } = need(HTMLElement, "main").dataset;
    if (conversation) body.set("conversation", conversation);
    const headers = { "HX-Request": "true", "X-CSRFToken": csrfToken(this.form) };
    const response = await fetch(url, { method: "POST", body, headers }).catch(() => null);
    const html = (await response?.text()) ?? "";
    if (!chip.isConnected) return;
    if (response?.ok) this.#arrived(chip, html);
    else this.#failed(chip, word, refusalSentence(html) || sayOfFile("unloaded"));
  }

  /** @param {HTMLElement} chip what stands in for it @param {string} html */
  #arrived(chip, html) {
    const made = need(HTMLElement, ".chip", parse(`<ul>${html}</ul>`));
    const same = document.getElementById(made.id);
    if (same && same !== chip) return chip.remove();
    chip.replaceWith(made);
    htmx.process(made);
  }

  /** @param {File} file @param {HTMLElement} chip @param {HTMLElement} word @returns {Promise<boolean>} */
  async #upload(file, chip, word) {
    if (!chip.isConnected) return false;
    /** @param {string} words */
    const onProgress = (words) => (word.textContent = words);
    try {
      const url = this.chips.dataset.uploadUrl ?? "";
      const html = await sendFile(file, { url, token: csrfToken(this.form), onProgress });
      if (!chip.isConnected) return false; // the chip was sent or removed; the file stays in the user's files
      this.#arrived(chip, html);
      return true;
    } catch (error) {
      this.#failed(chip, word, error instanceof Error ? error.message : String(error));
      return false;
    }
  }

  /** @param {HTMLElement} chip @param {HTMLElement} word @param {string} reason */
  #failed(chip, word, reason) {
    word.remove();
    chip.dataset.status = "failed";
    const why = document.createElement("span");
    why.className = "why";
    why.role = "alert";
    why.textContent = reason;
    const button = dismissButton();
    button.dataset.removeChip = "";
    chip.append(button, why);
  }
}

/** The menu of the ＋, and the sheet that offers uploaded files. htmx fills the sheet. */
class Picker {
  /**
   * @param {HTMLFormElement} form
   * @param {{onUpload: () => void, onChoose: (id: string) => void}} tell
   */
  constructor(form, { onUpload, onChoose }) {
    const menu = need(HTMLElement, "#attach-menu", form);
    need(HTMLElement, "#attach-upload", menu).addEventListener("click", () => {
      menu.hidePopover();
      onUpload();
    });
    this.sheet = find(HTMLElement, "#picker");
    this.field = find(HTMLInputElement, "#picker-search", this.sheet);
    if (this.sheet) this.#open(this.sheet, menu, onChoose); // without a model there is no sheet
  }

  /** Reloads the sheet after a change of the chosen files, since it shows which files still fit. */
  refresh() {
    if (this.field && this.sheet?.matches(":popover-open")) htmx.trigger(this.field, "refresh");
  }

  /** @param {HTMLElement} sheet @param {HTMLElement} menu @param {(id: string) => void} onChoose */
  #open(sheet, menu, onChoose) {
    need(HTMLElement, "#attach-pick", menu).addEventListener("click", () => {
      menu.hidePopover(); // before the sheet, so that the focus returns to the ＋ later
      sheet.showPopover();
    });
    sheet.addEventListener("toggle", ({ newState }) => {
      if (newState === "open") this.refresh();
      else this.#empty(sheet);
    });
    sheet.addEventListener("click", ({ target }) => {
      const { choose } = around(HTMLElement, "[data-choose]", target)?.dataset ?? {};
      if (!choose) return;
      onChoose(choose);
      this.field?.focus(); // the button is about to be disabled
    });
  }

  /** Empties a closed sheet, so that its rows send no requests. @param {HTMLElement} sheet */
  #empty(sheet) {
    if (this.field) this.field.value = "";
    need(HTMLElement, "#picks", sheet).replaceChildren();
  }
}

// --- files for the list of the page ---

/** @param {HTMLFormElement} form */
function setUpUploads(form) {
  const field = need(HTMLInputElement, "input[type=file]", form);
  /** @param {File[]} files */
  const take = (files) => {
    for (const file of files) enqueueUpload(form, file);
  };
  for (const each of all(HTMLElement, "[data-without-scripts]", form)) each.hidden = true;
  for (const each of all(HTMLElement, "[data-with-scripts]", form)) each.hidden = false;
  field.addEventListener("change", () => {
    take([...(field.files ?? [])]);
    field.value = "";
  });
  field.classList.add("visually-hidden"); // its label is the button; the keyboard still reaches it
  acceptFiles(take, form, form.closest("[data-drop-zone]"));
}

/** @param {HTMLFormElement} form @param {File} file */
function enqueueUpload(form, file) {
  const line = document.createElement("li");
  const name = document.createElement("span");
  const bar = document.createElement("progress");
  const word = document.createElement("span");
  name.textContent = file.name;
  name.className = "upload-name";
  bar.max = 1;
  bar.setAttribute("aria-label", file.name);
  line.append(name, bar, word);
  need(HTMLElement, "#uploads").append(line);
  enqueueJob(() => upload(form, file, { line, bar, word }));
}

/**
 * @param {HTMLFormElement} form
 * @param {File} file
 * @param {{line: HTMLElement, bar: HTMLProgressElement, word: HTMLElement}} shown the elements that show its progress
 */
async function upload(form, file, { line, bar, word }) {
  /** @param {string} words @param {number} share */
  const onProgress = (words, share) => {
    word.textContent = words;
    bar.value = share;
  };
  try {
    const html = await sendFile(file, { url: form.getAttribute("action") ?? "", token: csrfToken(form), onProgress });
    const repeated = find(HTMLElement, "[data-repeated]", parse(`<ul>${html}</ul>`));
    if (repeated) showDismissible(line, bar, word, repeated.textContent);
    else line.remove();
    htmx.trigger(form.dataset.refresh ?? "", "refresh");
  } catch (error) {
    line.className = "problem";
    showDismissible(line, bar, word, error instanceof Error ? error.message : sayOfFile("refused"));
  }
}

/** @param {HTMLElement} line @param {HTMLProgressElement} bar @param {HTMLElement} word @param {string} text */
function showDismissible(line, bar, word, text) {
  bar.remove();
  word.textContent = text;
  const button = dismissButton();
  button.addEventListener("click", () => line.remove());
  line.append(button);
}

// --- the large view of pictures ---

document.addEventListener("click", (event) => {
  const link = around(HTMLAnchorElement, "[data-lightbox]", event.target);
  const dialog = find(HTMLDialogElement, "#lightbox");
  if (!link || !dialog || opensNewTab(event)) return;
  event.preventDefault();
  const picture = need(HTMLImageElement, "img", dialog);
  picture.src = link.href;
  picture.alt = link.closest("li")?.querySelector(".chip-name")?.textContent?.trim() ?? "";
  dialog.showModal();
});
document.addEventListener("click", ({ target }) => {
  const dialog = around(HTMLDialogElement, "#lightbox", target);
  if (dialog && !around(Element, "img", target)) dialog.close();
});

const uploads = find(HTMLFormElement, "[data-upload]");
if (uploads) setUpUploads(uploads);
