/* The pictures and the table of agents on the first screen, for one ruling, trust model and delta. */
const DEFAULT = 'default', MOST_AGENTS = 36;
const TRUSTED = { curator: 'a server', aggregator: 'secure aggregation', shuffler: 'a shuffler', local: 'nobody' };
const SEEN_BY = { curator: 'server', aggregator: 'sums', shuffler: 'shuffler', local: 'nobody' };
const SUBJECT = {
  'user-round': 'a whole visit', reward: 'each response', user: 'all visits of a person', 'user-rewards': 'all responses of a person'
};
const DECIDES = { assortment: 'Which products to show', pricing: 'Which price to ask', recommendation: 'Which item to recommend' };
const BADGES = {
  ours: 'ours', paper: "paper's", checked: 'code checked', published: 'published', abstract: 'after abstract', construct: 'construct'
};
const HEAT = [1.2, 2, 5, 20, 100, Infinity];
const MARKED = {
  '\u25cf': "clear lead, also after Holm's correction", '\u25d0': 'the interval of its lead is above zero', '\u25cb': 'too close to call'
};
const standing = row => (ORIGINS[row.name] || {}).standing || '';
const baseLabel = agent => agent.replace(/ \(tuned\)$/, '');
/* Budgets of different trust models share a column. */
const bare = row => row.budget.split('@')[0];
const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;

/* One family per track; tasks without a track by problem. A family shows one of its tasks. */
const FAMILIES = (() => {
  const title = word => word.slice(0, 1).toUpperCase() + word.slice(1);
  const tracks = TABLES.filter(table => table.whole).map(({ title, members }) => ({ title, tasks: members }));
  const rest = Map.groupBy(TASKS.filter(task => !task.track), task => task.problem);
  return [...tracks, ...[...rest].map(([problem, tasks]) => ({ title: title(problem), tasks }))]
    .filter(family => family.tasks.some(task => task.rows.length))
    .map(family => ({ ...family, first: family.tasks.find(task => /standard/.test(task.name)) || family.tasks[0] }))
    .map(family => ({ ...family, task: family.first }));
})();
/* Labels that have no row of the agent's defaults can only be shown as tuned. */
const HAS_TUNED = TASKS.some(task => task.rows.some(row => row.tuned));
const ALL_TUNED = TASKS.some(task => task.rows.some(row =>
  row.tuned && !task.rows.some(other => !other.tuned && baseLabel(other.agent) === baseLabel(row.agent))));
const HAS_EPSILON = TASKS.some(task => task.rows.some(row => row.epsilons.length));
const RESULTS = new Map(comparisons.map(one => [one.slice(0, 5).join('|'), one]));
const QUESTIONS = Map.groupBy(questions, one => one.slice(0, 3).join('|'));

/* One row per agent and budget. Tuned, agents of this project have tuned rows, others the better row. */
function ruled(task) {
  const best = new Map();
  for (const row of task.rows) {
    if (row.stated || row.name === 'oracle' || (row.tuned && state.ruling === DEFAULT)) continue;
    const id = baseLabel(row.agent) + '|' + row.budget, other = best.get(id);
    const better = !other || (standing(row) === 'ours' ? row.tuned && !other.tuned : row.loss.mean < other.loss.mean);
    if (better) best.set(id, row);
  }
  return [...best.values()];
}

/* What the switches ask of a task: per kind of protection and budget the rows that answer, best first. */
function asked(task, trust) {
  const found = (QUESTIONS.get([task.name, state.ruling, trust].join('|')) || [])
    .map(([, , , group, budget, places]) => ({ group, budget, ...GROUPS[group], rows: places.map(i => task.rows[i]) }));
  const rest = ruled(task).filter(row => row.private && !row.reference && row.budget === 'none' && row.trust_model === trust);
  for (const rows of Map.groupBy(rest, row => row.group).values()) {
    const group = rows[0].group;
    found.push({ group, budget: 'none', ...GROUPS[group], rows: rows.sort((a, b) => a.loss.mean - b.loss.mean) });
  }
  return [...Map.groupBy(found, one => one.group).values()].sort((a, b) => a[0].rank - b[0].rank);
}
const answering = part => [...new Set(part.flatMap(one => one.rows))];

/* The best of default and tuned rows, whatever the ruling. */
const withoutPrivacy = rows => rows.filter(row => !row.private && !row.reference && !row.stated)
  .reduce((a, b) => !a || b.loss.mean < a.loss.mean ? b : a, null);
const epsilonOf = row => row.epsilons[DELTAS.indexOf(state.delta)] ?? null;
const byLabel = rows => [...Map.groupBy(rows, row => baseLabel(row.agent)).values()]
  .map(mine => mine.sort((a, b) => a.order - b.order));
const level = rows => mean(rows.map(row => Math.log(Math.max(row.loss.mean, 1e-9))));
const least = agents => agents.reduce((a, b) => !a || level(b) < level(a) ? b : a, null);

/* The kind of protection that a picture shows: one that this project's and a paper's agent have, if any. */
function shownPart(parts) {
  const score = part => (held => held.has('ours') * 2 + held.has('paper'))(new Set(answering(part).map(standing)));
  return parts.reduce((a, b) => !a || score(b) > score(a) ? b : a, null);
}

/* Lines of a picture: name, what it is, and its rows by budget. */
function contenders(task) {
  const rows = ruled(task), of = model => rows.filter(row => row.private && row.trust_model === model);
  const part = shownPart(asked(task, state.trust)), group = part && answering(part), found = [];
  const add = (name, mine, here) => {
    if (mine) found.push({ name, rows: mine, label: baseLabel(mine[0].agent), here });
  };
  const some = word => least(byLabel((group || []).filter(row => standing(row) === word)));
  add('ours', some('ours'), true);
  add("paper's agent", some('paper'), true);
  add('best other', least(byLabel((group || []).filter(row => !['ours', 'paper'].includes(standing(row))))), true);
  for (const model of Object.keys(TRUSTED)) {
    if (model !== state.trust) {
      const unit = part && part[0].group.split('/')[1];
      const mine = of(model).filter(row => standing(row) === 'ours' && (!unit || row.group.endsWith('/' + unit)));
      add('ours (' + SEEN_BY[model] + ')', least(byLabel(mine)), false);
    }
  }
  return { found, where: part && part[0], best: withoutPrivacy(task.rows), random: rows.find(row => row.name === 'random') };
}

function taskChoice(family, parent) {
  if (family.tasks.length < 2) return;
  const select = make('select', parent, null, 'choice', { 'aria-label': 'Task of ' + family.title });
  for (const task of family.tasks) make('option', select, task.title).value = task.t;
  select.value = family.task.t;
  select.addEventListener('change', () => {
    family.task = TABLES[+select.value];
    state.board = FAMILIES.indexOf(family);
    overview();
    writeAddress();
  });
}

function drawPictures() {
  const holder = $('#pictures');
  holder.textContent = '';
  const frames = FAMILIES.map(family => {
    const figure = make('figure', holder), head = make('div', figure, null, 'head');
    make('h3', head, family.title);
    taskChoice(family, head);
    const plan = contenders(family.task), where = plan.where;
    const what = where ? 'protects ' + (SUBJECT[where.group.split('/')[1]] || 'people') + ' [' + where.kind + ']' :
      'no agent here if you trust ' + TRUSTED[state.trust];
    make('figcaption', figure, (DECIDES[family.task.problem] || family.task.problem) + '; ' + what);
    const frame = make('div', figure, null, 'canvas');
    drawWinners(family, make('dl', figure, null, 'wins'));
    const told = plan.found.map(line => line.name + ': ' + line.label);
    if (plan.best) told.push('no privacy: ' + baseLabel(plan.best.agent));
    make('p', figure, told.join('; '), 'who-is');
    return { family, plan, frame };
  });
  // All widths are read before drawing, because reading one after it forces a layout.
  for (const part of frames) part.width = part.frame.clientWidth;
  for (const { family, plan, frame, width } of frames) if (width) drawPicture(family.task, plan, frame, width);
  $('#told').textContent = 'Least regret at epsilon ' + state.epsilon + ' if you trust ' + TRUSTED[state.trust] + ': ' +
    $$('#pictures figure').map(figure => [$('h3', figure), ...$$('.wins b', figure)].map(node => node.textContent).join(' ')).join('; ');
}

function drawPicture(task, { found, best, random }, frame, width) {
  const known = found.every(line => line.rows.every(row => epsilonOf(row) !== null));
  const lines = found.map(({ name, rows, here }) => ({
    row: { ...rows[0], stroke: here ? 'solid' : 'dashdot' }, rows: rows.map(row => row.i).join(' '), name, dots: true,
    points: rows.filter(row => row.loss.mean > 0)
      .map(row => ({ t: known ? epsilonOf(row) : row.limit, ...row.loss, label: row.label })).sort((a, b) => a.t - b.t)
  })).filter(line => line.points.length);
  const xs = reach(lines.flatMap(line => line.points.map(p => p.t)), true);
  if (!xs) {
    make('p', frame, 'No results for this choice yet.', 'empty');
    return;
  }
  for (const [row, name] of [[best, 'no privacy'], [random, 'random']]) {
    if (!row || row.loss.mean <= 0) continue;
    const grey = { colour: ['#5b6370', '#98a2b0'], stroke: name === 'random' ? 'dotted' : 'dashed', strength: 1 };
    lines.push({ row: grey, rows: row.i, name, points: xs.map(t => ({ t, mean: row.loss.mean })) });
  }
  const ys = reach(lines.flatMap(line => line.points.flatMap(p => [p.mean, p.low ?? p.mean, p.high ?? p.mean])), true);
  const told = lines.map(line => line.name + ' ' + line.points.map(p => text(p.mean)).join(', ')).join('; ');
  picture(frame, width, {
    lines, label: 'Final regret on ' + task.name + ' from the strictest to the loosest budget: ' + told, least: 236, xs,
    ys: [ys[0] * 0.8, ys[1] * 1.2], logx: true, logy: true, named: true, inset: 4,
    title: known ? 'epsilon at delta ' + state.delta : 'privacy budget', mark: known ? +state.epsilon : null
  });
}

const multiple = (row, base) => (ratio => (ratio < 100 ? ratio.toFixed(1) : text(ratio)) + '\u00d7')(row.loss.mean / base);

/* The agents with least regret at the chosen epsilon or less, one per kind of protection. */
function drawWinners({ task }, holder) {
  const best = withoutPrivacy(task.rows), base = best ? best.loss.mean : 0, limit = +state.epsilon;
  const fits = row => epsilonOf(row) !== null && epsilonOf(row) <= limit * 1.0001;
  const parts = asked(task, state.trust).map(part => ({ unit: part[0].group.split('/')[1], kind: part[0].kind, rows: answering(part).filter(fits) }))
    .filter(part => part.rows.length);
  holder.hidden = !HAS_EPSILON;
  make('dt', holder, 'Least at \u03b5 \u2264 ' + limit);
  const list = make('dd', holder);
  if (!parts.length) make('b', list, 'no agent');
  for (const part of parts) {
    const row = part.rows.reduce((a, b) => b.loss.mean < a.loss.mean ? b : a), line = make('p', list), ratio = row.loss.mean / base;
    paint(make('i', line, null, 'swatch', { 'aria-hidden': 'true' }), row);
    make('b', line, baseLabel(row.agent));
    line.append(' ');
    make('span', line, base > 0 ? multiple(row, base) : text(row.loss.mean), base > 0 ? 'times h' + HEAT.findIndex(limit => ratio <= limit) : '');
    line.append(' ');
    make('small', line, SUBJECT[part.unit] || part.kind);
  }
}

/* Who loses less at the chosen epsilon: tasks by outcome, each at the largest budget within it. */
function drawVerdict() {
  const box = $('#verdict'), limit = +state.epsilon * 1.0001, found = new Map(), tasks = new Map(TASKS.map(task => [task.name, task]));
  const known = !!$('.headline[data-ruling]') && HAS_EPSILON;
  for (const [name, ruling, trust, group, budget, first, second, , outcome] of known ? comparisons : []) {
    if (ruling !== state.ruling || trust !== state.trust) continue;
    const rows = tasks.get(name).rows.filter(row => row.key === first || row.key === second);
    if (rows.some(row => epsilonOf(row) === null || epsilonOf(row) > limit)) continue;
    const id = name + '|' + group, other = found.get(id), order = BUDGETS[budget]?.order ?? 0;
    if (!other || other.order <= order) found.set(id, { name, unit: group.split('/')[1], outcome, order });
  }
  const names = { ahead: 'ahead', undecided: 'undecided', behind: 'behind', 'not compared': 'not compared' };
  const summary = $('summary', box), list = $('dl', box), counts = [];
  list.textContent = '';
  box.hidden = !found.size;
  for (const [outcome, told] of Object.entries(names)) {
    const mine = [...found.values()].filter(one => one.outcome === outcome);
    counts.push(told + ' in ' + mine.length);
    if (!mine.length) continue;
    make('dt', list, told);
    make('dd', list, mine.map(one => one.name + ' (' + (SUBJECT[one.unit] || one.unit) + ')').join(', '));
  }
  summary.textContent = 'At \u03b5 \u2264 ' + state.epsilon + ' if you trust ' + TRUSTED[state.trust] + ', of ' + found.size + ' tasks and protected units our agents are ' + counts.join(', ') + '.';
}

/* How the best row of a column compares with the next agent. */
function markOf(task, question, row) {
  const pair = RESULTS.get([task.name, state.ruling, state.trust, question.group, question.budget].join('|'));
  const next = question.rows.find(other => other.name !== row.name) || question.rows[1];
  // The stored pair is of our agent, which may be neither of the two best.
  if (!pair || !pair[9] || !next || [row.key, next.key].sort().join() !== [pair[5], pair[6]].sort().join()) return '';
  const [, , , , , first, , survives, , [, low, high]] = pair, clear = first === row.key ? low > 0 : high < 0;
  return clear ? survives ? '\u25cf' : '\u25d0' : '\u25cb';
}

function heatCell(tr, task, row, base, question) {
  const td = make('td', tr, null, 'num');
  if (!row) {
    td.append(DASH);
    return;
  }
  const ratio = base > 0 ? row.loss.mean / base : null, epsilon = epsilonOf(row), best = question && question.rows[0] === row;
  const shown = ratio === null ? text(row.loss.mean) : multiple(row, base);
  if (ratio !== null) td.classList.add('h' + HEAT.findIndex(limit => ratio <= limit));
  const mark = best ? markOf(task, question, row) : '';
  const value = make(best ? 'b' : 'span', td, shown, 'times');
  if (mark) make('span', value, ' ' + mark, 'mark', { title: MARKED[mark], role: 'img', 'aria-label': MARKED[mark] });
  const from = [];
  if (row.private && row.trust_model !== state.trust) from.push('trusts ' + TRUSTED[row.trust_model]);
  if (question && bare(row) !== question.budget) from.push('at ' + bare(row).replace(/,delta.*/, ''));
  make('small', td, [text(row.loss.mean), ...from].join(', '), from.length ? 'from' : '');
  td.title = 'regret ' + text(row.loss.mean) + ' (' + range(row.loss) + ')' +
    (epsilon === null ? '' : '; epsilon ' + text(epsilon) + ' at delta ' + state.delta);
}

function drawHeat() {
  const holder = $('#heat'), task = FAMILIES[state.board].task, rows = ruled(task), best = withoutPrivacy(task.rows);
  const parts = asked(task, state.trust), order = budget => BUDGETS[budget]?.order ?? Infinity;
  const budgets = [...new Set(parts.flat().map(one => one.budget))].sort((a, b) => order(a) - order(b));
  holder.textContent = '';
  const table = make('table', holder, null, 'heat');
  make('span', make('caption', table), 'Regret on ' + task.title + ' as a multiple of the best agent without privacy' +
    (best ? ', ' + best.agent + ' (' + text(best.loss.mean) + ')' : ''));
  const head = make('tr', make('thead', table));
  make('th', head, 'Agent').scope = 'col';
  make('th', head, 'Source', 'source').scope = 'col';
  for (const budget of budgets) {
    const own = rows.filter(row => row.private && row.trust_model === state.trust && bare(row) === budget);
    const here = own.length ? own : parts.flat().filter(one => one.budget === budget).flatMap(one => one.rows);
    const values = here.map(epsilonOf), th = make('th', head, null, 'num', { scope: 'col' });
    const known = values.length && !values.includes(null), by = state.heat === budget;
    if (by) th.setAttribute('aria-sort', 'ascending');
    make('button', th, known ? '\u03b5\u00a0\u2264\u00a0' + tick(Number(Math.max(...values).toPrecision(3))) : budget, '', { type: 'button', value: budget, title: by ? 'Order of the board' : 'Sort by this budget' });
    if (known) make('small', th, budget.replace(/,delta.*/, ''));
  }
  const ranks = parts.length ? meanRanks(task) : new Map();
  if (parts.length) make('th', head, 'mean rank', 'num', { scope: 'col', title: 'Mean over all tasks of this problem and their budgets of the place among the agents of the same protection' });
  make('th', head, 'no privacy', 'num').scope = 'col';
  const width = budgets.length + (parts.length ? 4 : 3), base = best ? best.loss.mean : 0;
  for (const part of parts) heatPart(make('tbody', table), task, part, budgets, rows, base, width, ranks);
  const exact = rows.filter(row => !row.private);
  if (exact.length) exactPart(make('tbody', table), task, exact, base, width);
  if (!parts.length) {
    make('p', holder, 'No agent here protects customers if you trust ' + TRUSTED[state.trust] + '. Choose another problem or trust model.', 'empty');
  }
}

/* Mean place of each agent among those of the same protection, over the tasks of a problem and their budgets. */
function meanRanks(task) {
  const places = new Map();
  for (const one of TASKS.filter(other => other.problem === task.problem)) {
    for (const question of asked(one, state.trust).flat()) {
      if (question.rows.length < 2) continue;
      const labels = [...new Set(question.rows.map(row => baseLabel(row.agent)))];
      labels.forEach((label, place) => {
        const id = question.group + '|' + label, found = places.get(id) || { sum: 0, count: 0, tasks: new Set() };
        found.tasks.add(one.name);
        places.set(id, { ...found, sum: found.sum + place + 1, count: found.count + 1 });
      });
    }
  }
  return places;
}

function partHead(body, width, title, about) {
  const th = make('th', make('tr', body, null, 'group'), null, '', { colspan: width, scope: 'rowgroup' }), box = make('details', th);
  make('summary', box, title);
  make('p', box, about);
}

function agentHead(body, row, secret) {
  const tr = make('tr', body), name = make('th', tr, null, 'who', { scope: 'row' }), label = baseLabel(row.agent);
  paint(make('i', name, null, 'swatch', { 'aria-hidden': 'true' }), row);
  make('button', name, label, '', { type: 'button', value: label, dir: 'auto', title: 'Its rows, curves and settings' });
  if (secret && row.audit_verdict === 'not audited') make('small', name, 'not audited', 'from', { title: 'No audit of this code is known here' });
  make('td', tr, BADGES[standing(row)] || '', 'source ' + standing(row));
  return tr;
}

function heatPart(body, task, part, budgets, rows, base, width, ranks) {
  partHead(body, width, 'Protects ' + (SUBJECT[part[0].group.split('/')[1]] || 'people') + ' [' + part[0].kind + ']', part[0].about);
  const answers = new Map();
  for (const question of part) {
    for (const row of question.rows) {
      const label = baseLabel(row.agent), mine = answers.get(label) || new Map();
      if (!mine.has(question.budget)) answers.set(label, mine.set(question.budget, row));
    }
  }
  const agents = [...answers].map(([label, mine]) => ({ label, mine, level: level([...mine.values()]), size: mine.size }))
    .sort((a, b) => b.size - a.size || a.level - b.level);
  const most = Math.max(0, ...[...ranks].filter(([id]) => id.startsWith(part[0].group + '|')).map(([, found]) => found.tasks.size));
  const at = ({ mine }) => mine.get(state.heat)?.loss.mean ?? Infinity;
  if (budgets.includes(state.heat)) agents.sort((a, b) => at(a) < at(b) ? -1 : at(a) > at(b) ? 1 : 0);
  for (const { label, mine } of agents.slice(0, MOST_AGENTS)) {
    const tr = agentHead(body, [...mine.values()][0], true), found = ranks.get(part[0].group + '|' + label);
    for (const budget of budgets) heatCell(tr, task, mine.get(budget), base, part.find(one => one.budget === budget));
    const rank = make('td', tr, found ? (found.sum / found.count).toFixed(1) : DASH, 'num rank');
    if (found) {
      const count = found.tasks.size + (found.tasks.size === 1 ? ' task' : ' tasks');
      rank.title = 'over ' + count;
      if (found.tasks.size < most) make('small', rank, count);
    }
    heatCell(tr, task, rows.find(row => !row.private && baseLabel(row.agent) === label), base);
  }
  if (agents.length > MOST_AGENTS) {
    make('td', make('tr', body), agents.length - MOST_AGENTS + ' more in the tables below', '', { colspan: width });
  }
}

function exactPart(body, task, exact, base, width) {
  partHead(body, width, 'Without privacy', GROUPS[exact[0].group].about);
  const ranked = exact.filter(row => !row.reference).sort((a, b) => a.loss.mean - b.loss.mean);
  const rest = exact.filter(row => row.reference).sort((a, b) => a.loss.mean - b.loss.mean);
  const lines = [...ranked, ...rest].sort((a, b) => a.loss.mean - b.loss.mean);
  for (const row of lines.slice(0, MOST_AGENTS)) {
    const tr = agentHead(body, row, false);
    if (width > 3) make('td', tr, null, '', { colspan: width - 3 });
    heatCell(tr, task, row, base, row === ranked[0] ? { rows: [row], group: '', budget: 'none' } : null);
  }
}

const MOST_TIMED = 12;

/* Regret against processor time per round, one figure per kind of protection. */
function drawSpeeds() {
  const section = $('#speeds'), holder = $('div', section), task = FAMILIES[state.board].task, limit = +state.epsilon * 1.0001;
  holder.textContent = '';
  const fits = row => !HAS_EPSILON || (epsilonOf(row) !== null && epsilonOf(row) <= limit);
  const plans = asked(task, state.trust).map(part => {
    const rows = answering(part).filter(row => fits(row) && row.rounds_per_second > 0 && row.loss.mean > 0).sort((a, b) => a.loss.mean - b.loss.mean);
    const once = new Map();
    for (const row of rows) if (!once.has(baseLabel(row.agent))) once.set(baseLabel(row.agent), row);
    return { part: part[0], rows: [...once.values()].slice(0, MOST_TIMED) };
  }).filter(plan => plan.rows.length > 1);
  section.hidden = !plans.length;
  if (!section.open) return;
  for (const plan of plans) {
    const figure = make('figure', holder);
    make('figcaption', figure, 'Protects ' + (SUBJECT[plan.part.group.split('/')[1]] || 'people') + ' [' + plan.part.kind + ']');
    plan.frame = make('div', figure, null, 'canvas');
  }
  for (const plan of plans) plan.width = plan.frame.clientWidth;
  for (const { rows, frame, width } of plans) {
    if (!width) continue;
    const lines = rows.map(row => ({
      row, rows: row.i, name: shorten(baseLabel(row.agent), 24), dots: true,
      points: [{ t: 1e6 / row.rounds_per_second, ...row.loss, label: row.label }]
    }));
    const xs = reach(lines.map(line => line.points[0].t), true);
    const ys = reach(lines.flatMap(({ points: [p] }) => [p.mean, p.low ?? p.mean, p.high ?? p.mean]), true);
    const told = lines.map(line => line.name + ' ' + text(line.points[0].t) + ' and ' + text(line.points[0].mean)).join('; ');
    picture(frame, width, {
      lines, label: 'Microseconds per round and final regret on ' + task.name + ': ' + told, least: 236,
      xs: [xs[0] * 0.8, xs[1] * 1.2], ys: [ys[0] * 0.8, ys[1] * 1.2], logx: true, logy: true, named: true, inset: 4,
      title: 'microseconds per round'
    });
  }
}

function drawBoards() {
  const form = $('#boards');
  form.textContent = '';
  if (FAMILIES.length > 1) {
    FAMILIES.forEach((family, f) => {
      const chip = make('label', form, null, 'chip'), box = make('input', chip, null, '', { type: 'radio', name: 'board', value: f });
      box.checked = f === state.board;
      make('span', chip, family.title);
    });
  }
  taskChoice(FAMILIES[state.board], form);
  form.hidden = !form.childElementCount;
}

/* Draw everything above the filters. */
function overview() {
  if (!FAMILIES.length) return;
  for (const name of ['ruling', 'trust']) for (const box of $$('input[name=' + name + ']')) box.checked = box.value === state[name];
  $('#delta').value = state.delta;
  $('#epsilon').value = state.epsilon;
  for (const line of $$('.headline[data-ruling]')) line.hidden = line.dataset.ruling !== state.ruling || line.dataset.trust !== state.trust;
  drawVerdict();
  drawPictures();
  drawBoards();
  drawHeat();
  drawSpeeds();
}

function listenOverview() {
  if (!FAMILIES.length) return;
  const known = new Set(TASKS.flatMap(task => task.rows.map(row => row.trust_model)).concat(questions.map(one => one[2])));
  for (const box of $$('input[name=trust]')) {
    box.disabled = !known.has(box.value);
    if (box.disabled) box.parentNode.title = 'No agent on this board';
  }
  $('[data-switch=ruling]').hidden = !HAS_TUNED;
  $('[data-switch=delta]').hidden = !HAS_EPSILON;
  $('#switches').hidden = !known.size || (known.size === 1 && known.has(''));
  for (const link of $$('.losses')) {
    link.hidden = !linked('docs');
    link.href = linked('docs') + 'where-ours-loses.html';
  }
  $('#switches').addEventListener('input', () => {
    for (const name of ['ruling', 'trust']) state[name] = ($('input[name=' + name + ']:checked') || {}).value || state[name];
    state.delta = $('#delta').value;
    state.epsilon = $('#epsilon').value;
    overview();
    writeAddress();
  });
  $('#speeds').addEventListener('toggle', drawSpeeds);
  $('#heat').addEventListener('click', event => {
    const button = event.target.closest('button');
    if (!button) return;
    if (!button.closest('thead')) {
      state.q = '"' + button.value + '"';
      state.task = FAMILIES[state.board].task.t;
      change();
      jump(state.task);
      $('summary', TABLES[state.task].section).focus({ preventScroll: true });
      return;
    }
    state.heat = state.heat === button.value ? '' : button.value;
    drawHeat();
    $$('#heat thead button').find(one => one.value === button.value).focus();
  });
  $('#boards').addEventListener('input', event => {
    if (event.target.name !== 'board') return;
    state.board = +event.target.value;
    overview();
    writeAddress();
    const again = $('input[name=board]:checked');
    if (again) again.focus();
  });
}
