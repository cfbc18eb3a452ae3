// Where the boxes of the graph stand. Each open module is laid out by itself, in layers from top to bottom, and is one box of the module around it.
// A long chain of layers goes on in a further column, where few edges cross.

const BOX = { w: 148, h: 36 };
const HEAD = 24;
const PAD = 14;
const GAP = { x: 20, y: 30, column: 56 };
const LONGEST_ROUTED = 24;
const SWEEPS = 4;
const WIDE_AS_HIGH = 2.2;
const CROSSING_A_BREAK = 3;
const LEAST_LAYERS = 8;

/** Gives every module and operator below an open module its size, and `x`, `y` within the module around it. */
function layOut(module) {
  for (const child of module.children) {
    if (child.children && child.open) layOut(child);
    else [child.w, child.h] = [BOX.w, BOX.h];
  }
  const links = module.links;
  const layers = inLayers(module.children, links);
  order(layers);
  spread(layers);
  columns(module, layers, links);
}

/** The children by layer, below all that they read; long edges have a place in each layer between. */
function inLayers(children, links) {
  const place = new Map(children.map((child) => [child, { child, w: child.w, h: child.h, up: [], down: [], layer: 0, x: 0 }]));
  const forward = links.filter((link) => link.from.order < link.to.order);
  const read = new Map();
  for (const link of forward) {
    if (!read.has(link.to)) read.set(link.to, []);
    read.get(link.to).push(link);
  }
  for (const child of [...children].sort((a, b) => a.order - b.order)) {
    for (const { from } of read.get(child) || []) place.get(child).layer = Math.max(place.get(child).layer, place.get(from).layer + 1);
  }
  // What reads nothing stands right above its first reader.
  const nearest = new Map();
  for (const { from, to } of forward) nearest.set(from, Math.min(nearest.get(from) ?? Infinity, place.get(to).layer));
  for (const [child, layer] of nearest) if (!read.has(child)) place.get(child).layer = layer - 1;
  const layers = [];
  const enter = (spot) => (layers[spot.layer] = layers[spot.layer] || []).push(spot);
  for (const child of children) enter(place.get(child));
  for (const link of forward) {
    const [from, to] = [place.get(link.from), place.get(link.to)];
    link.via = [];
    let above = from;
    if (to.layer - from.layer <= LONGEST_ROUTED) {
      for (let layer = from.layer + 1; layer < to.layer; layer += 1) {
        const spot = { child: null, w: 6, h: 0, up: [], down: [], layer, x: 0 };
        enter(spot);
        link.via.push(spot);
        above.down.push(spot);
        spot.up.push(above);
        above = spot;
      }
    }
    above.down.push(to);
    to.up.push(above);
  }
  for (let layer = 0; layer < layers.length; layer += 1) layers[layer] = layers[layer] || [];
  return layers;
}

/** Sorts each layer by the mean place of its neighbours, above and below in turn, so that few edges cross. */
function order(layers) {
  const number = (layer) => layer.forEach((spot, place) => (spot.place = place));
  layers.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      for (const spot of layer) {
        const near = down ? spot.up : spot.down;
        spot.wish = near.length ? near.reduce((sum, each) => sum + each.place, 0) / near.length : spot.place;
      }
      layer.sort((a, b) => a.wish - b.wish || a.place - b.place);
      number(layer);
    }
  }
}

/** Gives each spot the middle `x` that is nearest to its neighbours' without changing the order. */
function spread(layers) {
  for (let sweep = 0; sweep < SWEEPS + 1; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const wishes = layer.map((spot) => {
        const near = down ? spot.up : spot.down;
        return near.length ? near.reduce((sum, each) => sum + each.x, 0) / near.length : spot.x;
      });
      const apart = layer.map((spot, place) => (place ? (layer[place - 1].w + spot.w) / 2 + GAP.x : 0));
      inOrder(wishes, apart).forEach((x, place) => (layer[place].x = x));
    }
  }
}

/** Nearest to the wishes by least squares, each at least so far behind the one before (pool adjacent violators). */
function inOrder(wishes, apart) {
  const pools = [];
  let offset = 0;
  wishes.forEach((wish, place) => {
    offset += apart[place];
    let pool = { sum: wish - offset, count: 1 };
    while (pools.length && pools[pools.length - 1].sum / pools[pools.length - 1].count > pool.sum / pool.count) {
      const before = pools.pop();
      pool = { sum: before.sum + pool.sum, count: before.count + pool.count };
    }
    pools.push(pool);
  });
  const found = [];
  offset = 0;
  for (const { sum, count } of pools) {
    for (let each = 0; each < count; each += 1) {
      offset += apart[found.length];
      found.push(sum / count + offset);
    }
  }
  return found;
}

/** Puts the layers below each other, in as many columns as give the module a pleasant shape. */
function columns(module, layers, links) {
  const heights = layers.map((layer) => layer.reduce((most, spot) => Math.max(most, spot.h), 0) + GAP.y);
  const whole = heights.reduce((sum, height) => sum + height, 0);
  const left = layers.flat().reduce((least, spot) => Math.min(least, spot.x - spot.w / 2), Infinity);
  const right = layers.flat().reduce((most, spot) => Math.max(most, spot.x + spot.w / 2), -Infinity);
  const wanted = Math.round(Math.sqrt((WIDE_AS_HIGH * whole) / Math.max(1, right - left + GAP.column)));
  const breaks = wanted > 1 && layers.length > LEAST_LAYERS ? breaksOf(layers, heights, whole / wanted) : new Set();
  let [x, y, height] = [PAD, HEAD + PAD, 0];
  let column = [];
  const finish = () => {
    const spots = column.flat();
    const least = spots.reduce((most, spot) => Math.min(most, spot.x - spot.w / 2), Infinity);
    const most = spots.reduce((far, spot) => Math.max(far, spot.x + spot.w / 2), -Infinity);
    for (const spot of spots) [spot.x, spot.left] = [spot.x - least + x, x];
    x += most - least + GAP.column;
    height = Math.max(height, y - GAP.y);
    [column, y] = [[], HEAD + PAD];
  };
  layers.forEach((layer, number) => {
    if (breaks.has(number)) finish();
    for (const spot of layer) spot.y = y + (heights[number] - GAP.y) / 2;
    column.push(layer);
    y += heights[number];
  });
  if (column.length) finish();
  for (const spot of layers.flat()) if (spot.child) Object.assign(spot.child, { x: spot.x - spot.w / 2, y: spot.y - spot.h / 2, column: spot.left });
  for (const link of links) link.points = (link.via || []).map((spot) => [spot.x, spot.y]);
  [module.w, module.h] = [Math.max(BOX.w, x - GAP.column + PAD), height + PAD];
}

/** The layers that begin a column: where fewest edges cross, near the height that a column should have. */
function breaksOf(layers, heights, wanted) {
  const found = new Set();
  let filled = 0;
  let best = null;
  for (let number = 0; number < layers.length; number += 1) {
    const crossing = number ? layers[number - 1].reduce((sum, spot) => sum + spot.down.length, 0) : Infinity;
    if (filled > wanted * 0.7 && crossing <= CROSSING_A_BREAK) {
      const cost = crossing + (4 * Math.abs(filled - wanted)) / wanted;
      if (!best || cost < best.cost) best = { number, cost, filled };
    }
    if (best && filled > wanted * 1.3) {
      found.add(best.number);
      filled -= best.filled;
      best = null;
    }
    filled += heights[number];
  }
  if (best && filled - best.filled > wanted * 0.2) found.add(best.number);
  return found;
}
