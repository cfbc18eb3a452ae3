// What is under the pointer or the keyboard, what is pinned, and what the search leaves: shared by all views.

class Selection {
  constructor() {
    this.hover = null;
    this.pin = null;
    this.found = null;
    this.query = '';
    this.views = [];
    this.stale = new Set();
  }

  /** What the views light up: that which is pointed at, else that which is pinned. */
  get active() {
    return this.hover || this.pin;
  }

  /** `items` of one kind, by their positions; `name` when they are more than one. */
  static of(kind, items, name = '') {
    return { kind, items, name, lit: relatives(kind, items) };
  }

  point(kind, item) {
    this.set('hover', kind && item >= 0 ? Selection.of(kind, [item]) : null);
  }

  pointAtModule(items, name) {
    this.set('hover', items.length ? Selection.of('operator', items, name) : null);
  }

  /** Pins an item, or releases it when it is the one that is pinned. */
  togglePin(kind, item) {
    const same = this.pin && this.pin.kind === kind && this.pin.items.length === 1 && this.pin.items[0] === item;
    this.set('pin', same ? null : Selection.of(kind, [item]));
  }

  release() {
    this.set('pin', null);
  }

  set(what, value) {
    const before = this[what];
    const same = before && value && before.kind === value.kind && before.name === value.name && before.items.length === value.items.length &&
      before.items[0] === value.items[0];
    if (same || (!before && !value)) return;
    this[what] = value;
    for (const view of this.views) view.show(what);
  }

  filter(query) {
    this.query = query;
    this.found = search(query);
    this.stale = new Set(this.views);
    this.catchUp();
  }

  /** Shows what the search leaves where it can be seen; views in a closed panel wait until it is opened. */
  catchUp() {
    for (const view of this.stale) {
      if (view.panel && byId(view.panel).hidden) continue;
      this.stale.delete(view);
      view.filter();
    }
  }

  isFound(kind, item) {
    return !this.found || this.found[kind].has(item);
  }

  isLit(kind, item) {
    return Boolean(this.active) && this.active.lit[kind].has(item);
  }

  isHere(kind, item) {
    const active = this.active;
    return Boolean(active) && active.kind === kind && active.items.length === 1 && active.items[0] === item;
  }

  isPinned(kind, item) {
    return Boolean(this.pin) && this.pin.kind === kind && this.pin.items[0] === item;
  }
}

const selection = new Selection();
