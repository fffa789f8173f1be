/* Tables: rendered when their section is open and visible; filtered, sorted and highlighted rows. */
const NEXT = 200;
const DASH = '\u2013';
/* How a cell is filled, by the kind of its column. */
const CELLS = {
  agent: fillAgent,
  budget: (cell, row) => make('bdi', cell, row.budget === 'none' ? DASH : row.budget),
  guarantee: fillGuarantee,
  verdict: fillVerdict,
  score: fillScore,
  text: (cell, row, column) => make('bdi', cell, row.values[column.name] ?? DASH),
  number: (cell, row, column) => cell.append(text(row.values[column.name], decimals(row.table, column))),
  mean: (cell, row, column) => make('span', cell, text(row.values[column.name]?.mean, decimals(row.table, column)), 'mean'),
  interval: (cell, row, column) => {
    const value = row.values[column.name], places = decimals(row.table, column);
    make('span', cell, text(value?.mean, places), 'mean');
    if (value) ends(cell, value, places);
  }
};

/* Decimals of a column in a table; null formats each number by its magnitude. */
function decimals(table, column) {
  return table.places ? table.places[column.name] : typeof column.decimals === 'number' ? column.decimals : null;
}

function shortNames(names) {
  const heads = new Set(names.map(name => name.split('-')[0]));
  return names.length > 1 && heads.size === 1 && names.every(name => name.includes('-'))
    ? names.map(name => name.slice(name.indexOf('-') + 1)) : names;
}

/* Create the frame of a section: its facts, its charts, the head of its table. */
function build(view) {
  const body = $('.body', view.section);
  body.textContent = '';
  if (!view.whole) {
    const meta = make('p', body, null, 'meta');
    make('span', meta, view.problem);
    make('code', make('span', meta), view.env);
    make('span', meta, 'T\u00a0=\u00a0' + view.horizon.toLocaleString('en-US'));
    make('span', meta, view.replicates + (view.replicates === 1 ? ' replicate' : ' replicates'));
    if (view.ends) make('span', meta, 'reward of random ' + text(view.ends[0]) + ', oracle ' + text(view.ends[1]));
  }
  if (view.about) make('p', body, view.about, 'about');
  if (!view.rows.length) {
    make('p', body, view.whole ? 'No scores: its tasks have no normalisation constants.' : 'No results yet.', 'empty');
    return;
  }
  view.columns = columns.filter(column =>
    column.shown.includes(view.kind) && view.rows.some(row => (row.values[column.name] ?? null) !== null));
  const charts = make('div', body, null, 'charts');
  if (!view.whole) {
    const figure = make('figure', charts, null, 'curves');
    make('figcaption', figure);
    const holder = make('div', figure, null, 'canvas');
    for (const kind of ['pointermove', 'pointerdown']) holder.addEventListener(kind, event => readout(view, event));
    holder.addEventListener('pointerleave', () => hideReadout(view));
  }
  make('div', charts, null, 'frontiers');
  if (view.whole) make('div', charts, null, 'profiles frontiers many');
  const grid = make('table', make('div', body, null, 'scroll'));
  make('caption', grid, (view.whole ? 'Scores in track ' : 'Results on ') + view.title + '; the column headers sort', 'unseen');
  const head = make('tr', make('thead', grid));
  for (const column of view.columns) {
    const th = make('th', head, null, cellClass(column), { scope: 'col', 'data-sort': column.name });
    make('button', th, column.title, '', { type: 'button', ...(column.unit && { title: column.unit }) });
    if (view.whole && column.kind === 'score') {
      for (const name of shortNames(view.tasks)) make('th', head, name, 'num part').scope = 'col';
    }
  }
  make('span', make('th', head, null, 'more'), 'Details', 'unseen');
  const scores = view.rows.filter(row => row.score).map(row => row.score);
  view.axis = [Math.max(-0.5, Math.min(0, ...scores.map(score => score.low ?? score.mean))),
    Math.min(1.25, Math.max(1, ...scores.map(score => score.high ?? score.mean)))];
  view.parts = view.members.map(task => new Map(task.rows.map(row => [row.key, row])));
  listenRows(view, grid);
}

function ends(parent, interval, places) {
  if (bounded(interval)) make('span', parent, range(interval, places), 'ends');
}

function cellClass(column) {
  return column.name + (column.kind === 'interval' ? ' interval' : '') + (isNumeric(column) ? ' num' : '');
}

function fillScore(cell, row) {
  if (row.score) {
    const [low, high] = row.table.axis, place = v => 100 * clamp((v - low) / (high - low), 0, 1);
    const box = make('div', cell, null, 'gauge'), bar = make('span', box, null, 'bar');
    bar.title = range(row.score, 3);
    const zero = place(0), mean = place(row.score.mean);
    const part = (name, left, width) => {
      const node = make('i', bar, null, name);
      node.style.left = left.toFixed(2) + '%';
      if (width !== undefined) node.style.width = width.toFixed(2) + '%';
      return node;
    };
    paint(part('fill', Math.min(zero, mean), Math.abs(mean - zero)), row);
    part('zero', zero);
    if (bounded(row.score)) part('whisker', place(row.score.low), place(row.score.high) - place(row.score.low));
    make('span', box, text(row.score.mean, 3), 'mean');
  } else make('span', cell, DASH, 'mean');
  if (row.table.whole) ends(cell, row.score, 3);
}

function fillVerdict(cell, row, column) {
  const words = row.values[column.name];
  const kind = /^(pass|ok|consistent)/i.test(words) ? 'pass' : /^(fail|violat|refut|reads)/i.test(words) ? 'fail' : 'open';
  if (words) make('span', cell, words, 'verdict ' + kind);
  else cell.append(DASH);
}

function fillAgent(cell, row) {
  const box = make('div', cell, null, 'who'), pin = make('button', box, null, 'pin', {
    type: 'button', 'aria-pressed': state.pins.includes(row), 'aria-label': 'Keep the curve of ' + row.label + ' highlighted'
  });
  const svg = draw('svg', { viewBox: '0 0 22 10', width: 22, height: 10, 'aria-hidden': 'true' }, pin);
  paint(draw('line', { x1: 1, x2: 21, y1: 5, y2: 5, 'class': row.stroke, opacity: row.strength }, svg), row);
  const name = make('span', box, null, 'name');
  make('bdi', name, row.agent, 'label');
  if (row.tuned && !row.agent.includes('tuned')) make('span', name, 'tuned', 'tag');
  if (row.budget !== 'none') make('bdi', make('span', name, null, 'under'), row.budget);
  make('span', name, row.kind, 'kind');
  if (row.stated) make('span', name, row.trust, 'under');
}

function fillGuarantee(cell, row) {
  make('span', cell, row.guarantee);
  make('small', cell, [row.accounting, row.trust, row.tuning].filter(Boolean).join(' \u00b7 '), row.stated ? 'said stated' : 'said');
}

function makeRow(view, row) {
  const tr = make('tr', null, null, ['row', row.best && 'best', row.reference && 'reference', row.gaps && 'gaps']
    .filter(Boolean).join(' '), { id: 'row-' + view.t + '-' + row.i, 'data-row': row.i });
  for (const column of view.columns) {
    const head = column.kind === 'agent';
    CELLS[column.kind](make(head ? 'th' : 'td', tr, null, cellClass(column), head && { scope: 'row' }), row, column);
    for (const part of view.whole && column.kind === 'score' ? view.parts : []) {
      const score = part.get(row.key)?.score, cell = make('td', tr, score ? text(score.mean, 3) : DASH, 'num part');
      if (score) cell.title = range(score, 3);
    }
  }
  const button = make('button', make('td', tr, null, 'more'), null, '', {
    type: 'button', 'aria-expanded': false, 'aria-label': 'Details of ' + row.label
  });
  const svg = draw('svg', { viewBox: '0 0 12 12', width: 12, height: 12, 'aria-hidden': 'true' }, button);
  draw('path', { d: 'M2.5 4.5 6 8l3.5-3.5' }, svg);
  return tr;
}

function makeDetail(view, row) {
  const tr = make('tr', null, null, 'detail', { id: 'detail-' + view.t + '-' + row.i });
  const cell = make('td', tr, null, '', { colspan: $$('thead th', view.section).length });
  const panel = make('div', cell, null, 'panel'), list = make('dl', panel);
  const item = (title, words, interval, places) => {
    const line = make('div', list);
    make('dt', line, title);
    const value = make('dd', line, words);
    if (interval) {
      value.textContent = text(interval.mean, places) + ' ';
      ends(value, interval, places);
    }
    return value;
  };
  for (const column of columns) {
    const value = row.values[column.name] ?? null;
    if (value === null || !column.shown.includes('details')) continue;
    if (isInterval(column)) item(column.title, null, value, decimals(view, column));
    else if (column.kind === 'number') item(column.title, text(value, decimals(view, column)));
    else if (column.kind === 'agent') {
      const cell = item(column.title);
      origin(cell, row, item);
      cell.append(' ', make('a', null, 'all its rows', '', { href: '#agent=' + encodeURIComponent(row.name) }));
    }
    else if (column.kind === 'guarantee') item(column.title, value + (row.accounting ? ' (' + row.accounting + ')' : ''));
    else if (column.kind === 'verdict') auditDetail(item(column.title), row, column);
    else item(column.title, value);
  }
  if (row.params && row.params.length) {
    const part = make('div', panel, null, 'part'), params = make('dl', (make('h3', part, 'Parameters'), part), null, 'params');
    for (const [key, value] of row.params) {
      const line = make('div', params);
      make('code', make('dt', line), key);
      make('code', make('dd', line), value);
    }
  }
  chances(panel, view, row);
  return tr;
}

function auditDetail(cell, row, column) {
  fillVerdict(cell, row, column);
  const { audit_lower_bound: bound, audit_claimed: claimed } = row.values;
  if (claimed != null) cell.append(' epsilon at least ' + text(bound) + ', claimed ' + text(claimed));
  if (linked('docs')) cell.append(' ', make('a', null, 'how agents are audited', '', { href: linked('docs') + 'audit.html' }));
}

/* Origin of a row's agent: its page in the documentation, its papers, and its code. */
function origin(cell, row, item) {
  const from = ORIGINS[row.name] || { papers: [], page: '', code: '' };
  if (from.page && linked('docs')) make('code', make('a', cell, null, '', { href: linked('docs') + from.page }), row.name);
  else make('code', cell, row.name);
  if (from.papers.length) {
    const list = item('Paper');
    for (const paper of from.papers) {
      const short = paper.replace(/^https:..(arxiv.org.abs.)?/, (_, known) => known ? 'arXiv:' : '');
      make('a', list, short, '', { href: paper, rel: 'noopener noreferrer' });
      list.append(' ');
    }
  }
  if (from.code || row.source) make('code', item('Code'), [from.code, row.source && row.source.slice(0, 12)].filter(Boolean).join(' @ '));
}

/* Probability of improvement over every rival at equal privacy, computed when the details are opened. */
function chances(panel, view, row) {
  const rivals = view.rows
    .filter(other => other !== row && other.group === row.group && other.budget === row.budget)
    .map(other => ({ row: other, p: improvement(view, row, other) })).filter(rival => rival.p !== null)
    .sort((a, b) => b.p - a.p || compare(a.row.key, b.row.key));
  if (!rivals.length) return;
  const part = make('div', panel, null, 'part wide');
  make('h3', part, 'Probability of improvement over');
  const list = make('ul', part, null, 'chances');
  for (const rival of rivals) {
    const item = make('li', list);
    make('bdi', make('span', item), rival.row.agent);
    make('i', item).style.setProperty('--p', (100 * rival.p).toFixed(1) + '%');
    make('b', item, rival.p.toFixed(2));
  }
}

/* Rows by guarantee (in a track also by budget), in the chosen order. */
function sections(view) {
  if (!state.apart) return [{ rows: ordered(view, view.visible) }];
  return [...Map.groupBy(view.visible, row => row.group + (view.whole ? '|' + row.budget : '')).values()]
    .map(rows => ({ first: rows[0], rows: ordered(view, rows) }))
    .sort((a, b) => a.first.rank - b.first.rank || a.first.order - b.first.order);
}

function fill(view) {
  const grid = $('table', view.section);
  if (!grid) return;
  for (const body of $$('tbody', grid)) body.remove();
  view.shown.clear();
  let left = view.limit, rest = 0;
  const width = $$('thead th', grid).length;
  for (const section of sections(view)) {
    const rows = section.rows.slice(0, Math.max(0, left));
    rest += section.rows.length - rows.length;
    left -= rows.length;
    if (!rows.length) continue;
    const body = make('tbody', grid, null, state.apart ? '' : 'flat');
    if (section.first) {
      const th = make('th', make('tr', body, null, 'group'), null, '', { colspan: width, scope: 'rowgroup' });
      const about = make('details', th), name = section.first.kind;
      make('summary', about, view.whole && section.first.budget !== 'none' ? name + ', ' + section.first.budget : name);
      make('p', about, section.first.about);
    }
    for (const row of rows) {
      const tr = makeRow(view, row);
      body.appendChild(tr);
      view.shown.set(row, tr);
      if (view.open.has(row)) expand(view, row, true);
    }
  }
  if (rest) {
    const cell = make('td', make('tr', make('tbody', grid), null, 'rest'), null, '', { colspan: width });
    make('button', cell, rest.toLocaleString('en-US') + ' more ' + (rest === 1 ? 'row' : 'rows')).type = 'button';
  }
  const by = sorting(view);
  for (const th of $$('thead th[data-sort]', grid)) {
    if (th.dataset.sort === by.column) th.setAttribute('aria-sort', by.dir === 'asc' ? 'ascending' : 'descending');
    else th.removeAttribute('aria-sort');
  }
}

function expand(view, row, open) {
  const tr = view.shown.get(row), button = $('.more button', tr);
  if (!button) return;
  const known = tr.nextElementSibling && tr.nextElementSibling.className === 'detail' ? tr.nextElementSibling : null;
  if (known) known.remove();
  if (open) tr.after(makeDetail(view, row));
  view.open[open ? 'add' : 'delete'](row);
  button.setAttribute('aria-expanded', String(open));
}

/* Highlight rows of a section: the one under the pointer and the pinned ones. */
function light(view, hot) {
  const pinned = state.pins.filter(row => row.table === view);
  const lit = (hot ? [hot] : []).concat(pinned).filter(row => view.visible.includes(row) || row === hot);
  for (const [row, tr] of view.shown) {
    tr.classList.toggle('hot', hot === row);
    tr.classList.toggle('pinned', pinned.includes(row));
    $('.pin', tr).setAttribute('aria-pressed', String(pinned.includes(row)));
  }
  const indices = lit.map(row => String(row.i));
  for (const svg of $$('.canvas svg', view.section)) {
    svg.classList.toggle('lit', lit.length > 0);
    for (const node of $$('[data-rows]', svg)) {
      node.classList.toggle('hot', node.dataset.rows.split(' ').some(i => indices.includes(i)));
    }
  }
}

function togglePin(view, row) {
  const at = state.pins.indexOf(row);
  if (at >= 0) state.pins.splice(at, 1); else state.pins.push(row);
  if (!view.whole && view.visible.length > CROWD) drawCurves(view);
  light(view, null);
  syncControls();
  writeAddress();
}

function listenRows(view, grid) {
  const rowOf = node => {
    const tr = node.closest && node.closest('tr.row');
    return tr ? view.rows[+tr.dataset.row] : null;
  };
  grid.addEventListener('pointerover', event => {
    if (event.pointerType === 'mouse') light(view, rowOf(event.target));
  });
  grid.addEventListener('pointerleave', () => light(view, null));
  grid.addEventListener('focusin', event => {
    if (event.target.className === 'pin') light(view, rowOf(event.target));
  });
  grid.addEventListener('focusout', () => light(view, null));
  grid.addEventListener('click', event => {
    const row = rowOf(event.target), sort = event.target.closest('th[data-sort] button');
    if (sort) {
      const column = sort.parentNode.dataset.sort, by = sorting(view);
      state.dir = by.column !== column ? natural(column) : by.dir === 'asc' ? 'desc' : 'asc';
      state.sort = column;
      change();
      const again = $('th[data-sort="' + column + '"] button', view.section);
      if (again) again.focus();
    } else if (event.target.closest('tr.rest button')) {
      view.limit += NEXT;
      fill(view);
      light(view, null);
    } else if (row && event.target.closest('.more')) {
      expand(view, row, !view.open.has(row));
    } else if (row && (event.target.closest('.pin') || !String(window.getSelection()))) {
      togglePin(view, row);
    }
  });
}
