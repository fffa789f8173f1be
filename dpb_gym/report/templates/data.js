/* The data of the page as objects, each table with what shows of it, and what the reader asked of them. */
const $ = (selector, root) => (root || document).querySelector(selector);
const $$ = (selector, root) => [...(root || document).querySelectorAll(selector)];
const INTERVALS = ['loss', 'lead', 'score', 'iqm', 'reward', 'excess'];
if (!window.DecompressionStream || !Map.groupBy) {
  $('#old').hidden = false;
  return;
}
const { tables, budgets: BUDGETS, groups: GROUPS, origins: ORIGINS } = await new Response(new Blob([
  Uint8Array.from(atob($('#data').textContent), letter => letter.charCodeAt(0))
]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
const placed = name => $('meta[name=' + name + ']').content;
const TABLES = tables.map((table, t) => {
  const columns = Object.entries(table.rows), section = $('#task-' + t), whole = table.kind === 'track';
  const made = { ...table, t, section, whole, visible: [], shown: new Map(), open: new Set(), limit: 40 };
  made.rows = Array.from({ length: table.count }, (_, i) => {
    const told = Object.fromEntries(columns.map(([key, column]) => [key, column[i]]));
    const row = { i, table: made, ...BUDGETS[told.budget], ...GROUPS[told.group], ...told };
    for (const key of INTERVALS) if (row[key]) row[key] = { mean: row[key][0], low: row[key][1], high: row[key][2] };
    return row;
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
  apart: true, logx: true, logy: true, pins: [], task: null
});
let state = blank();
const natural = column => COLUMNS[column].falls ? 'desc' : 'asc';
const pinName = row => row.table.name + '/' + row.key;

/* The address keeps what was asked for, so that a view can be sent to somebody. */
function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1)), next = blank();
  next.q = asked.get('q') || '';
  for (const name of FILTERS) {
    const known = $$('input[name="' + name + '"]').map(box => box.value);
    next[name] = asked.getAll(name).filter(value => known.includes(value));
  }
  if (COLUMNS[asked.get('sort')]?.sort) {
    next.sort = asked.get('sort');
    next.dir = natural(next.sort);
  }
  if (['asc', 'desc'].includes(asked.get('dir'))) next.dir = asked.get('dir');
  for (const name of SWITCHES) next[name] = asked.get(name) !== '0';
  const pins = asked.getAll('pin');
  if (pins.length) for (const table of TABLES) next.pins.push(...table.rows.filter(row => pins.includes(pinName(row))));
  const named = TABLES.find(table => table.name === asked.get('task'));
  next.task = named ? named.t : null;
  return next;
}

function writeAddress() {
  const say = new URLSearchParams();
  if (state.q) say.set('q', state.q);
  for (const name of FILTERS) for (const value of state[name]) say.append(name, value);
  if (state.sort !== 'regret' || state.dir !== 'asc') {
    say.set('sort', state.sort);
    say.set('dir', state.dir);
  }
  for (const name of SWITCHES) if (!state[name]) say.set(name, '0');
  for (const row of state.pins) say.append('pin', pinName(row));
  if (state.task !== null) say.set('task', TABLES[state.task].name);
  const hash = say.toString(), bare = location.href.split('#')[0];
  history.replaceState(null, '', hash ? bare + '#' + hash : bare);
}

const filtered = () => state.q.trim() !== '' || FILTERS.some(name => state[name].length > 0);

/* Words are found as printed: eps, epsilon and the Greek letter are one word. */
const spoken = words => words.toLowerCase().replace(/epsilon|\u03b5/g, 'eps').replace(/\u03c1/g, 'rho')
  .replace(/\u03b4/g, 'delta').replace(/\s*=\s*/g, '=');

function haystack(row) {
  if (!row.search) {
    const words = [row.agent, row.name, row.budget, row.guarantee || '', row.kind, row.trust, row.table.title, row.table.track];
    for (const task of row.table.members) words.push(task.name, task.env, task.problem);
    row.search = spoken(words.join(' '));
  }
  return row.search;
}

/* Words must all occur; a word after a minus sign must not. Read once per search, not per row. */
let read = { q: '', words: [] };
function found(row) {
  if (read.q !== state.q) {
    read = { q: state.q, words: spoken(state.q).split(/\s+/).filter(word => word !== '' && word !== '-') };
  }
  const text = read.words.length ? haystack(row) : '';
  return read.words.every(word => word[0] === '-' ? !text.includes(word.slice(1)) : text.includes(word));
}

const chosen = (name, values) => !state[name].length || values.some(value => state[name].includes(value));

function passes(row, anyBudget) {
  return chosen('track', [row.table.track]) && chosen('problem', row.table.problems) &&
    chosen('guarantee', [row.group]) && (anyBudget || chosen('budget', [row.budget])) && found(row);
}

const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;

/* Tables of tasks and of tracks have different columns; each falls back to its own first one. */
function sorting(table) {
  const known = table.rows.some(row => COLUMNS[state.sort].sort(row) != null);
  const column = known ? state.sort : table.whole ? 'score' : 'regret';
  return { column, dir: known && column === state.sort ? state.dir : natural(column) };
}

function ordered(table, rows) {
  const by = sorting(table), sign = by.dir === 'asc' ? 1 : -1, key = COLUMNS[by.column].sort;
  const sorted = rows.map(row => [key(row), row]).sort((a, b) => {
    if (a[0] == null || b[0] == null) return (a[0] == null) - (b[0] == null) || compare(a[1].key, b[1].key);
    return sign * compare(a[0], b[0]) || a[1].order - b[1].order || compare(a[1].key, b[1].key);
  }).map(pair => pair[1]);
  // Rows of one agent at one budget stand together: its defaults and what was tuned.
  return [...Map.groupBy(sorted, row => [row.gaps, row.name, row.budget].join('|')).values()].flat();
}

/* A formatter takes far longer to make than to use. */
const FORMATS = {};
function grouped(size, least, most) {
  const asked = { minimumFractionDigits: least, maximumFractionDigits: most };
  return (FORMATS[least + '/' + most] ||= new Intl.NumberFormat('en-US', asked)).format(size);
}

/* The same rule as in the tables of the package: three digits, separators, exponents at the extremes. */
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

/* How often one row has less regret than another on the customers that both met. */
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

/* Labels only ever arrive here as text, never as markup. */
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
