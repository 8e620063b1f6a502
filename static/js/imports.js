/** What is too large is said before it is sent: the server would break off in the middle of it. */
for (const field of document.querySelectorAll("input[type=file][data-most]"))
  field.addEventListener("change", () => {
    const fits = [...field.files].every((file) => file.size <= Number(field.dataset.most));
    field.setCustomValidity(fits ? "" : field.dataset.tooLarge);
    field.reportValidity();
  });
