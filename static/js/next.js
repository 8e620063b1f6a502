/** The message that waits for the answer, above the composer. htmx fills it; this has it looked at again, and edited. */
export class Next {
  /**
   * @param {HTMLElement | null} place not there before there is a conversation
   * @param {(text: string, files: string[]) => void} onEdit the server has given it up, so it is the composer's now
   */
  constructor(place, onEdit) {
    this.place = place;
    let shown = { text: "", files: [] };
    place?.addEventListener("htmx:beforeRequest", ({ detail }) => {
      if (!isEdit(detail)) return;
      const waiting = place.querySelector("[data-next]");
      shown = {
        text: waiting.querySelector("[data-text]").textContent,
        files: waiting.dataset.files.split(" ").filter(Boolean),
      };
    });
    place?.addEventListener("htmx:afterRequest", ({ detail }) => {
      if (isEdit(detail) && detail.xhr.status < 300) onEdit(shown.text, shown.files);
      else if (detail.xhr.status === 404) this.refresh(); // it was sent, or is another one by now
    });
  }

  refresh() {
    document.body.dispatchEvent(new CustomEvent("nextchange"));
  }
}

function isEdit({ requestConfig }) {
  return requestConfig.elt.matches("[data-edit-next]");
}
