"use strict";
// Controls and drawing of the what-if view; distributions come from whatif.js.
(function () {
  var engine = window.deeptramWhatIf, spec = engine.spec, root = document.getElementById("what-if-view");
  var QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95], SVG = "http://www.w3.org/2000/svg", W = root.clientWidth < 480 ? 350 : root.clientWidth < 1000 ? 420 : 560, H = 250, LEFT = 44, RIGHT = 12, TOP = 26, BOTTOM = 40;
  var x = {}, row = 0, controls = {};

  function element(name, attributes, text) {
    var made = document.createElement(name);
    Object.keys(attributes || {}).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    if (text !== undefined) made.textContent = text;
    return made;
  }
  function drawn(name, attributes, text) {
    var made = document.createElementNS(SVG, name);
    Object.keys(attributes).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    if (text !== undefined) made.textContent = text;
    return made;
  }
  function digits(v) {
    if (v === Infinity) return "∞";
    if (v === -Infinity) return "−∞";
    var size = Math.abs(v), shown = Number.isInteger(v) ? String(v) : size !== 0 && (size < 1e-3 || size >= 1e6) ? v.toExponential(2) : String(+v.toPrecision(4));
    return shown.replace("-", "−");
  }
  function percent(p) { return (100 * p).toFixed(1) + " %"; }

  // -- controls ------------------------------------------------------------------------------------
  function addRowChoice(to) {
    var label = element("label", { "for": "what-if-row" }, "Start from"), select = element("select", { id: "what-if-row" });
    spec.rows.forEach(function (one, k) { select.appendChild(element("option", { value: k }, one.label)); });
    select.addEventListener("change", function () { row = +select.value; reset(); });
    var line = element("div", { "class": "control" });
    line.appendChild(label); line.appendChild(select); to.appendChild(line);
  }
  function addControl(to, input, k) {
    var id = "what-if-" + k, line = element("div", { "class": "control" }), box, out = element("output", { "for": id });
    line.appendChild(element("label", { "for": id }, input.name + (input.fixed ? " (fixed)" : "")));
    if (input.options) {
      box = element("select", { id: id });
      input.options.forEach(function (option, j) { box.appendChild(element("option", { value: j }, String(option))); });
      box.addEventListener("change", function () { x[input.name] = input.options[+box.value]; update(); });
      controls[input.name] = function (v) { box.value = input.options.indexOf(v); };
    } else {
      var low = input.range[0], high = input.range[1];
      box = element("input", { id: id, type: "range", min: low, max: high, step: input.whole ? 1 : (high - low) / 500 || "any" });
      box.addEventListener("input", function () { x[input.name] = +box.value; out.textContent = digits(+box.value); update(); });
      controls[input.name] = function (v) { box.value = v; out.textContent = digits(v); };
    }
    if (input.fixed) box.disabled = true;
    line.appendChild(box);
    if (!input.options) line.appendChild(out);
    to.appendChild(line);
  }
  function reset() {
    x = Object.assign({}, spec.rows[row].values);
    spec.inputs.forEach(function (input) { controls[input.name](x[input.name]); });
    update();
  }

  // -- drawing ----------------------------------------------------------------------------------------
  var svg = drawn("svg", { viewBox: "0 0 " + W + " " + H, role: "img", "aria-label": "Predicted distribution at the chosen covariates" });
  function across(u) { return LEFT + u * (W - LEFT - RIGHT); }
  function up(v) { return H - BOTTOM - v * (H - BOTTOM - TOP); }
  function nice(low, high) {  // round numbers between two ends
    var rough = (high - low) / 5, size = Math.pow(10, Math.floor(Math.log10(rough))), marks = [];
    var step = size * [1, 2, 5, 10].find(function (k) { return k * size >= rough; });
    for (var k = Math.ceil(low / step); k * step <= high * (1 + 1e-12); k++) marks.push(+(k * step).toPrecision(12));
    return marks;
  }
  function axis(marks, label, top, upright) {
    svg.appendChild(drawn("line", { x1: LEFT, x2: W - RIGHT, y1: up(0), y2: up(0), "class": "axis" }));
    marks.forEach(function (mark) {
      svg.appendChild(drawn("text", { x: across(mark[0]), y: H - BOTTOM + 15, "text-anchor": "middle", "class": "tick" }, mark[1]));
    });
    svg.appendChild(drawn("text", { x: (LEFT + W - RIGHT) / 2, y: H - 6, "text-anchor": "middle", "class": "tick" }, label));
    svg.appendChild(drawn("text", { x: 2, y: 12, "class": "tick" }, upright));
    nice(0, top).forEach(function (v) {
      svg.appendChild(drawn("text", { x: LEFT - 5, y: up(v / top) + 4, "text-anchor": "end", "class": "tick" }, digits(v)));
    });
  }
  function clear() { while (svg.firstChild) svg.removeChild(svg.firstChild); }

  function masses(cdf) { return cdf.map(function (v, k) { return k ? v - cdf[k - 1] : v; }); }
  function drawBars(names, mine, members, before) {
    clear();
    var top = Math.max.apply(null, [].concat(mine, before, [].concat.apply([], members))), width = 1 / names.length;
    top = Math.min(1, Math.ceil(top * 10.5) / 10);
    names.forEach(function (name, k) {
      var middle = (k + 0.5) * width;
      svg.appendChild(drawn("rect", { x: across(middle - 0.36 * width), width: across(0.72 * width) - LEFT, y: up(mine[k] / top), height: up(0) - up(mine[k] / top), "class": "bar", "data-tip": "P(Y = " + name + ") = " + percent(mine[k]) }));
      svg.appendChild(drawn("path", { d: "M" + across(middle - 0.42 * width) + " " + up(before[k] / top) + "H" + across(middle + 0.42 * width), "class": "before" }));
      if (members.length > 1) members.forEach(function (one, m) {
        svg.appendChild(drawn("circle", { cx: across(middle + 0.3 * width * ((m + 0.5) / members.length - 0.5)), cy: up(one[k] / top), r: 2.4, "class": "member", "data-tip": "member " + (m + 1) + ": " + percent(one[k]) }));
      });
    });
    var every = Math.ceil(names.length / 14);
    axis(names.map(function (name, k) { return [(k + 0.5) * width, k % every ? "" : name]; }), spec.count ? "count" : "level", top, "probability");
  }
  function curveOf(cdf, grid) {
    if (spec.time) return grid.map(function (y) { return 1 - cdf(y); });
    var values = grid.map(cdf);
    return values.slice(1).map(function (v, i) { return (v - values[i]) / (grid[i + 1] - grid[i]); });
  }
  function pathOf(values, top) {
    return values.map(function (v, i) { return (i ? "L" : "M") + across(i / (values.length - 1)).toFixed(1) + " " + up(Math.min(v / top, 1.02)).toFixed(1); }).join("");
  }
  function drawCurves(made, base) {
    clear();
    var low = spec.time ? 0 : spec.range[0], high = spec.range[1], grid = [], n = 160;
    for (var i = 0; i <= n; i++) grid.push(low + (high - low) * i / n);
    var mine = curveOf(made.cdf, grid), before = curveOf(base.cdf, grid);
    var members = made.members.length > 1 ? made.members.map(function (cdf) { return curveOf(cdf, grid); }) : [];
    var top = spec.time ? 1 : 1.05 * Math.max.apply(null, [].concat(mine, before, [].concat.apply([], members)));
    members.forEach(function (one) { svg.appendChild(drawn("path", { d: pathOf(one, top), "class": "memberline" })); });
    svg.appendChild(drawn("path", { d: pathOf(before, top), "class": "before" }));
    svg.appendChild(drawn("path", { d: pathOf(mine, top), "class": "curve" }));
    var median = engine.quantile(made.cdf, 0.5);
    if (median >= low && median <= high) {
      var u = (median - low) / (high - low);
      svg.appendChild(drawn("path", { d: "M" + across(u) + " " + up(0) + "V" + up(1), "class": "median", "data-tip": "median " + digits(median) }));
    }
    var marks = nice(low, high).map(function (v) { return [(v - low) / (high - low), digits(v)]; });
    axis(marks, spec.time ? "time" : "outcome", top, spec.time ? "share still without the event" : "density");
  }

  // -- numbers and words ----------------------------------------------------------------------------------
  var table = element("table", {}), live = element("p", { "aria-live": "polite", "class": "live" });
  function rowsOf(lines, head) {
    table.textContent = "";
    var first = element("tr");
    head.forEach(function (text) { first.appendChild(element("th", { scope: "col", "class": "num" }, text)); });
    var top = element("thead"); top.appendChild(first); table.appendChild(top);
    var body = element("tbody");
    lines.forEach(function (line) {
      var tr = element("tr");
      line.forEach(function (text, k) { tr.appendChild(element(k ? "td" : "th", k ? { "class": "num" } : { scope: "row" }, text)); });
      body.appendChild(tr);
    });
    table.appendChild(body);
  }
  function spread(values, show) {
    return show(Math.min.apply(null, values)) + " to " + show(Math.max.apply(null, values));
  }
  function beyond(v) { return spec.time && v > spec.range[1] ? "beyond " + digits(spec.range[1]) : digits(v); }
  function sayLevels(names, mine, members, before) {
    var several = members.length > 1, best = mine.indexOf(Math.max.apply(null, mine));
    rowsOf(names.map(function (name, k) {
      return [name, percent(mine[k]), percent(before[k])].concat(several ? [spread(members.map(function (one) { return one[k]; }), percent)] : []);
    }), ["", "now", "at the start"].concat(several ? ["members"] : []));
    live.textContent = "Most likely: " + names[best] + " (" + percent(mine[best]) + (several ? "; members " + spread(members.map(function (one) { return one[best]; }), percent) : "") + ").";
  }
  function sayCurves(made, base) {
    var several = made.members.length > 1;
    rowsOf(QUANTILES.map(function (q) {
      return [100 * q + " % quantile", beyond(engine.quantile(made.cdf, q)), beyond(engine.quantile(base.cdf, q))]
        .concat(several ? [spread(made.members.map(function (cdf) { return engine.quantile(cdf, q); }), beyond)] : []);
    }), ["", "now", "at the start"].concat(several ? ["members"] : []));
    live.textContent = "Median " + beyond(engine.quantile(made.cdf, 0.5)) + ", 90 % of outcomes between " + beyond(engine.quantile(made.cdf, 0.05)) + " and " + beyond(engine.quantile(made.cdf, 0.95)) +
      (several ? "; members' medians " + spread(made.members.map(function (cdf) { return engine.quantile(cdf, 0.5); }), beyond) : "") + ".";
  }
  function countMasses(cdf, n) {
    var values = [];
    for (var k = 0; k <= n; k++) values.push(cdf(k));
    return masses(values);
  }
  function update() {
    var made = engine.distribution(x, row), base = engine.distribution(spec.rows[row].values, row);
    if (!made) {
      clear();
      live.textContent = "These covariates lie outside the range of the training data: the varying effects give no distribution there.";
      return;
    }
    if (!spec.basis) {
      var names = spec.levels.map(String), mine = masses(made.cdf), each = made.members.map(masses), before = masses(base.cdf);
      drawBars(names, mine, each, before);
      sayLevels(names, mine, each, before);
    } else if (spec.count) {
      var n = Math.min(200, Math.max(5, engine.quantile(made.cdf, 0.995), engine.quantile(base.cdf, 0.995))), counts = [];
      for (var k = 0; k <= n; k++) counts.push(String(k));
      drawBars(counts, countMasses(made.cdf, n), made.members.map(function (cdf) { return countMasses(cdf, n); }), countMasses(base.cdf, n));
      sayCurves(made, base);
    } else {
      drawCurves(made, base);
      sayCurves(made, base);
    }
  }

  var side = element("div", { "class": "controls" }), main = element("div", { "class": "shown" });
  addRowChoice(side);
  spec.inputs.forEach(function (input, k) { addControl(side, input, k); });
  var back = element("button", { type: "button" }, "Back to the row");
  back.addEventListener("click", reset);
  side.appendChild(back);
  main.appendChild(svg); main.appendChild(live); main.appendChild(table);
  root.appendChild(side); root.appendChild(main);
  reset();
})();
