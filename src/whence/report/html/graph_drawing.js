// Draws the graph: modules, outlines of kernels, edges, boxes, text. Only what is in sight, and text only where it can be read.

const HEATS = 24;
const LEGIBLE = 0.3;

/** The edges between boxes that are shown, each once, and the way of each. */
function routesBetween(graph) {
  const known = new Map();
  const found = [];
  for (const edge of graph.edges) {
    const [from, to] = [graph.shownFor(edge.from.item), graph.shownFor(edge.to.item)];
    if (from === to) continue;
    const key = from.place * graph.boxes.length + to.place;
    if (known.has(key)) continue;
    const path = routeOf(edge, from, to);
    const [xs, ys] = [path.map(([x]) => x), path.map(([, y]) => y)];
    const route = { from, to, path, left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
    known.set(key, route);
    found.push(route);
  }
  return found;
}

/** What runs as one kernel: boxes that share one with another that is shown, and the edges between such. */
function regionsOf(graph) {
  const kernels = new Map(graph.boxes.map((box) => [box, kernelsOf(box)]));
  const members = new Map();
  for (const listed of kernels.values()) for (const kernel of listed) members.set(kernel, (members.get(kernel) || 0) + 1);
  const several = (kernel) => members.get(kernel) > 1;
  const boxes = graph.boxes.filter((box) => kernels.get(box).some(several));
  return {
    boxes,
    routes: graph.routes.filter(({ from, to }) => kernels.get(from).some((kernel) => several(kernel) && kernels.get(to).includes(kernel))),
    count: new Set(boxes.flatMap((box) => kernels.get(box).filter(several))).size,
  };
}

/** The kernels that a box belongs to; a closed module to those that all its operators belong to. */
function kernelsOf(box) {
  if (box.item >= 0) return OPS.kernels[box.item];
  const [first, ...others] = itemsIn(box);
  return OPS.kernels[first].filter((kernel) => others.every((item) => OPS.kernels[item].includes(kernel)));
}

/** Draws what is in sight. */
function drawGraph(graph) {
  const [width, height] = graph.size;
  if (width && height) paintGraph(graph, graph.drawing, graph.view, width, height);
}

/** While it is dragged, the graph is copied from a picture that reaches beyond the window by half of it on each side, as far as there is a graph. */
function slideGraph(graph) {
  const [width, height] = graph.size;
  const { x, y, scale } = graph.view;
  if (!width || !height) return;
  const end = [x + graph.tree.w * scale, y + graph.tree.h * scale];
  const within = (margin) => [Math.max(x, -margin * width), Math.max(y, -margin * height), Math.min(end[0], (1 + margin) * width), Math.min(end[1], (1 + margin) * height)];
  const [left, top, right, bottom] = within(0);
  let { slide } = graph;
  const covers = slide && left - x >= slide.left - 0.5 && top - y >= slide.top - 0.5 && right - x <= slide.left + slide.width + 0.5 && bottom - y <= slide.top + slide.height + 0.5;
  if (!covers) {
    const [l, t, r, b] = within(0.5);
    const drawing = slide ? slide.drawing : new HighlightedDrawing(make('canvas'));
    slide = { drawing, left: l - x, top: t - y, width: Math.max(1, r - l), height: Math.max(1, b - t) };
    paintGraph(graph, drawing, { x: -slide.left, y: -slide.top, scale }, slide.width, slide.height);
    graph.slide = slide;
  }
  sharpPen(graph.canvas, width, height).drawImage(slide.drawing.canvas, x + slide.left, y + slide.top, slide.width, slide.height);
}

function paintGraph(graph, drawing, { x, y, scale }, width, height) {
  const paint = palette();
  const ratio = window.devicePixelRatio || 1;
  const sight = { left: -x / scale, right: (width - x) / scale, top: -y / scale, bottom: (height - y) / scale };
  const boxSeen = ({ atX, atY, w, h }) => atX < sight.right && atX + w > sight.left && atY < sight.bottom && atY + h > sight.top;
  const place = (pen) => {
    pen.setTransform(scale * ratio, 0, 0, scale * ratio, x * ratio, y * ratio);
    pen.textBaseline = 'middle';
  };
  drawing.draw(
    [width, height],
    (pen) => {
      place(pen);
      drawBehind(pen, paint, graph, scale, sight, boxSeen);
    },
    (pen) => {
      place(pen);
      const boxes = graph.boxes.filter(boxSeen);
      drawBoxes(pen, paint, graph, boxes);
      // With its frame.
      return boxes.map((box) => ({ box, x: box.atX * scale + x - 1, y: box.atY * scale + y - 1, w: box.w * scale + 2, h: box.h * scale + 2 }));
    },
  );
  drawing.show(foundBySearch());
}

/** Which boxes a search finds; null where there is none. */
function foundBySearch() {
  return selection.found && (({ box }) => isFoundBox(box));
}

/** All but the boxes. */
function drawBehind(pen, paint, graph, scale, sight, boxSeen) {
  const routeSeen = (route) => route.left < sight.right && route.right > sight.left && route.top < sight.bottom && route.bottom > sight.top;
  drawModules(pen, paint, graph, graph.modules.filter(boxSeen));
  drawRegions(pen, paint, scale, graph.regions.boxes.filter(boxSeen), graph.regions.routes.filter(routeSeen));
  pen.strokeStyle = paint('--edge');
  pen.lineWidth = Math.min(3, Math.max(1, 0.7 / scale));
  pen.beginPath();
  for (const { path, top, bottom } of graph.routes.filter(routeSeen)) {
    if ((bottom - top) * scale < 1.5) continue;
    if (scale > READABLE / 2) trace(pen, path);
    else follow(pen, path);
  }
  pen.stroke();
}

function drawModules(pen, paint, graph, modules) {
  const { scale } = graph.view;
  for (const module of modules) {
    if (module === graph.tree) continue;
    const { atX, atY, w, h } = module;
    pen.fillStyle = paint(module.depth % 2 ? '--paper' : '--sunk');
    pen.fillRect(atX, atY, w, h);
    pen.strokeStyle = paint('--rule');
    pen.lineWidth = Math.min(4, 1 / scale);
    pen.strokeRect(atX, atY, w, h);
    // A heading may be larger than its boxes' text: it names what is seen from afar.
    const size = Math.min(HEAD - 6, w / 8) * scale;
    if (size < 6) continue;
    pen.font = `600 ${Math.min(13, w / 8)}px ${paint('--sans')}`;
    pen.fillStyle = paint('--ink');
    pen.fillText(labelOf(pen, graph, module, 'title', `▾ ${module.name}  ${percent(shareOf(module.time))}`, w - 16), atX + 8, atY + HEAD / 2 + 1);
  }
}

/** Operators of one kernel lie in one outlined shape: their boxes, made larger, and broad bands along the edges between them. */
function drawRegions(pen, paint, scale, boxes, routes) {
  if (scale < TRACED / 2) return;
  const line = Math.min(6, 1.2 / scale);
  pen.lineJoin = 'round';
  for (const [colour, more] of [['--region-line', line], ['--region', 0]]) {
    pen.fillStyle = pen.strokeStyle = paint(colour);
    pen.beginPath();
    for (const { atX, atY, w, h } of boxes) {
      const corner = [atX - 6 - more, atY - 6 - more, w + 12 + 2 * more, h + 12 + 2 * more];
      if (scale < READABLE) pen.rect(...corner);
      else pen.roundRect(...corner, 8 + more);
    }
    pen.fill();
    pen.lineWidth = 22 + 2 * more;
    pen.beginPath();
    for (const { path } of routes) {
      if (scale < READABLE) follow(pen, path);
      else trace(pen, path);
    }
    pen.stroke();
  }
}

/** Draws many boxes with few strokes of the pen: those of one colour together. */
function drawBoxes(pen, paint, graph, boxes) {
  const { scale } = graph.view;
  const groups = new Map();
  for (const box of boxes) {
    const heat = Math.ceil(Math.sqrt(box.time / graph.hottest) * HEATS);
    if (!groups.has(heat)) groups.set(heat, []);
    groups.get(heat).push(box);
  }
  for (const [heat, members] of groups) {
    pen.beginPath();
    for (const { atX, atY, w, h } of members) pen.rect(atX, atY, w, h);
    pen.fillStyle = paint(heat ? '--panel' : '--sunk');
    pen.fill();
    pen.globalAlpha = heat / HEATS;
    pen.fillStyle = paint('--heat');
    if (heat) pen.fill();
    pen.globalAlpha = 1;
    if (scale < TRACED) continue;
    for (const [colour, width, frames] of [['--faint', 0.8, members.filter(({ item }) => item >= 0)], ['--ink', 1.4, members.filter(({ item }) => item < 0)]]) {
      pen.beginPath();
      for (const { atX, atY, w, h } of frames) pen.rect(atX, atY, w, h);
      pen.strokeStyle = paint(colour);
      pen.lineWidth = Math.min(3, width / scale);
      pen.stroke();
    }
    if (scale >= LEGIBLE) for (const box of members) writeBox(pen, paint, graph, box);
  }
  pen.globalAlpha = 1;
}

function isFoundBox(box) {
  return !selection.found || (box.item >= 0 ? selection.isFound('operator', box.item) : itemsIn(box).some((item) => selection.isFound('operator', item)));
}

function writeBox(pen, paint, graph, box) {
  const { atX, atY, w, h, item, time } = box;
  if (graph.view.scale < READABLE) {
    // From afar one word, as large as the box allows.
    pen.font = `600 21px ${paint('--sans')}`;
    pen.fillStyle = paint(time || item < 0 ? '--ink' : '--soft');
    pen.fillText(labelOf(pen, graph, box, 'large', item >= 0 ? OPS.type[item] : box.name, w - 12), atX + 6, atY + h / 2 + 1);
    return;
  }
  pen.font = `600 12px ${paint('--sans')}`;
  pen.fillStyle = paint(time || item < 0 ? '--ink' : '--soft');
  pen.fillText(labelOf(pen, graph, box, 'title', item >= 0 ? OPS.type[item] : `▸ ${box.name}`, w - 14), atX + 7, atY + 12);
  pen.font = `10.5px ${paint('--sans')}`;
  pen.fillStyle = paint(time ? '--ink' : '--soft');
  const share = time ? percent(shareOf(time)) : item >= 0 ? OPS.fate[item] : '–';
  const shareWidth = pen.measureText(share).width;
  pen.fillText(share, atX + w - 7 - shareWidth, atY + 26);
  pen.fillText(labelOf(pen, graph, box, 'name', item >= 0 ? box.name : counted(box.count, 'operator'), w - 20 - shareWidth), atX + 7, atY + 26);
}

/** Text cut to its room; measured once for each layout. */
function labelOf(pen, graph, box, line, text, room) {
  if (!graph.labels.has(box)) graph.labels.set(box, {});
  const lines = graph.labels.get(box);
  if (lines[line] === undefined) lines[line] = fitted(pen, text, room);
  return lines[line];
}
