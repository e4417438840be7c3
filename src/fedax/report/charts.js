/* The figures: from the page's data and what the reader chose to Plotly's traces and layout. */
const charts = (() => {
  const COLOURS = 8;
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon"];

  const MODELS = ["shared", "localised", "before", "personal", "local"];

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const ofGroup = (i) => colour(`c${i % COLOURS}`);
  const symbol = (i) => SYMBOLS[i % SYMBOLS.length];
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
      height: Math.min(height, view.width ? 270 : view.narrow ? 340 : height),
      ...(view.width ? { width: view.width } : { autosize: true }),
      margin: { l: view.narrow ? 40 : 60, r: 12, t: view.narrow || view.width || height < 300 ? 12 : 34, b: 46 },
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

  /* Whether two lists of numbers are the same up to rounding. */
  const alike = (one, other) => one.length === other.length &&
    one.every((a, at) => a === other[at] || Math.abs(a - other[at]) <= 1e-6 * Math.abs(a));

  /* Methods whose curves of the measure coincide, in sets of two or more, each with whose models these are. */
  function coinciding(data, { measure, shown }) {
    return ["shared", "personal"].flatMap((whose) => {
      const sets = [];
      data.curves.forEach((curve, i) => {
        const mean = curve.y[measure[whose]]?.mean;
        if (!shown[i] || !mean?.some(number)) return;
        const known = sets.find((set) => alike(data.curves[set.groups[0]].y[measure[whose]].mean, mean));
        if (known) known.groups.push(i);
        else sets.push({ whose, groups: [i] });
      });
      return sets.filter((set) => set.groups.length > 1);
    });
  }

  function curves(data, choice, view, height = 440) {
    const format = choice.measure.percent ? ".2%" : ".5~g";
    const bands = [], lines = [], stops = [], same = coinciding(data, choice);
    data.curves.forEach((curve, i) => {
      const x = curve.x[choice.axis];
      if (!choice.shown[i] || !x) return;
      for (const whose of ["shared", "personal"]) {
        const key = choice.measure[whose], of = curve.y[key];
        if (!of || (choice.measure.tells && !of.mean.some(Boolean))) continue;
        const label = plain(data.groups[i].label) + (whose === "personal" ? ", personal" : "");
        const under = same.some((set) => set.whose === whose && set.groups.slice(0, -1).includes(i)); // another is on top
        const several = data.groups[i].runs > 1;
        if (several) bands.push(band(i, x, of, choice.log));
        const range = several ? ` (%{customdata[0]:${format}} to %{customdata[1]:${format}})` : "";
        lines.push({
          ...(several ? { customdata: x.map((_, at) => [of.low[at], of.high[at]]) } : {}),
          x, y: of.mean, name: label, meta: label, mode: "lines+markers",
          line: { color: ofGroup(i), width: under ? 8 : 2.4, dash: whose === "personal" ? "dash" : "solid" },
          opacity: under ? 0.4 : 1, marker: { symbol: symbol(i), size: under ? 12 : 7, maxdisplayed: 12 },
          hovertemplate: `%{meta}<br>%{y}${range} at %{x}<extra></extra>`,
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
    const range = choice.zoom ? zoomed(lines, choice) : null;
    const y = valueAxis(choice.measure, view, { ...(choice.log ? logarithmic(lines, range, choice.measure) : {}), ...(range ? { range } : {}) });
    return [[...bands, ...lines, ...stops, ...goal(lines, choice.goal)],
      layout(view, height, { xaxis: axis(data.axes[choice.axis]), yaxis: y })];
  }

  const least = (values) => values.reduce((a, b) => Math.min(a, b));
  const most = (values) => values.reduce((a, b) => Math.max(a, b));

  /* The range of the second half of all curves, where methods differ; null where it is nearly all there is. */
  function zoomed(lines, { log, goal: value }) {
    const scale = (values) => values.filter((v) => number(v) && (!log || v > 0)).map((v) => (log ? Math.log10(v) : v));
    const all = scale(lines.flatMap((line) => line.y));
    const late = scale(lines.flatMap((line) => {
      const known = line.x.filter(number), from = known.length ? (least(known) + most(known)) / 2 : 0;
      return line.y.flatMap((v, at) => (line.x[at] >= from ? [v, ...(line.customdata?.[at] ?? [])] : []));
    }).concat(value ?? []));
    if (!late.length) return null;
    const low = least(late), high = most(late), whole = most(all) - least(all);
    const edge = Math.max(0.08 * (high - low), 0.01 * whole); // a flat end is not blown up to its last digits
    return high > low && high - low < 0.8 * whole ? [low - edge, high + edge] : null;
  }

  /* Labels of a logarithmic axis, whole numbers of a decade, never fewer than three: a lone power of ten says little. */
  function logarithmic(lines, range, measure) {
    const seen = lines.flatMap((line) => line.y).filter((value) => number(value) && value > 0).map(Math.log10);
    if (!seen.length) return { type: "log" };
    const [low, high] = range ?? [least(seen), most(seen)];
    const every = Math.max(1, Math.ceil((high - low) / 8));
    const marks = (digits) => Array.from({ length: Math.floor(high) - Math.floor(low) + 1 }, (_, i) => Math.floor(low) + i)
      .filter((power) => digits.length > 1 || power % every === 0)
      .flatMap((power) => digits.map((digit) => digit * 10 ** power))
      .filter((value) => Math.log10(value) >= low - 1e-9 && Math.log10(value) <= high + 1e-9);
    let tickvals = [[1], [1, 2, 5], [1, 2, 3, 5, 7], [1, 2, 3, 4, 5, 6, 7, 8, 9]].map(marks).find((found) => found.length > 2);
    const digits = tickvals ? 3 : Math.min(12, Math.max(3, 2 - Math.floor(Math.log10(10 ** (high - low) - 1)))); // that tell them apart
    tickvals ??= [0, 1, 2, 3].map((i) => Number((10 ** (low + (i * (high - low)) / 3)).toPrecision(digits)));
    const power = (value) => value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3);
    const words = (value) => power(value) ? value.toExponential().replace("e", "·10<sup>").replace("+", "").replace("1·", "") + "</sup>"
      : String(Number(value.toPrecision(digits)));
    const ticktext = tickvals.map((value) => (measure.percent ? `${Number((100 * value).toPrecision(digits))}%` : words(value)));
    return { type: "log", tickvals, ticktext };
  }

  /* The target as a dotted line through the picture. */
  function goal(lines, value) {
    const x = lines.flatMap((line) => line.x).filter(number);
    if (!number(value) || !x.length) return [];
    const ends = [x.reduce((a, b) => Math.min(a, b)), x.reduce((a, b) => Math.max(a, b))];
    const line = { color: colour("soft"), width: 1.5, dash: "dot" };
    return [{ x: ends, y: [value, value], mode: "lines", line, meta: "target", hovertemplate: "target %{y}<extra></extra>" }];
  }

  /* Whether a client belongs to a group, as the protocol defines them. */
  function inside(run, clients, round) {
    if (clients === "unseen") return (at) => run.unseen[at] === true;
    const joined = (at) => run.joined[at] > 0 && run.joined[at] <= round;
    return (at) => run.unseen[at] !== true && (clients !== "joined" || joined(at));
  }

  /* The chosen runs with the values of the chosen clients, null for the others; choice.method is null for all. */
  function chosenClients(data, choice) {
    const moment = (run) => run.moments[choice.moment] ?? run.moments.last;
    return data.clients.filter((run) => run.seed === choice.seed && moment(run)?.metrics[choice.title] &&
      (choice.method === null ? choice.shown[run.group] : run.group === choice.method)).map((run) => {
      const { round, metrics } = moment(run), kept = inside(run, choice.clients, round);
      const only = (values) => values?.map((value, at) => (number(value) && kept(at) ? value : null));
      const all = metrics[choice.title];
      const of = Object.fromEntries(MODELS.filter((m) => all[m]?.some((v, at) => number(v) && kept(at)))
        .map((m) => [m, only(all[m])]));
      const alone = data.clients.find((other) => other.alone && !run.alone && other.seed === run.seed &&
        other.names.join("\n") === run.names.join("\n"));
      const local = alone && only(moment(alone)?.metrics[choice.title]?.personal);
      if (local?.some(number)) of.local = local;
      return { ...run, of, label: plain(data.groups[run.group].label) };
    });
  }

  /* Clients in the order of a list of values, worst first; those without a value left out. */
  function ranked(values, higher) {
    const order = values.map((_, at) => at).filter((at) => number(values[at]));
    return order.sort((a, b) => (higher ? values[a] - values[b] : values[b] - values[a]));
  }

  /* One method: its clients in the order of their own model, with every other model beside it. */
  function besides(run, choice) {
    const first = ["personal", "shared", "localised", "local"].find((model) => run.of[model]);
    if (!first) return [];
    const order = ranked(run.of[first], choice.higher), own = ofGroup(run.group);
    const looks = {
      shared: { symbol: "circle-open", color: colour("ink"), size: 8, line: { width: 1.6 } },
      localised: { symbol: "triangle-up-open", color: colour("soft"), size: 8, line: { width: 1.6 } },
      before: { symbol: "diamond-open", color: colour("soft"), size: 8, line: { width: 1.6 } },
      personal: { symbol: symbol(run.group), color: own, size: 8 },
      local: { symbol: "x-thin", color: colour("ink"), size: 7, line: { width: 1.6, color: colour("ink") } },
    };
    return MODELS.filter((model) => run.of[model]).map((model) => {
      const name = run.alone && model === "personal" ? "local" : model;
      return {
        x: order.map((_, rank) => rank + 1), y: order.map((at) => run.of[model][at]),
        text: order.map((at) => named(run.names, at)), name, meta: name,
        mode: model === first ? "lines+markers" : "markers", line: { color: own, width: 2 }, marker: looks[model],
        hovertemplate: "client %{text}<br>%{meta} %{y}<extra></extra>",
      };
    });
  }

  /* Several methods: each model's clients sorted by themselves. */
  function apart(run, choice) {
    return ["shared", "personal"].filter((whose) => run.of[whose]).map((whose) => {
      const order = ranked(run.of[whose], choice.higher);
      return {
        x: order.map((_, rank) => rank + 1), y: order.map((at) => run.of[whose][at]),
        text: order.map((at) => named(run.names, at)),
        meta: run.label + (whose === "personal" ? ", personal" : ""), mode: "lines+markers",
        line: { color: ofGroup(run.group), width: 2.2, dash: whose === "personal" ? "dash" : "solid" },
        marker: { symbol: symbol(run.group), size: 6, maxdisplayed: 40 },
        hovertemplate: "%{meta}<br>client %{text}: %{y}<extra></extra>",
      };
    });
  }

  function sorted(data, choice, view) {
    const one = choice.method !== null;
    const traces = chosenClients(data, choice).flatMap((run) => (one ? besides : apart)(run, choice));
    const measure = { title: choice.title, percent: choice.percent };
    return [traces, layout(view, 400, {
      xaxis: axis("Clients, worst first"), yaxis: valueAxis(measure, view), showlegend: one && traces.length > 1,
      legend: { orientation: "h", x: 0.5, xanchor: "center", y: -0.2, yanchor: "top", itemclick: false, itemdoubleclick: false },
    })];
  }

  /* Where a client is better off with its own model: above the diagonal, or below it where less is better. */
  function sides(higher) {
    const corner = (text, x, y) => ({
      text, x, y, xref: "paper", yref: "paper", xanchor: x ? "right" : "left", yanchor: y ? "top" : "bottom",
      showarrow: false, font: { color: colour("soft") },
    });
    return [corner(higher ? "helped" : "harmed", 0, 1), corner(higher ? "harmed" : "helped", 1, 0)];
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
      marker: { color: ofGroup(run.group), size: 9, opacity: 0.75, symbol: symbol(run.group) },
      hovertemplate: "%{meta}<br>client %{text}<br>shared %{x}, personal %{y}<extra></extra>",
    }));
    const format = { range: ends, ...(choice.percent ? { tickformat: "~%", hoverformat: ".2%" } : {}) };
    return [[diagonal, ...points], layout(view, 400, {
      xaxis: axis("Shared model", format), yaxis: axis(view.narrow ? "" : "Personal model", format),
      annotations: sides(choice.higher),
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
    const each = counts?.[0]?.length <= 20;
    const ticks = each && of.classes ? { tickvals: of.classes.map((_, i) => i), ticktext: of.classes.map((_, i) => named(of.classes, i)) }
      : { dtick: each ? 1 : undefined };
    const few = clients <= (view.narrow ? 10 : 50);
    return [traces, layout(view, counts ? 560 : 280, {
      barmode: "stack", bargap: clients > 80 ? 0 : 0.15, showlegend: parts.length > 1,
      ...((view.narrow || view.width) && counts ? { height: 460 } : {}),
      legend: {
        orientation: "h", traceorder: "normal", itemclick: false, itemdoubleclick: false,
        ...(view.narrow ? { x: 0, y: counts ? -0.17 : -0.35, yanchor: "top" }
          : { x: 1, xanchor: "right", y: counts ? 0.29 : 1, yanchor: "bottom" }),
      },
      xaxis: axis("Client", few ? { tickvals: at, ticktext: names, showgrid: false } : { showgrid: false }),
      yaxis: axis("Rows", { domain: counts ? [0, 0.28] : [0, 1] }),
      ...(counts ? { yaxis2: axis("Label", { domain: [0.38, 1], showgrid: false, zeroline: false, ...ticks }) } : {}),
    })];
  }

  return { axis, coinciding, colour, curves, layout, number, ofGroup, partition, plain, scatter, sorted, symbol, valueAxis, zoomed };
})();
