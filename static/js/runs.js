/** The tab's title says when a run waits. The run itself is a fragment that htmx keeps as it is on the server. */

/** Whatever else changes the title, the mark stands before it as long as a run on this page waits. */
function show() {
  const run = /** @type {HTMLElement | null} */ (document.querySelector("[data-run]"));
  if (!run) return;
  const bare = document.title.replaceAll(run.dataset.mark, "").trim();
  const wanted = run.dataset.run === "waiting" ? `${run.dataset.mark} ${bare}` : bare;
  if (document.title !== wanted) document.title = wanted;
}

new MutationObserver(show).observe(document.querySelector("title"), { childList: true });
document.body.addEventListener("htmx:afterSettle", show);
