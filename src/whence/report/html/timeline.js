// One run of middling length: kernels as they followed each other, under each the operators in it, and a lane for each thread.

const AXIS = 20;
const KERNEL_LANE = 28;
const LANE_GAP = 2;
const PART_LANE = 24;
const THREAD_LANE = 9;
const MOST_THREADS = 16;
const LEAST_SPAN_NS = 200;
const WIDE = 56;

class Timeline extends Drawing {
  constructor(box) {
    super(box);
    this.drawing = new HighlightedDrawing(this.canvas);
    this.events = DATA.timeline.map(([kernel, begin, end, waited]) => ({ kernel, begin, end, waited }));
    this.whole = this.events.reduce((last, event) => Math.max(last, event.end), Math.max(1, DATA.timeline_ns));
    this.threads = DATA.workers.slice(0, MOST_THREADS);
    if (this.threads.length) box.style.height = `${AXIS + KERNEL_LANE + LANE_GAP + PART_LANE + this.threads.length * (THREAD_LANE + 1) + 3}px`;
    [this.from, this.to] = [0, this.whole];
    this.held = null;
    box.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    box.addEventListener('pointerdown', (event) => this.hold(event));
    box.addEventListener('pointermove', (event) => this.move(event));
    box.addEventListener('pointerup', (event) => this.drop(event));
    box.addEventListener('pointercancel', () => this.letGo());
    box.addEventListener('pointerleave', () => this.leave());
    box.addEventListener('dblclick', () => this.look(0, this.whole));
  }

  /** Shows a stretch of the run, as far as there is one. */
  look(from, to) {
    const span = Math.min(this.whole, Math.max(LEAST_SPAN_NS, to - from));
    this.from = Math.min(Math.max(0, from), this.whole - span);
    this.to = this.from + span;
    this.draw();
  }

  zoom(factor, around) {
    const span = (this.to - this.from) * factor;
    const kept = (around - this.from) / (this.to - this.from);
    this.look(around - span * kept, around + span * (1 - kept));
  }

  timeAt(x) {
    return this.from + (x / this.size[0]) * (this.to - this.from);
  }

  // ---- what people do ----

  wheel(event) {
    event.preventDefault();
    const x = event.clientX - this.box.getBoundingClientRect().left;
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
      const shift = (sideways / this.size[0]) * (this.to - this.from);
      this.look(this.from + shift, this.to + shift);
    } else this.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.003), this.timeAt(x));
  }

  hold(event) {
    if (event.button !== 0) return;
    this.held = { x: event.clientX, from: this.from, to: this.to, moved: false };
    this.box.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (this.held) {
      const shift = event.clientX - this.held.x;
      if (Math.abs(shift) > 3) this.held.moved = true;
      if (this.held.moved) {
        this.box.classList.add('held');
        hideTip();
        const time = (shift / this.size[0]) * (this.held.to - this.held.from);
        this.look(this.held.from - time, this.held.to - time);
      }
      return;
    }
    const hit = this.hit(event);
    if (!hit) {
      this.leave();
      return;
    }
    this.at = hit.place;
    selection.point(...(hit.item >= 0 ? ['operator', hit.item] : ['kernel', hit.event.kernel]));
    const [title, facts] = describe(selection.active);
    const waited = hit.event.waited ? `, of which ${duration(hit.event.waited)} waiting for threads` : '';
    const took = hit.item >= 0 ? '' : `took ${duration(hit.event.end - hit.event.begin)} here, from ${duration(hit.event.begin)}${waited}`;
    showTip(event, title, [hit.thread, took, ...facts.slice(0, 5)].filter(Boolean));
  }

  drop(event) {
    const { moved } = this.held || { moved: true };
    this.letGo();
    const hit = moved ? null : this.hit(event);
    if (hit) selection.togglePin(...(hit.item >= 0 ? ['operator', hit.item] : ['kernel', hit.event.kernel]));
  }

  letGo() {
    this.held = null;
    this.box.classList.remove('held');
  }

  leave() {
    if (!this.held) pointAway();
  }

  key(event) {
    const span = this.to - this.from;
    const centre = (this.from + this.to) / 2;
    if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') this.step(event.key === 'ArrowLeft' ? -1 : 1);
    else if (event.key === '+' || event.key === '=') this.zoom(0.5, centre);
    else if (event.key === '-') this.zoom(2, centre);
    else if (event.key === '0') this.look(0, this.whole);
    else if (event.key === 'PageUp') this.look(this.from - span, this.to - span);
    else if (event.key === 'PageDown') this.look(this.from + span, this.to + span);
    else if ((event.key === 'Enter' || event.key === ' ') && this.events[this.at]) selection.togglePin('kernel', this.events[this.at].kernel);
    else return;
    event.preventDefault();
  }

  step(by) {
    if (!this.events.length) return;
    this.at = this.at < 0 ? 0 : Math.min(this.events.length - 1, Math.max(0, this.at + by));
    const event = this.events[this.at];
    const span = this.to - this.from;
    if (event.begin < this.from || event.end > this.to) this.look((event.begin + event.end - span) / 2, (event.begin + event.end + span) / 2);
    selection.point('kernel', event.kernel);
  }

  /** The kernel at a point, and the operator when the point is in the lower lane. Thin ones are hit from a pixel beside them. */
  hit(event) {
    const box = this.box.getBoundingClientRect();
    const y = event.clientY - box.top;
    if (y < AXIS) return null;
    const time = this.timeAt(event.clientX - box.left);
    const slack = ((this.to - this.from) / this.size[0]) * 1.5;
    const place = this.lastBefore(time + slack);
    const found = this.events[place];
    if (!found || time > found.end + slack) return null;
    if (y < AXIS + KERNEL_LANE + LANE_GAP) return { event: found, place, item: -1 };
    if (this.threads.length && y >= AXIS + KERNEL_LANE + LANE_GAP + PART_LANE) return this.hitThread(y, time, { event: found, place, item: -1 });
    const part = partsOf(found).find((each) => time <= each.end);
    return { event: found, place, item: part ? part.item : -1 };
  }

  /** What the thread at a height did then: a part of the kernel, or it waited. */
  hitThread(y, time, hit) {
    const thread = Math.floor((y - AXIS - KERNEL_LANE - LANE_GAP - PART_LANE - 3) / (THREAD_LANE + 1));
    if (thread < 0 || thread >= this.threads.length) return hit;
    const span = this.threads[thread].find(([kernel, begin, end]) => kernel === hit.event.kernel && begin <= time && time <= end);
    const who = `thread ${thread}${thread ? '' : ' (caller)'}`;
    return { ...hit, thread: span ? `${who} works at it for ${duration(span[2] - span[1])}` : `${who} waits` };
  }

  /** The last event that began by then; -1 when there is none. */
  lastBefore(time) {
    return countWhile(this.events.length, (place) => this.events[place].begin <= time) - 1;
  }

  // ---- drawing ----

  draw() {
    const [width, height] = this.size;
    if (!width || !height) return;
    const paint = palette();
    const scale = width / (this.to - this.from);
    const lower = AXIS + KERNEL_LANE + LANE_GAP;
    const partHeight = this.threads.length ? PART_LANE : height - lower;
    const laneOf = (thread) => lower + PART_LANE + 3 + thread * (THREAD_LANE + 1);
    this.drawing.draw(
      this.size,
      (pen) => {
        this.drawAxis(pen, paint, width, scale);
        pen.fillStyle = paint('--sunk');
        pen.fillRect(0, AXIS, width, KERNEL_LANE);
        pen.fillRect(0, lower, width, partHeight);
        pen.fillStyle = paint('--residual');
        this.threads.forEach((_, thread) => pen.fillRect(0, laneOf(thread), width, THREAD_LANE));
      },
      (pen) => [
        ...this.drawKernels(pen, paint, scale),
        ...this.drawParts(pen, paint, scale, lower, partHeight),
        ...this.threads.flatMap((spans, thread) => this.drawThread(pen, paint, spans, scale, laneOf(thread))),
      ],
    );
    this.filter();
    this.show();
    byId('range').textContent = this.events.length
      ? `${range(this.from, this.to)} of ${duration(this.whole)} · ${counted(this.events.length, 'kernel')}, above; their operators, below${this.threads.length ? `; then ${counted(this.threads.length, 'thread')}, pale where one waits` : ''}`
      : 'no run was kept';
  }

  /** Fades what the search leaves out. */
  filter() {
    this.drawing.show(selection.found && (({ kind, item }) => selection.isFound(kind, item)));
  }

  /** The kernels in sight. */
  shown() {
    const found = [];
    for (let place = Math.max(0, this.lastBefore(this.from)); place < this.events.length && this.events[place].begin <= this.to; place += 1) found.push(this.events[place]);
    return found;
  }

  drawKernels(pen, paint, scale) {
    pen.textBaseline = 'middle';
    pen.font = `11px ${paint('--sans')}`;
    return this.shown().map((event) => {
      const x = (event.begin - this.from) * scale;
      const w = Math.max(0.6, (event.end - event.begin) * scale);
      const gap = w > 4 ? 1 : 0;
      pen.fillStyle = paint(kernelColour(event.kernel));
      pen.fillRect(x, AXIS, w - gap, KERNEL_LANE);
      // At its end the caller waits for other threads: that part is pale.
      const idle = Math.min(w - gap, (event.waited || 0) * scale);
      if (idle > 0.3) {
        pen.fillStyle = paint('--residual');
        pen.fillRect(x + w - gap - idle, AXIS, idle, KERNEL_LANE);
      }
      const id = String(KERNELS.id[event.kernel]);
      writeInside(pen, paint, w > WIDE ? `${id} ${KERNELS.name[event.kernel].replace(/^fuse_/, '')}` : id, x, w - gap, AXIS + KERNEL_LANE / 2);
      return { x, y: AXIS, w, h: KERNEL_LANE, kind: 'kernel', item: event.kernel };
    });
  }

  /** What a thread did. Where it waits the lane is empty. */
  drawThread(pen, paint, spans, scale, y) {
    const drawn = [];
    for (let place = countWhile(spans.length, (each) => spans[each][2] < this.from); place < spans.length && spans[place][1] <= this.to; place += 1) {
      const [kernel, begin, end] = spans[place];
      const part = { x: (begin - this.from) * scale, y, w: Math.max(0.5, (end - begin) * scale), h: THREAD_LANE, kind: 'kernel', item: kernel };
      pen.fillStyle = paint(kernelColour(kernel));
      pen.fillRect(part.x, y, part.w, THREAD_LANE);
      drawn.push(part);
    }
    return drawn;
  }

  show() {
    const [width, height] = this.size;
    if (!width || !height) return;
    const scale = width / (this.to - this.from);
    this.frame(this.events, (event) => selection.isLit('kernel', event.kernel), (event) => (
      { x: (event.begin - this.from) * scale, y: AXIS, w: Math.max(2, (event.end - event.begin) * scale), h: KERNEL_LANE }));
  }

  drawParts(pen, paint, scale, y, h) {
    pen.textBaseline = 'middle';
    pen.font = `11px ${paint('--sans')}`;
    const drawn = [];
    for (const part of this.shown().flatMap(partsOf)) {
      const x = (part.begin - this.from) * scale;
      const w = (part.end - part.begin) * scale;
      if (w < 0.3) continue;
      pen.fillStyle = paint(colourOf(OPS.type[part.item]));
      pen.fillRect(x, y, Math.max(0.5, w - (w > 4 ? 1 : 0)), h);
      if (w > WIDE) writeInside(pen, paint, lastPart(OPS.name[part.item]), x, w - 1, y + h / 2);
      drawn.push({ x, y, w, h, kind: 'operator', item: part.item });
    }
    return drawn;
  }

  drawAxis(pen, paint, width, scale) {
    const rough = (this.to - this.from) / Math.max(1, width / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
    pen.font = `11px ${paint('--sans')}`;
    pen.textBaseline = 'middle';
    for (let time = Math.ceil(this.from / step) * step; time <= this.to; time += step) {
      const x = (time - this.from) * scale;
      pen.fillStyle = paint('--rule');
      pen.fillRect(x, 4, 1, AXIS - 4);
      pen.fillStyle = paint('--faint');
      const label = time ? tick(time, step) : '0';
      if (x + 4 + pen.measureText(label).width < width) pen.fillText(label, x + 4, AXIS / 2);
    }
  }
}

/** Text in a box that may begin left of what is shown; nothing where it does not fit. */
function writeInside(pen, paint, text, x, w, y) {
  const from = Math.max(0, x) + 5;
  const room = x + w - from - 4;
  if (room < 12) return;
  const short = fitted(pen, text, room);
  if (short !== text && short.length < 5) return;
  pen.fillStyle = paint('--on-type');
  pen.fillText(short, from, y + 1);
}

/** A time on the axis, with as many digits as the steps need. */
function tick(time, step) {
  const [unit, size] = [['s', 1e9], ['ms', 1e6], ['µs', 1e3], ['ns', 1]].find((each) => time >= each[1]) || ['ns', 1];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return `${(time / size).toFixed(digits)} ${unit}`;
}

/** The operators in an event, one after the other by what each has of its kernel. */
function partsOf(event) {
  const parts = KERNELS.parts[event.kernel];
  const whole = parts.reduce((sum, [, time]) => sum + time, 0);
  let begin = event.begin;
  return whole ? parts.filter(([, time]) => time > 0).map(([item, time]) => {
    const part = { item, begin, end: begin + ((event.end - event.begin) * time) / whole };
    begin = part.end;
    return part;
  }) : [];
}
