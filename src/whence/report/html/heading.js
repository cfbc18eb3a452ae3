// The heading: what was measured, that it adds up, and what became of the operators. And the line at the bottom about what is pointed at.

const FATE_COLOUR = { live: '--type-0', folded: '--type-2', removed: '--type-other', dead: '--type-3', lost: '--accent' };
const SUM_COLOUR = ['--type-0', '--type-1', '--type-3'];
const ALWAYS = ['kernels', 'dispatch', 'idle'];

function stackedBar(bar, parts) {
  const whole = parts.reduce((sum, part) => sum + part.size, 0);
  for (const { size, colour } of parts) {
    if (!size) continue;
    const piece = make('i');
    piece.style.flex = `${size / whole} 1 0`;
    piece.style.background = `var(${colour})`;
    bar.append(piece);
  }
}

function writeHeading() {
  byId('model').textContent = DATA.model;
  byId('model').title = DATA.model;
  const shapes = DATA.environment.filter(([name]) => name.startsWith('input ')).map(([name, fact]) => `${name.slice(6)} ${fact}`);
  byId('facts').textContent = [
    ...shapes.slice(0, 2), DATA.engine, ...(DATA.threads ? [counted(DATA.threads, 'thread')] : []), counted(DATA.runs, 'run'), `profiling cost ${DATA.profiling_cost}`, ...(DATA.throughput ? [DATA.throughput] : []),
  ].join(' · ');
  byId('facts').title = byId('facts').textContent;
  byId('per-run').textContent = `${duration(perRun(DATA.wall_ns))} per run`;
  const [low, , high] = DATA.band_ns;
  byId('spread').textContent = high ? `half of the runs ${range(low, high)}` : '';
  const [least, half, most, nearlyAll] = DATA.distribution_ns;
  byId('spread').title = `A quarter of the runs was faster, a quarter slower. Shortest ${duration(least)}, p50 ${duration(half)}, p90 ${duration(most)}, p99 ${duration(nearlyAll)}.`;
  const shown = DATA.sum.filter(([name, , tenths]) => tenths || ALWAYS.includes(name));
  const whole = DATA.sum.reduce((sum, [, , tenths]) => sum + tenths, 0);
  byId('sum').textContent = `${shown.map(([name, , tenths]) => `${name} ${(tenths / 10).toFixed(1)} %`).join(' + ')} = ${Math.floor(whole / 10)} %`;
  byId('sum').title = byId('sum').textContent;
  stackedBar(byId('sum-bar'), DATA.sum.map(([, time], place) => ({ size: time, colour: SUM_COLOUR[place] || '--type-other' })));
  byId('fates').textContent = `${counted(DATA.source_ops, 'operator')}: ${DATA.fates.map(([name, count]) => `${count.toLocaleString('en')} ${name}`).join(', ')}`;
  byId('fates').title = byId('fates').textContent;
  stackedBar(byId('fates-bar'), DATA.fates.map(([name, count]) => ({ size: count, colour: FATE_COLOUR[name] })));
  byId('environment').hidden = !DATA.environment.length;
  byId('environment-facts').replaceChildren(...DATA.environment.flatMap(([name, fact]) => [make('dt', '', name), make('dd', '', fact)]));
  byId('policy-short').textContent = DATA.policy_short;
  byId('policy-text').textContent = DATA.policy;
  byId('policy-notes').replaceChildren(...DATA.notes.map((note) => make('li', '', note)));
}

/** About one item, or several: a title and what there is to say. */
function describe(chosen) {
  const item = chosen.items[0];
  if (chosen.items.length > 1) {
    const time = chosen.items.reduce((sum, each) => sum + OPS.time_ns[each], 0);
    return [chosen.name, [counted(chosen.items.length, 'operator'), `${duration(perRun(time))} per run`, percent(shareOf(time))]];
  }
  if (chosen.kind === 'operator') {
    const time = OPS.time_ns[item];
    const inserted = OPS.inserted_ns[item] * 20 > time && time > 0 ? `${percent(OPS.inserted_ns[item] / time)} of it layout changes` : '';
    return [OPS.name[item], [OPS.type[item], ...(time ? [`${duration(perRun(time))} per run`, percent(shareOf(time))] : ['no time of its own']), inserted, OPS.became[item],
      moduleNames[item], OPS.line[item]].filter(Boolean)];
  }
  if (chosen.kind === 'node') {
    const passes = NODES.passes[item].length ? `by ${NODES.passes[item].join(', ')}` : 'as in the file';
    return [`%${NODES.id[item]} ${NODES.op[item]}`, [NODES.type[item], NODES.attributes[item], `from ${counted(NODES.origin[item].length, 'operator')}`, passes].filter(Boolean)];
  }
  const calls = DATA.runs ? KERNELS.calls[item] / DATA.runs : 0;
  return [`kernel ${KERNELS.id[item]} ${KERNELS.name[item]}`, [
    `${duration(perRun(KERNELS.time_ns[item]))} per run`, percent(shareOf(KERNELS.time_ns[item])), `${duration(KERNELS.min_ns[item])} at best`,
    KERNELS.waited_ns[item] * 20 > KERNELS.time_ns[item] ? `${percent(KERNELS.waited_ns[item] / KERNELS.time_ns[item])} of it waiting for threads` : '',
    KERNELS.of_peak[item] ? `${percent(KERNELS.of_peak[item])} of peak, ${KERNELS.bound[item]}` : '',
    KERNELS.executed_part[item] && Math.abs(KERNELS.executed_part[item] - 1) > 0.05
      ? `executes ${percent(KERNELS.executed_part[item])} of the operations that its operators define` : '',
    calls > 1 ? `${calls.toFixed(calls % 1 ? 1 : 0)} calls per run` : '', KERNELS.ops[item].join(', '),
    KERNELS.native[item] ? '' : `reference implementation: ${KERNELS.why_reference[item] || 'no native kernel'}`,
    KERNELS.inserted[item] ? 'a layout change, charged to the operators that caused it' : '',
  ].filter(Boolean)];
}

class Detail {
  show() {
    const line = byId('detail');
    line.replaceChildren();
    if (selection.active) {
      const [title, facts] = describe(selection.active);
      line.append(make('b', '', title), make('span', '', `  ·  ${facts.join('  ·  ')}`));
    } else {
      line.append(make('span', '', 'Point at anything to see what belongs to it; click to keep it.'));
    }
    const pinned = byId('pinned');
    pinned.hidden = !selection.pin;
    if (selection.pin) pinned.replaceChildren(make('span', '', describe(selection.pin)[0]), '✕');
  }

  filter() {
    const found = selection.found;
    if (!found) {
      byId('found').textContent = '';
      return;
    }
    const time = OPS.time_ns.reduce((sum, each, item) => sum + (found.operator.has(item) ? each : 0), 0);
    byId('found').textContent = `${found.operator.size.toLocaleString('en')} of ${counted(COUNT.operator, 'operator')} · ${percent(shareOf(time))} of the time`;
  }
}

// ---- the note beside the pointer, over drawings ----

function showTip(event, title, facts) {
  const tip = byId('tip');
  tip.replaceChildren(make('b', '', title), ...facts.map((fact) => make('span', '', fact)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, window.innerWidth - width - 8);
  const y = event.clientY + 18 + height > window.innerHeight ? event.clientY - height - 10 : event.clientY + 18;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${Math.max(4, y)}px`;
}

function hideTip() {
  byId('tip').hidden = true;
}
