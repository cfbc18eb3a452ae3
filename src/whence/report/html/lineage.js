// Three panes side by side: operators of the file, nodes of the optimised graph, kernels with their code. Pointing at one lights up its relatives.

const MOST_CURVES = 300;
const LINE_HEIGHT = 17;

class Lineage {
  constructor() {
    const pane = (id, kind, build, fill, empty) => new WindowedList(byId(id), {
      rowHeight: 24,
      build,
      fill,
      mark: (row, item) => markRow(row, kind, item),
      point: (item) => selection.point(kind, item),
      pick: (item) => selection.togglePin(kind, item),
      scrolled: () => this.tie(),
      empty,
    });
    const graphless = 'The optimised graph is not in this report: it was made from a profile.json.';
    this.panes = {
      operator: pane('pane-operators', 'operator', buildOperator, fillOperator, 'No operator matches the search.'),
      node: pane('pane-nodes', 'node', buildNode, fillNode, DATA.has_graph ? 'No node matches the search.' : graphless),
      kernel: pane('pane-kernels', 'kernel', buildKernel, fillKernel, 'No kernel matches the search.'),
    };
    this.kernel = -1;
    this.lines = [];
    this.code = new WindowedList(byId('code'), {
      rowHeight: LINE_HEIGHT,
      build: () => {},
      fill: (row, line) => {
        row.dataset.line = String(line + 1);
        writeCode(row, this.lines[line]);
      },
      point: () => selection.point('kernel', this.kernel),
      pick: () => this.kernel >= 0 && selection.togglePin('kernel', this.kernel),
      empty: 'Point at a kernel to read its code.',
    });
    this.code.box.addEventListener('mouseleave', () => selection.point(null, -1));
    this.filter();
    this.open(KERNELS.id.length ? 0 : -1);
  }

  show(what) {
    if (byId('view-lineage').hidden) return;
    const { active } = selection;
    if (active) {
      for (const kind of KINDS) {
        // What the pointer is on stays where it is.
        if (what === 'pin' || active.kind !== kind) this.panes[kind].revealAny(active.lit[kind]);
      }
    }
    this.tie();
    for (const kind of KINDS) this.panes[kind].remark();
    const leading = selection.pin || selection.hover;
    if (leading) this.open(firstKernel(leading));
    byId('code').classList.toggle('lit', this.kernel >= 0 && selection.isLit('kernel', this.kernel));
  }

  filter() {
    for (const kind of KINDS) {
      const items = Array.from({ length: COUNT[kind] }, (_, item) => item).filter((item) => selection.isFound(kind, item));
      this.panes[kind].show(items);
      byId(`count-${kind}s`).textContent = items.length === COUNT[kind] ? items.length.toLocaleString('en') : `${items.length.toLocaleString('en')} of ${COUNT[kind].toLocaleString('en')}`;
    }
    this.tie();
  }

  redraw() {
    for (const kind of KINDS) this.panes[kind].draw();
    this.code.draw();
    this.show('pin');
  }

  /** Shows the code of a kernel. An operator without a kernel leaves what is there. */
  open(kernel) {
    if (kernel === this.kernel || (kernel < 0 && this.kernel >= 0)) return;
    this.kernel = kernel;
    const title = byId('code-title');
    if (kernel < 0) {
      title.textContent = 'Code';
      return;
    }
    title.textContent = `Code of kernel ${KERNELS.id[kernel]}`;
    const place = KERNELS.function[kernel];
    const others = place < 0 ? 0 : KERNELS.function.filter((each) => each === place).length - 1;
    title.append(make('small', '', KERNELS.name[kernel] + (others ? ` · ${counted(others, 'other kernel')} with the same code` : '')));
    this.lines = place < 0 ? [] : DATA.functions[place].replace(/\n$/, '').split('\n');
    this.code.message.textContent = KERNELS.native[kernel]
      ? 'The code is not in this report: it was made from a profile.json.'
      : `No code: the reference implementation runs here (${KERNELS.why_reference[kernel] || 'no native kernel'}).`;
    this.code.box.scrollTo(0, 0);
    this.code.top = 0;
    const longest = this.lines.reduce((most, line) => Math.max(most, line.length), 0);
    this.code.extent.style.width = `calc(${longest}ch + 56px)`;
    this.code.show([...this.lines.keys()], true);
  }

  /** Curves between rows that belong together, for what is lit. */
  tie() {
    if (byId('view-lineage').hidden) return;
    this.curves('gutter-left', 'operator', 'node');
    this.curves('gutter-right', 'node', 'kernel');
  }

  curves(id, from, to) {
    const svg = byId(id);
    if (!selection.active) {
      svg.replaceChildren();
      return;
    }
    const { lit } = selection.active;
    const box = svg.getBoundingClientRect();
    const [left, right] = [this.panes[from], this.panes[to]];
    const [leftBox, rightBox] = [left.box.getBoundingClientRect(), right.box.getBoundingClientRect()];
    const clamp = (y, frame) => Math.min(frame.bottom, Math.max(frame.top, y + frame.top)) - box.top;
    const paths = [];
    for (const item of lit[from]) {
      const y = left.heightOf(item);
      if (y === null) continue;
      for (const other of RELATIONS[from][to][item]) {
        const z = lit[to].has(other) ? right.heightOf(other) : null;
        if (z === null || paths.length >= MOST_CURVES) continue;
        const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
        const [a, b] = [clamp(y, leftBox), clamp(z, rightBox)];
        path.setAttribute('d', `M0 ${a}C${box.width / 2} ${a} ${box.width / 2} ${b} ${box.width} ${b}`);
        paths.push(path);
      }
    }
    svg.replaceChildren(...paths);
  }
}

/** The kernel to show for a selection: itself, or the first of its relatives. */
function firstKernel(chosen) {
  return [...chosen.lit.kernel].reduce((least, kernel) => (least < 0 || kernel < least ? kernel : least), -1);
}

function buildOperator(row) {
  row.append(make('i', 'swatch'), middle(), make('span', 'dim'), make('span', 'right'));
}

function fillOperator(row, item) {
  const [swatch, name, type, share] = row.children;
  swatch.style.background = OPS.time_ns[item] ? `var(${colourOf(OPS.type[item])})` : '';
  fillMiddle(name, OPS.name[item]);
  type.textContent = OPS.type[item];
  const time = OPS.time_ns[item];
  share.textContent = time ? percent(shareOf(time)) : OPS.fate[item] === 'live' ? '–' : OPS.fate[item];
  row.classList.toggle('gone', !time);
  row.title = OPS.became[item];
}

function buildNode(row) {
  row.append(make('span', 'mono dim'), make('span'), make('span', 'mono dim'));
}

function fillNode(row, item) {
  const [id, op, type] = row.children;
  id.textContent = `${'  '.repeat(Math.min(6, NODES.depth[item]))}%${NODES.id[item]}`;
  op.textContent = NODES.op[item];
  type.textContent = NODES.type[item];
  row.classList.toggle('gone', !NODES.kernels[item].length);
  row.title = [NODES.attributes[item], NODES.passes[item].join(', '), NODES.kernels[item].length ? '' : 'nothing to do at run time'].filter(Boolean).join('\n');
}

function buildKernel(row) {
  row.append(make('i', 'swatch'), make('span', 'dim right'), make('span'), make('span', 'right'), make('span', 'right'));
}

function fillKernel(row, item) {
  const [swatch, id, name, time, share] = row.children;
  swatch.style.background = `var(${kernelColour(item)})`;
  id.textContent = String(KERNELS.id[item]);
  name.textContent = KERNELS.name[item];
  time.textContent = duration(perRun(KERNELS.time_ns[item]));
  share.textContent = percent(shareOf(KERNELS.time_ns[item]));
  row.title = [KERNELS.ops[item].join(', '), KERNELS.native[item] ? '' : `reference implementation: ${KERNELS.why_reference[item]}`].filter(Boolean).join('\n');
}
