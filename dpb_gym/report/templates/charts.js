/* Regret curves and regret against budget. */
const CROWD = 24, LEADING = 12, FRONTIER = 220, GAP = 14;

function linearTicks(low, high, count) {
  const rough = (high - low) / count, power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9), result = [];
  for (let k = 0; k <= 2 * count && (first + k) * step <= high + step * 1e-9; k++) result.push((first + k) * step);
  return result;
}

function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), result = [];
  const every = Math.max(1, Math.ceil((last - first) / 6)), steps = last - first <= 2 ? [1, 2, 5] : [1];
  for (let k = first; k <= last; k += every) {
    for (const m of steps) {
      const value = m * Math.pow(10, k);
      if (value >= low * 0.999 && value <= high * 1.001) result.push(Number(value.toPrecision(6)));
    }
  }
  return result.length > 1 ? result : linearTicks(low, high, 4);
}

function makeScale(low, high, from, to, log) {
  if (!(high > low)) {
    const pad = log ? low / 2 : Math.abs(low) / 2 || 1;
    low -= pad;
    high += pad;
  }
  const f = log ? Math.log10 : v => v, a = f(low), b = f(high);
  const scale = value => from + (to - from) * (f(value) - a) / (b - a);
  scale.low = low;
  scale.ticks = count => log ? logTicks(low, high) : linearTicks(low, high, count);
  return scale;
}

/* Values whose marks are at least `gap` pixels apart. */
function spaced(values, scale, gap) {
  const kept = [];
  for (const value of values) {
    if (!kept.length || Math.abs(scale(value) - scale(kept[kept.length - 1])) >= gap) kept.push(value);
  }
  return kept;
}

const PEN = document.createElement('canvas').getContext('2d'), FONT = getComputedStyle(document.body).fontFamily;

/* Width in pixels of the widest label. */
function widest(labels, font) {
  PEN.font = (font || '') + ' 11px ' + FONT;
  return labels.reduce((most, label) => Math.max(most, PEN.measureText(label).width), 0);
}

function axes(svg, width, box, x, y, xTicks, xTitle) {
  const layer = draw('g', {}, svg);
  for (const value of spaced(y.ticks(5), y, 16)) {
    const at = y(value);
    draw('line', { x1: box.left, x2: box.right, y1: at, y2: at, 'class': 'grid' }, layer);
    draw('text', { x: box.left - 7, y: at + 4, 'text-anchor': 'end' }, layer).textContent = tick(value);
  }
  draw('line', { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, 'class': 'base' }, layer);
  for (const value of spaced(xTicks, x, 14 + widest(xTicks.map(tick)))) {
    draw('line', { x1: x(value), x2: x(value), y1: box.bottom, y2: box.bottom + 4, 'class': 'base' }, layer);
    draw('text', {
      x: Math.min(x(value), width - widest([tick(value)]) / 2), y: box.bottom + 17, 'text-anchor': 'middle'
    }, layer).textContent = tick(value);
  }
  draw('text', { x: box.right, y: box.bottom + 33, 'text-anchor': 'end' }, layer).textContent = xTitle;
}

/* Names at the right ends of lines, moved apart so that none overlap. */
function endLabels(svg, box, ends) {
  ends.sort((a, b) => a.y - b.y);
  ends.forEach((end, i) => { end.at = Math.max(end.y, i ? ends[i - 1].at + GAP : box.top); });
  for (let j = ends.length - 1; j >= 0; j--) {
    ends[j].at = Math.min(ends[j].at, j === ends.length - 1 ? box.bottom : ends[j + 1].at - GAP);
  }
  for (const end of ends) {
    const leader = draw('line', {
      x1: end.x + 3, y1: end.y, x2: box.right + 11, y2: end.at, 'class': 'leader', 'data-rows': end.rows
    }, svg);
    const label = draw('text', { x: box.right + 14, y: end.at + 4, 'class': 'end', 'data-rows': end.rows }, svg);
    label.textContent = end.text;
    paint(leader, end.row);
    paint(label, end.row);
  }
}

/* Shortened label; keeps the ending ' (tuned)'. */
function shorten(label, size) {
  const tail = label.endsWith(' (tuned)') ? ' (tuned)' : '', letters = Array.from(label);
  return letters.length > size ? letters.slice(0, size - 1 - tail.length).join('') + '\u2026' + tail : label;
}

/* Of more than CROWD lines, only the best LEADING and pinned ones are drawn. */
const few = rows => rows.length > CROWD ? '; the best ' + LEADING + ' of ' + rows.length : '';
function leading(sorted, row) {
  return sorted.length > CROWD ? sorted.filter((one, k) => k < LEADING || state.pins.includes(row(one))) : sorted;
}

function canvas(holder, width, height, label) {
  holder.textContent = '';
  return draw('svg', {
    viewBox: '0 0 ' + width + ' ' + height, width, height, role: 'img', 'aria-label': label
  }, holder);
}

/* A picture of lines. A line has a row, the rows that highlight it, a name for its right end, and points
   (t, mean), with low and high if there is an interval. Sets the pixels x and y of every point. */
function picture(holder, width, plan) {
  const { lines, logy } = plan, names = plan.named ? lines.map(line => line.name) : [], inset = plan.inset || 0;
  const height = Math.max(plan.least, names.length ? GAP * names.length + 60 : 0);
  const svg = canvas(holder, width, height, plan.label), ends = [];
  const box = { top: 10, bottom: height - 40, right: width - (names.length ? 22 + widest(names, '600') : 14) };
  const y = makeScale(...plan.ys, box.bottom, box.top, logy), floor = v => logy ? Math.max(v, y.low) : v;
  box.left = 12 + widest(y.ticks(5).map(tick));
  const x = makeScale(...plan.xs, box.left + 2 * inset, box.right - inset, plan.logx);
  axes(svg, width, box, x, y, plan.ticks || x.ticks(width < 480 ? 4 : 7), plan.title);
  if (plan.mark >= plan.xs[0] && plan.mark <= plan.xs[1]) {
    draw('line', { x1: x(plan.mark), x2: x(plan.mark), y1: box.top, y2: box.bottom, 'class': 'asked' }, svg);
  }
  const cross = draw('line', { y1: box.top, y2: box.bottom, 'class': 'cross', visibility: 'hidden' }, svg);
  for (const { row, rows, name, points, ...asked } of lines.slice().reverse()) {
    const group = paint(draw('g', { 'class': 'series', 'data-rows': rows }, svg), row);
    for (const p of points) Object.assign(p, { x: x(p.t), y: y(p.mean) });
    if (asked.band && points.every(bounded)) {
      const upper = points.map(p => [p.x, y(p.high)]), lower = points.map(p => [p.x, y(floor(p.low))]).reverse();
      draw('path', { d: path(upper.concat(lower)) + 'Z', 'class': 'band' }, group);
    }
    draw('path', {
      d: path(points.map(p => [p.x, p.y])), 'class': 'path ' + row.stroke, 'stroke-opacity': asked.band ? row.strength : 1
    }, group);
    for (const p of asked.dots || points.length === 1 ? points : []) {
      if (asked.dots && bounded(p)) draw('line', { x1: p.x, x2: p.x, y1: y(floor(p.low)), y2: y(p.high), 'class': 'error' }, group);
      const dot = draw('circle', { cx: p.x, cy: p.y, r: 3.4, 'class': 'dot' }, group);
      if (p.label) draw('title', {}, dot).textContent = p.label + ': ' + text(p.mean) + ' (' + range(p) + ')';
    }
    const last = points[points.length - 1];
    ends.unshift({ x: last.x, y: last.y, text: name, row, rows: String(rows) });
  }
  if (names.length) endLabels(svg, box, ends);
  return { box, cross, holder, width };
}

function reach(values, log) {
  let low = Infinity, high = -Infinity;
  for (const v of values) {
    if (log && v <= 0) continue;
    low = Math.min(low, v);
    high = Math.max(high, v);
  }
  return low > high ? null : [low, high];
}

const path = list => list.map((p, i) => (i ? 'L' : 'M') + p[0].toFixed(1) + ' ' + p[1].toFixed(1)).join('');

/* Points of a curve that can be drawn; on a log axis, the last two decades. */
function points(row) {
  const [rounds, means, below, above] = row.curve, result = [];
  const first = state.logx ? Math.min(row.table.horizon / 100, rounds[Math.max(0, rounds.length - 2)]) : 0;
  means.forEach((mean, k) => {
    if ((state.logx && rounds[k] <= 0) || rounds[k] < first || (state.logy && mean <= 0)) return;
    const ends = below[k] === null ? {} : { low: mean - below[k], high: mean + above[k] };
    result.push({ t: rounds[k], mean, ...ends });
  });
  return result;
}

/* Of more than CROWD curves, those of each agent's largest budget and pinned ones. */
function thinned(rows) {
  if (rows.length <= CROWD) return rows;
  const smaller = row => rows.some(other => other.agent === row.agent && other.strength > row.strength);
  return rows.filter(row => state.pins.includes(row) || !smaller(row));
}

function endNames(series) {
  const times = {};
  for (const s of series) times[s.row.agent] = (times[s.row.agent] || 0) + 1;
  for (const s of series) {
    const budget = s.row.short && s.row.label !== s.row.agent && times[s.row.agent] > 1 ? ' ' + s.row.short : '';
    s.name = shorten(s.row.agent, 30 - budget.length) + budget;
  }
}

function drawCurves(view) {
  const holder = $('.curves .canvas', view.section), width = holder.clientWidth;
  view.chart = null;
  if (!width) return;
  const best = view.rival, asked = view.visible.slice();
  if (best && asked.length && !asked.includes(best)) asked.push(best);
  const kept = thinned(asked);
  const series = kept.map(row => ({ row, rows: row.i, points: points(row), band: true })).filter(s => s.points.length > 0);
  const zero = kept.length - series.length, least = width < 480 ? 260 : 330;
  $('.curves figcaption', view.section).textContent = 'Cumulative pseudo-regret by round' +
    (kept.length < asked.length ? ", each agent's largest budget (filter by budget for others)" : '') +
    (zero && state.logy ? '; ' + zero + (zero > 1 ? ' curves' : ' curve') + ' without regret above 0 left out' : '');
  const label = 'Regret curves of ' + series.length + ' rows on ' + view.name + '; the table below holds their ends';
  if (!series.length) {
    draw('text', { x: 8, y: 30 }, canvas(holder, width, least, label)).textContent =
      state.logy ? 'No curve with regret above 0.' : 'No curve to draw.';
    return;
  }
  const every = series.flatMap(s => s.points), xs = reach(every.map(p => p.t), state.logx);
  const ys = reach(every.flatMap(p => state.logy ? [p.mean, p.high ?? p.mean] : [p.mean, p.high ?? p.mean, p.low ?? p.mean, 0]), state.logy);
  if (!state.logx && xs[1] > 0) xs[0] = 0;
  endNames(series);
  const named = series.length <= CROWD + 8 && width >= 560;
  const plan = { lines: series, label, least, xs, ys, logx: state.logx, logy: state.logy, named, title: 'round' };
  view.chart = { series, ...picture(holder, width, plan) };
}

/* One figure per plan. All widths are read before drawing, because reading one after it forces a layout. */
function figures(view, holder, plans, caption, drawOne) {
  holder.textContent = '';
  const frames = plans.map(plan => {
    const figure = make('figure', holder);
    make('figcaption', figure, caption(plan));
    return make('div', figure, null, 'canvas');
  });
  const widths = frames.map(frame => frame.clientWidth);
  plans.forEach((plan, k) => drawOne(view, plan, frames[k], widths[k]));
}

/* One chart for each (notion, unit) and scale with at least two budgets. */
function drawFrontiers(view) {
  const able = view.rows.filter(row => row.scale && row.private && !row.gaps && passes(row, true));
  const plans = [...Map.groupBy(able, row => row.group + '|' + row.scale).values()].map(rows => {
    const values = [...new Set(rows.map(row => row.limit))].sort((a, b) => a - b);
    const best = rows.slice().sort((a, b) => b.limit - a.limit || a.loss.mean - b.loss.mean);
    const agents = best.filter((row, k) => best.findIndex(one => one.agent === row.agent) === k);
    return { rows, values, scale: rows[0].scale, agents };
  }).filter(plan => plan.values.length > 1);
  const holder = $('.frontiers', view.section), what = view.whole ? '1 \u2212 score' : 'Final regret';
  holder.classList.toggle('many', view.whole || plans.length > 2);
  figures(view, holder, plans, ({ rows, agents }) => what + ' by budget, ' + rows[0].kind + few(agents), drawFrontier);
}

function drawFrontier(view, plan, holder, width) {
  const best = view.rival, { values } = plan, edges = [values[0], values[values.length - 1]];
  const lines = leading(plan.agents, row => row).map(({ agent }) => {
    const mine = plan.rows.filter(row => row.agent === agent && (!state.logy || row.loss.mean > 0))
      .sort((a, b) => a.limit - b.limit);
    const points = mine.map(row => ({ t: row.limit, ...row.loss, label: row.label }));
    return { row: mine[mine.length - 1], rows: mine.map(row => row.i).join(' '), name: shorten(agent, 26), points, dots: true };
  }).filter(line => line.row);
  const heights = lines.flatMap(line => line.points.flatMap(p => [p.low ?? p.mean, p.mean, p.high ?? p.mean]));
  if (best && (!state.logy || best.loss.mean > 0)) {
    const { mean } = best.loss;
    heights.push(mean);
    lines.push({ row: best, rows: best.i, name: shorten(best.label, 26), points: edges.map(t => ({ t, mean })) });
  }
  const ys = reach(heights, state.logy);
  if (!ys || !width) return;
  if (state.logy) ys[0] *= 0.9; else ys[0] = Math.min(0, ys[0]);
  picture(holder, width, {
    lines, label: (view.whole ? 'One minus score' : 'Final regret') + ' by ' + plan.scale + ' on ' + view.name,
    least: FRONTIER, xs: edges, ys, logx: true, logy: state.logy, named: width >= 260, inset: 4, ticks: values, title: plan.scale
  });
}

/* Readout at the round under the pointer: the nearest curve, and the best agents. */
function readout(view, event) {
  const chart = view.chart;
  if (!chart) return;
  const frame = chart.holder.getBoundingClientRect();
  const px = event.clientX - frame.left, py = event.clientY - frame.top;
  if (px < chart.box.left - 8 || px > chart.box.right + 8) return hideReadout(view);
  let best = null;
  for (const s of chart.series) {
    s.near = s.points.reduce((a, b) => Math.abs(b.x - px) < Math.abs(a.x - px) ? b : a);
    const far = Math.abs(s.near.y - py) + 0.2 * Math.abs(s.near.x - px);
    if (!best || far < best.far) best = { s, far };
  }
  const when = best.s.near;
  chart.cross.setAttribute('x1', when.x);
  chart.cross.setAttribute('x2', when.x);
  chart.cross.setAttribute('visibility', 'visible');
  light(view, best.s.row);
  const there = chart.series.filter(s => Math.abs(s.near.x - when.x) < 3).sort((a, b) => a.near.mean - b.near.mean);
  const listed = there.slice(0, 6);
  if (!listed.includes(best.s)) listed.push(best.s);
  const panel = $('.readout', chart.holder) || make('div', chart.holder, null, 'readout');
  panel.textContent = '';
  make('p', panel, 'round ' + when.t.toLocaleString('en-US') + ', least regret first', 'when');
  const body = make('tbody', make('table', panel));
  for (const s of listed) {
    const line = make('tr', body, null, s === best.s ? 'near' : '');
    make('td', line, there.indexOf(s) + 1, 'when');
    paint(make('td', line, s.row.label), s.row);
    make('td', line, text(s.near.mean));
  }
  if (bounded(when)) make('p', panel, '95% interval ' + range(when), 'when');
  const right = when.x + 14 + panel.offsetWidth > chart.width;
  panel.style.left = clamp(right ? when.x - 14 - panel.offsetWidth : when.x + 14, 0,
    Math.max(0, chart.width - panel.offsetWidth)) + 'px';
  panel.style.top = clamp(py - panel.offsetHeight / 2, 0,
    Math.max(0, chart.holder.clientHeight - panel.offsetHeight)) + 'px';
}

function hideReadout(view) {
  const panel = view.chart && $('.readout', view.chart.holder);
  if (panel) panel.remove();
  if (view.chart) view.chart.cross.setAttribute('visibility', 'hidden');
  light(view, null);
}
