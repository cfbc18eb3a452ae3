// A drawing in which a search dims what it does not find. It is drawn once for a size; a search copies parts of pictures, so that a letter typed draws nothing anew.

const DIMMED = 0.18;

class HighlightedDrawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.under = make('canvas');
    this.whole = make('canvas');
    this.dimmed = make('canvas');
    this.isDimmed = false;
    this.size = null;
    this.parts = [];
  }

  /** Draws anew: `under(pen)` what is never dimmed; `over(pen)` the rest, and says which rectangles, in the page's pixels, may be dimmed. */
  draw([width, height], under, over) {
    this.size = [width, height];
    under(sharpPen(this.under, width, height));
    const pen = sharpPen(this.whole, width, height);
    pen.save();
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(this.under, 0, 0);
    pen.restore();
    this.parts = over(pen);
    this.isDimmed = false;
  }

  /** Puts it on the canvas. `isShown(part)` says what is not dimmed; without it, nothing is. */
  show(isShown = null) {
    if (!this.size) return;
    const pen = sharpPen(this.canvas, ...this.size);
    const ratio = window.devicePixelRatio || 1;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    if (!isShown) {
      pen.drawImage(this.whole, 0, 0);
      return;
    }
    if (!this.isDimmed) this.dim();
    const shown = this.parts.map(isShown);
    const most = 2 * shown.reduce((count, each) => count + each, 0) > shown.length;
    pen.drawImage(most ? this.whole : this.dimmed, 0, 0);
    const picture = most ? this.dimmed : this.whole;
    for (const [x, y, w, h] of runsOf(this.parts, shown, !most, ratio)) {
      if (most) pen.clearRect(x, y, w, h);
      pen.drawImage(picture, x, y, w, h, x, y, w, h);
    }
  }

  dim() {
    const pen = sharpPen(this.dimmed, ...this.size);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(this.under, 0, 0);
    pen.globalAlpha = DIMMED;
    pen.drawImage(this.whole, 0, 0);
    pen.globalAlpha = 1;
    this.isDimmed = true;
  }
}

/** The parts that are shown, or those that are not, in whole pixels of the screen; those that follow each other in a row as one. What is shown is a pixel wide at least. */
function runsOf(parts, shown, wanted, ratio) {
  const found = [];
  let last = null;
  const least = wanted ? 1 : 0;
  for (let place = 0; place < parts.length; place += 1) {
    if (shown[place] !== wanted) continue;
    const part = parts[place];
    const [left, top] = [Math.round(part.x * ratio), Math.round(part.y * ratio)];
    const width = Math.max(least, Math.round((part.x + part.w) * ratio) - left);
    const height = Math.max(least, Math.round((part.y + part.h) * ratio) - top);
    if (!width || !height) continue;
    if (last && last[1] === top && last[3] === height && left >= last[0] && left <= last[0] + last[2]) last[2] = Math.max(last[2], left + width - last[0]);
    else found.push((last = [left, top, width, height]));
  }
  return found;
}
