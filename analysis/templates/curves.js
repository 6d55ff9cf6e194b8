"use strict";
// Learning curves that answer to a reader.  All text goes in by textContent, never as markup.
(() => {
  const holder = document.getElementById("curves-data");
  if (!holder) return;
  let data = JSON.parse(holder.textContent);  // null until the page of `ablate watch` has heard of some
  const plot = document.getElementById("curves-plot");
  const tip = document.getElementById("curves-tip");
  const legend = document.getElementById("curves-legend");
  const controls = document.getElementById("curves-controls");
  const INK = "#222222", FAINT = "#e3e3e0";
  const FEW = 8;  // bands of more cells cover each other
  const state = { x: "", log: false, from: 0, seeds: false, band: false };
  const hidden = new Set();
  const column = (place) => data.columns[place];
  // Plotly takes a few tags in its own labels for markup; as entities they are letters.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  // Zero has no sign, whatever came to it.
  const number = (value, digits) => (Number(value.toFixed(digits)) || 0).toFixed(digits).replace("-", "−");
  const count = (value) => value >= 1000 ? Math.round(value).toLocaleString("en-GB") : String(+value.toFixed(1));

  function spread(cell) {
    const x = column(cell.mean[state.x]);
    return {
      x: [...x, ...[...x].reverse()],
      y: [...column(cell.mean.high), ...[...column(cell.mean.low)].reverse()],
      mode: "lines", fill: "toself", fillcolor: cell.colour, line: { width: 0 }, hoverinfo: "skip",
      opacity: Math.max(0.06, Math.min(0.16, 0.9 / data.cells.length)),
    };
  }

  // All runs of a cell as one line with gaps: a trace each would be slow.
  function threads(cell, runs, width, opacity) {
    const x = [], y = [], who = [];
    runs.forEach((run) => {
      x.push(...column(run[state.x]), null);
      y.push(...column(run.value), null);
      const place = cell.runs.indexOf(run);
      who.push(...column(run.value).map(() => place), place);
    });
    return { x, y, customdata: who, mode: "lines", opacity, line: { width, color: cell.colour, dash: cell.dash } };
  }

  function crosses(cell, runs) {
    const ends = runs.map((run) => {
      const values = column(run.value).filter((one) => one !== null);
      return [column(run[state.x]).at(-1), values.at(-1) ?? null, cell.runs.indexOf(run)];
    });
    return {
      x: ends.map((end) => end[0]), y: ends.map((end) => end[1]), customdata: ends.map((end) => end[2]),
      mode: "markers", marker: { symbol: "x-thin", size: 8, color: cell.colour, line: { width: 2, color: cell.colour } },
      cliponaxis: false,
    };
  }

  function traces() {
    const found = [];
    data.cells.forEach((cell, i) => {
      const add = (kind, trace) => found.push(
        { ...trace, type: "scatter", showlegend: false, visible: !hidden.has(i), meta: { cell: i, kind }, hoverinfo: trace.hoverinfo ?? "none" });
      const [lost, done, going] = ["diverged", "done", "missing"].map((status) => cell.runs.filter((run) => run.status === status));
      if (state.band && cell.n > 1) add("band", spread(cell));
      if (state.seeds && done.length) add("run", threads(cell, done, 0.7, 0.55));
      if (lost.length) {
        add("run", threads(cell, lost, 0.9, 0.8));
        add("end", crosses(cell, lost));
      }
      if (going.length) add("run", threads(cell, going, 1, 0.8));
      const line = { width: 1.8, color: cell.colour, dash: cell.dash };
      add("mean", { x: column(cell.mean[state.x]), y: column(cell.mean.value), mode: "lines", line });
    });
    return found;
  }

  // Where each axis begins and ends, from what ended well and from where all began: a diverged run leaves through the top.
  function ranges() {
    const shown = data.cells.filter((_, i) => !hidden.has(i));
    const last = Math.max(0, ...shown.flatMap((cell) => cell.runs.map((run) => column(run[state.x]).at(-1) ?? 0)));
    const within = (cell) => column(cell.mean[state.x]).filter((x) => x >= state.from * last).length;
    const start = shown.some((cell) => within(cell) > 1) ? state.from * last : 0;  // a line needs two points
    let low = Infinity, high = -Infinity;
    const see = (x, ...values) => values.forEach((value) => {
      if (value === null || x < start) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
    });
    shown.forEach((cell) => {
      const x = column(cell.mean[state.x]), band = [cell.mean.low, cell.mean.high].map(column);
      column(cell.mean.value).forEach((y, i) => see(x[i], y, ...(state.band ? band.map((end) => end[i]) : [])));
      cell.runs.forEach((run) => {
        const at = column(run[state.x]), y = column(run.value);
        see(at[0], y[0]);
        if (run.status === "missing" || (state.seeds && run.status === "done")) y.forEach((value, i) => see(at[i], value));
      });
    });
    const wide = [start - 0.01 * (last - start), last + 0.02 * (last - start)];
    if (low > high || (state.log && low <= 0)) return { x: wide };
    if (state.log) [low, high] = [Math.log10(low), Math.log10(high)];
    const room = 0.04 * (high - low) || 0.01;
    return { x: wide, y: [low - room, high + room] };
  }

  function layout() {
    const axis = { color: INK, gridcolor: FAINT, linecolor: INK, zeroline: false, ticks: "outside", ticklen: 3 };
    const found = ranges();
    return {
      font: { family: "system-ui, sans-serif", size: 12, color: INK }, paper_bgcolor: "#fff", plot_bgcolor: "#fff",
      margin: { l: 56, r: 16, t: 12, b: 44 }, hovermode: "closest", hoverdistance: 24, dragmode: "zoom", showlegend: false,
      xaxis: { ...axis, title: { text: data.axes[state.x] }, range: found.x },
      yaxis: { ...axis, title: { text: plain(data.label) }, type: state.log ? "log" : "linear", ...(found.y ? { range: found.y } : {}) },
      uirevision: JSON.stringify([state.x, state.log, state.from]),
    };
  }

  const settings = {
    responsive: true, displaylogo: false, displayModeBar: false, doubleClick: "reset", scrollZoom: false,
  };
  const draw = () => Plotly.react(plot, traces(), layout(), settings);

  function toggle(places, hide) {
    places.forEach((i) => hide ? hidden.add(i) : hidden.delete(i));
    const all = [...legend.querySelectorAll("button")];
    all.forEach((button) => button.setAttribute("aria-pressed", String(!hidden.has(+button.dataset.cell))));
    const mine = plot.data.map((trace, place) => [trace, place]).filter(([trace]) => places.includes(trace.meta.cell));
    return Plotly.restyle(plot, { visible: !hide }, mine.map(([, place]) => place));
  }

  function tell(point, event) {
    const { cell: i, kind } = point.data.meta, cell = data.cells[i];
    const run = kind === "mean" ? null : cell.runs[point.customdata];
    const sd = kind === "mean" ? column(cell.mean.sd)[point.pointIndex] : null;
    const over = run ? `seed ${run.seed}` : cell.n === 1 ? "one seed" : `mean of ${cell.n} seeds`;
    const value = number(point.y, 4) + (sd !== null && cell.n > 1 ? ` ± ${number(sd, 4)} SD` : "");
    const lines = [cell.name, `${over}: ${value}`, `${state.x} ${count(point.x)}`];
    if (kind === "end") lines.push("diverged: the run ended here");
    if (run?.status === "missing") lines.push("not ended yet");
    tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    tip.style.borderLeftColor = cell.colour;
    tip.hidden = false;
    const frame = plot.getBoundingClientRect();
    const left = event.clientX - frame.left, top = event.clientY - frame.top;
    tip.style.left = `${Math.max(0, Math.min(left + 14, frame.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${top + tip.offsetHeight + 18 > frame.height ? top - tip.offsetHeight - 10 : top + 14}px`;
  }

  function fill() {
    const swatch = (cell) => {
      const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg"), line = document.createElementNS(ns, "line");
      for (const [name, value] of Object.entries({ width: 30, height: 10, "aria-hidden": "true" })) svg.setAttribute(name, value);
      const dashes = cell.dash === "solid" ? "none" : cell.dash.replace(/px/g, "");
      for (const [name, value] of Object.entries({ x1: 0, x2: 30, y1: 5, y2: 5, stroke: cell.colour, "stroke-width": 2.2, "stroke-dasharray": dashes }))
        line.setAttribute(name, value);
      svg.append(line);
      return svg;
    };
    legend.replaceChildren();
    data.cells.forEach((cell, i) => {
      const button = document.createElement("button"), name = document.createElement("span");
      Object.assign(button, { type: "button", title: "show or hide" });
      button.dataset.cell = i;
      button.setAttribute("aria-pressed", String(!hidden.has(i)));
      name.textContent = cell.name;
      button.append(swatch(cell), name);
      button.addEventListener("click", () => toggle([i], !hidden.has(i)));
      button.addEventListener("dblclick", () => {
        const others = data.cells.map((_, k) => k).filter((k) => k !== i);
        toggle([i], false);
        toggle(others, others.some((k) => !hidden.has(k)));
      });
      legend.append(button);
    });
  }

  function begin() {
    state.band = data.cells.length <= FEW;
    controls.querySelectorAll("input").forEach((input) => {
      const set = () => {
        if (input.type === "checkbox") state[input.name] = input.checked;
        else if (input.checked) state[input.name] = { x: String, log: (text) => text === "true", from: Number }[input.name](input.value);
      };
      if (input.name === "band") input.checked = state.band;
      if (input.name === "x") input.parentElement.hidden = !(input.value in data.axes);
      set();
      input.addEventListener("change", () => { set(); draw(); });
    });
    fill();
    controls.hidden = legend.hidden = false;
    return draw().then(() => {
      plot.on("plotly_hover", ({ points, event }) => tell(points[0], event));
      plot.on("plotly_unhover", () => { tip.hidden = true; });
      plot.dataset.ready = "true";
    });
  }

  document.getElementById("curves-all").addEventListener("click", () => toggle(data.cells.map((_, i) => i), false));
  document.getElementById("curves-none").addEventListener("click", () => toggle(data.cells.map((_, i) => i), true));
  document.addEventListener("curves", (event) => {
    const first = !data, focused = legend.contains(document.activeElement) && document.activeElement.dataset.cell;
    data = event.detail;
    if (first) return begin();
    fill();
    legend.querySelector(`[data-cell="${focused}"]`)?.focus();
    return draw();
  });
  if (data) begin();
  addEventListener("beforeprint", () => data && Plotly.Plots.resize(plot));
})();
