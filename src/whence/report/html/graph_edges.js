// The edges of the graph: between which boxes, and along which way.

/** Numbers the tree's nodes in the order of the file and gives each module the links between its children. */
function linkTree(tree) {
  const home = new Map();
  const visit = (node, depth) => {
    node.depth = depth;
    node.links = [];
    node.open = false;
    if (node.children) {
      for (const child of node.children) visit(child, depth + 1);
      node.order = node.children.reduce((least, child) => Math.min(least, child.order), Infinity);
      node.count = node.children.reduce((sum, child) => sum + child.count, 0);
    } else {
      home.set(node.item, node);
      [node.order, node.count] = [node.item, 1];
    }
  };
  visit(tree, 0);
  const edges = [];
  const known = new Map();
  OPS.operands.forEach((sources, item) => sources.forEach((source) => {
    let [from, to] = [home.get(source), home.get(item)];
    const edge = { from, to, link: null };
    while (from.depth > to.depth) from = from.parent;
    while (to.depth > from.depth) to = to.parent;
    while (from.parent !== to.parent) [from, to] = [from.parent, to.parent];
    if (!known.has(from)) known.set(from, new Map());
    if (!known.get(from).has(to)) {
      const link = { from, to, via: [], points: [] };
      known.get(from).set(to, link);
      from.parent.links.push(link);
    }
    edge.link = known.get(from).get(to);
    edges.push(edge);
  }));
  return { home, edges };
}

/** The way of an edge over the drawing, between two boxes that are shown. */
function routeOf(edge, from, to) {
  const { link } = edge;
  const { atX, atY } = link.from.parent;
  const points = [[from.atX + from.w / 2, from.atY + from.h], ...link.points.map(([x, y]) => [atX + x, atY + y]), [to.atX + to.w / 2, to.atY]];
  const path = [points[0]];
  for (let place = 1; place < points.length; place += 1) {
    const [[x, y], [a, b]] = [points[place - 1], points[place]];
    if (b < y) {
      // Into the next column, or back: down, along the space before the column, and up.
      const between = atX + link.to.column - GAP.column / 2;
      const foot = Math.max(y, place === 1 ? link.from.atY + link.from.h : y) + GAP.y / 3;
      const head = Math.min(b, place === points.length - 1 ? link.to.atY : b) - GAP.y / 3;
      path.push([x, foot], [between, foot], [between, head], [a, head]);
    }
    path.push(points[place]);
  }
  return path;
}

/** Draws a way with rounded turns. */
function trace(pen, path) {
  pen.moveTo(...path[0]);
  for (let place = 1; place < path.length; place += 1) {
    const [[x, y], [a, b]] = [path[place - 1], path[place]];
    const straight = Math.abs(x - a) < 1 || Math.abs(y - b) < 1;
    if (straight) pen.lineTo(a, b);
    else pen.bezierCurveTo(x, (y + b) / 2, a, (y + b) / 2, a, b);
  }
}

/** Draws a path with straight lines: from afar nobody sees the difference, and it is quicker. */
function follow(pen, path) {
  pen.moveTo(path[0][0], path[0][1]);
  for (let place = 1; place < path.length; place += 1) pen.lineTo(path[place][0], path[place][1]);
}
