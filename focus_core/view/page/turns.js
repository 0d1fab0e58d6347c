// A turn as its parts: thinking, tool calls in the dialects of focus_core.env.dialects, and the rest.

const MARKS = /<think>|<tool_call>/g;
const FUNCTION = /\s*<function=([^<>\s]+)>\s*/y;
const PARAMETER = /\s*<parameter=([^<>\s]+)>/y;
const FUNCTION_END = /\s*<\/function>\s*<\/tool_call>/y;
const TRIES = 50; // ends at which a call's JSON may be whole: a string in it may hold the tag

function matchAt(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

// Parts that join to the text: { kind: "text" | "thinking" | "call", raw, ... }; of a call also
// its name and arguments, or why there are none.
function partsOf(text) {
  const parts = [];
  const add = (kind, start, stop, more) => {
    if (stop > start) parts.push({ kind, raw: text.slice(start, stop), ...more });
  };
  const after = (tag, from) => {
    const found = text.indexOf(tag, from);
    return found < 0 ? text.length : found + tag.length;
  };
  const opened = text.indexOf("<think>"), closed = text.indexOf("<\/think>");
  let at = closed >= 0 && !(opened >= 0 && opened < closed) ? closed + 8 : 0; // opened by the prompt
  add("thinking", 0, at);
  for (let mark; (mark = matchAt(MARKS, text, at)); ) {
    add("text", at, mark.index);
    if (mark[0] === "<think>") {
      at = after("<\/think>", mark.index);
      add("thinking", mark.index, at);
    } else {
      const call = readFunction(text, MARKS.lastIndex) || readObject(text, MARKS.lastIndex);
      at = call.stop;
      add("call", mark.index, at, call);
    }
  }
  add("text", at, text.length);
  return parts;
}

// {"name": ..., "arguments": {...}}
function readObject(text, start) {
  let first = -1;
  for (let end = start, i = 0; i < TRIES; i++, end += 1) {
    end = text.indexOf("<\/tool_call>", end);
    if (end < 0) break;
    if (first < 0) first = end;
    let value;
    try {
      value = JSON.parse(text.slice(start, end));
    } catch {
      continue;
    }
    const stop = end + 12;
    const given = value && typeof value === "object" ? value.arguments ?? {} : null;
    if (!given || typeof value.name !== "string" || typeof given !== "object") return { stop, wrong: "no call" };
    return { stop, name: value.name, given: Object.entries(given) };
  }
  if (first < 0) return { stop: text.length, wrong: "not finished here" };
  const next = text.indexOf("<tool_call>", start);
  return { stop: next >= 0 && next < first ? next : first + 12, wrong: "no JSON" };
}

// <function=NAME> with a <parameter=KEY> for each argument; null if the block is not of this kind.
function readFunction(text, start) {
  const named = matchAt(FUNCTION, text, start);
  if (!named) return null;
  const given = [];
  let at = FUNCTION.lastIndex;
  for (let found; (found = matchAt(PARAMETER, text, at)); ) {
    const stop = text.indexOf("<\/parameter>", PARAMETER.lastIndex);
    if (stop < 0) break;
    given.push([found[1], text.slice(PARAMETER.lastIndex, stop).replace(/^\n/, "").replace(/\n$/, "")]);
    at = stop + 12;
  }
  if (matchAt(FUNCTION_END, text, at)) return { stop: FUNCTION_END.lastIndex, name: named[1], given };
  const end = text.indexOf("<\/tool_call>", at);
  const next = text.indexOf("<tool_call>", at);
  if (end < 0 && next < 0) return { stop: text.length, name: named[1], given, wrong: "not finished here" };
  const stop = next >= 0 && (end < 0 || next < end) ? next : end + 12;
  return { stop, name: named[1], given, wrong: "broken off" };
}

// The parts of a turn, as elements: every text is put in as text.
function turnParts(text) {
  return partsOf(text).map((part) => {
    if (part.kind !== "call") return block(part.raw, `text part ${part.kind}`);
    const head = make("p", { class: "role" }, "calls ", write(make("b"), part.name ?? "a tool"));
    if (part.wrong) head.append(` (${part.wrong})`);
    const list = make("dl", { class: "pairs" });
    for (const [name, value] of part.given || []) {
      list.append(write(make("dt"), name), write(make("dd"), words(value)));
    }
    const shown = part.given && !part.wrong ? list : block(part.raw, "text");
    return make("section", { class: "call" }, head, shown);
  });
}

// One message of the environment.
function answerPart(message) {
  const chat = message && typeof message.content === "string";
  const role = chat && typeof message.role === "string" ? message.role : "message";
  const head = make("p", { class: "role" }, role === "tool" ? "result" : "");
  if (role !== "tool") write(head, role);
  if (chat && typeof message.name === "string") write(head.appendChild(make("b")), ` ${message.name}`);
  return make("section", { class: "result" }, head, block(chat ? message.content : JSON.stringify(message, null, 1)));
}
