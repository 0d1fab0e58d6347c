// A saved tree, indexed: places of states, their text, and what they were worth when.

class Model {
  constructor(saved) {
    this.saved = saved;
    const survivors = new Set(saved.nodes.map((node) => node.id));
    this.states = [...saved.nodes, ...saved.removed]
      .sort((a, b) => a.id - b.id)
      .map((node, index) => ({ ...node, index, failed: !survivors.has(node.id), children: [] }));
    this.byId = new Map(this.states.map((state) => [state.id, state]));
    this.root = this.states[0];
    for (const state of this.states) {
      state.up = state.parent === null ? null : this.byId.get(state.parent);
      state.depth = state.up ? state.up.depth + 1 : 0;
      if (state.up) state.up.children.push(state);
      const surprise = state.logprobs.reduce((sum, value) => sum - value, 0);
      state.surprise = state.tokens.length ? surprise / state.tokens.length : null;
      state.history = { launches: [], worth: [], transitions: [] };
      state.launches = [];
    }
    this.arrange();
    this.readDecisions();
  }

  // Ends of paths take one row each, in order; a parent stands midway between its children.
  arrange() {
    this.rows = 0;
    this.levels = [];
    const todo = [this.root];
    const order = [];
    while (todo.length) {
      const state = todo.pop();
      order.push(state);
      for (let i = state.children.length; i--; ) todo.push(state.children[i]);
      if (!state.children.length) state.row = this.rows++;
      (this.levels[state.depth] ??= []).push(state);
      state.place = this.levels[state.depth].length - 1;
    }
    for (const state of order.reverse()) {
      const below = state.children;
      if (below.length) state.row = (below[0].row + below[below.length - 1].row) / 2;
    }
  }

  readDecisions() {
    const { launches, changes } = this.saved;
    this.launches = launches.state.length;
    changes.state.forEach((id, i) => {
      const { history } = this.byId.get(id);
      history.launches.push(changes.launches[i]);
      history.worth.push(changes.worth[i]);
      history.transitions.push(changes.transitions[i]);
    });
    launches.state.forEach((id, i) => this.byId.get(id).launches.push(i));
    const counted = this.saved.counts.transitions;
    this.transitions = Math.max(
      0, Number.isFinite(counted) ? counted : 0,
      ...launches.transitions.slice(-1), ...changes.transitions.slice(-1));
  }

  // What a state was worth to the search when launch number `launch` was made.
  worth(state, launch) {
    const { launches, worth } = state.history;
    let low = 0, high = launches.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (launches[middle] <= launch) low = middle + 1;
      else high = middle;
    }
    return low ? worth[low - 1] : null;
  }

  // The place of a launch's state among all the states that were worth something then.
  rank(launch) {
    const own = this.saved.launches.worth[launch];
    let better = 0, all = 0;
    for (const state of this.states) {
      const worth = this.worth(state, launch);
      if (worth > 0) all++;
      if (worth > own) better++;
    }
    return { place: better + 1, all };
  }

  path(state) {
    const path = [];
    for (let at = state; at; at = at.up) path.push(at);
    return path.reverse();
  }

  // The state beside this one at its depth: a sibling, or the next family's.
  beside(state, step) {
    return this.levels[state.depth][state.place + step] || null;
  }

  text(state) {
    return (state.whole ??= state.pieces.join(""));
  }

  // What the policy has said since the environment last answered.
  turn(state) {
    const path = this.path(state);
    const first = path.slice(0, -1).findLastIndex((at) => at.rendered.length || at.fresh);
    return path.slice(first + 1).map((at) => this.text(at)).join("");
  }

  find(query) {
    if (/^#\d+$/.test(query)) {
      const state = this.byId.get(Number(query.slice(1)));
      return state ? [state] : [];
    }
    const wanted = query.toLowerCase();
    const lower = (s) => (s.lower ??= (this.text(s) + s.rendered_text).toLowerCase());
    return this.states.filter((state) => lower(state).includes(wanted));
  }

  // Whether each token of a state lies in a match of the query.
  hits(state, query) {
    const lower = this.text(state).toLowerCase(), wanted = query.toLowerCase();
    const hits = state.pieces.map(() => false);
    if (!wanted || lower.length !== this.text(state).length) return hits;
    let place = 0, start = 0, found = lower.indexOf(wanted);
    while (found >= 0 && place < hits.length) {
      const stop = start + state.pieces[place].length;
      if (stop <= found) {
        place++;
        start = stop;
      } else if (start >= found + wanted.length) found = lower.indexOf(wanted, found + wanted.length);
      else {
        hits[place++] = true;
        start = stop;
      }
    }
    return hits;
  }

  failures(state) {
    return this.saved.failures.filter((failure) => failure.state === state.id);
  }
}
