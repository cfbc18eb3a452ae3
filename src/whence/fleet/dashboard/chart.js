// Time over nights as a line.
const WIDTH = 1000;
const HEIGHT = 150;

function chart(times, changes, picked, pick) {
  const svg = drawing('svg', { class: 'chart', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': 'time by night' });
  const most = Math.max(1, ...times.filter((time) => time !== null)) * 1.1;
  const x = (night) => 60 + (WIDTH - 70) * (night + 0.5) / times.length;
  const y = (time) => HEIGHT - 18 - (HEIGHT - 30) * time / most;
  for (const part of [0, 0.5, 1]) {
    svg.append(drawing('line', { class: 'grid', x1: 60, x2: WIDTH - 10, y1: y(most * part), y2: y(most * part) }));
    svg.append(drawing('text', { x: 54, y: y(most * part) + 4, 'text-anchor': 'end' }, duration(most * part)));
  }
  for (const night of [0, times.length - 1]) {
    svg.append(drawing('text', { x: x(night), y: HEIGHT - 4, 'text-anchor': night ? 'end' : 'start' }, data.nights[night]));
  }
  for (const change of changes) svg.append(drawing('line', { class: 'change', x1: x(change.night), x2: x(change.night), y1: 8, y2: HEIGHT - 18 }));
  svg.append(drawing('line', { class: 'picked', x1: x(picked), x2: x(picked), y1: 8, y2: HEIGHT - 18 }));
  svg.append(drawing('path', { class: 'line', d: path(times, x, y) }));
  svg.addEventListener('click', (event) => {
    const place = (event.clientX - svg.getBoundingClientRect().left) / svg.getBoundingClientRect().width * WIDTH;
    pick(Math.max(0, Math.min(times.length - 1, Math.floor((place - 60) / (WIDTH - 70) * times.length))));
  });
  return svg;
}

// Nights that were not measured leave a gap.
function path(times, x, y) {
  let text = '';
  let broken = true;
  times.forEach((time, night) => {
    if (time === null) { broken = true; return; }
    text += `${broken ? 'M' : 'L'}${x(night).toFixed(1)} ${y(time).toFixed(1)}`;
    broken = false;
  });
  return text;
}

function sparkline(times) {
  const svg = drawing('svg', { viewBox: '0 0 120 16', 'aria-hidden': 'true' });
  const most = Math.max(1, ...times.filter((time) => time !== null));
  svg.append(drawing('path', { d: path(times, (night) => 120 * (night + 0.5) / times.length, (time) => 15 - 14 * time / most) }));
  return svg;
}
