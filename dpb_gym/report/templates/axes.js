/* Scales and axes. */
function linearTicks(low, high, count) {
  var rough = (high - low) / count, power = Math.pow(10, Math.floor(Math.log10(rough)));
  var step = [1, 2, 5, 10].map(function (m) { return m * power; })
    .filter(function (s) { return s >= rough * 0.999; })[0];
  var result = [], first = Math.ceil(low / step - 1e-9);
  for (var k = 0; k <= 2 * count && (first + k) * step <= high + step * 1e-9; k++) {
    result.push((first + k) * step);
  }
  return result;
}

function logTicks(low, high) {
  var first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), result = [];
  var every = Math.max(1, Math.ceil((last - first) / 6));
  var steps = last - first <= 2 ? [1, 2, 5] : [1];
  for (var k = first; k <= last; k += every) {
    steps.forEach(function (m) {
      var value = m * Math.pow(10, k);
      if (value >= low * 0.999 && value <= high * 1.001) result.push(Number(value.toPrecision(6)));
    });
  }
  return result;
}

function makeScale(low, high, from, to, log) {
  if (!(high > low)) {
    var pad = log ? low / 2 : Math.abs(low) / 2 || 1;
    low -= pad;
    high += pad;
  }
  var f = log ? Math.log10 : function (v) { return v; };
  var a = f(low), b = f(high);
  var scale = function (value) { return from + (to - from) * (f(value) - a) / (b - a); };
  scale.low = low;
  scale.high = high;
  scale.ticks = function (count) { return log ? logTicks(low, high) : linearTicks(low, high, count); };
  return scale;
}

/* Drops marks until their labels stand `gap` pixels apart. */
function spaced(values, scale, gap) {
  var kept = [];
  values.forEach(function (value) {
    if (!kept.length || Math.abs(scale(value) - scale(kept[kept.length - 1])) >= gap) kept.push(value);
  });
  return kept;
}

function axes(svg, box, x, y, xTicks, xTitle) {
  var layer = draw('g', {}, svg);
  spaced(y.ticks(5), y, 16).forEach(function (value) {
    var at = y(value);
    draw('line', { x1: box.left, x2: box.right, y1: at, y2: at, 'class': 'grid' }, layer);
    draw('text', { x: box.left - 7, y: at + 4, 'text-anchor': 'end' }, layer).textContent = tick(value);
  });
  draw('line', { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, 'class': 'base' }, layer);
  spaced(xTicks, x, 14 + room(xTicks.map(tick))).forEach(function (value) {
    draw('line', { x1: x(value), x2: x(value), y1: box.bottom, y2: box.bottom + 4, 'class': 'base' }, layer);
    draw('text', {
      x: Math.min(x(value), svg.clientWidth - room([tick(value)]) / 2), y: box.bottom + 17, 'text-anchor': 'middle'
    }, layer).textContent = tick(value);
  });
  draw('text', { x: box.right, y: box.bottom + 33, 'text-anchor': 'end' }, layer).textContent = xTitle;
}

var PEN = document.createElement('canvas').getContext('2d');

/* Pixels that the widest of some labels needs. */
function room(labels, font) {
  PEN.font = (font || '') + ' 11px ' + getComputedStyle(document.body).fontFamily;
  return labels.reduce(function (widest, label) {
    return Math.max(widest, PEN.measureText(label).width);
  }, 0);
}

function leftRoom(values) { return 12 + room(values.map(tick)); }

function rightRoom(labels) { return 22 + room(labels, '600'); }

/* Names at the right ends of lines, pushed apart so that they can be read. */
function endLabels(svg, box, ends) {
  var gap = 14;
  ends.sort(function (a, b) { return a.y - b.y; });
  ends.forEach(function (end) { end.at = end.y; });
  for (var i = 1; i < ends.length; i++) ends[i].at = Math.max(ends[i].at, ends[i - 1].at + gap);
  var over = ends.length ? Math.max(0, ends[ends.length - 1].at - box.bottom) : 0;
  for (var j = ends.length - 1; over > 0 && j >= 0; j--) {
    var ceiling = j === ends.length - 1 ? box.bottom : ends[j + 1].at - gap;
    ends[j].at = Math.min(ends[j].at, ceiling);
  }
  ends.forEach(function (end) {
    var leader = draw('line', {
      x1: end.x + 3, y1: end.y, x2: box.right + 11, y2: end.at, 'class': 'leader', 'data-rows': end.rows
    }, svg);
    var label = draw('text', { x: box.right + 14, y: end.at + 4, 'class': 'end', 'data-rows': end.rows }, svg);
    label.textContent = end.text;
    paint(leader, end.row);
    paint(label, end.row);
  });
}

function shorten(label, size) {
  var letters = Array.from(label);
  return letters.length > size ? letters.slice(0, size - 1).join('') + '\u2026' : label;
}
