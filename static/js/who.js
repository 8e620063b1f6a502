/** Who answers: the chip under the message field and what opens at it. One model, or up to three side by side. */
import { all, around, find, need, parse } from "./page.js";

const MOST = 3; // that answer at once

/** @param {HTMLFormElement} form the composer */
export function whoAnswers(form) {
  const sheet = find(HTMLElement, "#who", form);
  if (!sheet) return; // no model is connected
  const models = () => all(HTMLInputElement, "input[name=model]", sheet);
  const compare = find(HTMLInputElement, "[data-compare]", sheet);
  const persona = find(HTMLSelectElement, "select[name=persona]", sheet);
  const chosen = () => models().filter((each) => each.checked);

  /** One is chosen by choosing another; several by ticking. */
  function arrange() {
    const several = compare?.checked ?? false;
    const kept = chosen()[0];
    for (const each of models()) each.type = several ? "checkbox" : "radio";
    if (!several && kept) kept.checked = true;
    limit();
  }

  function limit() {
    const full = Boolean(compare?.checked) && chosen().length >= MOST;
    for (const each of models()) each.disabled = full && !each.checked;
    const line = find(HTMLElement, "[data-who-limit]", sheet);
    if (line) line.textContent = full ? (line.dataset.whoLimit ?? "") : "";
  }

  function name() {
    const [first, ...others] = chosen().map((each) => each.dataset.name ?? "");
    const more = (sheet?.dataset.more ?? "").replace("{name}", first).replace("{count}", String(others.length));
    const as = persona?.selectedOptions[0]?.dataset.name;
    need(HTMLElement, "[data-who]", form).textContent = [others.length ? more : first, as].filter(Boolean).join(" · ");
  }

  compare?.addEventListener("change", arrange);
  sheet.addEventListener("change", ({ target }) => {
    const model = around(HTMLInputElement, "input[name=model]", target);
    if (model && !chosen().length) model.checked = true; // somebody has to answer
    limit();
    name();
  });
  const box = compare?.closest("label");
  if (box) box.hidden = false;
  arrange();
  offerEfforts(sheet, models);
  search(sheet);
  sheet.addEventListener("models", arrange);
  sheet.addEventListener("toggle", ({ newState }) => newState === "open" && complete(sheet));
}

/**
 * Of many models the page has some; the others come among them. What is there stays the element it is: somebody may be at
 * it with the keyboard, and what was chosen stays so.
 *
 * @param {HTMLElement} sheet
 */
async function complete(sheet) {
  const link = find(HTMLAnchorElement, "[data-all-models]", sheet);
  const response = link && (await fetch(link.dataset.allModels ?? "").catch(() => null));
  if (!response?.ok) return; // the link is there still, and leads to a page that has them
  const found = parse(await response.text());
  const list = need(HTMLElement, ".who-models", sheet);
  const known = new Map(all(HTMLElement, ".who-model", list).map((each) => [modelOf(each).value, each]));
  let last = need(HTMLElement, "legend", list);
  for (const each of all(HTMLElement, ".who-model", found)) {
    const there = known.get(modelOf(each).value);
    if (!there) last.after(each);
    last = there ?? each;
  }
  htmx.process(list);
  const focused = link === document.activeElement;
  link?.remove();
  sheet.dispatchEvent(new Event("models"));
  if (focused) find(HTMLInputElement, "input[name=model]:checked", list)?.focus();
}

/** @param {HTMLElement} row */
function modelOf(row) {
  return need(HTMLInputElement, "input[name=model]", row);
}

/** As if a person had chosen it, and it alone. @param {HTMLFormElement} form @param {string} model its id */
export async function chooseModel(form, model) {
  const choice = () => find(HTMLInputElement, `input[name=model][value="${CSS.escape(model)}"]`, form);
  if (!choice()) await complete(need(HTMLElement, "#who", form));
  const compare = find(HTMLInputElement, "[data-compare]:checked", form);
  if (compare) {
    compare.checked = false;
    compare.dispatchEvent(new Event("change", { bubbles: true }));
  }
  choice()?.click();
}

/** Of the efforts of reasoning, those that the first chosen model takes. @param {HTMLElement} sheet @param {() => HTMLInputElement[]} models */
function offerEfforts(sheet, models) {
  const place = find(HTMLElement, "[data-effort]", sheet);
  if (!place) return;
  const efforts = need(HTMLSelectElement, "select", place);
  const show = () => {
    const model = models().find((each) => each.checked);
    const taken = model?.dataset.efforts?.split(" ").filter(Boolean) ?? [];
    for (const option of efforts.options)
      option.hidden = option.disabled = Boolean(option.value) && !taken.includes(option.value);
    if (efforts.selectedOptions[0]?.disabled) efforts.value = "";
    place.hidden = efforts.disabled = !taken.length;
  };
  sheet.addEventListener("change", show);
  show();
}

/** Where there are many models. @param {HTMLElement} sheet */
function search(sheet) {
  const field = find(HTMLInputElement, "[data-who-search]", sheet);
  if (!field) return;
  field.hidden = false;
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const each of all(HTMLElement, ".who-model", sheet)) {
      const text = each.textContent.toLowerCase();
      each.hidden = !words.every((word) => text.includes(word));
    }
  };
  field.addEventListener("input", (event) => {
    event.stopPropagation(); // it is no part of the draft
    show();
  });
  sheet.addEventListener("models", show);
  field.addEventListener("change", (event) => event.stopPropagation());
  field.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
  sheet.addEventListener("toggle", ({ newState }) => {
    if (newState === "open") field.focus();
  });
}
