// The selected state: its numbers, why it was chosen, and its text token by token.

const MANY = 100; // failures shown at once

const MEANINGS = {
  prediction: "the critic's, of the return still to come from this state",
  value: "the prediction refined by the branches below; advantages are credited by it. An end has its reward instead",
  target: "the mean return of the direct branches: what a critic would learn here",
  worth: "what one more continuation from this state was expected to be good for, to the search; the highest is chosen next",
  launch: "a continuation, from the state the search chose to an end; numbered from 0 as they began",
  advantage: "how much better the edge was than its parent's value: its tokens train by it",
};

class Details {
  constructor(element, go, wind) {
    this.element = element;
    this.go = go;
    this.wind = wind;
    this.open = new Set(["words"]);
    this.query = "";
  }

  show(model, state, scale, launch) {
    this.model = model;
    const kind = state.failed ? "removed: its continuation failed" : state === model.root ? "root" : state.kind;
    const parts = [
      make("div", { class: "title" },
        make("h2", {}, `State ${state.id}`), make("span", { class: `kind ${state.failed ? "bad" : state.kind}` }, kind)),
      state.up ? this.trail(state) : null,
      ...this.failures(state),
      ...this.expected(state),
      this.numbers(state, scale),
      ...this.choices(state, launch),
      ...(state === model.root ? this.prompt() : this.texts(state)),
    ];
    parts.push(this.meanings());
    if (state === model.root) parts.push(this.about());
    this.element.replaceChildren(...parts.filter(Boolean));
    if (this.state !== state) this.element.scrollTop = 0;
    this.state = state;
  }

  // A part that opens on demand, and stays as the reader left it.
  folded(name, title, fill) {
    const part = make("details", {}, make("summary", {}, title));
    const filled = () => {
      if (part.open && part.children.length === 1) part.append(fill());
    };
    part.open = this.open.has(name);
    filled();
    part.addEventListener("toggle", () => {
      this.open[part.open ? "add" : "delete"](name);
      filled();
    });
    return part;
  }

  link(state, text = String(state.id), act = () => this.go(state)) {
    return make("button", { type: "button", class: "link", onclick: act }, text);
  }

  trail(state) {
    const steps = this.model.path(state).map((at) =>
      at === state ? make("b", {}, String(at.id)) : this.link(at, at.up ? String(at.id) : "root"));
    return make("nav", { class: "trail", "aria-label": "Path from the root" }, ...steps);
  }

  failures(state) {
    const own = this.model.failures(state);
    const all = state === this.model.root ? this.model.saved.failures : own;
    if (!all.length) return [];
    const lines = all.slice(0, MANY).map((failure) => {
      const line = make("p", {}, write(make("b"), failure.stage), " at state ");
      const source = this.model.byId.get(failure.state);
      line.append(source === state ? String(state.id) : this.link(source), ": ");
      return write(line, failure.error);
    });
    if (all.length > MANY) lines.push(make("p", {}, `${all.length - MANY} more: each is shown at its state`));
    return [make("section", { class: "failures" }, make("h3", {}, `Failures (${all.length})`), ...lines)];
  }

  // What answers are graded against: where one is asked for, and where one was given.
  expected(state) {
    const { label } = this.model.saved;
    if (label === null || label === undefined || (state.up && state.kind === "open")) return [];
    return [make("section", {}, make("h3", {}, "Expected answer"), block(words(label), "text expected"))];
  }

  numbers(state, scale) {
    const total = this.model.path(state).reduce((sum, at) => sum + at.reward, 0);
    const rows = [];
    if (state.kind !== "terminal") {
      rows.push(
        ["prediction", fixed(state.prediction)],
        ["value", fixed(state.value)],
        ["target", fixed(state.target)],
        ["branches", state.branches],
        ["visits", state.visits],
        ["returns seen", state.n ? `${state.n}, mean ${fixed(state.mean)}` : "0"],
      );
    }
    if (state.up) {
      rows.push(
        ["advantage", state.advantage === null ? "\u2013" : signed(state.advantage)],
        ["reward", fixed(state.reward)],
        ["return so far", fixed(total)],
        ["tokens", state.tokens.length],
        ["mean log p", state.surprise === null ? "\u2013" : fixed(-state.surprise)],
        ["launch", state.launch],
      );
    }
    const list = make("dl", { class: "numbers" });
    for (const [name, value] of rows) list.append(make("div", {}, make("dt", {}, name), make("dd", {}, String(value))));
    const section = make("section", {}, list);
    if (state.prediction !== null && state.kind !== "terminal") {
      section.prepend(valueBar(state, scale), make("p", { class: "key" },
        make("span", { class: "key-prediction" }, "prediction"), make("span", { class: "key-value" }, "value"),
        state.target === null ? null : make("span", { class: "key-target" }, "target")));
    }
    return section;
  }

  choices(state, launch) {
    const { launches } = this.model.saved;
    if (!state.history.worth.length && !state.launches.length) return [];
    const section = make("section", {}, make("h3", {}, "Worth over time"));
    if (state.history.worth.length) section.append(worthChart(this.model, state, launch));
    const words = state.launches.length
      ? `Chosen ${state.launches.length} time${state.launches.length > 1 ? "s" : ""}`
      : "Never chosen";
    if (!state.launches.length) section.append(make("p", { class: "quiet" }, words));
    else {
      section.append(this.folded("launches", words, () => {
        const table = make("table", {}, make("tr", {},
          ...["launch", "phase", "worth", "n", "mean", "in flight"].map((name) => make("th", { scope: "col" }, name))));
        for (const i of state.launches) {
          const warm = launches.phase[i] === "warm-up" || launches.worth[i] === null;
          const rank = warm || !(launches.worth[i] > 0) ? null : this.model.rank(i);
          table.append(make("tr", {},
            make("td", {}, this.link(null, String(i), () => this.wind(i))),
            ...[oneLine(launches.phase[i], 24), fixed(launches.worth[i], 4) + (rank ? ` (no. ${rank.place} of ${rank.all})` : ""),
              launches.n[i], launches.n[i] ? fixed(launches.mean[i]) : "\u2013", launches.in_flight[i],
            ].map((cell) => make("td", {}, String(cell)))));
        }
        return make("div", { class: "wide" }, table);
      }));
    }
    return [section];
  }

  prompt() {
    const { saved, root } = this.model;
    const section = make("section", {}, make("h3", {}, "Messages"));
    for (const message of saved.messages) {
      const chat = message && typeof message.content === "string";
      const role = chat && message.role !== undefined ? words(message.role) : "message";
      section.append(write(make("p", { class: "role" }), role),
        block(chat ? message.content : JSON.stringify(message, null, 1)));
    }
    section.append(this.folded("prompt", `As the policy reads it (${root.rendered.length} tokens)`,
      () => block(root.rendered_text)));
    return [section];
  }

  texts(state) {
    const section = make("section", {}, ...this.turn(state), make("h3", {}, "Text of the edge"), this.tokens(state));
    if (state.rendered.length) {
      const what = !state.fresh ? "The environment's answer"
        : { asked: "Asked for a summary, in a new prompt", folded: "The folded chat, a new prompt" }[state.fold]
          || "A new prompt: the chat rendered anew";
      section.append(this.folded("answer", `${what} (${state.rendered.length} tokens)`,
        () => block(state.rendered_text)));
    }
    const path = this.model.path(state);
    const first = path.findLastIndex((at) => at.fresh);
    section.append(this.folded("whole", first ? "The sequence so far, from its last new prompt" : "Everything from the root", () => {
      const whole = make("div", { class: "text" });
      for (const [place, at] of path.slice(first).entries()) {
        const tip = place ? `edge to state ${at.id}` : "prompt";
        if (place) whole.append(write(make("span", { class: "said", title: tip }), this.model.text(at)));
        whole.append(write(make("span", { class: "given", title: tip }), at.rendered_text));
      }
      return whole;
    }));
    return [section];
  }

  // The turn up to here with its tool calls set apart, and what the environment answered.
  turn(state) {
    const said = this.model.turn(state);
    if (!said.includes("<tool_call>") && !state.answer?.length) return [];
    return [make("h3", {}, "The turn so far, read"), ...turnParts(said), ...(state.answer || []).map(answerPart)];
  }

  meanings() {
    return this.folded("words", "What the words mean", () => {
      const list = make("dl", { class: "pairs" });
      for (const [name, meaning] of Object.entries(MEANINGS)) list.append(make("dt", {}, name), make("dd", {}, meaning));
      return list;
    });
  }

  // The edge's tokens, tinted by how unlikely they were; one tab stop, arrows step.
  tokens(state) {
    const readout = make("p", { class: "readout", "aria-live": "polite" }, state.tokens.length
      ? "The stronger a token's tint, the less likely it was (1 \u2212 p). Point at one, or step with the arrow keys."
      : "Nothing was generated.");
    const inside = new Set(state.inside), hits = this.model.hits(state, this.query);
    const text = make("div", { class: "text tokens", tabindex: "0", role: "group",
      "aria-label": `Text, ${state.tokens.length} tokens; arrow keys step through them` });
    state.pieces.forEach((piece, i) => {
      const token = make("span", { class: hits[i] ? "token hit" : "token", "data-place": i });
      token.style.setProperty("--surprise", (1 - Math.exp(state.logprobs[i])).toFixed(3));
      if (piece) write(token, piece);
      else token.append(make("span", { class: "mark" }, "\u00b7"));
      text.append(token);
    });
    let at = -1;
    const pick = (place) => {
      if (place < 0 || place >= state.tokens.length) return;
      if (at >= 0) text.children[at].classList.remove("picked");
      at = place;
      text.children[at].classList.add("picked");
      text.children[at].scrollIntoView({ block: "nearest" });
      const logprob = state.logprobs[at];
      readout.replaceChildren(make("b", {}, `token ${state.tokens[at]}`),
        ` no. ${at + 1} of ${state.tokens.length} \u00b7 log p ${fixed(logprob)} \u00b7 p ${fixed(Math.exp(logprob))} `,
        make("code", {}, oneLine(state.pieces[at] || "", 24)),
        inside.has(at) ? " ends inside a character" : "");
    };
    text.addEventListener("pointerover", (event) => {
      const token = event.target.closest(".token");
      if (token) pick(Number(token.dataset.place));
    });
    text.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: at + 1, ArrowLeft: Math.max(0, at - 1), Home: 0, End: state.tokens.length - 1 };
      if (!(event.key in steps)) return;
      event.preventDefault();
      event.stopPropagation();
      pick(steps[event.key]);
    });
    return make("div", {}, readout, text);
  }

  about() {
    const { saved } = this.model;
    return this.folded("about", "About this tree", () => {
      const list = make("dl", { class: "about" });
      const rows = { ...saved.settings, policy: saved.policy, stopped: saved.stopped, ...saved.counts };
      for (const [name, value] of Object.entries(rows)) {
        list.append(write(make("dt"), name.replaceAll("_", " ")), write(make("dd"), words(value)));
      }
      return list;
    });
  }
}
