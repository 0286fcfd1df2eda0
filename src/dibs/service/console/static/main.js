// The frame: views by the address, keys, the theme, signing in.

import { get, token, whenUnauthorized } from "./api.js";
import { dialog, drawing, empty, h } from "./dom.js";

const VIEWS = [
  ["write", "Write", "pen"],
  ["subscriptions", "Subscriptions", "list"],
  ["events", "Inspect", "eye"],
  ["live", "Live", "wave"],
  ["deliveries", "Deliveries", "send"],
  ["load", "Load", "gauge"],
];

const main = document.getElementById("main");
const nav = document.getElementById("nav");
let leaving = new AbortController();
let viewKeys = {};

for (const [name, words, picture] of VIEWS) {
  nav.append(h("a", { href: `#/${name}`, "data-view": name }, drawing(picture), h("span", {}, words)));
}

async function show() {
  const [, name = "", ...rest] = location.hash.split("/");
  const view = VIEWS.find(([known]) => known === name)?.[0] ?? "write";
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  viewKeys = {};
  for (const link of nav.children) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS.find(([known]) => known === view)[1]} · Dibs`;
  const place = h("div", {});
  main.replaceChildren(place);
  scrollTo(0, 0);
  try {
    const { show: open } = await import(`./${view}.js`);
    if (signal.aborted) return;
    main.focus({ preventScroll: true });
    await open(place, { rest, signal, go: (hash) => (location.hash = hash), keys: (keys) => (viewKeys = keys) });
  } catch (error) {
    if (signal.aborted || error.name === "AbortError" || error.status === 401) return;
    place.replaceChildren(h("section", { class: "card" }, empty("search", "This cannot be shown", error.message)));
  }
}

// ---- keys ----

const isTyping = (element) => element.closest("input, textarea, select, [contenteditable]") && element.type !== "checkbox";

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === " " && event.target.closest("button, a, summary, input")) return;
  const digit = VIEWS[Number(event.key) - 1];
  const act = viewKeys[event.key] ?? (digit && (() => (location.hash = `#/${digit[0]}`))) ?? { n: write, "?": help, t: switchTheme }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

const write = () => (location.hash === "#/write" ? show() : (location.hash = "#/write"));

function help() {
  const rows = [
    ["1 – 6", "the views, from top to bottom"], ["n", "write a new subscription"], ["/", "search, or the event"],
    ["j  k", "up and down the list"], ["Enter", "edit what is chosen"], ["p", "pause or resume it"], ["d", "delete it (there is an undo)"],
    ["space", "pause the live view"], ["Ctrl Space", "complete"], ["Ctrl Enter", "save"], ["t", "light or dark"], ["Esc", "leave a field, close a dialog"],
  ];
  return dialog("Keyboard", (close) => h("form", { method: "dialog" }, h("h2", {}, "Keyboard"),
    h("dl", { class: "keys" }, rows.map(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)])),
    h("div", { class: "row" }, h("button", { type: "submit", onclick: () => close() }, "Close"))));
}

function switchTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("dibs-theme", theme);
  } catch {}
}

document.getElementById("help").addEventListener("click", help);
document.getElementById("theme").addEventListener("click", switchTheme);

// ---- who ----

let asking = false;

async function signIn() {
  if (asking) return;
  asking = true;
  const was = token.get();
  const given = await dialog("Sign in", (close) => {
    const input = h("input", { type: "password", id: "token", required: true, autocomplete: "off", autofocus: true });
    return h("form", { onsubmit: (event) => (event.preventDefault(), close(input.value.trim())) },
      h("h2", {}, "Your token"),
      h("p", { class: "quiet" }, was ? "This token is not known here. Give another one." : "Made on the server with “dibs token”. It is kept until this tab is closed."),
      h("label", {}, "Token", input), h("div", { class: "row" }, h("button", { type: "submit" }, "Open the console")));
  });
  asking = false;
  if (given) {
    token.set(given);
    start();
  } else {
    token.set("");
    main.replaceChildren(h("section", { class: "card" }, empty("eye", "A token is needed", "Without one there is nothing to see.", h("button", { type: "button", onclick: signIn }, "Give a token"))));
  }
}

whenUnauthorized(() => setTimeout(signIn));

async function start() {
  try {
    const who = await get("/v1/whoami");
    document.getElementById("who").textContent = `${who.tenant} · ${who.roles.join(", ")}`;
  } catch (error) {
    if (error.status === 401) return;
  }
  await show();
  watchDeliveries();
}

/** A red dot beside Deliveries while something does not get through. */
let watching = 0;
async function watchDeliveries() {
  clearTimeout(watching);
  try {
    const { destinations } = await get("/v1/destinations");
    const link = nav.querySelector('[data-view="deliveries"]');
    link.querySelector(".dot")?.remove();
    if (destinations.some((one) => one.failing_since || one.dead)) link.append(h("span", { class: "dot", role: "img", "aria-label": "something is not delivered" }));
  } catch {}
  watching = setTimeout(watchDeliveries, 15_000);
}

addEventListener("hashchange", show);
start();
