/** The menu of the ＋, and the sheet in which files that are there already are chosen. htmx fills the sheet. */
export class Picker {
  /**
   * @param {HTMLFormElement} form
   * @param {{onUpload: () => void, onChoose: (id: string) => void}} tell
   */
  constructor(form, { onUpload, onChoose }) {
    this.sheet = document.getElementById("picker");
    const menu = form.querySelector("#attach-menu");
    menu.querySelector("#attach-upload").addEventListener("click", () => {
      menu.hidePopover();
      onUpload();
    });
    if (!this.sheet) return; // without a model there is no line that a file could be held against
    this.field = this.sheet.querySelector("#picker-search");
    menu.querySelector("#attach-pick").addEventListener("click", () => {
      menu.hidePopover(); // first, so that the focus later comes back to the ＋
      this.sheet.showPopover();
    });
    this.sheet.addEventListener("toggle", ({ newState }) => {
      if (newState === "open") this.refresh();
      else this.#empty();
    });
    this.sheet.addEventListener("click", (event) => {
      const button = event.target.closest("[data-choose]");
      if (!button) return;
      onChoose(button.dataset.choose);
      this.field.focus(); // the button is about to be disabled
    });
  }

  /** What is chosen has changed, so other files may cross the line. */
  refresh() {
    if (this.sheet?.matches(":popover-open")) window.htmx.trigger(this.field, "refresh");
  }

  /** Rows that are not there ask for no state. */
  #empty() {
    this.field.value = "";
    this.sheet.querySelector("#picks").replaceChildren();
  }
}
