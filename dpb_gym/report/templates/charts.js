/* Regret curves and privacy-regret frontiers. */
var NAMES = 18, CROWD = 24, FRONTIER = 220;

/* The budget without what all of its kind share: "eps=1", not "eps=1, delta=1e-05". */
function shortBudget(row) {
  return row.scale ? row.scale[0].split(' ')[0] + '=' + tick(row.scale[1]) : row.budget;
}

function endNames(series) {
  var times = {};
  series.forEach(function (s) { times[s.row.agent] = (times[s.row.agent] || 0) + 1; });
  series.forEach(function (s) {
    var name = s.row.label;
    if (s.row.budget !== 'none' && s.row.label.indexOf(s.row.budget) > 0) {
      var budget = ' ' + shortBudget(s.row);
      name = times[s.row.agent] > 1 ? shorten(s.row.agent, 30 - budget.length) + budget : s.row.agent;
    }
    s.name = shorten(name, 30);
  });
}

/* Where very many curves would show, each agent keeps its largest budget and those singled out. */
function thinned(view, series) {
  if (series.length <= CROWD) return series;
  var largest = {};
  series.forEach(function (s) {
    var known = largest[s.row.agent];
    if (!known || s.row.alpha > known.row.alpha) largest[s.row.agent] = s;
  });
  return series.filter(function (s) {
    return largest[s.row.agent] === s || state.pins.indexOf(view.t + '-' + s.i) >= 0;
  });
}

function canvas(holder, width, height, label) {
  holder.textContent = '';
  var svg = draw('svg', {
    viewBox: '0 0 ' + width + ' ' + height, width: width, height: height, role: 'img', 'aria-label': label
  }, holder);
  return svg;
}

function span(values, log) {
  var low = Infinity, high = -Infinity;
  values.forEach(function (v) {
    if (log && v <= 0) return;
    low = Math.min(low, v);
    high = Math.max(high, v);
  });
  return low > high ? null : [low, high];
}

/* Rounds stand with the task if all of its curves share them. */
function points(task, row) {
  var own = task.rounds ? 0 : 1, t = own ? row.curve[0] : task.rounds, c = row.curve, result = [];
  for (var k = 0; k < t.length; k++) {
    var mean = c[own][k];
    if ((state.logx && t[k] <= 0) || (state.logy && mean <= 0)) continue;
    result.push({ t: t[k], mean: mean, low: mean - c[own + 1][k], high: mean + c[own + 2][k] });
  }
  return result;
}

function path(list) {
  return list.map(function (p, i) {
    return (i ? 'L' : 'M') + p[0].toFixed(1) + ' ' + p[1].toFixed(1);
  }).join('');
}

function drawCurves(view) {
  var holder = $('.curves .canvas', view.section), width = holder.clientWidth;
  if (!width) return;
  var beside = $('.frontiers', view.section), count = beside.children.length;
  var tall = count === 2 &&
    beside.getBoundingClientRect().left >= holder.getBoundingClientRect().right;
  var height = width < 480 ? 250 : tall ? 2 * FRONTIER + 34 : 320;
  var series = view.visible.map(function (i) {
    return { i: i, row: view.task.rows[i], points: points(view.task, view.task.rows[i]) };
  }).filter(function (s) { return s.points.length > 0; });
  var asked = series.length;
  series = thinned(view, series);
  var caption = $('.curves figcaption', view.section);
  caption.textContent = 'Cumulative pseudo-regret by round' +
    (series.length < asked ? ", each agent's largest budget (filter by budget for others)" : '');
  var crowd = series.length > NAMES && width >= 560;
  if (crowd) height = Math.max(height, 14 * series.length + 60);
  var svg = canvas(holder, width, height, 'Regret curves of ' + series.length + ' rows on ' +
    view.task.task + '; the table below holds their ends');
  view.chart = null;
  if (!series.length) {
    draw('text', { x: 8, y: 30 }, svg).textContent = state.logy ?
      'No curve with regret above 0.' : 'No curve to draw.';
    return;
  }
  var every = [].concat.apply([], series.map(function (s) { return s.points; }));
  var means = every.map(function (p) { return p.mean; });
  var xs = span(every.map(function (p) { return p.t; }), state.logx);
  var ys = span(means.concat(every.map(function (p) { return p.high; })), state.logy);
  if (!state.logy) {
    ys[0] = Math.min(0, ys[0], span(every.map(function (p) { return p.low; }))[0]);
    ys[1] = Math.max(0, ys[1]);
  }
  if (!state.logx && xs[1] > 0) xs[0] = 0;
  var named = series.length <= CROWD + 8 && width >= 560;
  endNames(series);
  var names = series.map(function (s) { return s.name; });
  var box = { top: 10, bottom: height - 40, right: width - (named ? rightRoom(names) : 14) };
  var y = makeScale(ys[0], ys[1], box.bottom, box.top, state.logy);
  box.left = leftRoom(y.ticks(5));
  var x = makeScale(xs[0], xs[1], box.left, box.right, state.logx);
  axes(svg, box, x, y, x.ticks(width < 480 ? 4 : 7), 'round');
  var cross = draw('line', { y1: box.top, y2: box.bottom, 'class': 'cross', visibility: 'hidden' }, svg);
  var ends = [];
  series.slice().reverse().forEach(function (s) {
    var group = draw('g', { 'class': 'series', 'data-rows': s.i }, svg);
    paint(group, s.row);
    s.points.forEach(function (p) { p.x = x(p.t); p.y = y(p.mean); });
    var floor = function (v) { return state.logy ? Math.max(v, y.low) : v; };
    var upper = s.points.map(function (p) { return [p.x, y(p.high)]; });
    var lower = s.points.map(function (p) { return [p.x, y(floor(p.low))]; }).reverse();
    draw('path', { d: path(upper.concat(lower)) + 'Z', 'class': 'band' }, group);
    draw('path', {
      d: path(s.points.map(function (p) { return [p.x, p.y]; })),
      'class': 'path ' + s.row.stroke, 'stroke-opacity': s.row.alpha
    }, group);
    var last = s.points[s.points.length - 1];
    if (s.points.length === 1) draw('circle', { cx: last.x, cy: last.y, r: 3, 'class': 'dot' }, group);
    ends.push({ x: last.x, y: last.y, text: s.name, row: s.row, rows: String(s.i) });
  });
  if (named) endLabels(svg, box, ends);
  view.chart = { series: series, box: box, cross: cross, holder: holder, width: width };
}

/* One chart for each (notion, unit) and scale with at least two budgets. */
function drawFrontiers(view) {
  var holder = $('.frontiers', view.section), sets = {};
  holder.textContent = '';
  var rows = view.task.rows.map(function (row, i) { return { i: i, row: row }; })
    .filter(function (e) { return passes(view.task, e.row, true); });
  rows.forEach(function (e) {
    if (!e.row.scale || !e.row.private) return;
    var name = JSON.stringify([e.row.group, e.row.scale[0]]);
    (sets[name] = sets[name] || []).push(e);
  });
  var rival = view.task.rows.map(function (row, i) { return { i: i, row: row }; })
    .filter(function (e) { return !e.row.private && !e.row.reference; })
    .sort(function (a, b) { return a.row.regret[0] - b.row.regret[0]; })[0];
  var plans = Object.keys(sets).map(function (name) {
    var values = sets[name].map(function (e) { return e.row.scale[1]; })
      .filter(function (v, k, all) { return all.indexOf(v) === k; })
      .sort(function (a, b) { return a - b; });
    return { group: JSON.parse(name)[0], kind: JSON.parse(name)[1], entries: sets[name], values: values };
  }).filter(function (plan) { return plan.values.length > 1; });
  holder.classList.toggle('many', view.track || plans.length > 2);
  plans.forEach(function (plan) {
    var figure = make('figure', holder);
    make('figcaption', figure, (view.track ? 'One minus score' : 'Final regret') + ' by budget, ' +
      plan.group.replace('/', ', per '));
    plan.canvas = make('div', figure, null, 'canvas');
  });
  plans.forEach(function (plan) { frontier(view, plan, rival, plans.length > 1 ? FRONTIER : 280); });
}

function frontier(view, plan, rival, height) {
  var holder = plan.canvas, entries = plan.entries, values = plan.values, kind = plan.kind;
  var width = holder.clientWidth;
  if (width < 360) height = Math.min(height, 230);
  entries = entries.filter(function (e) { return !state.logy || e.row.regret[0] > 0; });
  var agents = entries.map(function (e) { return e.row.agent; })
    .filter(function (a, k, all) { return all.indexOf(a) === k; });
  var heights = [].concat.apply([], entries.map(function (e) { return [e.row.regret[0], e.row.regret[2]]; }));
  if (rival && (!state.logy || rival.row.regret[0] > 0)) heights.push(rival.row.regret[0]); else rival = null;
  var ys = span(heights, state.logy);
  if (!ys) return;
  if (state.logy) ys[0] *= 0.8; else ys = [Math.min(0, ys[0]), Math.max(0, ys[1])];
  var named = agents.length <= NAMES && width >= 300;
  if (named) height = Math.max(height, 14 * (agents.length + 1) + 56);
  var svg = canvas(holder, width, height, (view.track ? 'One minus score' : 'Final regret') + ' by ' + kind + ' on ' + view.task.task);
  var names = agents.concat(rival ? [rival.row.label] : []).map(function (a) { return shorten(a, 20); });
  var box = { top: 10, bottom: height - 40, right: width - (named ? rightRoom(names) : 14) };
  var y = makeScale(ys[0], ys[1], box.bottom, box.top, state.logy);
  box.left = leftRoom(y.ticks(5));
  var x = makeScale(values[0], values[values.length - 1], box.left + 8, box.right - 4, true);
  axes(svg, box, x, y, values, kind);
  var ends = [];
  if (rival) {
    var level = draw('g', { 'class': 'series', 'data-rows': rival.i }, svg), at = y(rival.row.regret[0]);
    paint(level, rival.row);
    draw('path', { d: path([[box.left, at], [box.right, at]]), 'class': 'path dashed' }, level);
    ends.push({ x: box.right, y: at, text: shorten(rival.row.label, 20), row: rival.row, rows: String(rival.i) });
  }
  agents.forEach(function (agent) {
    var mine = entries.filter(function (e) { return e.row.agent === agent; })
      .sort(function (a, b) { return a.row.scale[1] - b.row.scale[1]; });
    var group = draw('g', {
      'class': 'series', 'data-rows': mine.map(function (e) { return e.i; }).join(' ')
    }, svg);
    paint(group, mine[0].row);
    draw('path', {
      d: path(mine.map(function (e) { return [x(e.row.scale[1]), y(e.row.regret[0])]; })), 'class': 'path'
    }, group);
    mine.forEach(function (e) {
      var px = x(e.row.scale[1]), low = e.row.regret[1];
      if (state.logy) low = Math.max(low, y.low);
      draw('line', { x1: px, x2: px, y1: y(low), y2: y(e.row.regret[2]), 'class': 'error' }, group);
      var dot = draw('circle', { cx: px, cy: y(e.row.regret[0]), r: 3.4, 'class': 'dot' }, group);
      draw('title', {}, dot).textContent = e.row.label + ': ' + text(e.row.regret[0]) + ' (' +
        text(e.row.regret[1]) + ' to ' + text(e.row.regret[2]) + ')';
    });
    var last = mine[mine.length - 1];
    ends.push({
      x: x(last.row.scale[1]), y: y(last.row.regret[0]), text: shorten(agent, 20), row: last.row,
      rows: mine.map(function (e) { return e.i; }).join(' ')
    });
  });
  if (named) endLabels(svg, box, ends);
}
