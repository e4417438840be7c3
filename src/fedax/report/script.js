/* The controls: they say what is shown, and every change draws the pictures it concerns again. */
const ready = (async () => {
  const element = (id) => document.getElementById(id);
  let data;
  try {
    const plotly = document.createElement("script");
    [data, plotly.textContent] = await Promise.all([unpack("data").then(JSON.parse), unpack("plotly")]);
    document.head.append(plotly);
  } catch (error) {
    element("failed").hidden = false;
    throw error;
  }
  /* Never changed between drawings: Plotly would start the chart from the beginning, and two such starts at once never end. */
  const config = {
    responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    showSendToCloud: false, plotlyServerURL: "", // the page sends nothing anywhere
  };
  const shown = data.groups.map(() => true);
  let printing = false;

  function view() {
    const narrow = !printing && window.matchMedia("(max-width: 600px)").matches;
    return { narrow, touch: window.matchMedia("(pointer: coarse)").matches, width: printing ? 680 : undefined };
  }

  function draw(id, [traces, layout]) {
    const chart = element(id);
    const beside = [...(chart.closest(".pair, .quads")?.children ?? [])].filter((one) => !one.hidden);
    if (printing && beside.length > 1) layout.width = 330; // two beside each other
    Plotly.react(chart, traces, layout, config);
    numbers.follow(chart);
  }

  function fill(select, options) {
    options.forEach(([value, text]) => {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = text;
      select.append(option);
    });
    const label = select.closest("label");
    if (options.length < 2 && label) label.hidden = true;
  }

  const swatchOf = (i) => `swatch c${i % 8} s${i % 7}`;

  const pressed = (id) => element(id).getAttribute("aria-pressed") === "true";

  /* What the lines, bands and marks of the curves mean, as far as there are any. */
  function curveNote(measure, choice) {
    const groups = data.groups.filter((_, i) => shown[i]), several = groups.some((group) => group.runs > 1);
    const stopped = data.curves.some((curve, i) => shown[i] && curve.stops.length);
    const models = { shared: "shared models", personal: "personal models" };
    const same = charts.coinciding(data, choice).map((set) =>
      `The curves of ${set.groups.map((i) => data.groups[i].label).join(" and ")} coincide: their ${models[set.whose]} have the same values.`);
    return [
      ...same, several ? "Line: mean over seeds. Band: from the lowest seed to the highest." : "",
      stopped ? "A cross marks where a run stopped early; from there on the line is the mean of the seeds that went on." : "",
      choice.goal === null ? "" : "Dotted: the target below.",
    ].filter(Boolean).join(" ");
  }

  const goals = {}; // the reader's targets, by measure
  function drawCurves() {
    const place = element("curve-measure").value, measure = data.measures[place];
    const goal = goals[place] ?? target.usual(data, measure);
    const choice = {
      shown, measure, axis: element("curve-axis").value, goal: goal === null ? null : goal / (measure.percent ? 100 : 1),
      log: pressed("curve-log"), zoom: pressed("curve-zoom"),
    };
    element("curve-zoom").hidden = !charts.curves(data, { ...choice, zoom: true }, view())[1].yaxis.range;
    element("curve-note").textContent = curveNote(measure, choice);
    element("curves").setAttribute("aria-label", `${measure.title} against ${data.axes[choice.axis]}${ends(measure)}`);
    draw("curves", charts.curves(data, choice, view()));
    drawDiagnostics();
    element("target-part").hidden = goal === null;
    if (goal !== null) showCosts(measure, goal);
  }

  /* Where each curve ends, in words. */
  function ends(measure) {
    const said = data.curves.flatMap((curve, i) => (shown[i] ? ["shared", "personal"] : []).flatMap((whose) => {
      const last = curve.y[measure[whose]]?.mean.filter(charts.number).pop();
      const value = measure.percent ? `${(100 * last).toFixed(1)} %` : Number(last?.toPrecision(4));
      return last === undefined ? [] : [`${data.groups[i].label}${whose === "personal" ? ", personal," : ""} ends at ${value}`];
    }));
    return said.map((words) => `; ${words}`).join("");
  }

  const tells = (measure) => data.curves.some((curve) =>
    [measure.shared, measure.personal].some((key) => curve.y[key]?.mean.some(Boolean)));
  const diagnostics = data.measures.filter((measure) => measure.tells && tells(measure)); // none that is 0 throughout
  function drawDiagnostics() {
    const axis = element("curve-axis").value;
    diagnostics.forEach((measure, i) => {
      const choice = { shown, measure, axis, goal: null, log: positive(measure) };
      draw(`diagnostic-${i}`, charts.curves(data, choice, view(), 260));
    });
  }

  /* Whether a logarithmic axis leaves nothing out. */
  const positive = (measure) => data.curves.every((curve) => [measure.shared, measure.personal].every((key) => {
    const known = (curve.y[key]?.mean ?? []).filter((value) => value !== null);
    return known.every((value) => value > 0) || !known.some(Boolean); // a line of zeros is left out
  }));

  function drawProgress() {
    const measure = data.measures[element("progress-measure").value];
    element("progress").setAttribute("aria-label", `Density against ${measure.title}, each method over the rounds`);
    draw("progress", composite.paths(data, measure, shown, view()));
    element("progress-corner").textContent = measure.better === "max" ? "upper" : "lower";
  }

  function cell(kind, words, more) {
    const made = Object.assign(document.createElement(kind), more);
    made.append(...[words].flat());
    return made;
  }

  /* Row for row what each model had spent when it met the target; the least of a column is bold. */
  function showCosts(measure, goal) {
    const input = element("target"), unit = measure.percent ? " %" : "";
    if (document.activeElement !== input) input.value = goal;
    input.step = measure.percent ? 1 : 10 ** (Math.floor(Math.log10(Math.abs(goal) || 1)) - 1);
    element("target-name").textContent = `${measure.title}${unit && ", %"}`;
    const lines = target.costs(data, measure, goal).filter((line) => shown[line.group]);
    const met = lines.filter((line) => line.at >= 0);
    const least = Object.keys(data.axes).map((axis, i) => {
      if (axis === "seconds") return null; // the machine's
      const spent = met.map((line) => line.spent[i]).filter((value) => value !== null);
      return data.comparable && new Set(spent).size > 1 ? Math.min(...spent) : null;
    });
    const rows = lines.map((line) => {
      const label = data.groups[line.group].label + (line.whose === "personal" ? ", personal" : "");
      const swatch = cell("span", [], { className: swatchOf(line.group) });
      const head = cell("th", [swatch, label], { scope: "row" });
      if (line.at >= 0) {
        return cell("tr", [head, ...line.spent.map((value, i) => {
          const words = value === null ? "–" : target.count(value);
          return cell("td", value !== null && value === least[i] ? cell("strong", words) : words);
        })]);
      }
      const near = line.near === null ? "" : `; its best is ${Number(line.near.toPrecision(4))}${unit}`;
      return cell("tr", [head, cell("td", `not reached${near}`, { colSpan: line.spent.length, className: "unfinished" })]);
    });
    element("target-rows").replaceChildren(...rows);
    element("target-caption").textContent =
      `Until ${measure.title[0].toLowerCase()}${measure.title.slice(1)} is ${goal}${unit} or better: reached by ${met.length} of ${lines.length}`;
  }

  function drawClients() {
    const title = element("client-measure").value, chosen = element("client-method").value;
    const moments = data.clients.flatMap((run) => Object.values(run.moments));
    const choice = {
      shown, title, percent: moments.some((moment) => moment.metrics[title]?.percent),
      higher: moments.some((moment) => moment.metrics[title]?.higher),
      seed: element("client-seed").value, clients: element("client-group").value, moment: element("moment").value,
      method: chosen === "" ? null : Number(chosen),
    };
    document.querySelectorAll("[data-moment]").forEach((of) => (of.hidden = of.dataset.moment !== choice.moment));
    const both = charts.scatter(data, choice, view());
    element("scatter-figure").hidden = !both;
    element("sorted-caption").textContent = choice.method === null
      ? "Clients from worst to best, each model by itself" : "Clients from worst to best, a client's models above each other";
    element("client-note").textContent = clientNote(choice);
    draw("sorted", charts.sorted(data, choice, view()));
    if (both) draw("scatter", both);
  }

  function clientNote(choice) {
    const run = data.clients.find((one) => one.group === choice.method && one.seed === choice.seed);
    const moment = run && (run.moments[choice.moment] ?? run.moments.last);
    if (choice.method === null) return "";
    const label = data.groups[choice.method].label, of = moment?.metrics[choice.title];
    if (!of) return `${label} left no values of its clients with this seed.`;
    const at = moment.round === null ? "" : `${label} at round ${moment.round}. `;
    if (!of.personal) return `${at}It has no personal models: clients use the shared one.`;
    return of.shared ? at : `${at}It has no shared model: every client trains alone.`;
  }

  function drawPartition() {
    const of = data.partitions[element("partition-choice").value];
    draw("partition", charts.partition(of, view()));
    element("partition-words").textContent = of.words;
  }

  function drawSweeps() {
    data.sweeps.forEach((sweep, s) => {
      sweep.methods.forEach((method, i) => {
        element(`heat-${s}-${i}`).closest("figure").hidden = !shown[method.group];
        if (shown[method.group]) draw(`heat-${s}-${i}`, composite.heat(sweep, i, view()));
      });
      sweep.progress?.rounds.forEach((_, at) =>
        draw(`progress-${s}-${at}`, composite.progress(sweep, at, data.groups, shown, view())));
    });
  }

  const sections = [];
  function section(id, exists, setUp, drawIt) {
    if (!exists) return;
    element(id).hidden = false;
    setUp();
    sections.push(drawIt);
  }
  const drawAll = () => sections.forEach((drawIt) => drawIt());

  function setUpMethods() {
    data.groups.forEach((group, i) => {
      const label = document.createElement("label"), box = document.createElement("input");
      const swatch = document.createElement("span");
      box.type = "checkbox";
      box.checked = true;
      swatch.className = swatchOf(i);
      box.addEventListener("change", () => {
        shown[i] = box.checked;
        drawAll();
      });
      label.append(box, swatch, group.label);
      element("methods").append(label);
    });
    const both = data.measures.some((measure) => measure.shared && measure.personal);
    element("key").hidden = !both;
    element("methods-section").hidden = data.groups.length < 2 && !both; // nothing to choose
  }

  function setUpCurves() {
    fill(element("curve-measure"), data.measures.map((measure, i) => [i, measure.title]));
    fill(element("curve-axis"), Object.entries(data.axes));
    for (const id of ["curve-zoom", "curve-log"]) {
      element(id).addEventListener("click", () => {
        element(id).setAttribute("aria-pressed", !pressed(id));
        drawCurves();
      });
    }
    for (const id of ["curve-measure", "curve-axis"]) element(id).addEventListener("change", drawCurves);
    const heads = Object.values(data.axes).map((title) => cell("th", title, { scope: "col" }));
    element("target-heads").append(...heads);
    element("target").addEventListener("input", (event) => {
      const given = event.target.valueAsNumber;
      if (Number.isFinite(given)) goals[element("curve-measure").value] = given;
      else delete goals[element("curve-measure").value];
      drawCurves();
    });
    element("target").addEventListener("blur", drawCurves);
  }

  function setUpClients() {
    const runs = data.clients.filter((run) => Object.keys(run.moments).length);
    const moments = runs.flatMap((run) => Object.values(run.moments));
    const titles = [...new Set(moments.flatMap((moment) => Object.keys(moment.metrics)))].sort();
    const methods = [...new Set(runs.map((run) => run.group))];
    const own = runs.find((run) => !run.alone && Object.values(run.moments.last.metrics).some((of) => of.personal));
    const has = (clients) => runs.some((run) => clients === "unseen" ? run.unseen.includes(true)
      : run.joined.some((at, i) => !run.unseen[i] && (at === 0 || Object.values(run.moments).some((m) => at > m.round))));
    const groups = { all: "all that train", joined: "those that took part", unseen: "held out from training" };
    fill(element("client-measure"), titles.map((title) => [title, title]));
    fill(element("client-seed"), [...new Set(runs.map((run) => run.seed))].map((seed) => [seed, seed]));
    fill(element("client-method"), [...methods.map((i) => [i, data.groups[i].label]), ["", "all that are shown"]]);
    element("client-method").value = own ? own.group : "";
    fill(element("client-group"), Object.entries(groups).filter(([name]) => name === "all" || has(name)));
    const kept = Object.entries({ last: "last round", chosen: "round chosen on validation rows" });
    fill(element("moment"), kept.filter(([name]) => runs.some((run) => run.moments[name])));
    for (const id of ["client-measure", "client-seed", "client-method", "client-group", "moment"]) {
      element(id).addEventListener("change", drawClients);
    }
    element("moment-part").hidden = element("client-pictures").hidden = false;
  }

  function setUpPartition() {
    fill(element("partition-choice"), data.partitions.map((of, i) => [i, of.title]));
    element("partition-choice").addEventListener("change", drawPartition);
  }

  /* A chart with its caption, and in words what it shows. */
  function addFigure(where, id, caption, label = caption) {
    const chart = cell("div", [], { id, className: "chart" });
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", label);
    element(where).append(cell("figure", [cell("figcaption", caption), chart]));
  }

  function setUpSweeps() {
    data.sweeps.forEach((sweep, s) => {
      const { name, title, how, methods, progress } = sweep;
      methods.forEach((method, i) =>
        addFigure("sweep-heat", `heat-${s}-${i}`, `${data.groups[method.group].label}: ${title}, ${how}`));
      progress?.rounds.forEach((round, at) =>
        addFigure("sweep-progress", `progress-${s}-${at}`, data.sweeps.length > 1 ? `${name}, round ${round}` : `Round ${round}`,
          `Density against ${progress.title}, every setting at round ${round}`));
    });
    const drawn = data.sweeps.filter((sweep) => sweep.progress).map((sweep) => sweep.progress.title);
    element("sweep-progress-part").hidden = !drawn.length;
    element("sweep-progress-title").textContent =
      `Progress: density against ${[...new Set(drawn)].join(" or ")}, one point a setting and seed`;
  }

  /* The measures that some method has a density beside, with their places. */
  const judged = [...data.measures.entries()].filter(([, m]) => m.better && !m.tells && data.curves.some((curve) =>
    (curve.y[m.shared] && curve.y.density) || (curve.y[m.personal] && curve.y.personal_density)));

  function setUpProgress() {
    fill(element("progress-measure"), judged.map(([i, measure]) => [i, measure.title]));
    const usual = judged.find(([, m]) => m.shared === "f1" || m.personal === "personal_f1");
    element("progress-measure").value = (usual ?? judged[0])[0];
    element("progress-measure").addEventListener("change", drawProgress);
  }

  function setUpDiagnostics() {
    diagnostics.forEach((measure, i) => addFigure("diagnostics", `diagnostic-${i}`, `${measure.title}: ${measure.tells}`));
  }

  const evaluated = data.measures.length > 0;
  const measured = data.clients.some((run) => Object.keys(run.moments).length);
  section("methods-section", evaluated || measured, setUpMethods, () => {});
  section("diagnostics-section", diagnostics.length, setUpDiagnostics, () => {}); // drawn with the curves
  section("curves-section", evaluated, setUpCurves, drawCurves);
  section("progress-section", judged.length, setUpProgress, drawProgress);
  section("sweep-section", data.sweeps.some((sweep) => sweep.methods.length), setUpSweeps, drawSweeps);
  section("clients-section", measured, setUpClients, drawClients);
  section("partition-section", data.partitions.length > 0, setUpPartition, drawPartition);
  drawAll();

  for (const query of ["(prefers-color-scheme: dark)", "(max-width: 600px)"]) {
    window.matchMedia(query).addEventListener("change", drawAll);
  }
  let opened = [];
  function inPrint(now) {
    printing = now;
    document.documentElement.classList.toggle("printing", now); // light colours, whatever the screen has
  }
  window.addEventListener("beforeprint", () => {
    inPrint(true);
    opened = [...document.querySelectorAll("details:not([open], .numbers)")];
    opened.forEach((one) => (one.open = true));
    drawAll();
  });
  window.addEventListener("afterprint", () => {
    inPrint(false);
    opened.forEach((one) => (one.open = false));
    drawAll();
  });
})();
