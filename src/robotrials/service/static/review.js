// The review of one episode: candidates become marks, which a person confirms, moves, adds or clears. Nothing is saved until asked.
import { element, go, start, timeNow } from './player.js';

const root = document.querySelector('[data-episode]');
const side = { root, key: root.dataset.episode };
const wanted = root.dataset.placed === '' ? null : Number(root.dataset.placed);
const told = root.querySelector('[data-told]');
const KINDS = { '': 'nothing', placement: 'placement', drop_outside: 'drop' };
let chosen = null;

function count() {
  return side.marks.filter((m) => m.kind === 'placement').reduce((sum, m) => sum + m.count, 0);
}

function draw() {
  const bar = root.querySelector('[data-events]');
  const body = root.querySelector('[data-marks]');
  bar.querySelectorAll('button').forEach((b) => b.remove());
  body.replaceChildren();
  side.marks.sort((a, b) => a.t - b.t);
  for (const mark of side.marks) {
    const flag = element('button', { type: 'button', title: `${mark.t.toFixed(2)} s` });
    flag.dataset.kind = mark.kind || 'neutral';
    flag.setAttribute('aria-label', `mark at ${mark.t.toFixed(2)} seconds, ${KINDS[mark.kind]}`);
    flag.style.left = `${(100 * mark.t) / (side.end || 1)}%`;
    flag.addEventListener('click', () => choose(mark));
    bar.append(flag);
    const open = element('button', { type: 'button', textContent: mark.t.toFixed(2) });
    open.addEventListener('click', () => choose(mark));
    const select = element('select', {});
    select.setAttribute('aria-label', 'counts as');
    for (const [value, text] of Object.entries(KINDS)) select.append(element('option', { value, textContent: text, selected: value === mark.kind }));
    select.addEventListener('change', () => { mark.kind = select.value; draw(); });
    const row = element('tr', { className: mark === chosen ? 'current' : '' }, element('td', { className: 'n' }, open), element('td', {}, select), element('td', { className: 'n', textContent: String(mark.count) }), element('td', { className: 'words', textContent: `${mark.verdict}: ${mark.why}` }));
    body.append(row);
  }
  const is = count();
  root.querySelector('[data-count]').textContent = `${is} placed by your marks` + (wanted === null ? '' : wanted === is ? ', as the operator counted' : `, the operator counted ${wanted}`);
}

function choose(mark) {
  chosen = mark;
  go(mark.t);
  draw();
}

function nearest() {
  return side.marks.reduce((best, m) => (best === null || Math.abs(m.t - timeNow()) < Math.abs(best.t - timeNow()) ? m : best), null);
}

function change(action) {
  const mark = chosen || nearest();
  if (!mark) return;
  chosen = mark;
  action(mark);
  draw();
}

async function save() {
  const marks = side.marks.filter((m) => m.kind).map((m) => ({ t_s: m.t, kind: m.kind, count: m.count }));
  told.hidden = true;
  try {
    const answer = await fetch(`/review/${side.key}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ marks, note: root.querySelector('[data-note]').value }) });
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.error || `the server answered ${answer.status}`);
    location.assign(root.dataset.following);
  } catch (error) {
    told.textContent = `Not saved: ${error.message}`;
    told.hidden = false;
  }
}

const keys = {
  a: () => { chosen = { t: timeNow(), kind: 'placement', count: 1, verdict: 'added', why: 'by you' }; side.marks.push(chosen); draw(); },
  m: () => change((m) => { m.t = timeNow(); }),
  c: () => change((m) => { m.kind = m.kind === 'placement' ? '' : 'placement'; }),
  d: () => change((m) => { m.kind = m.kind === 'drop_outside' ? '' : 'drop_outside'; }),
  '+': () => change((m) => { m.count += 1; }),
  '-': () => change((m) => { m.count = Math.max(1, m.count - 1); }),
  x: () => change((m) => { side.marks = side.marks.filter((other) => other !== m); chosen = null; }),
  s: save,
};
root.querySelector('[data-save]').addEventListener('click', save);
start([side], {
  keys,
  onLoad: () => { side.marks = side.data.proposed.map((p) => ({ t: p.t_s, kind: p.kind, count: p.count, verdict: p.verdict, why: p.why })); draw(); },
  onShow: (own, now) => {
    const here = own.marks.find((m) => Math.abs(m.t - now) < 0.02);
    if (here && here !== chosen) { chosen = here; draw(); }
  },
});
