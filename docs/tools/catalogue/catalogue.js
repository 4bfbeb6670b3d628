"use strict";
const rows = [...document.querySelectorAll("tbody tr")], choices = [...document.querySelectorAll("select")];
const text = document.getElementById("text"), count = document.getElementById("count");

function fits(row) {
  const chosen = choices.every(choice => !choice.value ||
    row.cells[choice.dataset.column].textContent.split(", ").includes(choice.value));
  return chosen && row.textContent.toLowerCase().includes(text.value.toLowerCase());
}

function filter() {
  for (const row of rows) row.hidden = !fits(row);
  count.textContent = `${rows.filter(row => !row.hidden).length} of ${rows.length}`;
}

document.addEventListener("input", filter);
filter();
