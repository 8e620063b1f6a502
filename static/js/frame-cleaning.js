/**
 * For the sandboxed frames: removes links and other outside addresses from markup. Without this, a click on a link would
 * look up its host before the frame's policy blocks it, so a model could leak text as the name of a host.
 */
const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
/** Elements that open, load, send or move to something, or that change another element's address. */
const ACTIVE_ELEMENTS = new Set(
  "animate base button embed form frame iframe image img input link meta object script set video audio".split(" "),
);
/** Attributes that name an address or hold a script. */
const OUTWARD_ATTRIBUTES =
  /^(on.*|(.*:)?href|src|srcset|ping|target|action|formaction|poster|background|data|download)$/i;

/**
 * Removes links and addresses in place. The markup must be parsed in an inert document, which loads nothing.
 *
 * @param {DocumentFragment | Document} parsed
 * @param {Set<string>} [allowed] elements of `ACTIVE_ELEMENTS` that stay; of their addresses, only `data:` images stay
 */
// biome-ignore lint/correctness/noUnusedVariables: the other script of the frame calls it
function removeLinks(parsed, allowed = new Set()) {
  for (const element of parsed.querySelectorAll("*")) {
    if (ACTIVE_ELEMENTS.has(element.localName) && !allowed.has(element.localName)) element.remove();
    for (const { name, value } of [...element.attributes]) {
      const inside = /(^|:)href$/i.test(name) && value.startsWith("#"); // such as a marker or a gradient
      const picture = allowed.has(element.localName) && name === "src" && /^data:image\//i.test(value);
      if (!inside && !picture && OUTWARD_ATTRIBUTES.test(name)) element.removeAttribute(name);
    }
  }
  for (const link of parsed.querySelectorAll("a, area, form")) {
    const plain = document.createElementNS(link.namespaceURI, link.namespaceURI === SVG_NAMESPACE ? "g" : "span");
    for (const { name, value } of link.attributes) if (!name.includes(":")) plain.setAttribute(name, value);
    plain.append(...link.childNodes);
    link.replaceWith(plain);
  }
}
