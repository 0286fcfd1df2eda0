// Why an expression matches little: names that no event has, comparisons across kinds, and how many events each of its
// conditions leaves. The server finds it; here it is drawn.

import { h, number, percent, plural } from "./dom.js";
import { meter } from "./pictures.js";

/** use(from, to): what happens when the name that was probably meant is chosen. */
export function whyLittle(why, use) {
  const notes = [
    ...why.unseen.map((one) => unseen(one, use)),
    ...why.across.map((one) =>
      h("li", {}, h("code", {}, one.condition), ` asks for ${one.asked}, but `, h("code", {}, one.attribute), ` is ${one.found} in ${percent(one.share)} of events.`)),
  ];
  const left = why.steps.length > 1 ? conditions(why) : [];
  if (!notes.length && !left.length) return [];
  return [h("section", { class: "stack", id: "why" }, h("h3", {}, "Why so little?"), notes.length > 0 && h("ul", { class: "notes" }, notes), left)];
}

function unseen({ attribute, suggestion, share }, use) {
  if (!suggestion) return h("li", {}, h("code", {}, attribute), ": never seen.");
  return h("li", {}, h("code", {}, attribute), ": never seen. Did you mean ",
    h("button", { type: "button", class: "plain mono", onclick: () => use(attribute, suggestion) }, suggestion), `, in ${percent(share)} of events?`);
}

function conditions({ steps, events, joined, more }) {
  const all = joined === "AND";
  const numbers = [events, ...steps.map((step) => step.left)].map(number).join(" → ");
  const row = (step) => {
    const count = all ? step.left : step.alone;
    return meter(h("code", {}, step.condition), all ? `${number(count)} left` : number(count), events ? count / events : 0, all && `${plural(step.alone, "event")} by itself`);
  };
  return [
    h("p", { class: "quiet", id: "left" }, all ? `Events that its conditions leave: ${numbers}` : `Events of each alternative, of ${number(events)}:`),
    h("ul", { class: "plan" }, steps.map(row), more > 0 && h("li", { class: "quiet" }, `and ${plural(more, "condition")} more`)),
  ];
}
