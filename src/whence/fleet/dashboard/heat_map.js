// A row of coloured nights for each series.
const CELL = 7;
const BASE_NIGHTS = 28;

const styles = getComputedStyle(document.documentElement);
const colour = (name) => styles.getPropertyValue(name).trim();

// Each night beside the median of those before it: +1 is twice as slow, -1 twice as fast.
function deviations(times) {
  return times.map((time, night) => {
    if (time === null) return null;
    const base = median(times.slice(Math.max(0, night - BASE_NIGHTS), night));
    return base ? Math.log2(time / base) : 0;
  });
}

function drawNights(canvas, subject) {
  const scale = window.devicePixelRatio || 1;
  const width = data.nights.length * CELL;
  canvas.width = width * scale;
  canvas.height = 16 * scale;
  canvas.style.width = `${width}px`;
  const pen = canvas.getContext('2d');
  pen.scale(scale, scale);
  const off = deviations(subject.times);
  for (let night = 0; night < data.nights.length; night++) {
    const status = subject.status[night];
    pen.globalAlpha = 1;
    pen.fillStyle = colour('--none');
    if (status !== null && status !== 'done') pen.fillStyle = colour('--fail');
    pen.fillRect(night * CELL, 1, CELL - 1, 14);
    if (off[night]) {
      pen.fillStyle = colour(off[night] > 0 ? '--slow' : '--fast');
      pen.globalAlpha = Math.min(1, Math.abs(off[night]) / 0.35);
      pen.fillRect(night * CELL, 1, CELL - 1, 14);
    }
  }
  pen.globalAlpha = 1;
  pen.strokeStyle = colour('--accent');
  pen.lineWidth = 2;
  for (const change of subject.changes) pen.strokeRect(change.night * CELL, 1, CELL - 1, 14);
}

function nightWords(subject, night) {
  const status = subject.status[night];
  const words = [describe(subject), data.nights[night], subject.versions[night] ?? ''];
  if (status === null) words.push('not measured');
  else if (status !== 'done') words.push(`${status}: ${subject.errors[night] ?? ''}`);
  else words.push(duration(subject.times[night]));
  return words.filter(Boolean).join(' · ');
}

function heatRow(subject, open) {
  const button = element('button', { type: 'button', title: describe(subject), ariaPressed: 'false' }, describe(subject));
  const canvas = element('canvas', { role: 'img', ariaLabel: `nights of ${describe(subject)}` });
  const nightAt = (event) => Math.max(0, Math.min(data.nights.length - 1, Math.floor(event.offsetX / CELL)));
  canvas.addEventListener('mousemove', (event) => say(nightWords(subject, nightAt(event))));
  canvas.addEventListener('click', (event) => open(subject, nightAt(event)));
  button.addEventListener('click', () => open(subject, data.nights.length - 1));
  const row = element('div', { className: 'heat-row', role: 'row' }, button, canvas);
  drawNights(canvas, subject);
  return row;
}
