// The platform's pages: curves with their bands, sorting and stopping by keyboard, filters that apply at once.
function colours() {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(name).trim();
}

function drawCurves() {
  const place = document.querySelector('[data-curve-plots]');
  const source = document.querySelector('[data-curve-values]');
  if (!place || !source || place.childElementCount) return;
  const colour = colours();
  const axis = { stroke: colour('--soft'), grid: { stroke: colour('--grid'), width: 1 }, ticks: { stroke: colour('--grid'), width: 1 }, font: '11px system-ui, sans-serif' };
  const stepped = uPlot.paths.stepped({ align: 1 });
  for (const curve of JSON.parse(source.textContent)) {
    const box = document.createElement('div');
    box.className = 'plot';
    box.setAttribute('role', 'img');
    box.setAttribute('aria-label', `Chance of success by time, ${curve.title}`);
    const title = document.createElement('h3');
    title.textContent = curve.title;
    box.append(title);
    place.append(box);
    const hasBand = curve.low !== null && curve.high !== null;
    const from = (values) => [0, ...values];
    const series = [{ label: 's', value: (u, v) => (v === null ? '' : v.toFixed(2)) }, { label: 'chance', stroke: colour('--s5'), width: 2, paths: stepped, points: { show: curve.times.length < 2 }, value: (u, v) => (v === null ? '–' : v.toFixed(3)) }];
    const data = [from(curve.times), from(curve.chance)];
    if (hasBand) {
      for (const [label, values] of [['low', curve.low], ['high', curve.high]]) {
        series.push({ label, stroke: colour('--s2'), width: 1, paths: stepped, points: { show: false }, value: (u, v) => (v === null ? '–' : v.toFixed(3)) });
        data.push(from(values));
      }
    }
    new uPlot({
      width: Math.max(200, box.clientWidth - 18), height: 240, cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false, range: (u, low, high) => [0, high || 1] }, y: { range: [0, 1] } },
      axes: [{ ...axis, size: 30 }, { ...axis, size: 44 }], series,
      bands: hasBand ? [{ series: [3, 2], fill: colour('--s1') }] : [],
    }, data, box);
  }
  document.documentElement.dataset.drawn = 'yes';
}

drawCurves();
document.addEventListener('htmx:afterSettle', drawCurves);
// The list of cells is loaded again only when it is no longer the one that is shown.
document.addEventListener('htmx:beforeRequest', (event) => {
  const shown = event.target.dataset && event.target.dataset.cells;
  const trigger = event.detail.requestConfig && event.detail.requestConfig.triggeringEvent;
  const told = trigger && trigger.detail && trigger.detail.data;
  if (shown !== undefined && told !== undefined && told === shown) event.preventDefault();
});
document.addEventListener('change', (event) => {
  if (event.target.matches('[data-submit]')) event.target.form.requestSubmit();
});

function choose(by) {
  const cells = [...document.querySelectorAll('[data-cell]')];
  if (!cells.length) return;
  const at = cells.findIndex((cell) => cell.contains(document.activeElement));
  cells[at < 0 ? (by > 0 ? 0 : cells.length - 1) : (at + by + cells.length) % cells.length].focus();
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.target.closest('input, select, textarea')) return;
  const key = event.key.toLowerCase();
  if (/^[1-9]$/.test(key)) {
    const order = document.querySelectorAll('[data-order]')[Number(key) - 1];
    if (order) order.click();
  } else if (key === 'j' || key === 'k') choose(key === 'j' ? 1 : -1);
  else if (key === 's') {
    const cell = document.activeElement.closest('[data-cell]');
    const button = cell ? cell.querySelector('[data-stop]') : document.querySelector('[data-stop-all]');
    if (button) button.click();
  }
});
