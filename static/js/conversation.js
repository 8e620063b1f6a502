/** The page of a conversation: what comes from the server finds its place, and the status line says what goes on. */
import { Answer, equip } from "./answers.js";
import "./glass.js";
import { Composer, editNext, isAccepted, refreshNext } from "./composer.js";
import { holdsText } from "./drafts.js";
import { atRest, morph, Refused, socket, whenReleased } from "./live.js";
import { all, announce, around, find, need, notify, parse, say } from "./page.js";
import { chooseModel } from "./who.js";

const main = need(HTMLElement, "main");
let conversation = main.dataset.conversation ?? "";
const messages = need(HTMLElement, "#messages");
const status = need(HTMLElement, "#status");
let title = document.title;
/** @type {Map<string, Answer>} */
const answers = new Map();
let summarising = main.dataset.state === "summarising";
const composer = new Composer(conversation, {
  onStop: stop,
  onEditLast: editLast,
  onSay: tell,
  onSend: showSending,
  onUnsent: takeBackSending,
});

/** @param {string} text */
function tell(text) {
  if (status.textContent !== text) status.textContent = text;
  delete status.dataset.over;
}

/** @param {string} sign */
function markTitle(sign) {
  document.title = sign ? `${sign} ${title}` : title;
}

// --- answers ---

/** @param {HTMLElement} root */
function findPending(root = messages) {
  equip(root);
  for (const article of all(HTMLElement, '[data-turn][data-status="pending"]', root))
    if (!answers.has(article.dataset.turn ?? "")) follow(article);
  showAnswering(answers.size > 0);
}

/** While an answer is being written the tree stays as it is. @param {boolean} answering */
function showAnswering(answering) {
  composer.show(answering);
  main.classList.toggle("answering", answering);
}

/** @param {HTMLElement} article */
function follow(article) {
  const answer = new Answer(article, {
    onDoing: (word) => doing(word),
    onEnd: (how) => end(answer, how),
    onLost: () => catchUp(answer),
  });
  answers.set(answer.turn, answer);
  tell(say("waiting"));
  markTitle("…");
  socket.follow(answer.turn, answer);
}

/** @param {Answer} answer @param {string} how done, stopped, failed or interrupted */
async function end(answer, how) {
  socket.unfollow(answer.turn);
  await finish(answer.article);
  answers.delete(answer.turn);
  showAnswering(answers.size > 0);
  if (answers.size) return;
  refreshNext(); // it is being sent now, or says why not
  tellEnd(answer.article, how);
  announce("planchange");
  markTitle(document.hidden ? "●" : "");
  notify(title, status.textContent);
}

/** @param {string} word of the sentence that says what goes on, or that sentence */
function doing(word) {
  tell(say(word) || word);
  if (word !== "approval") return;
  if (document.hidden) markTitle("●");
  notify(title, say(word));
}

/** @param {HTMLElement} article @param {string} how done, stopped, failed or interrupted */
function tellEnd(article, how) {
  const ending = how === "done" && article.hasAttribute("data-early") ? "early" : how;
  tell(summarising ? say("summarising") : say(ending, { count: words(article) }));
  if (!summarising) status.dataset.over = ending; // on a phone it then gives way to the line of the plan
}

/** An answer as the server has it now, null where it cannot be reached. @param {HTMLElement} article */
async function stored(article) {
  const response = await fetch(article.dataset.url ?? "").catch(() => null);
  return response?.ok ? find(HTMLElement, "article", parse(await response.text())) : null;
}

/** Takes over what the server has of an answer that goes on. @param {Answer} answer */
async function catchUp(answer) {
  const now = await stored(answer.article);
  if (now?.dataset.status !== "pending") return; // of one that has ended the last event is on its way
  await new Promise((resolve) => whenReleased(() => resolve(null)));
  for (const part of ["[data-by]", "[data-parts]"])
    morph(need(HTMLElement, part, answer.article), need(HTMLElement, part, now));
  answer.seq = Number(now.dataset.seq);
}

/** Takes over what the server says of an ended answer. @param {HTMLElement} article */
async function finish(article) {
  const final = await stored(article);
  if (!final) {
    article.dataset.status = "interrupted"; // a reload shows how it ended
    return;
  }
  await new Promise((resolve) => whenReleased(() => resolve(null)));
  for (const part of ["[data-parts]", ".message-foot"])
    morph(need(HTMLElement, part, article), need(HTMLElement, part, final));
  article.dataset.status = final.dataset.status;
  article.toggleAttribute("data-early", final.hasAttribute("data-early"));
  htmx.process(article);
  equip(article);
}

/** @param {HTMLElement} article */
function words(article) {
  const text = all(HTMLElement, ".prose", article).map((part) => part.textContent);
  return text.join(" ").split(/\s+/).filter(Boolean).length;
}

function stop() {
  tell(say("stopping"));
  for (const turn of answers.keys())
    socket.ask({ type: "stop", turn }).catch((error) => {
      tell(error instanceof Refused && error.code !== "closed" ? error.message : say("lost"));
    });
}

/** The message that waits, or else the newest question, comes back to be edited. */
function editLast() {
  const waiting = document.getElementById("next-edit");
  const questions = answers.size ? [] : all(HTMLElement, "[data-edit-question]", messages);
  (waiting ?? questions.at(-1))?.click();
}

// --- news ---

function listen() {
  socket.addEventListener("lost", () => tell(say("lost")));
  socket.addEventListener("ended", () => tell(say("ended")));
  socket.addEventListener("open", () => {
    if (status.textContent === say("lost")) tell(answers.size ? say("answering") : "");
    need(HTMLElement, "#problem").querySelector("[data-unreachable]")?.remove();
  });
  socket.addEventListener("next", refreshNext);
  onHint("state", onState);
  onHint("turn", ({ turn }) => onTurn(turn ?? ""));
  onHint("title", ({ title: name }) => onTitle(name));
  onHint("marks", ({ message }) => remark(message));
  socket.watch(conversation);
}

/** @param {string} type @param {(hint: import("./live.js").WireEvent) => void} take */
function onHint(type, take) {
  socket.addEventListener(type, (event) => event instanceof CustomEvent && take(event.detail));
}

let welcomed = false; // the first state is that of the page as it came

/** @param {import("./live.js").WireEvent} hint */
function onState({ state, title: name, summary }) {
  const again = welcomed && name !== undefined; // hints were missed while the socket was not there
  if (name) onTitle(name);
  if (welcomed) refreshNext();
  welcomed = true;
  if (again) remark();
  else if (state === "answering" && !answers.size) sync();
  const ended = summary || (summarising && state !== "summarising");
  summarising = state === "summarising";
  if (summarising) tell(say("summarising"));
  else if (status.textContent === say("summarising")) tell("");
  if (ended) {
    sync(); // the divider where it ends, or why there is none
    announce("planchange");
  }
  composer.hold(summarising);
}

/** @param {string} turn */
async function onTurn(turn) {
  refreshNext();
  await atRest(messages); // it may be of this tab's own message
  if (!answers.has(turn) && !messages.querySelector(`[data-turn="${CSS.escape(turn)}"]`)) sync();
}

/** The model has named the conversation. @param {string} name */
function onTitle(name) {
  const heading = need(HTMLElement, "#title");
  const before = heading.textContent.trim();
  if (before === name) return;
  title = title.replace(before, () => name);
  document.title = document.title.replace(before, () => name);
  heading.textContent = name;
}

/** Takes over what is pinned and left out now: the turn of this question, without one all turns of the page. @param {string} [message] */
function remark(message) {
  announce("planchange");
  if (message) inOrder(() => takeOverQuestion(message));
  else sync();
}

/** @param {string} message its id */
async function takeOverQuestion(message) {
  const url = document.getElementById(`m-${message}`)?.dataset.url;
  if (!url) return; // further up than the page reaches, or being edited
  const response = await fetch(url).catch(() => null);
  const theirs = response?.ok ? find(HTMLElement, "article.question", parse(await response.text())) : null;
  await new Promise((resolve) => whenReleased(() => resolve(null)));
  if (theirs) renew(theirs);
}

/** @param {HTMLElement} question as the server has it */
function renew(question) {
  const mine = document.getElementById(question.id);
  if (!mine?.matches("article.question")) return; // it is being edited
  morph(mine, question);
  htmx.process(mine);
}

let begun = 0; // requests of this tab that change the messages
document.body.addEventListener("htmx:beforeSend", ({ detail }) => {
  if (messages.contains(detail.target)) begun += 1;
});

let syncing = Promise.resolve();

/** Asks for the next copy when the one before is on the page: an older one must not take the place of a newer one. @param {() => Promise<void>} take */
function inOrder(take) {
  syncing = syncing.then(take).catch(reportError);
}

/** Takes over what another tab, or the server by itself, has added, replaced or marked. */
function sync() {
  inOrder(takeOver);
}

async function takeOver() {
  await atRest(messages);
  const before = begun;
  const response = await fetch(`${location.pathname}?whole`).catch(() => null);
  const found = response?.ok ? all(HTMLElement, "#messages > [id]", parse(await response.text())) : [];
  await new Promise((resolve) => whenReleased(() => resolve(null)));
  if (begun !== before) return takeOver(); // what came may be older than what this tab has asked for since
  if (!found.length) return;
  const newestBefore = all(HTMLElement, "article.answer", messages).at(-1)?.id;
  const from = found.findIndex((each) => document.getElementById(each.id)); // before are some further up than this page
  const theirs = found.slice(Math.max(0, from));
  const known = new Set(theirs.map((each) => each.id));
  const mine = all(HTMLElement, ":scope > [id]", messages);
  const first = mine.findIndex((each) => known.has(each.id));
  if (first >= 0) for (const each of mine.slice(first)) if (!known.has(each.id)) each.remove();
  /** @type {Element | null} */
  let last = null;
  for (const each of theirs) {
    const there = document.getElementById(each.id);
    if (there) renew(each);
    else if (last) last.after(each);
    else messages.append(each);
    last = there ?? each;
  }
  htmx.process(messages);
  findPending();
  const newest = all(HTMLElement, "article.answer", messages).at(-1);
  // One that another tab has asked for, and that is complete by the time it comes here.
  if (newest && !answers.size && newest.id !== newestBefore) tellEnd(newest, newest.dataset.status ?? "");
}

// --- what was just sent stands in its place at once, and gives way to what the server makes of it ---

/** @param {string} text @param {Element[]} chips of the files that go with it */
function showSending(text, chips) {
  if (answers.size) return; // it waits for the answer, above the field
  const { content, dataset } = need(HTMLTemplateElement, "#sending");
  const shown = /** @type {DocumentFragment} */ (content.cloneNode(true));
  const words = need(HTMLElement, ".said", shown);
  words.textContent = text;
  words.classList.toggle("folds", text.length >= Number(dataset.foldsFrom));
  for (const chip of chips) {
    const copy = /** @type {Element} */ (chip.cloneNode(true));
    copy.removeAttribute("id");
    for (const each of copy.querySelectorAll("input, button")) each.remove();
    need(HTMLElement, ".attached", shown).append(copy);
  }
  need(HTMLElement, "[data-by]", shown).textContent = composer.answerer;
  messages.append(shown);
  main.classList.remove("new");
  main.classList.add("answering");
  main.classList.toggle("begun", !conversation);
  transcript.scrollTop = 0;
}

function endSending() {
  for (const each of all(HTMLElement, "[data-sending]", messages)) each.remove();
}

/** What could not be sent is in the field again. */
function takeBackSending() {
  endSending();
  main.classList.toggle("new", !conversation);
  main.classList.remove("answering", "begun");
}

// --- the first message: the page of a new conversation becomes that of the conversation, in place ---

const READDRESSED = "#composer, #text, #plan, #picker-search, #side-list"; // on both pages, for other addresses
const ADDRESSES = ["action", "hx-get", "hx-post", "data-prompts-url", "placeholder"];
const ADDED = "#next, #persona-form, #share-dialog"; // behind what stands before them on both pages
let shown = new URL(performance.getEntriesByType("navigation")[0].name).pathname; // before any going back or forward

document.body.addEventListener("htmx:beforeOnLoad", (event) => {
  const { requestConfig, xhr } = event.detail;
  const address = xhr.getResponseHeader("Content-Location");
  if (conversation || requestConfig.elt !== composer.form || !isAccepted(xhr) || !address) return;
  event.preventDefault();
  history.pushState(null, "", address);
  shown = location.pathname;
  become(parse(xhr.responseText));
});

/** @param {Document} page of the conversation, as the server has it */
function become(page) {
  htmx.trigger("#side-list", "htmx:abort"); // a list that is on its way marks no conversation
  for (const theirs of all(HTMLElement, READDRESSED, page)) {
    const mine = need(HTMLElement, `#${theirs.id}`);
    for (const name of ADDRESSES)
      if (theirs.hasAttribute(name)) mine.setAttribute(name, theirs.getAttribute(name) ?? "");
    htmx.process(mine);
  }
  for (const added of all(HTMLElement, ADDED, page)) {
    document.getElementById(added.previousElementSibling?.id ?? "")?.after(added);
    htmx.process(added);
  }
  for (const place of ["header.head", ".who-choice:has([name=persona])"]) {
    const [mine, theirs] = [find(HTMLElement, place), find(HTMLElement, place, page)];
    if (mine && theirs) morph(mine, theirs);
    if (mine) htmx.process(mine);
  }
  for (const gone of all(Element, ".recent, .place, #composer > :is([name=project], [name=temporary])")) gone.remove();
  find(HTMLElement, ".new-conversation[aria-current]")?.removeAttribute("aria-current");
  messages.replaceChildren(...need(HTMLElement, "#messages", page).childNodes);
  htmx.process(messages);
  main.classList.remove("new", "begun");
  main.dataset.conversation = conversation = need(HTMLElement, "main", page).dataset.conversation ?? "";
  title = document.title = page.title;
  transcript.scrollTop = 0;
  editNext((text, files) => composer.take(text, files));
  listen();
  findPending();
  announce("sidechange");
  announce("planchange");
  const newest = all(HTMLElement, "article.answer", messages).at(-1);
  if (newest && !answers.size) tellEnd(newest, newest.dataset.status ?? ""); // a short answer is complete at once
}

/** Between the two pages the browser goes back and forward without loading one. */
function arrive() {
  if (location.pathname !== shown) location.reload();
}

addEventListener("popstate", arrive);
arrive();

// --- what was asked for ---

document.body.addEventListener("htmx:afterSwap", ({ detail }) => {
  findPending();
  if (detail.requestConfig.elt === composer.form) transcript.scrollTop = 0;
  if (messages.querySelector(".columns:not(:last-child)")) sync(); // only the newest answers stand side by side
});
messages.addEventListener("htmx:afterSettle", ({ detail: { requestConfig } }) => {
  const { activeElement: at } = document;
  if (at !== document.body && !requestConfig.elt.contains(at)) return;
  if (requestConfig.elt.matches("[data-begins]")) focusNewestAnswer();
  if (requestConfig.elt.matches("[data-cancel]"))
    find(HTMLElement, `#${requestConfig.target.id} :is([data-edit-question], [id^="options-"])`)?.focus();
});

// The menu in which an answer was taken up to be edited has done its work.
document.body.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (detail.requestConfig.elt.matches("[data-edit-answer]")) need(HTMLElement, "#message-menu").hidePopover();
});

// A vote asks why; what was answered closes the question.
document.body.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (!detail.requestConfig.elt.matches(".feedback form")) return;
  const why = find(HTMLElement, ".why-dialog", document.getElementById(detail.requestConfig.target.id));
  if (why?.matches("[data-asks]")) why.showPopover();
  else why?.hidePopover();
});

/** What was pressed has begun it, and goes. */
function focusNewestAnswer() {
  all(HTMLElement, "article.answer", messages).at(-1)?.focus({ preventScroll: true });
}

document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.requestConfig.elt === composer.form && isAccepted(detail.xhr)) endSending();
  // A refusal that names its place is a sentence; any other page of an error has no place in this one.
  if (detail.xhr.getResponseHeader("HX-Retarget") || holdsText(detail.requestConfig.elt)) return;
  if (detail.xhr.status < 400 && (detail.requestConfig.elt !== composer.form || isAccepted(detail.xhr))) return;
  detail.shouldSwap = false;
  problem(say("refused"));
});
document.body.addEventListener("htmx:sendError", ({ detail }) => {
  if (holdsText(detail.requestConfig.elt)) return; // it says so at its button
  problem(say("unreachable")).dataset.unreachable = "";
});

/** @param {string} text */
function problem(text) {
  const line = document.createElement("p");
  line.className = "problem";
  line.role = "alert";
  line.textContent = text;
  need(HTMLElement, "#problem").replaceChildren(line);
  return line;
}

document.addEventListener("keydown", ({ key, target }) => {
  if (key !== "Escape") return;
  const edited = around(HTMLElement, ".edit", target);
  if (edited) {
    need(HTMLElement, "[data-cancel]", edited).click();
    composer.text.focus();
  } else if (answers.size && !document.querySelector(":popover-open")) stop();
});
document.body.addEventListener("markchange", ({ detail }) => remark(detail.message));
document.body.addEventListener("titlechange", ({ detail }) => onTitle(detail.title));

// --- the title, written in the head ---

/** @param {boolean} open */
function writeTitle(open) {
  const form = find(HTMLFormElement, "#title-form");
  if (!form) return; // of a temporary conversation
  const heading = need(HTMLElement, "#title");
  const field = need(HTMLInputElement, "[name=title]", form);
  if (open) field.value = heading.textContent.trim();
  form.hidden = !open;
  for (const each of [heading, need(HTMLElement, "#edit-title")]) each.hidden = open;
  if (open) field.select();
}

document.addEventListener("click", ({ target }) => around(Element, "#edit-title", target) && writeTitle(true));
document.addEventListener("dblclick", ({ target }) => around(Element, "#title", target) && writeTitle(true));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !around(Element, "#title-form", event.target)) return;
  event.preventDefault();
  writeTitle(false);
  find(HTMLElement, "#edit-title")?.focus();
});
document.addEventListener("focusout", ({ target }) => {
  const form = around(HTMLFormElement, "#title-form", target);
  if (!form || form.hidden) return;
  const field = need(HTMLInputElement, "[name=title]", form);
  if (field.value.trim() && field.value.trim() !== need(HTMLElement, "#title").textContent.trim()) form.requestSubmit();
  writeTitle(false);
});
document.addEventListener("htmx:afterRequest", ({ target }) => {
  if (!around(HTMLFormElement, "#title-form", target) || !document.activeElement?.closest("#title-form")) return;
  writeTitle(false);
  find(HTMLElement, "#edit-title")?.focus();
});
document.addEventListener("visibilitychange", () => !document.hidden && !answers.size && markTitle(""));

// --- scrolling: the page keeps to the newest text unless the reader scrolled up, and offers a way back ---
// The scroller is laid out from its end (`column-reverse`): its scroll position is 0 at the newest end and negative
// above it, so keeping to the end, and staying in place when older messages come in above, need no script.

const AT_END = 48; // pixels
const transcript = need(HTMLElement, "#transcript");
const toNewest = need(HTMLButtonElement, "#to-newest");
let height = messages.offsetHeight;
const isAtEnd = () => transcript.scrollTop > -AT_END;

function offerNewest() {
  toNewest.hidden = isAtEnd();
}

new ResizeObserver(() => {
  const grown = messages.offsetHeight - height;
  height = messages.offsetHeight;
  // Browsers without scroll anchoring would let the text slip upwards under the reader's eyes.
  if (!CSS.supports("overflow-anchor", "auto") && !isAtEnd()) transcript.scrollTop -= grown;
  offerNewest();
}).observe(messages);
transcript.addEventListener("scroll", offerNewest, { passive: true });
toNewest.addEventListener("click", () => {
  transcript.scrollTop = 0;
});
offerNewest();

// --- the panel beside the conversation: htmx fills it; it keeps the focus where it belongs ---

const panel = need(HTMLElement, "#panel");
const panelBody = need(HTMLElement, "#panel-body", panel);
/** @type {Element | null} */
let panelOpener = null;

document.body.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (detail.target !== panelBody) return;
  const { elt } = detail.requestConfig;
  const inside = elt.closest("nav") && !elt.isConnected; // one of the panel's own tabs, which is another by now
  if (!inside) panelOpener = elt;
  panel.hidden = false;
  find(HTMLElement, inside ? "nav [aria-current]" : "#panel-title", panel)?.focus();
});
need(HTMLElement, "[data-close-panel]", panel).addEventListener("click", closePanel);
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape" && !panel.hidden && panel.contains(document.activeElement)) closePanel();
});

/** To the answer that is quoted, where it is on the page; otherwise the link leads to it. */
panelBody.addEventListener("click", (event) => {
  const link = around(HTMLElement, "[data-quote]", event.target);
  const answer = link && document.getElementById(link.dataset.quote ?? "");
  if (!answer) return;
  event.preventDefault();
  if (getComputedStyle(panel).position === "fixed") closePanel();
  answer.scrollIntoView({ block: "center" });
  answer.focus({ preventScroll: true });
});

/** An offer that makes the draft fit: the composer does what a person would do there. */
panelBody.addEventListener("click", ({ target }) => {
  const file = around(HTMLElement, "[data-remove-file]", target)?.dataset.removeFile;
  const model = around(HTMLElement, "[data-choose-model]", target)?.dataset.chooseModel;
  if (file) document.getElementById(`chip-${file}`)?.remove();
  if (model) chooseModel(composer.form, model);
});

function closePanel() {
  panel.hidden = true;
  panelBody.replaceChildren();
  if (panelOpener instanceof HTMLElement && panelOpener.isConnected) panelOpener.focus();
  else focusNewestAnswer();
}

// --- the page as it came ---

editNext((text, files) => composer.take(text, files));
if (conversation) listen();
findPending();
