// The page: all series, and a search over them and their operators.
const measured = data.subjects.reduce((sum, subject) => sum + subject.status.filter((status) => status === 'done').length, 0);
const changed = data.subjects.reduce((sum, subject) => sum + subject.changes.length, 0);
document.getElementById('facts').textContent =
  `${data.subjects.length} series · ${data.nights.length} nights · ${measured} profiles · ${changed} changes`;

const heat = document.getElementById('heat');
const rows = data.subjects.map((subject) => {
  const row = heatRow(subject, (chosen, night) => openSubject(chosen, night, row.firstChild));
  const words = [describe(subject), subject.machine, ...subject.operators.map((operator) => `${operator.name} ${operator.type} ${operator.module}`)];
  return { subject, row, words: words.join('\n').toLowerCase() };
});
heat.append(...rows.map(({ row }) => row));
document.getElementById('heat-scroll').scrollLeft = data.nights.length * CELL;

const search = document.getElementById('search');
search.addEventListener('input', () => {
  const wanted = search.value.trim().toLowerCase();
  for (const { row, words } of rows) row.hidden = !words.includes(wanted);
});
document.addEventListener('keydown', (event) => {
  if (event.key === '/' && document.activeElement !== search) { event.preventDefault(); search.focus(); }
});

// What changed most comes first, without a click.
const first = rows.find(({ subject }) => subject.changes.length) ?? rows[0];
if (first) openSubject(first.subject, first.subject.changes[0]?.night ?? data.nights.length - 1, first.row.firstChild);
