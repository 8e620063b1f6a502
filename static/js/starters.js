/** The starter messages of a persona: a click writes one into the message field instead of loading the page again. */
const field = /** @type {HTMLTextAreaElement} */ (document.getElementById("text"));
let written = "";

document.getElementById("messages").addEventListener("click", (event) => {
  const starter = event.target.closest("[data-starter]");
  if (!starter || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  // What a person has typed stays; a starter that was only being looked at makes place for the next.
  const own = field.value === written ? "" : field.value;
  written = [own, starter.dataset.starter].filter(Boolean).join("\n");
  field.value = written;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.focus();
});
