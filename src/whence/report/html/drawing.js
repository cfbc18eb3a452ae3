// What all drawings need: two sheets in a box, a pen, the colours of the style, text that fits, frames around what is lit.

/** A drawing that is as large as its box, and above it a sheet for frames. */
class Drawing {
  constructor(box) {
    this.box = box;
    this.canvas = make('canvas');
    this.marks = make('canvas');
    for (const sheet of [this.canvas, this.marks]) sheet.setAttribute('aria-hidden', 'true');
    box.append(this.canvas, this.marks);
    this.size = [0, 0];
    /** What the keyboard is at. */
    this.at = -1;
    new ResizeObserver(() => this.measure()).observe(box);
    box.addEventListener('blur', () => this.leave());
    box.addEventListener('keydown', (event) => this.key(event));
  }

  measure() {
    this.size = [this.box.clientWidth, this.box.clientHeight];
    this.draw();
  }

  leave() {
    pointAway();
  }

  /** Frames those that are lit, on a sheet of its own: the drawing under it stays. Framing everything would say nothing. */
  frame(all, isLit, rectangleOf) {
    const lit = selection.active ? all.filter(isLit) : [];
    outline(this.marks, this.size, lit.length > all.length * 0.6 ? [] : lit.map(rectangleOf));
  }
}

/** Nothing is pointed at any more. */
function pointAway() {
  selection.point(null, -1);
  hideTip();
}

/** A pen for a canvas of this size in the page's pixels, wiped. */
function sharpPen(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const size = [Math.round(width * scale), Math.round(height * scale)];
  // Giving a canvas a size, even its own, costs a new one.
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/** Draws frames just inside rectangles, and nothing else. */
function outline(canvas, [width, height], rectangles) {
  if (!rectangles.length && !canvas.marked) return;
  canvas.marked = rectangles.length > 0;
  const pen = sharpPen(canvas, width, height);
  pen.strokeStyle = palette()('--ink');
  pen.lineWidth = 2;
  for (const { x, y, w, h } of rectangles) pen.strokeRect(x + 1, y + 1, Math.max(1, w - 2), Math.max(1, h - 2));
}

/** The style's variables as they are now, light or dark. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  const known = new Map();
  return (name) => {
    if (!known.has(name)) known.set(name, style.getPropertyValue(name).trim());
    return known.get(name);
  };
}

/** At how many of the first places a test holds, of so many; once it does not, it does at none behind. */
function countWhile(count, test) {
  let [low, high] = [0, count];
  while (low < high) {
    const half = (low + high) >> 1;
    if (test(half)) low = half + 1;
    else high = half;
  }
  return low;
}

/** Text that fits, without its end if need be. */
function fitted(pen, whole, room) {
  const text = whole.length > 200 ? `${whole.slice(0, 199)}…` : whole;
  if (pen.measureText(text).width <= room) return text;
  const fits = countWhile(text.length - 1, (place) => pen.measureText(`${text.slice(0, place + 1)}…`).width <= room);
  return fits ? `${text.slice(0, fits)}…` : '';
}
