// The list of subscriptions: how often each has matched, what is silent or broken; search, edit, pause, delete with undo.

import { get, ofSubscription, post, put, remove } from "./api.js";
import { ago, empty, h, number, plural, since, soon, toast } from "./dom.js";
import { sparkline } from "./pictures.js";
import { encodedId } from "./write.js";

const FILTERS = { all: "All", silent: "Silent", paused: "Paused", broken: "Broken delivery" };

export async function show(main, { signal, go, keys }) {
  let filter = "all";
  let cursor = null;
  let asked = 0;
  let broken = new Map();
  const search = h("input", { type: "search", id: "search", placeholder: "Search names and expressions", "aria-label": "Search", oninput: () => later() });
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Show" }, Object.entries(FILTERS).map(([name, words]) =>
    h("button", { type: "button", "data-filter": name, "aria-pressed": String(name === filter), onclick: () => choose(name) }, words)));
  const list = h("ul", { class: "table", "aria-label": "Subscriptions" });
  const more = h("button", { type: "button", class: "ghost", hidden: true, onclick: () => load(false) }, "Show more");
  const total = h("p", { class: "quiet" });

  main.append(
    h("div", { class: "head" }, h("div", {}, h("h1", {}, "Subscriptions"), total), h("a", { class: "button", href: "#/write" }, "New", h("kbd", { class: "only-wide" }, "n"))),
    h("div", { class: "bar-of-tools" }, search, chips),
    list, h("p", { class: "row" }, more));

  const later = soon(() => load(true), 150);

  function choose(name) {
    filter = name;
    for (const chip of chips.children) chip.setAttribute("aria-pressed", String(chip.dataset.filter === name));
    load(true);
  }

  async function load(fresh) {
    const mine = ++asked;
    if (fresh) cursor = null;
    const { destinations } = await get("/v1/destinations").catch(() => ({ destinations: [] }));
    broken = new Map(destinations.filter((one) => one.failing_since || one.dead).map((one) => [one.name, one]));
    const parameters = { counts: true, limit: 50, like: search.value.trim() };
    if (filter === "paused") parameters.paused = true;
    if (filter === "silent") parameters.silent = true;
    const found = [];
    try {
      // A page may be short and still have a next one: filters look at some thousands at a time.
      for (let looks = 0; found.length < 50 && looks < 20; looks += 1) {
        const page = await get("/v1/subscriptions", { ...parameters, after: cursor }, { signal });
        if (mine !== asked) return;
        found.push(...page.subscriptions.filter((one) => filter !== "broken" || broken.has(one.destination)));
        cursor = page.next;
        total.textContent = `${plural(page.total, "subscription")} in all`;
        if (!cursor) break;
      }
    } catch (error) {
      if (error.name !== "AbortError") list.replaceChildren(h("li", {}, empty("list", "Not known now", error.message)));
      return;
    }
    const rows = found.map((one) => row(one));
    if (fresh) list.replaceChildren(...rows);
    else list.append(...rows);
    if (!list.children.length) list.append(h("li", {}, nothing()));
    more.hidden = !cursor;
  }

  function nothing() {
    if (cursor) return empty("search", "None so far", "There are more subscriptions to look through.");
    if (search.value.trim()) return empty("search", "Nothing found", "No name and no expression contains this.");
    if (filter === "silent") return empty("check", "None is silent", "Each subscription has matched something.");
    if (filter === "paused") return empty("check", "None is paused");
    if (filter === "broken") return empty("check", "All deliveries go through");
    return empty("list", "No subscriptions yet", "Write the first one, and see at once what it would have matched.", h("a", { class: "button", href: "#/write" }, "Write one"));
  }

  function row(one) {
    const matches = one.matches ?? { total: 0, series: [], last: null };
    const trouble = broken.get(one.destination);
    const tags = [
      one.paused && h("span", { class: "tag" }, "paused"),
      !one.paused && !matches.total && h("span", { class: "tag warn" }, "silent"),
      one.destination && !trouble && h("span", { class: "tag" }, `→ ${one.destination}`),
      trouble && h("span", { class: "tag no", title: trouble.last_error }, trouble.failing_since ? `→ ${one.destination}: failing for ${since(trouble.failing_since)}` : `→ ${one.destination}: ${plural(trouble.dead, "dead letter")}`),
      one.owner && h("span", { class: "tag" }, one.owner),
    ];
    const item = h("li", { class: one.paused ? "item asleep" : "item", tabindex: "0", "data-id": String(one.id), "aria-label": String(one.id) },
      h("div", {}, h("div", { class: "row" }, h("span", { class: "name" }, String(one.id)), tags), h("p", { class: "what" }, one.expression)),
      h("div", { class: "spark-cell" }, sparkline(matches.series, "Matches in the last 24 hours")),
      h("p", { class: "count" }, number(matches.total), h("span", {}, matches.last ? ago(matches.last) : "never")),
      h("div", { class: "row actions" },
        h("button", { type: "button", class: "ghost small", title: "Enter", onclick: () => edit(one) }, "Edit"),
        h("button", { type: "button", class: "ghost small", title: "p", onclick: () => pause(one, item) }, one.paused ? "Resume" : "Pause"),
        h("button", { type: "button", class: "ghost small bad", title: "Delete", onclick: () => erase(one, item) }, "Delete")));
    item.addEventListener("keydown", (event) => {
      if (event.target !== item) return;
      const act = { Enter: () => edit(one), e: () => edit(one), p: () => pause(one, item), Delete: () => erase(one, item), d: () => erase(one, item) }[event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    });
    return item;
  }

  const edit = (one) => go(`#/write/${encodedId(one.id)}`);

  async function pause(one, item) {
    try {
      const now = await post(ofSubscription(one.id, one.paused ? "/resume" : "/pause"));
      const fresh = row({ ...one, ...now });
      item.replaceWith(fresh);
      fresh.focus();
      toast(now.paused ? `${one.id} is paused: it matches nothing until it is resumed.` : `${one.id} matches again.`);
    } catch (error) {
      toast(error.message, { bad: true });
    }
  }

  async function erase(one, item) {
    try {
      const { removed } = await remove(ofSubscription(one.id));
      const next = item.nextElementSibling ?? item.previousElementSibling;
      item.remove();
      if (list.children.length) next?.focus();
      else list.append(h("li", {}, nothing()));
      toast(`${one.id} is deleted.`, { action: "Undo", onaction: () => restore(removed) });
    } catch (error) {
      toast(error.message, { bad: true });
    }
  }

  async function restore(removed) {
    const { expression, weight, owner, labels, destination, mode, paused } = removed;
    const body = Object.fromEntries(Object.entries({ expression, weight, owner, labels, destination, mode, paused }).filter(([, value]) => value !== null && value !== undefined));
    try {
      await put(ofSubscription(removed.id), body, { headers: { "If-None-Match": "*" } });
      toast(`${removed.id} is back.`);
      if (!signal.aborted) await load(true);
    } catch (error) {
      toast(error.message, { bad: true });
    }
  }

  keys({
    "/": () => search.focus(),
    j: () => move(1),
    k: () => move(-1),
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
  });

  function move(step) {
    const items = [...list.querySelectorAll(".item")];
    const place = items.indexOf(document.activeElement?.closest?.(".item"));
    items[Math.max(0, Math.min(items.length - 1, place + step))]?.focus();
  }

  await load(true);
}
