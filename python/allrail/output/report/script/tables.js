const make = (tag, attributes = {}, ...children) => {
  const one = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  one.append(...children);
  return one;
};

// Every word of a filter has to occur; a number as a whole, so that 1 is not 12, and in charts, whose
// texts are sentences, behind the word before it: `chunk 1`.
const matcher = (text, { phrases = false } = {}) => {
  const whole = (word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const wanted = [];
  for (const word of text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const number = /^\d+$/.test(word);
    if (number && phrases && wanted.length) wanted.push(`${wanted.pop()}\\s+${word}(?!\\d)`);
    else wanted.push(number ? `(?<!\\d)${word}(?!\\d)` : whole(word));
  }
  const patterns = wanted.map((one) => new RegExp(one));
  return (all) => patterns.every((one) => one.test(all));
};

// ---- Tables ----

const ENOUGH_TO_FILTER = 5;

const valueOf = (cell) => {
  if ("v" in cell.dataset) return Number(cell.dataset.v);
  const text = cell.textContent.trim();
  if (["", "-", "–"].includes(text)) return null;
  const number = text.replace(/,/g, "").replace(/\s*[%×]$/, "");
  return number !== "" && !isNaN(number) ? Number(number) : text;
};

const sortBy = (table, column, descending) => {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [valueOf(row.cells[column]), row]);
  const numbers = rows.every(([value]) => value === null || typeof value === "number");
  const compare = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null); // what is not there, last
    const order = numbers ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return descending ? -order : order;
  };
  rows.sort((a, b) => compare(a[0], b[0]));
  body.append(...rows.map(([, row]) => row));
  [...table.tHead.rows[0].cells].forEach((head, index) => {
    if (index === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
};

const lively = (table) => {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
    button.addEventListener("click", () =>
      sortBy(table, column, head.getAttribute("aria-sort") === "ascending"));
    head.append(button);
  });
  const rows = [...table.tBodies[0].rows];
  if (rows.length <= ENOUGH_TO_FILTER) return;
  const wide = table.closest(".wide");
  const input = make("input", { type: "search", placeholder: "words, all of which a row has" });
  const told = make("span", { class: "told", role: "status" });
  input.addEventListener("input", () => {
    const matches = matcher(input.value);
    let left = 0;
    for (const row of rows) {
      row.hidden = !matches([...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
      left += !row.hidden;
    }
    told.textContent = input.value.trim() ? `${left} of ${rows.length} rows` : "";
  });
  input.setAttribute("aria-label", `Filter, ${wide.getAttribute("aria-label")}`);
  wide.before(make("div", { class: "tools" }, make("span", { "aria-hidden": "true" }, "Filter"),
    input, told));
};
