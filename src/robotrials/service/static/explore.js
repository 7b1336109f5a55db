// The explorer's page of one or two episodes: events, safety witnesses and the path, on the player's clock.
import { drawPath } from './explore-path.js';
import { colour, element, go, placeOf, start } from './player.js';

function addEvents(side) {
  const own = side.data.events.map((e) => ({ t: e.t_s, kind: e.kind, text: e.name || e.kind.replaceAll('_', ' ') + (e.count > 1 ? ` × ${e.count}` : ''), who: e.source }));
  const bad = side.data.violations.map((v) => ({ t: v.time_s, kind: 'violation', text: `${v.clause || v.spec_id}: ${v.signal} ${Number(v.value).toPrecision(3)} ${v.unit} ${v.bodies}`, who: 'safety specification' }));
  side.marks = [...own, ...bad].sort((a, b) => a.t - b.t);
  const bar = side.root.querySelector('[data-events]');
  const body = side.root.querySelector('[data-list] tbody');
  for (const mark of side.marks) {
    const button = element('button', { type: 'button', title: `${mark.t.toFixed(2)} s: ${mark.text} (${mark.who})` });
    button.dataset.kind = mark.kind;
    button.setAttribute('aria-label', button.title);
    button.style.left = `${(100 * mark.t) / (side.end || 1)}%`;
    button.addEventListener('click', () => go(mark.t));
    bar.append(button);
    const open = element('button', { type: 'button', textContent: mark.t.toFixed(2) });
    open.addEventListener('click', () => go(mark.t));
    mark.row = element('tr', {}, element('td', { className: 'n' }, open), element('td', { textContent: mark.text }), element('td', { textContent: mark.who }));
    body.append(mark.row);
  }
  if (!side.marks.length) body.append(element('tr', {}, element('td', { colSpan: 3, textContent: 'No event was recorded.' })));
  const facts = side.root.querySelector('[data-facts] tbody');
  for (const [name, value] of Object.entries(side.data.facts)) facts.append(element('tr', {}, element('th', { scope: 'row', textContent: name }), element('td', { textContent: value })));
}

function load(side) {
  addEvents(side);
  const place = side.root.querySelector('[data-path]');
  if (side.data.path && side.data.path.tool.length) side.path = drawPath(place, side.data.path, colour);
  else place.hidden = true;
}

function show(side, now) {
  if (side.path) side.path.at(side.data.time_s ? placeOf(side.data.time_s, now) : 0);
  for (const mark of side.marks) mark.row.classList.toggle('current', Math.abs(mark.t - now) < 0.05);
}

const sides = [...document.querySelectorAll('[data-episode]')].map((root) => ({ root, key: root.dataset.episode }));
start(sides, { onLoad: load, onShow: show });
