// What colours mean: a number of each state, on a scale that reaches over all there are.

const STEPS = 24;
const ROUNDING = 1e-6; // of means of numbers from 0 to 1

const MODES = {
  value: {
    label: "value",
    legend: "value; at an end, its reward",
    of: (state) => (state.kind === "terminal" ? state.reward : state.value ?? state.prediction),
    also: (state) => [state.prediction, state.value, state.target], // they stand on the same scale
    ramp: "poles",
    range: (low, high) => (low >= -ROUNDING && high <= 1 + ROUNDING ? [0, 1] : [low, high]),
  },
  advantage: {
    label: "advantage",
    of: (state) => state.advantage,
    ramp: "poles",
    range: (low, high) => [-Math.max(-low, high) || -1, Math.max(-low, high) || 1],
  },
  worth: {
    label: "worth",
    legend: "worth to the search",
    of: (state, launch, model) => (state.kind === "open" ? model.worth(state, launch) : null),
    also: (state) => state.history.worth,
    ramp: "single",
    range: (low, high) => [Math.min(0, low), high],
  },
  surprise: {
    label: "\u2212log p",
    legend: "mean \u2212log p of the edge, nats",
    of: (state) => state.surprise,
    ramp: "single",
    range: (low, high) => [Math.min(0, low), high],
  },
  visits: {
    label: "visits",
    legend: "continuations through the state",
    of: (state) => state.visits,
    ramp: "single",
    range: (low, high) => [0, high],
  },
};

class Palette {
  constructor() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue("--" + name).trim();
    for (const name of ["ink", "soft", "faint", "line", "accent", "bad", "paper"]) this[name] = get(name);
    this.poles = ramp([get("low"), get("mid"), get("high")]);
    this.single = ramp([get("little"), get("much")]);
  }
}

// STEPS colours from the first stop to the last.
function ramp(stops) {
  const parsed = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  return Array.from({ length: STEPS }, (_, i) => {
    const at = (i / (STEPS - 1)) * (parsed.length - 1);
    const first = Math.min(Math.floor(at), parsed.length - 2);
    const mixed = parsed[first].map((c, k) => Math.round(c + (parsed[first + 1][k] - c) * (at - first)));
    return `rgb(${mixed.join(" ")})`;
  });
}

// One way to colour one tree.
class Scale {
  constructor(name, model) {
    this.mode = MODES[name];
    this.model = model;
    let low = Infinity, high = -Infinity;
    const take = (value) => {
      if (value === null || value === undefined) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    };
    for (const state of model.states) {
      (this.mode.also?.(state) ?? []).forEach(take);
      if (!state.failed) take(this.mode.of(state, model.launches, model));
    }
    this.empty = low > high;
    [this.low, this.high] = this.empty ? [0, 1] : this.mode.range(low, high);
    if (!(this.high > this.low)) this.high = this.low + 1;
  }

  // Where a number stands on the scale, from 0 to 1; nothing lies outside.
  share(value) {
    return (value - this.low) / (this.high - this.low);
  }

  // Which of the STEPS colours a state has; -1 for none.
  step(state, launch) {
    const value = state.failed ? null : this.mode.of(state, launch, this.model);
    if (value === null || value === undefined) return -1;
    return Math.round(this.share(value) * (STEPS - 1));
  }
}
