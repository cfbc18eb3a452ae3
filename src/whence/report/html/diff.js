// Two profiles: a treemap for each on one scale and in one order, so that an operator is found where it was; and a table of what changed.

const HEIGHT = 340;
const NAMES = ['before', 'after'];
const longest = Math.max(...data.profiles.map((profile) => profile.median_ns), 1);
const cells = data.operators.map(() => []);
const { follow, letGo } = pinning(show);

function change({ ratio, ns }) {
  return ratio === null ? 'new' : `${ns[1] >= ns[0] ? '+' : '−'}${percent(Math.abs(ratio))}`;
}

function describe(operator) {
  return `${operator.name} · ${operator.type} · ${duration(operator.ns[0])} → ${duration(operator.ns[1])} per run (${change(operator)}, ${operator.verdict}) · ${operator.module}`;
}

function show(number) {
  cells.forEach((own, each) => own.forEach((cell) => cell.classList.toggle('lit', each === number)));
  byId('detail').textContent = number >= 0 ? describe(data.operators[number]) : '';
}

function drawMap(profile, position) {
  const figure = make('div', 'engine');
  figure.append(make('h2', '', `${NAMES[position]}: ${profile.model}`));
  figure.append(make('p', 'total', [`${duration(profile.median_ns)} per run`, profile.engine, counted(profile.threads, 'thread'), counted(profile.runs, 'run'), ...profile.facts].join(' · ')));
  const map = make('div', 'map');
  figure.append(map);
  byId('maps').append(figure);
  return map;
}

/** Both maps have the order of the longer of an operator's two times; areas are its own time. */
function drawTimes(map, profile, position) {
  const shown = data.operators.map((operator, number) => [operator.ns[position], number]).filter(([ns]) => ns > profile.median_ns / 3000);
  shown.sort((a, b) => Math.max(...data.operators[b[1]].ns) - Math.max(...data.operators[a[1]].ns) || a[1] - b[1]);
  const labels = shortNames(shown.map(([, number]) => data.operators[number].name));
  fillMap(map, (HEIGHT * profile.median_ns) / longest, shown.map(([ns]) => ns), (place, hasRoom) => {
    const [ns, number] = shown[place];
    const operator = data.operators[number];
    const cell = make('button', `cell ${operator.verdict}`, hasRoom ? labels[place] : '');
    cell.type = 'button';
    cell.setAttribute('aria-label', `${operator.name}, ${duration(ns)} ${NAMES[position]}, ${operator.verdict}`);
    follow(cell, number);
    cells[number].push(cell);
    return cell;
  });
}

function fillTable(query) {
  const found = matching(query, (operator) => `${operator.name} ${operator.type} ${operator.module}`);
  const numbers = new Set(found.map(([number]) => number));
  cells.forEach((own, number) => own.forEach((cell) => cell.classList.toggle('dim', !numbers.has(number))));
  byId('operators').tBodies[0].replaceChildren(...found.slice(0, MOST_ROWS).map(([number, operator]) => {
    const row = make('tr');
    row.append(
      make('td', 'right', duration(operator.ns[0])), make('td', 'right', duration(operator.ns[1])), make('td', 'right', operator.verdict === 'same' ? '' : change(operator)),
      make('td', operator.verdict, operator.verdict), make('td', '', operator.name), make('td', 'wide', operator.type), make('td', 'wide', operator.module),
    );
    follow(row, number);
    return row;
  }));
  const changed = data.operators.filter((operator) => operator.verdict !== 'same').length;
  byId('count').textContent = `${changed} of ${counted(data.operators.length, 'operator')} changed, the others are within the noise${found.length > MOST_ROWS ? ` · the first ${MOST_ROWS} are shown` : ''}`;
}

byId('total').textContent = `${duration(data.total.ns[0])} → ${duration(data.total.ns[1])} per run`;
byId('facts').textContent = `${change(data.total)}, ${data.total.verdict === 'same' ? 'within the noise' : data.total.verdict}`;
byId('warnings').replaceChildren(...data.warnings.map((text) => make('li', '', text)));
const headings = make('tr');
headings.append(...['before', 'after', 'change'].map((text) => make('th', 'right', text)), make('th', '', ''), make('th', '', 'operator'), make('th', 'wide', 'type'), make('th', 'wide', 'module'));
byId('operators').tHead.append(headings);
const maps = data.profiles.map(drawMap);
maps.forEach((map, position) => drawTimes(map, data.profiles[position], position));
fillTable('');
listenToSearch(fillTable, letGo);
