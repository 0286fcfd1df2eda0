// The service over HTTP: the token, problems as errors, and server-sent events (which need the token in a header, so
// fetch reads them).

import { asJSON } from "./dom.js";

const KEY = "dibs-token";

export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `The server answered ${status}`);
    this.status = status;
    this.kind = (document.type || "").split("/").pop();
    this.problems = document.problems || [];
    this.document = document;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

let onUnauthorized = () => {};
export const whenUnauthorized = (work) => (onUnauthorized = work);

// Ids are integers of 64 bits: those that a number cannot keep are BigInt.
const parsed = (text) =>
  JSON.parse(text, (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context.source)
      : value,
  );

function address(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters ?? {})) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    for (const one of [value].flat()) query.append(name, one);
  }
  const text = query.toString();
  return text ? `${path}${path.includes("?") ? "&" : "?"}${text}` : path;
}

const authorized = (headers) => (token.get() ? { ...headers, Authorization: `Bearer ${token.get()}` } : headers);

async function ask(method, path, { parameters, body, headers = {}, signal } = {}) {
  const sent = body === undefined ? headers : { "Content-Type": "application/json", ...headers };
  let answer;
  try {
    answer = await fetch(address(path, parameters), {
      method,
      headers: authorized(sent),
      body: body === undefined ? undefined : asJSON(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "The server does not answer. Is it running?" });
  }
  const text = await answer.text();
  let found = {};
  try {
    found = text ? parsed(text) : {};
  } catch {
    found = { detail: text.slice(0, 200) };
  }
  if (!answer.ok) {
    if (answer.status === 401) onUnauthorized();
    throw new Problem(answer.status, found);
  }
  return found;
}

export const get = (path, parameters, options) => ask("GET", path, { parameters, ...options });
export const post = (path, body, options) => ask("POST", path, { body, ...options });
export const put = (path, body, options) => ask("PUT", path, { body, ...options });
export const remove = (path, options) => ask("DELETE", path, options);

/** The path of a subscription, or of something below it. */
export function ofSubscription(id, below = "") {
  const integer = typeof id === "string" ? "" : "?integer=true";
  return `/v1/subscriptions/${encodeURIComponent(String(id))}${below}${integer}`;
}

/** Follows a stream of server-sent events until the signal ends it; onevent(name, data). Throws when it breaks. */
export async function follow(path, onopen, onevent, signal) {
  const answer = await fetch(path, { headers: authorized({ Accept: "text/event-stream" }), signal });
  if (!answer.ok) {
    if (answer.status === 401) onUnauthorized();
    throw new Problem(answer.status, {});
  }
  onopen();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      let name = "message";
      let data = "";
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (data) onevent(name, parsed(data));
    }
  }
}
