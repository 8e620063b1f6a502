/** Copies a link; without a clipboard it is selected, to be copied by hand. */
for (const button of document.querySelectorAll("[data-copy-link]")) {
  const field = /** @type {HTMLInputElement} */ (button.parentElement.querySelector("input[readonly]"));
  button.hidden = false;
  button.addEventListener("click", async () => {
    field.select();
    if (!navigator.clipboard) return;
    await navigator.clipboard.writeText(field.value);
    button.textContent = button.dataset.copied;
  });
}
