/**
 * Diagrams: a complete block of Mermaid code is drawn when it comes into view, in a frame that can only draw. Its source
 * stays in the page, to be shown again and copied.
 */
import { all, find, need, say } from "./page.js";

const DRAW_MARGIN = "400px"; // around the window, so that a diagram is drawn before it is visible
export const MAX_DRAWING_TIME = 20_000; // ms
/** Mermaid's names of colours, with the page's tokens. @type {Record<string, string>} */
const COLOURS = {
  background: "--surface",
  primaryColor: "--accent-tint",
  primaryTextColor: "--text",
  primaryBorderColor: "--accent",
  secondaryColor: "--tint",
  tertiaryColor: "--raised",
  lineColor: "--muted",
  textColor: "--text",
  noteBkgColor: "--tint",
  noteTextColor: "--text",
  noteBorderColor: "--line-strong",
  edgeLabelBackground: "--surface",
};

/** @type {Map<MessageEventSource, (told: { height?: number, problem?: string }) => void>} */
const frames = new Map();
addEventListener("message", ({ data, source }) => source && frames.get(source)?.(data));

const visibility = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting || !(target instanceof HTMLElement)) continue;
      visibility.unobserve(target);
      draw(target);
    }
  },
  { rootMargin: DRAW_MARGIN },
);

/** Draws a complete block when it comes into view. @param {HTMLElement} code */
export function drawWhenVisible(code) {
  if (code.dataset.apart !== undefined) return;
  code.dataset.apart = ""; // updates of the answer do not change the drawing
  visibility.observe(code);
}

/** @param {HTMLElement} code */
function draw(code) {
  const source = need(HTMLElement, "code", code).textContent;
  const frame = document.createElement("iframe");
  frame.className = "diagram";
  frame.title = [say("diagram"), /^\s*accTitle\s*:\s*(.+)$/m.exec(source)?.[1]].filter(Boolean).join(": ");
  frame.setAttribute("sandbox", "allow-scripts");
  frame.src = need(HTMLElement, "#words").dataset.diagramUrl ?? "";
  const late = setTimeout(() => showFailure(code, frame, say("slow")), MAX_DRAWING_TIME);
  frame.addEventListener("load", () => {
    const inside = frame.contentWindow;
    if (!inside) return;
    frames.set(inside, ({ height, problem }) => {
      clearTimeout(late);
      if (problem !== undefined) return showFailure(code, frame, problem);
      frame.style.blockSize = `${height}px`;
      if (!code.classList.contains("drawn")) showDrawing(code);
    });
    inside.postMessage({ source, ...readColours(code) }, "*"); // the frame has no origin
  });
  code.append(frame);
}

/** Returns the colours of the page at the block. @param {HTMLElement} code */
export function readColours(code) {
  const probe = document.createElement("i");
  code.append(probe);
  const colour = (/** @type {string} */ token) => {
    probe.style.color = `var(${token})`;
    return getComputedStyle(probe).color;
  };
  const colours = Object.fromEntries(Object.entries(COLOURS).map(([name, token]) => [name, colour(token)]));
  const dark = Number(/\d+/.exec(colour("--page"))?.[0]) < 128;
  probe.remove();
  return { colours, dark };
}

/** @param {HTMLElement} code */
function showDrawing(code) {
  const toggle = document.createElement("button");
  toggle.type = "button";
  toggle.className = "copy";
  toggle.textContent = say("showSource");
  toggle.addEventListener("click", () => {
    const drawn = code.classList.toggle("drawn");
    toggle.textContent = say(drawn ? "showSource" : "showDiagram");
  });
  find(HTMLElement, "[data-copy]", code)?.before(toggle);
  code.classList.add("drawn");
}

/** @param {HTMLElement} code @param {HTMLIFrameElement} frame @param {string} why */
function showFailure(code, frame, why) {
  if (frame.contentWindow) frames.delete(frame.contentWindow);
  frame.remove();
  code.classList.remove("drawn");
  const line = document.createElement("p");
  line.className = "undrawn";
  line.role = "status";
  line.textContent = say("undrawn", { why });
  code.append(line);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const frame of all(HTMLIFrameElement, "iframe.diagram")) {
    const code = frame.parentElement;
    if (code)
      frame.contentWindow?.postMessage(
        { source: need(HTMLElement, "code", code).textContent, ...readColours(code) },
        "*",
      );
  }
});
