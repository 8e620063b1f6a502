{% autoescape off %}/** Keeps the page that is shown without a network, and nothing that is anybody's. */
const OFFLINE = "{{ offline }}";
const SHELL = [OFFLINE, {% for file in files %}"{{ file }}"{% if not forloop.last %}, {% endif %}{% endfor %}];
const CACHE = `shell-${SHELL.join()}`;

addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(SHELL)).then(() => skipWaiting()));
});

addEventListener("activate", (event) => {
  event.waitUntil(
    caches.keys().then((names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name)))),
  );
});

addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.mode === "navigate" && request.method === "GET")
    event.respondWith(fetch(request).catch(() => caches.match(OFFLINE)));
  else if (!navigator.onLine && SHELL.includes(new URL(request.url).pathname))
    event.respondWith(caches.match(request, { ignoreSearch: true }).then((kept) => kept ?? fetch(request)));
});
{% endautoescape %}
