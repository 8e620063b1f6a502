/**
 * Puts new HTML in the place of old HTML and changes only what differs. What is in both stays the element it is, with its
 * focus, its selection and what is unfolded: it is found by its id, by the ids inside it, or, where there are none, by its
 * place among its kind.
 *
 * Three things stay as the person has them: a field in which something is written that is not sent; what has
 * `data-editing`, which was opened to be worked in, although the new HTML does not have it; and what has `data-apart`,
 * which refreshes itself.
 */

/**
 * @param {Element} target
 * @param {Element | DocumentFragment} content what `target` becomes or, as a fragment, what is to be in it; it is used up
 * @param {Element | null} [sender] what asked for it: where it was, nothing stays that is not in the content any more
 * @param {Element[]} [waiting] what has asked for something else, and stays until it has it
 * @returns {Node[]} what is new on the page
 */
export function morph(target, content, sender = null, waiting = []) {
  const focused = /** @type {HTMLInputElement} */ (document.activeElement);
  const { selectionStart, selectionEnd } = focused;
  const around = surroundings(focused, target);
  const morphing = new Morphing(target, content, sender, waiting);
  if (content instanceof Element) morphing.update(target, content);
  else morphing.fill(target, content);
  if (document.activeElement !== focused && focused.isConnected) {
    focused.focus({ preventScroll: true }); // it was moved, by a browser that has no moveBefore
    if (selectionStart !== null) focused.setSelectionRange?.(selectionStart, selectionEnd);
  } else if (!focused.isConnected && !target.closest(KEEPS_FOCUS)) {
    focusNear(around);
  }
  return morphing.made;
}

export const KEEPS_FOCUS = "[data-keeps-focus]"; // a part of a page that sees to its focus itself
const MOST_CONTROLS = 500; // of which it is looked whether they are visible; beyond that nothing is near

/** What keys reach. @param {Element} place */
function controls(place) {
  const found = place.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary");
  if (found.length > MOST_CONTROLS) return [];
  return [...found].filter((each) => each.checkVisibility({ visibilityProperty: true }));
}

/**
 * The elements that hold the focused one, from the inside out, each with its place among what keys reach there.
 *
 * @typedef {{place: Element, index: number}[]} Around
 * @param {Element} focused
 * @param {Element} end the outermost
 */
export function surroundings(focused, end) {
  /** @type {Around} */
  const found = [];
  for (let place = focused.parentElement; place && end.contains(place); place = place.parentElement)
    found.push({ place, index: controls(place).indexOf(focused) });
  return found;
}

/**
 * What had the focus is gone: it goes to what stands there now, else to its nearest neighbour. Without this it would be
 * back at the top of the page.
 *
 * @param {Around} around
 */
export function focusNear(around) {
  for (const { place, index } of around) {
    const there = place.isConnected ? controls(place) : [];
    const next = there[Math.min(index, there.length - 1)];
    if (next instanceof HTMLElement) return next.focus({ preventScroll: true });
  }
}

class Morphing {
  /** @type {Node[]} */ made = [];
  /** @type {WeakSet<Node>} */ #placed = new WeakSet();

  /**
   * @param {Element} target
   * @param {Element | DocumentFragment} content
   * @param {Element | null} sender
   * @param {Element[]} waiting
   */
  constructor(target, content, sender, waiting) {
    this.target = target;
    this.sender = sender;
    this.waiting = waiting;
    this.wanted = new Set(idsOf(content));
    this.opensAnother = content.querySelector("[data-editing]") !== null;
  }

  /** @param {Node} parent @param {Node} content whose children it gets @param {boolean} [isNew] whether `parent` itself is */
  fill(parent, content, isNew = false) {
    /** @type {Node | null} */
    let last = null;
    for (const node of [...content.childNodes]) {
      const next = this.#next(last ? last.nextSibling : parent.firstChild);
      const same = this.#find(parent, node, next);
      last = same ?? this.#add(parent, node, next, isNew);
      this.#placed.add(last);
      if (!same) continue;
      if (same !== next) move(parent, same, next);
      this.update(same, node);
    }
    for (const each of [...parent.childNodes]) if (!this.#placed.has(each) && !this.#stays(each)) each.remove();
  }

  /** @param {Node} here @param {Node} node what it becomes, of the same kind */
  update(here, node) {
    if (!(here instanceof Element && node instanceof Element)) {
      if (here.nodeValue !== node.nodeValue) here.nodeValue = node.nodeValue;
      return;
    }
    if (here.hasAttribute("data-apart")) return;
    const written = isWritten(here);
    const value = here instanceof HTMLSelectElement && written ? here.value : null;
    takeAttributes(here, node);
    if (!(here instanceof HTMLTextAreaElement)) this.fill(here, node);
    if (here instanceof HTMLTextAreaElement && node instanceof HTMLTextAreaElement) {
      takeText(here, node, written);
    } else if (here instanceof HTMLInputElement && node instanceof HTMLInputElement) {
      if (!written) takeInput(here, node);
    } else if (here instanceof HTMLSelectElement && node instanceof HTMLSelectElement) {
      const wanted = value ?? node.value;
      if (here.value !== wanted) here.value = wanted;
    }
  }

  /** Of what is there, the first that is not to be passed over: what is begun keeps its place. @param {Node | null} node */
  #next(node) {
    while (node instanceof Element && this.#isLeft(node)) node = node.nextSibling;
    return node;
  }

  /** @param {Element} element */
  #isLeft(element) {
    const ids = idsOf(element);
    return ids.length > 0 && !ids.some((id) => this.wanted.has(id)) && this.#stays(element);
  }

  /** @param {Node} node */
  #stays(node) {
    if (!(node instanceof Element)) return false;
    if (this.waiting.some((each) => node.contains(each))) return true;
    if (node.contains(this.sender)) return false;
    const inside = [node, ...node.querySelectorAll("[data-editing], input, select, textarea")];
    return inside.some((each) => (each.matches("[data-editing]") ? !this.opensAnother : isWritten(each)));
  }

  /**
   * The node that is there for `node`, among the children of `parent` or, by its own id, anywhere in the target.
   *
   * @param {Node} parent
   * @param {Node} node
   * @param {Node | null} next
   */
  #find(parent, node, next) {
    const ids = node instanceof Element ? idsOf(node) : [];
    const own = node instanceof Element ? node.id : "";
    for (const id of ids) {
      /** @type {Element | null} */
      let found = document.getElementById(id);
      if (!this.target.contains(found)) continue;
      while (id !== own && found && found.parentNode !== parent) found = found.parentElement;
      if (found && (id === own || !found.id) && this.#fits(found, node) && !found.contains(parent)) return found;
    }
    if (ids.length) return null;
    for (let each = next; each; each = each.nextSibling)
      if (this.#fits(each, node) && !(each instanceof Element && idsOf(each).length)) return each;
    return null;
  }

  /** @param {Node} here @param {Node} node */
  #fits(here, node) {
    return here.nodeName === node.nodeName && !this.#placed.has(here);
  }

  /** @param {Node} parent @param {Node} node @param {Node | null} next @param {boolean} inNew */
  #add(parent, node, next, inNew) {
    const takesNothingOver = !(node instanceof Element) || !idsOf(node).some((id) => document.getElementById(id));
    const made = takesNothingOver ? node : node.cloneNode(false);
    parent.insertBefore(made, next);
    if (!inNew) this.made.push(made);
    if (made !== node) this.fill(made, node, true);
    return made;
  }
}

/** Its own id first. @param {Element | DocumentFragment} node */
function idsOf(node) {
  const inside = Array.from(node.querySelectorAll("[id]"), (each) => each.id);
  return node instanceof Element && node.id ? [node.id, ...inside] : inside;
}

/**
 * Where there is moveBefore, what is moved keeps its focus and is under the pointer still.
 *
 * @param {Node & {moveBefore?: (node: Node, next: Node | null) => void}} parent
 * @param {Node} node
 * @param {Node | null} next
 */
function move(parent, node, next) {
  if (parent.moveBefore) parent.moveBefore(node, next);
  else parent.insertBefore(node, next);
}

/** @param {Element} here @param {Element} node */
function takeAttributes(here, node) {
  const lit = here.classList.contains("lit"); // by what is pointed at, of which the new HTML knows nothing
  for (const { name, value } of node.attributes)
    if (here.getAttribute(name) !== value && name !== "open") here.setAttribute(name, value);
  const waits = here.hasAttribute("data-disabled-by-htmx"); // for the answer to what it sent
  for (const { name } of [...here.attributes])
    if (!node.hasAttribute(name) && name !== "open" && !(waits && name.includes("disabled")))
      here.removeAttribute(name);
  if (lit) here.classList.add("lit");
}

/** @param {HTMLTextAreaElement} here @param {HTMLTextAreaElement} node @param {boolean} written */
function takeText(here, node, written) {
  const wanted = written ? here.value : node.value;
  if (here.defaultValue !== node.defaultValue) here.defaultValue = node.defaultValue;
  if (here.value !== wanted) here.value = wanted;
}

/** @param {HTMLInputElement} here @param {HTMLInputElement} node */
function takeInput(here, node) {
  if (here.type === "checkbox" || here.type === "radio") here.checked = node.checked;
  else if (here.type !== "file" && here.value !== node.value) here.value = node.value;
}

/** Whether somebody has changed the field since the server rendered it. @param {Element} field */
export function isWritten(field) {
  if (field instanceof HTMLTextAreaElement) return field.value !== field.defaultValue;
  if (field instanceof HTMLSelectElement) {
    const options = [...field.options];
    return field.value !== (options.find((each) => each.defaultSelected) ?? options[0])?.value;
  }
  if (!(field instanceof HTMLInputElement) || field.type === "hidden") return false;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  return field.type === "file" ? Boolean(field.files?.length) : field.value !== field.defaultValue;
}

/**
 * What the server has taken is not only the person's any more: from here on these fields show what the server says, but for
 * those that were changed again meanwhile.
 *
 * @param {HTMLFormElement} form
 * @param {FormData} sent
 */
export function settle(form, sent) {
  for (const field of form.elements) {
    if (
      !(field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement || field instanceof HTMLSelectElement)
    )
      continue;
    const taken = sent.getAll(field.name).includes(field.value);
    if (field instanceof HTMLInputElement && (field.type === "checkbox" || field.type === "radio")) {
      if (field.checked === taken) field.defaultChecked = taken;
    } else if (taken && field instanceof HTMLSelectElement) {
      for (const option of field.options) option.defaultSelected = option.selected;
    } else if (taken && !(field instanceof HTMLSelectElement)) {
      field.defaultValue = field.value;
    }
  }
}
