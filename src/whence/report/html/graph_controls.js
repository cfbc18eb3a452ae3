// Pointer and keyboard on the graph.

class GraphControls {
  constructor(graph) {
    this.graph = graph;
    this.pointers = new Map();
    this.held = null;
    this.at = null;
    const { box } = graph;
    box.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    box.addEventListener('pointerdown', (event) => this.hold(event));
    box.addEventListener('pointermove', (event) => this.move(event));
    box.addEventListener('pointerup', (event) => this.drop(event));
    box.addEventListener('pointercancel', (event) => this.letGo(event));
    box.addEventListener('pointerleave', () => this.leave());
    box.addEventListener('blur', () => this.leave());
    box.addEventListener('dblclick', (event) => !graph.hit(event) && graph.fit());
    box.addEventListener('keydown', (event) => this.key(event));
  }

  wheel(event) {
    event.preventDefault();
    const { left, top } = this.graph.box.getBoundingClientRect();
    const { x, y } = this.graph.view;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.graph.pan(x - (event.deltaX || event.deltaY), y);
    else this.graph.zoom(Math.exp(-Math.max(-120, Math.min(120, event.deltaY)) * 0.003), event.clientX - left, event.clientY - top);
    hideTip();
  }

  hold(event) {
    if (event.button !== 0) return;
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    this.graph.box.setPointerCapture(event.pointerId);
    this.held = { moved: this.pointers.size > 1, from: [event.clientX, event.clientY], view: { ...this.graph.view } };
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.over(event);
      return;
    }
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    const { from, view } = this.held;
    if (others.length) this.pinch(before, [event.clientX, event.clientY], others[0]);
    else {
      const [dx, dy] = [event.clientX - from[0], event.clientY - from[1]];
      if (Math.hypot(dx, dy) > 3) this.held.moved = true;
      if (!this.held.moved) return;
      this.graph.box.classList.add('held');
      hideTip();
      this.graph.pan(view.x + dx, view.y + dy);
    }
  }

  /** Two fingers: the drawing stays under both. */
  pinch(before, now, other) {
    const { left, top } = this.graph.box.getBoundingClientRect();
    const apart = (place) => Math.max(1, Math.hypot(place[0] - other[0], place[1] - other[1]));
    this.graph.zoom(apart(now) / apart(before), other[0] - left, other[1] - top);
  }

  over(event) {
    const hit = this.graph.hit(event);
    this.graph.box.classList.toggle('over', Boolean(hit));
    if (!hit) {
      this.leave();
      return;
    }
    this.at = hit;
    this.point(hit);
    const facts = hit.item >= 0 ? describe(selection.active)[1].slice(0, 5) : [
      `${duration(perRun(hit.time))} per run · ${percent(shareOf(hit.time))}`, counted(hit.count, 'operator'), hit.open ? 'click to close' : 'click to open'];
    showTip(event, hit.item >= 0 ? OPS.name[hit.item] : pathOf(hit), facts);
  }

  point(node) {
    if (node.item >= 0) selection.point('operator', node.item);
    else selection.pointAtModule(itemsIn(node), pathOf(node));
  }

  drop(event) {
    const { moved } = this.held || { moved: true };
    this.letGo(event);
    const hit = moved ? null : this.graph.hit(event);
    if (hit) this.choose(hit);
  }

  choose(node) {
    hideTip();
    if (node.item >= 0) selection.togglePin('operator', node.item);
    else this.graph.toggle(node);
  }

  letGo(event) {
    this.pointers.delete(event.pointerId);
    if (!this.pointers.size) this.held = null;
    else this.held = { moved: true, from: [...this.pointers.values()][0], view: { ...this.graph.view } };
    this.graph.box.classList.remove('held');
  }

  leave() {
    if (!this.held) pointAway();
  }

  key(event) {
    const { graph } = this;
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key in steps) this.step(this.at && this.at.place !== undefined ? this.at.place + steps[event.key] : 0);
    else if (event.key === 'ArrowUp' || event.key === 'ArrowDown') this.along(event.key === 'ArrowDown');
    else if (event.key === '+' || event.key === '=') graph.zoomMiddle(1.6);
    else if (event.key === '-') graph.zoomMiddle(1 / 1.6);
    else if (event.key === '0') graph.fit();
    else if ((event.key === 'Enter' || event.key === ' ') && this.at) this.enter();
    else if (event.key === 'Backspace' && this.at && this.at.parent && this.at.parent.parent) {
      this.at = this.at.parent;
      if (this.at.open) graph.toggle(this.at);
      this.bringIn(this.at);
    } else return;
    event.preventDefault();
  }

  enter() {
    const { at } = this;
    this.choose(at);
    if (at.children && at.open) this.bringIn(this.graph.boxes[this.graph.shownFor(itemsIn(at)[0]).place]);
  }

  step(place) {
    const { boxes } = this.graph;
    this.bringIn(boxes[Math.min(boxes.length - 1, Math.max(0, place))]);
  }

  /** To what reads this box's result, or to what it reads. */
  along(down) {
    const route = this.graph.routes.find(({ from, to }) => (down ? from : to) === this.at);
    if (route) this.bringIn(down ? route.to : route.from);
    else if (!this.at) this.step(0);
  }

  /** Points at a box and brings it into sight. */
  bringIn(node) {
    this.at = node;
    const { view, size } = this.graph;
    const [x, y] = [(node.atX + node.w / 2) * view.scale + view.x, (node.atY + node.h / 2) * view.scale + view.y];
    if (x < 0 || y < 0 || x > size[0] || y > size[1]) this.graph.pan(view.x + size[0] / 2 - x, view.y + size[1] / 2 - y);
    this.point(node);
  }
}
