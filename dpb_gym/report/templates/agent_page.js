/* The page of an agent: its facts and its rows on all tasks, for an address such as #agent=dp-se. */
function drawAgent() {
  const section = $('#agent'), name = state.agent;
  section.textContent = '';
  section.hidden = !name;
  if (!name) return;
  const rows = TASKS.flatMap(table => table.rows.filter(row => row.name === name));
  const head = make('h2', section, 'Agent ');
  make('code', head, name);
  const list = make('dl', section), from = ORIGINS[name] || {};
  const item = title => {
    make('dt', list, title);
    return make('dd', list);
  };
  const distinct = of => [...new Set(rows.map(of).filter(Boolean))];
  if (BADGES[from.standing]) item('Source of an agent').textContent = BADGES[from.standing];
  origin(item('Agent'), { name }, item);
  item('Guarantees').textContent = distinct(row => row.private && row.kind).join('; ') || 'none';
  const audits = item('Audits'), verdicts = Map.groupBy(rows.filter(row => row.private), row => row.audit_verdict || 'not audited');
  audits.textContent = [...verdicts].map(([verdict, of]) => verdict + ': ' + of.length + (of.length === 1 ? ' row' : ' rows')).join('; ') || 'not private';
  const versions = item('Versions of its code');
  for (const source of distinct(row => row.source)) make('code', versions, source.slice(0, 12) + ' ');
  versions.append('by ' + $('meta[name=generator]').content);
  const grid = make('table', make('div', section, null, 'scroll')), line = make('tr', make('thead', grid));
  for (const title of ['Task', 'Agent', 'Budget', 'Guarantee', 'Regret', 'Audit']) {
    make('th', line, title, title === 'Regret' ? 'num' : '').scope = 'col';
  }
  const body = make('tbody', grid);
  for (const row of rows) {
    const tr = make('tr', body);
    make('a', make('td', tr), row.table.title, '', { href: '#task=' + encodeURIComponent(row.table.name) });
    make('bdi', make('td', tr), row.agent);
    make('bdi', make('td', tr), row.budget === 'none' ? DASH : row.budget);
    fillGuarantee(make('td', tr), row);
    const regret = make('td', tr, text(row.regret.mean) + ' ', 'num');
    ends(regret, row.regret);
    fillVerdict(make('td', tr), row, COLUMNS.get('audit_verdict'));
  }
}

function jumpToAgent() {
  if (state.agent) $('#agent').scrollIntoView();
}
