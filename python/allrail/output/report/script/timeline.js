// ---- Timelines: a row a dimension of a rank, spans in it, one axis of time ----

const AXIS = 26;
const ROW = 22;
const LANE = 9;
const GROUP = 26;
const MOST_HIGH = 560;
const MOST_LISTED = 200;

class Timeline extends Chart {
  constructor(place, data) {
    super(place, data);
    this.span = [0, data.end];
    // Spans come as [after the one before, length, name, colour, detail], in ticks.
    for (const row of data.rows) {
      row.lanes = row.lanes.map((flat) => {
        const spans = [];
        for (let at = 0, over = 0; at < flat.length; at += 5) {
          const start = over + flat[at];
          over = start + flat[at + 1];
          spans.push([start, over, flat[at + 2], flat[at + 3], flat[at + 4]]);
        }
        return spans;
      });
    }
    this.filtered();
    this.changed();
  }

  keys() {
    return "With the chart focused: + and − or the wheel zoom, ← → pan, ↑ ↓ choose a row, " +
      "n and p go to the next and the previous span, 0 shows all, Esc lets go. " +
      "Drag to pan, double-click to zoom in.";
  }

  text(row, span) {
    const { names, details } = this.data;
    return `${row.group} ${row.name} ${names[span[2]]} ${details[span[4]]}`.toLowerCase();
  }

  filtered() {
    let y = AXIS;
    let group = null;
    this.count = 0;
    this.items = [];
    for (const row of this.data.rows) {
      const lanes = row.lanes.map((spans) => spans.filter((span) => this.matches(this.text(row, span))));
      const some = lanes.reduce((sum, lane) => sum + lane.length, 0);
      const bare = !row.lanes.some((lane) => lane.length);
      if (!some && !(bare && this.matches(`${row.group} ${row.name}`.toLowerCase()))) continue;
      if (row.group !== group) {
        group = row.group;
        this.items.push({ title: group, y, high: GROUP });
        y += GROUP;
      }
      const high = lanes.length > 1 ? Math.max(ROW, lanes.length * LANE + 4) : ROW;
      this.items.push({ row, lanes, y, high });
      this.count += some;
      y += high;
    }
    this.full = y + 6;
  }

  left() {
    const rows = this.items.filter((item) => item.row).length;
    return `${this.count} spans in ${rows} rows`;
  }

  label() {
    const width = this.width();
    return Math.min(width < 560 ? 96 : 190, this.widest || 190);
  }
  wide() { return Math.max(50, this.width() - this.label() - 8); }
  high() { return 1e9; }
  x(tick) {
    const [low, high] = this.span;
    return this.label() + (tick - low) / (high - low) * this.wide();
  }
  at(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    return [Math.min(1, Math.max(0, (x - this.label()) / this.wide()))];
  }

  zoom(factor, part) {
    const { end } = this.data;
    const [low, high] = this.span;
    let centre = low + (high - low) * (part ?? 0.5);
    if (part === undefined && this.selected) {
      const [start, over] = this.selected.span;
      centre = Math.min(Math.max((start + over) / 2, low), high);
      part = (centre - low) / (high - low);
    }
    const width = Math.min(end, Math.max((high - low) * factor, end * 1e-6, 4));
    this.set(centre - width * (part ?? 0.5), width);
  }
  pan(part) {
    const width = this.span[1] - this.span[0];
    this.set(this.span[0] + part * width, width);
  }
  set(low, width) {
    const from = Math.min(Math.max(0, low), this.data.end - width);
    this.span = [from, from + width];
  }
  all() { this.span = [0, this.data.end]; }

  // Up and down choose a row; what is chosen in it is the first span in view.
  up(by) {
    const rows = this.items.filter((item) => item.row && item.lanes.some((lane) => lane.length));
    if (!rows.length) return;
    const now = this.selected ? rows.indexOf(this.selected.item) : -1;
    const item = rows[now < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, now - by))];
    const [low, high] = this.span;
    const spans = item.lanes.flat().sort((a, b) => a[0] - b[0]);
    this.choose(item, spans.find((span) => span[1] >= low && span[0] <= high) || spans[0]);
  }
  next(by) {
    if (!this.selected) { this.up(1); return; }
    const { item, span } = this.selected;
    const spans = item.lanes.flat().sort((a, b) => a[0] - b[0]);
    const to = spans[spans.indexOf(span) + by];
    if (to) this.choose(item, to);
  }
  choose(item, span) {
    this.select({ item, span });
    const [low, high] = this.span;
    if (span[1] < low || span[0] > high) this.set(span[0] - (high - low) / 4, high - low);
    const view = this.viewport;
    if (item.y < view.scrollTop + AXIS) view.scrollTop = item.y - AXIS;
    if (item.y + item.high > view.scrollTop + view.clientHeight) {
      view.scrollTop = item.y + item.high - view.clientHeight;
    }
  }

  us(tick) { return tick * this.data.tick; }
  words({ item, span }) {
    const { names, details } = this.data;
    const detail = details[span[4]];
    return `${item.row.group}, ${item.row.name}: ${names[span[2]]}` + (detail ? `, ${detail}` : "") +
      `; from ${time(this.us(span[0]))} for ${time(this.us(span[1] - span[0]))}`;
  }

  // The first span of a lane that ends after `tick`; spans of a lane do not overlap.
  first(lane, tick) {
    let low = 0;
    let high = lane.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lane[middle][1] < tick) low = middle + 1; else high = middle;
    }
    return low;
  }

  boxes(item) {
    const count = Math.max(1, item.lanes.length);
    const high = (item.high - 4) / count;
    return item.lanes.map((lane, index) => [lane, item.y + 2 + index * high, high - (count > 1 ? 1 : 0)]);
  }

  find(x, y) {
    if (x < this.label() || y < AXIS) return null;
    const top = y + this.viewport.scrollTop;
    const item = this.items.find((one) => one.row && top >= one.y && top < one.y + one.high);
    if (!item) return null;
    const [low, high] = this.span;
    const near = 2 * (high - low) / this.wide();
    const tick = low + (x - this.label()) / this.wide() * (high - low);
    for (const [lane, from, tall] of this.boxes(item)) {
      if (top < from - 1 || top > from + tall + 1) continue;
      const span = lane[this.first(lane, tick - near)];
      if (span && span[0] <= tick + near) return { item, span };
    }
    return null;
  }

  draw() {
    this.measure();
    const width = this.width();
    if (!width) return;
    const shown = this.printed ? this.full : Math.min(this.full, MOST_HIGH);
    this.viewport.style.maxHeight = this.printed ? "none" : `${MOST_HIGH}px`;
    this.sheet.style.height = this.printed ? "auto" : `${this.full}px`;
    const pen = this.begin(width, shown);
    const scroll = this.printed ? 0 : this.viewport.scrollTop;
    const { colour } = this;
    const [low, high] = this.span;
    this.widest = Math.ceil(Math.max(60, ...this.data.rows.map((row) =>
      pen.measureText(`${row.name}  ${row.aside}`).width)) + 14);
    const label = this.label();
    this.fills = this.data.colours.map((plain) => {
      const fill = this.dark ? lighter(plain, 0.16) : plain;
      return [fill, luminance(fill) > 0.28 ? "#101418" : "#ffffff"];
    });
    let drawn = 0;
    const inner = width - 8;
    const marks = steps(this.us(low), this.us(high), this.wide() / 90);
    const fit = (text, most) => {
      let cut = text;
      while (cut.length > 1 && pen.measureText(cut).width > most) cut = cut.slice(0, -2) + "…";
      return cut;
    };
    const seen = this.items.map((item) => [item, item.y - scroll])
      .filter(([item, y]) => y + item.high >= AXIS && y <= shown);
    for (const [item, y] of seen) {
      if (!item.row) continue;
      pen.fillStyle = colour.panel;
      pen.fillRect(label, y + 2, inner - label, item.high - 4);
    }
    pen.fillStyle = colour.grid;
    for (const mark of marks) {
      pen.fillRect(Math.round(this.x(mark / this.data.tick)), AXIS, 1, shown - AXIS);
    }
    for (const [item, y] of seen) {
      if (item.row) continue;
      pen.fillStyle = colour.paper;
      pen.fillRect(0, y, width, item.high);
      pen.fillStyle = colour.ink;
      pen.font = '600 12px system-ui, "DejaVu Sans", sans-serif';
      pen.fillText(fit(item.title, width - 10), 4, y + item.high / 2 + 2);
      pen.font = '12px system-ui, "DejaVu Sans", sans-serif';
    }
    pen.save();
    pen.beginPath();
    pen.rect(label, AXIS, inner - label, shown - AXIS);
    pen.clip();
    for (const item of this.items) {
      if (!item.row || item.y + item.high < scroll || item.y > scroll + shown) continue;
      for (const [lane, top, tall] of this.boxes(item)) drawn += this.spans(pen, lane, top - scroll, tall);
    }
    for (const [what, wide] of [[this.hovered, 1.5], [this.selected, 2.5]]) {
      const box = what && this.boxes(what.item).find(([lane]) => lane.includes(what.span));
      if (!box) continue;
      pen.strokeStyle = colour.ink;
      pen.lineWidth = wide;
      const left = this.x(what.span[0]);
      pen.strokeRect(left - 1, box[1] - scroll - 1, Math.max(2, this.x(what.span[1]) - left) + 2, box[2] + 2);
    }
    pen.restore();
    for (const item of this.items) {
      const y = item.y - scroll;
      if (!item.row || y + item.high < AXIS || y > shown) continue;
      const aside = width < 560 ? "" : item.row.aside;
      const room = label - 12 - pen.measureText(aside).width;
      pen.fillStyle = colour.ink;
      pen.fillText(fit(item.row.name, room), 8, y + item.high / 2);
      pen.fillStyle = colour.muted;
      pen.textAlign = "right";
      pen.fillText(aside, label - 6, y + item.high / 2);
      pen.textAlign = "left";
    }
    this.axis(pen, marks, width);
    Object.assign(this.viewport.dataset, {
      lowUs: this.us(low), highUs: this.us(high), drawn, count: this.count,
    });
  }

  spans(pen, lane, top, tall) {
    const [low, high] = this.span;
    const [left, right] = [this.label(), this.width()];
    const scale = this.wide() / (high - low);
    let drawn = 0;
    let until = -1;
    for (let at = this.first(lane, low); at < lane.length && lane[at][0] <= high; at++) {
      const span = lane[at];
      drawn += 1;
      const from = left + (span[0] - low) * scale;
      const to = Math.max(left + (span[1] - low) * scale, from + 0.7);
      if (to < until + 0.4) continue; // within a pixel that is painted already
      until = to;
      const [fill, ink] = this.fills[span[3]];
      const start = Math.max(from, left - 2);
      const wide = Math.min(to, right) - start;
      pen.fillStyle = fill;
      pen.fillRect(start, top, wide > 3 ? wide - 0.6 : wide, tall);
      if (tall < 12 || wide < 22) continue;
      const text = this.data.names[span[2]];
      if (pen.measureText(text).width < wide - 6) {
        pen.fillStyle = ink;
        pen.fillText(text, start + 4, top + tall / 2 + 0.5);
      }
    }
    return drawn;
  }

  axis(pen, marks, width) {
    const { colour } = this;
    pen.fillStyle = colour.paper;
    pen.fillRect(0, 0, width, AXIS);
    pen.fillStyle = colour.muted;
    const [unit, factor] = unitOf(Math.max(Math.abs(marks.at(-1) ?? 0), 1e-6));
    const step = marks.length > 1 ? marks[1] - marks[0] : 0;
    const digits = step ? Math.min(9, Math.max(0, -Math.floor(Math.log10(step / factor) + 1e-9))) : 0;
    const about = `time (${unit})`;
    const from = 14 + pen.measureText(about).width;
    pen.textAlign = "center";
    for (const mark of marks) {
      const x = this.x(mark / this.data.tick);
      const text = step ? (mark / factor).toLocaleString("en", {
        minimumFractionDigits: digits, maximumFractionDigits: digits,
      }) : tidy(mark / factor);
      const half = pen.measureText(text).width / 2;
      if (x - half > from && x + half < width - 2) pen.fillText(text, x, AXIS / 2);
    }
    pen.textAlign = "left";
    pen.fillText(about, 8, AXIS / 2);
    pen.fillStyle = colour.grid;
    pen.fillRect(0, AXIS - 1, width, 1);
  }

  table() {
    const [low, high] = this.span;
    const { names, details } = this.data;
    const found = [];
    let count = 0;
    for (const item of this.items) {
      for (const lane of item.lanes ?? []) {
        for (let at = this.first(lane, low); at < lane.length && lane[at][0] <= high; at++) {
          count += 1;
          found.push([item.row, lane[at]]);
        }
      }
    }
    found.sort((a, b) => a[1][0] - b[1][0]);
    const rows = found.slice(0, MOST_LISTED).map(([row, span]) => [
      `${row.group}, ${row.name}`, names[span[2]], details[span[4]],
      this.us(span[0]), this.us(span[1] - span[0]),
    ]);
    return [["where", "what", "detail", "from (µs)", "for (µs)"], rows, count];
  }
}
