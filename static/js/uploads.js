/**
 * Files on their way: sent with progress, two at a time. Some go with the next message, as chips under its field. Others
 * go into the list of a page.
 */
import { draftOf, dropDraft, keepDraft } from "./drafts.js";
import { all, announce, around, find, need, opensElsewhere, parse, sentences } from "./page.js";

// --- sending ---

const AT_ONCE = 2;
const WORDS = "file-words";
const sayOfFile = sentences(WORDS);

/**
 * fetch cannot tell the progress of what it sends, so this is an XMLHttpRequest.
 * @param {File} file
 * @param {{url: string, token: string, onProgress: (words: string, share: number) => void}} how `share` is 0 to 1
 * @returns {Promise<string>} the server's HTML; rejected with an Error whose message is a sentence for people
 */
function send(file, { url, token, onProgress }) {
  return new Promise((resolve, reject) => {
    const most = Number(need(HTMLElement, `#${WORDS}`).dataset.most);
    if (file.size > most) return reject(new Error(sayOfFile("tooLarge"))); // the server would break off in the middle
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
      else reject(new Error(sentence(request.responseText) || sayOfFile("refused")));
    });
    request.addEventListener("error", () => reject(new Error(sayOfFile("unreachable"))));
    request.open("POST", url);
    request.setRequestHeader("HX-Request", "true"); // a fragment, please, for what is refused as well
    request.setRequestHeader("X-CSRFToken", token);
    request.send(form);
  });
}

/** @param {string} html */
function sentence(html) {
  return parse(html).querySelector(".problem")?.textContent.trim();
}

/** What a form proves itself with. @param {Element} form */
function tokenOf(form) {
  return need(HTMLInputElement, "[name=csrfmiddlewaretoken]", form).value;
}

/**
 * Files dropped or pasted. Text that is on the clipboard beside a picture of itself, as from a table, goes first.
 *
 * @param {DataTransfer | null} transfer
 */
function filesOf(transfer) {
  if (!transfer?.files.length || transfer.types.includes("text/plain")) return [];
  return [...transfer.files];
}

/** What says that files may be dropped on it. @type {HTMLElement | null} */
let lit = null;

/** @param {HTMLElement | null} place */
function light(place) {
  if (lit === place) return;
  lit?.classList.remove("dropping");
  place?.classList.add("dropping");
  lit = place;
}

/**
 * Files dropped or pasted anywhere on the page; without this a browser would leave the page and open them. A zone takes
 * only what is dropped on it.
 *
 * @param {(files: File[]) => void} take
 * @param {HTMLElement} marked
 * @param {HTMLElement | null} [zone]
 */
function catchFiles(take, marked, zone) {
  const place = zone ?? document.documentElement;
  /** @param {DragEvent} event */
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  place.addEventListener("dragover", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    event.stopPropagation();
    light(marked);
  });
  place.addEventListener("dragleave", (event) => event.relatedTarget || light(null));
  place.addEventListener("drop", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    event.stopPropagation();
    light(null);
    take([...(event.dataTransfer?.files ?? [])]);
  });
  if (zone) return;
  document.addEventListener("paste", (event) => {
    const files = filesOf(event.clipboardData);
    if (!files.length) return;
    event.preventDefault();
    take(files);
  });
}

let running = 0;
/** @type {(() => Promise<void>)[]} */
const waiting = [];

/** Uploads run two at a time. @param {() => Promise<void>} job */
function queue(job) {
  waiting.push(job);
  next();
}

function next() {
  const job = running < AT_ONCE && waiting.shift();
  if (!job) return;
  running += 1;
  job().finally(() => {
    running -= 1;
    next();
  });
}

/** A button that takes away what was said of a file. @returns {HTMLButtonElement} */
function dismissal() {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = sayOfFile("dismiss");
  return button;
}

// --- what goes with the next message ---

const NIL = "00000000-0000-0000-0000-000000000000"; // stands for the id in the address of a chip

/**
 * The server renders a chip; it refreshes itself until the file is read. The hidden inputs inside are what the form
 * sends. This browser keeps the ids until then.
 */
export class Attachments {
  /**
   * @param {HTMLFormElement} form
   * @param {string} kept the name under which the ids are kept
   * @param {() => void} onChange a chip came, went or has another state
   */
  constructor(form, kept, onChange) {
    this.form = form;
    this.kept = kept;
    this.chips = need(HTMLElement, "#chips", form);
    /** @type {Element[]} what goes with the message that is being sent */
    this.going = [];
    const field = need(HTMLInputElement, "#attach-files", form);
    need(HTMLElement, "#attach", form).hidden = false;
    this.picker = new Picker(form, { onUpload: () => field.click(), onChoose: (id) => this.#add(id) });
    field.addEventListener("change", () => {
      this.#take([...(field.files ?? [])]);
      field.value = "";
    });
    catchFiles((files) => this.#take(files), form);
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
    this.put((draftOf(kept) ?? "").split(" ").filter(Boolean));
    this.#keep();
  }

  /** Whether every file can be sent; a chip that cannot says why. */
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

  /** The files that are there now go with the message that is being sent; what is added from here on does not. */
  hold() {
    this.going = [...this.chips.children];
  }

  /** They were not sent. */
  release() {
    this.going = [];
  }

  /** They were sent. */
  clear() {
    for (const chip of this.going) chip.remove();
    this.#keep(); // now: the observer comes too late when the page is left
  }

  /** @param {string} kept the name under which the ids are kept from now on */
  keepAs(kept) {
    dropDraft(this.kept);
    this.kept = kept;
    this.#keep();
  }

  #keep() {
    const ids = all(Element, '[id^="chip-"]', this.chips).map((chip) => chip.id.slice("chip-".length));
    keepDraft(this.kept, ids.join(" "));
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

  /** @param {File} file @returns {Promise<boolean>} whether it is on the server, and goes with the message */
  add(file) {
    const { chip, word } = this.#placeholder(file.name);
    return new Promise((resolve) => queue(async () => resolve(await this.#upload(file, chip, word))));
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

  /** A file that is on the server already; one that is there no more goes without a word. @param {string} id */
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
    const headers = { "HX-Request": "true", "X-CSRFToken": tokenOf(this.form) };
    const response = await fetch(url, { method: "POST", body, headers }).catch(() => null);
    const html = (await response?.text()) ?? "";
    if (!chip.isConnected) return;
    if (response?.ok) this.#arrived(chip, html);
    else this.#failed(chip, word, sentence(html) || sayOfFile("unloaded"));
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
      const html = await send(file, { url, token: tokenOf(this.form), onProgress });
      if (!chip.isConnected) return false; // sent or removed meanwhile; the file is among one's files
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
    const button = dismissal();
    button.dataset.removeChip = "";
    chip.append(button, why);
  }
}

/** The menu of the ＋, and the sheet in which files that are there already are chosen. htmx fills the sheet. */
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
    if (this.sheet) this.#open(this.sheet, menu, onChoose); // without a model no line a file could be held against
  }

  /** What is chosen has changed, so other files may cross the line. */
  refresh() {
    if (this.field && this.sheet?.matches(":popover-open")) htmx.trigger(this.field, "refresh");
  }

  /** @param {HTMLElement} sheet @param {HTMLElement} menu @param {(id: string) => void} onChoose */
  #open(sheet, menu, onChoose) {
    need(HTMLElement, "#attach-pick", menu).addEventListener("click", () => {
      menu.hidePopover(); // first, so that the focus later comes back to the ＋
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

  /** Rows that are not there ask for no state. @param {HTMLElement} sheet */
  #empty(sheet) {
    if (this.field) this.field.value = "";
    need(HTMLElement, "#picks", sheet).replaceChildren();
  }
}

// --- what goes into the list of the page ---

/** @param {HTMLFormElement} form */
function takeUploads(form) {
  const field = need(HTMLInputElement, "input[type=file]", form);
  /** @param {File[]} files */
  const take = (files) => {
    for (const file of files) enqueue(form, file);
  };
  for (const each of all(HTMLElement, "[data-without-scripts]", form)) each.hidden = true;
  for (const each of all(HTMLElement, "[data-with-scripts]", form)) each.hidden = false;
  field.addEventListener("change", () => {
    take([...(field.files ?? [])]);
    field.value = "";
  });
  field.classList.add("visually-hidden"); // its label is the button; the keyboard reaches it as before
  catchFiles(take, form, form.closest("[data-drop-zone]"));
}

/** @param {HTMLFormElement} form @param {File} file */
function enqueue(form, file) {
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
  queue(() => upload(form, file, { line, bar, word }));
}

/**
 * @param {HTMLFormElement} form
 * @param {File} file
 * @param {{line: HTMLElement, bar: HTMLProgressElement, word: HTMLElement}} shown where its progress is
 */
async function upload(form, file, { line, bar, word }) {
  /** @param {string} words @param {number} share */
  const onProgress = (words, share) => {
    word.textContent = words;
    bar.value = share;
  };
  try {
    const html = await send(file, { url: form.getAttribute("action") ?? "", token: tokenOf(form), onProgress });
    const repeated = find(HTMLElement, "[data-repeated]", parse(`<ul>${html}</ul>`));
    if (repeated) dismissible(line, bar, word, repeated.textContent);
    else line.remove();
    htmx.trigger(form.dataset.refresh ?? "", "refresh");
  } catch (error) {
    line.className = "problem";
    dismissible(line, bar, word, error instanceof Error ? error.message : sayOfFile("refused"));
  }
}

/** @param {HTMLElement} line @param {HTMLProgressElement} bar @param {HTMLElement} word @param {string} sentence */
function dismissible(line, bar, word, sentence) {
  bar.remove();
  word.textContent = sentence;
  const button = dismissal();
  button.addEventListener("click", () => line.remove());
  line.append(button);
}

// --- pictures, large ---

document.addEventListener("click", (event) => {
  const link = around(HTMLAnchorElement, "[data-lightbox]", event.target);
  const dialog = find(HTMLDialogElement, "#lightbox");
  if (!link || !dialog || opensElsewhere(event)) return;
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
if (uploads) takeUploads(uploads);
