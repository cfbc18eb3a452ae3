// Rectangles with given areas, as square as they can be made: rows are filled along the shorter side while that makes them squarer.

/** `weights` are positive, largest first. Returns [x, y, w, h] for each. */
function squarify(weights, x, y, w, h) {
  const found = [];
  let left = weights.reduce((sum, weight) => sum + weight, 0);
  let first = 0;
  while (first < weights.length) {
    const short = Math.min(w, h);
    const scale = left > 0 ? (w * h) / left : 0;
    let last = first;
    let row = 0;
    let worst = Infinity;
    while (last < weights.length) {
      const sum = row + weights[last];
      const area = sum * scale;
      const ratio = Math.max((short * short * weights[first] * scale) / (area * area), (area * area) / (short * short * weights[last] * scale));
      if (ratio > worst) break;
      [row, worst, last] = [sum, ratio, last + 1];
    }
    // A weight too small to have an area ends up alone in a row of its own.
    if (last === first) {
      row += weights[last];
      last += 1;
    }
    const thick = short > 0 ? (row * scale) / short : 0;
    let along = 0;
    for (let place = first; place < last; place += 1) {
      const length = row > 0 ? (weights[place] / row) * short : 0;
      found.push(w >= h ? [x, y + along, thick, length] : [x + along, y, length, thick]);
      along += length;
    }
    if (w >= h) [x, w] = [x + thick, Math.max(0, w - thick)];
    else [y, h] = [y + thick, Math.max(0, h - thick)];
    left -= row;
    first = last;
  }
  return found;
}
