"use strict";
/* The figures: from the page's data and what the reader chose to Plotly's traces and layout. */
const charts = (() => {
  const COLOURS = 8;
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon"];

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const ofGroup = (i) => colour(`c${i % COLOURS}`);
  const number = (value) => typeof value === "number" && Number.isFinite(value);

  /* Plotly reads a little HTML in its texts: a label is shown as it is written. */
  const plain = (text) =>
    String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  /* Names that start with the word need not say it again beside it. */
  const named = (names, at) => plain(String(names?.[at] ?? at).replace(/^client[ _-]+/i, ""));

  function faded(hex, opacity) {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    return `rgba(${r},${g},${b},${opacity})`;
  }

  function axis(title, more) {
    return {
      title: { text: plain(title), standoff: 8 }, gridcolor: colour("grid"), linecolor: colour("line"),
      zerolinecolor: colour("line"), automargin: true, exponentformat: "SI", ...more,
    };
  }

  function layout(view, height, more) {
    return {
      height: view.narrow || view.width ? Math.min(height, 340) : height,
      ...(view.width ? { width: view.width } : {}),
      margin: { l: view.narrow ? 40 : 60, r: 12, t: view.narrow || view.width ? 12 : 34, b: 46 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("accent") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif", size: 13, color: colour("ink") },
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
      dragmode: view.touch ? false : "zoom", showlegend: false, hovermode: "closest", ...more,
    };
  }

  function valueAxis(measure, view, more) {
    const format = measure.percent ? { tickformat: "~%", hoverformat: ".2%" } : { hoverformat: ".5~g" };
    return axis(view.narrow ? "" : measure.title, { ...format, ...more });
  }

  function band(i, x, of, log) {
    const kept = x.map((_, at) => at).filter((at) =>
      number(x[at]) && number(of.low[at]) && number(of.high[at]) && (!log || of.low[at] > 0));
    const back = [...kept].reverse();
    return {
      x: [...kept.map((at) => x[at]), ...back.map((at) => x[at])],
      y: [...kept.map((at) => of.high[at]), ...back.map((at) => of.low[at])],
      mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: faded(ofGroup(i), 0.16), hoverinfo: "skip",
    };
  }

  function curves(data, choice, view) {
    const bands = [], lines = [], stops = [];
    data.curves.forEach((curve, i) => {
      const x = curve.x[choice.axis];
      if (!choice.shown[i] || !x) return;
      for (const whose of ["shared", "personal"]) {
        const key = choice.measure[whose], of = curve.y[key];
        if (!of) continue;
        const label = plain(data.groups[i].label) + (whose === "personal" ? ", personal" : "");
        if (data.groups[i].runs > 1) bands.push(band(i, x, of, choice.log));
        lines.push({
          x, y: of.mean, name: label, meta: label, mode: "lines+markers",
          line: { color: ofGroup(i), width: 2.4, dash: whose === "personal" ? "dash" : "solid" },
          marker: { symbol: SYMBOLS[i % SYMBOLS.length], size: 7, maxdisplayed: 12 },
          hovertemplate: "%{meta}<br>%{y} at %{x}<extra></extra>",
        });
        for (const stop of curve.stops) {
          stops.push({
            x: [stop.at[choice.axis]], y: [stop.at[key]], meta: `${label} ${plain(stop.text)}`, mode: "markers",
            marker: { symbol: "x-thin", size: 13, line: { width: 3, color: ofGroup(i) } },
            hovertemplate: "%{meta}<extra></extra>",
          });
        }
      }
    });
    const y = valueAxis(choice.measure, view, choice.log ? { type: "log", exponentformat: "power" } : {});
    return [[...bands, ...lines, ...stops], layout(view, 440, { xaxis: axis(data.axes[choice.axis]), yaxis: y })];
  }

  function chosenClients(data, choice) {
    return data.clients
      .filter((run) => run.seed === choice.seed && choice.shown[run.group] && run.metrics[choice.title])
      .map((run) => ({ ...run, of: run.metrics[choice.title], label: plain(data.groups[run.group].label) }));
  }

  function sorted(data, choice, view) {
    const traces = [];
    for (const run of chosenClients(data, choice)) {
      for (const whose of ["shared", "personal"]) {
        if (!run.of[whose]) continue;
        const order = run.of[whose].map((value, at) => [value, at]).filter(([value]) => number(value));
        order.sort((a, b) => (run.of.percent ? a[0] - b[0] : b[0] - a[0]));
        traces.push({
          x: order.map((_, rank) => rank + 1), y: order.map(([value]) => value),
          text: order.map(([, at]) => named(run.names, at)),
          meta: run.label + (whose === "personal" ? ", personal" : ""), mode: "lines+markers",
          line: { color: ofGroup(run.group), width: 2.2, dash: whose === "personal" ? "dash" : "solid" },
          marker: { symbol: SYMBOLS[run.group % SYMBOLS.length], size: 6, maxdisplayed: 40 },
          hovertemplate: "%{meta}<br>client %{text}: %{y}<extra></extra>",
        });
      }
    }
    const measure = { title: choice.title, percent: choice.percent };
    return [traces, layout(view, 380, { xaxis: axis("Clients, worst first"), yaxis: valueAxis(measure, view) })];
  }

  function scatter(data, choice, view) {
    const runs = chosenClients(data, choice).filter((run) => run.of.shared && run.of.personal);
    const values = runs.flatMap((run) => [...run.of.shared, ...run.of.personal]).filter(number);
    if (!values.length) return null;
    const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
    const edge = 0.04 * (high - low || 1);
    const ends = [low - edge, high + edge];
    const diagonal = { x: ends, y: ends, mode: "lines", hoverinfo: "skip", line: { color: colour("soft"), width: 1, dash: "dot" } };
    const points = runs.map((run) => ({
      x: run.of.shared, y: run.of.personal, text: run.of.shared.map((_, at) => named(run.names, at)),
      meta: run.label, mode: "markers",
      marker: { color: ofGroup(run.group), size: 9, opacity: 0.75, symbol: SYMBOLS[run.group % SYMBOLS.length] },
      hovertemplate: "%{meta}<br>client %{text}<br>shared %{x}, personal %{y}<extra></extra>",
    }));
    const format = { range: ends, ...(choice.percent ? { tickformat: "~%", hoverformat: ".2%" } : {}) };
    return [[diagonal, ...points], layout(view, 380, {
      xaxis: axis("Shared model", format), yaxis: axis(view.narrow ? "" : "Personal model", format),
    })];
  }

  function partition(of, view) {
    const parts = Object.entries(of.rows ?? {}).filter(([, rows]) => Array.isArray(rows) && rows.some((n) => n > 0));
    const counts = of.label_counts, clients = counts?.length ?? parts[0]?.[1].length ?? 0;
    const at = Array.from({ length: clients }, (_, i) => i);
    const names = at.map((i) => named(of.names, i));
    const traces = parts.map(([part, rows], i) => ({
      type: "bar", name: plain(part), x: at, y: rows, text: names, textposition: "none",
      marker: { color: ofGroup([0, 4, 2][i % 3]) }, hovertemplate: "client %{text}: %{y} rows<extra></extra>",
    }));
    if (counts) {
      const labels = counts.reduce((most, row) => Math.max(most, row.length), 0);
      traces.push({
        type: "heatmap", x: at, y: Array.from({ length: labels }, (_, i) => i), yaxis: "y2",
        z: Array.from({ length: labels }, (_, label) => counts.map((row) => row[label] ?? 0)),
        text: Array.from({ length: labels }, () => names), xgap: clients > 80 ? 0 : 1, ygap: 1,
        colorscale: [[0, colour("low")], [1, colour("high")]], zmin: 0,
        colorbar: { title: { text: "rows" }, thickness: 12, y: 0.69, len: 0.64, outlinewidth: 0 },
        hovertemplate: "client %{text}, label %{y}: %{z} rows<extra></extra>",
      });
    }
    const few = clients <= (view.narrow ? 10 : 50);
    return [traces, layout(view, counts ? 560 : 280, {
      barmode: "stack", bargap: clients > 80 ? 0 : 0.15, showlegend: parts.length > 1,
      ...((view.narrow || view.width) && counts ? { height: 460 } : {}),
      legend: {
        orientation: "h", x: 1, xanchor: "right", y: counts ? 0.29 : 1, yanchor: "bottom", traceorder: "normal",
        itemclick: false, itemdoubleclick: false,
      },
      xaxis: axis("Client", few ? { tickvals: at, ticktext: names, showgrid: false } : { showgrid: false }),
      yaxis: axis("Rows", { domain: counts ? [0, 0.28] : [0, 1] }),
      ...(counts ? { yaxis2: axis("Label", { domain: [0.38, 1], showgrid: false, zeroline: false, dtick: counts[0]?.length <= 20 ? 1 : undefined }) } : {}),
    })];
  }

  function heat(sweep, at, view) {
    const { title, fields, axes, goal, methods } = sweep;
    const all = methods.flatMap((method) => method.z.flat()).filter(number);
    const ends = [colour("low"), colour("high")];
    if (goal === "min") ends.reverse();
    const label = (name) => (view.narrow || !name ? "" : name);
    return [[{
      type: "heatmap", x: axes[0], y: axes[1] ?? [""], z: methods[at].z, xgap: 1, ygap: 1, hoverongaps: false,
      zmin: all.length ? Math.min(...all) : 0, zmax: all.length ? Math.max(...all) : 1,
      colorscale: [[0, ends[0]], [1, ends[1]]], colorbar: { thickness: 12, outlinewidth: 0 },
      hovertemplate: `${plain(fields[0])} %{x}${fields[1] ? `, ${plain(fields[1])} %{y}` : ""}` +
        `<br>${plain(title)} %{z:.5~g}<extra></extra>`,
    }], layout(view, fields[1] ? 340 : 200, {
      xaxis: axis(fields[0], { type: "category", showgrid: false }),
      yaxis: axis(label(fields[1]), { type: "category", showgrid: false }),
    })];
  }

  function dense(sweep, shown, view) {
    const traces = sweep.methods.filter((method) => shown[method.group] && method.points.length).map((method) => ({
      x: method.points.map((point) => point[0]), y: method.points.map((point) => point[1]),
      text: method.points.map((point) => plain(point[2])), meta: plain(method.label), mode: "markers",
      marker: {
        color: ofGroup(method.group), size: 9, opacity: 0.75, symbol: SYMBOLS[method.group % SYMBOLS.length],
      },
      hovertemplate: "%{meta}<br>%{text}<br>density %{x}, %{y}<extra></extra>",
    }));
    return [traces, layout(view, 380, {
      xaxis: axis("Density"), yaxis: axis(view.narrow ? "" : sweep.title, { hoverformat: ".5~g" }),
    })];
  }

  return { colour, heat, dense, curves, sorted, scatter, partition };
})();
