// JSON as it was written. What JSON.parse gives has other numbers (9007199254740993 becomes 9007199254740992, 1.10 becomes 1.1) and
// forgets a name that comes twice. So it says only whether a text is JSON; what is shown are pieces of the text.

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const STEP = "  ";
const STEPS_MAX = 20; // What lies deeper is not moved further: else a small record of brackets alone would become hundreds of megabytes.

export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

// In lines, as JSON.stringify(value, null, 2) lays it out.
export function laidOut(text) {
  const tokens = text.match(TOKEN) ?? [];
  const made = [];
  let depth = 0;
  const line = () => made.push("\n", STEP.repeat(Math.min(depth, STEPS_MAX)));
  tokens.forEach((token, index) => {
    const opens = token === "{" || token === "[";
    const closes = token === "}" || token === "]";
    const isEmpty = closes && /^[{[]$/.test(tokens[index - 1]);
    if (closes) depth--;
    if (closes && !isEmpty) line();
    made.push(token === ":" ? ": " : token);
    if (opens) depth++;
    if (token === "," || (opens && !/^[}\]]$/.test(tokens[index + 1]))) line();
  });
  return made.join("");
}

// The members of an object, by name: each value as it was written, without the space between its parts. Of a name that comes twice
// the last one, as everywhere. An empty Map for what is no object.
export function membersOf(text) {
  const [first, ...tokens] = text.match(TOKEN) ?? [];
  const found = new Map();
  if (first !== "{") return found;
  let depth = 0;
  let name = null;
  let value = "";
  for (const token of tokens) {
    if (depth === 0 && (token === "," || token === "}")) {
      if (name !== null) found.set(name, value);
      name = null;
      value = "";
    } else if (name === null) name = JSON.parse(token);
    else if (depth === 0 && token === ":" && value === "") continue;
    else {
      if (token === "{" || token === "[") depth++;
      if (token === "}" || token === "]") depth--;
      value += token;
    }
  }
  return found;
}

// A text without its quotes; all else as it is.
export const plain = (source) => (source.startsWith('"') ? JSON.parse(source) : source);
