/**
 * What may be meant by an @ that somebody types (tasks by code or title, files by name) and by a / at the beginning
 * (prompts), in a list above the field. Arrows choose, Enter and Tab take, Esc closes. The server renders the options;
 * the focus stays in the field.
 */
const form = /** @type {HTMLFormElement | null} */ (document.getElementById("composer"));
const text = /** @type {HTMLTextAreaElement | null} */ (form?.querySelector("textarea"));
const SIGNS = [
  { name: "mentions", begun: /(?:^|[^0-9A-Za-z_.])@([^\s@]{0,60})$/u, behind: " " },
  { name: "prompts", begun: /^\/([^\n]{0,60})$/u, behind: "" },
];
const WAIT = 120; // milliseconds without a key before the server is asked

if (form && text) listen(form, text);

/** @param {HTMLFormElement} form @param {HTMLTextAreaElement} text */
function listen(form, text) {
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
  let closed = null; // what stood behind the sign when somebody closed the list

  const options = () => /** @type {HTMLElement[]} */ ([...list.querySelectorAll("[role=option]")]);
  const chosen = () => list.querySelector('[aria-selected="true"]');

  /** The sign that was typed and what stands behind it, as far as the caret. */
  function begun() {
    const before = text.value.slice(0, text.selectionStart);
    for (const { name, begun: pattern, behind } of SIGNS) {
      const found = pattern.exec(before);
      if (found) return { name, typed: found[1], behind };
    }
    return null;
  }

  /** A conversation that does not exist yet has its persona in the form. */
  function address({ name, typed }) {
    const persona = form.elements.namedItem("persona")?.value ?? "";
    return `${form.dataset[`${name}Url`]}?${new URLSearchParams({ q: typed, persona })}`;
  }

  function close() {
    list.hidden = true;
    said.textContent = "";
    text.removeAttribute("aria-activedescendant");
  }

  /** @param {Element | undefined} option */
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
    const made = new DOMParser().parseFromString(`<ul>${await response.text()}</ul>`, "text/html");
    const shown = [...made.querySelectorAll("[role=option]")];
    if (number !== asked || !shown.length || document.activeElement !== text) return close();
    list.setAttribute("aria-label", form.dataset[`${found.name}Label`]);
    list.replaceChildren(...shown);
    list.hidden = false;
    said.textContent = form.dataset.mentionsCount.replace("{count}", String(shown.length));
    choose(options()[0]);
  }

  /** @param {HTMLElement} option */
  function take(option) {
    const found = begun();
    if (!found) return close();
    const start = text.selectionStart - found.typed.length - 1;
    const insert = option.dataset.insert ? option.dataset.insert + found.behind : "";
    text.setRangeText(insert, start, text.selectionStart, "end");
    if (option.dataset.file) form.dispatchEvent(new CustomEvent("attachfile", { detail: { id: option.dataset.file } }));
    close();
    text.dispatchEvent(new Event("input", { bubbles: true }));
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
  list.addEventListener("click", (event) => {
    const option = /** @type {HTMLElement} */ (event.target).closest("[role=option]");
    if (option) take(/** @type {HTMLElement} */ (option));
  });
  // Before the composer, for which Enter sends, and before the page, for which Esc stops the answer.
  form.addEventListener("keydown", (event) => list.hidden || event.isComposing || key(event), true);

  /** @param {KeyboardEvent} event */
  function key(event) {
    const all = options();
    const at = all.indexOf(/** @type {HTMLElement} */ (chosen()));
    if (event.key === "ArrowDown") choose(all[(at + 1) % all.length]);
    else if (event.key === "ArrowUp") choose(all[(at - 1 + all.length) % all.length]);
    else if ((event.key === "Enter" && !event.shiftKey) || event.key === "Tab") take(all[at]);
    else if (event.key === "Escape") {
      closed = begun()?.typed ?? null;
      close();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
