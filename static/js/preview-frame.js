/**
 * Runs in the sandboxed frame of a preview, which can only show. The page around it sends the source once. Scripts in the
 * source never run: the frame's policy forbids them, and they are removed.
 */
{
  const MAX_ROWS = 2_000;
  const MAX_CELLS = 100_000;
  /** Elements that stay in a web page, since they can do nothing in this frame. */
  const ALLOWED_ELEMENTS = new Set(["button", "form", "img", "input"]);

  /**
   * Shows a web page or a picture with its own styles.
   * @param {string} source
   */
  function showMarkup(source) {
    const parsed = new DOMParser().parseFromString(source, "text/html");
    removeLinks(parsed, ALLOWED_ELEMENTS);
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
   * Parses a table by RFC 4180, up to `MAX_ROWS` rows. `whole`: it has no more.
   * @param {string} source @param {string} separator @returns {{rows: string[][], whole: boolean}}
   */
  function parseTable(source, separator) {
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
        if (rows.length > MAX_ROWS || cells > MAX_CELLS) return { rows, whole: false };
        rows.push([""]);
        cells += 1;
      } else if (quoted || sign !== "\r") row[row.length - 1] += sign;
    }
    return { rows, whole: true };
  }

  /** @param {string} source @param {string} separator @param {string} more the sentence for a table that is cut */
  function showTable(source, separator, more) {
    const { rows: lines, whole } = parseTable(source, separator);
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
