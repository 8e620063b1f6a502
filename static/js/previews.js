/**
 * Previews: a block of an answer that is a page, a picture, a table, a document or a diagram opens in the panel beside it. The
 * blocks of one kind in the conversation are its versions, oldest first.
 */
import { DRAWS_WITHIN, look } from "./diagrams.js";
import { all, around, copyFrom, find, kindOf, need, say } from "./page.js";

const panel = need(HTMLElement, "#panel");
/** @type {HTMLElement | null} the block that the panel shows */
let shown = null;

/** @param {HTMLElement} code a block */
const sourceOf = (code) => need(HTMLElement, "code", code).textContent;

/** @param {string} kind @returns {HTMLElement[]} */
function versionsOf(kind) {
  return all(HTMLElement, "#messages .answer:not([data-status=pending]) .prose .code").filter(
    (code) => kindOf(code) === kind,
  );
}

/** @param {HTMLElement} code a block that has a preview */
export async function open(code) {
  const kind = kindOf(code);
  const versions = versionsOf(kind);
  const source = sourceOf(code);
  const large = panel.classList.contains("large");
  await htmx.ajax("POST", need(HTMLElement, "#words").dataset.previewUrl ?? "", {
    source: find(HTMLElement, "[data-preview]", code) ?? code,
    target: "#panel-body",
    swap: "innerHTML",
    values: {
      kind,
      version: String(versions.indexOf(code) + 1),
      versions: String(versions.length),
      text: kind === "markdown" ? source : "",
      csrfmiddlewaretoken: need(HTMLInputElement, "[name=csrfmiddlewaretoken]").value,
    },
  });
  const preview = find(HTMLElement, ".block-preview", panel);
  if (!preview) return;
  shown = code;
  enlarge(large);
  const frame = find(HTMLIFrameElement, "iframe", preview);
  if (frame) fill(frame, kind, source, code);
}

/** @param {HTMLIFrameElement} frame @param {string} kind @param {string} source @param {HTMLElement} code */
function fill(frame, kind, source, code) {
  const problem = need(HTMLElement, "[data-preview-problem]", panel);
  const complain = (/** @type {string} */ why) => {
    problem.textContent = say("undrawn", { why });
    problem.hidden = false;
  };
  const late = setTimeout(() => kind === "mermaid" && complain(say("slow")), DRAWS_WITHIN);
  addEventListener("message", function hear({ data, source: sender }) {
    if (!frame.isConnected) return removeEventListener("message", hear);
    if (sender !== frame.contentWindow) return;
    clearTimeout(late);
    if (data.problem !== undefined) complain(data.problem);
  });
  frame.addEventListener("load", () => {
    const message = { kind, source, more: frame.dataset.more ?? "", ...look(code) };
    frame.contentWindow?.postMessage(message, "*"); // the frame has no origin
  });
  frame.src = frame.dataset.src ?? "";
}

/** @param {boolean} large */
function enlarge(large) {
  panel.classList.toggle("large", large);
  find(HTMLElement, "[data-preview-large]", panel)?.setAttribute("aria-pressed", String(large));
}

// Whatever else comes into the panel is not large.
new MutationObserver(() => {
  if (!find(HTMLElement, ".block-preview", panel)) enlarge(false);
}).observe(need(HTMLElement, "#panel-body", panel), { childList: true });

panel.addEventListener("click", async ({ target }) => {
  const button = around(HTMLButtonElement, "button", target);
  if (!button || !shown) return;
  const { previewStep, previewDownload } = button.dataset;
  if (previewStep !== undefined) {
    const versions = versionsOf(kindOf(shown));
    const next = versions[versions.indexOf(shown) + Number(previewStep)];
    if (next) await open(next);
  } else if (previewDownload !== undefined) download(sourceOf(shown), previewDownload);
  else if (button.dataset.previewCopy !== undefined) await copyFrom(button, Promise.resolve(sourceOf(shown)));
  else if (button.dataset.previewLarge !== undefined) enlarge(!panel.classList.contains("large"));
});

/** @param {string} source @param {string} ending of the file's name */
function download(source, ending) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([source], { type: "text/plain" }));
  link.download = `preview.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
