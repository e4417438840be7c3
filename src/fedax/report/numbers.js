/* A chart's numbers as a table, on demand: for those who cannot see it, and those who want the values. */
const numbers = (() => {
  const POINTS = 20, ROWS = 200; // of a curve, which is thinned; of any other list, which is cut

  /* Labels were escaped for Plotly. */
  const raw = (text) => String(text ?? "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

  function shown(value, axis) {
    if (typeof value !== "number") return raw(value ?? "–");
    return axis?.tickformat === "~%" ? `${(100 * value).toFixed(2)} %` : String(Number(value.toPrecision(5)));
  }

  function row(kind, words) {
    const made = document.createElement("tr");
    made.append(...words.map((text, i) => {
      const cell = document.createElement(kind === "th" || i === 0 ? "th" : "td");
      if (cell.tagName === "TH") cell.scope = kind === "th" ? "col" : "row";
      cell.textContent = text;
      return cell;
    }));
    return made;
  }

  function table(heads, lines) {
    const made = document.createElement("table"), head = document.createElement("thead");
    const body = document.createElement("tbody");
    head.append(row("th", heads));
    body.append(...lines.slice(0, ROWS).map((line) => row("td", line)));
    made.append(head, body);
    if (lines.length > ROWS) made.append(row("td", [`the first ${ROWS} of ${lines.length}`]));
    return made;
  }

  function thinned(places, curve) {
    const every = curve ? Math.ceil(places.length / POINTS) : 1;
    return places.filter((_, i) => i % every === 0 || i === places.length - 1);
  }

  /* Lines, points and bars: a row each. */
  function listed(traces, layout) {
    const named = traces.some((trace) => trace.text), ranged = traces.some((trace) => trace.customdata);
    const lines = traces.flatMap((trace) => {
      const there = [...trace.x.keys()].filter((at) => trace.x[at] !== null && trace.y[at] !== null);
      return thinned(there, trace.mode?.includes("lines") && !trace.text).map((at) => [
        raw(trace.meta ?? trace.name), ...(named ? [raw(trace.text?.[at])] : []), shown(trace.x[at], layout.xaxis),
        shown(trace.y[at], layout.yaxis),
        ...(ranged ? [trace.customdata ? trace.customdata[at].map((v) => shown(v, layout.yaxis)).join(" to ") : ""] : []),
      ]);
    });
    const [x, y] = [layout.xaxis, layout.yaxis].map((axis, i) => raw(axis?.title?.text) || ["x", "Value"][i]);
    return table(["Series", ...(named ? ["Name"] : []), x, y, ...(ranged ? ["Over seeds"] : [])], lines);
  }

  /* A heat map: a row for each of its columns, for these are the many. */
  function gridded(trace, layout) {
    const columns = trace.text?.[0] ?? trace.x, axis = trace.yaxis === "y2" ? layout.yaxis2 : layout.yaxis;
    const corner = `${raw(layout.xaxis?.title?.text)} \\ ${raw(axis?.title?.text)}`;
    return table([corner, ...trace.y.map((label, at) => raw(axis?.ticktext?.[at] ?? label))],
      columns.map((label, at) => [raw(label), ...trace.z.map((line) => shown(line[at]))]));
  }

  function fill(details, chart) {
    const seen = chart.data.filter((trace) => trace.hoverinfo !== "skip");
    const lists = seen.filter((trace) => trace.type !== "heatmap" && trace.x.length);
    const tables = seen.filter((trace) => trace.type === "heatmap").map((trace) => gridded(trace, chart.layout));
    if (lists.length) tables.push(listed(lists, chart.layout));
    details.lastElementChild.replaceChildren(...tables);
  }

  /* Keeps the table under a chart up to date; it is made when it is first opened. */
  function follow(chart) {
    let details = chart.nextElementSibling;
    if (!details?.matches(".numbers")) {
      details = document.createElement("details");
      const summary = document.createElement("summary"), box = document.createElement("div");
      details.className = "numbers";
      summary.textContent = "As a table";
      box.className = "scroll";
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      details.append(summary, box);
      details.addEventListener("toggle", () => details.open && fill(details, chart));
      chart.after(details);
    }
    details.lastElementChild.setAttribute("aria-label", `${chart.getAttribute("aria-label")}, as a table`);
    if (details.open) fill(details, chart);
  }

  return { follow };
})();
