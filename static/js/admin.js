// Select2 names its fields by what is chosen in them, so that an empty one has no name: here each gets its label's.

/** @param {ParentNode} root */
function nameFields(root) {
  for (const field of root.querySelectorAll(".select2-container .select2-selection")) {
    const select = field.closest(".select2-container")?.previousElementSibling;
    const label = select?.id && document.querySelector(`label[for="${select.id}"]`);
    if (!label) continue;
    label.id ||= `label-${select.id}`;
    const shown = field.querySelector(".select2-selection__rendered");
    if (shown?.id) {
      field.setAttribute("aria-labelledby", `${label.id} ${shown.id}`);
      shown.setAttribute("aria-labelledby", label.id);
    } else {
      field.setAttribute("aria-labelledby", label.id);
    }
    field.querySelector(".select2-search__field")?.setAttribute("aria-labelledby", label.id);
  }
}

// They are built when the page is ready, and with each row that is added.
addEventListener("load", () => nameFields(document));
document.addEventListener("formset:added", (event) => {
  if (event.target instanceof Element) nameFields(event.target);
});
