"use strict";
// A head whose distance a reader moves: its logit by distance alone, and the pairs of channels that turn with it.
window.views = window.views || {};
window.views.kernel = (place, data) => {
  const { make, draw, write, unpack, makeDials } = window.tools, FORBIDDEN = -32768, LEFT = 30, RIGHT = 196;
  const state = { head: data.strongest, distance: Math.max(data.first, Math.min(data.last, data.last > 0 ? 1 : -1)) };
  const choices = make("p", place, { className: "choose" });

  function choose(label, change) {
    const frame = make("label", choices, { textContent: label + " " }), select = make("select", frame);
    select.addEventListener("change", () => { change(+select.value); show(); });
    return select;
  }

  const layers = choose("Layer", (layer) => find(layer, current().head));
  const heads = choose("Head", (head) => find(current().layer, head));
  const frame = make("label", choices, { textContent: "Distance " });
  const slider = make("input", frame, { type: "range", min: data.first, max: data.last });
  slider.setAttribute("aria-label", "Distance, key position less query position, in tokens");
  const said = make("p", place, { className: "now" });
  said.setAttribute("role", "status");
  const linked = make("div", place, { className: "linked" }), box = make("div", linked, { className: "over" });
  const title = make("h4", box), curve = draw("svg", box, { viewBox: "0 0 200 62", class: "curve wide", "aria-hidden": "true" });
  const over = make("h4", linked, { className: "over" }), dials = make("div", linked, { className: "dials", tabIndex: 0 });
  dials.setAttribute("role", "group");
  dials.setAttribute("aria-label", "Dials of the pairs of channels that turn");
  let hands = [], shown = null;

  const current = () => data.heads[state.head];

  // Choose the head of this layer and number, or the first of the layer where the page has no such head.
  function find(layer, head) {
    const exact = data.heads.findIndex((each) => each.layer === layer && each.head === head);
    const first = data.heads.findIndex((each) => each.layer === layer);
    state.head = exact >= 0 ? exact : Math.max(first, 0);
  }

  function fill(select, values, chosen) {
    select.replaceChildren(...values.map((value) => Object.assign(document.createElement("option"), { value, textContent: value, selected: value === chosen })));
    select.parentNode.hidden = values.length < 2;
  }

  const across = (distance) => LEFT + ((RIGHT - LEFT) * (distance - data.first)) / Math.max(1, data.last - data.first);

  function list(numbers) { // 1, 2, 3, 5 as "1 to 3, 5"
    const runs = [];
    for (const number of numbers) {
      const run = runs[runs.length - 1];
      if (run && run[1] === number - 1) run[1] = number;
      else runs.push([number, number]);
    }
    return runs.map(([low, high]) => (low === high ? low : high === low + 1 ? `${low}, ${high}` : `${low} to ${high}`)).join(", ");
  }

  // Everything that a head has and the distance does not change.
  function drawHead() {
    const head = current();
    fill(layers, [...new Set(data.heads.map((each) => each.layer))], head.layer);
    fill(heads, data.heads.filter((each) => each.layer === head.layer).map((each) => each.head), head.head);
    const logits = unpack(head.numbers, 2).map((value) => (value === FORBIDDEN ? null : value * head.scale));
    const known = logits.filter((value) => value !== null), low = Math.min(0, ...known), high = Math.max(0, ...known);
    const down = (value) => 54 - (46 * (value - low)) / (high - low || 1);
    const left = data.left_out ? ` ${data.left_out} heads in which it does less are not on this page.` : "";
    title.textContent = `Layer ${head.layer}, head ${head.head}: the logit by distance alone, against that at distance 0.${left}`;
    curve.replaceChildren();
    const digits = high - low < 0.1 ? 3 : 2;
    for (const value of new Set([low, 0, high])) {
      if (value !== 0 && Math.abs(down(value) - down(0)) < 6) continue;
      draw("line", curve, { x1: LEFT, x2: RIGHT, y1: down(value), y2: down(value), class: "rule" });
      draw("text", curve, { x: LEFT - 2, y: down(value) + 1.6, "text-anchor": "end" }).textContent = write(value, value ? digits : 0);
    }
    for (const distance of new Set([data.first, 0, data.last]))
      if (distance >= data.first && distance <= data.last)
        draw("text", curve, { x: across(distance), y: 61, "text-anchor": distance === data.last ? "end" : "middle" }).textContent = write(distance, 0);
    let run = [];
    const finish = () => { if (run.length) draw("polyline", curve, { points: run.join(" "), class: "line" }); run = []; };
    logits.forEach((value, at) => (value === null ? finish() : run.push(`${across(data.first + at).toFixed(1)},${down(value).toFixed(1)}`)));
    finish();
    const mark = draw("line", curve, { y1: 6, y2: 56, class: "mark" });
    const kind = data.kinds.find((each) => each.layers.includes(head.layer));
    over.hidden = dials.hidden = !kind;
    if (kind) {
      hands = makeDials((dials.replaceChildren(), dials), kind.frequencies.map((frequency) => (2 * Math.PI) / frequency));
      unpack(head.weights).forEach((weight, at) => hands[at].style.setProperty("stroke-width", (0.7 + (2.3 * weight) / 127).toFixed(2)));
      const whose = kind.layers.length === 1 ? `Layer ${kind.layers[0]} rotates` : `Layers ${list(kind.layers)} rotate alike,`;
      over.textContent = `${whose} ${kind.frequencies.length} pairs of channels. Below each dial: the tokens of one turn. The thicker a hand, the more its pair can add to the logit of this head.`;
    }
    return { index: state.head, logits, mark, frequencies: kind ? kind.frequencies : [] };
  }

  function show() {
    if (!shown || shown.index !== state.head) shown = drawHead();
    slider.value = state.distance;
    const value = shown.logits[state.distance - data.first], size = Math.abs(state.distance);
    const where = !size ? "The key is the query's own token" : `The key stands ${size} token${size === 1 ? "" : "s"} ${state.distance < 0 ? "before" : "after"} the query`;
    said.textContent = `${where}: ` + (value === null ? "the mask forbids that." : `logit ${write(value, 3)} against distance 0.`);
    shown.mark.setAttribute("x1", across(state.distance));
    shown.mark.setAttribute("x2", across(state.distance));
    shown.frequencies.forEach((frequency, at) => {
      hands[at].setAttribute("x2", (9.5 * Math.sin(frequency * state.distance)).toFixed(2));
      hands[at].setAttribute("y2", (-9.5 * Math.cos(frequency * state.distance)).toFixed(2));
    });
    place.dataset.distance = state.distance;
  }

  for (const type of ["pointerdown", "pointermove"])
    curve.addEventListener(type, (event) => {
      if (type === "pointermove" && !event.buttons && event.pointerType !== "mouse") return;
      const area = curve.getBoundingClientRect(), at = ((event.clientX - area.x) / area.width) * 200;
      const distance = Math.round(data.first + ((at - LEFT) / (RIGHT - LEFT)) * (data.last - data.first));
      state.distance = Math.min(data.last, Math.max(data.first, distance));
      show();
    });
  slider.addEventListener("input", () => { state.distance = +slider.value; show(); });
  document.addEventListener("head", (event) => {
    const [layer, head] = event.detail.match(/\d+/g).map(Number);
    find(layer, head);
    show();
  });
  show();
};
