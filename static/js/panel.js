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
    this.body.addEventListener("click", (event) => this.#toQuote(event));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !panel.hidden && panel.contains(document.activeElement)) this.close();
    });
  }

  #open(opener) {
    const inside = opener.closest("nav") && !opener.isConnected; // one of the panel's own tabs, which is another by now
    if (!inside) this.opener = opener;
    this.panel.hidden = false;
    this.panel.querySelector(inside ? "nav [aria-current]" : "#panel-title")?.focus();
  }

  /** To the answer that is quoted, where it is on the page; otherwise the link leads to it. */
  #toQuote(event) {
    const link = event.target.closest("[data-quote]");
    const answer = link && document.getElementById(link.dataset.quote);
    if (!answer) return;
    event.preventDefault();
    if (getComputedStyle(this.panel).position === "fixed") this.close();
    answer.scrollIntoView({ block: "center" });
    answer.focus({ preventScroll: true });
  }

  close() {
    this.panel.hidden = true;
    this.body.replaceChildren();
    if (this.opener?.isConnected) this.opener.focus();
  }
}
