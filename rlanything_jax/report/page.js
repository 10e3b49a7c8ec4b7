"use strict";
// Theme button, hover values of the charts (one cursor over all of them), judge rationales on their chips.
(() => {
  const root = document.documentElement;
  const tip = document.getElementById("tip");
  const button = document.getElementById("theme");
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; };
  try { if (localStorage.theme) root.dataset.theme = localStorage.theme; } catch { /* no storage for this file */ }
  button.hidden = false;
  label();
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.theme = root.dataset.theme; } catch { /* the choice lasts as long as the page */ }
    label();
  });

  const showTip = (content, x, y) => {
    tip.replaceChildren(...content);
    tip.classList.add("on");
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
    tip.style.left = `${Math.max(6, left)}px`;
    tip.style.top = `${Math.max(6, Math.min(y - box.height / 2, innerHeight - box.height - 6))}px`;
  };
  const hideTip = () => tip.classList.remove("on");
  const element = (name, attributes, text) => {
    const made = name === "line" || name === "circle"
      ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const charts = [...document.querySelectorAll("figure[data-chart]")].map((figure) => {
    const svg = figure.querySelector("svg");
    return { svg, cursor: svg.querySelector(".cursor"), height: svg.viewBox.baseVal.height, ...JSON.parse(figure.dataset.chart) };
  });
  const nearest = (xs, x) => {
    let best = 0;
    xs.forEach((value, i) => { if (Math.abs(value - x) < Math.abs(xs[best] - x)) best = i; });
    return best;
  };
  // One iteration marked in every chart; a curve without a value near it (evaluations are sparse) shows its nearest one.
  const mark = (iteration) => {
    for (const chart of charts) {
      const [left, right, low, high] = chart.x;
      const at = (x) => left + (right - left) * (x - low) / (high - low);
      const x = at(Math.min(high, Math.max(low, iteration)));
      const parts = [element("line", { x1: x, x2: x, y1: 8, y2: chart.height - 24 })];
      for (const curve of chart.curves) {
        const i = nearest(curve.x, iteration);
        parts.push(element("circle", { cx: at(curve.x[i]), cy: curve.top[i], r: 3.2, style: `--c:var(--s${curve.color})` }));
      }
      chart.cursor.replaceChildren(...parts);
    }
  };
  const clear = () => { for (const chart of charts) chart.cursor.replaceChildren(); hideTip(); };
  const explain = (chart, iteration, x, y) => {
    mark(iteration);
    const rows = chart.curves.map((curve) => {
      const i = nearest(curve.x, iteration);
      const row = element("p", {});
      row.append(element("i", { style: `--c:var(--s${curve.color})` }), element("span", {}, curve.name), element("b", {}, curve.label[i]));
      if (curve.x[i] !== iteration) row.append(element("small", {}, ` at ${curve.x[i]}`));
      return row;
    });
    showTip([element("h5", {}, `iteration ${iteration}`), ...rows], x, y);
  };
  for (const chart of charts) {
    const [left, right, low, high] = chart.x;
    const xs = chart.curves.reduce((longest, curve) => (curve.x.length > longest.length ? curve.x : longest), []);
    let current = xs.length - 1;
    chart.svg.addEventListener("pointermove", (event) => {
      const box = chart.svg.getBoundingClientRect();
      const unit = (event.clientX - box.left) / box.width * chart.svg.viewBox.baseVal.width;
      current = nearest(xs, low + (high - low) * (unit - left) / (right - left));
      explain(chart, xs[current], event.clientX, event.clientY);
    });
    chart.svg.addEventListener("pointerleave", clear);
    chart.svg.addEventListener("blur", clear);
    chart.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      current = Math.min(xs.length - 1, Math.max(0, current + step));
      const box = chart.svg.getBoundingClientRect();
      explain(chart, xs[current], box.left + box.width / 2, box.top + box.height / 2);
    });
  }

  // The j-th chip of a step's line belongs to the j-th rationale inside the step.
  for (const votes of document.querySelectorAll(".votes")) {
    const texts = votes.closest("details").querySelectorAll(".rationales span");
    votes.querySelectorAll(".chip").forEach((chip, j) => {
      chip.addEventListener("pointerenter", (event) => {
        if (texts[j]) showTip([element("p", { class: "text" }, texts[j].textContent)], event.clientX, event.clientY);
      });
      chip.addEventListener("pointerleave", hideTip);
    });
  }
})();
