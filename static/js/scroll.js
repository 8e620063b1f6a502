/**
 * Keeps to the newest text unless the reader scrolled up, and offers a way back.
 *
 * The scroller is laid out from its end (`column-reverse`): its scroll position is 0 at the newest end and negative
 * above it, so keeping to the end, and staying in place when older messages come in above, need no script.
 */
const AT_END = 48; // pixels

export class Scroll {
  /** @param {HTMLElement} scroller @param {HTMLElement} content @param {HTMLButtonElement} button */
  constructor(scroller, content, button) {
    this.scroller = scroller;
    this.button = button;
    let height = content.offsetHeight;
    new ResizeObserver(() => {
      const grown = content.offsetHeight - height;
      height = content.offsetHeight;
      // Browsers without scroll anchoring would let the text slip upwards under the reader's eyes.
      if (!CSS.supports("overflow-anchor", "auto") && !this.atEnd) scroller.scrollTop -= grown;
      this.#show();
    }).observe(content);
    scroller.addEventListener("scroll", () => this.#show(), { passive: true });
    button.addEventListener("click", () => this.toEnd());
    this.#show();
  }

  get atEnd() {
    return this.scroller.scrollTop > -AT_END;
  }

  toEnd() {
    this.scroller.scrollTop = 0;
  }

  #show() {
    this.button.hidden = this.atEnd;
  }
}
