// Small pictures of numbers over time, as SVG. Each has a text for those who do not see it. The words beside a picture
// are no part of it, so that they keep their size however wide it is.

import { h, number, plural, shortTime, svg } from "./dom.js";

const WIDTH = 500;
const HEIGHT = 100;

const canvas = (label, ...shapes) =>
  svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, shapes);

const framed = (picture, above, left, right) =>
  h("figure", { class: "picture" }, above && h("span", { class: "most" }, above), picture, h("div", { class: "ends" }, h("span", {}, left), h("span", {}, right)));

/** Bars of `count` before fainter bars of `events`, both on one scale: [{start, count, events}]. What is there at all is
 *  at least a line. */
export function histogram(bars, words) {
  const step = WIDTH / Math.max(1, bars.length);
  const gap = Math.min(3, step * 0.2);
  const most = Math.max(0, ...bars.map((bar) => bar.count));
  const scale = Math.max(1, ...bars.map((bar) => bar.events));
  const span = bars.length > 1 ? new Date(bars.at(-1).start) - new Date(bars[0].start) : 0;
  const total = bars.reduce((sum, bar) => sum + bar.count, 0);
  const column = (name, place, share) =>
    svg("rect", { class: name, x: place * step + gap / 2, width: Math.max(0.5, step - gap), y: HEIGHT * (1 - share), height: HEIGHT * share });
  const shapes = bars.map((bar, place) => [
    bar.events > 0 && column("faint", place, Math.max(0.015, bar.events / scale)),
    bar.count > 0 && column("bar", place, Math.max(0.015, bar.count / scale)),
    svg("rect", { class: "over", x: place * step, width: step, y: 0, height: HEIGHT, fill: "transparent" },
      svg("title", {}, `${shortTime(bar.start, span)}: ${plural(bar.count, "match", "matches")} of ${plural(bar.events, "event")}`)),
  ]);
  const label = `${words}: ${number(total)} in all, at most ${number(most)} in one step, of at most ${plural(scale, "event")}`;
  const at = (bar) => (bar ? shortTime(bar.start, span) : "");
  const above = h("span", { class: "key" }, h("i", { class: "of-matches" }), `matches, at most ${number(most)}`, h("i", { class: "of-events" }), `events, at most ${number(scale)}`);
  return framed(canvas(label, shapes), above, at(bars[0]), at(bars.at(-1)));
}

/** A curve over time with its highest value: numbers, the last one now, `seconds` apart. */
export function curve(series, words, seconds) {
  const most = Math.max(1, ...series);
  const points = line(series.length === 1 ? [series[0], series[0]] : series, most, WIDTH, HEIGHT, 0);
  const back = series.length * seconds;
  const label = `${words}: now ${number(Math.round(series.at(-1) ?? 0))}, at most ${number(Math.round(most))}`;
  const picture = canvas(label,
    svg("polygon", { class: "area", points: `0,${HEIGHT} ${points} ${WIDTH},${HEIGHT}` }),
    svg("polyline", { class: "line", points, "vector-effect": "non-scaling-stroke" }));
  return framed(picture, `at most ${number(Math.round(most))}`, back > 90 ? `${Math.round(back / 60)} min ago` : `${back} s ago`, "now");
}

/** A line as wide as a word. */
export function sparkline(series, words) {
  const width = 120;
  const height = 28;
  const total = series.reduce((sum, one) => sum + one, 0);
  const label = `${words}: ${number(total)}`;
  const picture = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, svg("title", {}, label));
  if (!total) {
    picture.append(svg("line", { class: "axis", x1: 0, x2: width, y1: height - 2, y2: height - 2, "stroke-dasharray": "2 3" }));
    return picture;
  }
  const points = line(series, Math.max(...series), width, height, 2);
  picture.append(svg("polygon", { class: "area", points: `0,${height} ${points} ${width},${height}` }));
  picture.append(svg("polyline", { class: "line", points, "vector-effect": "non-scaling-stroke" }));
  return picture;
}

function line(series, most, width, height, edge) {
  const x = (place) => (place / Math.max(1, series.length - 1)) * width;
  const y = (value) => height - edge - (value / most) * (height - 2 * edge - 1);
  return series.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
}

/** A share of a whole as a bar with words. */
export const meter = (name, value, share, note) =>
  h("li", {},
    h("div", { class: "row spread" }, h("span", {}, name), h("span", { class: "quiet small" }, value)),
    h("div", { class: "meter" }, share > 0 && h("div", { "width%": Math.min(100, share * 100) })),
    note && h("p", { class: "quiet small" }, note));
