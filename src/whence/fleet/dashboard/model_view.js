// One series: its runs, what changed in it, its operators; and one operator with its lineage.
let pressedRow = null;

function openSubject(subject, night, row) {
  pressedRow?.setAttribute('aria-pressed', 'false');
  pressedRow = row;
  row?.setAttribute('aria-pressed', 'true');
  document.getElementById('model').hidden = false;
  document.getElementById('operator').hidden = true;
  document.getElementById('model-title').textContent = describe(subject);
  document.getElementById('model-facts').textContent = [nightWords(subject, night), subject.machine].join(' · ');
  document.getElementById('model-chart').replaceChildren(
    chart(subject.times, subject.changes, night, (other) => openSubject(subject, other, row)));
  document.getElementById('changes').replaceChildren(...subject.changes.map((change) => changeItem(subject, change)));
  const rows = subject.operators.map((operator) => operatorRow(subject, operator, night));
  document.getElementById('operators').replaceChildren(...rows);
  say(nightWords(subject, night));
}

function changeItem(subject, change) {
  const ratio = change.after / change.before;
  const words = `${change.name || 'whole run'}: ${duration(change.before)} → ${duration(change.after)}`;
  const button = element('button', { type: 'button' },
    element('span', { className: ratio > 1 ? 'slower' : 'faster' }, percent(ratio)),
    ` ${words} since ${data.nights[change.night]}, ${subject.versions[change.night] ?? ''} (${(change.confidence * 100).toFixed(1)} % sure)`);
  const operator = subject.operators.find((each) => each.name === change.name);
  if (operator) button.addEventListener('click', () => openOperator(subject, operator, change.night));
  return element('li', {}, button);
}

function operatorRow(subject, operator, night) {
  const base = median(operator.times.slice(0, night));
  const now = operator.times[night];
  const change = base && now !== null ? percent(now / base) : '';
  const row = element('button', { type: 'button', className: 'operator', ariaPressed: 'false', title: operator.name },
    element('span', { className: 'number' }, duration(now)),
    element('span', { className: 'number' }, change),
    element('span', { className: 'type' }, operator.type));
  row.append(sparkline(operator.times), element('span', {}, operator.name));
  row.addEventListener('click', () => openOperator(subject, operator, night, row));
  return row;
}

function openOperator(subject, operator, night, row = null) {
  for (const each of document.querySelectorAll('.operator[aria-pressed="true"]')) each.setAttribute('aria-pressed', 'false');
  row?.setAttribute('aria-pressed', 'true');
  const section = document.getElementById('operator');
  section.hidden = false;
  document.getElementById('operator-title').textContent = operator.name;
  const own = subject.changes.filter((change) => change.name === operator.name);
  document.getElementById('operator-chart').replaceChildren(
    chart(operator.times, own, night, (other) => openOperator(subject, operator, other, row)));
  const facts = [
    ['type', operator.type], ['module', operator.module], ['line', operator.line],
    ['on this night', `${duration(operator.times[night])} in ${subject.versions[night] ?? ''}, ${data.nights[night]}`],
    ['what became of it', operator.became],
    ...operator.kernels.map((kernel) => ['runs in a kernel with', kernel]),
  ];
  document.getElementById('lineage').replaceChildren(
    ...facts.filter(([, fact]) => fact).flatMap(([name, fact]) => [element('dt', {}, name), element('dd', {}, fact)]),
    element('dt', {}, 'ask'), element('dd', {}, element('code', {}, `whence why ${subject.model} '${operator.name}'`)));
  section.scrollIntoView({ block: 'nearest' });
}
