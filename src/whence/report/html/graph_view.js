// The graph of the file, coloured by time, what runs as one kernel in one outline. Modules open and close; the drawing pans and zooms.

const OPENED_AT_FIRST = 240;
const LEAST_SCALE = 0.004;
const MOST_SCALE = 4;
const READABLE = 0.55;
const TRACED = 0.12;

class GraphView {
  constructor(box) {
    this.box = box;
    this.canvas = make('canvas');
    this.marks = make('canvas');
    for (const sheet of [this.canvas, this.marks]) sheet.setAttribute('aria-hidden', 'true');
    this.message = make('p', 'empty', DATA.has_graph ? 'The file has no operator.' : 'The graph is not in this report: it was made from a profile.json.');
    box.append(this.canvas, this.marks, this.message);
    this.message.hidden = DATA.has_graph && COUNT.operator > 0;
    this.drawing = new HighlightedDrawing(this.canvas);
    this.tree = null;
    this.size = [0, 0];
    this.view = { x: 0, y: 0, scale: 1 };
    this.fitted = true;
    this.waiting = false;
    this.changed = true;
    this.slide = null;
    if (!this.message.hidden) return;
    new ResizeObserver(() => this.measure()).observe(box);
    new GraphControls(this);
    byId('graph-fit').addEventListener('click', () => this.fit());
    byId('graph-less').addEventListener('click', () => this.zoomMiddle(1 / 1.6));
    byId('graph-more').addEventListener('click', () => this.zoomMiddle(1.6));
    byId('graph-open').addEventListener('click', () => this.openAll(true));
    byId('graph-close').addEventListener('click', () => this.openAll(false));
  }

  get hidden() {
    return byId('view-graph').hidden || !this.tree;
  }

  /** The view is shown. What is pinned comes into sight. */
  open() {
    if (!this.message.hidden) return;
    if (!this.tree) {
      this.tree = moduleTree([...OPS.name.keys()]);
      Object.assign(this, linkTree(this.tree));
      this.openHeaviest();
      this.arrange();
    }
    this.measure();
    if (selection.pin) this.reveal(selection.pin.lit.operator);
  }

  // ---- modules ----

  /** Opens modules, those with most time for a box first, as long as there are not too many boxes. */
  openHeaviest() {
    let boxes = this.tree.children.length;
    this.tree.open = true;
    const closed = this.tree.children.filter((child) => child.children);
    while (closed.length) {
      closed.sort((a, b) => a.time / a.children.length - b.time / b.children.length);
      const next = closed.pop();
      if (boxes + next.children.length > OPENED_AT_FIRST) continue;
      boxes += next.children.length - 1;
      next.open = true;
      closed.push(...next.children.filter((child) => child.children));
    }
  }

  openAll(open) {
    const visit = (node) => {
      if (node.children) {
        node.open = open || node === this.tree;
        node.children.forEach(visit);
      }
    };
    visit(this.tree);
    this.arrange();
    this.fit();
  }

  /** Opens or closes a module; its upper left corner stays where it is on the screen. */
  toggle(module) {
    const before = [module.atX, module.atY];
    module.open = !module.open;
    this.arrange();
    this.view.x += (before[0] - module.atX) * this.view.scale;
    this.view.y += (before[1] - module.atY) * this.view.scale;
    this.fitted = false;
    this.redraw();
  }

  /** What stands for an operator now: its box, or that of the outermost closed module around it. */
  shownFor(item) {
    let found = this.home.get(item);
    for (let node = found.parent; node; node = node.parent) if (!node.open) found = node;
    return found;
  }

  /** Lays everything out that is open, and collects what is to be drawn. */
  arrange() {
    layOut(this.tree);
    this.modules = [];
    this.boxes = [];
    const visit = (node, x, y) => {
      [node.atX, node.atY] = [x, y];
      if (!node.children || !node.open) {
        this.boxes.push(node);
        return;
      }
      this.modules.push(node);
      for (const child of node.children) visit(child, x + child.x, y + child.y);
    };
    visit(this.tree, 0, 0);
    this.boxes.sort((a, b) => a.order - b.order);
    this.boxes.forEach((box, place) => (box.place = place));
    this.hottest = this.boxes.reduce((most, box) => Math.max(most, box.time), 1);
    this.routes = routesBetween(this);
    this.regions = regionsOf(this);
    this.labels = new Map();
    byId('graph-facts').textContent = `${counted(COUNT.operator, 'operator')}, ${counted(this.boxes.length, 'node')} shown, ${counted(this.regions.count, 'fused kernel')} outlined`;
    const [least, most] = byId('graph-scale').querySelectorAll('span');
    [least.textContent, most.textContent] = ['0', percent(shareOf(this.hottest))];
  }

  // ---- what is in sight ----

  measure() {
    this.size = [this.box.clientWidth, this.box.clientHeight];
    if (this.hidden || !this.size[0]) return;
    if (this.fitted) this.fit();
    else this.redraw();
  }

  fit() {
    const [width, height] = this.size;
    const scale = Math.min(1.4, (width - 16) / this.tree.w, (height - 16) / this.tree.h);
    this.view = { scale, x: (width - this.tree.w * scale) / 2, y: (height - this.tree.h * scale) / 2 };
    this.fitted = true;
    this.redraw();
  }

  zoom(factor, x, y) {
    const scale = Math.min(MOST_SCALE, Math.max(LEAST_SCALE, this.view.scale * factor));
    const kept = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * kept, y: y - (y - this.view.y) * kept };
    this.fitted = false;
    this.redraw();
  }

  zoomMiddle(factor) {
    this.zoom(factor, this.size[0] / 2, this.size[1] / 2);
  }

  pan(x, y) {
    [this.view.x, this.view.y] = [x, y];
    this.fitted = false;
    this.redraw(true);
  }

  /** Brings operators into sight, large enough to read, and opens the modules they are in; nothing if one can be read already. */
  reveal(items) {
    const wanted = [...items].slice(0, 20).map((item) => this.home.get(item));
    if (!wanted.length) return;
    let opened = false;
    for (const node of wanted) {
      for (let each = node.parent; each; each = each.parent) {
        if (!each.open) [each.open, opened] = [true, true];
      }
    }
    if (opened) this.arrange();
    const [width, height] = this.size;
    const readable = this.view.scale >= READABLE && !opened;
    const inSight = ({ atX, atY, w, h }) => {
      const [x, y] = [atX * this.view.scale + this.view.x, atY * this.view.scale + this.view.y];
      return x >= 0 && y >= 0 && x + w * this.view.scale <= width && y + h * this.view.scale <= height;
    };
    if (readable && wanted.some(inSight)) return;
    const scale = Math.max(this.view.scale, 0.8);
    const { atX, atY, w, h } = wanted[0];
    this.view = { scale, x: width / 2 - (atX + w / 2) * scale, y: height / 2 - (atY + h / 2) * scale };
    this.fitted = false;
    this.redraw();
  }

  /** The innermost box or heading of an open module at a point of the screen. */
  hit(event) {
    const place = this.box.getBoundingClientRect();
    const x = (event.clientX - place.left - this.view.x) / this.view.scale;
    const y = (event.clientY - place.top - this.view.y) / this.view.scale;
    const holds = ({ atX, atY, w, h }) => x >= atX && y >= atY && x < atX + w && y < atY + h;
    let found = this.tree;
    if (!holds(found)) return null;
    while (found.children && found.open) {
      const inner = found.children.find(holds);
      if (!inner) return found !== this.tree && y < found.atY + HEAD ? found : null;
      found = inner;
    }
    return found;
  }

  // ---- drawing ----

  show(what) {
    if (this.hidden) return;
    if (what === 'pin' && selection.pin && !this.box.matches(':hover')) this.reveal(selection.pin.lit.operator);
    this.mark();
  }

  /** What the search leaves out is dimmed in the pictures that there are; nothing is drawn anew. */
  filter() {
    if (this.hidden || this.waiting) return;
    if (this.slide) {
      this.slide.drawing.show(foundBySearch());
      slideGraph(this);
    } else this.drawing.show(foundBySearch());
  }

  /** With the browser's next frame: however often it is asked for, it is drawn once. `moved`: nothing but its place has changed. */
  redraw(moved = false) {
    if (!moved) this.changed = true;
    if (this.waiting || this.hidden) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.changed) {
        this.slide = null;
        drawGraph(this);
      } else slideGraph(this);
      this.changed = false;
      this.mark();
    });
  }

  /** Frames what is lit. */
  mark() {
    if (this.hidden || !this.size[0]) return;
    const { x, y, scale } = this.view;
    const lit = new Set(selection.active ? [...selection.active.lit.operator].map((item) => this.shownFor(item)) : []);
    const frames = lit.size > 3 && lit.size > this.boxes.length * 0.6 ? [] : [...lit];
    outline(this.marks, this.size, frames.map(({ atX, atY, w, h }) => ({ x: atX * scale + x - 2, y: atY * scale + y - 2, w: w * scale + 4, h: h * scale + 4 })));
  }
}
