// Times over the sizes of a dimension: a curve for each of the operators that grow most, and a table of all.

const SVG = 'http://www.w3.org/2000/svg';
const MOST_CURVES = 8;
const STEPS = 48;
const MARGIN = { left: 64, right: 12, top: 10, bottom: 30 };
const plot = byId('plot');
const least = data.sizes[0];
const most = data.sizes[data.sizes.length - 1];
const { follow, letGo } = pinning(show);
let shown = -1;

function svg(tag, attributes, className = '', text = '') {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (className) element.setAttribute('class', className);
  if (text) element.textContent = text;
  return element;
}

const fitted = ([fixed, each, square], size) => fixed + each * size + square * size * size;
const colour = (number) => (number < MOST_CURVES ? `${number}` : 'other');

/** One, two or five times a power of ten, at least so large. */
function round(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= value);
}

/** The curves of the operators that grow most, and of the one that is pointed at. */
function draw() {
  const numbers = data.operators.map((_, number) => number).slice(0, MOST_CURVES);
  if (shown >= MOST_CURVES) numbers.push(shown);
  const width = Math.max(320, plot.clientWidth);
  const height = Math.max(200, plot.clientHeight);
  const highest = Math.max(1, ...numbers.flatMap((number) => data.operators[number].ns));
  const x = (size) => MARGIN.left + ((size - least) / Math.max(1, most - least)) * (width - MARGIN.left - MARGIN.right);
  const y = (ns) => height - MARGIN.bottom - (ns / highest) * (height - MARGIN.top - MARGIN.bottom);
  const parts = [];
  const step = round(highest / 5);
  for (let ns = 0; ns <= highest; ns += step) {
    parts.push(svg('line', { x1: MARGIN.left, x2: width - MARGIN.right, y1: y(ns), y2: y(ns) }, 'axis'));
    parts.push(svg('text', { x: MARGIN.left - 6, y: y(ns) + 4, 'text-anchor': 'end' }, '', ns ? duration(ns) : '0'));
  }
  let taken = -Infinity;
  data.sizes.forEach((size, at) => {
    if (x(size) - taken < 34 && at < data.sizes.length - 1) return;
    taken = x(size);
    parts.push(svg('text', { x: x(size), y: height - 12, 'text-anchor': 'middle' }, '', `${size}`));
  });
  for (const number of numbers) {
    const operator = data.operators[number];
    const group = svg('g', {}, shown >= 0 ? (number === shown ? 'lit' : 'faint') : '');
    const points = Array.from({ length: STEPS + 1 }, (_, at) => least + (at * (most - least)) / STEPS);
    const line = points.map((size) => `${x(size).toFixed(1)},${y(Math.min(fitted(operator.fit, size), highest)).toFixed(1)}`).join(' ');
    group.append(svg('polyline', { points: line }, `curve stroke-${colour(number)}`));
    data.sizes.forEach((size, at) => group.append(svg('circle', { cx: x(size), cy: y(operator.ns[at]), r: 4 }, `point fill-${colour(number)}`)));
    group.append(svg('title', {}, '', describe(operator)));
    parts.push(group);
  }
  plot.setAttribute('viewBox', `0 0 ${width} ${height}`);
  plot.replaceChildren(...parts);
}

function describe(operator) {
  const times = data.sizes.map((size, at) => `${size}: ${duration(operator.ns[at])}`).join(', ');
  return `${operator.name} · ${operator.type} · ${operator.text} · ${times}`;
}

function show(number) {
  shown = number;
  byId('detail').textContent = number >= 0 ? describe(data.operators[number]) : '';
  for (const row of byId('operators').tBodies[0].rows) row.classList.toggle('lit', row.dataset.number === `${number}`);
  draw();
}

function tableRow(operator, number) {
  const row = make('tr', number < 0 ? 'total' : '');
  row.append(...operator.ns.map((ns) => make('td', 'right', ns ? duration(ns) : '0')), make('td', operator.kind, operator.text));
  const name = make('td');
  if (number >= 0 && number < MOST_CURVES) {
    const key = svg('svg', { viewBox: '0 0 11 11', 'aria-hidden': 'true' }, 'key');
    key.append(svg('rect', { width: 11, height: 11 }, `fill-${colour(number)}`));
    name.append(key);
  }
  name.append(operator.name || 'the whole run');
  row.append(name, make('td', 'wide', operator.type), make('td', 'wide', operator.module));
  if (number >= 0) {
    row.dataset.number = `${number}`;
    row.tabIndex = 0;
    row.addEventListener('keydown', (event) => event.key === 'Enter' && row.click());
    follow(row, number);
  }
  return row;
}

function fillTable(query) {
  const found = matching(query, (operator) => `${operator.name} ${operator.type} ${operator.module} ${operator.kind}`);
  const rows = found.slice(0, MOST_ROWS).map(([number, operator]) => tableRow(operator, number));
  byId('operators').tBodies[0].replaceChildren(...(query.trim() ? [] : [tableRow(data.total, -1)]), ...rows);
  byId('count').textContent = `${counted(found.length, 'operator')}${found.length > MOST_ROWS ? ` · the first ${MOST_ROWS} are shown` : ''}`;
}

byId('title').textContent = `${data.model} by ${data.dimension}`;
byId('facts').textContent = [data.engine, counted(data.threads, 'thread'), counted(data.runs, 'run'), ...Object.entries(data.dimensions).map(([name, size]) => `${name} ${size}`)].join(' · ');
byId('summary').textContent = data.summary;
byId('caption').textContent = `Time of a run by ${data.dimension}, of the ${Math.min(MOST_CURVES, data.operators.length)} operators that grow most`;
const headings = make('tr');
headings.append(...data.sizes.map((size) => make('th', 'right', `${size}`)), make('th', '', 'growth'), make('th', '', 'operator'), make('th', 'wide', 'type'), make('th', 'wide', 'module'));
byId('operators').tHead.append(headings);
fillTable('');
draw();
window.addEventListener('resize', draw);
listenToSearch(fillTable, letGo);
