/** A shared conversation: diagrams are drawn, and `page.js` copies blocks of code. */
import { offer } from "./diagrams.js";
import { all } from "./page.js";

for (const code of all(HTMLElement, ".diagram-source")) offer(code);
