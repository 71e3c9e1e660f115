const DRAWS = { timeline: Timeline, points: Points };

for (const table of document.querySelectorAll("table")) lively(table);
const charts = Object.entries(JSON.parse(document.getElementById("data").textContent))
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
