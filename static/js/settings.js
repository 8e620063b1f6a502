/** Offers the browser's time zone where another one is set. */
const field = document.getElementById("timezone");
const offer = document.getElementById("use-zone");
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

function compare() {
  offer.hidden = !zone || field.value === zone;
}

offer.querySelector("[data-zone]").textContent = zone;
offer.addEventListener("click", () => {
  field.value = zone;
  compare();
  field.focus();
});
field.addEventListener("input", compare);
compare();
