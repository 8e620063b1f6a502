/**
 * Runs in the sandboxed frame of a diagram, which can only draw. The page around it sends the source and the colours, and
 * receives the height of the diagram or the problem.
 */
{
  const place = /** @type {HTMLElement} */ (document.getElementById("diagram"));
  const MIN_WIDTH = "36rem"; // in a narrower frame the diagram scrolls sideways
  let drawings = 0;

  document.body.style.margin = "0";
  document.body.style.pointerEvents = "none"; // since Mermaid inserts links into the page while it draws
  place.style.pointerEvents = "auto";
  place.style.font = "14px system-ui, sans-serif";
  place.style.overflowX = "auto";

  /** @param {object} message without secrets, since any page may receive it */
  function tell(message) {
    parent.postMessage(message, "*");
  }

  function tellHeight() {
    if (drawings) tell({ height: Math.ceil(place.getBoundingClientRect().height) });
  }

  /**
   * Parses a drawing without its links. The drawing is cleaned, not the source, since each kind of diagram writes links
   * differently.
   * @param {string} svg
   */
  function parseCleaned(svg) {
    const parsed = document.createElement("template");
    parsed.innerHTML = svg;
    removeLinks(parsed.content);
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
      look: "classic", // otherwise borders fade into other colours
      themeVariables: { ...data.colours, darkMode: data.dark, fontFamily: getComputedStyle(place).fontFamily },
    });
    try {
      const { svg } = await mermaid.render(`drawn-${drawings + 1}`, data.source);
      place.replaceChildren(parseCleaned(svg));
      const whole = /** @type {SVGElement} */ (place.firstElementChild).style;
      whole.display = "block";
      whole.marginInline = "auto";
      whole.minInlineSize = `min(${whole.maxWidth || "100%"}, ${MIN_WIDTH})`;
      drawings += 1;
      tellHeight();
    } catch (error) {
      tell({ problem: String(error instanceof Error ? error.message : error).split("\n")[0] });
    }
  });
  new ResizeObserver(tellHeight).observe(place);
}
