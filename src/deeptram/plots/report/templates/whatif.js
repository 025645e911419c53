"use strict";
// Distributions of a fitted model at any covariates, from its coefficients: F(y) = F_Z(exp(s) a(y)'theta - shift).
(function () {
  var spec = JSON.parse(document.getElementById("what-if-data").textContent);

  // -- latent distributions --------------------------------------------------------------------
  function erfc(x) {
    if (x < 0) return 2 - erfc(-x);
    if (x < 2.2) {  // Taylor series of erf with positive terms
      var term = x, sum = x;
      for (var n = 1; n < 200 && term > 1e-18 * sum; n++) { term *= 2 * x * x / (2 * n + 1); sum += term; }
      return 1 - 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum;
    }
    var tail = 0;  // continued fraction, from its far end
    for (var k = 120; k > 0; k--) tail = k / 2 / (x + tail);
    return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + tail);
  }
  var LATENT = {
    "logistic": function (z) { return z < 0 ? Math.exp(z) / (1 + Math.exp(z)) : 1 / (1 + Math.exp(-z)); },
    "normal": function (z) { return erfc(-z / Math.SQRT2) / 2; },
    "minimum-extreme-value": function (z) { return -Math.expm1(-Math.exp(z)); },
    "maximum-extreme-value": function (z) { return Math.exp(-Math.exp(-z)); }
  };
  var F = LATENT[spec.latent];

  // -- columns of design matrices, step by step -------------------------------------------------
  var OPERATIONS = {
    "+": function (a, b) { return a + b; }, "-": function (a, b) { return a - b; },
    "*": function (a, b) { return a * b; }, "/": function (a, b) { return a / b; },
    "**": Math.pow, "<": function (a, b) { return +(a < b); }, "<=": function (a, b) { return +(a <= b); },
    ">": function (a, b) { return +(a > b); }, ">=": function (a, b) { return +(a >= b); },
    "==": function (a, b) { return +(a === b); }, "!=": function (a, b) { return +(a !== b); },
    "square": function (a) { return a * a; }, "exp2": function (a) { return Math.pow(2, a); },
    "exp10": function (a) { return Math.pow(10, a); }, "arctan": Math.atan,
    "maximum": Math.max, "minimum": Math.min
  };
  ["abs", "sqrt", "cbrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor", "ceil"]
    .forEach(function (name) { OPERATIONS[name] = Math[name]; });

  function poly(k, alpha, norms, x) {
    var before = 0, now = 1;
    for (var i = 1; i <= k; i++) {
      var next = (x - alpha[i - 1]) * now - (i > 1 ? norms[i - 1] / norms[i - 2] * before : 0);
      before = now; now = next;
    }
    return now / Math.sqrt(norms[k]);
  }
  function spline(index, knots, degree, extend, x) {
    var last = knots.length - degree - 1;
    if (!extend) x = Math.min(Math.max(x, knots[0]), knots[knots.length - 1]);
    function alpha(i, j) { return knots[i + j] !== knots[i] ? (x - knots[i]) / (knots[i + j] - knots[i]) : 0; }
    var basis = [];
    for (var i = 0; i < knots.length - 1; i++) {
      var low = extend && i === degree ? -Infinity : knots[i];
      var high = extend && i + 1 === last ? Infinity : knots[i + 1];
      basis.push(+(x >= low && (x < high || (!extend && i + 1 === last && x <= high))));
    }
    for (var d = 1; d <= degree; d++) {
      for (var j = 0; j < knots.length - d - 1; j++) basis[j] = alpha(j, d) * basis[j] + (1 - alpha(j + 1, d)) * basis[j + 1];
    }
    return basis[index];
  }
  function value(step, x) {
    switch (step[0]) {
      case "x": return x[step[1]];
      case "c": return step[1];
      case "is": return +(x[step[1]] === step[2]);
      case "poly": return poly(step[1], step[2], step[3], value(step[4], x));
      case "bs": return spline(step[1], step[2], step[3], step[4], value(step[5], x));
      default: return OPERATIONS[step[0]].apply(null, step.slice(1).map(function (part) { return value(part, x); }));
    }
  }
  function columns(part, x, row) {  // a row of a design matrix
    var next = 0;
    return part.steps.map(function (step) { return step ? value(step, x) : part.stored[row][next++]; });
  }

  // -- networks on tables ---------------------------------------------------------------------------
  function softplus(x) { return Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))); }
  var ACTIVATIONS = {
    relu: function (x) { return Math.max(x, 0); }, tanh: Math.tanh, softplus: function (x) { return x > 20 ? x : softplus(x); },
    gelu: function (x) { return x * erfc(-x / Math.SQRT2) / 2; },
    silu: function (x) { return x / (1 + Math.exp(-x)); }, elu: function (x) { return x > 0 ? x : Math.expm1(x); }
  };
  function network(net, x, row) {
    var now = columns(net, x, row).map(function (v, j) { return (v - net.mean[j]) / net.sd[j]; });
    net.layers.forEach(function (layer) {
      now = typeof layer === "string" ? now.map(ACTIVATIONS[layer]) : layer[0].map(function (weights, i) {
        return weights.reduce(function (sum, w, j) { return sum + w * now[j]; }, layer[1] ? layer[1][i] : 0);
      });
    });
    return now;
  }
  function output(part, x, row) { return part.net ? network(part.net, x, row) : part.stored[row]; }

  // -- the parameters of one member at covariates x; row is where stored parts are read ------------------
  function times(vector, matrix) {  // vector' matrix; a vector of coefficients is a matrix of one column
    var width = Array.isArray(matrix[0]) ? matrix[0].length : 1, sums = new Array(width).fill(0);
    vector.forEach(function (v, j) { for (var k = 0; k < width; k++) sums[k] += v * (width > 1 || Array.isArray(matrix[j]) ? matrix[j][k] : matrix[j]); });
    return sums;
  }
  function thetaOfNetwork(part, x, row) {
    var free = network(part.net, x, row).map(function (v, k) { return v + part.constant[k]; });
    if (spec.nominal) return free.map(function (v, k) { return v + part.moved[k]; });
    if (part.line) {
      var slope = softplus(free[1]) / part.line[1];
      return [free[0] - part.line[0] * slope + part.moved[0], slope];
    }
    var sum = free[0] + part.moved[0];
    return free.map(function (v, k) { if (k) sum += softplus(v); return sum; });
  }
  function parameters(member, x, row) {
    var theta;
    if (member.thetas) theta = member.thetas[row];
    else if (member.intercept) theta = thetaOfNetwork(member.intercept, x, row);
    else theta = member.theta[member.strata ? member.strata[1].indexOf(x[member.strata[0]]) : 0];
    if (member.varying) {
      var effects = times(columns(member.varying, x, row), member.varying.coef);
      theta = theta.map(function (v, k) { return v + effects[k]; });
    }
    var linear = member.linear ? columns(member.linear, x, row) : [];
    var shift = member.linear && linear.length ? times(linear, member.linear.coef) : [0];
    (member.shifts || []).forEach(function (part) {
      var out = output(part, x, row);
      var slopes = part.slopes.length ? times(linear, part.slopes) : [];
      shift = out.map(function (v, k) { return (shift[k] || 0) + v - (slopes[k] || 0) - part.mean[k]; });
    });
    var logScale = member.scale ? times(columns(member.scale, x, row), member.scale.coef)[0] : 0;
    (member.scales || []).forEach(function (part) { logScale += output(part, x, row)[0]; });
    return { theta: theta, shift: shift, scale: Math.exp(logScale / 2), recalibration: member.recalibration };
  }

  // -- h ------------------------------------------------------------------------------------------------
  var binomials = spec.basis && spec.basis.name === "bernstein" ? (function (m) {
    var row = [1];
    for (var k = 1; k <= m; k++) row.push(row[k - 1] * (m - k + 1) / k);
    return row;
  })(spec.basis.order) : null;
  function baseline(theta, y) {
    var basis = spec.basis;
    if (basis.name === "linear") return theta[0] + theta[1] * y;
    if (basis.name === "log-linear") return basis.slope === null ? theta[0] + theta[1] * Math.log(y) : theta[0] + basis.slope * Math.log(y);
    var m = basis.order, g = basis.log ? Math.log : function (v) { return v; };
    var low = g(basis.support[0]), high = g(basis.support[1]), at = g(y);
    var u = (at - low) / (high - low), v = (high - at) / (high - low);
    var below = Math.min(u, 0), above = v < 0 ? -v : 0;
    u = Math.min(Math.max(u, 0), 1); v = Math.min(Math.max(v, 0), 1);
    var sum = m * below * (theta[1] - theta[0]) + m * above * (theta[m] - theta[m - 1]);
    for (var k = 0; k <= m; k++) sum += theta[k] * binomials[k] * Math.pow(u, k) * Math.pow(v, m - k);
    return sum;
  }
  function recalibrated(p, h, k) {
    return p.recalibration ? p.recalibration[0][k] + p.recalibration[1][k] * h : h;
  }
  function hOnLine(p, y) {
    var at = spec.count ? Math.floor(y) + spec.offset : y;
    var least = spec.basis.log || spec.lifetimes ? 0 : -Infinity;
    if (spec.count ? y < 0 : y <= least) return -Infinity;
    return recalibrated(p, p.scale * baseline(p.theta, at) - p.shift[0], 0);
  }
  function logOdds(below, above) { return Math.log(below) - Math.log(above); }
  function hOfLevels(p) {  // K - 1 values
    if (!spec.nominal) return p.theta.map(function (v, k) { return recalibrated(p, p.scale * v - p.shift[0], k); });
    var logits = [0].concat(p.theta.map(function (v, k) { return v + (p.shift[k] || 0); }));
    var top = Math.max.apply(null, logits), mass = logits.map(function (v) { return Math.exp(v - top); });
    var total = mass.reduce(function (a, b) { return a + b; }, 0), below = 0, above = total;
    return p.theta.map(function (_, k) { below += mass[k]; above = total - below; return recalibrated(p, logOdds(below, above), k); });
  }

  // -- pools -----------------------------------------------------------------------------------------------
  function pooled(h) {  // P(Y <= y) from h of each member
    if (spec.pool === "transformation" || h.length === 1) {
      if (h.some(function (v) { return v === -Infinity; })) return 0;
      return F(h.reduce(function (sum, v, m) { return sum + spec.weights[m] * v; }, 0));
    }
    var parts = h.map(F), used = spec.weights;
    if (spec.pool === "linear") return parts.reduce(function (sum, v, m) { return sum + used[m] * v; }, 0);
    return Math.exp(parts.reduce(function (sum, v, m) { return used[m] ? sum + used[m] * Math.log(v) : sum; }, 0));
  }
  function geometricMean(cdfs) {  // normalised, of the members' probabilities of levels
    var logs = cdfs[0].map(function (_, k) {
      return cdfs.reduce(function (sum, one, m) {
        return spec.weights[m] ? sum + spec.weights[m] * Math.log(one[k] - (k ? one[k - 1] : 0)) : sum;
      }, 0);
    });
    var top = Math.max.apply(null, logs), mass = logs.map(function (v) { return Math.exp(v - top); });
    var total = mass.reduce(function (a, b) { return a + b; }, 0), below = 0;
    return mass.map(function (v, k) { below += v; return k === mass.length - 1 ? 1 : below / total; });
  }
  function isIncreasing(theta) {
    if (!spec.basis && spec.nominal) return true;
    if (spec.basis && spec.basis.name !== "bernstein") return theta.length < 2 || theta[1] >= 0;
    var size = 1 + Math.max.apply(null, theta.map(Math.abs));
    return theta.every(function (v, k) { return !k || v - theta[k - 1] >= -1e-8 * size; });
  }

  function distribution(x, row) {
    var all = spec.members.map(function (member) { return parameters(member, x, row); });
    if (!all.every(function (p) { return isIncreasing(p.theta); })) return null;
    if (!spec.basis) {
      var h = all.map(hOfLevels), last = spec.levels.length - 1;
      var at = function (k) { return h.map(function (one) { return one[k]; }); };
      var cdfs = h.map(function (one) { return one.map(F).concat([1]); });
      var geometric = spec.pool === "log-linear-density" && h.length > 1;
      return {
        cdf: geometric ? geometricMean(cdfs) : spec.levels.map(function (_, k) { return k === last ? 1 : pooled(at(k)); }),
        members: cdfs
      };
    }
    return {
      cdf: function (y) { return pooled(all.map(function (p) { return hOnLine(p, y); })); },
      members: all.map(function (p) { return function (y) { return F(hOnLine(p, y)); }; })
    };
  }
  // The smallest y with F(y) >= q, by halving a bracket.
  function quantile(cdf, q) {
    if (spec.count) {
      var low = -1, high = 1;
      while (cdf(high) < q) { if (high > 4e15) return Infinity; low = high; high *= 4; }
      while (high - low > 1) { var middle = Math.floor((low + high) / 2); if (cdf(middle) >= q) high = middle; else low = middle; }
      return high;
    }
    var log = spec.basis.log, y = function (u) { return log ? Math.exp(u) : u; };
    var start = spec.range.map(function (v) { return log ? Math.log(v) : v; }), width = start[1] - start[0] || 1;
    var a = start[0], b = start[1];
    while (cdf(y(a)) > q) { a -= width; width *= 2; if (width > 1e300 || y(a) === 0) return log ? 0 : -Infinity; if (spec.lifetimes && !log && a <= 0) { a = 0; break; } }
    width = start[1] - start[0] || 1;
    while (cdf(y(b)) < q) { b += width; width *= 2; if (width > 1e300 || y(b) === Infinity) return Infinity; }
    for (var i = 0; i < 200; i++) {
      var c = (a + b) / 2;
      if (c === a || c === b) break;
      if (cdf(y(c)) < q) a = c; else b = c;
    }
    return y(b);
  }

  // What tests and the page ask for: F at points, quantiles; of the pool first, then of each member.
  function predict(x, row, points, levels) {
    var made = distribution(x, row);
    if (!made) return null;
    if (!spec.basis) return { cdf: [made.cdf].concat(made.members) };
    var every = [made.cdf].concat(made.members);
    return {
      cdf: every.map(function (cdf) { return points.map(cdf); }),
      quantiles: every.map(function (cdf) { return levels.map(function (q) { return quantile(cdf, q); }); })
    };
  }
  window.deeptramWhatIf = { spec: spec, predict: predict, distribution: distribution, quantile: quantile };
})();
