/* Tables: which rows show, in which order, which are singled out. */
var VIEWS = [];
$$('section.task').forEach(function (section) {
  var t = +section.dataset.task, rows = [];
  $$('tr.row', section).forEach(function (tr) {
    rows[+tr.dataset.row] = {
      tr: tr, detail: $('#detail-' + t + '-' + tr.dataset.row), home: tr.parentNode
    };
  });
  VIEWS[t] = {
    t: t, task: DATA[t], section: section, rows: rows, visible: [],
    bodies: $$('tbody[data-group]', section), flat: $('tbody.flat', section),
    track: section.classList.contains('track')
  };
});

/* Tables of tasks and of tracks have different columns; each falls back to its own first one. */
function sorting(view) {
  var known = view.rows.length === 0 || state.sort in view.task.rows[0].sort;
  var column = known ? state.sort : view.track ? 'score' : 'regret';
  return { column: column, dir: known ? state.dir : natural(column) };
}

function ordered(view, indices) {
  var rows = view.task.rows, by = sorting(view), sign = by.dir === 'asc' ? 1 : -1;
  return indices.slice().sort(function (i, j) {
    var a = rows[i].sort[by.column], b = rows[j].sort[by.column];
    if (a === null || b === null) {
      if (a !== b) return a === null ? 1 : -1;
      return compare(rows[i].key, rows[j].key);
    }
    return sign * compare(a, b) || compare(rows[i].key, rows[j].key);
  });
}

function renderTable(view) {
  var all = view.rows.map(function (_, i) { return i; });
  view.visible = all.filter(function (i) { return passes(view.task, view.task.rows[i], false); });
  var bare = all.length === 0, by = sorting(view);
  view.section.hidden = bare ? filtered() && !(
    state.q.trim() === '' && state.guarantee.length + state.budget.length === 0 &&
    chosen('track', view.task.track) && chosen('problem', view.task.problem)) : view.visible.length === 0;
  if (bare) return;
  ordered(view, all).forEach(function (i) {
    var row = view.rows[i], body = state.apart ? row.home : view.flat;
    var shown = view.visible.indexOf(i) >= 0;
    body.appendChild(row.tr);
    row.tr.hidden = !shown;
    if (!row.detail) return;
    body.appendChild(row.detail);
    row.detail.hidden = !shown || $('.more button', row.tr).getAttribute('aria-expanded') !== 'true';
  });
  view.flat.hidden = state.apart;
  view.bodies.forEach(function (body) {
    body.hidden = !state.apart || !$('tr.row:not([hidden])', body);
  });
  $$('thead th[data-sort]', view.section).forEach(function (th) {
    if (th.dataset.sort === by.column) {
      th.setAttribute('aria-sort', by.dir === 'asc' ? 'ascending' : 'descending');
    } else {
      th.removeAttribute('aria-sort');
    }
  });
}

/* Singles out rows of a task: the one pointed at, else those kept. */
function light(view, hot) {
  var kept = state.pins.filter(function (id) { return +id.split('-')[0] === view.t; })
    .map(function (id) { return +id.split('-')[1]; });
  var lit = (hot === null ? kept : [hot].concat(kept)).filter(function (i) {
    return view.visible.indexOf(i) >= 0;
  });
  view.rows.forEach(function (row, i) {
    row.tr.classList.toggle('hot', hot === i);
    row.tr.classList.toggle('pinned', kept.indexOf(i) >= 0);
    $('.pin', row.tr).setAttribute('aria-pressed', String(kept.indexOf(i) >= 0));
  });
  $$('.canvas svg', view.section).forEach(function (svg) {
    svg.classList.toggle('lit', lit.length > 0);
    $$('[data-rows]', svg).forEach(function (node) {
      var mine = node.dataset.rows.split(' ').some(function (i) { return lit.indexOf(+i) >= 0; });
      node.classList.toggle('hot', mine);
    });
  });
}

/* Rivals at equal privacy first, each part by falling probability; made when first asked for. */
function fillChances(view, i) {
  var part = $('[data-chances]', view.rows[i].detail), me = view.task.rows[i];
  if (!part || !part.hidden) return;
  part.hidden = false;
  var rivals = me.chances.map(function (p, k) {
    var row = view.task.rows[k];
    return { row: row, p: p, same: row.group === me.group && row.budget === me.budget };
  }).filter(function (rival) { return rival.p !== null; }).sort(function (a, b) {
    return b.same - a.same || b.p - a.p || compare(a.row.label, b.row.label);
  });
  make('h3', part, 'Probability of improvement over');
  var list = make('ul', part, null, 'chances');
  rivals.forEach(function (rival) {
    var item = make('li', list, null, rival.same ? '' : 'other');
    make('bdi', make('span', item), rival.row.label);
    make('i', item).style.setProperty('--p', (100 * rival.p).toFixed(1) + '%');
    make('b', item, rival.p.toFixed(2));
  });
  if (rivals.some(function (rival) { return !rival.same; })) {
    make('p', part, 'Faded: another guarantee or budget, no comparison at equal privacy.', 'small');
  }
}

function togglePin(view, i) {
  var id = view.t + '-' + i, at = state.pins.indexOf(id);
  if (at >= 0) state.pins.splice(at, 1); else state.pins.push(id);
  if (!view.track && view.visible.length > CROWD) drawCurves(view);
  light(view, null);
  syncControls();
  writeAddress();
}

function listenRows(view) {
  view.rows.forEach(function (row, i) {
    row.tr.addEventListener('pointerenter', function (event) {
      if (event.pointerType === 'mouse') light(view, i);
    });
    row.tr.addEventListener('pointerleave', function () { light(view, null); });
    $('.pin', row.tr).addEventListener('focus', function () { light(view, i); });
    $('.pin', row.tr).addEventListener('blur', function () { light(view, null); });
    row.tr.addEventListener('click', function (event) {
      if (event.target.closest('.more')) return;
      if (String(window.getSelection()) && !event.target.closest('.pin')) return;
      togglePin(view, i);
    });
    if (row.detail) $('.more button', row.tr).addEventListener('click', function () {
      fillChances(view, i);
      var open = this.getAttribute('aria-expanded') !== 'true';
      this.setAttribute('aria-expanded', String(open));
      row.detail.hidden = !open;
    });
  });
  $$('thead th[data-sort] button', view.section).forEach(function (button) {
    button.addEventListener('click', function () {
      var column = button.parentNode.dataset.sort, by = sorting(view);
      state.dir = by.column !== column ? natural(column) : by.dir === 'asc' ? 'desc' : 'asc';
      state.sort = column;
      VIEWS.forEach(renderTable);
      writeAddress();
    });
  });
}
