// Kernels by operations for a byte and operations in a second, under what the machine can do. Both axes are logarithmic.

// Room for the units above the numbers of one axis and below those of the other.
const MARGIN = { left: 46, right: 14, top: 22, bottom: 32 };
const POINT = 3;

class Roofline extends Drawing {
  constructor(box) {
    super(box);
    const machine = DATA.roofline;
    // The heaviest first, so that small ones are drawn over them.
    this.points = machine ? [...KERNELS.id.keys()].filter((item) => KERNELS.flops[item] && KERNELS.bytes[item] && KERNELS.time_ns[item])
      .map((item) => ({ item, x: KERNELS.flops[item] / KERNELS.bytes[item], y: (KERNELS.flops[item] * KERNELS.calls[item]) / KERNELS.time_ns[item] }))
      .sort((a, b) => KERNELS.time_ns[b.item] - KERNELS.time_ns[a.item]) : [];
    this.heaviest = Math.max(1, ...this.points.map((point) => KERNELS.time_ns[point.item]));
    this.box.labels = [];
    byId('roofline-facts').textContent = machine
      ? `${machine.peaks.map(([unit, rate]) => `${unit} ${rate.toFixed(0)} GFLOP/s`).join(', ')} · ${machine.levels.map(([name, rate]) => `${name} ${rate.toFixed(0)} GB/s`).join(', ')}${machine.measured ? '' : ' (nominal)'}`
      : 'how fast the machine is is not in this profile';
    box.addEventListener('pointermove', (event) => this.move(event));
    box.addEventListener('pointerleave', () => this.leave());
    box.addEventListener('click', (event) => {
      const hit = this.hit(event);
      if (hit) selection.togglePin('kernel', hit.item);
    });
  }

  move(event) {
    const hit = this.hit(event);
    if (!hit) {
      this.leave();
      return;
    }
    selection.point('kernel', hit.item);
    const [title, facts] = describe(selection.active);
    showTip(event, title, [`${hit.y.toFixed(1)} GFLOP/s, ${hit.x.toFixed(hit.x < 10 ? 2 : 0)} operations for a byte`, ...facts.slice(0, 5)]);
  }

  key(event) {
    if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') {
      if (!this.points.length) return;
      this.at = Math.min(this.points.length - 1, Math.max(0, this.at + (event.key === 'ArrowLeft' ? -1 : 1)));
      selection.point('kernel', this.points[this.at].item);
    } else if ((event.key === 'Enter' || event.key === ' ') && this.points[this.at]) selection.togglePin('kernel', this.points[this.at].item);
    else return;
    event.preventDefault();
  }

  hit(event) {
    if (!this.scale) return null;
    const box = this.box.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let [best, nearest] = [null, 14];
    for (const point of this.points) {
      const distance = Math.hypot(this.scale.x(point.x) - x, this.scale.y(point.y) - y);
      if (distance < nearest) [best, nearest] = [point, distance];
    }
    return best;
  }

  filter() {
    this.draw();
  }

  show() {
    if (!this.scale) return;
    this.frame(this.points, ({ item }) => selection.isLit('kernel', item), ({ x, y }) => ({ x: this.scale.x(x) - 7, y: this.scale.y(y) - 7, w: 14, h: 14 }));
  }

  draw() {
    const [width, height] = this.size;
    const machine = DATA.roofline;
    if (!width || !height || !machine) return;
    const pen = sharpPen(this.canvas, width, height);
    const paint = palette();
    const peak = Math.max(...machine.peaks.map(([, rate]) => rate));
    const xs = this.points.map((point) => point.x);
    const ys = this.points.map((point) => point.y);
    const ridge = peak / machine.levels[machine.levels.length - 1][1];
    const xRange = [Math.min(0.1, ...xs) / 1.5, Math.max(4 * ridge, ...xs) * 1.5];
    const yRange = [Math.max(peak / 1e5, Math.min(peak / 100, ...ys) / 1.5), Math.max(peak, ...ys) * 2];
    const along = (value, [low, high], from, to) => from + ((Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low))) * (to - from);
    this.scale = {
      x: (value) => along(value, xRange, MARGIN.left, width - MARGIN.right),
      y: (value) => along(Math.max(value, yRange[0]), yRange, height - MARGIN.bottom, MARGIN.top),
    };
    pen.font = `11px ${paint('--sans')}`;
    this.drawAxes(pen, paint, xRange, yRange, width, height);
    this.drawRoofs(pen, paint, machine, xRange, width);
    for (const { item, x, y } of this.points) {
      pen.globalAlpha = selection.isFound('kernel', item) ? 0.9 : 0.15;
      pen.fillStyle = paint(kernelColour(item));
      pen.strokeStyle = paint('--ink');
      pen.lineWidth = 0.75;
      pen.beginPath();
      pen.arc(this.scale.x(x), this.scale.y(y), this.radius(item), 0, 2 * Math.PI);
      pen.fill();
      pen.stroke();
    }
    pen.globalAlpha = 1;
    this.show();
  }

  drawAxes(pen, paint, xRange, yRange, width, height) {
    pen.textBaseline = 'middle';
    for (const [range_, isX] of [[xRange, true], [yRange, false]]) {
      for (let power = Math.ceil(Math.log10(range_[0])); power <= Math.log10(range_[1]); power += 1) {
        const value = 10 ** power;
        const label = power < 0 ? value.toFixed(-power) : value.toLocaleString('en');
        pen.fillStyle = paint('--rule');
        if (isX) pen.fillRect(this.scale.x(value), MARGIN.top, 1, height - MARGIN.top - MARGIN.bottom);
        else pen.fillRect(MARGIN.left, this.scale.y(value), width - MARGIN.left - MARGIN.right, 1);
        pen.fillStyle = paint('--soft');
        pen.textAlign = isX ? 'center' : 'right';
        if (isX) pen.fillText(label, this.scale.x(value), height - MARGIN.bottom + 12);
        else pen.fillText(label, MARGIN.left - 6, this.scale.y(value));
      }
    }
    pen.fillStyle = paint('--soft');
    pen.textAlign = 'right';
    pen.fillText('operations for a byte', width - MARGIN.right, height - 7);
    pen.textAlign = 'left';
    pen.fillText('GFLOP/s', 6, 8);
  }

  drawRoofs(pen, paint, machine, xRange, width) {
    pen.lineWidth = 1.5;
    const lines = [];
    for (const [place, [unit, rate]] of machine.peaks.entries()) {
      const y = this.scale.y(rate);
      const from = this.scale.x(Math.max(xRange[0], rate / machine.levels[0][1]));
      // Read from the right, where a roof has nothing under it but kernels.
      lines.push({ text: `${unit} ${rate.toFixed(0)}`, from: [width - MARGIN.right, y], to: [from, y], colour: place ? '--faint' : '--ink' });
    }
    // Up to the highest roof: kernels of bytes are beyond that of float32.
    const top = Math.max(...machine.peaks.map(([, rate]) => rate));
    for (const [name, rate] of machine.levels) {
      const from = Math.max(xRange[0], this.lowest(rate));
      if (from * rate >= top) continue;
      lines.push({ text: name, from: [this.scale.x(from), this.scale.y(from * rate)], to: [this.scale.x(top / rate), this.scale.y(top)], colour: '--faint' });
    }
    for (const { from, to, colour } of lines) {
      pen.strokeStyle = paint(colour);
      pen.beginPath();
      pen.moveTo(...from);
      pen.lineTo(...to);
      pen.stroke();
    }
    const dots = this.points.map(({ item, x, y }) => [this.scale.x(x), this.scale.y(y), this.radius(item)]);
    this.box.labels = placeLabels(lines.map((line) => ({ ...line, width: pen.measureText(line.text).width })), dots);
    pen.textAlign = 'center';
    pen.textBaseline = 'middle';
    for (const { text, width: wide, at, angle } of this.box.labels) {
      pen.save();
      pen.translate(...at);
      pen.rotate(angle);
      pen.fillStyle = paint('--panel');
      pen.fillRect(-wide / 2 - 3, -5, wide + 6, 10);
      pen.fillStyle = paint('--soft');
      pen.fillText(text, 0, 0);
      pen.restore();
    }
    pen.textAlign = 'left';
  }

  radius(item) {
    return POINT + 9 * Math.sqrt(KERNELS.time_ns[item] / this.heaviest);
  }

  /** From where on a slope is within the drawing. */
  lowest(rate) {
    const peak = Math.max(...DATA.roofline.peaks.map(([, each]) => each));
    const ys = this.points.map((point) => point.y);
    return Math.max(peak / 1e5, Math.min(peak / 100, ...ys) / 1.5) / rate;
  }
}
