// What could be better: a list by what it would save, and the first of it in the line of the tabs.

function prizeOf(finding) {
  return finding.prize_ns ? `up to ${percent(DATA.unprofiled_ns ? finding.prize_ns / DATA.unprofiled_ns : 0)}` : '';
}

function writeFindings(open) {
  const found = DATA.findings;
  byId('count-findings').textContent = found.length ? counted(found.length, 'finding') : 'nothing stands out';
  byId('findings').replaceChildren(...found.map((finding) => {
    const item = make('li');
    item.tabIndex = 0;
    item.append(make('span', 'prize', prizeOf(finding)), make('b', '', finding.title), ...finding.evidence.map((fact) => make('p', '', fact)), make('p', '', `→ ${finding.advice}`));
    const kernel = finding.kernels.length ? finding.kernels[0] : -1;
    item.addEventListener('pointerenter', () => {
      if (finding.operators.length > 1) selection.pointAtModule(finding.operators, finding.title);
      else if (kernel >= 0) selection.point('kernel', kernel);
    });
    item.addEventListener('pointerleave', () => selection.point(null, -1));
    const pin = () => (kernel >= 0 ? selection.togglePin('kernel', kernel) : undefined);
    item.addEventListener('click', pin);
    item.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') pin();
    });
    return item;
  }));
  const [first] = found.filter((finding) => finding.prize_ns);
  const best = byId('best');
  best.hidden = !first;
  if (first) {
    best.textContent = `${prizeOf(first)}: ${first.title}`;
    best.title = first.advice;
    best.addEventListener('click', open);
  }
}
