// The drawing: what is in view, coloured by a scale; zoomed and moved by hand.

const LARGEST = { x: 250, y: 36 }; // pixels a level and a row take, zoomed in all the way
const MARGIN = { left: 22, right: 26, top: 16, bottom: 22 };
const CALM = matchMedia("(prefers-reduced-motion: reduce)");

class Drawing {
  constructor(canvas, holder, pick) {
    this.canvas = canvas;
    this.holder = holder;
    this.context = canvas.getContext("2d");
    this.pick = pick;
    this.pointers = new Map();
    this.found = new Set();
    this.zoom = 0;
    new ResizeObserver(() => this.resize()).observe(holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    this.recolour();
    this.listen();
  }

  recolour() {
    this.palette = new Palette();
    this.font = getComputedStyle(this.holder).getPropertyValue("--mono");
    this.request();
  }

  show(model) {
    this.model = model;
    this.zoom = 0;
    this.x = this.y = 0;
    this.resize();
    this.fit();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.holder;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.width = width;
    this.height = height;
    if (this.model && this.zoom === 0) this.fit();
    this.request();
  }

  // Sizes of a level and a row at a zoom from 0 (all in view) to 1.
  scale(zoom) {
    const across = this.width - MARGIN.left - MARGIN.right;
    const down = this.height - MARGIN.top - MARGIN.bottom;
    const least = {
      x: Math.min(LARGEST.x, across / Math.max(1, this.model.levels.length - 1)),
      y: Math.min(LARGEST.y, down / Math.max(1, this.model.rows - 1)),
    };
    return {
      x: least.x * (LARGEST.x / least.x) ** zoom,
      y: least.y * (LARGEST.y / least.y) ** zoom,
    };
  }

  fit() {
    this.zoom = 0;
    const { y } = this.scale(0);
    const down = this.height - MARGIN.top - MARGIN.bottom;
    this.x = MARGIN.left;
    this.y = MARGIN.top + Math.max(0, (down - y * (this.model.rows - 1)) / 2);
    this.request();
  }

  zoomTo(zoom, at = { x: this.width / 2, y: this.height / 2 }) {
    const before = this.scale(this.zoom);
    this.zoom = Math.max(0, Math.min(1, zoom));
    if (this.zoom === 0) return this.fit();
    const after = this.scale(this.zoom);
    this.x = at.x - ((at.x - this.x) * after.x) / before.x;
    this.y = at.y - ((at.y - this.y) * after.y) / before.y;
    this.keep();
  }

  move(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.keep();
  }

  // Some of the tree stays in view.
  keep() {
    const { x, y } = this.scale(this.zoom);
    const wide = x * (this.model.levels.length - 1), high = y * (this.model.rows - 1);
    this.x = Math.min(this.width * 0.7, Math.max(this.width * 0.3 - wide, this.x));
    this.y = Math.min(this.height * 0.7, Math.max(this.height * 0.3 - high, this.y));
    this.request();
  }

  at(state) {
    const { x, y } = this.scale(this.zoom);
    return { x: this.x + state.depth * x, y: this.y + state.row * y };
  }

  // Bring a state into view; `read` zooms in until its text can be read.
  reveal(state, read = false) {
    let zoom = this.zoom;
    if (read) while (zoom < 1 && (this.scale(zoom).y < 18 || this.scale(zoom).x < 150)) zoom += 0.02;
    const now = this.at(state);
    const inside = now.x > 8 && now.x < this.width - 8 && now.y > 8 && now.y < this.height - 8;
    if (inside && zoom === this.zoom) return this.request();
    const scale = this.scale(Math.min(1, zoom));
    // Near the middle, but with no empty room beyond the tree's own ends.
    const place = (at, size, length, before, after) => {
      const spare = size - before - after - length;
      return spare > 0 ? before : Math.min(before, Math.max(before + spare, at));
    };
    const wide = scale.x * (this.model.levels.length - 1), high = scale.y * (this.model.rows - 1);
    this.glide({
      zoom: Math.min(1, zoom),
      x: place(this.width * 0.55 - state.depth * scale.x, this.width, wide, MARGIN.left, MARGIN.right),
      y: place(this.height / 2 - state.row * scale.y, this.height, high, MARGIN.top, MARGIN.bottom),
    });
  }

  glide(target) {
    const from = { zoom: this.zoom, x: this.x, y: this.y };
    const start = performance.now();
    const long = CALM.matches ? 0 : 160;
    const step = (now) => {
      const share = long ? Math.min(1, (now - start) / long) : 1;
      const eased = 1 - (1 - share) ** 3;
      for (const name of ["zoom", "x", "y"]) this[name] = from[name] + (target[name] - from[name]) * eased;
      this.request();
      this.gliding = share < 1 ? requestAnimationFrame(step) : 0;
    };
    cancelAnimationFrame(this.gliding);
    step(start);
  }

  request() {
    this.waiting ||= requestAnimationFrame(() => {
      this.waiting = 0;
      if (this.model && this.width) this.draw();
    });
  }

  draw() {
    const { context: c, palette, model } = this;
    const { x: level, y: row } = this.scale(this.zoom);
    c.clearRect(0, 0, this.width, this.height);
    const first = (-20 - this.y) / row, last = (this.height + 20 - this.y) / row;
    const leftmost = (-20 - this.x) / level, rightmost = (this.width + 20 - this.x) / level;
    const edges = new Map(), dots = [];
    for (const state of model.states) {
      const { up } = state;
      const from = up ? up.row : state.row;
      if (Math.max(state.row, from) < first || Math.min(state.row, from) > last) continue;
      if (state.depth < leftmost || state.depth - 1 > rightmost) continue;
      const born = state.launch < this.launch;
      const step = born ? this.colours.step(state, this.launch) : -1;
      const key = (born ? step : -2) * 2 + (state.failed ? 1 : 0);
      if (up) {
        let group = edges.get(key);
        if (!group) edges.set(key, (group = { step, born, failed: state.failed, states: [] }));
        group.states.push(state);
      }
      if (state.row >= first && state.row <= last) dots.push({ state, step, born });
    }
    const thick = Math.max(0.8, Math.min(1.8, row / 8));
    for (const group of edges.values()) {
      c.globalAlpha = group.born ? (group.step < 0 && !group.failed ? 0.5 : 1) : 0.16;
      c.setLineDash(group.failed ? [3, 3] : []);
      this.path(group.states, level, row, this.colour(group.step, group.failed), thick);
    }
    c.setLineDash([]);
    c.globalAlpha = 1;
    this.path(model.path(this.selected).slice(1), level, row, palette.accent, Math.max(2, thick + 1));
    const radius = Math.max(1, Math.min(5.5, row * 0.3));
    for (const { state, step, born } of dots) this.dot(state, level, row, radius, step, born);
    if (row >= 11.5 && level >= 70) this.labels(dots, level, row, radius);
    this.rings(level, row, radius);
  }

  colour(step, failed) {
    if (failed) return this.palette.bad;
    return step < 0 ? this.palette.faint : this.palette[this.colours.mode.ramp][step];
  }

  // Edges leave their parent in a curve and then run level, so that text can stand on them.
  path(states, level, row, colour, width) {
    const c = this.context;
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.beginPath();
    const bend = Math.min(level * 0.5, 30);
    for (const state of states) {
      const x = this.x + state.depth * level, y = this.y + state.row * row;
      const fromX = x - level, fromY = this.y + state.up.row * row;
      c.moveTo(fromX, fromY);
      if (row < 2) c.lineTo(fromX + bend, y);
      else c.bezierCurveTo(fromX + bend * 0.6, fromY, fromX + bend * 0.4, y, fromX + bend, y);
      c.lineTo(x, y);
    }
    c.stroke();
  }

  dot(state, level, row, radius, step, born) {
    const c = this.context;
    const x = this.x + state.depth * level, y = this.y + state.row * row;
    c.globalAlpha = born ? 1 : 0.16;
    c.fillStyle = this.colour(step, state.failed);
    c.beginPath();
    if (state.failed) {
      c.strokeStyle = this.palette.bad;
      c.lineWidth = Math.max(1, radius / 3);
      c.moveTo(x - radius, y - radius);
      c.lineTo(x + radius, y + radius);
      c.moveTo(x + radius, y - radius);
      c.lineTo(x - radius, y + radius);
      c.stroke();
    } else if (state.kind === "terminal") {
      c.rect(x - radius, y - radius, 2 * radius, 2 * radius);
      c.fill();
    } else {
      c.arc(x, y, radius, 0, 2 * Math.PI);
      if (state.kind === "truncated" && radius > 2) {
        c.fillStyle = this.palette.paper;
        c.fill();
        c.strokeStyle = this.colour(step, false);
        c.lineWidth = 1.6;
        c.stroke();
      } else c.fill();
    }
    c.globalAlpha = 1;
  }

  labels(dots, level, row, radius) {
    const c = this.context;
    const small = row < 14;
    c.font = `${small ? 10 : 11}px ${this.font}`;
    c.textBaseline = "alphabetic";
    c.direction = "ltr";
    const start = Math.min(level * 0.5, 30) - 2;
    const room = Math.floor((level - start - radius - 4) / (small ? 6.1 : 6.7));
    for (const { state, born } of dots) {
      if (!state.up || !born) continue;
      c.fillStyle = state === this.selected ? this.palette.ink : this.palette.soft;
      const x = this.x + (state.depth - 1) * level + start;
      c.fillText(this.label(state, room, level - start - radius - 4), x, this.y + state.row * row - (small ? 2 : 3.5));
    }
  }

  // The start of an edge's text; wide letters are measured.
  label(state, characters, room) {
    const text = oneLine(this.model.text(state), Math.max(2, characters));
    if (/^[\x20-\x7e\u2026\u21b5]*$/.test(text)) return text;
    const share = room / this.context.measureText(text).width;
    return share >= 1 ? text : oneLine(text, Math.max(2, Math.floor([...text].length * share)));
  }

  rings(level, row, radius) {
    const c = this.context;
    const ring = (state, colour, more, width) => {
      c.strokeStyle = colour;
      c.lineWidth = width;
      c.beginPath();
      c.arc(this.x + state.depth * level, this.y + state.row * row, Math.max(radius, 3) + more, 0, 2 * Math.PI);
      c.stroke();
    };
    for (const state of this.found) ring(state, this.palette.ink, 1.5, 1.25);
    if (this.chosen) ring(this.chosen, this.palette.ink, 5.5, 1.5);
    ring(this.selected, this.palette.accent, 3, 2.5);
  }

  // The state nearest to a point, if it is near.
  hit(point) {
    const { x: level, y: row } = this.scale(this.zoom);
    let best = null, least = 18 ** 2;
    for (const state of this.model.states) {
      const dx = this.x + state.depth * level - point.x;
      const dy = this.y + state.row * row - point.y;
      const along = dx > 0 && dx < level - 24 && row >= 10 ? Math.max(0, dx - 200) : dx; // its edge
      const far = along * along + dy * dy * (row >= 10 ? 4 : 1);
      if (far < least) [best, least] = [state, far];
    }
    return best;
  }

  listen() {
    const { canvas, pointers } = this;
    const point = (event) => ({ x: event.offsetX, y: event.offsetY });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey) return this.move(-event.deltaX, -event.deltaY);
      this.zoomTo(this.zoom - event.deltaY * (event.deltaMode ? 0.02 : 0.0012), point(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, { ...point(event), moved: 0 });
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = point(event), before = pointers.get(event.pointerId);
      if (!before) {
        canvas.classList.toggle("over", this.model !== undefined && this.hit(now) !== null);
        return;
      }
      const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const moved = before.moved + Math.hypot(now.x - before.x, now.y - before.y);
      if (others.length) {
        const [other] = others;
        const far = (at) => Math.hypot(at.x - other.x, at.y - other.y) || 1;
        this.zoomTo(this.zoom + 0.3 * Math.log(far(now) / far(before)), other);
      } else if (moved > 4) this.move(now.x - before.x, now.y - before.y);
      pointers.set(event.pointerId, { ...now, moved });
    });
    const end = (event) => {
      const before = pointers.get(event.pointerId);
      pointers.delete(event.pointerId);
      if (event.type === "pointerup" && before && before.moved <= 4) {
        const state = this.hit(point(event));
        if (state) this.pick(state);
      }
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("dblclick", (event) => this.zoomTo(this.zoom + 0.25, point(event)));
  }
}
