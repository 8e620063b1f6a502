/** The page of a shared conversation: draws diagrams. `page.js` copies blocks of code. */
import { drawWhenVisible } from "./diagrams.js";
import { all } from "./page.js";

for (const code of all(HTMLElement, ".diagram-source")) drawWhenVisible(code);
