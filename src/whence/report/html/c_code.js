// C with a little colour.

const C_WORDS = new Set(('break case char const continue default do double else enum extern float for if inline int int8_t int16_t int32_t int64_t long register restrict '
  + 'return short signed sizeof static struct switch typedef uint8_t uint16_t uint32_t uint64_t union unsigned void volatile while').split(' '));
const C_TOKEN = /(\/\*.*?\*\/|\/\/.*$)|(^\s*#.*$)|([A-Za-z_]\w*)(\s*\()?|(\b\d[\w.]*(?:[eE][+-]?\d+)?\w*)|([^\sA-Za-z_\d/]+|\s+|.)/g;

/** Fills an element with one line of C. A comment in kernel code ends on its line. */
function writeCode(element, line) {
  const parts = [];
  const add = (className, text) => parts.push(className ? make('span', className, text) : document.createTextNode(text));
  for (const [, comment, pragma, word, call, number, other] of line.matchAll(C_TOKEN)) {
    if (comment) add('comment', comment);
    else if (pragma) add('pragma', pragma);
    else if (word) {
      add(C_WORDS.has(word) ? 'word' : call ? 'call' : '', word);
      if (call) add('', call);
    } else if (number) add('number', number);
    else add('', other);
  }
  element.replaceChildren(...parts);
}
