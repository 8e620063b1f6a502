/** The page's sentences in the reader's language; the server wrote them into `#words`. */
const words = document.getElementById("words").dataset;

/**
 * @param {string} name
 * @param {Record<string, string | number>} [values] put in place of `{name}`
 */
export function say(name, values = {}) {
  return Object.entries(values).reduce((text, [key, value]) => text.replace(`{${key}}`, String(value)), words[name] ?? "");
}
