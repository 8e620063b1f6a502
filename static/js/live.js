/** What the page hears over its one socket of changes made anywhere: that there are some. It asks for what it shows. */
import { Socket } from "./socket.js";

const EVERY = 1_000; // ms

export const socket = new Socket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/`);

/**
 * Has the page look again: at news of this kind, and when the socket is there (again), since some may have been missed.
 * However much comes, it looks once a second, and once after the last of it.
 *
 * @param {"conversations" | "tasks"} kind
 * @param {() => void} look
 */
export function onNews(kind, look) {
  let last = performance.now(); // the page as it came
  let due = 0;
  const soon = () => {
    due ||= setTimeout(() => {
      due = 0;
      last = performance.now();
      look();
    }, Math.max(0, last + EVERY - performance.now()));
  };
  socket.addEventListener(kind, soon);
  socket.addEventListener("open", soon);
}
