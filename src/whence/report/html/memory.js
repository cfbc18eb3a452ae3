// Bytes of tensors that are alive at each kernel of a run; weights are there all the time.

function bytes(count) {
  return inUnit(count, [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]], 'B');
}

class MemoryChart extends Drawing {
  constructor(box) {
    super(box);
    this.use = DATA.memory;
    byId('memory-facts').textContent = this.use ? this.facts() : 'not known';
    box.addEventListener('pointermove', (event) => this.move(event));
    box.addEventListener('pointerleave', () => this.leave());
    box.addEventListener('click', () => (this.at >= 0 && this.at < COUNT.kernel ? selection.togglePin('kernel', this.at) : undefined));
  }

  key(event) {
    if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') this.point(this.at + (event.key === 'ArrowLeft' ? -1 : 1));
    else if (event.key === 'Enter' && this.at >= 0) selection.togglePin('kernel', this.at);
    else return;
    event.preventDefault();
  }

  facts() {
    const { alive_bytes: alive, peak_step: peak, weights_bytes: weights, arena_bytes: arena } = this.use;
    return `weights ${bytes(weights)} · arena ${bytes(arena)} · peak ${bytes(alive[peak] || 0)} alive at kernel ${KERNELS.id[peak] ?? peak}`;
  }

  point(step) {
    if (!this.use || !this.use.alive_bytes.length) return;
    this.at = Math.min(this.use.alive_bytes.length - 1, Math.max(0, step));
    if (this.at < COUNT.kernel) selection.point('kernel', this.at);
  }

  move(event) {
    if (!this.use || !this.use.alive_bytes.length) return;
    const box = this.box.getBoundingClientRect();
    this.point(Math.floor(((event.clientX - box.left) / this.size[0]) * this.use.alive_bytes.length));
    const held = this.at === this.use.peak_step
      ? this.use.held.slice(0, 6).map(([size, operators, type]) => `${bytes(size)} ${operators.map((item) => OPS.name[item]).join(', ')} ${type}`) : [];
    showTip(event, `${bytes(this.use.alive_bytes[this.at])} alive at kernel ${KERNELS.id[this.at] ?? this.at}`, held);
  }

  filter() {
    this.draw();
  }

  show() {
    const [width, height] = this.size;
    if (!this.use || !width || !height) return;
    const each = width / Math.max(1, this.use.alive_bytes.length);
    this.frame([...KERNELS.id.keys()], (item) => selection.isLit('kernel', item), (item) => ({ x: item * each, y: 0, w: Math.max(3, each), h: height }));
  }

  draw() {
    const [width, height] = this.size;
    if (!this.use || !width || !height) return;
    const pen = sharpPen(this.canvas, width, height);
    const paint = palette();
    const { alive_bytes: alive, peak_step: peak } = this.use;
    const most = Math.max(1, ...alive);
    const each = width / Math.max(1, alive.length);
    alive.forEach((size, step) => {
      const h = (size / most) * (height - 20);
      pen.globalAlpha = step >= COUNT.kernel || selection.isFound('kernel', step) ? 1 : 0.2;
      pen.fillStyle = paint(step === peak ? '--accent' : '--type-0');
      pen.fillRect(step * each, height - h, Math.max(0.5, each - (each > 3 ? 1 : 0)), h);
    });
    pen.globalAlpha = 1;
    pen.fillStyle = paint('--soft');
    pen.font = `11px ${paint('--sans')}`;
    pen.textBaseline = 'top';
    pen.fillText(bytes(most), 6, 4);
    this.show();
  }
}
