// ---- What all charts share ----

const UNITS = [["s", 1e6], ["ms", 1e3], ["µs", 1], ["ns", 1e-3], ["ps", 1e-6]];
const unitOf = (us) => UNITS.find(([, factor]) => us >= factor * 0.9995) || UNITS.at(-1);
const tidy = (number, digits = 5) =>
  Number(number.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 12 });
const time = (us) => {
  const [unit, factor] = unitOf(Math.abs(us) || 1);
  return `${tidy(us / factor)} ${unit}`;
};

// Round steps: 1, 2 or 5 times a power of ten, about `count` of them.
const steps = (low, high, count) => {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-12); at++) {
    found.push(at * step || 0); // no -0
  }
  return found;
};

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const luminance = (hex) => {
  const [red, green, blue] = channels(hex).map((one) => {
    const part = one / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const lighter = (hex, amount) => "#" + channels(hex).map((one) =>
  Math.round(one + (255 - one) * amount).toString(16).padStart(2, "0")).join("");

// A figure with buttons, a filter, a canvas that is drawn again whenever anything changes, words
// for the part under the pointer or the keyboard, and a table of what is in view.
class Chart {
  constructor(place, data) {
    this.place = place;
    this.data = data;
    this.selected = null;
    this.hovered = null;
    this.matches = () => true;
    const name = place.id;
    const button = (text, label, act) => {
      const one = make("button", { type: "button", "aria-label": label, title: label }, text);
      one.addEventListener("click", () => { act(); this.changed(); });
      return one;
    };
    this.told = make("span", { class: "told", role: "status" });
    const filter = make("input", {
      type: "search", placeholder: data.filter, "aria-label": `Filter, chart: ${data.title}`,
    });
    filter.addEventListener("input", () => {
      this.matches = matcher(filter.value, { phrases: true });
      this.selected = this.hovered = null;
      this.filtered();
      this.told.textContent = filter.value.trim() ? this.left() : "";
      this.changed();
    });
    const tools = make("div", { class: "tools" },
      button("+", "Zoom in", () => this.zoom(0.5)),
      button("−", "Zoom out", () => this.zoom(2)),
      button("All", "Show all", () => this.all()),
      make("span", { "aria-hidden": "true" }, "Filter"), filter, this.told);
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.sheet = make("div", { class: "sheet" }, this.canvas);
    this.viewport = make("div", {
      class: "viewport", tabindex: "0", role: "application", "aria-roledescription": "chart",
      "aria-labelledby": `${name}-title`, "aria-describedby": `${name}-words ${name}-keys`,
    }, this.sheet);
    this.tip = make("div", { class: "tip", hidden: "" });
    this.live = make("p", { class: "live", role: "status" });
    const legend = make("ul", { class: "legend", "aria-label": "Colours" },
      ...data.legend.map(([colour, text]) => {
        const mark = make("span", { class: "mark", "aria-hidden": "true" });
        mark.style.background = colour;
        return make("li", {}, mark, text);
      }));
    this.rows = make("details", { class: "view" },
      make("summary", {}, "What is in view, as a table"));
    this.rows.addEventListener("toggle", () => this.list());
    place.replaceChildren(tools, legend,
      make("div", { class: "frame" }, this.viewport, this.tip), this.live,
      make("p", { class: "keys", id: `${name}-keys` }, this.keys()), this.rows);
    this.listen();
  }

  listen() {
    const view = this.viewport;
    new ResizeObserver(() => this.changed()).observe(view);
    view.addEventListener("scroll", () => this.changed());
    view.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.key(event.key)) return;
      event.preventDefault();
      this.changed();
    });
    view.addEventListener("wheel", (event) => {
      // Without the keyboard's focus the wheel scrolls the page, as everywhere.
      const here = document.activeElement === view;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
        this.pan((event.deltaX || event.deltaY) / this.wide(), 0);
      } else if (here || event.ctrlKey) {
        this.zoom(Math.exp(Math.sign(event.deltaY) * 0.25), ...this.at(event));
      } else return;
      event.preventDefault();
      this.changed();
    }, { passive: false });
    let held = null;
    view.addEventListener("pointerdown", (event) => {
      held = [event.clientX, event.clientY];
      if (event.pointerType === "mouse") view.setPointerCapture(event.pointerId);
    });
    view.addEventListener("pointermove", (event) => {
      if (held && event.buttons) {
        const [x, y] = [event.clientX - held[0], event.clientY - held[1]];
        held = [event.clientX, event.clientY];
        this.pan(-x / this.wide(), y / this.high());
        if (event.pointerType === "mouse") view.scrollTop -= y;
        this.hovered = null;
      } else {
        held = null;
        const bounds = this.canvas.getBoundingClientRect();
        this.hovered = this.find(event.clientX - bounds.left, event.clientY - bounds.top);
      }
      this.changed();
      this.show(event);
    });
    view.addEventListener("click", (event) => {
      const bounds = this.canvas.getBoundingClientRect();
      this.select(this.find(event.clientX - bounds.left, event.clientY - bounds.top));
      this.changed();
    });
    view.addEventListener("dblclick", (event) => {
      this.zoom(0.5, ...this.at(event));
      this.changed();
    });
    view.addEventListener("pointerleave", () => {
      this.hovered = held = null;
      this.tip.hidden = true;
      this.changed();
    });
  }

  key(key) {
    const acts = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      0: () => this.all(), ArrowLeft: () => this.pan(-0.15, 0), ArrowRight: () => this.pan(0.15, 0),
      ArrowUp: () => this.up(1), ArrowDown: () => this.up(-1),
      n: () => this.next(1), p: () => this.next(-1),
      Escape: () => this.select(null),
    };
    if (!Object.hasOwn(acts, key)) return false;
    acts[key]();
    return true;
  }

  select(what) {
    this.selected = what;
    this.live.textContent = what ? this.words(what) : "";
  }

  show(event) {
    const what = this.hovered;
    this.tip.hidden = !what;
    if (!what) return;
    this.tip.textContent = this.words(what);
    const frame = this.tip.parentElement.getBoundingClientRect();
    const x = event.clientX - frame.left;
    const left = Math.min(Math.max(x + 14, 0), frame.width - this.tip.offsetWidth - 4);
    this.tip.style.left = `${Math.max(0, left)}px`;
    this.tip.style.top = `${event.clientY - frame.top + 18}px`;
  }

  changed() {
    if (this.waits) return;
    this.waits = requestAnimationFrame(() => {
      this.waits = null;
      this.draw();
      clearTimeout(this.later);
      this.later = setTimeout(() => this.list(), 200);
    });
  }

  // The canvas in device pixels, cleared; sizes below are in pixels of the page.
  begin(width, height) {
    const scale = this.printed ? 3 : window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = this.printed ? "100%" : `${width}px`;
    this.canvas.style.height = this.printed ? "auto" : `${height}px`;
    const look = getComputedStyle(document.documentElement);
    this.colour = Object.fromEntries(["ink", "muted", "grid", "panel", "paper", "accent"]
      .map((name) => [name, look.getPropertyValue(`--${name}`).trim()]));
    this.dark = luminance(this.colour.paper) < 0.2;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = '12px system-ui, "DejaVu Sans", sans-serif';
    pen.textBaseline = "middle";
    return pen;
  }

  // Asked once a frame: the browser lays the page out for every answer.
  measure() { this.now = this.printed || this.viewport.clientWidth; }
  width() { return this.now; }

  list() {
    if (!this.rows.open) return;
    const [header, rows, count] = this.table();
    const cell = (value, tag = "td") => {
      const number = typeof value === "number";
      const one = make(tag, number ? { "data-v": value } : { class: "text" },
        number ? tidy(value, 8) : value);
      if (tag === "th") one.setAttribute("scope", "row");
      return one;
    };
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...header.map((text, index) =>
      make("th", { scope: "col", ...(typeof rows[0]?.[index] === "number" ? {} : { class: "text" }) },
        text)))),
    make("tbody", {}, ...rows.map((row) =>
      make("tr", {}, ...row.map((value, index) => cell(value, index ? "td" : "th"))))));
    const wide = make("div", {
      class: "wide", tabindex: "0", role: "region", "aria-label": `Table: in view of ${this.data.title}`,
    }, table);
    const words = rows.length < count ? `The first ${rows.length} of ${count}: zoom in or filter.`
      : `${count} in all.`;
    this.rows.replaceChildren(this.rows.firstElementChild, make("p", { class: "note" }, words), wide);
    lively(table);
  }
}
