"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const find = selector => document.querySelector(selector);
const columns = data.checks.map(check => check.name);
const checks = Object.fromEntries(data.checks.map(check => [check.name, check]));
const filters = ["model", "kind", "scheme", "group", "verdict"].map(id => find("#" + id));
const FAIL = 1, WARN = 2, LIBRARY = 5, SIGNS = ["", "×", "!", "·", "", "○"], SEVERITY = [0, 5, 3, 2, -1, 4];

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function button(text, action, label) {
  const made = element("button", text);
  if (label) made.setAttribute("aria-label", label);
  made.onclick = action;
  return made;
}

// The cells of a check: the model's own, and that of the source side of an encoder-decoder.
function cells(row, check) {
  return ["", "source."].map(side => side + check).filter(name => row.cells[name]).map(name => [name, row.cells[name]]);
}

function worst(row, check) {
  return cells(row, check).sort((a, b) => SEVERITY[b[1][0]] - SEVERITY[a[1][0]])[0];
}

function draw() {
  const [text, task, scheme, group, verdict] = filters.map(filter => filter.value.trim());
  const shown = columns.filter(name => !group || name === group || name.split(".")[0] === group);
  const hits = row => shown.reduce((sum, name) => sum + cells(row, name).filter(([, cell]) => String(cell[0]) === verdict).length, 0);
  const rows = data.rows.filter(row => row.model.includes(text) && (!task || row.kind === task) &&
    (!scheme || row.scheme === scheme) && (verdict === "" || hits(row)));
  const head = element("tr");
  head.append(element("th"));
  for (const name of shown) {
    const cell = element("th");
    cell.append(element("span", name));
    cell.title = checks[name].asserts;
    head.append(cell);
  }
  find("thead").replaceChildren(head);
  find("tbody").replaceChildren(...rows.map(row => line(row, shown)));
  const count = rows.reduce((sum, row) => sum + hits(row), 0);
  find("#count").textContent = `${rows.length} of ${data.rows.length} architectures` +
    (verdict === "" ? "" : `, ${count} cells: ${filters[4].selectedOptions[0].textContent}`);
}

function line(row, shown) {
  const made = element("tr"), head = element("th");
  head.title = `${row.model}: ${row.fault || row.scheme}`;
  head.append(button(row.model, () => showModel(row)));
  made.append(head);
  for (const name of shown) {
    const cell = element("td"), shownCell = worst(row, name);
    if (shownCell) {
      const [full, values] = shownCell;
      cell.className = "v" + values[0];
      cell.append(button(SIGNS[values[0]], () => showCell(row, name), `${row.model} ${full}: ${data.verdicts[values[0]]}`));
    }
    made.append(cell);
  }
  return made;
}

// Text in which owner/repository#number is a link.
function linked(text) {
  const made = element("dd");
  text.split(/([\w.-]+\/[\w.-]+#\d+)/).forEach((part, index) => {
    if (index % 2 === 0) return made.append(part);
    const link = element("a", part), [repository, number] = part.split("#");
    link.href = `https://github.com/${repository}/issues/${number}`;
    link.rel = "noreferrer";
    made.append(link);
  });
  return made;
}

function open(hash, ...parts) {
  find(".detail div").replaceChildren(...parts);
  find(".detail").hidden = false;
  history.replaceState(null, "", "#" + encodeURI(hash));
}

function showCell(row, name) {
  const parts = [element("h2", `${row.model} · ${name}`), element("p", `${checks[name].asserts} Catches: ${checks[name].catches}.`)];
  for (const [full, [verdict, size, confirmed, ...texts]] of cells(row, name)) {
    const list = element("dl");
    const add = (term, text) => { if (text) list.append(element("dt", term), linked(text)); };
    const effect = size === null ? "" : `, ${size} std of the logits`;
    add(full, data.verdicts[verdict] + effect + (confirmed === null ? "" : `; confirmed with ${confirmed}`));
    const terms = ["seen", verdict === FAIL || verdict === LIBRARY ? "cause" : "why", "safe instead", "where", "thread"];
    terms.forEach((term, index) => add(term, data.texts[texts[index]]));
    parts.push(list);
  }
  const python = `from clockhands.checking import examine\n\n(result,) = examine("${row.model}", tiny=True, only=["${name}"])`;
  parts.push(element("pre", `clockhands check --type ${row.model} --tiny --only ${name}\n\n# or in Python\n${python}\nfor outcome in result.outcomes:\n    print(outcome)`));
  open(`${row.model}/${name}`, ...parts);
}

function showModel(row) {
  const uses = data.uses.map((use, index) => [use, row.rely[index]]).filter(([, safe]) => safe !== null);
  const list = element("ul");
  for (const name of columns) {
    for (const [full, values] of cells(row, name)) {
      if (![FAIL, WARN, LIBRARY].includes(values[0])) continue;
      const item = element("li");
      item.append(button(`${full}: ${data.verdicts[values[0]]}`, () => showCell(row, name)));
      list.append(item);
    }
  }
  open(row.model, element("h2", row.model), element("p", row.fault || `Position by: ${row.scheme}.`),
    element("p", `You may rely on: ${uses.map(([use, safe]) => use + (safe ? " yes" : " no")).join(" · ")}.`), list,
    element("pre", `clockhands check --type ${row.model} --tiny`));
}

function close() {
  find(".detail").hidden = true;
  history.replaceState(null, "", location.pathname + location.search);
}

function follow() {
  const [model, name] = decodeURI(location.hash.slice(1)).split("/");
  const row = data.rows.find(candidate => candidate.model === model);
  if (row) name && checks[name] ? showCell(row, name) : showModel(row);
}

find(".detail > button").onclick = close;
find("#reset").onclick = () => { for (const filter of filters) filter.value = ""; draw(); };
addEventListener("keydown", event => { if (event.key === "Escape") close(); });
addEventListener("hashchange", follow);
for (const filter of filters) filter.oninput = draw;
draw();
follow();
