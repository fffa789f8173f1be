/* What the reader asked for. The address keeps it, so that a view can be sent to somebody. */
var FILTERS = ['track', 'problem', 'guarantee', 'budget'];
var FALLING = ['score', 'reward', 'speed', 'ahead'];
var SORTABLE = $$('thead th[data-sort]').map(function (th) { return th.dataset.sort; });
var state = blank();

function blank() {
  return {
    q: '', track: [], problem: [], guarantee: [], budget: [], sort: 'regret', dir: 'asc',
    apart: true, logx: false, logy: false, pins: [], task: null
  };
}

function natural(column) { return FALLING.indexOf(column) >= 0 ? 'desc' : 'asc'; }

function readAddress() {
  var asked = new URLSearchParams(location.hash.slice(1));
  var next = blank();
  next.q = asked.get('q') || '';
  FILTERS.forEach(function (name) {
    var known = $$('input[name="' + name + '"]').map(function (box) { return box.value; });
    next[name] = asked.getAll(name).filter(function (v) { return known.indexOf(v) >= 0; });
  });
  if (SORTABLE.indexOf(asked.get('sort')) >= 0) {
    next.sort = asked.get('sort');
    next.dir = natural(next.sort);
  }
  if (asked.get('dir') === 'asc' || asked.get('dir') === 'desc') next.dir = asked.get('dir');
  next.apart = asked.get('apart') !== '0';
  next.logx = asked.get('logx') === '1';
  next.logy = asked.get('logy') === '1';
  asked.getAll('pin').forEach(function (pin) {
    DATA.forEach(function (task, t) {
      task.rows.forEach(function (row, r) {
        if (pinName(t, r) === pin) next.pins.push(t + '-' + r);
      });
    });
  });
  DATA.forEach(function (task, t) { if (task.task === asked.get('task')) next.task = t; });
  return next;
}

function pinName(t, r) { return DATA[t].task + '/' + DATA[t].rows[r].key; }

function writeAddress() {
  var say = new URLSearchParams();
  if (state.q) say.set('q', state.q);
  FILTERS.forEach(function (name) {
    state[name].forEach(function (value) { say.append(name, value); });
  });
  if (state.sort !== 'regret' || state.dir !== 'asc') {
    say.set('sort', state.sort);
    say.set('dir', state.dir);
  }
  if (!state.apart) say.set('apart', '0');
  if (state.logx) say.set('logx', '1');
  if (state.logy) say.set('logy', '1');
  state.pins.forEach(function (id) {
    var at = id.split('-');
    say.append('pin', pinName(+at[0], +at[1]));
  });
  if (state.task !== null) say.set('task', DATA[state.task].task);
  var hash = say.toString();
  var plain = location.href.split('#')[0];
  history.replaceState(null, '', hash ? plain + '#' + hash : plain);
}

function filtered() {
  return state.q.trim() !== '' || FILTERS.some(function (name) { return state[name].length > 0; });
}

/* Words must all occur; a word after a minus sign must not. Quoting is not needed. */
function found(row) {
  return state.q.toLowerCase().split(/\s+/).every(function (word) {
    if (word.length > 1 && word[0] === '-') return row.search.indexOf(word.slice(1)) < 0;
    return word === '' || word === '-' || row.search.indexOf(word) >= 0;
  });
}

function chosen(name, value) {
  return state[name].length === 0 || state[name].indexOf(value) >= 0;
}

function passes(task, row, anyBudget) {
  return chosen('track', task.track) && chosen('problem', task.problem) &&
    chosen('guarantee', row.group) &&
    (anyBudget || chosen('budget', row.budget)) && found(row);
}
