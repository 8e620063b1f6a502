/** The tab's title says when a run waits. The runs themselves are fragments that htmx keeps as they are on the server. */
import { onNews } from "./updates.js";

let mark = ""; // known once a run was on the page

/** Whatever else changes the title, the mark stands before it as long as a run on this page waits. */
function show() {
  const runs = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-run]")]);
  mark = runs[0]?.dataset.mark ?? mark;
  if (!mark) return;
  const bare = document.title.replaceAll(mark, "").trim();
  const wanted = runs.some((run) => run.dataset.run === "waiting") ? `${mark} ${bare}` : bare;
  if (document.title !== wanted) document.title = wanted;
}

new MutationObserver(show).observe(document.querySelector("title"), { childList: true });
document.body.addEventListener("htmx:afterSettle", show);
// On the pages of tasks the list comes first: a run can have gone with its task.
if (!document.getElementById("tasks")) onNews("tasks", () => document.body.dispatchEvent(new CustomEvent("nextchange")));
