/** Where something that floats goes. The policy forbids style attributes, not the object model. */
const GAP = 4; // pixels to what it belongs to
const EDGE = 8; // pixels to the edge of the window

/** Below, or above where there is more room; never out of the window. @param {HTMLElement} floating @param {Element} anchor */
export function beside(floating, anchor) {
  const at = anchor.getClientRects()[0] ?? anchor.getBoundingClientRect();
  const { offsetHeight: height, offsetWidth: width } = floating;
  const below = at.bottom + GAP;
  const top = below + height + EDGE <= innerHeight ? below : at.top - GAP - height;
  const left = Math.max(EDGE, Math.min(at.left, innerWidth - width - EDGE));
  floating.style.inset = `${Math.max(EDGE, top)}px auto auto ${left}px`;
}
