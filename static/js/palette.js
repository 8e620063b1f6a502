/** What Ctrl+K opens: one field for conversations, messages, files, projects, personas and commands. */
import { all, announce, around, find, need, opensElsewhere, parse } from "./page.js";

const WAIT = 100; // milliseconds without a key before the server is asked
const dialog = need(HTMLDialogElement, "#palette");
const field = need(HTMLInputElement, "input", dialog);
const results = need(HTMLElement, "#palette-results", dialog);
const said = need(HTMLElement, "[data-palette-said]", dialog);
const address = need(HTMLElement, "[data-palette]").dataset.palette ?? "";
let timer = 0;
let asked = 0;
let shown = ""; // the query that the results are of

export function openPalette() {
  if (!dialog.open) dialog.showModal();
  field.select();
  ask();
}

async function ask() {
  const query = field.value.trim();
  const number = ++asked;
  const response = await fetch(`${address}?${new URLSearchParams({ q: query })}`, {
    headers: { "HX-Request": "true" },
  }).catch(() => null);
  if (number !== asked) return; // something else has been typed since
  if (!response?.ok) return tell(results.dataset.unfound ?? "");
  results.replaceChildren(...parse(await response.text()).body.children);
  shown = query;
  results.scrollTop = 0;
  choose(options()[0]);
  said.textContent = options()
    .filter((each) => each.matches(".palette-all"))
    .map((each) => each.textContent.trim())
    .join(". ");
}

/** @param {string} text */
function tell(text) {
  const line = document.createElement("p");
  line.className = "muted";
  line.textContent = text;
  results.replaceChildren(line);
  said.textContent = text;
  field.removeAttribute("aria-activedescendant");
}

function options() {
  return all(HTMLAnchorElement, "[role=option]", results);
}

/** @param {HTMLElement | undefined} option */
function choose(option) {
  for (const each of options()) each.ariaSelected = String(each === option);
  if (!option) return;
  field.setAttribute("aria-activedescendant", option.id);
  option.scrollIntoView({ block: "nearest" });
}

/** @param {number} step */
function move(step) {
  const there = options();
  const at = there.findIndex((each) => each.ariaSelected === "true");
  choose(there[(at + step + there.length) % there.length]);
}

field.addEventListener("input", () => {
  clearTimeout(timer);
  timer = window.setTimeout(ask, WAIT);
});

field.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "ArrowDown") move(1);
  else if (event.key === "ArrowUp") move(-1);
  else if (event.key === "Enter") {
    // What was typed since is no question to these results: then the form opens the page of the search.
    const option = find(HTMLAnchorElement, '[aria-selected="true"]', results);
    if (!option || shown !== field.value.trim()) return;
    option.click();
  } else return;
  event.preventDefault();
});

results.addEventListener("click", (event) => {
  const option = around(HTMLAnchorElement, "[role=option]", event.target);
  if (!option || opensElsewhere(event)) return;
  dialog.close();
  const { does } = option.dataset;
  if (!does) return;
  event.preventDefault();
  announce("command", { does });
});

dialog.addEventListener("click", ({ target }) => {
  if (target === dialog || around(Element, "[data-close-palette]", target)) dialog.close(); // its backdrop is it, too
});
