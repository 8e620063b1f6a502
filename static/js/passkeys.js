/**
 * Passkeys (WebAuthn): forms that are sent with what the browser's ceremony gives. Without it they stay hidden.
 */
import { holdsText, refuse, send } from "./drafts.js";
import { all, find, need } from "./page.js";

const able = "PublicKeyCredential" in window && "parseCreationOptionsFromJSON" in PublicKeyCredential;

/** The server gives no challenge: what it says of that, null without an answer. */
class NoChallenge extends Error {
  /** @param {string | null} html */
  constructor(html) {
    super("no challenge");
    this.html = html;
  }
}

/** @param {string} address @returns {Promise<unknown>} the challenge */
async function asked(address) {
  const headers = { Accept: "application/json", "HX-Request": "true", "HX-Current-URL": location.href };
  const answer = await fetch(address, { headers }).catch(() => null);
  if (!answer?.ok || answer.redirected) throw new NoChallenge(answer && (await answer.text()));
  return answer.json();
}

/** @param {HTMLFormElement} form @returns {Promise<string>} what the browser's ceremony gives, as JSON */
async function ceremony(form) {
  const challenge = /** @type {any} */ (await asked(form.dataset.challenge ?? form.action));
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
function take(form) {
  const problem = need(HTMLElement, "[data-passkey-problem]", form);
  form.hidden = false;
  /** @type {boolean} */
  const signedIn = holdsText(form); // not the form with which one signs in
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.hidden = true;
    try {
      need(HTMLInputElement, "[name=credential]", form).value = await ceremony(form);
      if (signedIn) send(form);
      else form.submit();
    } catch (error) {
      if (error instanceof NoChallenge && signedIn) return refuse(form, error.html);
      problem.textContent = form.dataset.refused ?? "";
      problem.hidden = false;
    }
  });
}

if (able && window.isSecureContext) {
  for (const form of all(HTMLFormElement, "[data-passkey]")) take(form);
  const none = find(HTMLElement, "[data-no-passkeys]");
  if (none) none.hidden = true;
}
