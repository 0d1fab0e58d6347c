// Small drawings of numbers: a state's worth over time, and its values on one scale.

function shape(tag, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const CHART = { width: 380, height: 104, left: 44, right: 8, top: 10, bottom: 20 };

// A step line over the transitions of the tree; a dot at each launch from the state.
function worthChart(model, state, launch) {
  const { worth, transitions } = state.history;
  const { width, height, left, right, top, bottom } = CHART;
  const given = state.launches.map((i) => model.saved.launches.worth[i]);
  const most = [...given, ...worth].reduce((a, b) => Math.max(a, b), 0) || 1;
  const long = model.transitions || 1;
  const x = (value) => left + (value / long) * (width - left - right);
  const y = (value) => height - bottom - (value / most) * (height - top - bottom);
  const rows = state.launches.map((i) => ({
    at: model.saved.launches.transitions[i],
    worth: model.saved.launches.worth[i],
    warm: model.saved.launches.phase[i] === "warm-up",
  }));
  let line = "";
  let drawing = false; // not where the state was not offered
  worth.forEach((value, i) => {
    if (drawing) line += `H${x(transitions[i])}`;
    if (value !== null) line += drawing ? `V${y(value)}` : `M${x(transitions[i])} ${y(value)}`;
    drawing = value !== null;
  });
  if (drawing) line += `H${x(long)}`;
  const chart = shape("svg", {
    class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Worth over time: ${worth.length} changes, at most ${fixed(most, 4)}; ${rows.length} launches`,
  });
  const label = (text, at, anchor) => {
    const made = shape("text", { x: at[0], y: at[1], "text-anchor": anchor });
    made.textContent = text;
    return made;
  };
  chart.append(
    shape("path", { class: "axis", d: `M${left} ${y(most)}H${width - right}M${left} ${y(0)}H${width - right}` }),
    label(fixed(most, most < 0.01 ? 4 : 3), [left - 6, y(most) + 3.5], "end"),
    label("0", [left - 6, y(0) + 3.5], "end"),
    label("0", [left, height - 5], "start"),
    label(`${long} transitions`, [width - right, height - 5], "end"),
    shape("path", { class: "steps", d: line || "M0 0" }),
  );
  for (const row of rows) {
    chart.append(shape("path", { class: "tick", d: `M${x(row.at)} ${y(0)}v-5` }));
    const dot = { class: row.warm ? "dot warm" : "dot", cx: x(row.at), cy: y(row.worth ?? 0), r: 3.5 };
    chart.append(shape("circle", dot));
  }
  if (launch < model.launches) {
    const now = x(model.saved.launches.transitions[launch]);
    chart.append(shape("path", { class: "now", d: `M${now} ${top - 6}V${y(0)}` }));
  }
  return chart;
}

// Prediction, value and target on the scale of the colours, its ends named.
function valueBar(state, scale) {
  const marks = [
    ["prediction", state.prediction, "M0 -7V7"],
    ["target", state.target, "M-4.5 -7H4.5L0 -0.5Z"],
    ["value", state.value, "M0 -5.5A5.5 5.5 0 1 0 0.01 -5.5Z"],
  ].filter(([, value]) => value !== null);
  const width = 380, inset = 10;
  const x = (value) => inset + scale.share(value) * (width - 2 * inset);
  const bar = shape("svg", {
    class: "bar", viewBox: `0 0 ${width} 42`, role: "img",
    "aria-label": marks.map(([name, value]) => `${name} ${fixed(value)}`).join(", ") +
      `; on a scale from ${end(scale.low)} to ${end(scale.high)}`,
  });
  for (const [value, at, anchor] of [[scale.low, 0, "start"], [scale.high, width, "end"]]) {
    bar.append(shape("text", { x: at, y: 40, "text-anchor": anchor }, end(value)));
  }
  bar.append(shape("path", { class: "axis", d: `M${inset} 14H${width - inset}` }));
  for (const [name, value, d] of marks) {
    bar.append(shape("path", { class: name, d, transform: `translate(${x(value)} 14)` }));
  }
  return bar;
}
