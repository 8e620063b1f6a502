/**
 * Rows dragged by a pointer, to another place in their list or onto a day. The row that is dragged stays in the page all
 * the while and the others change sides, since a pointer is lost with the element that it holds.
 */
export class Drag {
  /**
   * @param {HTMLElement} region
   * @param {{place: (row: HTMLElement, before: Element | null) => void, move: (row: HTMLElement, day: string) => void}} drops
   */
  constructor(region, drops) {
    this.region = region;
    this.drops = drops;
    this.row = null;
    region.addEventListener("pointermove", (event) => this.#follow(event));
    region.addEventListener("pointerup", () => this.#drop());
    region.addEventListener("pointercancel", () => this.#end(true));
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.#end(true));
  }

  start(event, row) {
    event.preventDefault();
    this.row = row;
    this.day = null;
    this.behind = row.previousElementSibling;
    this.region.setPointerCapture(event.pointerId);
    this.region.classList.add("dragging");
    row.classList.add("dragged");
  }

  #follow(event) {
    if (!this.row) return;
    this.#aim(event);
    if (this.day) return;
    const { previousElementSibling: above, nextElementSibling: below } = this.row;
    if (above && event.clientY < middle(above)) this.row.after(above);
    else if (below && event.clientY > middle(below)) this.row.before(below);
  }

  /** A day task over a day of the week. */
  #aim(event) {
    const under = this.row.dataset.move && document.elementFromPoint(event.clientX, event.clientY);
    const day = (under && under.closest("[data-day]:not([aria-current])")) || null;
    if (day === this.day) return;
    this.day?.classList.remove("aimed");
    day?.classList.add("aimed");
    this.day = day;
  }

  #drop() {
    const { row, day, behind } = this;
    if (!row) return;
    this.#end(false);
    if (day) this.drops.move(row, day.dataset.day);
    else if (row.previousElementSibling !== behind) this.drops.place(row, row.previousElementSibling);
  }

  #end(back) {
    if (!this.row) return;
    this.row.classList.remove("dragged");
    this.region.classList.remove("dragging");
    this.day?.classList.remove("aimed");
    if (back && this.behind) this.behind.after(this.row);
    else if (back) this.row.parentElement.prepend(this.row);
    this.row = null;
  }
}

function middle(element) {
  const { top, height } = element.getBoundingClientRect();
  return top + height / 2;
}
