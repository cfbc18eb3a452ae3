// The data, and which operators, nodes and kernels belong together.

const DATA = JSON.parse(byId('data').textContent);
const OPS = DATA.operators;
const NODES = DATA.nodes;
const KERNELS = DATA.kernels;
const COUNT = { operator: OPS.name.length, node: NODES.id.length, kernel: KERNELS.id.length };

/** For lists of targets by source: the lists of sources by target. */
function inverse(lists, size) {
  const found = Array.from({ length: size }, () => []);
  lists.forEach((targets, source) => targets.forEach((target) => found[target].push(source)));
  return found;
}

const RELATIONS = {
  operator: { node: inverse(NODES.origin, COUNT.operator), kernel: OPS.kernels },
  node: { operator: NODES.origin, kernel: NODES.kernels },
  kernel: { operator: inverse(OPS.kernels, COUNT.kernel), node: inverse(NODES.kernels, COUNT.kernel) },
};
const KINDS = ['operator', 'node', 'kernel'];

/** Items of one kind, numbers below `count`. Asking and adding are cheaper than with a Set, which a search of thousands does for each letter. */
class ItemSet {
  constructor(count) {
    this.marks = new Uint8Array(count);
    this.size = 0;
  }

  add(item) {
    if (this.marks[item]) return;
    this.marks[item] = 1;
    this.size += 1;
  }

  has(item) {
    return this.marks[item] === 1;
  }
}

/** What belongs to items of one kind: a set for each kind, the items themselves included. */
function relatives(kind, items) {
  return addRelatives(kind, items, { operator: new Set(), node: new Set(), kernel: new Set() });
}

function addRelatives(kind, items, found) {
  for (const item of items) {
    found[kind].add(item);
    for (const other of KINDS) {
      if (other !== kind) for (const each of RELATIONS[kind][other][item]) found[other].add(each);
    }
  }
  return found;
}

function perRun(ns) {
  return DATA.runs ? ns / DATA.runs : 0;
}

function shareOf(ns) {
  return DATA.wall_ns ? ns / DATA.wall_ns : 0;
}

// ---- colours: the types with most time have one each, the others share grey ----

const COLOURED = 9;
const TYPES = (() => {
  const times = new Map();
  OPS.type.forEach((type, item) => times.set(type, (times.get(type) || 0) + OPS.time_ns[item]));
  return [...times].map(([name, time]) => ({ name, time })).sort((a, b) => b.time - a.time || (a.name < b.name ? -1 : 1));
})();
const TYPE_COLOUR = new Map(TYPES.slice(0, COLOURED).map((type, place) => [type.name, type.time > 0 ? `--type-${place}` : '--type-other']));

/** The name of the style's variable with the colour of a type. */
function colourOf(type) {
  return TYPE_COLOUR.get(type) || '--type-other';
}

/** The operator with most time in a kernel; -1 when it has none. */
function heaviest(kernel) {
  let best = -1;
  let most = -1;
  for (const [item, time] of KERNELS.parts[kernel]) {
    if (time > most) [best, most] = [item, time];
  }
  return best;
}

function kernelColour(kernel) {
  const item = heaviest(kernel);
  return item < 0 ? '--type-other' : colourOf(OPS.type[item]);
}
