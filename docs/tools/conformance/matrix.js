"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const find = selector => document.querySelector(selector);
const columns = data.checks.map(check => check.name);
const checks = Object.fromEntries(data.checks.map(check => [check.name, check]));
const filters = ["model", "kind", "scheme", "group", "verdict"].map(id => find("#" + id));
const order = find("#order"), own = find("#own"), table = find(".matrix");
const FAIL = 1, WARN = 2, LIBRARY = 5, SEVERITY = [0, 5, 3, 2, -1, 4];
const rowOf = Object.fromEntries(data.rows.map(row => [row.model, row]));

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

// A row of the table is about one model under one cause: the same model stands under each of its causes.
function draw() {
  const [text, task, scheme, group, verdict] = filters.map(filter => filter.value.trim());
  const shown = columns.filter(name => !group || name === group || name.split(".")[0] === group);
  const count = (row, number) => shown.reduce((sum, name) => sum + cells(row, name).filter(([, cell]) => cell[0] === number).length, 0);
  const fits = row => row.model.includes(text) && (!task || row.kind === task) && (!scheme || row.scheme === scheme) &&
    (verdict === "" || count(row, Number(verdict))) && (!own?.checked || row.fault || count(row, FAIL));
  const rows = data.rows.filter(fits);
  const head = element("tr");
  head.append(element("td"));
  for (const name of shown) {
    const cell = element("th");
    cell.scope = "col";
    cell.append(element("span", name));
    cell.title = checks[name].asserts;
    head.append(cell);
  }
  table.querySelector("thead").replaceChildren(head);
  const groups = order.value === "cause" ? groupRows(rows, shown) : [[null, rows]];
  table.querySelectorAll("tbody").forEach(body => body.remove());
  table.append(...groups.map(([cause, members]) => drawGroup(cause, members, shown)));
  const first = table.querySelector("tbody button");
  if (first) first.tabIndex = 0;
  const hits = verdict === "" ? 0 : rows.reduce((sum, row) => sum + count(row, Number(verdict)), 0);
  find("#count").textContent = `${rows.length} of ${data.rows.length} architectures` +
    (verdict === "" ? "" : `, ${hits.toLocaleString("en-US")} cells: ${filters[4].selectedOptions[0].textContent}`);
}

// What makes the rows fail in the checks that are shown: [cause, its rows], and last those that fail nowhere.
function groupRows(rows, shown) {
  const kept = new Set(rows), clear = new Set(rows), groups = [];
  for (const cause of data.groups) {
    if (own?.checked && cause.library) continue;
    const models = cause.cells.filter(([, check]) => shown.includes(check.replace("source.", ""))).map(([model]) => model);
    const members = [...new Set(models)].map(model => rowOf[model]).filter(row => kept.has(row));
    members.forEach(row => clear.delete(row));
    if (members.length) groups.push([cause, members]);
  }
  return clear.size ? [...groups, [{cause: "Nothing fails in what is shown", library: null}, [...clear]]] : groups;
}

function drawGroup(cause, members, shown) {
  const body = element("tbody");
  if (cause) {
    const line = element("tr", undefined, "cause"), head = element("th"), words = element("span");
    head.colSpan = shown.length + 1;
    head.scope = "rowgroup";
    const whose = cause.library === null || !own ? "" : cause.library ? "library: " : "own: ";
    words.append(element("b", `${whose}${cause.cause}`), ` (${members.length} model${members.length === 1 ? "" : "s"})`);
    head.append(words);
    line.append(head);
    body.append(line);
    body.dataset.cause = cause.cause;
  }
  body.append(...members.map(row => line(row, shown)));
  return body;
}

function line(row, shown) {
  const made = element("tr"), head = element("th");
  head.scope = "row";
  head.title = `${row.model}: ${row.fault || row.scheme}`;
  head.append(button(row.model, () => { showModel(row); mark(head); }));
  made.append(head);
  made.dataset.model = row.model;
  for (const name of shown) {
    const cell = element("td"), shownCell = worst(row, name);
    if (shownCell) {
      const [full, values] = shownCell;
      cell.className = "v" + values[0];
      cell.dataset.check = name;
      cell.append(button(data.signs[values[0]], () => { showCell(row, name); mark(cell); }, `${row.model} ${full}: ${data.verdicts[values[0]]}`));
    }
    made.append(cell);
  }
  made.querySelectorAll("button").forEach(one => { one.tabIndex = -1; });
  return made;
}

function mark(cell) {
  table.querySelectorAll(".marked").forEach(one => one.classList.remove("marked"));
  cell.classList.add("marked");
}

// Mark the cell of a model and a check, or the name of a model, under the cause that it is of, and bring it into sight.
function goTo(model, check) {
  const places = () => [...table.querySelectorAll(`tr[data-model="${CSS.escape(model)}"]`)];
  const find = line => line.querySelector(check ? `[data-check="${CSS.escape(check)}"]` : "th");
  if (!places().some(find)) showAll();
  const cause = data.groups.find(({cells}) => cells.some(([m, c]) => m === model && c.replace("source.", "") === check))?.cause;
  const line = places().find(row => row.parentElement.dataset.cause === cause) ?? places()[0];
  const cell = find(line) ?? line.querySelector("th");
  mark(cell);
  cell.style.scrollMarginTop = `${table.tHead.offsetHeight + 8}px`; // the longest name makes the header as high as it is
  cell.scrollIntoView({block: "start", inline: "start"});
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
  const list = element("ul");
  for (const name of columns) {
    for (const [full, values] of cells(row, name)) {
      if (![FAIL, WARN, LIBRARY].includes(values[0])) continue;
      const item = element("li");
      item.append(button(`${full}: ${data.verdicts[values[0]]}`, () => { showCell(row, name); goTo(row.model, name); }));
      list.append(item);
    }
  }
  open(row.model, element("h2", row.model), element("p", row.fault || `Position by: ${row.scheme}.`),
    ...(data.codes ? [element("p", `Measured with version ${data.codes[row.code] || "unknown"} of the checks.`)] : []),
    element("p", data.texts[row.reliance]), list,
    element("pre", `clockhands check --type ${row.model} --tiny`));
}

function close() {
  find(".detail").hidden = true;
  history.replaceState(null, "", location.pathname + location.search);
}

function follow() {
  const [model, name] = decodeURI(location.hash.slice(1)).split("/"), row = rowOf[model];
  if (!row) return;
  const check = checks[name] ? name : "";
  check ? showCell(row, check) : showModel(row);
  goTo(model, check);
}

function showAll() {
  for (const filter of filters) filter.value = "";
  if (own) own.checked = false;
  draw();
}

// One stop for the tab key; arrow keys go from cell to cell.
function step(event) {
  const steps = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
  const cell = event.target.closest("td, th");
  if (!steps || !cell) return;
  event.preventDefault();
  const rows = [...table.querySelectorAll("tbody tr[data-model]")];
  const column = cell.cellIndex + steps[1], row = rows[rows.indexOf(cell.parentElement) + steps[0]];
  const next = row?.cells[column]?.querySelector("button");
  if (!next) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

find(".detail > button").onclick = close;
find("#reset").onclick = showAll;
table.addEventListener("keydown", step);
addEventListener("keydown", event => { if (event.key === "Escape") close(); });
addEventListener("hashchange", follow);
for (const filter of [...filters, order, own]) if (filter) filter.oninput = draw;
draw();
follow();
