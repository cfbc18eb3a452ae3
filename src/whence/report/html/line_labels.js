// Where the names of lines stand: on the lines, along them, clear of each other and of the dots of a plot.

const LABEL_HEIGHT = 14;
const LABEL_STEP = 6;

/** For lines with a text of this width, a begin (`from`) and an end (`to`): the middle of each text and its angle. The first
    place from the begin that is free is taken; without one, the first that is clear of other texts, then the first. */
function placeLabels(lines, dots) {
  const placed = [];
  for (const { text, width, from, to } of lines) {
    const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
    const length = Math.hypot(dx, dy) || 1;
    const along = [dx / length, dy / length];
    const places = [];
    for (let far = width / 2 + 8; far === width / 2 + 8 || far <= length - width / 2 - 8; far += LABEL_STEP) {
      const at = [from[0] + along[0] * far, from[1] + along[1] * far];
      const parts = [];
      for (let part = -width / 2; part < width / 2 + LABEL_STEP; part += LABEL_STEP) {
        const within = Math.min(part, width / 2);
        parts.push([at[0] + along[0] * within, at[1] + along[1] * within]);
      }
      places.push({ at, parts });
    }
    const isClear = ({ parts }) => !placed.some((other) => isNear(parts, other.parts, LABEL_HEIGHT));
    const isFree = ({ parts }) => parts.every(([x, y]) => dots.every(([left, top, radius]) => Math.hypot(x - left, y - top) > radius + LABEL_HEIGHT / 2));
    const clear = places.filter(isClear);
    const best = clear.find(isFree) || clear[0] || places[0];
    // Never upside down.
    const angle = Math.atan2(dy, dx);
    placed.push({ text, width, ...best, angle: Math.abs(angle) > Math.PI / 2 ? angle - Math.sign(angle) * Math.PI : angle });
  }
  return placed;
}

/** Do two rows of points come nearer to each other than this? */
function isNear(some, others, distance) {
  return some.some(([x, y]) => others.some(([left, top]) => Math.hypot(x - left, y - top) < distance));
}
