// Of the admin, beside Unfold's scripts: names of fields, and what is no error.

// Select2 names its fields by what is chosen in them, so that an empty one has no name: here each gets its label's.
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

// As soon as one is built: when the page is ready, and with each row that is added.
new MutationObserver(nameFields).observe(document, { childList: true, subtree: true });

// A request that is given up because its page is left; htmx would write it to the console as two errors.
const GIVEN_UP = new Set(["htmx:sendAbort", "htmx:afterRequest"]);
htmx.logger = (_element, name, detail) => {
  if (GIVEN_UP.has(name)) delete detail.error;
};
