/**
 * Passkeys (WebAuthn): forms that are sent with the result of the browser's ceremony. Without WebAuthn they stay hidden.
 */
import { isTextForm, send, showRefusal } from "./drafts.js";
import { all, find, need } from "./page.js";

const isSupported = "PublicKeyCredential" in window && "parseCreationOptionsFromJSON" in PublicKeyCredential;

/** Error if the server sends no challenge. `html` is its response; null without one. */
class NoChallenge extends Error {
  /** @param {string | null} html */
  constructor(html) {
    super("no challenge");
    this.html = html;
  }
}

/** @param {string} address @returns {Promise<unknown>} the challenge */
async function fetchChallenge(address) {
  const headers = { Accept: "application/json", "HX-Request": "true", "HX-Current-URL": location.href };
  const answer = await fetch(address, { headers }).catch(() => null);
  if (!answer?.ok || answer.redirected) throw new NoChallenge(answer && (await answer.text()));
  return answer.json();
}

/** @param {HTMLFormElement} form @returns {Promise<string>} the result of the browser's ceremony, as JSON */
async function runCeremony(form) {
  const challenge = /** @type {any} */ (await fetchChallenge(form.dataset.challenge ?? form.action));
  const { creation_options: create, request_options: get } = challenge;
  const credentials = form.dataset.credentials?.split(" ").map((id) => ({ type: "public-key", id }));
  if (credentials) get.publicKey.allowCredentials = credentials;
  const { parseCreationOptionsFromJSON, parseRequestOptionsFromJSON } = PublicKeyCredential;
  const credential = create
    ? await navigator.credentials.create({ publicKey: parseCreationOptionsFromJSON(create.publicKey) })
    : await navigator.credentials.get({ publicKey: parseRequestOptionsFromJSON(get.publicKey) });
  if (!(credential instanceof PublicKeyCredential)) throw new Error("no passkey");
  return JSON.stringify(credential.toJSON());
}

/** @param {HTMLFormElement} form */
function setUpForm(form) {
  const problem = need(HTMLElement, "[data-passkey-problem]", form);
  form.hidden = false;
  /** @type {boolean} */
  const signedIn = isTextForm(form); // not on the sign-in form
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      need(HTMLInputElement, "[name=credential]", form).value = await runCeremony(form);
      if (signedIn) send(form);
      else form.submit();
    } catch (error) {
      if (error instanceof NoChallenge && signedIn) return showRefusal(form, error.html);
      problem.textContent = form.dataset.refused ?? "";
      problem.hidden = false;
    }
  });
}

if (isSupported && window.isSecureContext) {
  for (const form of all(HTMLFormElement, "[data-passkey]")) setUpForm(form);
  const none = find(HTMLElement, "[data-no-passkeys]");
  if (none) none.hidden = true;
}
