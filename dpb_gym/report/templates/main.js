/* Rendering of visible sections, controls, and start. */
const NEAR = 300;
const watcher = new IntersectionObserver(entries => {
  for (const entry of entries) {
    const view = TABLES[+entry.target.parentNode.dataset.task];
    if (entry.isIntersecting && view.dirty) show(view);
  }
}, { rootMargin: NEAR + 'px 0px' });

/* Whether a section is near the viewport now; the observer reports changes one frame later. */
function isNear(view) {
  if (!view.section.open || view.section.hidden) return false;
  const body = $('.body', view.section), place = body.getBoundingClientRect();
  const below = place.top >= innerHeight + NEAR;
  if (below && view.dirty) body.textContent = ''; // keeps typing in the search fast
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

/* A section is visible if a row passes the filters; while filters are active, sections are open. */
function applyFilters() {
  const active = filtered();
  for (const view of TABLES) {
    const rows = view.rows;
    view.visible = rows.filter(row => passes(row, false));
    const bare = !rows.length && state.q.trim() === '' && !state.guarantee.length && !state.budget.length &&
      chosen('track', [view.track]) && chosen('problem', view.problems);
    view.section.hidden = !view.visible.length && !bare;
    $('.count', view.section).textContent = (view.visible.length === rows.length ? rows.length :
      view.visible.length + ' of ' + rows.length) + (rows.length === 1 ? ' row' : ' rows');
    if (active && !view.folded) view.section.open = true;
    else if (!active && !view.kept) view.section.open = view.first;
    view.dirty = true;
  }
}

function render() {
  applyFilters();
  for (const section of $$('details.part')) {
    const view = TABLES[+section.dataset.task];
    if (isNear(view)) show(view);
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
  const format = n => n.toLocaleString('en-US');
  $('#status').textContent = (count === all ? format(all) : format(count) + ' of ' + format(all)) + (all === 1 ? ' row' : ' rows');
  $('#mixed').hidden = state.apart;
  $('#nothing').hidden = count > 0 || !filtered();
}

function jump(t) {
  const view = TABLES[t];
  if (t === null || !view || view.section.hidden) return;
  view.section.open = view.kept = true;
  for (const other of TABLES) {
    // Sections above are rendered first, or they would move this one when they are.
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

/* CSV of the rows that pass the filters; text that a spreadsheet would evaluate is quoted. */
function csv() {
  const quote = value => {
    let words = String(value ?? '');
    if (typeof value === 'string' && /^[=+\-@]/.test(words)) words = "'" + words;
    return /[",\n]/.test(words) ? '"' + words.replace(/"/g, '""') + '"' : words;
  };
  const shown = columns.filter(column => column.shown.includes('records'));
  const lines = [shown.flatMap(column =>
    isInterval(column) ? [column.name, column.name + '_low', column.name + '_high'] : [column.name])];
  for (const table of TASKS) {
    for (const { values } of table.visible) {
      lines.push(shown.flatMap(column => {
        const value = values[column.name];
        return isInterval(column) ? [value?.mean, value?.low, value?.high] : [value];
      }));
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
      if (view.dirty && isNear(view)) show(view);
    });
  }
  $('#controls').addEventListener('submit', event => event.preventDefault());
  $('#controls').addEventListener('input', () => {
    state.q = $('#q').value;
    for (const name of FILTERS) state[name] = $$('input[name="' + name + '"]:checked').map(box => box.value);
    for (const id of SWITCHES) state[id] = $('#' + id).checked;
    change();
  });
  $('#reset').addEventListener('click', () => {
    const { ruling, trust, delta, epsilon, board, heat } = state;
    state = { ...blank(), ruling, trust, delta, epsilon, board, heat };
    change();
  });
  $('#clear').addEventListener('click', clearFilters);
  $('#csv').addEventListener('click', download);
  const files = linked('files');
  if (files) {
    $('#parquet').hidden = false;
    for (const link of [$('#parquet'), ...$$('[data-file]')]) link.href = files + (link.dataset.file || 'result.parquet');
  }
  $('#fold').addEventListener('click', () => fold($('#choices').hidden));
  listenOverview();
  window.addEventListener('hashchange', () => {
    state = readAddress();
    overview();
    drawAgent();
    render();
    jump(state.task);
    jumpToAgent();
  });
  let width = document.documentElement.clientWidth, waiting = 0;
  window.addEventListener('resize', () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => { overview(); render(); });
  });
  window.addEventListener('beforeprint', () => { for (const view of TABLES) if (view.section.open) show(view); });
}

$('#controls').hidden = !TABLES.some(table => table.rows.length);
for (const view of TABLES) view.first = view.section.open;
state = readAddress();
if (FILTERS.some(name => state[name].length)) fold(true);
listen();
overview();
drawAgent();
render();
jump(state.task);
jumpToAgent();
document.documentElement.dataset.ready = '';
performance.mark('ready');
setTimeout(() => { for (const table of TABLES) table.rows.forEach(searchText); });
