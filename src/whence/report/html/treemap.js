// Time by module, as areas. A click goes one module deeper towards the place that was clicked, and pins an operator that is already there.

const STRIP = 17;

/** The modules with the time in them, and what is not in a kernel; the largest first. */
function timeTree() {
  const root = moduleTree([...OPS.time_ns.keys()].filter((item) => OPS.time_ns[item]));
  DATA.sum.forEach(([name, time]) => {
    if (name === 'kernels' || !time) return;
    root.children.push({ name, parent: root, children: null, time, item: -1, residual: true });
    root.time += time;
  });
  const order = (node) => {
    node.children.sort((a, b) => b.time - a.time || (a.name < b.name ? -1 : 1));
    for (const child of node.children) if (child.children) order(child);
  };
  order(root);
  return root;
}

class Treemap extends Drawing {
  constructor(box) {
    super(box);
    this.drawing = new HighlightedDrawing(this.canvas);
    this.root = this.tree = timeTree();
    this.cells = [];
    box.addEventListener('mousemove', (event) => this.over(event));
    box.addEventListener('mouseleave', () => this.leave());
    box.addEventListener('click', (event) => this.click(event));
    this.writeCrumbs();
    this.writeLegend();
  }

  // ---- what is where ----

  measure() {
    const { clientWidth: width, clientHeight: height } = this.box;
    this.size = [width, height];
    this.cells = [];
    this.at = -1;
    if (!width || !height) return;
    this.place(this.root, 0, 0, width, height, 0);
    this.draw();
  }

  place(node, x, y, w, h, depth) {
    const rectangles = squarify(node.children.map((child) => child.time), x, y, w, h);
    node.children.forEach((child, place) => {
      const [cx, cy, cw, ch] = rectangles[place];
      const opens = child.children && cw >= 6 && ch >= 6;
      const strip = opens && cw >= 46 && ch >= 38 ? STRIP : 0;
      const items = opens || child.residual ? [] : itemsIn(child);
      this.cells.push({ x: cx, y: cy, w: cw, h: ch, node: child, depth, opens, strip, items });
      if (opens) this.place(child, cx + 1.5, cy + strip + (strip ? 0 : 1.5), cw - 3, ch - strip - (strip ? 1.5 : 3), depth + 1);
    });
  }

  /** The innermost cell at a point. */
  cellAt(event) {
    const box = this.box.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    for (let place = this.cells.length - 1; place >= 0; place -= 1) {
      const cell = this.cells[place];
      if (x >= cell.x && x < cell.x + cell.w && y >= cell.y && y < cell.y + cell.h) return cell;
    }
    return null;
  }

  // ---- what people do ----

  point(cell) {
    if (!cell || cell.node.residual) selection.point(null, -1);
    else if (cell.node.item >= 0) selection.point('operator', cell.node.item);
    else selection.pointAtModule(itemsIn(cell.node), pathOf(cell.node));
  }

  over(event) {
    const cell = this.cellAt(event);
    this.point(cell);
    if (!cell) return hideTip();
    const { node } = cell;
    const facts = [`${duration(perRun(node.time))} per run · ${percent(shareOf(node.time))}`];
    if (node.item >= 0) facts.push(`${OPS.type[node.item]} · ${OPS.became[node.item]}`, OPS.line[node.item]);
    else if (node.children) facts.push(counted(itemsIn(node).length, 'operator'));
    return showTip(event, node.item >= 0 ? OPS.name[node.item] : pathOf(node), facts.filter(Boolean));
  }

  click(event) {
    const cell = this.cellAt(event);
    if (cell) this.enter(cell.node);
  }

  enter(node) {
    let target = node;
    while (target.parent && target.parent !== this.root) target = target.parent;
    if (target.children) this.zoom(target);
    else if (target.item >= 0) selection.togglePin('operator', target.item);
  }

  zoom(node) {
    this.root = node;
    hideTip();
    selection.point(null, -1);
    this.writeCrumbs();
    this.measure();
  }

  /** Whether there was anything to go out of. */
  out() {
    if (this.root === this.tree) return false;
    this.zoom(this.root.parent);
    return true;
  }

  key(event) {
    const top = this.cells.filter((cell) => cell.depth === 0);
    if (event.key === 'Enter' || event.key === ' ') {
      if (top[this.at]) this.enter(top[this.at].node);
    } else if (event.key === 'Backspace') this.out();
    else if (['ArrowRight', 'ArrowDown', 'ArrowLeft', 'ArrowUp'].includes(event.key) && top.length) {
      const step = event.key === 'ArrowRight' || event.key === 'ArrowDown' ? 1 : -1;
      this.at = this.at < 0 ? 0 : (this.at + step + top.length) % top.length;
      this.point(top[this.at]);
    } else return;
    event.preventDefault();
  }

  writeCrumbs() {
    const path = [];
    for (let node = this.root; node; node = node.parent) path.unshift(node);
    const parts = path.flatMap((node, place) => {
      const button = make('button', '', place ? node.name : 'all');
      button.type = 'button';
      if (node === this.root) button.setAttribute('aria-current', 'true');
      button.addEventListener('click', () => this.zoom(node));
      return place ? [make('span', '', '›'), button] : [button];
    });
    byId('crumbs').replaceChildren(...parts, make('span', '', `${duration(perRun(this.root.time))} · ${percent(shareOf(this.root.time))}`));
    this.box.setAttribute('aria-label', `Treemap of ${pathOf(this.root)}`);
  }

  writeLegend() {
    byId('legend').replaceChildren(...TYPES.filter((type) => type.time > 0).slice(0, COLOURED).map((type) => {
      const button = make('button');
      const swatch = make('i', 'swatch');
      swatch.style.background = `var(${colourOf(type.name)})`;
      button.append(swatch, make('span', '', type.name));
      button.type = 'button';
      button.title = `${type.name}: ${percent(shareOf(type.time))}`;
      button.dataset.query = `type:"${type.name.replaceAll('"', '')}"`;
      button.addEventListener('click', () => setQuery(selection.query === button.dataset.query ? '' : button.dataset.query));
      return button;
    }));
  }

  // ---- drawing ----

  filter() {
    for (const button of byId('legend').children) button.setAttribute('aria-pressed', String(button.dataset.query === selection.query));
    this.dim();
  }

  draw() {
    if (!this.cells.length) return;
    const paint = palette();
    this.drawing.draw(
      this.size,
      (pen) => {
        pen.textBaseline = 'middle';
        for (const cell of this.cells) if (cell.opens) this.drawModule(pen, paint, cell);
      },
      (pen) => {
        pen.textBaseline = 'middle';
        const leaves = this.cells.filter((cell) => !cell.opens);
        for (const cell of leaves) this.drawLeaf(pen, paint, cell);
        return leaves;
      },
    );
    this.dim();
    this.show();
  }

  /** Fades what the search leaves out. */
  dim() {
    if (!this.cells.length) return;
    this.drawing.show(selection.found && (({ items }) => items.some((item) => selection.isFound('operator', item))));
  }

  drawLeaf(pen, paint, cell) {
    const { node, items, x, y, w, h } = cell;
    pen.fillStyle = paint(node.residual ? '--residual' : items.length ? colourOf(OPS.type[items[0]]) : '--type-other');
    pen.fillRect(x + 0.5, y + 0.5, Math.max(0.4, w - 1), Math.max(0.4, h - 1));
    if (w > 30 && h > 15) this.drawLabel(pen, paint, cell);
  }

  show() {
    this.frame(this.cells, ({ items }) => items.some((item) => selection.isLit('operator', item)), (cell) => cell);
  }

  drawModule(pen, paint, { node, x, y, w, h, strip, depth }) {
    pen.fillStyle = paint(depth % 2 ? '--panel' : '--sunk');
    pen.fillRect(x + 0.5, y + 0.5, w - 1, h - 1);
    if (!strip) return;
    const share = percent(shareOf(node.time));
    pen.font = `600 11px ${paint('--sans')}`;
    pen.fillStyle = paint('--ink');
    const room = w - 12;
    const name = fitted(pen, node.name, room);
    pen.fillText(name, x + 6, y + strip / 2 + 1);
    const used = pen.measureText(name).width;
    pen.font = `11px ${paint('--sans')}`;
    if (room - used > pen.measureText(share).width + 8) {
      pen.fillStyle = paint('--soft');
      pen.fillText(share, x + 6 + used + 7, y + strip / 2 + 1);
    }
  }

  drawLabel(pen, paint, { node, x, y, w, h }) {
    pen.fillStyle = paint(node.residual ? '--soft' : '--on-type');
    pen.font = `11px ${paint('--sans')}`;
    let name = fitted(pen, node.name, w - 9);
    // The whole type says more than the beginning of a name.
    if (name !== node.name && node.item >= 0 && pen.measureText(OPS.type[node.item].slice(0, 40)).width <= w - 9) name = OPS.type[node.item];
    if (name.length < 5 && name.endsWith('…')) return;
    pen.fillText(name, x + 5, y + Math.min(11, h / 2));
    const share = percent(shareOf(node.time));
    if (h > 30 && pen.measureText(share).width <= w - 9) {
      const alpha = pen.globalAlpha;
      pen.globalAlpha = alpha * 0.72;
      pen.fillText(share, x + 5, y + 25);
      pen.globalAlpha = alpha;
    }
  }
}
