// Operators by module, as a tree. The treemap and the graph show it.

const DEEPEST = 24;

/** The tree of modules over some of the operators, in their order. What a module holds alone stands in its place. */
function moduleTree(items) {
  const module = (name, parent) => ({ name, parent, children: new Map(), time: 0, item: -1, residual: false });
  const root = module(DATA.model, null);
  for (const item of items) {
    const parts = OPS.modules[item];
    const path = parts.length > DEEPEST ? [...parts.slice(0, DEEPEST - 1), parts.slice(DEEPEST - 1).join('.')] : parts;
    let node = root;
    for (const part of path) {
      if (!node.children.has(`m${part}`)) node.children.set(`m${part}`, module(part, node));
      node = node.children.get(`m${part}`);
    }
    node.children.set(`o${item}`, { name: lastPart(OPS.name[item]), parent: node, children: null, time: OPS.time_ns[item], item, residual: false });
    for (let each = node; each; each = each.parent) each.time += OPS.time_ns[item];
  }
  settle(root);
  return root;
}

function settle(node) {
  node.children = [...node.children.values()].map((child) => {
    if (!child.children) return child;
    settle(child);
    if (child.children.length > 1) return child;
    const [only] = child.children;
    // A module with one operator is known by its own name, a chain of modules by all of theirs.
    only.name = only.children ? `${child.name}.${only.name}` : child.name;
    only.parent = node;
    return only;
  });
}

function itemsIn(node) {
  const found = [];
  const pending = [node];
  while (pending.length) {
    const each = pending.pop();
    if (each.children) for (const child of each.children) pending.push(child);
    else if (each.item >= 0) found.push(each.item);
  }
  return found.sort((a, b) => a - b);
}

/** The path of a module below the root. */
function pathOf(node) {
  const names = [];
  for (let each = node; each.parent; each = each.parent) names.unshift(each.name);
  return names.join('.') || node.name;
}
