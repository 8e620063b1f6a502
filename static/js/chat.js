/** Wires the page of a conversation: pending answers, the socket, the composer, the status line. */
import { Answer } from "./blocks.js";
import { showTabs } from "./columns.js";
import { Composer, forgetDrafts, justAsked } from "./composer.js";
import "./copy.js";
import "./again.js";
import "./starters.js";
import { morph } from "./morph.js";
import { socket, whenReleased } from "./updates.js";
import { Next } from "./next.js";
import { Panel } from "./panel.js";
import { Scroll } from "./scroll.js";
import { say } from "./words.js";

const conversation = document.querySelector("main").dataset.conversation;
const messages = document.getElementById("messages");
const status = document.getElementById("status");
let title = document.title;
/** @type {Map<string, Answer>} */
const answers = new Map();
let summarising = document.querySelector("main").dataset.state === "summarising";

const scroll = new Scroll(
  document.getElementById("transcript"),
  messages,
  /** @type {HTMLButtonElement} */ (document.getElementById("to-newest")),
);
const composer = new Composer(
  /** @type {HTMLFormElement} */ (document.getElementById("composer")),
  conversation,
  { onStop: stop, onEditLast: editLast },
);
const next = new Next(document.getElementById("next"), (text, files) => composer.take(text, files));
new Panel(document.getElementById("panel"));
if (conversation) listen();

function listen() {
  socket.addEventListener("lost", () => tell(say("lost")));
  socket.addEventListener("ended", () => tell(say("ended")));
  socket.addEventListener("open", () => status.textContent === say("lost") && tell(answers.size ? say("answering") : ""));
  socket.addEventListener("state", ({ detail }) => onState(detail));
  socket.addEventListener("next", () => next.refresh());
  socket.addEventListener("turn", ({ detail }) => onTurn(detail.turn));
  socket.addEventListener("title", ({ detail }) => onTitle(detail.title));
  socket.watch(conversation);
}

/** @param {string} text */
function tell(text) {
  if (status.textContent !== text) status.textContent = text;
}

/** @param {string} mark */
function mark(mark) {
  document.title = mark ? `${mark} ${title}` : title;
}

// Answers

function findPending(root = messages) {
  equip(root);
  const pending = root.querySelectorAll('[data-turn][data-status="pending"]');
  for (const article of pending) if (!answers.has(article.dataset.turn)) follow(article);
  composer.show(answers.size > 0);
}

/** @param {HTMLElement} article */
function follow(article) {
  const answer = new Answer(article, {
    onDoing: (word) => tell(say(word) || word),
    onEnd: (how) => end(answer, how),
  });
  answers.set(answer.turn, answer);
  tell(say("waiting"));
  mark("…");
  socket.follow(answer.turn, answer);
}

/** @param {Answer} answer @param {string} how done, stopped, failed or interrupted */
async function end(answer, how) {
  socket.unfollow(answer.turn);
  await finish(answer.article);
  answers.delete(answer.turn);
  composer.show(answers.size > 0);
  if (answers.size) return;
  next.refresh(); // it is being sent now, or says why not
  tellEnd(answer.article, how);
  document.body.dispatchEvent(new CustomEvent("planchange"));
  mark(document.hidden ? "●" : "");
}

/** @param {HTMLElement} article @param {string} how done, stopped, failed or interrupted */
function tellEnd(article, how) {
  tell(summarising ? say("summarising") : say(how, { count: words(article) }));
}

/** Takes over what the server says of an ended answer. */
async function finish(article) {
  const response = await fetch(article.dataset.url).catch(() => null);
  if (!response?.ok) return void (article.dataset.status = "interrupted"); // a reload shows how it ended
  const final = parse(await response.text()).querySelector("article");
  await new Promise(whenReleased);
  for (const part of ["[data-parts]", ".message-foot"]) morph(article.querySelector(part), final.querySelector(part));
  article.dataset.status = final.dataset.status;
  window.htmx.process(article);
  equip(article);
}

/** Shows what only scripts can do. @param {HTMLElement} root */
function equip(root) {
  const again = document.getElementById("again");
  for (const button of root.querySelectorAll("[data-copy-answer]")) button.hidden = false;
  for (const button of root.querySelectorAll("[data-again]")) button.hidden = !again;
  showTabs(root);
}

function parse(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

function words(article) {
  const text = [...article.querySelectorAll(".prose")].map((part) => part.textContent).join(" ");
  return text.split(/\s+/).filter(Boolean).length;
}

function stop() {
  tell(say("stopping"));
  for (const turn of answers.keys())
    socket.ask({ type: "stop", turn }).catch((error) => tell(error.code === "closed" ? say("lost") : error.message));
}

/** The message that waits, or else the newest question, comes back to be edited. */
function editLast() {
  const waiting = document.getElementById("next-edit");
  const questions = answers.size ? [] : messages.querySelectorAll("[data-edit-question]");
  (waiting ?? questions[questions.length - 1])?.click();
}

// Other tabs

function onState({ state, title, summary }) {
  if (title) onTitle(title); // what was missed while the socket was not there
  if (state === "answering" && !answers.size) sync();
  next.refresh();
  const ended = summary || (summarising && state !== "summarising");
  summarising = state === "summarising";
  if (summarising) tell(say("summarising"));
  else if (status.textContent === say("summarising")) tell("");
  if (ended) {
    sync(); // the divider where it ends, or why there is none
    document.body.dispatchEvent(new CustomEvent("planchange"));
  }
  composer.hold(summarising);
}

/** @param {string} turn */
function onTurn(turn) {
  next.refresh();
  if (!answers.has(turn) && !messages.querySelector(`[data-turn="${CSS.escape(turn)}"]`)) sync();
}

/** The model has named the conversation. @param {string} name */
function onTitle(name) {
  const heading = document.getElementById("title");
  if (heading.textContent === name) return;
  title = title.replace(heading.textContent, () => name);
  document.title = document.title.replace(heading.textContent, () => name);
  heading.textContent = name;
}

let syncing = Promise.resolve();

/** Takes over what another tab added or replaced. One after the other, and not while this tab's own message is on its way. */
function sync() {
  syncing = syncing.then(async () => {
    if (composer.sending) return;
    const response = await fetch(location.pathname).catch(() => null);
    if (!response?.ok || composer.sending) return;
    const theirs = [...parse(await response.text()).querySelectorAll("#messages > [id]")];
    await new Promise(whenReleased);
    if (composer.sending || !theirs.length) return;
    const known = new Set(theirs.map((each) => each.id));
    const mine = [...messages.querySelectorAll(":scope > [id]")];
    const first = mine.findIndex((each) => known.has(each.id));
    if (first >= 0) for (const each of mine.slice(first)) if (!known.has(each.id)) each.remove();
    let last = null;
    for (const each of theirs) {
      const there = document.getElementById(each.id);
      if (!there) last ? last.after(each) : messages.append(each);
      last = there ?? each;
    }
    window.htmx.process(messages);
    findPending();
  });
}

// The page

document.body.addEventListener("htmx:afterSwap", (event) => {
  findPending();
  if (event.detail.requestConfig.elt === composer.form) scroll.toEnd();
  if (messages.querySelector(".columns:not(:last-child)")) sync(); // only the newest answers stand side by side
});
document.body.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr } = event.detail;
  // A refusal that names its place is a sentence; any other page of an error has no place in this one.
  if (xhr.status < 400 || xhr.getResponseHeader("HX-Retarget")) return;
  event.detail.shouldSwap = false;
  problem(say("refused"));
});
document.body.addEventListener("htmx:sendError", () => problem(say("unreachable")));

/** @param {string} text */
function problem(text) {
  const line = document.createElement("p");
  line.className = "problem";
  line.role = "alert";
  line.textContent = text;
  document.getElementById("problem").replaceChildren(line);
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const edited = event.target.closest(".edit");
  if (edited) {
    edited.querySelector("[data-cancel]").click();
    composer.text.focus();
  } else if (answers.size && !document.querySelector(":popover-open")) stop();
});
document.body.addEventListener("titlechange", ({ detail }) => onTitle(detail.title));
document.addEventListener("visibilitychange", () => !document.hidden && !answers.size && mark(""));
document.querySelector("[data-sign-out]").addEventListener("submit", forgetDrafts);
findPending();
const newest = [...messages.querySelectorAll("article.answer")].at(-1);
// A short answer can be complete before the page opens that would have streamed it.
if (justAsked() && newest && !answers.size) tellEnd(newest, newest.dataset.status);
