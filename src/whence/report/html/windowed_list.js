// A list that has elements only for the rows in sight, however long it is.

const SPARE = 3;

class WindowedList {
  /** `fill(row, item)` shows an item in a row that `build(row)` once prepared; `mark(row, item)` says whether it is lit. Rows all have one height. */
  constructor(box, { rowHeight, build, fill, mark = null, role = 'option', point, pick, scrolled = null, empty }) {
    Object.assign(this, { box, rowHeight, build, fill, mark, role, point, pick, scrolled });
    this.items = [];
    this.places = null;
    this.rows = [];
    this.at = -1;
    // What the browser would have to lay the page out for is asked once, not with every letter of a search.
    this.height = 0;
    this.top = 0;
    this.extent = make('div', 'extent');
    this.message = make('p', 'empty', empty);
    this.message.hidden = true;
    box.append(this.extent, this.message);
    box.setAttribute('role', role === 'option' ? 'listbox' : 'rowgroup');
    box.addEventListener('scroll', () => {
      this.top = box.scrollTop;
      this.draw();
    }, { passive: true });
    new ResizeObserver(() => {
      this.height = box.clientHeight;
      this.draw();
    }).observe(box);
    box.addEventListener('mousemove', (event) => this.reach(event, point));
    box.addEventListener('mouseleave', () => point(-1));
    box.addEventListener('blur', () => point(-1));
    box.addEventListener('click', (event) => this.reach(event, pick));
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
    if (event.key in steps && this.items.length) {
      event.preventDefault();
      this.at = Math.min(this.items.length - 1, Math.max(0, this.at + steps[event.key]));
      this.reveal(this.at);
      this.draw();
      this.point(this.items[this.at]);
      const row = this.rows.find((each) => !each.hidden && each.place === this.at);
      if (row) this.box.setAttribute('aria-activedescendant', row.id);
    } else if ((event.key === 'Enter' || event.key === ' ') && this.at >= 0 && this.at < this.items.length) {
      event.preventDefault();
      this.pick(this.items[this.at]);
    }
  }

  /** `changed`: the same items mean something else than before. */
  show(items, changed = false) {
    this.items = items;
    this.places = null;
    this.at = -1;
    this.message.hidden = items.length > 0;
    this.extent.style.height = `${items.length * this.rowHeight}px`;
    const whole = items.length * this.rowHeight;
    if (this.top > Math.max(0, whole - this.height)) this.scrollTo(this.top > whole ? 0 : whole - this.height);
    if (changed) for (const row of this.rows) row.item = undefined;
    this.draw();
  }

  scrollTo(top) {
    this.box.scrollTop = top;
    this.top = this.box.scrollTop;
  }

  /** The row of an item; undefined when the list does not have it. */
  placeOf(item) {
    this.places ||= new Map(this.items.map((each, place) => [each, place]));
    return this.places.get(item);
  }

  /** Brings row `place` into sight. */
  reveal(place) {
    const top = place * this.rowHeight;
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop) this.scrollTo(top);
    else if (top + this.rowHeight > scrollTop + clientHeight) this.scrollTo(top + this.rowHeight - clientHeight);
  }

  /** Brings one of a set of items into sight, unless one is already. */
  revealAny(set) {
    const places = [...set].map((item) => this.placeOf(item)).filter((place) => place !== undefined);
    if (!places.length || !this.box.clientHeight) return;
    const { scrollTop, clientHeight } = this.box;
    const inSight = places.some((place) => place * this.rowHeight >= scrollTop && (place + 1) * this.rowHeight <= scrollTop + clientHeight);
    if (inSight) return;
    const first = places.reduce((least, place) => Math.min(least, place));
    this.scrollTo(Math.max(0, first * this.rowHeight - Math.max(0, clientHeight / 3 - this.rowHeight)));
    this.draw();
  }

  /** The middle of an item's row, from the top of the box; null when the list does not have it. */
  heightOf(item) {
    const place = this.placeOf(item);
    return place === undefined ? null : place * this.rowHeight - this.box.scrollTop + this.rowHeight / 2;
  }

  /** Marks the rows anew. Reads nothing that would make the browser lay the page out. */
  remark() {
    for (const row of this.rows) if (!row.hidden) this.mark(row, row.item);
  }

  draw() {
    this.height ||= this.box.clientHeight;
    if (!this.height) return;
    const first = Math.max(0, Math.floor(this.top / this.rowHeight) - SPARE);
    const last = Math.min(this.items.length, Math.ceil((this.top + this.height) / this.rowHeight) + SPARE);
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
      if (row.hidden !== place >= last) row.hidden = place >= last;
      if (row.hidden) return;
      const item = this.items[place];
      const same = row.item === item && row.place === place;
      row.place = place;
      row.item = item;
      if (this.role === 'option') {
        row.setAttribute('aria-posinset', String(place + 1));
        row.setAttribute('aria-setsize', String(this.items.length));
      }
      if (!same) {
        row.style.transform = `translateY(${place * this.rowHeight}px)`;
        this.fill(row, item);
      }
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
