// Text of models: every character shown, none obeyed.

const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

const CONTROLS = (
  "NUL SOH STX ETX EOT ENQ ACK BEL BS \u21e5 \u21b5 VT FF CR SO SI " +
  "DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
).split(" ");

// How an invisible character is written: its name, or its code point.
function glyph(character) {
  const code = character.codePointAt(0);
  const name = CONTROLS[code] || code.toString(16).toUpperCase().padStart(4, "0");
  return character === "\n" || character === "\t" ? name : "\u27e8" + name + "\u27e9";
}

// Whatever a file holds, as text; an object's own members may be named toString.
function words(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

// A text on one line, at most so many characters.
function oneLine(text, length) {
  const shown = [...text.slice(0, 2 * length).replace(UNSEEN, glyph)];
  if (shown.length <= length) return shown.join("");
  return shown.slice(0, length - 1).join("") + "\u2026";
}

// An element with properties and children; strings become text, never markup.
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// Put a text into an element, invisible characters as marks beside the text.
function write(element, text) {
  let last = 0;
  for (const match of text.matchAll(UNSEEN)) {
    element.append(text.slice(last, match.index));
    element.append(make("span", { class: "mark" }, glyph(match[0])));
    if (match[0] === "\n") element.append("\n");
    last = match.index + match[0].length;
  }
  element.append(text.slice(last));
  return element;
}

function block(text, name = "text") {
  return write(make("div", { class: name }), text);
}

function fixed(value, digits = 3) {
  if (value === null || value === undefined) return "\u2013";
  const text = value.toFixed(digits);
  return value < 0 ? "\u2212" + text.slice(1) : text;
}

// The end of a scale: whole numbers without decimals.
function end(value) {
  return Number.isInteger(value) ? fixed(value, 0) : fixed(value, 2);
}

function signed(value, digits = 3) {
  return value > 0 ? "+" + fixed(value, digits) : fixed(value, digits);
}
