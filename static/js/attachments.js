/**
 * The files that go with the next message, as chips under the field. The server renders a chip; it refreshes itself
 * until the file is read. The hidden inputs inside are what the form sends. This browser keeps the ids until then.
 */
import { Picker } from "./picker.js";
import { catchFiles, queue, say, send } from "./upload.js";

const NIL = "00000000-0000-0000-0000-000000000000"; // stands for the id in the address of a chip

export class Attachments {
  /**
   * @param {HTMLFormElement} form
   * @param {string} kept the name under which the ids are kept
   * @param {() => void} onChange a chip came, went or has another state
   */
  constructor(form, kept, onChange) {
    this.form = form;
    this.kept = kept;
    this.chips = form.querySelector("#chips");
    /** @type {Element[]} what goes with the message that is being sent */
    this.going = [];
    const [button, field] = ["#attach", "#attach-files"].map((each) => form.querySelector(each));
    button.hidden = false;
    this.picker = new Picker(form, { onUpload: () => field.click(), onChoose: (id) => this.#add(id) });
    field.addEventListener("change", () => {
      this.#take([...field.files]);
      field.value = "";
    });
    catchFiles((files) => this.#take(files), form);
    form.addEventListener("attachfile", ({ detail }) => this.#add(detail.id));
    this.chips.addEventListener("click", (event) => {
      if (!event.target.closest("[data-remove-chip]")) return;
      event.target.closest(".chip").remove();
      form.querySelector("textarea").focus();
    });
    let sent = "";
    new MutationObserver(() => {
      onChange();
      this.#keep();
      const now = this.#ids();
      if (now === sent) return;
      sent = now;
      document.body.dispatchEvent(new CustomEvent("planchange"));
      this.picker.refresh();
    }).observe(this.chips, { childList: true, subtree: true, attributeFilter: ["data-status"] });
    for (const id of (localStorage.getItem(kept) ?? "").split(" ").filter(Boolean)) this.#add(id);
    this.#keep();
  }

  /** Whether every file can be sent; a chip that cannot says why. */
  get ready() {
    return [...this.chips.children].every((chip) => chip.dataset.status === "ready");
  }

  get whyNot() {
    return say(this.chips.querySelector('[data-status="failed"], [data-status="too_long"]') ? "unfit" : "unread");
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
    localStorage.removeItem(this.kept);
    this.kept = kept;
    this.#keep();
  }

  #keep() {
    const ids = Array.from(this.chips.querySelectorAll('[id^="chip-"]'), (chip) => chip.id.slice("chip-".length));
    if (ids.length) localStorage.setItem(this.kept, ids.join(" "));
    else localStorage.removeItem(this.kept);
  }

  #ids() {
    return Array.from(this.chips.querySelectorAll("input[type=hidden]"), (input) => input.name + input.value).join();
  }

  /** @param {File[]} files */
  #take(files) {
    for (const file of files) {
      const { chip, word } = this.#placeholder(file.name);
      queue(() => this.#upload(file, chip, word));
    }
  }

  /** @param {string} text */
  #placeholder(text) {
    const [chip, name, word] = ["li", "span", "span"].map((tag) => document.createElement(tag));
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
    const response = await fetch(this.chips.dataset.chipUrl.replace(NIL, id)).catch(() => null);
    if (!chip.isConnected) return;
    if (response?.ok) this.#arrived(chip, await response.text());
    else if (response?.status === 404) chip.remove();
    else this.#failed(chip, word, say("unloaded"));
  }

  /** @param {HTMLElement} chip what stands in for it @param {string} html */
  #arrived(chip, html) {
    const made = new DOMParser().parseFromString(`<ul>${html}</ul>`, "text/html").querySelector(".chip");
    const same = document.getElementById(made.id);
    if (same && same !== chip) return chip.remove();
    chip.replaceWith(made);
    window.htmx.process(made);
  }

  async #upload(file, chip, word) {
    if (!chip.isConnected) return;
    const token = this.form.elements.namedItem("csrfmiddlewaretoken").value;
    const onProgress = (share) =>
      (word.textContent = share < 1 ? say("progress", { percent: Math.floor(share * 100) }) : say("storing"));
    try {
      const html = await send(file, { url: this.chips.dataset.uploadUrl, token, onProgress });
      if (!chip.isConnected) return; // sent or removed meanwhile; the file is among one's files
      this.#arrived(chip, html);
    } catch (error) {
      this.#failed(chip, word, error.message);
    }
  }

  #failed(chip, word, sentence) {
    word.remove();
    chip.dataset.status = "failed";
    const [why, button] = ["span", "button"].map((tag) => document.createElement(tag));
    why.className = "why";
    why.role = "alert";
    why.textContent = sentence;
    button.type = "button";
    button.className = "quiet";
    button.dataset.removeChip = "";
    button.textContent = say("dismiss");
    chip.append(button, why);
  }
}
