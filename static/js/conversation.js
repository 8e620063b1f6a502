/** The page of a conversation: places updates from the server, and shows the activity in the status line. */
import { Answer, showScriptControls } from "./answers.js";
import "./glass.js";
import { Composer, isAccepted, refreshNext, watchNextMessage } from "./composer.js";
import { isTextForm } from "./drafts.js";
import { FrameRefused, morph, socket, waitForIdle, whenReleased } from "./live.js";
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
  onSay: setStatus,
  onSend: showSending,
  onUnsent: takeBackSending,
});

/** @param {string} text */
function setStatus(text) {
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
  showScriptControls(root);
  for (const article of all(HTMLElement, '[data-turn][data-status="pending"]', root))
    if (!answers.has(article.dataset.turn ?? "")) follow(article);
  showAnswering(answers.size > 0);
}

/** Shows whether an answer is being written. Meanwhile branches cannot be changed. @param {boolean} answering */
function showAnswering(answering) {
  composer.show(answering);
  main.classList.toggle("answering", answering);
}

/** @param {HTMLElement} article */
function follow(article) {
  const answer = new Answer(article, {
    onDoing: (word) => showActivity(word),
    onEnd: (how) => endAnswer(answer, how),
    onLost: () => catchUp(answer),
  });
  answers.set(answer.turn, answer);
  setStatus(say("waiting"));
  markTitle("…");
  socket.follow(answer.turn, answer);
}

/** @param {Answer} answer @param {string} how done, stopped, failed or interrupted */
async function endAnswer(answer, how) {
  socket.unfollow(answer.turn);
  await showFinal(answer.article);
  answers.delete(answer.turn);
  showAnswering(answers.size > 0);
  if (answers.size) return;
  refreshNext(); // the waiting message is sent now, or shows its problem
  tellEnd(answer.article, how);
  announce("planchange");
  markTitle(document.hidden ? "●" : "");
  notify(title, status.textContent);
}

/** @param {string} word the name of a sentence in `say`, or the sentence itself */
function showActivity(word) {
  setStatus(say(word) || word);
  if (word !== "approval") return;
  if (document.hidden) markTitle("●");
  notify(title, say(word));
}

/** @param {HTMLElement} article @param {string} how done, stopped, failed or interrupted */
function tellEnd(article, how) {
  const ending = how === "done" && article.hasAttribute("data-early") ? "early" : how;
  setStatus(summarising ? say("summarising") : say(ending, { count: countWords(article) }));
  if (!summarising) status.dataset.over = ending; // on phones the line of the plan then replaces it
}

/** Loads an answer from the server; null if that fails. @param {HTMLElement} article */
async function loadArticle(article) {
  const response = await fetch(article.dataset.url ?? "").catch(() => null);
  return response?.ok ? find(HTMLElement, "article", parse(await response.text())) : null;
}

/** Updates an unfinished answer from the server. @param {Answer} answer */
async function catchUp(answer) {
  const now = await loadArticle(answer.article);
  if (now?.dataset.status !== "pending") return; // if it has ended, its last event is under way
  await new Promise((resolve) => whenReleased(() => resolve(null)));
  for (const part of ["[data-by]", "[data-parts]"])
    morph(need(HTMLElement, part, answer.article), need(HTMLElement, part, now));
  answer.seq = Number(now.dataset.seq);
}

/** Updates an ended answer from the server. @param {HTMLElement} article */
async function showFinal(article) {
  const final = await loadArticle(article);
  if (!final) {
    article.dataset.status = "interrupted"; // a reload will show the actual state
    return;
  }
  await new Promise((resolve) => whenReleased(() => resolve(null)));
  for (const part of ["[data-parts]", ".message-foot"])
    morph(need(HTMLElement, part, article), need(HTMLElement, part, final));
  article.dataset.status = final.dataset.status;
  article.toggleAttribute("data-early", final.hasAttribute("data-early"));
  htmx.process(article);
  showScriptControls(article);
}

/** @param {HTMLElement} article */
function countWords(article) {
  const text = all(HTMLElement, ".prose", article).map((part) => part.textContent);
  return text.join(" ").split(/\s+/).filter(Boolean).length;
}

function stop() {
  setStatus(say("stopping"));
  for (const turn of answers.keys())
    socket.ask({ type: "stop", turn }).catch((error) => {
      setStatus(error instanceof FrameRefused && error.code !== "closed" ? error.message : say("lost"));
    });
}

/** Opens the waiting message for editing, else the newest question. */
function editLast() {
  const waiting = document.getElementById("next-edit");
  const questions = answers.size ? [] : all(HTMLElement, "[data-edit-question]", messages);
  (waiting ?? questions.at(-1))?.click();
}

// --- news ---

function listen() {
  socket.addEventListener("lost", () => setStatus(say("lost")));
  socket.addEventListener("ended", () => setStatus(say("ended")));
  socket.addEventListener("open", () => {
    if (status.textContent === say("lost")) setStatus(answers.size ? say("answering") : "");
    need(HTMLElement, "#problem").querySelector("[data-unreachable]")?.remove();
  });
  socket.addEventListener("next", refreshNext);
  onHint("state", onState);
  onHint("turn", ({ turn }) => onTurn(turn ?? ""));
  onHint("title", ({ title: name }) => onTitle(name));
  onHint("marks", ({ message }) => refreshMarks(message));
  socket.watch(conversation);
}

/** @param {string} type @param {(hint: import("./live.js").WireEvent) => void} take */
function onHint(type, take) {
  socket.addEventListener(type, (event) => event instanceof CustomEvent && take(event.detail));
}

let hasState = false; // whether a state has come; the page was rendered with the first one

/** @param {import("./live.js").WireEvent} hint */
function onState({ state, title: name, summary }) {
  const again = hasState && name !== undefined; // hints may have been missed without a connection
  if (name) onTitle(name);
  if (hasState) refreshNext();
  hasState = true;
  if (again) refreshMarks();
  else if (state === "answering" && !answers.size) refreshMessages();
  const ended = summary || (summarising && state !== "summarising");
  summarising = state === "summarising";
  if (summarising) setStatus(say("summarising"));
  else if (status.textContent === say("summarising")) setStatus("");
  if (ended) {
    refreshMessages(); // loads the divider of the summary, or its error
    announce("planchange");
  }
  composer.hold(summarising);
}

/** @param {string} turn */
async function onTurn(turn) {
  refreshNext();
  await waitForIdle(messages); // the turn may belong to a message of this tab
  if (!answers.has(turn) && !messages.querySelector(`[data-turn="${CSS.escape(turn)}"]`)) refreshMessages();
}

/** Shows the new title of the conversation. @param {string} name */
function onTitle(name) {
  const heading = need(HTMLElement, "#title");
  const before = heading.textContent.trim();
  if (before === name) return;
  title = title.replace(before, () => name);
  document.title = document.title.replace(before, () => name);
  heading.textContent = name;
}

/** Updates the marks (pinned, left out): of one question, else of all turns of the page. @param {string} [message] */
function refreshMarks(message) {
  announce("planchange");
  if (message) runInOrder(() => takeOverQuestion(message));
  else refreshMessages();
}

/** @param {string} message its id */
async function takeOverQuestion(message) {
  const url = document.getElementById(`m-${message}`)?.dataset.url;
  if (!url) return; // it is above the loaded messages, or being edited
  const response = await fetch(url).catch(() => null);
  const theirs = response?.ok ? find(HTMLElement, "article.question", parse(await response.text())) : null;
  await new Promise((resolve) => whenReleased(() => resolve(null)));
  if (theirs) renewQuestion(theirs);
}

/** @param {HTMLElement} question from the server */
function renewQuestion(question) {
  const mine = document.getElementById(question.id);
  if (!mine?.matches("article.question")) return; // it is being edited
  morph(mine, question);
  htmx.process(mine);
}

let messageRequests = 0; // number of this tab's requests that change the messages
document.body.addEventListener("htmx:beforeSend", ({ detail }) => {
  if (messages.contains(detail.target)) messageRequests += 1;
});

let syncing = Promise.resolve();

/** Runs updates one after the other, so that an older copy does not replace a newer one. @param {() => Promise<void>} take */
function runInOrder(take) {
  syncing = syncing.then(take).catch(reportError);
}

/** Updates the messages after changes by another tab or by the server. */
function refreshMessages() {
  runInOrder(loadMessages);
}

async function loadMessages() {
  await waitForIdle(messages);
  const before = messageRequests;
  const response = await fetch(`${location.pathname}?whole`).catch(() => null);
  const found = response?.ok ? all(HTMLElement, "#messages > [id]", parse(await response.text())) : [];
  await new Promise((resolve) => whenReleased(() => resolve(null)));
  if (messageRequests !== before) return loadMessages(); // the copy may be older than this tab's newest request
  if (!found.length) return;
  const newestBefore = all(HTMLElement, "article.answer", messages).at(-1)?.id;
  const from = found.findIndex((each) => document.getElementById(each.id)); // the first ones may be above the loaded messages
  const theirs = found.slice(Math.max(0, from));
  const known = new Set(theirs.map((each) => each.id));
  const mine = all(HTMLElement, ":scope > [id]", messages);
  const first = mine.findIndex((each) => known.has(each.id));
  if (first >= 0) for (const each of mine.slice(first)) if (!known.has(each.id)) each.remove();
  /** @type {Element | null} */
  let last = null;
  for (const each of theirs) {
    const there = document.getElementById(each.id);
    if (there) renewQuestion(each);
    else if (last) last.after(each);
    else messages.append(each);
    last = there ?? each;
  }
  htmx.process(messages);
  findPending();
  const newest = all(HTMLElement, "article.answer", messages).at(-1);
  // An answer to another tab may be complete already.
  if (newest && !answers.size && newest.id !== newestBefore) tellEnd(newest, newest.dataset.status ?? "");
}

// --- a sent message is shown at once, until the server's HTML replaces it ---

/** @param {string} text @param {Element[]} chips of its files */
function showSending(text, chips) {
  if (answers.size) return; // it is shown above the field, as the waiting message
  const { content, dataset } = need(HTMLTemplateElement, "#sending");
  const message = /** @type {DocumentFragment} */ (content.cloneNode(true));
  const body = need(HTMLElement, ".said", message);
  body.textContent = text;
  body.classList.toggle("folds", text.length >= Number(dataset.foldsFrom));
  for (const chip of chips) {
    const copy = /** @type {Element} */ (chip.cloneNode(true));
    copy.removeAttribute("id");
    for (const each of copy.querySelectorAll("input, button")) each.remove();
    need(HTMLElement, ".attached", message).append(copy);
  }
  need(HTMLElement, "[data-by]", message).textContent = composer.answerer;
  messages.append(message);
  main.classList.remove("new");
  main.classList.add("answering");
  main.classList.toggle("begun", !conversation);
  transcript.scrollTop = 0;
}

function endSending() {
  for (const each of all(HTMLElement, "[data-sending]", messages)) each.remove();
}

/** Removes a message that could not be sent. The composer has its text again. */
function takeBackSending() {
  endSending();
  main.classList.toggle("new", !conversation);
  main.classList.remove("answering", "begun");
}

// --- the first message: the page of a new conversation turns into the conversation's page without a reload ---

const READDRESSED_ELEMENTS = "#composer, #text, #plan, #picker-search, #side-list"; // on both pages, with different addresses
const ADDRESSES = ["action", "hx-get", "hx-post", "data-prompts-url", "placeholder"];
const ADDED_ELEMENTS = "#next, #persona-form, #share-dialog"; // each is inserted after its previous element, which both pages have
let shownPath = new URL(performance.getEntriesByType("navigation")[0].name).pathname; // the page that was loaded, before any navigation in the history

document.body.addEventListener("htmx:beforeOnLoad", (event) => {
  const { requestConfig, xhr } = event.detail;
  const address = xhr.getResponseHeader("Content-Location");
  if (conversation || requestConfig.elt !== composer.form || !isAccepted(xhr) || !address) return;
  event.preventDefault();
  history.pushState(null, "", address);
  shownPath = location.pathname;
  showConversation(parse(xhr.responseText));
});

/** @param {Document} page the conversation's page from the server */
function showConversation(page) {
  htmx.trigger("#side-list", "htmx:abort"); // a list that is being loaded does not mark this conversation
  for (const theirs of all(HTMLElement, READDRESSED_ELEMENTS, page)) {
    const mine = need(HTMLElement, `#${theirs.id}`);
    for (const name of ADDRESSES)
      if (theirs.hasAttribute(name)) mine.setAttribute(name, theirs.getAttribute(name) ?? "");
    htmx.process(mine);
  }
  for (const added of all(HTMLElement, ADDED_ELEMENTS, page)) {
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
  watchNextMessage((text, files) => composer.take(text, files));
  listen();
  findPending();
  announce("sidechange");
  announce("planchange");
  const newest = all(HTMLElement, "article.answer", messages).at(-1);
  if (newest && !answers.size) tellEnd(newest, newest.dataset.status ?? ""); // a short answer may be complete already
}

/** Reloads if the browser went back or forward between the two pages, which share one document. */
function reloadIfMoved() {
  if (location.pathname !== shownPath) location.reload();
}

addEventListener("popstate", reloadIfMoved);
reloadIfMoved();

// --- responses to this tab's requests ---

document.body.addEventListener("htmx:afterSwap", ({ detail }) => {
  findPending();
  if (detail.requestConfig.elt === composer.form) transcript.scrollTop = 0;
  if (messages.querySelector(".columns:not(:last-child)")) refreshMessages(); // only the newest answers are side by side
});
messages.addEventListener("htmx:afterSettle", ({ detail: { requestConfig } }) => {
  const { activeElement: at } = document;
  if (at !== document.body && !requestConfig.elt.contains(at)) return;
  if (requestConfig.elt.matches("[data-begins]")) focusNewestAnswer();
  if (requestConfig.elt.matches("[data-cancel]"))
    find(HTMLElement, `#${requestConfig.target.id} :is([data-edit-question], [id^="options-"])`)?.focus();
});

// The menu closes when the edit of an answer opens.
document.body.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (detail.requestConfig.elt.matches("[data-edit-answer]")) need(HTMLElement, "#message-menu").hidePopover();
});

// A vote opens the question for its reason, and the answer closes it.
document.body.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (!detail.requestConfig.elt.matches(".feedback form")) return;
  const why = find(HTMLElement, ".why-dialog", document.getElementById(detail.requestConfig.target.id));
  if (why?.matches("[data-asks]")) why.showPopover();
  else why?.hidePopover();
});

/** Focuses the newest answer, since the pressed button is removed. */
function focusNewestAnswer() {
  all(HTMLElement, "article.answer", messages).at(-1)?.focus({ preventScroll: true });
}

document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (detail.requestConfig.elt === composer.form && isAccepted(detail.xhr)) endSending();
  // An error with HX-Retarget is a sentence for that place. Other error pages are not inserted.
  if (detail.xhr.getResponseHeader("HX-Retarget") || isTextForm(detail.requestConfig.elt)) return;
  if (detail.xhr.status < 400 && (detail.requestConfig.elt !== composer.form || isAccepted(detail.xhr))) return;
  detail.shouldSwap = false;
  showProblem(say("refused"));
});
document.body.addEventListener("htmx:sendError", ({ detail }) => {
  if (isTextForm(detail.requestConfig.elt)) return; // the form shows the error at its button
  showProblem(say("unreachable")).dataset.unreachable = "";
});

/** @param {string} text */
function showProblem(text) {
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
document.body.addEventListener("markchange", ({ detail }) => refreshMarks(detail.message));
document.body.addEventListener("titlechange", ({ detail }) => onTitle(detail.title));

// --- the title, edited in the head ---

/** @param {boolean} open */
function toggleTitleForm(open) {
  const form = find(HTMLFormElement, "#title-form");
  if (!form) return; // a temporary conversation has none
  const heading = need(HTMLElement, "#title");
  const field = need(HTMLInputElement, "[name=title]", form);
  if (open) field.value = heading.textContent.trim();
  form.hidden = !open;
  for (const each of [heading, need(HTMLElement, "#edit-title")]) each.hidden = open;
  if (open) field.select();
}

document.addEventListener("click", ({ target }) => around(Element, "#edit-title", target) && toggleTitleForm(true));
document.addEventListener("dblclick", ({ target }) => around(Element, "#title", target) && toggleTitleForm(true));
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !around(Element, "#title-form", event.target)) return;
  event.preventDefault();
  toggleTitleForm(false);
  find(HTMLElement, "#edit-title")?.focus();
});
document.addEventListener("focusout", ({ target }) => {
  const form = around(HTMLFormElement, "#title-form", target);
  if (!form || form.hidden) return;
  const field = need(HTMLInputElement, "[name=title]", form);
  if (field.value.trim() && field.value.trim() !== need(HTMLElement, "#title").textContent.trim()) form.requestSubmit();
  toggleTitleForm(false);
});
document.addEventListener("htmx:afterRequest", ({ target }) => {
  if (!around(HTMLFormElement, "#title-form", target) || !document.activeElement?.closest("#title-form")) return;
  toggleTitleForm(false);
  find(HTMLElement, "#edit-title")?.focus();
});
document.addEventListener("visibilitychange", () => !document.hidden && !answers.size && markTitle(""));

// --- scrolling: the page follows the newest text unless the reader scrolled up, and offers a way back ---
// The transcript uses `column-reverse`: its scroll position is 0 at the newest end and negative above it. So it follows
// the end, and stays in place when older messages are inserted above, without a script.

const END_DISTANCE = 48; // pixels
const transcript = need(HTMLElement, "#transcript");
const toNewest = need(HTMLButtonElement, "#to-newest");
let height = messages.offsetHeight;
const isAtEnd = () => transcript.scrollTop > -END_DISTANCE;

function offerNewest() {
  toNewest.hidden = isAtEnd();
}

new ResizeObserver(() => {
  const grown = messages.offsetHeight - height;
  height = messages.offsetHeight;
  // In browsers without scroll anchoring the text would move up while it is read.
  if (!CSS.supports("overflow-anchor", "auto") && !isAtEnd()) transcript.scrollTop -= grown;
  offerNewest();
}).observe(messages);
transcript.addEventListener("scroll", offerNewest, { passive: true });
toNewest.addEventListener("click", () => {
  transcript.scrollTop = 0;
});
offerNewest();

// --- the panel: htmx fills it; this part manages its focus ---

const panel = need(HTMLElement, "#panel");
const panelBody = need(HTMLElement, "#panel-body", panel);
/** @type {Element | null} */
let panelOpener = null;

document.body.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (detail.target !== panelBody) return;
  const { elt } = detail.requestConfig;
  const inside = elt.closest("nav") && !elt.isConnected; // a tab of the panel, which the swap replaced
  if (!inside) panelOpener = elt;
  panel.hidden = false;
  find(HTMLElement, inside ? "nav [aria-current]" : "#panel-title", panel)?.focus();
});
need(HTMLElement, "[data-close-panel]", panel).addEventListener("click", closePanel);
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape" && !panel.hidden && panel.contains(document.activeElement)) closePanel();
});

// Scrolls to a quoted answer on the page. Otherwise the link opens it.
panelBody.addEventListener("click", (event) => {
  const link = around(HTMLElement, "[data-quote]", event.target);
  const answer = link && document.getElementById(link.dataset.quote ?? "");
  if (!answer) return;
  event.preventDefault();
  if (getComputedStyle(panel).position === "fixed") closePanel();
  answer.scrollIntoView({ block: "center" });
  answer.focus({ preventScroll: true });
});

// Applies an offer that makes the draft fit: removes a file or chooses a model.
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

// --- the loaded page ---

watchNextMessage((text, files) => composer.take(text, files));
if (conversation) listen();
findPending();
