/* The figures of sweeps and of composite problems. */
const composite = (() => {
  const { axis, colour, layout, number, ofGroup, plain, symbol, valueAxis } = charts;

  /* The score over two hyper-parameters, with its values printed where there is room. */
  function heat(sweep, at, view) {
    const { title, fields, axes, goal, methods, percent } = sweep;
    const all = methods.flatMap((method) => method.z.flat()).filter(number);
    const ends = [colour("low"), colour("high")];
    if (goal === "min") ends.reverse();
    const label = (name) => (view.narrow || !name ? "" : name);
    const short = `%{z:${percent ? ".0%" : ".2~g"}}`, long = `%{z:${percent ? ".1%" : ".3~g"}}`;
    const printed = view.width ? { texttemplate: short, textfont: { size: 9 }, showscale: false } : { texttemplate: long };
    return [[{
      type: "heatmap", x: axes[0], y: axes[1] ?? [""], z: methods[at].z, xgap: 1, ygap: 1, hoverongaps: false,
      zmin: all.length ? Math.min(...all) : 0, zmax: all.length ? Math.max(...all) : 1,
      colorscale: [[0, ends[0]], [1, ends[1]]], colorbar: { thickness: 12, outlinewidth: 0, ...(percent ? { tickformat: ".0%" } : {}) },
      ...(axes[0].length <= 8 && !view.narrow ? printed : {}),
      hovertemplate: `${plain(fields[0])} %{x}${fields[1] ? `, ${plain(fields[1])} %{y}` : ""}` +
        `<br>${plain(title)} %{z:${percent ? ".2%" : ".5~g"}}<extra></extra>`,
    }], layout(view, fields[1] ? 340 : 200, {
      xaxis: axis(fields[0], { type: "category", showgrid: false }),
      yaxis: axis(label(fields[1]), { type: "category", showgrid: false }),
    })];
  }

  function ends(values) {
    const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
    const edge = 0.06 * (high - low || Math.abs(high) || 1);
    return [low - edge, high + edge];
  }

  /* Every setting of every method at one of the rounds; all rounds have the same axes. */
  function progress(sweep, at, groups, shown, view) {
    const { points, ...measure } = sweep.progress, all = points.flat(2);
    const traces = sweep.methods.map(({ group }, i) => ({ group, here: points[i][at] }))
      .filter(({ group, here }) => shown[group] && here.length).map(({ group, here }) => ({
        x: here.map((point) => point[0]), y: here.map((point) => point[1]), text: here.map((point) => plain(point[2])),
        meta: plain(groups[group].label), mode: "markers",
        marker: { color: ofGroup(group), size: 8, opacity: 0.75, symbol: symbol(group) },
        hovertemplate: "%{meta}<br>%{text}<br>density %{x}, %{y}<extra></extra>",
      }));
    const range = (place) => (all.length ? { range: ends(all.map((point) => point[place])) } : {});
    return [traces, layout(view, 280, {
      xaxis: axis("Density", { ...range(0), hoverformat: ".4~g" }), yaxis: valueAxis(measure, view, range(1)),
    })];
  }

  /* Each method's way over the rounds, from an open mark to a large one. */
  function paths(data, measure, shown, view) {
    const traces = data.curves.flatMap((curve, i) => (shown[i] ? ["shared", "personal"] : []).flatMap((whose) => {
      const of = curve.y[measure[whose]], density = curve.y[whose === "shared" ? "density" : "personal_density"];
      if (!of || !density) return [];
      const kept = of.mean.map((_, at) => at).filter((at) => number(of.mean[at]) && number(density.mean[at]));
      const last = kept.length - 1, label = plain(data.groups[i].label) + (whose === "personal" ? ", personal" : "");
      return [{
        x: kept.map((at) => density.mean[at]), y: kept.map((at) => of.mean[at]),
        text: kept.map((at) => `round ${curve.x.round[at]}`), meta: label, mode: "lines+markers",
        line: { color: ofGroup(i), width: 2, dash: whose === "personal" ? "dash" : "solid" },
        marker: { symbol: symbol(i), size: kept.map((_, at) => (at === last ? 15 : 6)), opacity: 1 },
        hovertemplate: "%{meta}<br>%{text}<br>density %{x}, %{y}<extra></extra>",
      }];
    }));
    return [traces, layout(view, 420, { xaxis: axis("Density", { hoverformat: ".4~g" }), yaxis: valueAxis(measure, view) })];
  }

  return { heat, progress, paths };
})();
