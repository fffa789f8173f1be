/* Tables: made when their part is open and seen, which rows show, which are singled out. */
const NEXT = 200;
/* The columns: of which kind of table, and what of a row there must be; what they sort by, and whether
   from the largest down; how a cell is filled. */
const dashed = words => words === 'none' ? '\u2013' : words;
const COLUMNS = {
  agent: { title: 'Agent', sort: row => row.agent.toLowerCase(), fill: who },
  budget: { title: 'Budget', sort: row => row.order, fill: (cell, row) => make('bdi', cell, dashed(row.budget)) },
  guarantee: { title: 'Guarantee', of: 'task', sort: row => row.guarantee, fill: promise },
  regret: { title: 'Regret', of: 'task', number: true, sort: row => row.ahead === undefined ? row.loss.mean : null,
    fill: (cell, row) => measured(cell, row, row.loss, 'regret') },
  excess: { title: 'Privacy costs', of: 'task', needs: 'excess', number: true, sort: row => row.excess && row.excess.mean,
    fill: (cell, row) => measured(cell, row, row.excess, 'excess') },
  score: { title: 'Score', needs: 'score', number: true, falls: true,
    sort: row => row.score && !row.gaps ? row.score.mean : null, fill: gauge },
  part: { of: 'track' },
  reward: { title: 'Reward', of: 'task', number: true, falls: true, sort: row => row.reward && row.reward.mean,
    fill: (cell, row) => make('span', cell, text(row.reward.mean, row.table.places.reward), 'mean') },
  speed: { title: 'Rounds/s', of: 'task', number: true, falls: true, sort: row => row.speed,
    fill: (cell, row) => cell.append(text(row.speed)) },
  ahead: { title: 'Beats best other', of: 'track', number: true, falls: true, sort: row => row.ahead,
    fill: (cell, row) => cell.append(row.ahead === null ? '\u2013' : row.ahead.toFixed(2)) },
  audit: { title: 'Audit', needs: 'verdict', sort: row => row.verdict ? row.verdict.toLowerCase() : null, fill: verdict }
};

function shortNames(names) {
  const heads = new Set(names.map(name => name.split('-')[0]));
  return names.length > 1 && heads.size === 1 && names.every(name => name.includes('-'))
    ? names.map(name => name.slice(name.indexOf('-') + 1)) : names;
}

/* The skeleton of a part: what it is, its charts, the head of its table. */
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
  view.columns = Object.entries(COLUMNS).filter(([, { of, needs }]) =>
    (!of || of === view.kind) && (!needs || view.rows.some(row => row[needs])));
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
  for (const [key, { title, number }] of view.columns) {
    if (key === 'part') {
      for (const name of shortNames(view.tasks)) make('th', head, name, 'num part').scope = 'col';
      continue;
    }
    const th = make('th', head, null, key + (number ? ' num' : ''), { scope: 'col', 'data-sort': key });
    make('button', th, title, '', { type: 'button' });
  }
  make('span', make('th', head, null, 'more'), 'Details', 'unseen');
  const scores = view.rows.filter(row => row.score).map(row => row.score);
  view.axis = [Math.max(-0.5, Math.min(0, ...scores.map(score => score.low))),
    Math.min(1.25, Math.max(1, ...scores.map(score => score.high)))];
  view.parts = view.members.map(task => new Map(task.rows.map(row => [row.key, row])));
  listenRows(view, grid);
}

function ends(parent, interval, places) {
  make('span', parent, text(interval.low, places) + ' to ' + text(interval.high, places), 'ends');
}

function gauge(cell, row) {
  if (row.score) {
    const [low, high] = row.table.axis, place = v => 100 * clamp((v - low) / (high - low), 0, 1);
    const box = make('div', cell, null, 'gauge'), bar = make('span', box, null, 'bar');
    bar.title = text(row.score.low, 3) + ' to ' + text(row.score.high, 3);
    const zero = place(0), mean = place(row.score.mean), start = place(row.score.low);
    const part = (name, left, width) => {
      const node = make('i', bar, null, name);
      node.style.left = left.toFixed(2) + '%';
      if (width !== undefined) node.style.width = width.toFixed(2) + '%';
      return node;
    };
    paint(part('fill', Math.min(zero, mean), Math.abs(mean - zero)), row);
    part('zero', zero);
    part('whisker', start, place(row.score.high) - start);
    make('span', box, text(row.score.mean, 3), 'mean');
  } else make('span', cell, '\u2013', 'mean');
  if (row.table.whole) ends(cell, row.score, 3);
}

function verdict(cell, row) {
  const kind = /^(pass|ok|consistent)/i.test(row.verdict) ? 'pass' : /^(fail|violat|refut|reads)/i.test(row.verdict) ? 'fail' : 'open';
  if (row.verdict) make('span', cell, row.verdict, 'verdict ' + kind);
  else cell.append('\u2013');
}

function measured(cell, row, value, column) {
  const places = row.table.places[column];
  make('span', cell, text(value && value.mean, places), 'mean');
  if (value) ends(cell, value, places);
}

function who(cell, row) {
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

function promise(cell, row) {
  make('span', cell, row.guarantee);
  make('small', cell, [row.accounting, row.trust, row.tuning].filter(Boolean).join(' \u00b7 '), row.stated ? 'said stated' : 'said');
}

function makeRow(view, row) {
  const tr = make('tr', null, null, ['row', row.best && 'best', row.reference && 'reference', row.gaps && 'gaps']
    .filter(Boolean).join(' '), { id: 'row-' + view.t + '-' + row.i, 'data-row': row.i });
  for (const [key, { number, fill }] of view.columns) {
    if (key === 'part') {
      for (const part of view.parts) {
        const score = part.has(row.key) && part.get(row.key).score, cell = make('td', tr, score ? text(score.mean, 3) : '\u2013', 'num part');
        if (score) cell.title = text(score.low, 3) + ' to ' + text(score.high, 3);
      }
      continue;
    }
    const head = key === 'agent';
    fill(make(head ? 'th' : 'td', tr, null, key + (number ? ' num' : ''), head && { scope: 'row' }), row);
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
  const cell = make('td', tr, null, '', { colspan: view.columns.length + 1 });
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
  if (!view.whole) item('Guarantee', row.guarantee + (row.accounting ? ' (' + row.accounting + ')' : ''));
  origin(item('Agent'), row, item);
  item('Budget', row.budget);
  item('Trust', row.trust);
  if (!view.whole) item('Tuning', row.tuning || 'not known');
  if (!view.whole) item('Regret', null, row.loss, view.places.regret);
  if (row.iqm) item('Interquartile mean', null, row.iqm, view.places.regret);
  if (row.excess) item('Privacy costs', null, row.excess);
  if (row.lead) item('Lead over the best other agent', null, row.lead, view.whole ? 3 : undefined);
  if (row.score) item('Score', null, row.score, 3);
  if (row.reward) item('Reward', null, row.reward, view.places.reward);
  if (row.speed) item('Rounds/s', text(row.speed));
  if (row.replicates) item('Replicates', row.replicates);
  if (row.verdict) {
    const value = item('Audit');
    verdict(value, row);
    if (row.audit) value.append(' epsilon at least ' + text(row.audit[0]) + ', claimed ' + text(row.audit[1]));
    if (placed('docs')) value.append(' ', make('a', null, 'how agents are audited', '', { href: placed('docs') + 'audit.html' }));
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

/* Where the row's agent comes from: its page where the documentation is, papers, the code that computed it. */
function origin(cell, row, item) {
  const from = ORIGINS[row.name] || { papers: [], page: '', code: '' };
  if (from.page && placed('docs')) make('code', make('a', cell, null, '', { href: placed('docs') + from.page }), row.name);
  else make('code', cell, row.name);
  if (from.papers.length) {
    const named = item('Paper');
    for (const paper of from.papers) {
      const short = paper.replace(/^https:..(arxiv.org.abs.)?/, (_, known) => known ? 'arXiv:' : '');
      make('a', named, short, '', { href: paper, rel: 'noopener noreferrer' });
      named.append(' ');
    }
  }
  if (from.code || row.source) make('code', item('Code'), [from.code, row.source].filter(Boolean).join(' @ '));
}

/* Against every rival at equal privacy, computed from the replicates when somebody asks. */
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

/* Rows by guarantee (in a track also by budget), in the order that was asked for. */
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

/* Singles out rows of a part: the one pointed at, else those kept. */
function light(view, hot) {
  const kept = state.pins.filter(row => row.table === view);
  const lit = (hot ? [hot] : []).concat(kept).filter(row => view.visible.includes(row) || row === hot);
  for (const [row, tr] of view.shown) {
    tr.classList.toggle('hot', hot === row);
    tr.classList.toggle('pinned', kept.includes(row));
    $('.pin', tr).setAttribute('aria-pressed', String(kept.includes(row)));
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
