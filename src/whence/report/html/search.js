// What a search leaves. Words must all occur; `type:Conv` asks one field, quotes keep spaces.

const FIELDS = ['name', 'type', 'module', 'line', 'fate', 'became'];
const moduleNames = OPS.modules.map((parts) => parts.join('.'));
/** By field: the text of each operator, in small letters. */
const FIELD = Object.fromEntries(FIELDS.map((field) => [field, (field === 'module' ? moduleNames : OPS[field]).map((text) => text.toLowerCase())]));
const HAYSTACK = {
  operator: OPS.name.map((_, item) => FIELDS.map((field) => FIELD[field][item]).join('\n')),
  node: NODES.id.map((id, item) => `%${id} ${NODES.op[item]} ${NODES.type[item]} ${NODES.attributes[item]} ${NODES.passes[item].join(' ')}`.toLowerCase()),
  kernel: KERNELS.id.map((id, item) => `kernel ${id} ${KERNELS.name[item]} ${KERNELS.ops[item].join(' ')} ${KERNELS.why_reference[item]}`.toLowerCase()),
};

function parseQuery(text) {
  const terms = [];
  for (const [, field, quoted, plain] of text.toLowerCase().matchAll(/(?:([a-z]+):)?(?:"([^"]*)"|(\S+))/g)) {
    const word = quoted !== undefined ? quoted : plain;
    if (field && FIELDS.includes(field)) terms.push({ field, word, whole: quoted !== undefined });
    else terms.push({ field: '', word: field ? `${field}:${word}` : word, whole: false });
  }
  return terms;
}

function matches(kind, item, terms) {
  return terms.every(({ field, word, whole }) => {
    if (!field) return HAYSTACK[kind][item].includes(word);
    if (kind !== 'operator') return false;
    const value = FIELD[field][item];
    return whole ? value === word : value.includes(word);
  });
}

/** By kind: the set of items that the query leaves, or null when there is no query.
 *
 * Operators are those that match, or, when none does, the relatives of what matches. Nodes and kernels are those that match and the relatives of the operators. */
function search(text) {
  const terms = parseQuery(text);
  if (!terms.length) return null;
  const direct = {};
  for (const kind of KINDS) {
    direct[kind] = [];
    for (let item = 0; item < COUNT[kind]; item += 1) if (matches(kind, item, terms)) direct[kind].push(item);
  }
  let operators = direct.operator;
  if (!operators.length) {
    operators = [...new Set([...relatives('node', direct.node).operator, ...relatives('kernel', direct.kernel).operator])];
  }
  const found = addRelatives('operator', operators, Object.fromEntries(KINDS.map((kind) => [kind, new ItemSet(COUNT[kind])])));
  for (const kind of ['node', 'kernel']) direct[kind].forEach((item) => found[kind].add(item));
  return found;
}
