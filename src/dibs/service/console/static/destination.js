// A dialog that makes a destination, and shows its secret once.

import { put } from "./api.js";
import { dialog, h, toast } from "./dom.js";

const KINDS = { webhook: "Webhook: a signed POST for each delivery", stream: "Stream: clients listen to it", kafka: "Kafka topic" };
const HINTS = { webhook: "https://example.org/hook", kafka: "kafka://broker:9092/topic" };

export function newDestination() {
  return dialog("New destination", (close) => {
    const name = h("input", { required: true, id: "destination-name", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*", autocomplete: "off", placeholder: "ops", maxlength: 100 });
    const kind = h("select", { id: "destination-kind", onchange: () => arrange() }, Object.entries(KINDS).map(([value, words]) => h("option", { value }, words)));
    const target = h("input", { id: "destination-target", autocomplete: "off", spellcheck: "false" });
    const address = h("label", {}, "Address", target);
    const problem = h("p", { class: "small", role: "alert" });
    const arrange = () => {
      address.hidden = kind.value === "stream";
      target.required = !address.hidden;
      target.placeholder = HINTS[kind.value] ?? "";
    };
    arrange();
    async function make(event) {
      event.preventDefault();
      try {
        const body = { kind: kind.value, ...(kind.value === "stream" ? {} : { target: target.value.trim() }) };
        const made = await put(`/v1/destinations/${encodeURIComponent(name.value)}`, body, { headers: { "If-None-Match": "*" } });
        close(made);
        if (made.secret && made.kind === "webhook") await shownSecret(made);
        else toast(`${made.name} is there.`);
      } catch (error) {
        problem.textContent = error.message;
        problem.className = "small verdict";
      }
    }
    return h("form", { onsubmit: make },
      h("h2", {}, "New destination"),
      h("label", {}, "Name", name), h("label", {}, "Kind", kind), address, problem,
      h("div", { class: "row" }, h("button", { type: "submit" }, "Add"), h("button", { type: "button", class: "ghost", onclick: () => close() }, "Cancel")));
  });
}

const shownSecret = (made) =>
  dialog("Secret", (close) =>
    h("form", { method: "dialog", onsubmit: () => close() },
      h("h2", {}, `The secret of ${made.name}`),
      h("p", { class: "quiet" }, "Deliveries are signed with it (headers webhook-id, webhook-timestamp and webhook-signature). It is shown this once."),
      h("p", { class: "secret" }, made.secret),
      h("div", { class: "row" }, h("button", { type: "submit", autofocus: true }, "I have kept it"))));
