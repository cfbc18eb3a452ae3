// Several engines on one model: a treemap for each on one scale, and whatever is pointed at is shown in all of them.

const HEIGHT = 360;
const slowest = Math.max(...data.engines.map((engine) => engine.run_ns), 1);
const best = Math.min(...data.engines.map((engine) => engine.median_ns));
let pinned = null;

byId('model').textContent = data.model;
byId('facts').textContent = `${counted(data.operators.length, 'operator')} · ${counted(data.threads, 'thread')} · engines in turns · times are means, which add up to a run; green: fastest by the median of its runs`;

// The types with most time have a colour, the same in all engines.
const spent = new Map();
for (const operator of data.operators) spent.set(operator.op, (spent.get(operator.op) || 0) + Math.max(...operator.ns));
const coloured = [...spent].sort((a, b) => b[1] - a[1]).slice(0, 9).map(([op]) => op);

/** The cells of all engines, by operator. */
const cells = data.operators.map(() => []);

function addMap(engine) {
  const figure = make('div', `engine${engine.median_ns === best ? ' best' : ''}`);
  figure.append(make('h2', '', engine.engine));
  const note = `${duration(engine.run_ns)} per run · ${counted(engine.kernels, 'kernel')} · ${percent(engine.rest_ns / Math.max(1, engine.run_ns))} in no operator`;
  figure.append(make('p', 'total', note));
  figure.append(make('div', 'map'));
  byId('maps').append(figure);
}

function drawMap(engine, position) {
  const map = byId('maps').children[position].querySelector('.map');
  const shown = data.operators.map((operator, number) => [operator.ns[position], number]).filter(([ns]) => ns > engine.run_ns / 3000);
  const rest = engine.run_ns - shown.reduce((sum, [ns]) => sum + ns, 0);
  if (rest > 0) shown.push([rest, -1]);
  shown.sort((a, b) => b[0] - a[0]);
  const labels = shortNames(shown.filter(([, number]) => number >= 0).map(([, number]) => data.operators[number].name));
  // Areas are on one scale: the slowest engine has the whole height.
  fillMap(map, (HEIGHT * engine.run_ns) / slowest, shown.map(([ns]) => ns), (place, hasRoom) => {
    const [ns, number] = shown[place];
    const text = number < 0 ? 'other' : labels.shift();
    const cell = make(number < 0 ? 'div' : 'button', 'cell', hasRoom ? text : '');
    if (number >= 0) {
      cell.type = 'button';
      const colour = coloured.indexOf(data.operators[number].op);
      if (colour >= 0) cell.classList.add(`type-${colour}`);
      cell.setAttribute('aria-label', `${data.operators[number].name}, ${duration(ns)} in ${engine.name}`);
      follow(cell, number);
      cells[number].push(cell);
    } else cell.classList.add('residual');
    return cell;
  });
}

/** An element that stands for an operator, wherever it is. */
function follow(element, number) {
  element.addEventListener('pointerenter', () => { if (pinned === null) show(number); });
  element.addEventListener('focus', () => { if (pinned === null) show(number); });
  element.addEventListener('click', () => {
    pinned = pinned === number ? null : number;
    show(number);
  });
}

function show(number) {
  for (const element of document.querySelectorAll('.lit, .with')) element.classList.remove('lit', 'with');
  if (number === null) {
    byId('detail').textContent = '';
    return;
  }
  const operator = data.operators[number];
  for (const cell of cells[number]) cell.classList.add('lit');
  for (const row of document.querySelectorAll(`[data-operator="${number}"]`)) row.classList.add('lit');
  const parts = data.engines.map((engine, position) => {
    const company = operator.with[position].map((other) => data.operators[other].name);
    for (const other of operator.with[position]) for (const cell of cells[other]) if (cell.closest('.engine') === byId('maps').children[position]) cell.classList.add('with');
    const together = company.length ? ` with ${company.slice(0, 4).join(', ')}${company.length > 4 ? ` and ${company.length - 4} more` : ''}` : '';
    return `${engine.name}: ${operator.ns[position] ? duration(operator.ns[position]) : '0'}${together}`;
  });
  byId('detail').textContent = `${operator.name} (${operator.op}${operator.module ? `, ${operator.module}` : ''}) · ${parts.join(' · ')}`;
}

function heading(table, names, times) {
  const row = make('tr');
  for (const name of names) row.append(make('th', times.includes(name) ? 'time' : '', name));
  table.tHead.append(row);
}

function fillOperators(wanted) {
  const body = byId('operators').tBodies[0];
  body.replaceChildren();
  const found = matching(wanted, (operator) => `${operator.name} ${operator.op} ${operator.module}`)
    .sort(([, a], [, b]) => Math.max(...b.ns) - Math.max(...a.ns));
  for (const [number, operator] of found.slice(0, MOST_ROWS)) {
    const row = make('tr');
    row.dataset.operator = number;
    for (const [position, ns] of operator.ns.entries()) row.append(make('td', `time${operator.fastest === position ? ' best' : ''}`, ns ? duration(ns) : '0'));
    row.append(make('td', '', operator.name), make('td', '', operator.op));
    follow(row, number);
    body.append(row);
  }
  byId('count').textContent = found.length > MOST_ROWS ? `${MOST_ROWS} of ${found.length}` : `${found.length}`;
  const numbers = new Set(found.map(([number]) => number));
  for (const [number, mine] of cells.entries()) for (const cell of mine) cell.classList.toggle('dim', !numbers.has(number));
}

function fillFusions() {
  for (const each of data.fusions.slice(0, MOST_ROWS)) {
    const row = make('tr');
    row.dataset.operator = each.from;
    row.append(make('td', '', `${data.operators[each.from].name} → ${data.operators[each.to].name}`));
    row.append(make('td', '', each.fused_by.join(', ')), make('td', '', each.not_by.join(', ')));
    follow(row, each.from);
    byId('fusions').tBodies[0].append(row);
  }
  byId('fusion-count').textContent = `${data.fusions.length}`;
}

// All have their places before the first is drawn: how wide one is depends on how many there are.
for (const engine of data.engines) addMap(engine);
for (const [position, engine] of data.engines.entries()) drawMap(engine, position);
heading(byId('operators'), [...data.engines.map((engine) => engine.name), 'operator', 'type'], data.engines.map((engine) => engine.name));
heading(byId('fusions'), ['edge', 'fused by', 'not by'], []);
fillOperators('');
fillFusions();
listenToSearch(fillOperators, () => {
  pinned = null;
  show(null);
});
