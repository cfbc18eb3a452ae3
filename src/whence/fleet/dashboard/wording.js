// Text and numbers for people. Everything from the table goes onto the page as text.
const data = JSON.parse(document.getElementById('data').textContent);

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value; else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function drawing(name, attributes = {}, text = null) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function duration(ns) {
  if (ns === null || ns === undefined) return '–';
  for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['µs', 1e3]]) {
    if (ns >= size) return `${(ns / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

const percent = (ratio) => `${ratio >= 1 ? '+' : '−'}${Math.abs((ratio - 1) * 100).toFixed(0)} %`;

const describe = (subject) => [subject.model, subject.engine, `${subject.threads || 'all'} threads`, subject.target, subject.shapes]
  .filter(Boolean).join(' · ');

const say = (text) => { document.getElementById('detail').textContent = text; };

const median = (values) => {
  const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
};

const last = (values) => values.findLast((value) => value !== null) ?? null;
