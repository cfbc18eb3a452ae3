// What pages about several profiles have in common: the operators that a search leaves, cells of a treemap, and keys.

const data = JSON.parse(byId('data').textContent);
const MOST_ROWS = 400;

/** The operators with all words of a query in their text, each with its number. */
function matching(query, textOf) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return [...data.operators.entries()].filter(([, operator]) => words.every((word) => textOf(operator).toLowerCase().includes(word)));
}

/** Fills a map with a cell for each weight, largest first. `cellOf(position, hasRoom)` makes one, with a text where there is room. */
function fillMap(map, height, weights, cellOf) {
  const width = Math.max(1, map.clientWidth);
  map.style.height = `${height}px`;
  squarify(weights, 0, 0, width, height).forEach(([x, y, w, h], position) => {
    const cell = cellOf(position, w > 36 && h > 12);
    // Shares of the width, so that the map follows the window.
    Object.assign(cell.style, { left: `${(100 * x) / width}%`, top: `${y}px`, width: `${(100 * w) / width}%`, height: `${h}px` });
    map.append(cell);
  });
}

/** An operator is shown while an element that stands for it is pointed at, and from a click on until the next or Escape. */
function pinning(show) {
  let pinned = -1;
  const pin = (number) => {
    pinned = number;
    show(pinned);
  };
  return {
    follow(element, number) {
      element.addEventListener('pointerenter', () => show(number));
      element.addEventListener('pointerleave', () => show(pinned));
      element.addEventListener('focus', () => show(number));
      element.addEventListener('click', () => pin(pinned === number ? -1 : number));
    },
    letGo: () => pin(-1),
  };
}

/** A letter in the search fills the table anew; `/` goes to it, Escape lets go of what was chosen. */
function listenToSearch(fill, letGo) {
  const search = byId('search');
  search.addEventListener('input', () => fill(search.value));
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      letGo();
    } else if (event.key === '/' && event.target !== search) {
      search.focus();
      event.preventDefault();
    }
  });
}
