// The live scenes of the answers: loaded on a click, in place of the page's picture; and the switch of the first page.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search"); // a dialog of the theme, without a name
  document.querySelectorAll("nav.md-nav").forEach((nav, index) => { // several have one name, or none
    nav.removeAttribute("aria-labelledby");
    nav.setAttribute("aria-label", `Pages, part ${index + 1}`);
  });
  for (const block of document.querySelectorAll(".live")) {
    const picture = document.querySelector(".md-content img[src*='mechanism-']");
    const still = picture ? picture.closest("p") : null;
    const button = block.querySelector("button");
    const invitation = button.innerHTML;
    let frame = null;
    button.addEventListener("click", () => {
      if (frame) { // back to the picture
        frame.remove();
        frame = null;
      } else {
        frame = document.createElement("iframe");
        frame.title = block.dataset.title;
        const dark = document.body.dataset.mdColorScheme === "slate";
        frame.src = `${block.dataset.page}&colours=${dark ? "dark" : "light"}`;
        (still ?? block).before(frame);
        frame.scrollIntoView({ block: "nearest" });
        frame.focus();
      }
      if (still) still.style.display = frame ? "none" : "";
      button.innerHTML = frame ? "Back to the picture" : invitation;
    });
  }
  // What is wider than the window is scrolled with the keyboard too; the theme wraps tables after this has run.
  const reach = () => {
    for (const wide of document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap")) {
      if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
    }
  };
  addEventListener("load", reach);
  addEventListener("resize", reach);
  for (const twins of document.querySelectorAll(".twins")) {
    const positions = twins.querySelector("input");
    const show = () => twins.classList.toggle("blind", !positions.checked);
    positions.addEventListener("change", show);
    show();
  }
});
