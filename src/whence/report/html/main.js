// Puts the page together.

writeHeading();
const lineage = new Lineage();
const treemap = new Treemap(byId('treemap'));
const timeline = new Timeline(byId('timeline'));
const views = { time: ['tab-time', 'view-time'], graph: ['tab-graph', 'view-graph'], lineage: ['tab-lineage', 'view-lineage'], advice: ['tab-advice', 'view-advice'] };
const graph = new GraphView(byId('graph'));
const roofline = new Roofline(byId('roofline'));
const memory = new MemoryChart(byId('memory'));
writeFindings(() => openView('advice'));
const detail = new Detail();
// The lineage asks the browser where things are, which is quick before the others have changed the page.
for (const [panel, ...inside] of [
  ['view-lineage', lineage],
  ['view-time', new OperatorTable(byId('operators')), treemap, timeline],
  ['view-graph', graph],
  ['view-advice', roofline, memory],
]) {
  for (const view of inside) view.panel = panel;
  selection.views.push(...inside);
}
selection.views.push(detail);
detail.show();

function openView(name) {
  for (const [each, [tab, panel]] of Object.entries(views)) {
    const open = each === name;
    byId(panel).hidden = !open;
    byId(tab).setAttribute('aria-selected', String(open));
    byId(tab).tabIndex = open ? 0 : -1;
  }
  selection.catchUp();
  if (name === 'lineage') lineage.redraw();
  if (name === 'graph') graph.open();
}

function setQuery(text) {
  byId('search').value = text;
  selection.filter(text.trim());
}

for (const [name, [tab]] of Object.entries(views)) {
  byId(tab).addEventListener('click', () => openView(name));
  byId(tab).addEventListener('keydown', (event) => {
    if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
    const order = Object.keys(views);
    const step = event.key === 'ArrowLeft' ? -1 : 1;
    const other = order[(order.indexOf(name) + step + order.length) % order.length];
    openView(other);
    byId(views[other][0]).focus();
  });
}
byId('search').addEventListener('input', () => selection.filter(byId('search').value.trim()));
byId('pinned').addEventListener('click', () => selection.release());
document.addEventListener('click', (event) => {
  for (const box of document.querySelectorAll('details.more')) if (!box.contains(event.target)) box.open = false;
});
document.addEventListener('keydown', (event) => {
  const typing = event.target === byId('search');
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape') {
    // The nearest thing that can be taken back.
    const opened = document.querySelectorAll('details.more[open]');
    if (opened.length) for (const box of opened) box.open = false;
    else if (selection.query) setQuery('');
    else if (selection.pin) selection.release();
    else treemap.out();
    if (typing) byId('search').blur();
  } else if (typing) return;
  else if (event.key === '/') byId('search').focus();
  else if (Object.keys(views)[Number(event.key) - 1]) openView(Object.keys(views)[Number(event.key) - 1]);
  else return;
  event.preventDefault();
});
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  treemap.draw();
  graph.redraw();
  timeline.draw();
  roofline.draw();
  memory.draw();
});
