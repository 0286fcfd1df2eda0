// An explanation as a tree with ticks and crosses.

import { h } from "./dom.js";

const SIGNS = [
  [true, "yes", "✓", "holds"],
  [false, "no", "✗", "does not hold"],
  [null, "unknown", "?", "unknown"],
];

export function tree(explanation) {
  return h("div", { class: "stack" },
    h("p", { class: explanation.matched ? "verdict yes" : "verdict" }, explanation.headline),
    h("ul", { class: "tree", "aria-label": "Explanation" }, part(explanation.tree)));
}

function part(node) {
  const [, name, sign, words] = SIGNS.find(([truth]) => truth === (node.truth ?? null));
  const text = node.operator ? h("strong", {}, node.operator) : h("code", {}, node.text);
  const line = h("div", { class: `part ${name}` },
    h("span", { class: "sign", role: "img", "aria-label": words }, sign),
    h("span", {}, text, node.operator && node.text && h("code", {}, ` ${node.text}`), node.reason && h("span", { class: "reason" }, node.reason)));
  return h("li", {}, line, node.parts && h("ul", {}, node.parts.map(part)));
}
