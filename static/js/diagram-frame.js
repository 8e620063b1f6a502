/**
 * In the sandboxed frame of a diagram, which can do nothing but draw: the page around it sends the source and the colours,
 * and hears how high the diagram is, or why there is none.
 */
{
  const place = /** @type {HTMLElement} */ (document.getElementById("diagram"));
  const READABLE = "36rem"; // where there is less room one scrolls sideways
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
   * The drawing, which is cleaned and not the source, since every kind of diagram has links of its own.
   * @param {string} svg
   */
  function cleaned(svg) {
    const parsed = document.createElement("template");
    parsed.innerHTML = svg;
    withoutLinks(parsed.content);
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
      place.replaceChildren(cleaned(svg));
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
