// An event, pasted or picked: who matches it and why; why a subscription of choice does not; who misses by a hair.

import { get, post } from "./api.js";
import { asJSON, clock, empty, h, plural, shortened, soon, toast } from "./dom.js";
import { tree } from "./explanation.js";

export async function show(main, { signal, keys }) {
  const area = h("textarea", { class: "json", id: "event", "aria-label": "Event as JSON", spellcheck: "false", placeholder: '{"price": 480, "brand": "Acme"}', oninput: () => later() });
  const problem = h("p", { class: "small", role: "status" });
  const picks = h("div", { class: "pick", role: "group", "aria-label": "Recent events" });
  const results = h("div", { class: "stack", "aria-live": "polite" });
  let event = null;
  let asked = new AbortController();
  signal.addEventListener("abort", () => asked.abort());

  main.append(
    h("div", { class: "head" }, h("div", {}, h("h1", {}, "Inspect an event"), h("p", {}, "Paste one, or pick one that came: who matches, who does not, and why."))),
    h("div", { class: "two" },
      h("div", { class: "stack" },
        h("section", { class: "card stack" }, h("h2", {}, "Event"), area, problem),
        h("section", { class: "card" }, h("div", { class: "row spread" }, h("h2", {}, "Recent"), h("button", { type: "button", class: "ghost small", onclick: () => recent() }, "Refresh")), picks)),
      results));

  const later = soon(() => inspect(), 200);

  async function recent() {
    try {
      const { events } = await get("/v1/events", { limit: 50 }, { signal });
      picks.replaceChildren(...events.map((one) =>
        h("button", { type: "button", "aria-pressed": "false", onclick: (click) => pick(one, click.currentTarget) },
          clock(one.time), h("span", { class: "line" }, shortened(asJSON(one.event), 160)), h("span", { class: one.count ? "tag yes" : "tag" }, plural(one.count, "match", "matches")))));
      if (!events.length) picks.replaceChildren(empty("inbox", "No events yet", "Paste one above, or publish some."));
    } catch (error) {
      if (error.name !== "AbortError") picks.replaceChildren(empty("inbox", "Not known now", error.message));
    }
  }

  function pick(one, button) {
    for (const other of picks.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
    area.value = asJSON(one.event, 2);
    inspect();
  }

  async function inspect() {
    asked.abort();
    asked = new AbortController();
    const options = { signal: asked.signal };
    problem.textContent = "";
    area.removeAttribute("aria-invalid");
    if (!area.value.trim()) return results.replaceChildren(h("section", { class: "card" }, empty("eye", "Nothing to look at yet", "Who matches an event shows here.")));
    try {
      event = JSON.parse(area.value);
    } catch (error) {
      area.setAttribute("aria-invalid", "true");
      problem.textContent = `This is not yet JSON: ${error.message}`;
      return;
    }
    try {
      const [matched, missed] = await Promise.all([post("/v1/match", event, options), post("/v1/misses", { event }, options).catch((error) => ({ error }))]);
      results.replaceChildren(matches(matched.subscriptions), whyNot(), nearest(missed));
    } catch (error) {
      if (error.name !== "AbortError") results.replaceChildren(h("section", { class: "card" }, empty("inbox", "It cannot be matched", error.message)));
    }
  }

  const explained = async (id, place) => {
    try {
      place.replaceChildren(tree(await post("/v1/explain", { event, id })));
    } catch (error) {
      place.replaceChildren(h("p", { class: "verdict" }, error.message));
    }
  };

  /** Buttons of ids; the explanation of the one that was pressed shows below. */
  function ids(list, label) {
    const below = h("div", {});
    const buttons = list.slice(0, 200).map((id) =>
      h("button", { type: "button", "aria-pressed": "false", onclick: (click) => press(id, click.currentTarget) }, String(id)));
    const press = (id, button) => {
      const on = button.getAttribute("aria-pressed") === "true";
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button && !on));
      if (on) below.replaceChildren();
      else explained(id, below);
    };
    const left = list.length - buttons.length;
    return h("div", { class: "stack" }, h("div", { class: "ids", role: "group", "aria-label": label }, buttons, left > 0 && h("span", { class: "quiet" }, `and ${plural(left, "more", "more")}`)), below);
  }

  function matches(list) {
    return h("section", { class: "card stack", id: "matches" },
      h("h2", {}, list.length ? `${plural(list.length, "subscription")} ${list.length === 1 ? "matches" : "match"}` : "No subscription matches"),
      list.length ? ids(list, "Matching subscriptions") : h("p", { class: "quiet" }, "Below: who comes closest."));
  }

  function whyNot() {
    const place = h("div", {});
    const options = h("datalist", { id: "known-ids" });
    const known = new Map();
    const input = h("input", { list: "known-ids", id: "why-not", placeholder: "Name of a subscription", autocomplete: "off", "aria-label": "Subscription",
      oninput: soon(async () => {
        const page = await get("/v1/subscriptions", { like: input.value.trim(), limit: 20 }).catch(() => ({ subscriptions: [] }));
        for (const { id } of page.subscriptions) known.set(String(id), id);
        options.replaceChildren(...page.subscriptions.map(({ id }) => h("option", { value: String(id) })));
      }, 150) });
    const ask = async (submit) => {
      submit.preventDefault();
      const text = input.value.trim();
      if (!text) return toast("Which subscription?", { bad: true });
      if (!known.has(text)) await get("/v1/subscriptions", { like: text, limit: 20 }).then((page) => page.subscriptions.forEach(({ id }) => known.set(String(id), id))).catch(() => {});
      await explained(known.get(text) ?? text, place);
    };
    return h("section", { class: "card stack" }, h("h2", {}, "Why, or why not?"),
      h("form", { class: "row", onsubmit: ask }, h("div", { class: "grow" }, input, options), h("button", { type: "submit", class: "ghost" }, "Explain")), place);
  }

  function nearest(found) {
    const head = h("h2", {}, "Nearest misses");
    if (found.error) return h("section", { class: "card stack" }, head, h("p", { class: "quiet" }, found.error.message));
    const list = found.misses.map((miss) =>
      h("li", {}, h("details", {},
        h("summary", {}, `${plural(miss.count, "subscription")} ${miss.count === 1 ? "fails" : "fail"} only on `, h("code", {}, miss.attribute), miss.count > 1 && h("span", { class: "quiet" }, ` · nearest: ${shortened(String(miss.subscriptions[0]), 40)}`)),
        ids(miss.subscriptions, `Fail only on ${miss.attribute}`))));
    return h("section", { class: "card stack", id: "misses" }, head, list.length ? h("ul", { class: "misses" }, list) : h("p", { class: "quiet" }, "None: every other subscription fails on several attributes."));
  }

  keys({ "/": () => area.focus() });
  await recent();
  inspect();
}
