// The expression editor: a textarea (so that keyboards, phones and screen readers know what it is) over its own text in
// colours, with problems underlined where they are and completions at the caret.

import { get } from "./api.js";
import { h, number, soon } from "./dom.js";
import { calledAt, literal, OFFERED, tokens, wanted, written } from "./words.js";

const MOST = 12; // completions

let known = null; // functions: {name, call, about}, as the server has them
const functions = () => (known ??= get("/console/functions.json").catch(() => ((known = null), [])));
const beginning = async (typed) =>
  (await functions())
    .filter(({ name }) => typed && name.startsWith(typed.toUpperCase()))
    .map(({ name, call, about }) => ({ text: `${name.toLowerCase()}(`, note: call.slice(name.length), about }));

export class Editor {
  constructor({ value = "", oninput, onsave, label }) {
    this.oninput = oninput;
    this.onsave = onsave;
    this.problems = [];
    this.offered = [];
    this.chosen = 0;
    this.place = null;
    this.paint = h("pre", { "aria-hidden": "true" });
    this.list = h("ul", { class: "completions", role: "listbox", id: "completions", "aria-label": "Completions", hidden: true });
    this.area = h("textarea", {
      spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-label": label, value,
      role: "combobox", "aria-autocomplete": "list", "aria-controls": "completions", "aria-expanded": "false",
      "aria-describedby": "problems", placeholder: "price <= 500 AND brand = 'Acme'",
      oninput: () => this.changed(), onkeydown: (event) => this.pressed(event), onclick: () => (this.close(), this.tell()), onblur: () => this.close(),
    });
    this.element = h("div", { class: "editor" }, this.paint, this.area, this.list);
    this.hint = h("p", { class: "hint", id: "called", "aria-live": "polite" });
    this.look = soon(() => (this.tell(), this.complete(false)), 120);
    this.draw();
  }

  get value() {
    return this.area.value;
  }

  set value(text) {
    this.area.value = text;
    this.draw();
  }

  changed() {
    this.draw();
    this.oninput();
    this.look();
  }

  /** Problems of the text as it is now: places are counted in characters, as the server does. */
  show(problems) {
    this.problems = problems.map((problem) => ({ start: inUnits(this.value, problem.start), end: inUnits(this.value, problem.end) }));
    this.element.classList.toggle("wrong", problems.length > 0);
    this.area.setAttribute("aria-invalid", String(problems.length > 0));
    this.draw();
  }

  select(problem) {
    this.area.focus();
    this.area.setSelectionRange(inUnits(this.value, problem.start), inUnits(this.value, problem.end));
  }

  draw() {
    const text = this.value;
    const marks = this.problems.map(({ start, end }) => [Math.min(start, text.length), Math.max(end, start + 1)]);
    const cuts = new Set([...marks.flat(), text.length]);
    const pieces = [];
    for (const token of [...tokens(text), { kind: "space", text: " ", start: text.length, end: text.length + 1 }]) {
      let from = token.start;
      for (const cut of [...cuts].filter((one) => one > token.start && one < token.end).sort((a, b) => a - b).concat(token.end)) {
        const part = token.text.slice(from - token.start, cut - token.start);
        const bad = marks.some(([start, end]) => start < cut && from < end);
        pieces.push(h(bad ? "mark" : "span", { class: [bad && "bad-place", `t-${token.kind}`].filter(Boolean).join(" ") }, part));
        from = cut;
      }
    }
    this.paint.replaceChildren(...pieces);
  }

  /** How the function is called whose parentheses the caret is in. */
  async tell() {
    const name = calledAt(this.value, this.area.selectionStart);
    const found = name ? (await functions()).find((one) => one.name === name) : null;
    this.hint.replaceChildren(...(found ? [h("code", {}, found.call), ` ${found.about}`] : []));
  }

  // ---- completion ----

  async complete(forced) {
    const { selectionStart: caret, selectionEnd: end } = this.area;
    if (document.activeElement !== this.area || caret !== end) return;
    const text = this.value;
    const place = wanted(text, caret);
    if (!place || (!forced && !place.typed && place.of !== "value")) return this.close();
    const found = await this.found(place).catch(() => []);
    if (this.value !== text || this.area.selectionStart !== caret || document.activeElement !== this.area) return;
    const useful = found.filter((one) => one.text !== place.typed);
    if (!useful.length) return this.close();
    this.place = place;
    this.offered = useful.slice(0, MOST);
    this.chosen = 0;
    this.open();
  }

  async found(place) {
    if (place.of === "value") {
      const answer = await get("/v1/attributes", { attribute: place.attribute, values: 50 });
      const values = answer.attributes[0]?.values ?? [];
      const typed = place.typed.replace(/^'/, "").toLowerCase();
      const event = place.document ? [{ text: written(place.attribute), note: "of the event" }] : [];
      return event.filter(({ text }) => text.toLowerCase().startsWith(typed)).concat(values
        .filter(({ value }) => value !== null && typeof value !== "object" && (!place.typed.startsWith("'") || typeof value === "string"))
        .filter(({ value }) => String(value).toLowerCase().startsWith(typed))
        .map(({ value, count }) => ({ text: literal(value), note: `${number(count)}×` }))).concat(await beginning(typed));
    }
    const typed = place.typed.replace(/^`/, "");
    const joints = OFFERED.filter((word) => typed && word.startsWith(typed.toUpperCase())).map((word) => ({ text: word, note: "" }));
    if (place.of === "joint") {
      if (typed) return joints;
      return (place.after === "name" ? ["=", "<>", "<=", ">=", "IN (", "LIKE '", "IS NULL"] : ["AND", "OR"]).map((text) => ({ text, note: "" }));
    }
    const answer = await get("/v1/attributes", { limit: 1000, values: 0 });
    const low = typed.toLowerCase();
    const begins = (name) => name.toLowerCase().startsWith(low);
    return answer.attributes
      .filter(({ name }) => begins(name) || (low.length > 1 && name.toLowerCase().includes(low)))
      .sort((a, b) => begins(b.name) - begins(a.name))
      .map(({ name, events }) => ({ text: written(name), note: answer.events ? `${Math.round((100 * events) / answer.events)}% of events` : "" }))
      .concat(joints, await beginning(typed));
  }

  open() {
    this.list.replaceChildren(
      ...this.offered.map((one, place) =>
        h("li", { role: "option", id: `completion-${place}`, "aria-selected": String(place === this.chosen), title: one.about ?? "", onmousedown: (event) => (event.preventDefault(), this.take(place)) },
          h("span", {}, one.text), h("span", {}, one.note))),
    );
    this.list.hidden = false;
    this.area.setAttribute("aria-expanded", "true");
    this.area.setAttribute("aria-activedescendant", `completion-${this.chosen}`);
    const { left, bottom } = this.caretBox(this.place.start);
    const frame = this.element.getBoundingClientRect();
    const room = Math.max(0, frame.width - this.list.offsetWidth - 8);
    this.list.style.left = `${Math.max(0, Math.min(left - frame.left, room))}px`;
    this.list.style.top = `${bottom - frame.top + 4}px`;
  }

  caretBox(offset) {
    let left = offset;
    for (const piece of this.paint.children) {
      const { length } = piece.firstChild;
      if (left < length) {
        const range = document.createRange();
        range.setStart(piece.firstChild, left);
        range.setEnd(piece.firstChild, left + 1);
        return range.getBoundingClientRect();
      }
      left -= length;
    }
    return this.paint.lastChild.getBoundingClientRect();
  }

  close() {
    this.look.stop();
    this.list.hidden = true;
    this.area.setAttribute("aria-expanded", "false");
    this.area.removeAttribute("aria-activedescendant");
  }

  take(place) {
    const { text } = this.offered[place];
    this.area.setSelectionRange(this.place.start, this.place.end);
    const spaced = this.value[this.place.end] === " " || text.endsWith("(") || text === "LIKE '";
    const inserted = spaced ? text : `${text} `;
    // execCommand keeps the browser's undo; where it is gone, the text is set.
    if (!document.execCommand?.("insertText", false, inserted)) this.area.setRangeText(inserted, this.place.start, this.place.end, "end");
    this.close();
    this.changed();
  }

  pressed(event) {
    const isOpen = !this.list.hidden;
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
      event.preventDefault();
      this.close();
      this.onsave();
    } else if (event.ctrlKey && event.key === " ") {
      event.preventDefault();
      this.complete(true);
    } else if (isOpen && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : this.offered.length - 1;
      this.chosen = (this.chosen + step) % this.offered.length;
      [...this.list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === this.chosen)));
      this.list.children[this.chosen].scrollIntoView({ block: "nearest" });
      this.area.setAttribute("aria-activedescendant", `completion-${this.chosen}`);
    } else if (isOpen && (event.key === "Enter" || event.key === "Tab")) {
      event.preventDefault();
      this.take(this.chosen);
    } else if (isOpen && event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      this.close();
    } else if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) {
      this.close();
      setTimeout(() => this.tell());
    }
  }
}

/** A place in characters as a place in a JavaScript string. */
function inUnits(text, place) {
  let units = 0;
  for (const character of text) {
    if (place-- <= 0) break;
    units += character.length;
  }
  return units;
}
