// Destinations: how each does, what could not be delivered, sending it again.

import { get, post, put, remove } from "./api.js";
import { newDestination } from "./destination.js";
import { ago, asJSON, dialog, empty, h, number, plural, since, toast } from "./dom.js";

export async function show(main, { signal }) {
  const list = h("div", { class: "stack" });
  const letters = h("section", { class: "card stack", id: "dead-letters" });
  main.append(
    h("div", { class: "head" }, h("div", {}, h("h1", {}, "Deliveries"), h("p", {}, "Where matches go, and what did not get there.")),
      h("button", { type: "button", onclick: async () => (await newDestination()) && load() }, "New destination")),
    h("div", { class: "stack" }, list, letters));

  async function load() {
    try {
      const [{ destinations }, { dead }] = await Promise.all([get("/v1/destinations", {}, { signal }), get("/v1/deliveries/dead", { limit: 50 }, { signal })]);
      list.replaceChildren(...destinations.map(card));
      if (!destinations.length) list.replaceChildren(h("section", { class: "card" }, empty("send", "No destinations yet", "A webhook, a stream or a Kafka topic. A subscription that names one has its matches sent there.")));
      const total = Math.max(dead.length, destinations.reduce((sum, one) => sum + one.dead, 0));
      letters.hidden = !dead.length;
      const shown = [
        h("div", { class: "row spread" }, h("h2", {}, "Dead letters"), h("button", { type: "button", class: "ghost small", onclick: resendAll }, total > 1 ? `Send all ${number(total)} again` : "Send all again")),
        total > dead.length && h("p", { class: "quiet" }, `The first ${number(dead.length)} of ${number(total)}.`),
        h("ul", { class: "misses" }, dead.map(letter)),
      ];
      letters.replaceChildren(...shown.filter(Boolean));
    } catch (error) {
      if (error.name !== "AbortError") list.replaceChildren(h("section", { class: "card" }, empty("send", "Not known now", error.message)));
    }
  }

  function card(one) {
    const failing = one.failing_since;
    const tag = one.paused ? h("span", { class: "tag" }, "paused") : failing ? h("span", { class: "tag no" }, `failing for ${since(failing)}`) : one.kind === "stream" ? h("span", { class: "tag yes" }, "open") : one.last_success ? h("span", { class: "tag yes" }, `delivered ${ago(one.last_success)}`) : h("span", { class: "tag" }, "nothing sent yet");
    const figure = (value, words) => h("div", { class: "figure" }, h("b", {}, number(value)), h("span", {}, words));
    return h("section", { class: "card stack", "data-destination": one.name },
      h("div", { class: "row spread" },
        h("div", { class: "row" }, h("h2", {}, one.name), h("span", { class: "tag" }, one.kind), tag),
        h("div", { class: "row" },
          h("button", { type: "button", class: "ghost small", onclick: () => change(one, { paused: !one.paused }) }, one.paused ? "Resume" : "Pause"),
          h("button", { type: "button", class: "ghost small bad", onclick: () => erase(one) }, "Remove"))),
      one.target && h("p", { class: "mono quiet" }, one.target),
      h("div", { class: "figures" }, one.kind === "stream" ? figure(one.kept, "kept") : figure(one.waiting, "waiting"), one.kind !== "stream" && figure(one.delivered, "delivered"), figure(one.suppressed, "held back by modes"), figure(one.dead, "dead letters"), (one.refused + one.dropped > 0) && figure(one.refused + one.dropped, "refused, being full")),
      one.last_error && h("p", { class: "verdict" }, one.last_error, one.retry_at && h("span", { class: "quiet" }, ` · next attempt at ${new Date(one.retry_at).toLocaleTimeString("en-GB")}`)));
  }

  function letter(one) {
    return h("li", {}, h("div", { class: "row spread" },
      h("div", {}, h("span", { class: "tag no" }, one.destination), " ", h("span", {}, one.reason), h("p", { class: "quiet small" }, `${plural(one.attempts, "attempt")}, given up ${ago(one.died)} · ${one.id}`)),
      h("button", { type: "button", class: "ghost small", onclick: () => resend(one) }, "Send again")),
      h("details", {}, h("summary", {}, "Body"), h("pre", { class: "secret" }, asJSON(one.body, 2))));
  }

  const resend = (one) => sent(async () => (await post(`/v1/deliveries/dead/${encodeURIComponent(one.id)}/resend`)) && 1);
  const resendAll = () => sent(async () => (await post("/v1/deliveries/dead/resend")).count);

  async function sent(send) {
    try {
      toast(`${plural(await send(), "delivery", "deliveries")} will be sent again.`);
    } catch (error) {
      toast(error.message, { bad: true });
    }
    await load();
  }

  async function change(one, changes) {
    const { kind, target, limit, when_full, paused } = { ...one, ...changes };
    try {
      await put(`/v1/destinations/${encodeURIComponent(one.name)}`, { kind, limit, when_full, paused, ...(target ? { target } : {}) });
    } catch (error) {
      toast(error.message, { bad: true });
    }
    await load();
  }

  async function erase(one) {
    const sure = await dialog(`Remove ${one.name}`, (close) =>
      h("form", { method: "dialog" }, h("h2", {}, `Remove ${one.name}?`),
        h("p", { class: "quiet" }, `${plural(one.waiting + one.kept + one.dead, "delivery", "deliveries")} that it still has go with it, and subscriptions that name it are told nothing more. This cannot be undone.`),
        h("div", { class: "row" }, h("button", { type: "button", onclick: () => close(true) }, "Remove"), h("button", { type: "button", class: "ghost", autofocus: true, onclick: () => close(false) }, "Keep it"))));
    if (!sure) return;
    try {
      await remove(`/v1/destinations/${encodeURIComponent(one.name)}?force=true`);
      toast(`${one.name} is gone.`);
    } catch (error) {
      toast(error.message, { bad: true });
    }
    await load();
  }

  const timer = setInterval(() => !document.querySelector("dialog, details[open]") && load(), 3000);
  signal.addEventListener("abort", () => clearInterval(timer));
  await load();
}
