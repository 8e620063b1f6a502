/** The panel beside the conversation. htmx fills it; this shows it, closes it, and keeps the focus where it belongs. */
export class Panel {
  /** @param {HTMLElement} panel */
  constructor(panel) {
    this.panel = panel;
    this.body = panel.querySelector("#panel-body");
    this.opener = null;
    panel.querySelector("[data-close-panel]").addEventListener("click", () => this.close());
    document.body.addEventListener("htmx:afterSwap", (event) => {
      if (event.detail.target === this.body) this.#open(event.detail.requestConfig.elt);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !panel.hidden && panel.contains(document.activeElement)) this.close();
    });
  }

  #open(opener) {
    this.opener = opener;
    this.panel.hidden = false;
    this.panel.querySelector("#panel-title")?.focus();
  }

  close() {
    this.panel.hidden = true;
    this.body.replaceChildren();
    if (this.opener?.isConnected) this.opener.focus();
  }
}
