// For the admin, in addition to Unfold's scripts: labels of fields, and requests that are not errors.

// Select2 labels its fields with the chosen option, so an empty field has no label. Each field gets its own label here.
function nameFields() {
  for (const field of document.querySelectorAll(".select2-container .select2-selection")) {
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

// Fields are built when the page is ready, and with each added row.
new MutationObserver(nameFields).observe(document, { childList: true, subtree: true });

// Aborted requests of a page that is left, which htmx would log as two errors.
const GIVEN_UP = new Set(["htmx:sendAbort", "htmx:afterRequest"]);
htmx.logger = (_element, name, detail) => {
  if (GIVEN_UP.has(name)) delete detail.error;
};
