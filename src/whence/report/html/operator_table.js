// Every operator of the file in a table that sorts and filters.

const HAS_LINES = OPS.line.some(Boolean);
const LARGEST_NS = OPS.time_ns.reduce((most, time) => Math.max(most, time), 1);
const COLUMNS = [
  { title: 'share', number: true, value: (item) => OPS.time_ns[item] },
  { title: 'time/run', number: true, value: (item) => OPS.time_ns[item] },
  { title: 'of peak', number: true, value: (item) => OPS.of_peak[item] },
  { title: 'operator', value: (item) => OPS.name[item] },
  { title: 'type', value: (item) => OPS.type[item] },
  { title: 'module', value: (item) => moduleNames[item] },
  ...(HAS_LINES ? [{ title: 'source line', value: (item) => OPS.line[item] }] : []),
  { title: 'what became of it', value: (item) => OPS.became[item] },
];
const naturally = new Intl.Collator('en', { numeric: true }).compare;

/** As much of the width as most of a column's texts need. */
function room({ value }) {
  const lengths = Array.from({ length: COUNT.operator }, (_, item) => value(item).length).sort((a, b) => a - b);
  return `minmax(0, ${Math.min(38, Math.max(10, lengths[Math.floor(lengths.length * 0.9)] || 0))}fr)`;
}

class OperatorTable {
  constructor(box) {
    this.box = box;
    box.style.setProperty('--columns', `128px 70px 64px ${COLUMNS.slice(3).map(room).join(' ')}`);
    box.setAttribute('aria-rowcount', String(COUNT.operator));
    this.sort = { column: 0, down: true };
    this.list = new WindowedList(box.querySelector('.rows'), {
      rowHeight: 22,
      role: 'row',
      build: (row) => this.build(row),
      fill: (row, item) => this.fill(row, item),
      mark: (row, item) => markRow(row, 'operator', item),
      point: (item) => selection.point('operator', item),
      pick: (item) => selection.togglePin('operator', item),
      empty: 'No operator matches the search.',
    });
    this.headings = COLUMNS.map((column, number) => this.heading(column, number));
    box.querySelector('.headings').replaceChildren(...this.headings);
    // The headings end where the rows do, beside the scroll bar.
    const { box: rows } = this.list;
    new ResizeObserver(() => {
      box.querySelector('.headings').style.paddingRight = `${8 + rows.offsetWidth - rows.clientWidth}px`;
    }).observe(rows);
    this.arrange();
  }

  heading(column, number) {
    const cell = make('div', column.number ? 'right' : '');
    const button = make('button', '', column.title);
    button.type = 'button';
    button.addEventListener('click', () => {
      const again = this.sort.column === number;
      this.sort = { column: number, down: again ? !this.sort.down : Boolean(column.number) };
      this.list.box.scrollTop = 0;
      this.arrange();
    });
    cell.append(button);
    cell.setAttribute('role', 'columnheader');
    return cell;
  }

  /** By the column that is sorted by. A search does not change the order. */
  arrange() {
    const { column, down } = this.sort;
    const { value, number } = COLUMNS[column];
    const sign = down ? -1 : 1;
    this.order = [...OPS.name.keys()].sort((a, b) => sign * (number ? value(a) - value(b) : naturally(value(a), value(b))) || a - b);
    this.headings.forEach((cell, each) => {
      cell.setAttribute('aria-sort', each === column ? (down ? 'descending' : 'ascending') : 'none');
      cell.firstChild.textContent = COLUMNS[each].title + (each === column ? (down ? ' ↓' : ' ↑') : '');
    });
    this.filter();
  }

  build(row) {
    const share = make('div', 'share');
    share.append(make('i'), make('b'));
    row.append(share, make('div', 'right'), make('div', 'right dim'), middle(), make('div', 'dim'), middle(), ...(HAS_LINES ? [middle()] : []), middle());
    for (const [place, cell] of [...row.children].entries()) {
      cell.setAttribute('role', 'gridcell');
      if (place > 3) cell.classList.add('dim');
    }
  }

  fill(row, item) {
    const time = OPS.time_ns[item];
    const [share, duty, peak, name, type, module, ...rest] = row.children;
    share.firstChild.style.setProperty('--part', `${(time / LARGEST_NS) * 100}%`);
    share.firstChild.style.setProperty('--fill', `var(${colourOf(OPS.type[item])})`);
    share.lastChild.textContent = time ? percent(shareOf(time)) : '–';
    duty.textContent = time ? duration(perRun(time)) : '–';
    peak.textContent = OPS.of_peak[item] ? percent(OPS.of_peak[item]) : '';
    peak.title = OPS.bound[item] ? `bound by ${OPS.bound[item]}` : '';
    fillMiddle(name, OPS.name[item]);
    type.textContent = OPS.type[item];
    fillMiddle(module, moduleNames[item]);
    if (HAS_LINES) fillMiddle(rest[0], OPS.line[item]);
    fillMiddle(rest[rest.length - 1], OPS.became[item]);
    row.setAttribute('aria-rowindex', String(row.place + 1));
  }

  show(what) {
    // A row that was pointed at here is in sight; one that was pinned elsewhere is brought there.
    if (what === 'pin' && selection.pin && selection.pin.kind === 'operator') this.list.revealAny(selection.pin.lit.operator);
    this.list.remark();
  }

  filter() {
    this.list.show(this.order.filter((item) => selection.isFound('operator', item)));
  }
}
