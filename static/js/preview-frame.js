/**
 * In the sandboxed frame of a preview, which can do nothing but show: the page around it sends the source once. Scripts in
 * the source never run: the policy of the frame has none, and they are taken out.
 */
{
  const MOST_ROWS = 2_000;
  const MOST_CELLS = 100_000;
  /** What a page may show that cannot do anything here. */
  const HARMLESS = new Set(["button", "form", "img", "input"]);

  /**
   * A web page or a picture in its place, with its own styles.
   * @param {string} source
   */
  function showMarkup(source) {
    const parsed = new DOMParser().parseFromString(source, "text/html");
    withoutLinks(parsed, HARMLESS);
    document.replaceChild(document.adoptNode(parsed.documentElement), document.documentElement);
  }

  /** @param {string} source of one picture */
  function showPicture(source) {
    showMarkup(source);
    Object.assign(document.body.style, { display: "grid", placeItems: "center", minBlockSize: "100vh", margin: "0" });
    const picture = document.querySelector("svg");
    if (picture) Object.assign(picture.style, { maxInlineSize: "100%", blockSize: "auto", maxBlockSize: "100vh" });
  }

  /**
   * The rows of a table as in RFC 4180, at most `MOST_ROWS`.
   * @param {string} source @param {string} separator @returns {{rows: string[][], whole: boolean}}
   */
  function rowsOf(source, separator) {
    const rows = [[""]];
    let quoted = false;
    let cells = 1;
    for (let at = 0; at < source.length; at += 1) {
      const row = rows[rows.length - 1];
      const sign = source[at];
      if (quoted && sign === '"' && source[at + 1] === '"') {
        row[row.length - 1] += '"';
        at += 1;
      } else if (sign === '"' && (quoted || row[row.length - 1] === "")) quoted = !quoted;
      else if (!quoted && sign === separator) {
        row.push("");
        cells += 1;
      } else if (!quoted && sign === "\n") {
        if (rows.length > MOST_ROWS || cells > MOST_CELLS) return { rows, whole: false };
        rows.push([""]);
        cells += 1;
      } else if (quoted || sign !== "\r") row[row.length - 1] += sign;
    }
    return { rows, whole: true };
  }

  /** @param {string} source @param {string} separator @param {string} more the sentence where there is more */
  function showTable(source, separator, more) {
    const { rows: lines, whole } = rowsOf(source, separator);
    const rows = lines.filter((cells) => cells.length > 1 || cells[0] !== ""); // without blank lines
    const table = document.createElement("table");
    for (const [number, cells] of rows.entries()) {
      const row = table.insertRow();
      for (const text of cells) {
        const cell = document.createElement(number ? "td" : "th");
        cell.textContent = text;
        row.append(cell);
      }
    }
    const style = document.createElement("style");
    style.textContent = `
      body { margin: 0; font: 14px system-ui, sans-serif; }
      table { border-collapse: collapse; }
      th, td { padding: 6px 10px; border: 1px solid #8884; text-align: start; vertical-align: top; }
      th { position: sticky; inset-block-start: 0; background: Canvas; }
      p { padding: 0 10px; }`;
    document.head.append(style);
    document.body.replaceChildren(table);
    if (whole) return;
    const line = document.createElement("p");
    line.textContent = more.replace("{rows}", String(rows.length));
    document.body.append(line);
  }

  addEventListener(
    "message",
    ({ data, source }) => {
      if (source !== parent) return;
      const { kind, more } = data;
      if (kind === "html") return showMarkup(data.source);
      if (kind === "svg") return showPicture(data.source);
      document.documentElement.style.colorScheme = data.dark ? "dark" : "light";
      const first = data.source.slice(0, data.source.indexOf("\n") + 1 || undefined);
      const separator = kind === "tsv" ? "\t" : !first.includes(",") && first.includes(";") ? ";" : ",";
      showTable(data.source, separator, more);
    },
    { once: true },
  );
}
