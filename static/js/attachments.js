/**
 * The files that go with the next message, as chips under the field. The server renders a chip; it refreshes itself
 * until the file is read. The hidden inputs inside are what the form sends.
 */
import { catchFiles, queue, say, send } from "./upload.js";

export class Attachments {
  /**
   * @param {HTMLFormElement} form
   * @param {() => void} onChange a chip came, went or has another state
   */
  constructor(form, onChange) {
    this.form = form;
    this.chips = form.querySelector("#chips");
    const [button, field] = ["#attach", "#attach-files"].map((each) => form.querySelector(each));
    button.hidden = false;
    button.addEventListener("click", () => field.click());
    field.addEventListener("change", () => {
      this.#take([...field.files]);
      field.value = "";
    });
    catchFiles((files) => this.#take(files), form);
    this.chips.addEventListener("click", (event) => {
      if (!event.target.closest("[data-remove-chip]")) return;
      event.target.closest(".chip").remove();
      form.querySelector("textarea").focus();
    });
    let sent = "";
    new MutationObserver(() => {
      onChange();
      const now = this.#ids();
      if (now !== sent) document.body.dispatchEvent(new CustomEvent("planchange"));
      sent = now;
    }).observe(this.chips, { childList: true });
  }

  /** Whether every file can be sent; a chip that cannot says why. */
  get ready() {
    return [...this.chips.children].every((chip) => chip.dataset.status === "ready");
  }

  get whyNot() {
    return say(this.chips.querySelector('[data-status="failed"], [data-status="too_long"]') ? "unfit" : "unread");
  }

  clear() {
    this.chips.replaceChildren();
  }

  #ids() {
    return Array.from(this.chips.querySelectorAll("input[name=files]"), (input) => input.value).join();
  }

  /** @param {File[]} files */
  #take(files) {
    for (const file of files) {
      const chip = document.createElement("li");
      chip.className = "chip";
      chip.dataset.status = "sending";
      const [name, word] = ["span", "span"].map((tag) => document.createElement(tag));
      name.className = "chip-name";
      name.textContent = file.name;
      word.className = "muted";
      chip.append(name, word);
      this.chips.append(chip);
      queue(() => this.#upload(file, chip, word));
    }
  }

  async #upload(file, chip, word) {
    if (!chip.isConnected) return;
    const token = this.form.elements.namedItem("csrfmiddlewaretoken").value;
    const onProgress = (share) =>
      (word.textContent = share < 1 ? say("progress", { percent: Math.floor(share * 100) }) : say("storing"));
    try {
      const html = await send(file, { url: this.chips.dataset.uploadUrl, token, onProgress });
      if (!chip.isConnected) return; // sent or removed meanwhile; the file is among one's files
      const made = new DOMParser().parseFromString(`<ul>${html}</ul>`, "text/html").querySelector(".chip");
      const same = document.getElementById(made.id);
      if (same) chip.remove();
      else chip.replaceWith(made);
      window.htmx.process(made);
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
