// A list that has elements only for the rows in sight, however long it is.

const SPARE = 3;

class WindowedList {
  /** `fill(row, item)` shows an item in a row that `build(row)` once prepared; `mark(row, item)` says whether it is lit. Rows all have one height. */
  constructor(box, { rowHeight, build, fill, mark = null, role = 'option', point = null, pick = null, scrolled = null, empty = 'Nothing here.' }) {
    Object.assign(this, { box, rowHeight, build, fill, mark, role, point, pick, scrolled });
    this.items = [];
    this.rows = [];
    this.at = -1;
    this.extent = make('div', 'extent');
    this.message = make('p', 'empty', empty);
    this.message.hidden = true;
    box.append(this.extent, this.message);
    if (role === 'option') box.setAttribute('role', 'listbox');
    else if (role === 'row') box.setAttribute('role', 'rowgroup');
    box.addEventListener('scroll', () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(box);
    if (point) {
      box.addEventListener('mousemove', (event) => this.reach(event, point));
      box.addEventListener('mouseleave', () => point(-1));
      box.addEventListener('blur', () => point(-1));
    }
    if (pick) box.addEventListener('click', (event) => this.reach(event, pick));
    box.addEventListener('keydown', (event) => this.key(event));
  }

  reach(event, action) {
    const row = event.target.closest('.row');
    if (row && row.item !== undefined) {
      this.at = row.place;
      action(row.item);
    }
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.rowHeight) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.items.length, End: this.items.length };
    if (event.key in steps && this.items.length && this.point) {
      event.preventDefault();
      this.at = Math.min(this.items.length - 1, Math.max(0, this.at + steps[event.key]));
      this.reveal(this.at);
      this.draw();
      this.point(this.items[this.at]);
      const row = this.rows.find((each) => !each.hidden && each.place === this.at);
      if (row) this.box.setAttribute('aria-activedescendant', row.id);
    } else if ((event.key === 'Enter' || event.key === ' ') && this.pick && this.at >= 0 && this.at < this.items.length) {
      event.preventDefault();
      this.pick(this.items[this.at]);
    }
  }

  show(items) {
    this.items = items;
    this.placeOf = new Map(items.map((item, place) => [item, place]));
    this.at = -1;
    this.message.hidden = items.length > 0;
    this.extent.style.height = `${items.length * this.rowHeight}px`;
    if (this.box.scrollTop > items.length * this.rowHeight) this.box.scrollTop = 0;
    this.draw();
  }

  /** Brings row `place` into sight. */
  reveal(place) {
    const top = place * this.rowHeight;
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop) this.box.scrollTop = top;
    else if (top + this.rowHeight > scrollTop + clientHeight) this.box.scrollTop = top + this.rowHeight - clientHeight;
  }

  /** Brings one of a set of items into sight, unless one is already. */
  revealAny(set) {
    const places = [...set].map((item) => this.placeOf.get(item)).filter((place) => place !== undefined);
    if (!places.length || !this.box.clientHeight) return;
    const { scrollTop, clientHeight } = this.box;
    const inSight = places.some((place) => place * this.rowHeight >= scrollTop && (place + 1) * this.rowHeight <= scrollTop + clientHeight);
    if (inSight) return;
    const first = places.reduce((least, place) => Math.min(least, place));
    this.box.scrollTop = Math.max(0, first * this.rowHeight - Math.max(0, clientHeight / 3 - this.rowHeight));
    this.draw();
  }

  /** The middle of an item's row, from the top of the box; null when the list does not have it. */
  heightOf(item) {
    const place = this.placeOf.get(item);
    return place === undefined ? null : place * this.rowHeight - this.box.scrollTop + this.rowHeight / 2;
  }

  /** Marks the rows anew. Reads nothing that would make the browser lay the page out. */
  remark() {
    for (const row of this.rows) if (!row.hidden) this.mark(row, row.item);
  }

  draw() {
    const height = this.box.clientHeight;
    if (!height) return;
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.rowHeight) - SPARE);
    const last = Math.min(this.items.length, Math.ceil((this.box.scrollTop + height) / this.rowHeight) + SPARE);
    while (this.rows.length < last - first) {
      const row = make('div', 'row');
      row.setAttribute('role', this.role);
      row.id = `${this.box.id}-${this.rows.length}`;
      this.build(row);
      this.rows.push(row);
      this.extent.append(row);
    }
    this.rows.forEach((row, number) => {
      const place = first + number;
      row.hidden = place >= last;
      if (row.hidden) return;
      row.place = place;
      row.item = this.items[place];
      if (this.role === 'option') {
        row.setAttribute('aria-posinset', String(place + 1));
        row.setAttribute('aria-setsize', String(this.items.length));
      }
      row.style.transform = `translateY(${place * this.rowHeight}px)`;
      this.fill(row, row.item);
      if (this.mark) this.mark(row, row.item);
    });
    if (this.scrolled) this.scrolled();
  }
}

/** Marks a row as lit, pointed at or pinned. */
function markRow(row, kind, item) {
  row.classList.toggle('lit', selection.isLit(kind, item));
  row.classList.toggle('here', selection.isHere(kind, item));
  row.classList.toggle('pinned', selection.isPinned(kind, item));
  row.setAttribute('aria-selected', selection.isPinned(kind, item) ? 'true' : 'false');
}
