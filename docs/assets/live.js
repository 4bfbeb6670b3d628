// The live scenes of the answers: loaded on a click, in place of the page's picture; and the switch of the first page.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search"); // a dialog of the theme, without a name
  for (const nav of document.querySelectorAll(".md-nav .md-nav")) nav.setAttribute("role", "group"); // several of one name
  for (const block of document.querySelectorAll(".live")) {
    const picture = document.querySelector(".md-content img[src*='mechanism-']");
    block.querySelector("button").addEventListener("click", () => {
      const frame = document.createElement("iframe");
      frame.title = block.dataset.title;
      frame.src = block.dataset.page;
      (picture ? picture.closest("p") : block).replaceWith(frame);
      block.remove();
      frame.scrollIntoView({ block: "nearest" });
      frame.focus();
    });
  }
  for (const twins of document.querySelectorAll(".twins")) {
    const positions = twins.querySelector("input");
    const show = () => twins.classList.toggle("blind", !positions.checked);
    positions.addEventListener("change", show);
    show();
  }
});
