// Numbers and text as people read them, and elements that hold text.

/** With three digits or so in the first of the units that it reaches, else in whole ones of the last. */
function inUnit(amount, units, last) {
  for (const [unit, size] of units) {
    if (amount >= size) {
      const value = amount / size;
      return `${value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2)} ${unit}`;
    }
  }
  return `${Math.round(amount)} ${last}`;
}

function duration(ns) {
  return inUnit(ns, [['s', 1e9], ['ms', 1e6], ['µs', 1e3]], 'ns');
}

/** From one time to another, the unit once where it is the same. */
function range(low, high) {
  const [from, to] = [low ? duration(low) : '0', duration(high)];
  const unit = to.slice(to.indexOf(' '));
  return `${from.endsWith(unit) ? from.slice(0, -unit.length) : from} – ${to}`;
}

function percent(part) {
  const value = part * 100;
  return value > 0 && value < 0.05 ? '<0.1 %' : `${value.toFixed(1)} %`;
}

function counted(count, noun) {
  return `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
}

function byId(id) {
  return document.getElementById(id);
}

/** An element with text in it. Everything on the page is made here: text is text, never markup. */
function make(tag, className = '', text = '') {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}

const TAIL = 14;

/** Text that loses its middle when there is no room: the end of a name is what tells it apart. */
function middle() {
  const element = make('span', 'middle');
  element.append(make('span'), make('span'));
  return element;
}

function fillMiddle(element, text) {
  const slash = text.lastIndexOf('/', text.length - 2);
  const cut = slash > 0 && text.length - slash <= 2 * TAIL ? slash : Math.max(0, text.length - TAIL);
  element.firstChild.textContent = text.slice(0, cut);
  element.lastChild.textContent = text.slice(cut);
  element.title = text;
}

/** The last part of a path-like name. */
function lastPart(name) {
  const parts = name.split('/').filter(Boolean);
  return parts.length ? parts[parts.length - 1] : name;
}

/** Names as labels: what all of them begin with, up to a separator, is left out. */
function shortNames(names) {
  const [first = '', ...others] = names;
  let length = others.length ? first.length : 0;
  for (const name of others) while (!name.startsWith(first.slice(0, length))) length -= 1;
  const start = Math.max(...['/', '.', ':', ';'].map((separator) => first.slice(0, length).lastIndexOf(separator))) + 1;
  return names.map((name) => name.slice(start) || name);
}
