/** A tool call that its person has to allow: the server says how it stands, here it is put into its place. */
const NIL = "00000000-0000-0000-0000-000000000000"; // stands for the turn in the address
const address = document.getElementById("part-tool_call").dataset.approvalUrl;

/** @param {HTMLElement} part @param {string} turn */
export async function showApproval(part, turn) {
  const place = part.querySelector("[data-approval]");
  const focused = place.contains(document.activeElement);
  const call = encodeURIComponent(part.dataset.call);
  await window.htmx.ajax("GET", `${address.replace(NIL, turn)}?call=${call}`, { target: place, swap: "innerHTML" });
  if (focused && !place.querySelector("button")) part.closest("article").focus();
}
