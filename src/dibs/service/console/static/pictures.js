// Small pictures of numbers over time, as SVG. Each has a text for those who do not see it.

import { h, number, plural, shortTime, svg } from "./dom.js";

/** Bars of `count` over fainter bars of `events`, each scaled on its own: [{start, count, events}]. */
export function histogram(bars, words) {
  const width = 520;
  const height = 110;
  const bottom = height - 18;
  const step = width / Math.max(1, bars.length);
  const most = Math.max(1, ...bars.map((bar) => bar.count));
  const mostEvents = Math.max(1, ...bars.map((bar) => bar.events));
  const gap = Math.min(2, step * 0.2);
  const span = bars.length > 1 ? new Date(bars.at(-1).start) - new Date(bars[0].start) : 0;
  const total = bars.reduce((sum, bar) => sum + bar.count, 0);
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${words}: ${number(total)} in all, at most ${number(most)} in one step` });
  bars.forEach((bar, place) => {
    const x = place * step + gap / 2;
    const column = (share, name) =>
      svg("rect", { class: name, x, width: Math.max(0.5, step - gap), y: bottom - share * (bottom - 6), height: share * (bottom - 6), rx: Math.min(2, step / 4) });
    picture.append(column((bar.events / mostEvents) * 0.96, "faint"));
    if (bar.count) picture.append(column(Math.max(0.03, bar.count / most), "bar"));
    picture.append(
      svg("rect", { class: "over", x: place * step, width: step, y: 0, height: bottom, fill: "transparent" },
        svg("title", {}, `${shortTime(bar.start, span)}: ${plural(bar.count, "match", "matches")} of ${plural(bar.events, "event")}`)),
    );
  });
  picture.append(svg("line", { class: "axis", x1: 0, x2: width, y1: bottom + 0.5, y2: bottom + 0.5 }));
  if (bars.length) {
    picture.append(svg("text", { x: 0, y: height - 4 }, shortTime(bars[0].start, span)));
    picture.append(svg("text", { x: width, y: height - 4, "text-anchor": "end" }, shortTime(bars.at(-1).start, span)));
  }
  return picture;
}

/** A line as wide as a word. */
export function sparkline(series, words) {
  const width = 120;
  const height = 28;
  const most = Math.max(1, ...series);
  const total = series.reduce((sum, one) => sum + one, 0);
  const label = `${words}: ${number(total)}`;
  const picture = svg("svg", { class: "chart spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, svg("title", {}, label));
  const x = (place) => (place / Math.max(1, series.length - 1)) * width;
  const y = (value) => height - 2 - (value / most) * (height - 5);
  const points = series.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`);
  if (!total) return filledLine(picture, width, height);
  picture.append(svg("polygon", { class: "area", points: `0,${height} ${points.join(" ")} ${width},${height}` }));
  picture.append(svg("polyline", { class: "line", points: points.join(" "), "vector-effect": "non-scaling-stroke" }));
  return picture;
}

function filledLine(picture, width, height) {
  picture.append(svg("line", { class: "axis", x1: 0, x2: width, y1: height - 2, y2: height - 2, "stroke-dasharray": "2 3" }));
  return picture;
}

/** A curve over time with its highest value: numbers, the last one now. */
export function curve(series, words, { unit = "", seconds = 1 } = {}) {
  const width = 520;
  const height = 120;
  const bottom = height - 18;
  const most = Math.max(1, ...series);
  const x = (place) => (place / Math.max(1, series.length - 1)) * width;
  const y = (value) => bottom - (value / most) * (bottom - 16);
  const points = series.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  const back = series.length * seconds;
  const label = `${words}: now ${number(Math.round(series.at(-1) ?? 0))}, at most ${number(Math.round(most))}`;
  return svg(
    "svg",
    { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    svg("polygon", { class: "area", points: `0,${bottom} ${points} ${width},${bottom}` }),
    svg("polyline", { class: "line", points }),
    svg("line", { class: "axis", x1: 0, x2: width, y1: bottom + 0.5, y2: bottom + 0.5 }),
    svg("text", { x: 0, y: 10 }, `${number(Math.round(most))}${unit}`),
    svg("text", { x: 0, y: height - 4 }, back > 90 ? `${Math.round(back / 60)} min ago` : `${back} s ago`),
    svg("text", { x: width, y: height - 4, "text-anchor": "end" }, "now"),
  );
}

/** A share of a whole as a bar with words. */
export const meter = (name, value, share, note) =>
  h("li", {},
    h("div", { class: "row spread" }, h("span", {}, name), h("span", { class: "quiet" }, value)),
    h("div", { class: "meter" }, h("div", { "width%": Math.min(100, share * 100) })),
    note && h("p", { class: "quiet small" }, note));
