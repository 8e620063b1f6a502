/** The menu of models with which an answer can be written again: one for the page, opened at the answer. */
import { beside } from "./place.js";

const menu = document.getElementById("again");

document.addEventListener("click", (event) => {
  const opener = event.target.closest?.("[data-again]");
  if (!opener || !menu) return;
  menu.querySelector("form").action = opener.dataset.again;
  menu.showPopover();
  beside(menu, opener);
  menu.querySelector("button").focus();
});
