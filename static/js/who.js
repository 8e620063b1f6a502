/** The choice of who answers: a chip under the message field, and its sheet. One model, or up to three side by side. */
import { all, around, find, need, parse } from "./page.js";

const MAX_MODELS = 3; // models that answer one message

/** @param {HTMLFormElement} form the composer */
export function setUpModelChoice(form) {
  const sheet = find(HTMLElement, "#who", form);
  if (!sheet) return; // no model is connected
  const models = () => all(HTMLInputElement, "input[name=model]", sheet);
  const compare = find(HTMLInputElement, "[data-compare]", sheet);
  const persona = find(HTMLSelectElement, "select[name=persona]", sheet);
  const chosen = () => models().filter((each) => each.checked);

  /** Shows radio buttons for one model, checkboxes for several. */
  function updateInputTypes() {
    const several = compare?.checked ?? false;
    const kept = chosen()[0];
    for (const each of models()) each.type = several ? "checkbox" : "radio";
    if (!several && kept) kept.checked = true;
    updateLimit();
  }

  function updateLimit() {
    const full = Boolean(compare?.checked) && chosen().length >= MAX_MODELS;
    for (const each of models()) each.disabled = full && !each.checked;
    const line = find(HTMLElement, "[data-who-limit]", sheet);
    if (line) line.textContent = full ? (line.dataset.whoLimit ?? "") : "";
  }

  function updateName() {
    const [first, ...others] = chosen().map((each) => each.dataset.name ?? "");
    const more = (sheet?.dataset.more ?? "").replace("{name}", first).replace("{count}", String(others.length));
    const as = persona?.selectedOptions[0]?.dataset.name;
    need(HTMLElement, "[data-who]", form).textContent = [others.length ? more : first, as].filter(Boolean).join(" · ");
  }

  compare?.addEventListener("change", updateInputTypes);
  sheet.addEventListener("change", ({ target }) => {
    const model = around(HTMLInputElement, "input[name=model]", target);
    if (model && !chosen().length) model.checked = true; // at least one model must answer
    updateLimit();
    updateName();
  });
  const box = compare?.closest("label");
  if (box) box.hidden = false;
  updateInputTypes();
  setUpEfforts(sheet, models);
  setUpSearch(sheet);
  sheet.addEventListener("models", updateInputTypes);
  sheet.addEventListener("toggle", ({ newState }) => newState === "open" && loadAllModels(sheet));
}

/**
 * Loads the models that a long list leaves out. Elements that are on the page already stay, with their focus and their
 * choice.
 *
 * @param {HTMLElement} sheet
 */
async function loadAllModels(sheet) {
  const link = find(HTMLAnchorElement, "[data-all-models]", sheet);
  const response = link && (await fetch(link.dataset.allModels ?? "").catch(() => null));
  if (!response?.ok) return; // the link stays, and leads to a page with all models
  const found = parse(await response.text());
  const list = need(HTMLElement, ".who-models", sheet);
  const known = new Map(all(HTMLElement, ".who-model", list).map((each) => [modelInput(each).value, each]));
  let last = need(HTMLElement, "legend", list);
  for (const each of all(HTMLElement, ".who-model", found)) {
    const there = known.get(modelInput(each).value);
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
function modelInput(row) {
  return need(HTMLInputElement, "input[name=model]", row);
}

/** Chooses this model alone, as a click does. @param {HTMLFormElement} form @param {string} model its id */
export async function chooseModel(form, model) {
  const choice = () => find(HTMLInputElement, `input[name=model][value="${CSS.escape(model)}"]`, form);
  if (!choice()) await loadAllModels(need(HTMLElement, "#who", form));
  const compare = find(HTMLInputElement, "[data-compare]:checked", form);
  if (compare) {
    compare.checked = false;
    compare.dispatchEvent(new Event("change", { bubbles: true }));
  }
  choice()?.click();
}

/** Offers the efforts of reasoning that the first chosen model accepts. @param {HTMLElement} sheet @param {() => HTMLInputElement[]} models */
function setUpEfforts(sheet, models) {
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

/** Sets up the search field for long lists of models. @param {HTMLElement} sheet */
function setUpSearch(sheet) {
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
    event.stopPropagation(); // the search is not part of the draft
    show();
  });
  sheet.addEventListener("models", show);
  field.addEventListener("change", (event) => event.stopPropagation());
  field.addEventListener("keydown", (event) => event.key === "Enter" && event.preventDefault());
  sheet.addEventListener("toggle", ({ newState }) => {
    if (newState === "open") field.focus();
  });
}
