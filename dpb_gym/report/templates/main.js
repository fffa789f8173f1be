/* Read-out under the pointer, controls, start. */
function readout(view, event) {
  var chart = view.chart;
  if (!chart) return;
  var frame = chart.holder.getBoundingClientRect();
  var px = event.clientX - frame.left, py = event.clientY - frame.top, best = null;
  if (px < chart.box.left - 8 || px > chart.box.right + 8) return hideReadout(view);
  chart.series.forEach(function (s) {
    var near = s.points.reduce(function (a, b) {
      return Math.abs(b.x - px) < Math.abs(a.x - px) ? b : a;
    });
    var far = Math.abs(near.y - py) + 0.2 * Math.abs(near.x - px);
    s.near = near;
    if (!best || far < best.far) best = { s: s, far: far };
  });
  var when = best.s.near;
  chart.cross.setAttribute('x1', when.x);
  chart.cross.setAttribute('x2', when.x);
  chart.cross.setAttribute('visibility', 'visible');
  light(view, best.s.i);
  var listed = chart.series.filter(function (s) { return Math.abs(s.near.x - when.x) < 3; })
    .sort(function (a, b) { return b.near.mean - a.near.mean; });
  var at = listed.indexOf(best.s), from = clamp(at - 3, 0, Math.max(0, listed.length - 7));
  var panel = $('.readout', chart.holder) || make('div', chart.holder, null, 'readout');
  panel.textContent = '';
  make('p', panel, 'round ' + when.t.toLocaleString('en-US'), 'when');
  var body = make('tbody', make('table', panel));
  listed.slice(from, from + 7).forEach(function (s) {
    var line = make('tr', body, null, s === best.s ? 'near' : '');
    paint(make('td', line, s.row.label), s.row);
    make('td', line, text(s.near.mean));
  });
  make('p', panel, '95% interval ' + text(when.low) + ' to ' + text(when.high), 'when');
  var right = when.x + 14 + panel.offsetWidth > chart.width;
  var left = right ? when.x - 14 - panel.offsetWidth : when.x + 14;
  panel.style.left = clamp(left, 0, Math.max(0, chart.width - panel.offsetWidth)) + 'px';
  panel.style.top = clamp(py - panel.offsetHeight / 2, 0,
    Math.max(0, chart.holder.clientHeight - panel.offsetHeight)) + 'px';
}

function hideReadout(view) {
  var panel = view.chart && $('.readout', view.chart.holder);
  if (panel) panel.remove();
  if (view.chart) view.chart.cross.setAttribute('visibility', 'hidden');
  light(view, null);
}

function renderCharts(view) {
  if (view.section.hidden || !view.rows.length) return;
  $('.charts', view.section).hidden = false;
  drawFrontiers(view);
  if (!view.track) drawCurves(view);
  else $('.charts', view.section).hidden = !$('.frontiers figure', view.section);
  light(view, null);
}

function syncControls() {
  $('#q').value = state.q;
  FILTERS.forEach(function (name) {
    $$('input[name="' + name + '"]').forEach(function (box) {
      box.checked = state[name].indexOf(box.value) >= 0;
    });
  });
  ['apart', 'logx', 'logy'].forEach(function (id) { $('#' + id).checked = state[id]; });
  var start = blank();
  start.task = state.task;
  $('#reset').disabled = JSON.stringify(start) === JSON.stringify(state);
  var count = 0, all = 0;
  VIEWS.forEach(function (view) {
    if (view.track) return;
    count += view.visible.length;
    all += view.rows.length;
  });
  $('#status').textContent = (count === all ? all : count + ' of ' + all) + (all === 1 ? ' row' : ' rows');
  $('#mixed').hidden = state.apart;
  $('#nothing').hidden = count > 0 || !filtered();
  $$('.tasks a').forEach(function (link) { link.hidden = VIEWS[+link.dataset.jump].section.hidden; });
  $$('.tasks p').forEach(function (line) { line.hidden = !$('a:not([hidden])', line); });
}

function render() {
  VIEWS.forEach(renderTable);
  VIEWS.forEach(renderCharts);
  syncControls();
}

function change() {
  render();
  writeAddress();
}

function jump(t) {
  if (t !== null && !VIEWS[t].section.hidden) VIEWS[t].section.scrollIntoView();
}

function clearFilters() {
  state.q = '';
  FILTERS.forEach(function (name) { state[name] = []; });
  change();
}

function fold(open) {
  $('#choices').hidden = !open;
  $('#fold').setAttribute('aria-expanded', String(open));
}

function listen() {
  VIEWS.forEach(function (view) {
    listenRows(view);
    var holder = $('.curves .canvas', view.section);
    if (!holder) return;
    holder.addEventListener('pointermove', function (event) { readout(view, event); });
    holder.addEventListener('pointerdown', function (event) { readout(view, event); });
    holder.addEventListener('pointerleave', function () { hideReadout(view); });
  });
  $('#controls').addEventListener('submit', function (event) { event.preventDefault(); });
  $('#q').addEventListener('input', function () { state.q = this.value; change(); });
  FILTERS.forEach(function (name) {
    $$('input[name="' + name + '"]').forEach(function (box) {
      box.addEventListener('change', function () {
        state[name] = $$('input[name="' + name + '"]:checked').map(function (b) { return b.value; });
        change();
      });
    });
  });
  ['apart', 'logx', 'logy'].forEach(function (id) {
    $('#' + id).addEventListener('change', function () { state[id] = this.checked; change(); });
  });
  $('#reset').addEventListener('click', function () { state = blank(); change(); });
  $('#clear').addEventListener('click', clearFilters);
  $('#fold').addEventListener('click', function () { fold($('#choices').hidden); });
  $$('.tasks a').forEach(function (link) {
    link.addEventListener('click', function (event) {
      event.preventDefault();
      state.task = +link.dataset.jump;
      writeAddress();
      jump(state.task);
    });
  });
  window.addEventListener('hashchange', function () {
    state = readAddress();
    render();
    jump(state.task);
  });
  var width = document.documentElement.clientWidth, waiting = 0;
  window.addEventListener('resize', function () {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(function () { VIEWS.forEach(renderCharts); });
  });
}

$('#controls').hidden = false;
fold(!window.matchMedia('(max-width: 700px)').matches);
state = readAddress();
render();
listen();
jump(state.task);
