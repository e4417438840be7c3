/* The controls: they say what is shown, and every change draws the pictures it concerns again. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (id) => document.getElementById(id);
  /* Never changed between drawings: Plotly starts a chart anew then, and two such at once never end. */
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

  function draw(id, figure) {
    return Plotly.react(element(id), figure[0], figure[1], config);
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

  function drawCurves() {
    const choice = {
      shown, measure: data.measures[element("curve-measure").value], axis: element("curve-axis").value,
      log: element("curve-log").getAttribute("aria-pressed") === "true",
    };
    draw("curves", charts.curves(data, choice, view()));
    element("curves").setAttribute("aria-label", `${choice.measure.title} against ${data.axes[choice.axis]}`);
  }

  function drawClients() {
    const title = element("client-measure").value;
    const percent = data.clients.some((run) => run.metrics[title]?.percent);
    const choice = { shown, title, percent, seed: element("client-seed").value };
    const both = charts.scatter(data, choice, view());
    element("scatter-figure").hidden = !both;
    draw("sorted", charts.sorted(data, choice, view()));
    if (both) draw("scatter", both);
  }

  function drawPartition() {
    draw("partition", charts.partition(data.partitions[element("partition-choice").value], view()));
  }

  function drawSweep() {
    data.sweep.methods.forEach((method, i) => {
      element(`heat-${i}`).closest("figure").hidden = !shown[method.group];
      if (shown[method.group]) draw(`heat-${i}`, charts.heat(data.sweep, i, view()));
    });
    if (data.sweep.dense) draw("dense", charts.dense(data.sweep, shown, view()));
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
      swatch.className = `swatch c${i % 8}`;
      box.addEventListener("change", () => {
        shown[i] = box.checked;
        drawAll();
      });
      label.append(box, swatch, group.label);
      element("methods").append(label);
    });
  }

  function setUpCurves() {
    fill(element("curve-measure"), data.measures.map((measure, i) => [i, measure.title]));
    fill(element("curve-axis"), Object.entries(data.axes));
    const log = element("curve-log");
    log.addEventListener("click", () => {
      log.setAttribute("aria-pressed", log.getAttribute("aria-pressed") !== "true");
      drawCurves();
    });
    for (const id of ["curve-measure", "curve-axis"]) element(id).addEventListener("change", drawCurves);
  }

  function setUpClients() {
    const titles = [...new Set(data.clients.flatMap((run) => Object.keys(run.metrics)))].sort();
    const seeds = [...new Set(data.clients.filter((run) => Object.keys(run.metrics).length).map((run) => run.seed))];
    fill(element("client-measure"), titles.map((title) => [title, title]));
    fill(element("client-seed"), seeds.map((seed) => [seed, seed]));
    for (const id of ["client-measure", "client-seed"]) element(id).addEventListener("change", drawClients);
  }

  function setUpPartition() {
    fill(element("partition-choice"), data.partitions.map((of, i) => [i, of.title]));
    element("partition-choice").addEventListener("change", drawPartition);
  }

  function setUpSweep() {
    const { title, how, methods, dense } = data.sweep;
    methods.forEach((method, i) => {
      const figure = document.createElement("figure"), caption = document.createElement("figcaption");
      const chart = document.createElement("div");
      caption.textContent = `${method.label}: ${title}, ${how}`;
      chart.className = "chart";
      chart.id = `heat-${i}`;
      chart.setAttribute("role", "img");
      chart.setAttribute("aria-label", `${caption.textContent}, over the settings`);
      figure.append(caption, chart);
      element("sweep-heat").append(figure);
    });
    element("dense-figure").hidden = !dense;
  }

  const evaluated = data.measures.length > 0;
  const measured = data.clients.some((run) => Object.keys(run.metrics).length);
  section("methods-section", evaluated || measured, setUpMethods, () => {});
  section("curves-section", evaluated, setUpCurves, drawCurves);
  section("sweep-section", data.sweep?.methods.length, setUpSweep, drawSweep);
  section("clients-section", measured, setUpClients, drawClients);
  section("partition-section", data.partitions.length > 0, setUpPartition, drawPartition);
  drawAll();

  for (const query of ["(prefers-color-scheme: dark)", "(max-width: 600px)"]) {
    window.matchMedia(query).addEventListener("change", drawAll);
  }
  let opened = [];
  window.addEventListener("beforeprint", () => {
    printing = true;
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((one) => (one.open = true));
    drawAll();
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    opened.forEach((one) => (one.open = false));
    drawAll();
  });
})();
