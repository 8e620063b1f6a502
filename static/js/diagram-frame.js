/**
 * In the sandboxed frame of a diagram, which can do nothing but draw: the page around it sends the source and the colours,
 * and hears how high the diagram is, or why there is none.
 */
{
  const place = /** @type {HTMLElement} */ (document.getElementById("diagram"));
  const READABLE = "36rem"; // where there is less room one scrolls sideways
  const SVG = "http://www.w3.org/2000/svg";
  /** Elements that open, load, send or move to something, or that change another element's address. */
  const ACTIVE = new Set(
    "animate base button embed form frame iframe image img input link meta object script set video audio".split(" "),
  );
  /** Attributes that name an address or hold a script. */
  const OUTWARD = /^(on.*|(.*:)?href|src|srcset|ping|target|action|formaction|poster|background|data|download)$/i;
  let drawn = 0;

  document.body.style.margin = "0";
  document.body.style.pointerEvents = "none"; // while it draws, Mermaid has the links in the page
  place.style.pointerEvents = "auto";
  place.style.font = "14px system-ui, sans-serif";
  place.style.overflowX = "auto";

  /** @param {object} message nothing that others might not hear */
  function tell(message) {
    parent.postMessage(message, "*");
  }

  function tellHeight() {
    if (drawn) tell({ height: Math.ceil(place.getBoundingClientRect().height) });
  }

  /**
   * The drawing without anything that leads or reaches outside. A click on a link would have the browser look its host up
   * before the policy of the frame stops it, so a model could send text away as the name of a host. The drawing is cleaned
   * and not the source, since every kind of diagram has links of its own. It is parsed where nothing is loaded.
   * @param {string} svg
   */
  function withoutLinks(svg) {
    const parsed = document.createElement("template");
    parsed.innerHTML = svg;
    for (const element of parsed.content.querySelectorAll("*")) {
      if (ACTIVE.has(element.localName)) element.remove();
      for (const { name, value } of [...element.attributes]) {
        const inside = /(^|:)href$/i.test(name) && value.startsWith("#"); // as of a marker or a gradient
        if (!inside && OUTWARD.test(name)) element.removeAttribute(name);
      }
    }
    for (const link of parsed.content.querySelectorAll("a, area")) {
      const plain = document.createElementNS(link.namespaceURI, link.namespaceURI === SVG ? "g" : "span");
      for (const { name, value } of link.attributes) if (!name.includes(":")) plain.setAttribute(name, value);
      plain.append(...link.childNodes);
      link.replaceWith(plain);
    }
    return parsed.content;
  }

  addEventListener("message", async ({ data, source }) => {
    if (source !== parent) return;
    document.documentElement.style.colorScheme = data.dark ? "dark" : "light";
    mermaid.initialize({
      startOnLoad: false,
      securityLevel: "strict",
      suppressErrorRendering: true,
      theme: "base",
      look: "classic", // else borders fade into colours that are not ours
      themeVariables: { ...data.colours, darkMode: data.dark, fontFamily: getComputedStyle(place).fontFamily },
    });
    try {
      const { svg } = await mermaid.render(`drawn-${drawn + 1}`, data.source);
      place.replaceChildren(withoutLinks(svg));
      const whole = /** @type {SVGElement} */ (place.firstElementChild).style;
      whole.display = "block";
      whole.marginInline = "auto";
      whole.minInlineSize = `min(${whole.maxWidth || "100%"}, ${READABLE})`;
      drawn += 1;
      tellHeight();
    } catch (error) {
      tell({ problem: String(error instanceof Error ? error.message : error).split("\n")[0] });
    }
  });
  new ResizeObserver(tellHeight).observe(place);
}
