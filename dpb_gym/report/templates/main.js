/* What is open and seen is drawn; controls; start. */
const NEAR = 300;
const watcher = new IntersectionObserver(entries => {
  for (const entry of entries) {
    const view = TABLES[+entry.target.parentNode.dataset.task];
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
  if (view.rows.length) {
    drawFrontiers(view);
    if (view.whole) {
      drawProfiles(view);
      $('.charts', view.section).hidden = !$('.frontiers figure', view.section);
    } else drawCurves(view);
  }
  light(view, null);
}

/* A part shows if some row passes; while something is searched for, parts are open. */
function sift() {
  const asked = filtered();
  for (const view of TABLES) {
    const rows = view.rows;
    view.visible = rows.filter(row => passes(row, false));
    const bare = !rows.length && state.q.trim() === '' && !state.guarantee.length && !state.budget.length &&
      chosen('track', [view.track]) && chosen('problem', view.problems);
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
    const view = TABLES[+section.dataset.task];
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
  for (const id of SWITCHES) $('#' + id).checked = state[id];
  const start = blank();
  $('#reset').disabled = !filtered() && !state.pins.length &&
    ['sort', 'dir', ...SWITCHES].every(name => state[name] === start[name]);
  const total = of => TASKS.reduce((sum, view) => sum + of(view).length, 0);
  const count = total(view => view.visible), all = total(view => view.rows);
  const say = n => n.toLocaleString('en-US');
  $('#status').textContent = (count === all ? say(all) : say(count) + ' of ' + say(all)) + (all === 1 ? ' row' : ' rows');
  $('#mixed').hidden = state.apart;
  $('#nothing').hidden = count > 0 || !filtered();
}

function jump(t) {
  const view = TABLES[t];
  if (t === null || !view || view.section.hidden) return;
  view.section.open = view.kept = true;
  for (const other of TABLES) {
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
    let words = String(value ?? '');
    if (typeof value === 'string' && /^[=+\-@]/.test(words)) words = "'" + words;
    return /[",\n]/.test(words) ? '"' + words.replace(/"/g, '""') + '"' : words;
  };
  const own = ['agent', 'name', 'budget', 'guarantee', 'accounting', 'kind', 'trust', 'tuning', 'source', 'replicates',
    'loss', 'excess', 'score', 'reward', 'speed', 'verdict'];
  const said = { kind: 'group', loss: 'regret', speed: 'rounds_per_second', verdict: 'audit' };
  const spread = (key, name) => INTERVALS.includes(key) ? [name, name + '_low', name + '_high'] : [name];
  const lines = [['task', 'env_id', 'problem', 'horizon', ...own.flatMap(key => spread(key, said[key] || key))]];
  for (const table of TASKS) {
    for (const row of table.visible) {
      const cells = own.flatMap(key => {
        const { mean, low, high } = row[key] || {};
        return INTERVALS.includes(key) ? [mean, low, high] : [row[key]];
      });
      lines.push([table.name, table.env, table.problem, table.horizon, ...cells]);
    }
  }
  return lines.map(line => line.map(quote).join(',')).join('\n') + '\n';
}

function download() {
  const href = URL.createObjectURL(new Blob([csv()], { type: 'text/csv' }));
  make('a', null, null, '', { href, download: 'leaderboard.csv' }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}

function listen() {
  for (const view of TABLES) {
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
  $('#controls').addEventListener('input', () => {
    state.q = $('#q').value;
    for (const name of FILTERS) state[name] = $$('input[name="' + name + '"]:checked').map(box => box.value);
    for (const id of SWITCHES) state[id] = $('#' + id).checked;
    change();
  });
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
  window.addEventListener('beforeprint', () => { for (const view of TABLES) if (view.section.open) show(view); });
}

$('#controls').hidden = !TABLES.some(table => table.rows.length);
for (const view of TABLES) view.first = view.section.open;
state = readAddress();
if (FILTERS.some(name => state[name].length)) fold(true);
render();
listen();
jump(state.task);
document.documentElement.dataset.ready = '';
performance.mark('ready');
setTimeout(() => { for (const table of TABLES) table.rows.forEach(haystack); });
