// Writing a subscription: the expression, what is wrong with it, what it would have matched, where matches go.

import { get, ofSubscription, post, put } from "./api.js";
import { newDestination } from "./destination.js";
import { clock, duration, empty, h, number, pairs, percent, plural, rounded, soon, toast } from "./dom.js";
import { Editor } from "./editor.js";
import { histogram } from "./pictures.js";
import { whyLittle } from "./why.js";
import { renamed } from "./words.js";

const UNITS = { seconds: 1, minutes: 60, hours: 3600, days: 86400 };
const MODES = {
  every: "every match",
  transition: "only the first, until it stops matching",
  period: "at most one per period",
  digest: "a digest per period",
};

export async function show(main, { rest, signal, go }) {
  const id = rest.length ? parsedId(rest) : undefined;
  let known = id === undefined ? null : await get(ofSubscription(id));
  const form = new Form(known);
  const preview = h("section", { class: "card stack", "aria-label": "What it would have matched" },
    h("p", { class: "quiet" }, "Looking at recent events…"));
  const problems = h("ul", { class: "problems", id: "problems", "aria-live": "polite" });
  const editor = new Editor({ value: known?.expression ?? "", label: "Expression", oninput: () => check(), onsave: () => save() });
  const button = h("button", { type: "button", id: "save", onclick: () => save() }, known ? "Save changes" : "Save", h("kbd", { class: "only-wide" }, "Ctrl ↵"));
  const title = known ? `Edit ${known.id}` : "Write a subscription";

  main.append(
    h("div", { class: "head" },
      h("div", {}, h("h1", {}, title), h("p", {}, "A condition over the attributes of events. Beside it: what it would have matched of late.")),
      known && h("button", { type: "button", class: "ghost", onclick: () => go("#/write") }, "New")),
    h("div", { class: "two" },
      h("section", { class: "card stack", "aria-label": "Expression" },
        editor.element, editor.hint, problems, form.element,
        h("div", { class: "row" }, button, h("span", { class: "quiet small only-wide" }, h("kbd", {}, "Ctrl Space"), " completes"))),
      preview));

  let asked = new AbortController();
  signal.addEventListener("abort", () => asked.abort());

  async function look() {
    asked.abort();
    asked = new AbortController();
    const expression = editor.value;
    if (!expression.trim()) {
      editor.show([]);
      problems.replaceChildren();
      preview.replaceChildren(...(await recentEvents(asked.signal)));
      return;
    }
    preview.classList.add("busy");
    try {
      const checked = await post("/v1/validate", { expression }, { signal: asked.signal });
      if (editor.value !== expression) return;
      editor.show(checked.problems);
      problems.replaceChildren(...checked.problems.map((problem) => shownProblem(problem, editor)), ...checked.warnings.map(shownWarning));
      if (checked.valid) {
        const found = await post("/v1/backtest", { expression, examples: 6 }, { signal: asked.signal });
        preview.replaceChildren(...wouldMatch(found, checked.attributes ?? [], rename));
      } else {
        preview.replaceChildren(...wrong());
      }
    } catch (error) {
      if (error.name !== "AbortError") preview.replaceChildren(empty("inbox", "Not known now", error.message));
    } finally {
      preview.classList.remove("busy");
    }
  }
  const check = soon(() => look(), 180);

  function rename(from, to) {
    editor.value = renamed(editor.value, from, to);
    editor.area.focus();
    look();
  }

  async function save() {
    const expression = editor.value;
    const given = form.read();
    if (!given) return;
    button.disabled = true;
    try {
      const condition = known ? { "If-Match": `"${known.version}"` } : { "If-None-Match": "*" };
      const saved = await put(ofSubscription(known?.id ?? given.id), { ...given.body, expression }, { headers: condition });
      toast(known ? "Changes saved: they count from the next event on." : `${saved.id} is saved: it counts from the next event on.`);
      if (known) known = saved;
      else go(`#/write/${encodedId(saved.id)}`);
    } catch (error) {
      if (error.problems.length) {
        editor.show(error.problems);
        problems.replaceChildren(...error.problems.map((problem) => shownProblem(problem, editor)));
        editor.area.focus();
      } else if (error.status === 412) {
        toast(known ? "Somebody else has changed it meanwhile: load it again before you save." : "This name is taken already.", { bad: true });
        if (!known) form.id.focus();
      } else toast(error.message, { bad: true });
    } finally {
      button.disabled = false;
    }
  }

  await form.destinations();
  editor.area.focus();
  await look();
}

export const encodedId = (id) => (typeof id === "string" ? `s/${encodeURIComponent(id)}` : `n/${id}`);
const parsedId = ([kind, text]) => (kind === "n" ? BigInt(text) : decodeURIComponent(text ?? ""));

function shownProblem(problem, editor) {
  const words = [h("strong", {}, problem.message), problem.advice && h("span", { class: "advice" }, ` ${problem.advice}`)];
  return h("li", {}, words, " ", h("button", { type: "button", class: "plain small", onclick: () => editor.select(problem) }, `line ${problem.line}, column ${problem.column}`));
}

const shownWarning = (warning) => h("li", { class: "warning" }, h("strong", {}, warning.message), h("span", { class: "advice" }, ` ${warning.advice}`));

// ---- what it would have matched ----

function wouldMatch(found, attributes, rename) {
  const head = h("h2", {}, "In the recent events");
  if (!found.events) {
    return [head, empty("inbox", "No events yet", "When events are published, you see here which of them it would have matched.")];
  }
  const figures = h("div", {},
    h("p", { class: "big", id: "would-match" }, number(found.count)),
    h("p", { class: "quiet" }, `of ${plural(found.events, "event")} · ${percent(found.rate)} · about ${rounded(found.per_hour)} per hour · in ${duration(found.elapsed)}`));
  const list = found.examples.length
    ? [h("h3", {}, "Examples"), h("ul", { class: "examples" }, found.examples.map((one) => h("li", {}, clock(one.time), pairs(one.event, attributes))))]
    : [empty("search", "Nothing would have matched", "None of the recent events satisfies it. It may still be right for events to come.")];
  const why = found.why ? whyLittle(found.why, rename) : [];
  return [head, figures, histogram(found.histogram, "Matches over time"), ...why, ...list];
}

const wrong = () => [h("h2", {}, "In the recent events"), empty("pen", "Not yet an expression", "What is underlined needs a hand; then you see here what it matches.")];

async function recentEvents(signal) {
  const head = h("h2", {}, "Recent events");
  try {
    const { events, kept } = await get("/v1/events", { limit: 6 }, { signal });
    if (!kept) return [head, empty("inbox", "No events yet", "When events are published, you see here what your expression would have matched.")];
    const list = h("ul", { class: "examples" }, events.map((one) => h("li", {}, clock(one.time), pairs(one.event))));
    return [head, h("p", { class: "quiet" }, `${plural(kept, "event")} to try an expression on. These are the latest:`), list];
  } catch (error) {
    return [head, empty("inbox", "Not known now", error.message)];
  }
}

// ---- the fields ----

class Form {
  constructor(known) {
    this.known = known;
    const mode = typeof known?.mode === "string" ? { kind: known.mode } : known?.mode ?? { kind: "every" };
    const unit = Object.keys(UNITS).findLast((name) => mode.seconds && mode.seconds % UNITS[name] === 0) ?? "hours";
    this.id = h("input", { id: "subscription-id", required: true, maxlength: 200, autocomplete: "off", value: known ? String(known.id) : "", disabled: !!known, placeholder: "cheap-phones" });
    this.destination = h("select", { id: "destination", onchange: () => this.chosen() });
    this.kind = h("select", { id: "mode", onchange: () => this.arrange() }, Object.entries(MODES).map(([name, words]) => h("option", { value: name, selected: name === mode.kind }, words)));
    this.key = h("input", { id: "key", value: mode.key ?? "", placeholder: "sku", autocomplete: "off" });
    this.amount = h("input", { type: "number", min: "1", step: "any", id: "amount", value: mode.seconds ? mode.seconds / UNITS[unit] : 1 });
    this.unit = h("select", { "aria-label": "Unit", id: "unit" }, Object.keys(UNITS).map((name) => h("option", { selected: name === unit }, name)));
    this.weight = h("input", { type: "number", step: "any", value: known?.weight ?? 1 });
    this.owner = h("input", { maxlength: 200, value: known?.owner ?? "", autocomplete: "off" });
    this.keyed = h("label", {}, "For each value of (optional)", this.key);
    this.timed = h("label", {}, "Period", h("div", { class: "row" }, h("div", { class: "half" }, this.amount), h("div", { class: "half" }, this.unit)));
    this.modes = h("div", { class: "fields" }, h("label", {}, "Tell", this.kind), this.timed, this.keyed);
    this.element = h("div", { class: "stack" },
      h("div", { class: "fields" }, h("label", {}, "Name", this.id), h("label", {}, "Matches go to", this.destination)),
      this.modes,
      h("details", {}, h("summary", {}, "Weight and owner"), h("div", { class: "fields" }, h("label", {}, "Weight", this.weight), h("label", {}, "Owner", this.owner))));
  }

  async destinations(chosen = this.known?.destination ?? "") {
    const { destinations } = await get("/v1/destinations").catch(() => ({ destinations: [] }));
    const names = destinations.map(({ name }) => name);
    if (chosen && !names.includes(chosen)) names.push(chosen);
    this.destination.replaceChildren(
      h("option", { value: "" }, "nowhere, only counted"),
      ...names.map((name) => h("option", { value: name, selected: name === chosen }, name)),
      h("option", { value: "+" }, "a new destination…"));
    this.before = chosen;
    this.arrange();
  }

  async chosen() {
    if (this.destination.value === "+") {
      const made = await newDestination();
      await this.destinations(made?.name ?? this.before);
    }
    this.before = this.destination.value;
    this.arrange();
  }

  arrange() {
    const kind = this.kind.value;
    this.modes.hidden = !this.destination.value;
    this.timed.hidden = kind !== "period" && kind !== "digest";
    this.keyed.hidden = kind !== "period" && kind !== "transition";
  }

  /** null: something is missing, and has the focus. */
  read() {
    const id = this.id.value.trim();
    if (!id) {
      toast("Give it a name first.", { bad: true });
      this.id.focus();
      return null;
    }
    const mode = { kind: this.kind.value };
    if (!this.timed.hidden) mode.seconds = Number(this.amount.value) * UNITS[this.unit.value];
    if (!this.keyed.hidden && this.key.value.trim()) mode.key = this.key.value.trim();
    const body = { weight: Number(this.weight.value), owner: this.owner.value || null, paused: this.known?.paused ?? false };
    if (this.known?.labels) body.labels = this.known.labels;
    const destination = this.destination.value;
    return { id, body: destination ? { ...body, destination, mode } : body };
  }
}
