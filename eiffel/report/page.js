// Hover: the figures of every line at the pointer, read back from the paths themselves. Chips: show or hide.
"use strict";
(() => {
  const tip = document.getElementById("tip");
  const pair = (text) => text.split(" ").map(Number);
  const points = new WeakMap();
  const read = (path) => {
    if (!points.has(path)) points.set(path, path.getAttribute("d").slice(1).split("L").map(pair));
    return points.get(path);
  };
  const at = (line, x) => {
    const i = line.findIndex((p) => p[0] >= x);
    if (i < 0 || x < line[0][0] - 0.6) return null;
    const [a, b] = [line[Math.max(0, i - 1)], line[i]];
    return b[0] === a[0] ? b[1] : a[1] + ((b[1] - a[1]) * (x - a[0])) / (b[0] - a[0]);
  };
  const digits = (v) => {
    if (v === 0) return "0";
    const places = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(v))));
    return v.toLocaleString("en", { minimumFractionDigits: Math.min(places, 3), maximumFractionDigits: Math.min(places, 3) });
  };
  const row = (words, value, kind) => {
    const div = document.createElement("div");
    for (const [text, name] of [[words, kind], [value, ""]]) {
      const span = document.createElement("span");
      span.textContent = text;
      span.className = name;
      div.append(span);
    }
    return div;
  };
  const hide = (svg) => {
    tip.hidden = true;
    svg.querySelector(".cursor")?.remove();
  };
  const show = (svg, event) => {
    const [left, right, top, floor] = pair(svg.dataset.frame);
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    if (x < left || x > right) return hide(svg);
    const [x0, x1] = pair(svg.dataset.x);
    const [y0, y1] = pair(svg.dataset.y);
    const found = [];
    for (const path of svg.querySelectorAll("path[data-name]:not(.off)")) {
      const y = at(read(path), x);
      if (y !== null) found.push([y, path]);
    }
    if (!found.length) return hide(svg);
    let cursor = svg.querySelector(".cursor");
    if (!cursor) {
      cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
      cursor.setAttribute("class", "cursor");
      svg.append(cursor);
    }
    for (const [key, value] of [["x1", x], ["x2", x], ["y1", top], ["y2", floor]]) cursor.setAttribute(key, value);
    const here = digits(x0 + ((x - left) / (right - left)) * (x1 - x0));
    tip.replaceChildren(row(svg.dataset.xword, here + " " + svg.dataset.xunit, "at"));
    for (const [y, path] of found.sort((a, b) => a[0] - b[0])) {
      const value = y0 + ((floor - y) / (floor - top)) * (y1 - y0);
      const colour = [...path.classList].find((name) => /^c\d$/.test(name));
      tip.append(row(path.dataset.name, digits(value) + " " + svg.dataset.yunit, "c " + colour));
    }
    tip.hidden = false;
    const right_side = event.clientX + 18 + tip.offsetWidth < window.innerWidth;
    tip.style.left = Math.max(4, right_side ? event.clientX + 14 : event.clientX - 14 - tip.offsetWidth) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8)) + "px";
  };
  for (const svg of document.querySelectorAll("svg[data-frame]")) {
    svg.addEventListener("pointermove", (event) => show(svg, event));
    svg.addEventListener("pointerleave", () => hide(svg));
  }
  for (const chip of document.querySelectorAll(".chip")) {
    const press = (shown) => {
      chip.setAttribute("aria-pressed", String(shown));
      for (const mark of document.querySelectorAll("svg .s" + chip.dataset.series)) mark.classList.toggle("off", !shown);
    };
    chip.addEventListener("click", () => press(chip.getAttribute("aria-pressed") !== "true"));
    if (chip.getAttribute("aria-pressed") !== "true") press(false);
  }
})();
