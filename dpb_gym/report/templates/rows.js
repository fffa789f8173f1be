/* Tables: which rows show, in which order, which are singled out. */
var VIEWS = $$('section.task').map(function (section) {
  var t = +section.dataset.task, rows = [];
  $$('tr.row', section).forEach(function (tr) {
    rows[+tr.dataset.row] = {
      tr: tr, detail: $('#detail-' + t + '-' + tr.dataset.row), home: tr.parentNode
    };
  });
  return {
    t: t, task: DATA[t], section: section, rows: rows, visible: [],
    bodies: $$('tbody[data-group]', section), flat: $('tbody.flat', section)
  };
});

function ordered(view, indices) {
  var rows = view.task.rows, sign = state.dir === 'asc' ? 1 : -1;
  return indices.slice().sort(function (i, j) {
    var a = rows[i].sort[state.sort], b = rows[j].sort[state.sort];
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
  var bare = all.length === 0;
  view.section.hidden = bare ? filtered() && !(
    state.q.trim() === '' && state.guarantee.length + state.budget.length === 0 &&
    chosen('problem', view.task.problem)) : view.visible.length === 0;
  if (bare) return;
  ordered(view, all).forEach(function (i) {
    var row = view.rows[i], body = state.apart ? row.home : view.flat;
    var shown = view.visible.indexOf(i) >= 0;
    body.appendChild(row.tr);
    body.appendChild(row.detail);
    row.tr.hidden = !shown;
    row.detail.hidden = !shown || $('.more button', row.tr).getAttribute('aria-expanded') !== 'true';
  });
  view.flat.hidden = state.apart;
  view.bodies.forEach(function (body) {
    body.hidden = !state.apart || !$('tr.row:not([hidden])', body);
  });
  $$('thead th[data-sort]', view.section).forEach(function (th) {
    if (th.dataset.sort === state.sort) {
      th.setAttribute('aria-sort', state.dir === 'asc' ? 'ascending' : 'descending');
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

function togglePin(view, i) {
  var id = view.t + '-' + i, at = state.pins.indexOf(id);
  if (at >= 0) state.pins.splice(at, 1); else state.pins.push(id);
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
    $('.more button', row.tr).addEventListener('click', function () {
      var open = this.getAttribute('aria-expanded') !== 'true';
      this.setAttribute('aria-expanded', String(open));
      row.detail.hidden = !open;
    });
  });
  $$('thead th[data-sort] button', view.section).forEach(function (button) {
    button.addEventListener('click', function () {
      var column = button.parentNode.dataset.sort;
      state.dir = state.sort !== column ? natural(column) : state.dir === 'asc' ? 'desc' : 'asc';
      state.sort = column;
      VIEWS.forEach(renderTable);
      writeAddress();
    });
  });
}
