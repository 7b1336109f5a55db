// What the console's page shows, from what it is given; nothing is decided here.
const root = document.querySelector('[data-console]');
const NEAR_S = 10;
export const COUNTS = ['placed', 'source', 'lost'];
export const find = (selector) => root.querySelector(selector);

export function say(text, is = '') {
  const told = find('[data-told]');
  told.textContent = text;
  told.dataset.is = is;
  told.hidden = text === '';
}

export function show(...panels) {
  for (const panel of root.querySelectorAll('[data-panel]')) panel.hidden = !panels.includes(panel.dataset.panel);
}

function fact(name, value) {
  const box = document.createElement('div');
  const term = document.createElement('dt');
  const said = document.createElement('dd');
  term.textContent = name;
  said.textContent = value;
  box.append(term, said);
  return box;
}

export function drawAssignment(assignment, { isSet = false } = {}) {
  find('[data-panel=assignment]').classList.toggle('set', isSet);
  find('[data-a=code]').textContent = assignment.code;
  find('[data-a=object]').textContent = assignment.object;
  find('[data-human]').hidden = !assignment.is_human;
  const facts = [['layout', assignment.layout]];
  if (assignment.repeat !== null) facts.push(['repeat', assignment.repeat]);
  for (const [name, value] of Object.entries(assignment.labels)) facts.push([name.replaceAll('_', ' '), value]);
  if (assignment.items !== null) facts.push(['items', assignment.items]);
  facts.push(['time cap', `${assignment.time_cap_s} s`]);
  if (assignment.task) facts.push(['task', assignment.task]);
  if (assignment.condition) facts.push(['condition', assignment.condition]);
  if (assignment.attempt > 0) facts.push(['attempt', assignment.attempt + 1]);
  find('[data-facts]').replaceChildren(...facts.map(([name, value]) => fact(name, String(value))));
  const words = find('[data-a=instruction]');
  words.textContent = assignment.instruction ? `“${assignment.instruction}”` : '';
  words.hidden = !assignment.instruction;
}

export function drawClock(assignment, elapsed_s, draft) {
  const left = assignment.time_cap_s - Math.min(elapsed_s, assignment.time_cap_s);
  const clock = find('[data-clock]');
  const whole = Math.ceil(left * 10 - 1e-6) / 10;
  clock.textContent = whole >= 60 ? `${Math.floor(whole / 60)}:${(whole % 60).toFixed(1).padStart(4, '0')}` : whole.toFixed(1);
  clock.toggleAttribute('data-near', draft !== null && left <= NEAR_S);
  find('[data-clock-note]').textContent = draft && draft.account.duration_s !== null ? `left of ${assignment.time_cap_s} s; it took ${draft.account.duration_s.toFixed(1)} s` : `seconds left of ${assignment.time_cap_s}`;
}

export function drawTrouble(said) {
  for (const place of root.querySelectorAll('[data-trouble]')) {
    if (place.dataset.trouble !== 'why') place.textContent = said && said.field === place.dataset.trouble ? said.why : '';
  }
  for (const name of COUNTS) find(`[data-count=${name}]`).setAttribute('aria-invalid', said && said.field === name ? 'true' : 'false');
}

export function drawEnd(draft) {
  for (const button of root.querySelectorAll('[data-label]')) button.setAttribute('aria-pressed', String(button.dataset.label === draft.account.label));
  find('[data-counts]').hidden = draft.assignment.items === null || draft.account.label === 'fault';
  find('[data-of]').textContent = `of ${draft.assignment.items} items`;
  for (const name of COUNTS) {
    const input = find(`[data-count=${name}]`);
    const value = draft.account.counts[name];
    if (document.activeElement !== input || (value !== null && input.value === '' && !input.validity.badInput)) input.value = value === null ? '' : value;
  }
  const note = find('[data-note]');
  if (document.activeElement !== note) note.value = draft.account.note;
}

export function drawRefused(entries, giveUp) {
  const rows = entries.map(({ name, value }) => {
    const row = document.createElement('li');
    row.textContent = `${value.object || value.kind}: ${value.reason} `;
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = 'Give it up (it is in the console’s journal)';
    button.addEventListener('click', () => giveUp(name));
    row.append(button);
    return row;
  });
  find('[data-refused]').replaceChildren(...rows);
  return rows.length > 0;
}

export function drawLink(isOnline, waiting) {
  const link = document.querySelector('[data-link]');
  link.dataset.is = isOnline ? 'online' : isOnline === null ? '' : 'offline';
  link.textContent = (isOnline ? 'online' : isOnline === null ? '…' : 'offline') + (waiting ? `, ${waiting} to send` : '');
}
