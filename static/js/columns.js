/** Answers side by side, where there is room for one of them at a time: tabs show which. */

/** @param {HTMLElement} root */
export function showTabs(root) {
  for (const tabs of root.querySelectorAll(".column-tabs[hidden]")) {
    tabs.hidden = false;
    const columns = tabs.parentElement;
    const picked = columns.querySelector(".answer:has(.picked)") ?? columns.querySelector(".answer");
    show(columns.querySelector(`[data-shows="${picked.id}"]`));
  }
}

function show(tab) {
  const columns = tab.closest(".columns");
  for (const each of columns.querySelectorAll("[role=tab]")) {
    each.ariaSelected = String(each === tab);
    each.tabIndex = each === tab ? 0 : -1;
  }
  for (const answer of columns.querySelectorAll(":scope > .answer"))
    answer.toggleAttribute("data-shown", answer.id === tab.dataset.shows);
}

document.addEventListener("click", (event) => {
  const tab = event.target.closest?.(".column-tabs [role=tab]");
  if (tab) show(tab);
});
document.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step || !event.target.matches?.(".column-tabs [role=tab]")) return;
  event.preventDefault();
  const all = [...event.target.parentElement.children];
  const next = all[(all.indexOf(event.target) + step + all.length) % all.length];
  show(next);
  next.focus();
});
