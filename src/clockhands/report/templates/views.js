// Every view on the page: its data stand in the page, before the place where it is shown.
for (const source of document.querySelectorAll("script.view")) {
  const data = JSON.parse(source.textContent), place = document.createElement("div");
  place.className = "view";
  source.after(place);
  if (source.dataset.side) place.append(Object.assign(document.createElement("h4"), { textContent: source.dataset.side, className: "side" }));
  window.views[data.kind](place, data);
}
