/**
 * Previews: a block of an answer with a page, a picture, a table, a document or a diagram opens in the panel. The blocks of
 * one kind in the conversation are its versions, oldest first.
 */
import { MAX_DRAWING_TIME, readColours } from "./diagrams.js";
import { all, around, copyFrom, find, need, previewKind, say } from "./page.js";

const panel = need(HTMLElement, "#panel");
/** @type {HTMLElement | null} the block that the panel shows */
let shownBlock = null;

/** @param {HTMLElement} code a block */
const readSource = (code) => need(HTMLElement, "code", code).textContent;

/** @param {string} kind @returns {HTMLElement[]} */
function listVersions(kind) {
  return all(HTMLElement, "#messages .answer:not([data-status=pending]) .prose .code").filter(
    (code) => previewKind(code) === kind,
  );
}

/** @param {HTMLElement} code a block that has a preview */
export async function openPreview(code) {
  const kind = previewKind(code);
  const versions = listVersions(kind);
  const source = readSource(code);
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
  shownBlock = code;
  setLarge(large);
  const frame = find(HTMLIFrameElement, "iframe", preview);
  if (frame) showInFrame(frame, kind, source, code);
}

/** @param {HTMLIFrameElement} frame @param {string} kind @param {string} source @param {HTMLElement} code */
function showInFrame(frame, kind, source, code) {
  const problem = need(HTMLElement, "[data-preview-problem]", panel);
  const complain = (/** @type {string} */ why) => {
    problem.textContent = say("undrawn", { why });
    problem.hidden = false;
  };
  const late = setTimeout(() => kind === "mermaid" && complain(say("slow")), MAX_DRAWING_TIME);
  addEventListener("message", function hear({ data, source: sender }) {
    if (!frame.isConnected) return removeEventListener("message", hear);
    if (sender !== frame.contentWindow) return;
    clearTimeout(late);
    if (data.problem !== undefined) complain(data.problem);
  });
  frame.addEventListener("load", () => {
    const message = { kind, source, more: frame.dataset.more ?? "", ...readColours(code) };
    frame.contentWindow?.postMessage(message, "*"); // the frame has no origin
  });
  frame.src = frame.dataset.src ?? "";
}

/** @param {boolean} large */
function setLarge(large) {
  panel.classList.toggle("large", large);
  find(HTMLElement, "[data-preview-large]", panel)?.setAttribute("aria-pressed", String(large));
}

// Other contents of the panel are not large.
new MutationObserver(() => {
  if (!find(HTMLElement, ".block-preview", panel)) setLarge(false);
}).observe(need(HTMLElement, "#panel-body", panel), { childList: true });

panel.addEventListener("click", async ({ target }) => {
  const button = around(HTMLButtonElement, "button", target);
  if (!button || !shownBlock) return;
  const { previewStep, previewDownload } = button.dataset;
  if (previewStep !== undefined) {
    const versions = listVersions(previewKind(shownBlock));
    const next = versions[versions.indexOf(shownBlock) + Number(previewStep)];
    if (next) await openPreview(next);
  } else if (previewDownload !== undefined) download(readSource(shownBlock), previewDownload);
  else if (button.dataset.previewCopy !== undefined) await copyFrom(button, Promise.resolve(readSource(shownBlock)));
  else if (button.dataset.previewLarge !== undefined) setLarge(!panel.classList.contains("large"));
});

/** @param {string} source @param {string} ending the ending of the file's name */
function download(source, ending) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([source], { type: "text/plain" }));
  link.download = `preview.${ending}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
