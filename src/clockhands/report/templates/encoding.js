"use strict";
// An encoding whose position a reader moves: its row in the heatmap, its similarity to all others, and its hands.
window.views = window.views || {};
window.views.encoding = (place, data) => {
  const { make, draw, write, unpack, makeDials } = window.tools, FULL = 127, count = data.positions;
  const values = unpack(data.values), cosines = unpack(data.similarity);
  const hands = data.hands.map((hand) => ({ period: hand.period, points: unpack(hand.points) }));
  const choices = make("p", place, { className: "choose" });
  const frame = make("label", choices, { textContent: "Position " });
  const slider = make("input", frame, { type: "range", min: 0, max: count - 1, value: 0 });
  slider.setAttribute("aria-label", "Position");
  const said = make("span", choices, { className: "now" });
  said.setAttribute("role", "status");
  const linked = make("div", place, { className: "linked" });
  const left = make("div", linked), right = make("div", linked), below = make("div", linked, { className: "dials", tabIndex: 0 });
  below.setAttribute("role", "group");
  below.setAttribute("aria-label", "Dials of the hands");
  make("h4", left, { textContent: `The encoding: positions downwards, ${data.columns} dimensions across` });
  make("h4", right, { textContent: "Cosine to every other position, rows less their mean" });

  // The heatmap: blue below zero, orange above, as strong as the value.
  const box = make("div", left, { className: "heat" }), canvas = make("canvas", box, { width: data.columns, height: count });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Heatmap of the encoding: ${count} positions downwards, ${data.columns} dimensions across`);
  const pen = canvas.getContext("2d"), picture = pen.createImageData(data.columns, count);
  values.forEach((value, at) => {
    const part = Math.abs(value) / FULL, ink = value < 0 ? [0, 84, 148] : [190, 70, 0];
    for (const channel of [0, 1, 2]) picture.data[4 * at + channel] = 247 + part * (ink[channel] - 247);
    picture.data[4 * at + 3] = 255;
  });
  pen.putImageData(picture, 0, 0);
  const row = make("div", box, { className: "row" });

  // The similarity curve, from -1 to 1.
  const curve = draw("svg", right, { viewBox: "0 0 200 100", class: "curve", role: "img", "aria-label": "Cosine of the encoding of this position to that of every other" });
  for (const [height, text] of [[8, "1"], [50, "0"], [92, "−1"]]) {
    draw("line", curve, { x1: 14, x2: 196, y1: height, y2: height, class: "rule" });
    draw("text", curve, { x: 11, y: height + 3, "text-anchor": "end" }).textContent = text;
  }
  const path = draw("polyline", curve, { class: "line" }), mark = draw("line", curve, { y1: 8, y2: 92, class: "mark" });
  const across = (at) => 14 + (182 * at) / Math.max(1, count - 1);

  const pointers = makeDials(below, hands.map((hand) => hand.period));
  if (hands.length) below.before(make("h4", linked, { textContent: "Its hands, each with the positions of one turn", className: "over" }));

  function show(position) {
    const at = Math.min(count - 1, Math.max(0, position));
    slider.value = at;
    row.style.top = `${(100 * at) / count}%`;
    row.style.height = `${100 / count}%`;
    const line = cosines.slice(at * count, (at + 1) * count);
    path.setAttribute("points", line.map((value, other) => `${across(other).toFixed(1)},${(50 - (42 * value) / FULL).toFixed(1)}`).join(" "));
    mark.setAttribute("x1", across(at));
    mark.setAttribute("x2", across(at));
    hands.forEach((hand, index) => {
      pointers[index].setAttribute("x2", (9.5 * hand.points[2 * at]) / FULL);
      pointers[index].setAttribute("y2", (-9.5 * hand.points[2 * at + 1]) / FULL);
    });
    const next = at + 1 < count ? `; cosine to the next position ${write(line[at + 1] / FULL, 2)}` : "";
    said.textContent = `${write(data.first + at, 0)} of ${write(data.first, 0)} to ${write(data.first + count - 1, 0)}${next}`;
    place.dataset.position = data.first + at;
  }

  const drag = (element, find) => {
    for (const type of ["pointerdown", "pointermove"])
      element.addEventListener(type, (event) => {
        if (type === "pointerdown" || event.buttons || event.pointerType === "mouse") show(find(event, element.getBoundingClientRect()));
      });
  };
  drag(box, (event, area) => Math.floor((count * (event.clientY - area.y)) / area.height));
  drag(curve, (event, area) => Math.round(((((event.clientX - area.x) / area.width) * 200 - 14) / 182) * (count - 1)));
  slider.addEventListener("input", () => show(+slider.value));
  show(0);
};
