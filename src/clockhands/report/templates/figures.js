"use strict";
// What figures gain where a script may run: buttons that copy, values at a pointer or a finger, and one head lit up in
// every figure that shows it. Nothing is drawn or said here that the page does not hold without it.
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function make(tag, text, parent) {
    const element = document.createElement(tag);
    element.textContent = text;
    parent.append(element);
    return element;
  }

  // The figure as a file: without the shapes to point at and what is lit up, with its title and what it shows.
  function makeFile(figure) {
    const svg = figure.querySelector(".plot > svg").cloneNode(true);
    svg.querySelectorAll(".hover").forEach((layer) => layer.remove());
    const words = { desc: svg.getAttribute("aria-label") + " " + figure.querySelector("figcaption").textContent.trim(),
      title: figure.dataset.title };
    for (const [tag, text] of Object.entries(words)) {
      const element = document.createElementNS(SVG, tag);
      element.textContent = text;
      svg.prepend(element);
    }
    return new XMLSerializer().serializeToString(svg);
  }

  // Draw the figure twice as large as on the page, on white: its colours are those of paper.
  function drawPicture(figure) {
    const box = figure.querySelector(".plot > svg").viewBox.baseVal, picture = new Image();
    return new Promise((resolve, reject) => {
      picture.onerror = () => reject(new Error("the browser cannot draw it"));
      picture.onload = () => {
        const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
        [canvas.width, canvas.height] = [2 * box.width, 2 * box.height];
        pen.fillStyle = "#fff";
        pen.fillRect(0, 0, canvas.width, canvas.height);
        pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
        resolve(canvas);
      };
      picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(makeFile(figure));
    });
  }

  function save(address, name) {
    const link = document.createElement("a");
    [link.href, link.download] = [address, name];
    link.click();
  }

  async function copyText(text, name) {
    try {
      await navigator.clipboard.writeText(text);
      return "copied";
    } catch {
      if (!name) throw new Error("the browser does not allow it: " + text);
      save("data:image/svg+xml;charset=utf-8," + encodeURIComponent(text), name);
      return "saved as " + name;
    }
  }

  async function copyPicture(figure) {
    const canvas = await drawPicture(figure), name = figure.dataset.name + ".png";
    try {
      const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
      await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
      return "copied";
    } catch {
      save(canvas.toDataURL("image/png"), name);
      return "saved as " + name;
    }
  }

  const ACTIONS = {
    "Copy SVG": (figure) => copyText(makeFile(figure), figure.dataset.name + ".svg"),
    "Copy PNG": copyPicture,
    "Copy link": (figure) => copyText(location.href.split("#")[0] + "#" + figure.id, ""),
  };

  for (const figure of document.querySelectorAll("figure[data-name]")) {
    const tools = figure.querySelector(".tools"), links = [...tools.children], said = document.createElement("span");
    said.setAttribute("role", "status");
    for (const [label, act] of Object.entries(ACTIONS)) {
      const button = make("button", label, tools);
      button.type = "button";
      button.addEventListener("click", async () => {
        said.textContent = await act(figure).catch((fault) => fault.message);
      });
    }
    tools.append(...links, said);
  }

  // The value under the pointer, or nearest to a finger.
  const tip = make("div", "", document.body);
  tip.className = "tip";
  tip.hidden = true;

  function getText(target) {
    const title = target.querySelector("title");
    if (title) { // kept, for the browser would show it a second time
      target.dataset.value = title.textContent;
      title.remove();
    }
    return target.dataset.value;
  }

  function findTarget(event) {
    const hit = event.target.closest(".hover > *");
    if (hit || event.pointerType === "mouse") return hit;
    const svg = event.target.closest(".plot > svg");
    let nearest = null, least = 24;
    for (const target of svg ? svg.querySelectorAll(".hover > *") : []) {
      const box = target.getBoundingClientRect();
      const away = Math.hypot(event.clientX - box.x - box.width / 2, event.clientY - box.y - box.height / 2);
      if (away < least) [nearest, least] = [target, away];
    }
    return nearest;
  }

  // A head is named in its value's first line; all figures light up the one that is pointed at.
  const heads = new Map();
  for (const title of document.querySelectorAll(".hover title")) {
    const head = title.textContent.match(/^layer \d+ head \d+/);
    if (head) heads.set(head[0], [...(heads.get(head[0]) || []), title.parentNode]);
  }

  function lightHead(name) {
    document.querySelectorAll(".hover .lit").forEach((target) => target.classList.remove("lit"));
    for (const target of heads.get(name) || []) target.classList.add("lit");
  }

  function showTip(event) {
    const target = event.target.closest && event.target.closest(".plot") ? findTarget(event) : null;
    tip.hidden = !target;
    if (!target) return;
    const text = getText(target), head = text.match(/^layer \d+ head \d+/);
    tip.textContent = text;
    const right = innerWidth - tip.offsetWidth - 8, above = event.clientY - tip.offsetHeight - 14;
    tip.style.left = Math.max(8, Math.min(event.clientX + 12, right)) + "px";
    tip.style.top = (above > 0 ? above : event.clientY + 18) + "px";
    lightHead(head ? head[0] : "");
  }

  document.addEventListener("pointermove", showTip);
  document.addEventListener("click", showTip);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
})();
