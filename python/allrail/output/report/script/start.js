const DRAWS = { timeline: Timeline, points: Points };

for (const table of document.querySelectorAll("table")) lively(table);

const begin = (drawn) => {
  const charts = Object.entries(drawn)
    .map(([name, data]) => new DRAWS[data.draws](document.getElementById(name), data));
  // Paper: light, as wide as the page, and all rows.
  const paper = (width) => {
    document.documentElement.toggleAttribute("data-paper", width > 0);
    for (const chart of charts) {
      chart.printed = width;
      chart.draw();
    }
  };
  window.addEventListener("beforeprint", () => paper(1000));
  window.addEventListener("afterprint", () => paper(0));
  window.matchMedia("(prefers-color-scheme: dark)")
    .addEventListener("change", () => charts.forEach((chart) => chart.changed()));
};

// Long data is packed: gzip, in base64.
const unpacked = (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
};
const data = document.getElementById("data");
if (data.type === "application/json") begin(JSON.parse(data.textContent));
else if ("DecompressionStream" in window) unpacked(data.textContent).then(begin);
else {
  for (const place of document.querySelectorAll(".chart")) {
    place.textContent = "This browser cannot unpack what is drawn here; one of 2023 or later can.";
  }
}
