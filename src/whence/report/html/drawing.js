// What both drawings need: a pen, the colours of the style, text that fits, frames around what is lit.

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

/** Text that fits, without its end if need be. */
function fitted(pen, whole, room) {
  const text = whole.length > 200 ? `${whole.slice(0, 199)}…` : whole;
  if (pen.measureText(text).width <= room) return text;
  let [fits, tooLong] = [0, text.length];
  while (tooLong - fits > 1) {
    const half = (fits + tooLong) >> 1;
    if (pen.measureText(`${text.slice(0, half)}…`).width <= room) fits = half;
    else tooLong = half;
  }
  return fits ? `${text.slice(0, fits)}…` : '';
}
