/* The data of the page as objects, the state of the view, filters, sorting, and formats. */
const $ = (selector, root) => (root || document).querySelector(selector);
const $$ = (selector, root) => [...(root || document).querySelectorAll(selector)];
if (!window.DecompressionStream || !Map.groupBy) {
  $('#old').hidden = false;
  return;
}
const { columns, tables, budgets: BUDGETS, groups: HELD, asked: ASKED, questions, origins: ORIGINS, comparisons } = await new Response(new Blob([
  Uint8Array.from(atob($('#data').textContent), letter => letter.charCodeAt(0))
]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
/* Groups that are asked for include those without a row of their own. */
const GROUPS = { ...ASKED, ...HELD };
const DELTAS = $$('#delta option').map(option => option.value);
const linked = name => $('meta[name=' + name + ']').content;
const COLUMNS = new Map(columns.map(column => [column.name, column]));
const isInterval = column => ['interval', 'mean', 'score'].includes(column.kind);
const isNumeric = column => column.kind === 'number' || isInterval(column);
/* The ends are undefined where they are unknown, as for a single replicate. */
const interval = ([mean, low, high]) => ({ mean, low, high });
const bounded = one => one.low !== undefined;
const range = (one, places) => bounded(one) ? text(one.low, places) + ' to ' + text(one.high, places) : 'interval unknown';
const oneMinus = ({ mean, low, high }) => interval(low === undefined ? [1 - mean] : [1 - mean, 1 - high, 1 - low]);
const TABLES = tables.map((table, t) => {
  const drawing = Object.entries(table.rows), varying = Object.entries(table.values), section = $('#task-' + t), whole = table.kind === 'track';
  const made = { ...table, t, section, whole, visible: [], shown: new Map(), open: new Set(), limit: 40 };
  made.rows = Array.from({ length: table.count }, (_, i) => {
    const values = { ...table.same };
    for (const [name, each] of varying) values[name] = each[i];
    for (const column of columns) {
      if (isInterval(column) && values[column.name]) values[column.name] = interval(values[column.name]);
    }
    const own = Object.fromEntries(drawing.map(([name, each]) => [name, each[i]])), { regret, score } = values;
    const loss = whole ? oneMinus(score) : regret;
    return { ...values, values, loss, i, table: made, ...BUDGETS[values.budget], ...GROUPS[own.group], ...own };
  });
  made.rival = made.rows[table.rival] || null;
  return made;
});
const TASKS = TABLES.filter(table => table.kind === 'task');
for (const table of TABLES) {
  table.members = table.whole ? TASKS.filter(task => table.tasks.includes(task.name)) : [table];
  table.problems = table.members.map(task => task.problem);
}

const FILTERS = ['track', 'problem', 'guarantee', 'budget'], SWITCHES = ['apart', 'logx', 'logy'];

const blank = () => ({
  q: '', track: [], problem: [], guarantee: [], budget: [], sort: 'regret', dir: 'asc',
  apart: true, logx: true, logy: true, pins: [], task: null, agent: '',
  ruling: 'default', trust: 'curator', delta: '1e-05', epsilon: '1', board: 0, heat: ''
});
let state = blank();
const natural = name => COLUMNS.get(name).better === 'more' ? 'desc' : 'asc';
const pinName = row => row.table.name + '/' + row.key;

/* The address holds the state, so that a view can be shared. */
function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1)), next = blank();
  next.q = asked.get('q') || '';
  for (const name of FILTERS) {
    const known = $$('input[name="' + name + '"]').map(box => box.value);
    next[name] = asked.getAll(name).filter(value => known.includes(value));
  }
  const sort = asked.get('sort');
  const sorted = columns.find(({ name, alias, shown }) =>
    sort && [name, alias].includes(sort) && (shown.includes('task') || shown.includes('track')));
  if (sorted) {
    next.sort = sorted.name;
    next.dir = natural(next.sort);
  }
  if (['asc', 'desc'].includes(asked.get('dir'))) next.dir = asked.get('dir');
  for (const name of SWITCHES) next[name] = asked.get(name) !== '0';
  const pins = asked.getAll('pin');
  if (pins.length) for (const table of TABLES) next.pins.push(...table.rows.filter(row => pins.includes(pinName(row))));
  if (['default', 'tuned'].includes(asked.get('ruling'))) next.ruling = asked.get('ruling');
  else if (ALL_TUNED) next.ruling = 'tuned';
  if ($$('input[name=trust]').some(box => box.value === asked.get('trust'))) next.trust = asked.get('trust');
  if (DELTAS.includes(asked.get('delta'))) next.delta = asked.get('delta');
  if ($$('#epsilon option').some(option => option.value === asked.get('epsilon'))) next.epsilon = asked.get('epsilon');
  FAMILIES.forEach((family, f) => {
    const task = family.tasks.find(one => one.name === asked.get('board'));
    if (task) [family.task, next.board] = [task, f];
  });
  const named = TABLES.find(table => table.name === asked.get('task'));
  next.task = named ? named.t : null;
  if (TASKS.some(table => table.rows.some(row => row.name === asked.get('agent')))) next.agent = asked.get('agent');
  return next;
}

function writeAddress() {
  const query = new URLSearchParams();
  if (state.q) query.set('q', state.q);
  for (const name of FILTERS) for (const value of state[name]) query.append(name, value);
  if (state.sort !== 'regret' || state.dir !== 'asc') {
    query.set('sort', state.sort);
    query.set('dir', state.dir);
  }
  for (const name of SWITCHES) if (!state[name]) query.set(name, '0');
  for (const row of state.pins) query.append('pin', pinName(row));
  if (state.task !== null) query.set('task', TABLES[state.task].name);
  if (state.agent) query.set('agent', state.agent);
  const start = blank();
  if (state.ruling !== (ALL_TUNED ? 'tuned' : start.ruling)) query.set('ruling', state.ruling);
  for (const name of ['trust', 'delta', 'epsilon']) if (state[name] !== start[name]) query.set(name, state[name]);
  const family = FAMILIES[state.board];
  if (family && (state.board || family.task !== family.first)) query.set('board', family.task.name);
  const hash = query.toString(), bare = location.href.split('#')[0];
  history.replaceState(null, '', hash ? bare + '#' + hash : bare);
}

const filtered = () => state.q.trim() !== '' || FILTERS.some(name => state[name].length > 0);

/* Spellings of one symbol match each other: eps, epsilon and the Greek letter. */
const normalised = words => words.toLowerCase().replace(/epsilon|\u03b5/g, 'eps').replace(/\u03c1/g, 'rho')
  .replace(/\u03b4/g, 'delta').replace(/\s*=\s*/g, '=');

function searchText(row) {
  if (!row.search) {
    const words = [row.agent, row.name, row.budget, row.guarantee || '', row.kind, row.trust, row.table.title, row.table.track];
    for (const task of row.table.members) words.push(task.name, task.env, task.problem);
    row.search = normalised(words.join(' '));
  }
  return row.search;
}

/* Every word or "phrase" must occur, one after a minus sign must not. The query is split once, not per row. */
let search = { q: '', words: [] };
function found(row) {
  if (search.q !== state.q) {
    search = { q: state.q, words: (normalised(state.q).match(/-?"[^"]+"|\S+/g) || []).map(word => word.replaceAll('"', '')).filter(word => word !== '' && word !== '-') };
  }
  const text = search.words.length ? searchText(row) : '';
  return search.words.every(word => word[0] === '-' ? !text.includes(word.slice(1)) : text.includes(word));
}

const chosen = (name, values) => !state[name].length || values.some(value => state[name].includes(value));

function passes(row, anyBudget) {
  return chosen('track', [row.table.track]) && chosen('problem', row.table.problems) &&
    chosen('guarantee', [row.group]) && (anyBudget || chosen('budget', [row.budget])) && found(row);
}

const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;

/* Value of a column that rows are sorted by; rows without one are last. */
function sortValue(column, row) {
  const value = row.values[column.name] ?? null;
  if (column.kind === 'budget') return row.order;
  if (value === null || (column.kind === 'score' && row.gaps)) return null;
  return isInterval(column) ? value.mean : column.kind === 'number' ? value : value.toLowerCase();
}

/* Tables of tasks and of tracks have different columns; the default is regret or score. */
function sorting(table) {
  const known = table.rows.some(row => sortValue(COLUMNS.get(state.sort), row) !== null);
  const column = known ? state.sort : table.whole ? 'score' : 'regret';
  return { column, dir: known && column === state.sort ? state.dir : natural(column) };
}

function ordered(table, rows) {
  const by = sorting(table), sign = by.dir === 'asc' ? 1 : -1, column = COLUMNS.get(by.column);
  const sorted = rows.map(row => [sortValue(column, row), row]).sort((a, b) => {
    if (a[0] == null || b[0] == null) return (a[0] == null) - (b[0] == null) || compare(a[1].key, b[1].key);
    return sign * compare(a[0], b[0]) || a[1].order - b[1].order || compare(a[1].key, b[1].key);
  }).map(pair => pair[1]);
  // Rows of one agent at one budget, defaults and tuned, are adjacent.
  return [...Map.groupBy(sorted, row => [row.gaps, row.name, row.budget].join('|')).values()].flat();
}

/* Creating a formatter is slow, so each is created once. */
const FORMATS = {};
function grouped(size, least, most) {
  const asked = { minimumFractionDigits: least, maximumFractionDigits: most };
  return (FORMATS[least + '/' + most] ||= new Intl.NumberFormat('en-US', asked)).format(size);
}

/* As `number` in dpb_gym/report/number_format.py: three digits, separators, exponents at the extremes. */
function text(value, places) {
  if (value === null || value === undefined) return '\u2013';
  const size = Math.abs(value);
  let result;
  if (places == null && size !== 0 && (size >= 1e7 || size < 1e-3)) {
    result = size.toExponential(2).replace('e+', 'e');
  } else {
    if (places == null) places = size === 0 || size >= 1000 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(size)));
    result = grouped(size, places, places);
  }
  return (value < 0 && /[1-9]/.test(result) ? '\u2212' : '') + result;
}

function tick(value) {
  const size = Math.abs(value), sign = value < 0 ? '\u2212' : '';
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) {
    return sign + Number(size.toPrecision(6)).toExponential().replace('e+', 'e');
  }
  return sign + grouped(Number(size.toPrecision(10)), 0, 6);
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/* Share of common replicates in which one row has less regret than another; ties count half. */
function chance(a, b) {
  let wins = 0, pairs = 0;
  a.finals.forEach((x, k) => {
    const y = b.finals[k] ?? null;
    if (x === null || y === null) return;
    pairs += 1;
    wins += x < y ? 1 : x === y ? 0.5 : 0;
  });
  return pairs ? wins / pairs : null;
}

/* Labels are inserted as text, never as markup. */
function make(tag, parent, words, name, attributes) {
  const node = document.createElement(tag);
  if (words !== undefined && words !== null) node.textContent = words;
  if (name) node.className = name;
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (parent) parent.appendChild(node);
  return node;
}

const SVG = 'http://www.w3.org/2000/svg';
function draw(tag, attributes, parent) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  parent.appendChild(node);
  return node;
}

function paint(node, row) {
  node.classList.add('ink');
  node.style.setProperty('--l', row.colour[0]);
  node.style.setProperty('--d', row.colour[1]);
  return node;
}
