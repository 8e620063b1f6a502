/** Sends one file to the server and tells how far it is. */
const words = document.getElementById("file-words").dataset;

/** @param {string} name of a sentence in `#file-words` @param {Record<string, string | number>} [values] */
export function say(name, values = {}) {
  return Object.entries(values).reduce((text, [key, value]) => text.replace(`{${key}}`, String(value)), words[name] ?? "");
}

/**
 * fetch cannot tell the progress of what it sends, so this is an XMLHttpRequest.
 * @param {File} file
 * @param {{url: string, token: string, onProgress: (share: number) => void}} how `share` is 0 to 1
 * @returns {Promise<string>} the server's HTML; rejected with an Error whose message is a sentence for people
 */
export function send(file, { url, token, onProgress }) {
  return new Promise((resolve, reject) => {
    if (file.size > Number(words.most)) return reject(new Error(say("tooLarge"))); // the server would break off in the middle
    const request = new XMLHttpRequest();
    const form = new FormData();
    form.append("file", file);
    request.upload.addEventListener("progress", (event) => event.lengthComputable && onProgress(event.loaded / event.total));
    request.addEventListener("load", () => {
      if (request.status < 300) resolve(request.responseText);
      else reject(new Error(sentence(request.responseText) || say("refused")));
    });
    request.addEventListener("error", () => reject(new Error(say("unreachable"))));
    request.open("POST", url);
    request.setRequestHeader("HX-Request", "true"); // a fragment, please, for what is refused as well
    request.setRequestHeader("X-CSRFToken", token);
    request.send(form);
  });
}

function sentence(html) {
  return new DOMParser().parseFromString(html, "text/html").querySelector(".problem")?.textContent.trim();
}

/** Files of a drop or paste. Text that is on the clipboard beside a picture of itself, as from a table, goes first. */
export function filesOf(/** @type {DataTransfer | null} */ transfer) {
  if (!transfer?.files.length || transfer.types.includes("text/plain")) return [];
  return [...transfer.files];
}

/** Files dropped or pasted anywhere on the page; without this a browser would leave the page and open them. */
export function catchFiles(/** @type {(files: File[]) => void} */ take, /** @type {HTMLElement} */ marked) {
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    marked.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget || marked.classList.remove("dropping"));
  document.addEventListener("drop", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    marked.classList.remove("dropping");
    take([...event.dataTransfer.files]);
  });
  document.addEventListener("paste", (event) => {
    const files = filesOf(event.clipboardData);
    if (!files.length) return;
    event.preventDefault();
    take(files);
  });
}

const AT_ONCE = 2;
let running = 0;
const waiting = [];

/** Uploads run two at a time; `job` returns a promise. */
export function queue(job) {
  waiting.push(job);
  next();
}

function next() {
  while (running < AT_ONCE && waiting.length) {
    running += 1;
    waiting.shift()().finally(() => {
      running -= 1;
      next();
    });
  }
}
