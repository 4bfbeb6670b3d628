"use strict";
// What the views below figures share: elements, numbers as text, packed numbers, and the dials of hands.
window.tools = {
  make(tag, parent, options = {}) {
    const element = Object.assign(document.createElement(tag), options);
    parent.append(element);
    return element;
  },

  draw(tag, parent, attributes) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    parent.append(element);
    return element;
  },

  write: (value, digits = 2) =>
    value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−"),

  // Signed numbers of 8 or 16 bits from base64.
  unpack(text, bytes = 1) {
    const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)), view = new DataView(raw.buffer);
    return Array.from({ length: raw.length / bytes }, (_, at) => bytes === 1 ? view.getInt8(at) : view.getInt16(2 * at, true));
  },

  // One dial a hand: the rim, the hand, and how many tokens it takes for one turn. Returns the hands.
  makeDials(place, periods) {
    const { make, draw, write } = window.tools;
    return periods.map((period) => {
      const dial = make("div", place), face = draw("svg", dial, { viewBox: "-11 -11 22 22", "aria-hidden": "true" });
      draw("circle", face, { r: 10, class: "rim" });
      draw("line", face, { x1: 0, y1: -10, x2: 0, y2: -8.5, class: "rim" });
      const hand = draw("line", face, { x1: 0, y1: 0, x2: 0, y2: -9.5, class: "hand" });
      const size = period >= 1e5 ? period.toExponential(1).replace("e+", " × 10^") : write(period, period < 100 ? 1 : 0);
      make("span", dial, { textContent: Number.isFinite(period) ? size.replace(/\^(\d+)/, (_, power) => power.replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])) : "stands" });
      return hand;
    });
  },
};
