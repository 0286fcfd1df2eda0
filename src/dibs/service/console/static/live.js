// Events and matches as they come, with a pause button.

import { follow } from "./api.js";
import { clock, empty, h, number, pairs, plural, shortened } from "./dom.js";
import { curve } from "./pictures.js";

const KEPT = 150; // rows
const SECONDS = 60;

export async function show(main, { signal, keys }) {
  let paused = false;
  let waiting = [];
  let lost = 0;
  let total = 0;
  let matches = 0;
  const perSecond = []; // since the view was opened: what was before is not known, and not none
  const matchesPerSecond = [];
  const list = h("ul", { class: "table live", "aria-label": "Events", "aria-live": "off" }, h("li", { class: "alone" }, empty("wave", "Waiting for events", "They show here the moment they are published.")));
  const button = h("button", { type: "button", id: "pause", "aria-pressed": "false", onclick: () => toggle() });
  const dot = h("span", { class: "state-dot" });
  const state = h("span", { class: "quiet", role: "status" });
  const charts = h("div", { class: "columns" });
  const onlyMatches = h("input", { type: "checkbox", id: "only-matches" });
  const losses = h("span", { class: "tag warn", hidden: true });

  main.append(
    h("div", { class: "head" }, h("div", {}, h("h1", {}, "Live"), h("p", { class: "row" }, dot, state, losses)),
      h("div", { class: "row" }, h("label", { class: "check" }, onlyMatches, "only matches"), button)),
    h("div", { class: "stack" }, charts, list));

  function told() {
    button.replaceChildren(paused ? `Resume${waiting.length ? ` (${number(waiting.length)} new)` : ""}` : "Pause", h("kbd", { class: "only-wide" }, "space"));
    button.setAttribute("aria-pressed", String(paused));
    button.classList.toggle("ghost", !paused);
    losses.hidden = !lost;
    losses.textContent = `${plural(lost, "event")} not shown: more came than could be`;
  }

  function toggle() {
    paused = !paused;
    if (!paused) {
      add(waiting);
      waiting = [];
    }
    told();
  }

  function row(one) {
    const ids = one.subscriptions ?? [];
    const names = ids.slice(0, 4).map((id) => shortened(String(id), 30)).join(", ");
    const words = one.count ? `${plural(one.count, "match", "matches")}: ${names}${one.count > 4 ? "…" : ""}` : "no match";
    return h("li", { class: "fresh" }, clock(one.time), pairs(one.event, [], 9), h("span", { class: one.count ? "tag yes" : "tag none", title: ids.join(", ") }, shortened(words, 60)));
  }

  function add(events) {
    const shown = events.filter((one) => one.count || !onlyMatches.checked).slice(-KEPT);
    if (!shown.length) return;
    list.querySelector(".empty")?.closest("li").remove();
    list.prepend(...shown.reverse().map(row));
    while (list.children.length > KEPT) list.lastElementChild.remove();
  }

  function came(name, data) {
    if (name === "lost") lost += data.count;
    if (name !== "published") return told();
    total += 1;
    matches += data.count;
    if (paused) {
      waiting.push(data);
      if (waiting.length > KEPT * 4) {
        waiting.shift();
        lost += 1;
      }
      told();
    } else fresh.push(data);
  }

  // Rows are drawn some times a second, however many events come.
  let fresh = [];
  const drawing = setInterval(() => {
    if (paused || !fresh.length) return;
    add(fresh);
    fresh = [];
  }, 250);
  const counting = setInterval(() => {
    perSecond.push(total);
    matchesPerSecond.push(matches);
    if (perSecond.length > SECONDS) {
      perSecond.shift();
      matchesPerSecond.shift();
    }
    total = matches = 0;
    charts.replaceChildren(
      h("section", { class: "card" }, h("h2", {}, "Events per second"), curve(perSecond, "Events per second", 1)),
      h("section", { class: "card" }, h("h2", {}, "Matches per second"), curve(matchesPerSecond, "Matches per second", 1)));
  }, 1000);
  signal.addEventListener("abort", () => (clearInterval(drawing), clearInterval(counting)));

  async function listen() {
    for (let wait = 500; !signal.aborted; wait = Math.min(10_000, wait * 2)) {
      try {
        await follow("/v1/stream", () => ((wait = 500), connected(true)), came, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401 || error.status === 403) return (state.textContent = error.message);
      }
      connected(false);
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  function connected(on) {
    dot.className = `state-dot ${on ? "on" : "off"}`;
    state.textContent = on ? "connected" : "not connected, trying again";
  }

  keys({ " ": toggle });
  told();
  listen();
}
