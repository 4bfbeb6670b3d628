"use strict";
// A head of a sentence in full: choose sentence, layer, head and what is shown; point at a cell for its numbers.
window.views = window.views || {};
window.views.attention = (place, data) => {
  const { make, write, unpack: unpackNumbers } = window.tools, FULL = 32767;
  const state = { sentence: 0, head: 0, map: "attention", cell: null };

  // The numbers of a head as one map each, in the order in which they were packed.
  function unpack(sentence, head) {
    const packed = unpackNumbers(head.numbers, 2), size = sentence.tokens.length ** 2, maps = {};
    const names = ["attention", ...(sentence.swapped ? ["after the swap"] : []), ...sentence.terms];
    names.forEach((name, index) => {
      const scale = sentence.terms.includes(name) ? head.scale : 1 / FULL;
      maps[name] = Float64Array.from({ length: size }, (_, at) => packed[index * size + at] * scale);
    });
    maps.logit = maps[sentence.terms[0]].map((_, at) => sentence.terms.reduce((sum, term) => sum + maps[term][at], 0));
    if (sentence.swapped) maps.difference = maps["after the swap"].map((after, at) => after - maps.attention[at]);
    return maps;
  }

  const choices = make("p", place, { className: "choose" });
  const heading = make("p", place, { className: "chosen" }), grid = make("div", place, { className: "cells", tabIndex: 0 });
  const said = make("p", place, { className: "said" });
  said.setAttribute("role", "status");

  function choose(label, change) {
    const frame = make("label", choices, { textContent: label + " " }), select = make("select", frame);
    select.addEventListener("change", () => { change(select.value); show(); });
    return select;
  }

  const pick = {
    sentence: choose("Sentence", (value) => { state.sentence = +value; state.cell = null; }),
    layer: choose("Layer", (value) => find(+value, current().head)),
    head: choose("Head", (value) => find(current().layer, +value)),
    map: choose("Show", (value) => { state.map = value; }),
  };

  const sentence = () => data.sentences[state.sentence];
  const current = () => sentence().heads[state.head] || sentence().heads[0];

  // Choose the head of this layer and number, or the first of the layer where the page has no such head.
  function find(layer, head) {
    const heads = sentence().heads, exact = heads.findIndex((each) => each.layer === layer && each.head === head);
    state.head = exact >= 0 ? exact : heads.findIndex((each) => each.layer === layer);
  }

  function fill(select, entries, chosen) {
    select.replaceChildren(...entries.map(([value, text]) => Object.assign(document.createElement("option"),
      { value, textContent: text, selected: String(value) === String(chosen) })));
    select.parentNode.hidden = entries.length < 2;
  }

  function show() {
    const chosen = sentence();
    state.head = Math.min(state.head, chosen.heads.length - 1);
    const head = current(), maps = unpack(chosen, head), tokens = chosen.tokens, mask = head.mask || chosen.mask;
    const names = ["attention", ...(chosen.swapped ? ["after the swap", "difference"] : []), "logit", ...chosen.terms];
    if (!names.includes(state.map)) state.map = "attention";
    fill(pick.sentence, data.sentences.map((each, index) => [index, each.text]), state.sentence);
    fill(pick.layer, [...new Set(chosen.heads.map((each) => each.layer))].map((layer) => [layer, layer]), head.layer);
    fill(pick.head, chosen.heads.filter((each) => each.layer === head.layer).map((each) => [each.head, each.head]), head.head);
    fill(pick.map, names.map((name) => [name, name]), state.map);
    const swapped = ["after the swap", "difference"].includes(state.map) ? ` “${chosen.swapped}”` : "";
    const left = chosen.left_out ? ` ${chosen.left_out} heads of this model are not on this page.` : "";
    heading.textContent = `Layer ${head.layer}, head ${head.head}: ${state.map}${swapped}. Queries downwards, keys across.${left}`;
    draw(chosen, maps, tokens);
    tell();

    function draw() {
      const values = maps[state.map], signed = !["attention", "after the swap"].includes(state.map);
      const most = signed ? Math.max(1e-9, ...values.map(Math.abs)) : 1;
      grid.style.gridTemplateColumns = `max-content repeat(${tokens.length}, minmax(.9rem, 2.6rem))`;
      const cells = [make("span", document.createElement("div"))];
      for (const token of tokens) cells.push(Object.assign(document.createElement("span"), { className: "key", textContent: token }));
      tokens.forEach((token, row) => {
        cells.push(Object.assign(document.createElement("span"), { className: "query", textContent: token }));
        tokens.forEach((_, column) => {
          const at = row * tokens.length + column, cell = document.createElement("span"), seen = mask[row][column] === "1";
          cell.className = "cell" + (seen ? "" : " unseen") + (state.cell === at ? " lit" : "");
          cell.dataset.at = at;
          const colour = signed && values[at] < 0 ? "213, 94, 0" : "0, 114, 178";
          if (seen) cell.style.backgroundColor = `rgba(${colour}, ${Math.min(1, Math.abs(values[at]) / most).toFixed(3)})`;
          cells.push(cell);
        });
      });
      grid.replaceChildren(...cells);
    }

    function tell() {
      if (state.cell === null) {
        said.textContent = "Point at a cell, or use the arrow keys, for its numbers.";
        return;
      }
      const row = Math.floor(state.cell / tokens.length), column = state.cell % tokens.length;
      const pair = `“${tokens[row]}” (position ${row}) looking at “${tokens[column]}” (position ${column}): `;
      if (mask[row][column] !== "1") {
        said.textContent = pair + "masked.";
        return;
      }
      const terms = chosen.terms.map((term) => `${term} ${write(maps[term][state.cell])}`).join(" + ");
      const after = chosen.swapped ? `, after the swap ${write(maps["after the swap"][state.cell], 3)}` : "";
      said.textContent = `${pair}attention ${write(maps.attention[state.cell], 3)}${after}; logit ` +
        `${write(maps.logit[state.cell])} = ${terms}.`;
    }
  }

  function light(at) {
    if (at === state.cell) return;
    state.cell = at;
    show();
  }

  for (const type of ["pointermove", "click"])
    grid.addEventListener(type, (event) => {
      const cell = event.target.closest(".cell");
      if (cell) light(+cell.dataset.at);
    });
  grid.addEventListener("keydown", (event) => {
    const size = sentence().tokens.length, step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -size, ArrowDown: size }[event.key];
    if (!step) return;
    event.preventDefault();
    light(Math.min(size * size - 1, Math.max(0, (state.cell === null ? 0 : state.cell) + step)));
  });
  document.addEventListener("head", (event) => {
    const [layer, head] = event.detail.match(/\d+/g).map(Number);
    find(layer, head);
    state.head = Math.max(state.head, 0);
    show();
  });
  show();
};
