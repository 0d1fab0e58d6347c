// The page: one state selected, everything else follows from it.

const $ = (id) => document.getElementById(id);

class Page {
  constructor() {
    this.sources = [...document.querySelectorAll("script.saved")];
    this.details = new Details($("details"), (state) => this.select(state), (launch) => {
      this.wind(($("launch").value = launch));
    });
    this.drawing = new Drawing($("canvas"), $("tree"), (state) => {
      this.select(state);
      $("tree").focus({ preventScroll: true });
    });
    for (const [name, mode] of Object.entries(MODES)) $("colour").append(make("option", { value: name }, mode.label));
    this.sources.forEach((source, i) =>
      $("trees").append(make("option", { value: i }, `${i + 1}. ${oneLine(source.dataset.problem, 40)}`)));
    $("choice").hidden = this.sources.length < 2;
    this.listen();
    this.load(0);
  }

  load(index) {
    this.index = index;
    this.model = new Model(JSON.parse(this.sources[index].textContent));
    const { saved, states } = this.model;
    this.found = [];
    this.drawing.found = new Set();
    this.drawing.launch = this.model.launches;
    this.drawing.chosen = null;
    $("heading").replaceChildren();
    write($("heading"), saved.problem === null ? "Tree" : words(saved.problem));
    const failed = saved.failures.length ? `, ${saved.failures.length} failed` : "";
    $("summary").replaceChildren(
      `${states.length} states, ${this.model.root.visits} continuations${failed}; stopped: `);
    write($("summary"), saved.stopped);
    $("launch").max = this.model.launches;
    $("launch").value = this.model.launches;
    $("time").hidden = !this.model.launches;
    this.values = new Scale("value", this.model);
    this.drawing.selected = this.model.root;
    this.paint($("colour").value);
    this.drawing.show(this.model);
    this.wind(this.model.launches);
    this.search($("query").value);
    this.select(this.model.root, false);
  }

  select(state, reveal = true) {
    this.drawing.selected = state;
    this.details.show(this.model, state, this.values, this.drawing.launch);
    const item = $("item");
    const family = state.up ? state.up.children : [state];
    item.setAttribute("aria-level", state.depth + 1);
    item.setAttribute("aria-setsize", family.length);
    item.setAttribute("aria-posinset", family.indexOf(state) + 1);
    item.textContent = `State ${state.id}, ${state.failed ? "failed" : state.kind}, value ${fixed(state.value)}, ` +
      (state.up ? `advantage ${fixed(state.advantage)}, text ${oneLine(this.model.text(state), 80)}` : "root");
    if (reveal) this.drawing.reveal(state);
    this.drawing.request();
  }

  paint(name) {
    const scale = (this.drawing.colours = new Scale(name, this.model));
    const bar = make("span", { class: "ramp" });
    bar.style.backgroundImage = `linear-gradient(90deg, ${scale.mode.ramp === "poles"
      ? "var(--low), var(--mid), var(--high)" : "var(--little), var(--much)"})`;
    $("legend").replaceChildren(...(scale.empty ? [make("span", {}, `no ${name}`)] : [
      make("span", {}, scale.mode.legend ?? name), make("span", { class: "number" }, end(scale.low)), bar,
      make("span", { class: "number" }, end(scale.high))]),
      make("span", { class: "shapes" }, "\u25cf open  \u25a0 terminal  \u25cb truncated",
        this.model.saved.removed.length ? "  \u2715 failed" : ""));
    this.drawing.request();
  }

  // Show the tree as it was when a launch was made.
  wind(launch) {
    const { launches } = this.model.saved;
    this.drawing.launch = launch;
    const past = launch < this.model.launches;
    const chosen = past ? this.model.byId.get(launches.state[launch]) : null;
    this.drawing.chosen = chosen;
    const moment = $("moment");
    moment.replaceChildren(`${launch} of ${this.model.launches}`);
    if (chosen) {
      const worth = launches.worth[launch];
      const ranked = worth !== null && launches.phase[launch] !== "warm-up" ? this.model.rank(launch) : null;
      moment.append(" \u00b7 ", oneLine(launches.phase[launch], 24) || "next", ": from state ",
        this.details.link(chosen), worth === null ? "" : `, worth ${fixed(worth, 4)}`,
        ranked ? `, no. ${ranked.place} of ${ranked.all}` : "");
    }
    this.details.show(this.model, this.drawing.selected, this.values, launch);
    this.drawing.request();
  }

  search(query) {
    this.found = query ? this.model.find(query) : [];
    this.drawing.found = new Set(this.found);
    this.at = -1;
    this.details.query = query;
    this.details.show(this.model, this.drawing.selected, this.values, this.drawing.launch);
    $("found").textContent = query ? `${this.found.length} found` : "";
    this.drawing.request();
  }

  next(step) {
    if (!this.found.length) return;
    const from = this.at < 0 && step < 0 ? 0 : this.at;
    this.at = (from + step + this.found.length) % this.found.length;
    $("found").textContent = `${this.at + 1} of ${this.found.length}`;
    this.select(this.found[this.at]);
  }

  // Keys of the tree; true if one was meant.
  key(event) {
    const { drawing } = this;
    const state = drawing.selected;
    const end = () => {
      let at = state;
      while (at.children.length) at = at.children[0];
      return at;
    };
    const wound = (step) => Math.max(0, Math.min(this.model.launches, drawing.launch + step));
    const turn = (step) => {
      const index = this.index + step;
      if (index in this.sources) this.load(($("trees").value = index));
    };
    const move = (target) => target && this.select(target);
    const actions = {
      ArrowLeft: () => move(state.up),
      ArrowRight: () => move(state.children[0]),
      ArrowUp: () => move(this.model.beside(state, -1)),
      ArrowDown: () => move(this.model.beside(state, 1)),
      Home: () => move(this.model.root),
      End: () => move(end()),
      Enter: () => {
        drawing.reveal(state, true);
        $("details").focus();
      },
      "/": () => $("query").focus(),
      n: () => this.next(1),
      N: () => this.next(-1),
      "+": () => drawing.zoomTo(drawing.zoom + 0.12, drawing.at(state)),
      "=": () => drawing.zoomTo(drawing.zoom + 0.12, drawing.at(state)),
      "-": () => drawing.zoomTo(drawing.zoom - 0.12, drawing.at(state)),
      0: () => drawing.fit(),
      c: () => {
        $("colour").selectedIndex = ($("colour").selectedIndex + 1) % $("colour").length;
        this.paint($("colour").value);
      },
      ",": () => this.wind(($("launch").value = wound(-1))),
      ".": () => this.wind(($("launch").value = wound(1))),
      "[": () => turn(-1),
      "]": () => turn(1),
      "?": () => $("help").showModal(),
    };
    if (!Object.hasOwn(actions, event.key)) return false;
    actions[event.key]();
    return true;
  }

  listen() {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
      const inDetails = $("details").contains(event.target);
      if (event.key === "Escape" && (inDetails || event.target === $("query"))) {
        $("tree").focus({ preventScroll: true });
        return;
      }
      if (event.target.closest("input, select, button, summary")) return;
      if (inDetails && /^(Arrow(Up|Down)|Home|End|Enter)$/.test(event.key)) return; // they scroll
      if (this.key(event)) event.preventDefault();
    });
    $("query").addEventListener("input", () => this.search($("query").value));
    $("query").addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
    });
    $("colour").addEventListener("change", () => this.paint($("colour").value));
    $("trees").addEventListener("change", () => this.load(Number($("trees").value)));
    $("launch").addEventListener("input", () => this.wind(Number($("launch").value)));
    $("helper").addEventListener("click", () => $("help").showModal());
    $("fit").addEventListener("click", () => this.drawing.fit());
    $("closer").addEventListener("click", () => this.drawing.zoomTo(this.drawing.zoom + 0.12));
    $("farther").addEventListener("click", () => this.drawing.zoomTo(this.drawing.zoom - 0.12));
  }
}

new Page();
