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
    const upToTau = (values, end) => [0, ...values, end];
    const last = (values) => (values.length ? values[values.length - 1] : 0);
    const series = [{ label: 's', value: (u, v) => (v === null ? '' : v.toFixed(2)) }, { label: 'chance', stroke: colour('--s5'), width: 2, paths: stepped, points: { show: curve.times.length < 2 }, value: (u, v) => (v === null ? '–' : v.toFixed(3)) }];
    const data = [upToTau(curve.times, Math.max(curve.tau_s, last(curve.times))), upToTau(curve.chance, last(curve.chance))];
    if (hasBand) {
      for (const [label, values] of [['low', curve.low], ['high', curve.high]]) {
        series.push({ label, stroke: colour('--s2'), width: 1, paths: stepped, points: { show: false }, value: (u, v) => (v === null ? '–' : v.toFixed(3)) });
        data.push(upToTau(values, last(values)));
      }
    }
    const plot = new uPlot({
      width: Math.max(200, box.clientWidth - 18), height: 240, cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false, range: (u, low, high) => [0, high || 1] }, y: { range: [0, 1] } },
      axes: [{ ...axis, size: 30 }, { ...axis, size: 44 }], series,
      bands: hasBand ? [{ series: [3, 2], fill: colour('--s1') }] : [],
    }, data, box);
    new ResizeObserver(() => plot.setSize({ width: Math.max(200, box.clientWidth - 18), height: 240 })).observe(place);
  }
  document.documentElement.dataset.drawn = 'yes';
}

function redrawCurves() {
  const place = document.querySelector('[data-curve-plots]');
  if (place) place.replaceChildren();
  drawCurves();
}

drawCurves();
document.addEventListener('htmx:afterSettle', drawCurves);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawCurves);
document.addEventListener('click', (event) => {
  if (event.target.closest && event.target.closest('[data-theme-switch]')) redrawCurves();
});
// The list of cells is loaded again only when it is no longer the one that is shown.
document.addEventListener('htmx:beforeRequest', (event) => {
  if (event.detail.elt.dataset.cells === undefined) return;
  const shown = [...document.querySelectorAll('[data-cell]')].map((cell) => cell.dataset.cell).sort().join(' ');
  const trigger = event.detail.requestConfig && event.detail.requestConfig.triggeringEvent;
  const told = trigger && trigger.detail && trigger.detail.data;
  if (told === shown) event.preventDefault();
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
