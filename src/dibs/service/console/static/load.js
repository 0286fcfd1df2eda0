// How the service does: load, latency, and the plan of the index, as pictures.

import { get } from "./api.js";
import { duration, empty, h, number, percent } from "./dom.js";
import { curve, meter } from "./pictures.js";

const FIRST = ["POST /v1/publish", "POST /v1/match"];
const KINDS = [ // of conjunctions, by where the index has put them
  ["records", "filed under a rare attribute or value, found without looking at others"],
  ["vectors", "groups over the same attributes, compared together"],
  ["masks", "frequent ones, tested for many events at once"],
];
const PARTS = { texts: "texts of expressions", ids: "ids", weights: "weights", versions: "versions", domains: "domains (constants in order)", clauses: "coded clauses", index: "index" };

export async function show(main, { signal }) {
  const figures = h("div", { class: "card figures" });
  const charts = h("div", { class: "columns" });
  main.append(h("div", { class: "head" }, h("div", {}, h("h1", {}, "Load"), h("p", {}, "What goes through, how long it takes, and how the index is laid out."))), h("div", { class: "stack" }, figures, charts));
  const sizes = (bytes) => (bytes < 1e6 ? `${number(Math.round(bytes / 1e3))} kB` : `${number(Math.round(bytes / 1e5) / 10)} MB`);

  async function load() {
    let stats;
    let counts;
    try {
      [stats, counts] = await Promise.all([get("/v1/stats", {}, { signal }), get("/v1/counts", { by: "minute", last: 61, limit: 1 }, { signal })]);
    } catch (error) {
      if (error.name !== "AbortError") charts.replaceChildren(h("section", { class: "card" }, empty("gauge", "Not known now", error.message)));
      return;
    }
    const figure = (value, words) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, words));
    const matched = stats.matcher?.matching ?? {};
    const shown = [
      figure(number(stats.subscriptions), "subscriptions"),
      figure(number(stats.published), "events published"),
      figure(number(stats.matches), "matches"),
      figure(duration(stats.uptime), "running for"),
      matched.candidates ? figure(percent(1 - (matched["false candidates"] ?? 0) / matched.candidates), "of candidates match") : null,
      stats.gathered?.batches ? figure(number(Math.round((10 * stats.gathered.events) / stats.gathered.batches) / 10), "events per batch") : null,
    ];
    figures.replaceChildren(...shown.filter(Boolean));
    charts.replaceChildren(
      h("div", { class: "stack" }, h("section", { class: "card" }, h("h2", {}, "Events per minute"), curve((counts.events ?? []).slice(0, -1), "Events per minute", 60)), plan(stats)),
      h("div", { class: "stack" }, latency(stats.latency ?? {}), memory(stats.matcher?.bytes ?? {})));
  }

  function latency(routes) {
    const rows = Object.entries(routes).filter(([route, one]) => one.count && route.includes("/v1/")).sort((a, b) => FIRST.includes(b[0]) - FIRST.includes(a[0]) || b[1].count - a[1].count).slice(0, 8);
    const most = Math.max(1e-9, ...rows.map(([, one]) => one.p99));
    return h("section", { class: "card stack", id: "latency" }, h("h2", {}, "Latency"),
      rows.length ? h("ul", { class: "plan" }, rows.map(([route, one]) => meter(h("code", {}, route), `median ${duration(one.p50)} · 99% within ${duration(one.p99)}`, one.p99 / most))) : h("p", { class: "quiet" }, "Nothing was asked yet, or this token may not see it."));
  }

  function plan(stats) {
    const plans = stats.matcher?.plans ?? [];
    const sizes = plans.map((one) => KINDS.reduce((sum, [kind]) => sum + (one[kind] ?? 0), 0));
    const all = sizes.reduce((sum, size) => sum + size, 0) || 1;
    const rows = plans.flatMap((one, place) => {
      const name = plans.length > 1 ? `Segment ${place + 1}: ` : "";
      if (!sizes[place]) return [h("li", { class: "quiet" }, `${name}few, tested one by one`)];
      return KINDS.filter(([kind]) => one[kind]).map(([kind, words]) => meter(name + kind, `${number(one[kind])} of ${number(sizes[place])}`, one[kind] / all, words));
    });
    return h("section", { class: "card stack", id: "plan" }, h("h2", {}, "Plan of the index"),
      rows.length ? h("ul", { class: "plan" }, rows) : h("p", { class: "quiet" }, stats.subscriptions ? "So few subscriptions are simply tested one by one." : "There are no subscriptions yet."),
      plans[0]?.grounds && h("p", { class: "quiet small" }, plans[0].grounds),
      typeof stats.plan === "string" && stats.plan && h("details", {}, h("summary", {}, "In words"), h("pre", { class: "secret" }, stats.plan)));
  }

  function memory(bytes) {
    const rows = Object.entries(bytes).filter(([, size]) => size > 0).sort((a, b) => b[1] - a[1]);
    const most = Math.max(1, ...rows.map(([, size]) => size));
    return h("section", { class: "card stack" }, h("h2", {}, "Memory"), rows.length ? h("ul", { class: "plan" }, rows.map(([name, size]) => meter(PARTS[name] ?? name, sizes(size), size / most))) : h("p", { class: "quiet" }, "Nothing worth a picture yet."));
  }

  const timer = setInterval(() => !document.querySelector("details[open]") && load(), 3000);
  signal.addEventListener("abort", () => clearInterval(timer));
  await load();
}
