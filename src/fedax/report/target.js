/* What reaching a target costs: the first evaluated round at which a curve, the mean over seeds, meets it. */
const target = (() => {
  const number = (value) => typeof value === "number" && Number.isFinite(value);
  const last = (values) => values[values.length - 1];
  const pick = (better, values) => values.reduce((a, b) => (better === "max" ? Math.max(a, b) : Math.min(a, b)));
  const worse = (better) => (better === "max" ? "min" : "max");

  const scale = (measure) => (measure.percent ? 100 : 1);

  /* The worst method's final value, each method by the better of its models, as the reader sees it: rounded so
     that this method still meets it. Methods that stopped early count where none finished. */
  function usual(data, measure) {
    const finals = data.curves.map((curve, i) => {
      const ends = [measure.shared, measure.personal].map((key) => curve.y[key]).filter(Boolean)
        .map((of) => last(of.mean)).filter(number);
      return { finished: data.groups[i].finished, value: ends.length ? pick(measure.better, ends) : null };
    }).filter((end) => number(end.value));
    const ended = finals.filter((end) => end.finished), judged = ended.length ? ended : finals;
    if (!measure.better || !judged.length) return null;
    const value = pick(worse(measure.better), judged.map((end) => end.value)) * scale(measure);
    const unit = measure.percent ? 0.01 : 10 ** (Math.floor(Math.log10(Math.abs(value) || 1)) - 3);
    const steps = measure.better === "max" ? Math.floor(value / unit + 1e-6) : Math.ceil(value / unit - 1e-6);
    return Number((steps * unit).toPrecision(8));
  }

  /* A line for each model that has a curve: where it first meets the goal (in the reader's units) and what it had
     spent by then on every axis; at is -1, and near its best value, if it never does. */
  function costs(data, measure, goal) {
    const wanted = goal / scale(measure), slack = 1e-9 * Math.abs(wanted);
    const meets = (value) =>
      number(value) && (measure.better === "max" ? value >= wanted - slack : value <= wanted + slack);
    return data.curves.flatMap((curve, group) => ["shared", "personal"].flatMap((whose) => {
      const of = curve.y[measure[whose]];
      if (!of) return [];
      const at = of.mean.findIndex(meets), known = of.mean.filter(number);
      const spent = Object.keys(data.axes).map((axis) => (at < 0 ? null : curve.x[axis]?.[at] ?? null));
      return [{ group, whose, at, spent, near: known.length ? pick(measure.better, known) * scale(measure) : null }];
    }));
  }

  /* As the tables print them: counts in thousands, millions and so on. */
  function count(value) {
    for (const [size, name, by] of [[1e12, "T", 1e12], [1e9, "G", 1e9], [1e6, "M", 1e6], [1e4, "k", 1e3]]) {
      if (Math.abs(value) >= size) return `${Number((value / by).toPrecision(3))} ${name}`;
    }
    return String(value < 100 ? Number(value.toPrecision(3)) : Math.round(value));
  }

  return { usual, costs, count };
})();
