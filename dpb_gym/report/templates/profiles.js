/* Comparisons over the tasks of a track: performance profiles, probability of improvement. */
const MOST_RATIO = 100;

/* Mean over the tasks of the probability that one row has less regret than another. */
function improvement(view, a, b) {
  const found = view.parts.map(part => [part.get(a.key), part.get(b.key)]);
  const each = found.map(([x, y]) => x && y ? chance(x, y) : null);
  return each.includes(null) ? null : each.reduce((sum, p) => sum + p, 0) / each.length;
}

/* Each rival's regret as a multiple of the least, on every replicate that all of them have. */
function ratios(view, rivals) {
  return view.parts.map(part => {
    const finals = rivals.map(row => part.get(row.key).finals), found = rivals.map(() => []);
    finals[0].forEach((_, k) => {
      const each = finals.map(values => values[k]);
      if (each.some(value => value === null || value === undefined)) return;
      const least = Math.min(...each);
      each.forEach((value, i) => found[i].push(least > 0 ? value / least : value <= 0 ? 1 : Infinity));
    });
    return found;
  });
}

/* Rows at the largest visible budget, one plan per notion and unit. */
function contests(view) {
  const able = view.visible.filter(row => !row.reference && !row.stated && !row.gaps);
  return [...Map.groupBy(able, row => row.group).values()].map(rows => {
    const largest = rows.reduce((a, b) => b.limit > a.limit ? b : a).budget;
    return rows.filter(row => row.budget === largest);
  }).filter(rows => rows.length > 1).sort((a, b) => a[0].rank - b[0].rank);
}

function drawProfiles(view) {
  figures(view, $('.profiles', view.section), contests(view), rivals =>
    'Share of runs with regret within a factor of the least, ' + rivals[0].kind +
    (rivals[0].budget === 'none' ? '' : ', ' + rivals[0].budget) + few(rivals), drawProfile);
}

function drawProfile(view, rivals, holder, width) {
  const each = ratios(view, rivals);
  if (!width || each.some(task => !task[0].length)) return;
  const largest = each.flat(2).filter(Number.isFinite).reduce((a, b) => Math.max(a, b), 2);
  const end = Math.min(MOST_RATIO, largest), steps = 160;
  const factors = Array.from({ length: steps + 1 }, (_, k) => Math.pow(end, k / steps));
  const every = rivals.map((row, i) => ({
    row, rows: row.i, name: shorten(row.agent, 26),
    points: factors.map(t => ({ t, mean: each.reduce((sum, task) =>
      sum + task[i].filter(ratio => ratio <= t).length / task[i].length, 0) / each.length }))
  }));
  const area = line => line.points.reduce((sum, p) => sum + p.mean, 0);
  const lines = leading(every.sort((a, b) => area(b) - area(a)), line => line.row);
  picture(holder, width, {
    lines, label: 'Performance profiles of ' + lines.length + ' rows in track ' + view.title,
    least: FRONTIER, xs: [1, end], ys: [0, 1], logx: true, logy: false, named: width >= 260, title: 'factor'
  });
}
