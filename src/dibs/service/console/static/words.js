// Expressions as tokens: for colours, and for what is to be completed. The server decides what is right or wrong.

const KEYWORDS = new Set(
  "AND OR NOT IN BETWEEN LIKE RLIKE IS NULL TRUE FALSE EXISTS FORALL SELECT FROM WHERE DATE TIMESTAMP INTERVAL STARTSWITH ENDSWITH CONTAINS".split(" "),
);
const TOKEN = /(\s+)|('(?:[^'\\]|\\.|'')*'?)|(`[^`]*`?)|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([\p{L}_][\p{L}\p{N}_.]*)|(<=>|<>|!=|<=|>=|[=<>])|([\s\S])/gu;
const KINDS = ["space", "text", "quoted", "number", "word", "operator", "other"];
export const OFFERED = ["AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL"];

/** [{kind, text, start, end}] */
export function tokens(text) {
  const found = [];
  for (const match of text.matchAll(TOKEN)) {
    let kind = KINDS[match.slice(1).findIndex((group) => group !== undefined)];
    if (kind === "word" && KEYWORDS.has(match[0].toUpperCase())) kind = "keyword";
    found.push({ kind, text: match[0], start: match.index, end: match.index + match[0].length });
  }
  return found;
}

const isName = (token) => token && (token.kind === "word" || token.kind === "quoted");
const nameOf = (token) => (token.kind === "quoted" ? token.text.replaceAll("`", "") : token.text);

/** The text with another attribute in place of one. */
export const renamed = (text, from, to) =>
  tokens(text).map((token) => (isName(token) && nameOf(token) === from ? written(to) : token.text)).join("");

/** The words that stand for an earlier document: d in EXISTS d (...), FORALL d (...) and FROM history d. */
function documentsIn(past) {
  const upper = (place) => past[place]?.text.toUpperCase();
  const begins = (place) => ["EXISTS", "FORALL"].includes(upper(place - 1)) || upper(place - (upper(place - 1) === "AS" ? 2 : 1)) === "HISTORY";
  return past.filter((token, place) => token.kind === "word" && begins(place)).map((token) => `${token.text}.`);
}

/** What can be written at a place: {of: "value", attribute, ...} or {of: "name" | "joint", ...}, with what is there
 *  already (`typed`), which part is replaced, and by which word the attribute is an earlier document's (`document`). */
export function wanted(text, caret) {
  const before = tokens(text.slice(0, caret));
  const last = before.at(-1);
  const open = last && (last.kind === "word" || last.kind === "keyword" || last.kind === "number" || isOpen(last));
  const past = before.filter((token) => token.kind !== "space");
  if (open) past.pop();
  const documents = documentsIn(past);
  const documentOf = (name) => documents.find((word) => name.startsWith(word)) ?? "";
  const document = open ? documentOf(last.text) : "";
  const typed = open ? last.text.slice(document.length) : "";
  const place = { typed, document, start: open ? last.start + document.length : caret, end: caret + restOfWord(text, caret, last) };
  const attribute = attributeBefore(past);
  if (attribute && !document) return { of: "value", ...place, document: documentOf(attribute), attribute: attribute.slice(documentOf(attribute).length) };
  if (isOpen(last) && last.kind === "text") return null;
  const previous = past.at(-1);
  const ended = previous && (isName(previous) || ["text", "number"].includes(previous.kind) || previous.text === ")");
  return { of: ended ? "joint" : "name", after: previous && isName(previous) ? "name" : "value", ...place };
}

/** The function within whose parentheses a place is. */
export function calledAt(text, caret) {
  const before = tokens(text.slice(0, caret)).filter((token) => token.kind !== "space");
  let depth = 0;
  for (let place = before.length - 1; place > 0; place -= 1) {
    if (before[place].text === ")") depth += 1;
    if (before[place].text !== "(" || (depth -= 1) >= 0) continue;
    const name = before[place - 1];
    if (name.kind === "word" || name.kind === "keyword") return name.text.toUpperCase();
    depth = 0; // parentheses around a value
  }
  return "";
}

const isOpen = (token) =>
  token && ((token.kind === "text" && !(token.text.length > 1 && token.text.endsWith("'"))) || (token.kind === "quoted" && !(token.text.length > 1 && token.text.endsWith("`"))));

function restOfWord(text, caret, last) {
  if (!last) return 0;
  const rest = /^[\p{L}\p{N}_.]*/u.exec(text.slice(caret))[0].length;
  return isOpen(last) && last.kind === "text" && text[caret + rest] === "'" ? rest + 1 : rest;
}

/** The attribute that a constant at the end of these tokens is compared with. */
function attributeBefore(past) {
  let place = past.length - 1;
  const upper = (token) => token?.text.toUpperCase();
  if (past[place]?.kind === "operator") return isName(past[place - 1]) ? nameOf(past[place - 1]) : null;
  if (["LIKE", "BETWEEN", "RLIKE"].includes(upper(past[place]))) {
    place -= upper(past[place - 1]) === "NOT" ? 2 : 1;
    return isName(past[place]) ? nameOf(past[place]) : null;
  }
  while (place >= 0 && (past[place].text === "," || past[place].kind === "text" || past[place].kind === "number")) place -= 1;
  if (past[place]?.text !== "(" || upper(past[place - 1]) !== "IN") return null;
  if (past.at(-1).kind === "text" || past.at(-1).kind === "number") return null;
  place -= upper(past[place - 2]) === "NOT" ? 3 : 2;
  return isName(past[place]) ? nameOf(past[place]) : null;
}

export function literal(value) {
  if (typeof value === "string") return `'${value.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`;
  if (typeof value === "boolean") return value ? "TRUE" : "FALSE";
  return String(value);
}

/** A name as it stands in an expression. */
export const written = (name) =>
  /^[\p{L}_][\p{L}\p{N}_]*(\.[\p{L}_][\p{L}\p{N}_]*)*$/u.test(name) && !KEYWORDS.has(name.toUpperCase()) ? name : `\`${name.replaceAll("`", "``")}\``;
