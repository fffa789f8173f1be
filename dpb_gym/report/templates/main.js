/* What is open and seen is drawn; controls; start. */
const NEAR = 300;
const watcher = new IntersectionObserver(entries => {
  for (const entry of entries) {
    const view = VIEWS[+entry.target.parentNode.dataset.task];
    if (entry.isIntersecting && view.dirty) show(view);
  }
}, { rootMargin: NEAR + 'px 0px' });

/* Where a part stands now: the watcher hears of what opens or moves only after the next picture. */
function seen(view) {
  if (!view.section.open || view.section.hidden) return false;
  const body = $('.body', view.section), place = body.getBoundingClientRect();
  const below = place.top >= innerHeight + NEAR;
  if (below && view.dirty) body.textContent = ''; // or every letter of a search would lay it out
  return !below && place.bottom > -NEAR;
}

function show(view) {
  view.dirty = false;
  if (!$('.body', view.section).firstChild) build(view);
  fill(view);
  if (view.table.rows.length) {
    drawFrontiers(view);
    if (view.track) {
      drawProfiles(view);
      $('.charts', view.section).hidden = !$('.frontiers figure', view.section);
    } else drawCurves(view);
  }
  light(view, null);
}

/* A part shows if some row passes; while something is searched for, parts are open. */
function sift() {
  const asked = filtered();
  for (const view of VIEWS) {
    const rows = view.table.rows;
    view.visible = rows.filter(row => passes(row, false));
    const bare = !rows.length && state.q.trim() === '' && !state.guarantee.length && !state.budget.length &&
      chosen('track', [view.table.track]) && chosen('problem', view.table.problems);
    view.section.hidden = !view.visible.length && !bare;
    $('.count', view.section).textContent = (view.visible.length === rows.length ? rows.length :
      view.visible.length + ' of ' + rows.length) + (rows.length === 1 ? ' row' : ' rows');
    if (asked && !view.folded) view.section.open = true;
    else if (!asked && !view.kept) view.section.open = view.first;
    view.dirty = true;
  }
}

function render() {
  sift();
  for (const section of $$('details.part')) {
    const view = VIEWS[+section.dataset.task];
    if (seen(view)) show(view);
  }
  syncControls();
}

function change() {
  render();
  writeAddress();
}

function syncControls() {
  if ($('#q').value !== state.q) $('#q').value = state.q;
  for (const name of FILTERS) {
    for (const box of $$('input[name="' + name + '"]')) box.checked = state[name].includes(box.value);
  }
  for (const id of ['apart', 'logx', 'logy']) $('#' + id).checked = state[id];
  const start = blank();
  $('#reset').disabled = !filtered() && !state.pins.length &&
    ['sort', 'dir', 'apart', 'logx', 'logy'].every(name => state[name] === start[name]);
  let count = 0, all = 0;
  for (const view of VIEWS) {
    if (view.track) continue;
    count += view.visible.length;
    all += view.table.rows.length;
  }
  const say = n => n.toLocaleString('en-US');
  $('#status').textContent = (count === all ? say(all) : say(count) + ' of ' + say(all)) + (all === 1 ? ' row' : ' rows');
  $('#mixed').hidden = state.apart;
  $('#nothing').hidden = count > 0 || !filtered();
}

function jump(t) {
  const view = VIEWS[t];
  if (t === null || !view || view.section.hidden) return;
  view.section.open = view.kept = true;
  for (const other of VIEWS) {
    // What stands above is made first, or it would push the part away when it is.
    const above = other.section.compareDocumentPosition(view.section) & Node.DOCUMENT_POSITION_FOLLOWING;
    if (other.dirty && other.section.open && !other.section.hidden && (above || other === view)) show(other);
  }
  view.section.scrollIntoView();
}

function clearFilters() {
  state.q = '';
  for (const name of FILTERS) state[name] = [];
  change();
}

function fold(open) {
  $('#choices').hidden = !open;
  $('#fold').setAttribute('aria-expanded', String(open));
}

/* The rows that pass the filters; text that a spreadsheet would run is quoted. */
function csv() {
  const quote = value => {
    let words = value === null || value === undefined ? '' : String(value);
    if (typeof value === 'string' && /^[=+\-@]/.test(words)) words = "'" + words;
    return /[",\n]/.test(words) ? '"' + words.replace(/"/g, '""') + '"' : words;
  };
  const lines = [['task', 'env_id', 'problem', 'horizon', 'agent', 'name', 'budget', 'guarantee', 'accounting', 'group',
    'trust', 'tuning', 'source', 'replicates', 'regret', 'regret_low', 'regret_high', 'excess', 'excess_low', 'excess_high', 'score', 'score_low', 'score_high', 'reward',
    'rounds_per_second', 'audit']];
  for (const view of VIEWS) {
    if (view.track) continue;
    const t = view.table;
    for (const r of view.visible) {
      const score = r.score || {}, excess = r.excess || {};
      lines.push([t.name, t.env, t.problem, t.horizon, r.agent, r.name, r.budget, r.guarantee, r.accounting, r.kind, r.trust,
        r.tuning, r.source, r.replicates, r.loss.mean, r.loss.low, r.loss.high, excess.mean, excess.low,
        excess.high, score.mean, score.low, score.high, r.reward.mean,
        r.speed, r.verdict]);
    }
  }
  return lines.map(line => line.map(quote).join(',')).join('\n') + '\n';
}

function download() {
  const link = make('a', null);
  link.href = URL.createObjectURL(new Blob([csv()], { type: 'text/csv' }));
  link.download = 'leaderboard.csv';
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function listen() {
  for (const view of VIEWS) {
    watcher.observe($('.body', view.section));
    $('summary', view.section).addEventListener('click', () => {
      view.kept = !view.section.open;
      view.folded = view.section.open;
    });
    view.section.addEventListener('toggle', () => {
      if (view.dirty && seen(view)) show(view);
    });
  }
  $('#controls').addEventListener('submit', event => event.preventDefault());
  $('#q').addEventListener('input', event => { state.q = event.target.value; change(); });
  for (const name of FILTERS) {
    for (const box of $$('input[name="' + name + '"]')) {
      box.addEventListener('change', () => {
        state[name] = $$('input[name="' + name + '"]:checked').map(b => b.value);
        change();
      });
    }
  }
  for (const id of ['apart', 'logx', 'logy']) {
    $('#' + id).addEventListener('change', event => { state[id] = event.target.checked; change(); });
  }
  $('#reset').addEventListener('click', () => { state = blank(); change(); });
  $('#clear').addEventListener('click', clearFilters);
  $('#csv').addEventListener('click', download);
  const files = placed('files');
  if (files) {
    $('#parquet').hidden = false;
    for (const link of [$('#parquet'), ...$$('[data-file]')]) link.href = files + (link.dataset.file || 'result.parquet');
  }
  $('#fold').addEventListener('click', () => fold($('#choices').hidden));
  for (const link of $$('[data-jump]')) {
    link.addEventListener('click', event => {
      event.preventDefault();
      state.task = +link.dataset.jump;
      writeAddress();
      jump(state.task);
    });
  }
  const each = $('#each');
  if (each) {
    $('#eachbox').hidden = false;
    each.addEventListener('change', () => { for (const row of $$('tr.sub')) row.hidden = !each.checked; });
  }
  window.addEventListener('hashchange', () => {
    state = readAddress();
    render();
    jump(state.task);
  });
  let width = document.documentElement.clientWidth, waiting = 0;
  window.addEventListener('resize', () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(render);
  });
  window.addEventListener('beforeprint', () => { for (const view of VIEWS) if (view.section.open) show(view); });
}

$('#controls').hidden = !TABLES.some(table => table.rows.length);
for (const view of VIEWS) view.first = view.section.open;
state = readAddress();
if (FILTERS.some(name => state[name].length)) fold(true);
render();
listen();
jump(state.task);
document.documentElement.dataset.ready = '';
performance.mark('ready');
setTimeout(() => { for (const table of TABLES) table.rows.forEach(haystack); });
