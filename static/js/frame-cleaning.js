/**
 * In the sandboxed frames: takes out of markup what leads or reaches outside. A click on a link would have the browser look
 * its host up before the policy of the frame stops it, so a model could send text away as the name of a host.
 */
const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
/** Elements that open, load, send or move to something, or that change another element's address. */
const ACTIVE = new Set(
  "animate base button embed form frame iframe image img input link meta object script set video audio".split(" "),
);
/** Attributes that name an address or hold a script. */
const OUTWARD = /^(on.*|(.*:)?href|src|srcset|ping|target|action|formaction|poster|background|data|download)$/i;

/**
 * Markup that was parsed where nothing is loaded is changed in place.
 *
 * @param {DocumentFragment | Document} parsed
 * @param {Set<string>} [harmless] elements of `ACTIVE` that stay; of an address, only that of a picture in itself
 */
// biome-ignore lint/correctness/noUnusedVariables: the other script of the frame calls it
function withoutLinks(parsed, harmless = new Set()) {
  for (const element of parsed.querySelectorAll("*")) {
    if (ACTIVE.has(element.localName) && !harmless.has(element.localName)) element.remove();
    for (const { name, value } of [...element.attributes]) {
      const inside = /(^|:)href$/i.test(name) && value.startsWith("#"); // as of a marker or a gradient
      const picture = harmless.has(element.localName) && name === "src" && /^data:image\//i.test(value);
      if (!inside && !picture && OUTWARD.test(name)) element.removeAttribute(name);
    }
  }
  for (const link of parsed.querySelectorAll("a, area, form")) {
    const plain = document.createElementNS(link.namespaceURI, link.namespaceURI === SVG_NAMESPACE ? "g" : "span");
    for (const { name, value } of link.attributes) if (!name.includes(":")) plain.setAttribute(name, value);
    plain.append(...link.childNodes);
    link.replaceWith(plain);
  }
}
