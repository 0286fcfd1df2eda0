// Elements, numbers and times as text, toasts, dialogs. No text ever becomes markup: everything is a text node.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "width%") element.style.width = `${value}%`;
    else if (["value", "checked", "disabled", "hidden", "open", "selected"].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, properties, ...children) => filled(document.createElement(tag), properties, children);
export const svg = (tag, properties, ...children) => filled(document.createElementNS(SVG, tag), properties, children);

// ---- words ----

export const number = (value) => Number(value).toLocaleString("en-US");

export function rounded(value) {
  if (value === 0) return "0";
  if (value >= 100) return number(Math.round(value));
  if (value >= 10) return value.toFixed(1).replace(/\.0$/, "");
  return Number(value.toPrecision(2)).toString();
}

export function percent(share) {
  if (share === 0) return "0%";
  const hundred = share * 100;
  return hundred < 0.01 ? "<0.01%" : `${hundred < 1 ? hundred.toPrecision(2) : hundred.toFixed(1).replace(/\.0$/, "")}%`;
}

export function duration(seconds) {
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${rounded(seconds * 1000)} ms`;
  if (seconds < 90) return `${rounded(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

export const since = (time) => duration(Math.max(1, Math.round((Date.now() - new Date(time)) / 1000)));

export const ago = (time) => {
  const seconds = (Date.now() - new Date(time)) / 1000;
  return seconds < 5 ? "just now" : `${since(time)} ago`;
};

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export function clock(time) {
  const at = new Date(time);
  const text = at.toLocaleTimeString("en-GB");
  return h("time", { datetime: at.toISOString(), title: at.toLocaleString() }, text);
}

export function shortTime(time, span) {
  const at = new Date(time);
  const long = span > 36 * 3600 * 1000;
  return long
    ? at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })
    : at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: span < 300e3 ? "2-digit" : undefined });
}

// ---- events in one line ----

function flattened(value, name, found) {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    for (const [key, inner] of Object.entries(value)) flattened(inner, name ? `${name}.${key}` : key, found);
  } else found.push([name, value]);
  return found;
}

// BigInt: what JSON has more digits of than a number keeps.
export const asJSON = (value, space) =>
  JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? JSON.rawJSON(String(inner)) : inner), space);

/** An event as its attributes; those that are named (by an expression) first and marked. */
export function pairs(event, named = [], most = 12) {
  const marked = new Set(named);
  const all = flattened(event, "", []).sort((a, b) => marked.has(b[0]) - marked.has(a[0]));
  const shown = all.slice(0, Math.max(most, marked.size)).map(([name, value]) =>
    h("span", { class: marked.has(name) && "named" }, h("i", {}, `${name} `), shortened(asJSON(value) ?? "null", 80)),
  );
  if (all.length > shown.length) shown.push(h("span", {}, h("i", {}, `+${all.length - shown.length} more`)));
  return h("div", { class: "pairs" }, shown);
}

export const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// ---- waiting ----

/** Calls at most once in so many milliseconds, with the latest arguments. */
export function soon(work, wait) {
  let timer = 0;
  const later = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait);
  };
  later.stop = () => clearTimeout(timer);
  return later;
}

// ---- toasts and dialogs ----

export function toast(message, { bad = false, action, onaction, seconds = 6 } = {}) {
  const box = h("div", { class: bad ? "toast bad" : "toast" }, h("span", {}, message));
  const end = () => box.remove();
  if (action) box.append(h("button", { type: "button", onclick: () => (end(), onaction()) }, action));
  document.getElementById("toasts").append(box);
  const timer = setTimeout(end, (action ? 12 : seconds) * 1000);
  box.addEventListener("mouseenter", () => clearTimeout(timer), { once: true });
  return box;
}

/** A dialog over the page; resolves when it is closed. Focus goes back to where it was. */
export function dialog(title, build, className) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const box = h("dialog", { "aria-label": title, class: className });
    const close = (value) => (box.close(), value);
    let result;
    box.append(...[build((value) => ((result = value), close()))].flat());
    box.addEventListener("close", () => {
      box.remove();
      before?.focus?.();
      resolve(result);
    });
    document.body.append(box);
    box.showModal();
  });
}

const DRAWINGS = {
  inbox: ["M3 13l3-8h12l3 8v6H3z", "M3 13h5l1.5 3h5L16 13h5"],
  search: ["M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13z", "M15.5 15.5L21 21"],
  wave: ["M2 12h4l3-8 5 16 3-8h5"],
  check: ["M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z", "M8 12.2l2.8 2.8 5.2-5.6"],
  pen: ["M4 20l1-4L16 5l3 3L8 19z", "M14 7l3 3"],
  list: ["M8 6h13M8 12h13M8 18h13", "M3.5 6h.01M3.5 12h.01M3.5 18h.01"],
  eye: ["M2 12s3.6-6.5 10-6.5S22 12 22 12s-3.6 6.5-10 6.5S2 12 2 12z", "M12 9.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6z"],
  send: ["M21 3L10 14", "M21 3l-7 18-4-7-7-4z"],
  gauge: ["M4 19a9 9 0 1 1 16 0", "M12 14l4-5"],
};

export const drawing = (name) =>
  svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, DRAWINGS[name].map((d) => svg("path", { d })));

export const empty = (picture, title, text, ...more) =>
  h("div", { class: "empty" }, drawing(picture), h("strong", {}, title), text && h("p", {}, text), more);
