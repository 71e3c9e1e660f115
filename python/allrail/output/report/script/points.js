// ---- Points: two axes, and the front of those that nothing to their left surpasses ----

const EDGE = { left: 70, right: 20, top: 14, bottom: 44 };
const HIGH = 380;
const MOST_NAMED = 24; // points that are not on the front have names where there are no more
const MOST_LETTERS = [60, 36]; // of a name; fewer where there is no room for more

class Points extends Chart {
  constructor(place, data) {
    super(place, data);
    const range = (values) => {
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const room = (high - low || Math.abs(high) || 1) * 0.06;
      return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
    };
    this.whole = [range(data.points.map((one) => one[0])), range(data.points.map((one) => one[1]))];
    this.filtered();
    this.all();
    this.changed();
  }

  keys() {
    return "With the chart focused: + and − or the wheel zoom, arrows pan, n and p go to the " +
      "next and the previous point, 0 shows all, Esc lets go. A filter's front is of what is left.";
  }

  filtered() {
    this.kept = this.data.points.filter((one) => this.matches(one[2].toLowerCase()))
      .sort((a, b) => a[0] - b[0] || b[1] - a[1]);
    this.front = [];
    for (const one of this.kept) {
      if (!this.front.length || one[1] > this.front.at(-1)[1]) this.front.push(one);
    }
  }
  left() { return `${this.kept.length} of ${this.data.points.length} points`; }

  all() { this.view = this.whole.map((one) => [...one]); }
  wide() { return Math.max(50, this.width() - EDGE.left - EDGE.right); }
  high() { return HIGH - EDGE.top - EDGE.bottom; }
  x(value) { return EDGE.left + (value - this.view[0][0]) / (this.view[0][1] - this.view[0][0]) * this.wide(); }
  y(value) {
    return EDGE.top + (this.view[1][1] - value) / (this.view[1][1] - this.view[1][0]) * this.high();
  }
  at(event) {
    const bounds = this.canvas.getBoundingClientRect();
    return [(event.clientX - bounds.left - EDGE.left) / this.wide(),
      1 - (event.clientY - bounds.top - EDGE.top) / this.high()];
  }
  zoom(factor, ...parts) {
    this.view = this.view.map(([low, high], axis) => {
      const whole = this.whole[axis][1] - this.whole[axis][0];
      const width = Math.max((high - low) * factor, whole * 1e-4);
      if (width >= whole) return [...this.whole[axis]];
      const now = this.selected?.[axis];
      const part = parts[axis] ?? (now === undefined ? 0.5 : (now - low) / (high - low));
      const centre = low + part * (high - low);
      return this.within(axis, centre - width * part, width);
    });
  }
  within(axis, low, width) {
    const [least, most] = this.whole[axis];
    const from = Math.min(Math.max(least, low), most - width);
    return [from, from + width];
  }
  pan(...parts) {
    this.view = this.view.map(([low, high], axis) =>
      this.within(axis, low + parts[axis] * (high - low), high - low));
  }
  up(by) { this.pan(0, 0.15 * by); }
  next(by) {
    const now = this.selected ? this.kept.indexOf(this.selected) : -1;
    const to = this.kept[now < 0 ? 0 : now + by];
    if (!to) return;
    this.select(to);
    this.view = this.view.map(([low, high], axis) => to[axis] >= low && to[axis] <= high
      ? [low, high] : this.within(axis, to[axis] - (high - low) / 2, high - low));
  }
  words(point) {
    const [x, y] = this.data.axes;
    const front = this.front.includes(point) ? "; on the front" : "";
    return `${point[2]}: ${x} ${tidy(point[0])}, ${y} ${tidy(point[1])}${front}`;
  }
  find(x, y) {
    let best = null;
    let near = 14;
    for (const point of this.kept) {
      const far = Math.hypot(this.x(point[0]) - x, this.y(point[1]) - y);
      if (far < near) [best, near] = [point, far];
    }
    return best;
  }

  draw() {
    this.measure();
    const width = this.width();
    if (!width) return;
    const pen = this.begin(width, HIGH);
    const { colour } = this;
    const [across, down] = this.view;
    const bottom = EDGE.top + this.high();
    pen.fillStyle = colour.muted;
    pen.textAlign = "center";
    for (const mark of steps(...across, this.wide() / 90)) {
      pen.fillStyle = colour.grid;
      pen.fillRect(Math.round(this.x(mark)), EDGE.top, 1, this.high());
      pen.fillStyle = colour.muted;
      pen.fillText(tidy(mark), this.x(mark), bottom + 12);
    }
    pen.fillText(this.data.axes[0], EDGE.left + this.wide() / 2, bottom + 32);
    pen.textAlign = "right";
    for (const mark of steps(...down, this.high() / 50)) {
      pen.fillStyle = colour.grid;
      pen.fillRect(EDGE.left, Math.round(this.y(mark)), this.wide(), 1);
      pen.fillStyle = colour.muted;
      pen.fillText(tidy(mark), EDGE.left - 6, this.y(mark));
    }
    pen.save();
    pen.translate(12, EDGE.top + this.high() / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText(this.data.axes[1], 0, 0);
    pen.restore();
    pen.textAlign = "left";
    pen.save();
    pen.beginPath();
    // With room for half a dot at the edges.
    pen.rect(EDGE.left - 6, EDGE.top - 6, this.wide() + 12, this.high() + 12);
    pen.clip();
    const [plain, fronts] = this.data.colours.map((one) => this.dark ? lighter(one, 0.25) : one);
    const dot = (point, radius, fill) => {
      pen.fillStyle = fill;
      pen.beginPath();
      pen.arc(this.x(point[0]), this.y(point[1]), radius, 0, 2 * Math.PI);
      pen.fill();
    };
    for (const point of this.kept) dot(point, 4, plain);
    pen.strokeStyle = fronts;
    pen.lineWidth = 2;
    pen.beginPath();
    for (const point of this.front) pen.lineTo(this.x(point[0]), this.y(point[1]));
    pen.stroke();
    for (const point of this.front) dot(point, 6, fronts);
    this.names(pen);
    pen.strokeStyle = colour.ink;
    for (const [point, wide] of [[this.hovered, 1.5], [this.selected, 3]]) {
      if (!point) continue;
      pen.lineWidth = wide;
      pen.beginPath();
      pen.arc(this.x(point[0]), this.y(point[1]), 9, 0, 2 * Math.PI);
      pen.stroke();
    }
    pen.restore();
    Object.assign(this.viewport.dataset, {
      low: across[0], high: across[1], drawn: this.kept.length, front: this.front.length,
    });
  }

  // Names beside the points that have room for one: those marked first, then those on the front.
  names(pen) {
    const taken = this.kept.map((point) => [this.x(point[0]) - 5, this.y(point[1]) - 5, 10, 10]);
    const free = ([x, y, wide, high]) =>
      x >= EDGE.left && x + wide <= EDGE.left + this.wide() && y >= EDGE.top &&
      y + high <= EDGE.top + this.high() &&
      taken.every(([a, b, w, h]) => x + wide <= a || a + w <= x || y + high <= b || b + h <= y);
    const others = this.kept.length <= MOST_NAMED ? this.kept : [];
    let named = 0;
    pen.fillStyle = this.colour.ink;
    pen.textAlign = "left";
    const marked = this.kept.filter((point) => this.data.marked.includes(point[2]));
    for (const point of new Set([...marked, ...this.front, ...others])) {
      const full = String(point[2]);
      const [x, y] = [this.x(point[0]), this.y(point[1])];
      let [text, wide, far, place] = ["", 0, false, undefined];
      for (const most of MOST_LETTERS) {
        text = full.length > most ? `${full.slice(0, most - 1)}…` : full;
        wide = pen.measureText(text).width;
        const beside = (down) => [[x + 9, y + down], [x - wide - 9, y + down]];
        // Those of points that lie on each other are stacked, with a line where they are apart.
        const near = [...[2, -16].flatMap(beside), [x - wide / 2, y + 9], [x - wide / 2, y - 23]];
        const places = [...near, ...[16, -30, 30, -44, 44, -58].flatMap(beside)];
        const found = places.findIndex(([left, top]) => free([left, top, wide, 14]));
        if (found < 0) continue;
        [place, far] = [[...places[found], wide, 14], found >= near.length];
        break;
      }
      if (!place) continue;
      taken.push(place);
      if (far) {
        pen.strokeStyle = this.colour.muted;
        pen.lineWidth = 1;
        pen.beginPath();
        pen.moveTo(x, y);
        pen.lineTo(place[0] < x ? place[0] + wide + 2 : place[0] - 2, place[1] + 7);
        pen.stroke();
      }
      pen.fillText(text, place[0], place[1] + 7);
      named += 1;
    }
    this.viewport.dataset.named = named;
  }

  table() {
    const inside = this.kept.filter((point) => point.slice(0, 2).every((value, axis) =>
      value >= this.view[axis][0] && value <= this.view[axis][1]));
    const rows = inside.slice(0, MOST_LISTED).map((point) =>
      [point[2], point[0], point[1], this.front.includes(point) ? "yes" : "no"]);
    return [["point", ...this.data.axes, "on the front"], rows, inside.length];
  }
}
