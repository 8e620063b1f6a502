/**
 * Diagrams: a block of code in the language of Mermaid is drawn once it is complete and comes into view, in a frame that can
 * do nothing else. Its source stays where it is, to be shown again and copied.
 */
import { all, find, need, say } from "./page.js";

const AHEAD = "400px"; // of the window, so that it is there when one comes to it
export const DRAWS_WITHIN = 20_000; // ms
/** What Mermaid calls its colours, by our tokens. @type {Record<string, string>} */
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

const seen = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting || !(target instanceof HTMLElement)) continue;
      seen.unobserve(target);
      draw(target);
    }
  },
  { rootMargin: AHEAD },
);

/** @param {HTMLElement} code the block, complete */
export function offer(code) {
  if (code.dataset.apart !== undefined) return;
  code.dataset.apart = ""; // what is made of it here stays when the answer is rendered anew
  seen.observe(code);
}

/** @param {HTMLElement} code */
function draw(code) {
  const source = need(HTMLElement, "code", code).textContent;
  const frame = document.createElement("iframe");
  frame.className = "diagram";
  frame.title = [say("diagram"), /^\s*accTitle\s*:\s*(.+)$/m.exec(source)?.[1]].filter(Boolean).join(": ");
  frame.setAttribute("sandbox", "allow-scripts");
  frame.src = need(HTMLElement, "#words").dataset.diagramUrl ?? "";
  const late = setTimeout(() => fail(code, frame, say("slow")), DRAWS_WITHIN);
  frame.addEventListener("load", () => {
    const inside = frame.contentWindow;
    if (!inside) return;
    frames.set(inside, ({ height, problem }) => {
      clearTimeout(late);
      if (problem !== undefined) return fail(code, frame, problem);
      frame.style.blockSize = `${height}px`;
      if (!code.classList.contains("drawn")) show(code);
    });
    inside.postMessage({ source, ...look(code) }, "*"); // the frame has no origin
  });
  code.append(frame);
}

/** The colours of the page where the block is. @param {HTMLElement} code */
export function look(code) {
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
function show(code) {
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
function fail(code, frame, why) {
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
      frame.contentWindow?.postMessage({ source: need(HTMLElement, "code", code).textContent, ...look(code) }, "*");
  }
});
