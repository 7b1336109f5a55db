// The operator console. What is done here is kept in this browser first, and sent to the server as soon as it can be reached.
import { freshId, get, keeps, listed, onOthers, openBox, put, queue, remove } from './console-box.js';
import { findTrouble } from './console-rules.js';
import { COUNTS, drawAssignment, drawClock, drawEnd, drawLink, drawRefused, drawTrouble, find, say, show } from './console-view.js';

const root = document.querySelector('[data-console]');
const LABELS = { success: 'Success', timeout: 'Ran out of time', safety: 'Safety', fault: 'System fault', safety_stop: 'Safety', invalid: 'System fault' };
const ASK_EVERY_MS = 5000;
const LATE_MS = 1500;
const ASLEEP_S = 2;

openBox(root.dataset.space);
let isResumed = false; // whether this window goes on with the draft that it found
let isAsking = false; // the reason of an undo
let wantsAll = false; // a save was tried: say also what is missing
let isOnline = null;
let isSending = false;
let sendAgain = false;
let anchor = null; // where the clock of the draft stood, by which clocks

// --- what there is

const known = () => get('known') || { assignments: [], drafts: [], last: null, n_valid: 0, n_total: 0, n_given_up: 0, is_over: false, stopped: '', isUnknown: true };
let quickest = Infinity; // ms, the answer that the clock was set by
const wallNow = () => Date.now() + (get('offset') || 0);
const outgoing = () => listed('out:');

function pendingOf(kind) {
  return outgoing().map((entry) => entry.value).filter((action) => action.kind === kind);
}

function nextAssignment() {
  const taken = new Set([...pendingOf('record'), ...listed('refused:').map((entry) => entry.value)].map((action) => action.key));
  return known().assignments.find((assignment) => !taken.has(assignment.key)) || null;
}

function foundDraft() {
  const own = get('draft');
  if (own) return own;
  const ended = new Set(outgoing().map((entry) => entry.value.id));
  return known().drafts.find((draft) => !ended.has(draft.id)) || null;
}

function lastSaved() {
  const undone = new Set(pendingOf('undo').map((action) => action.key));
  const waiting = pendingOf('record').filter((action) => !undone.has(action.key)).pop();
  if (waiting) return { key: waiting.key, object: waiting.object, outcome: waiting.account.label, placed: waiting.account.counts.placed, isWaiting: true };
  const last = known().last;
  return last && !undone.has(last.key) && !pendingOf('record').length ? last : null;
}

// --- the draft

function writeDraft(draft) {
  draft.revision += 1;
  put('draft', draft);
  put('dirty', true);
  render();
  send();
}

function change(action, { isUndoable = true } = {}) {
  const draft = get('draft');
  if (!draft) return;
  if (isUndoable) draft.history.push(structuredClone(draft.account));
  action(draft.account, draft);
  writeDraft(draft);
}

function setAnchor(id, elapsed_s) {
  anchor = { id, at: performance.now(), wall: Date.now(), elapsed_s: Math.max(0, elapsed_s) };
}

function elapsed(draft) {
  if (draft.account.duration_s !== null) return draft.account.duration_s;
  if (!anchor || anchor.id !== draft.id) setAnchor(draft.id, (wallNow() - draft.account.started_ms) / 1000);
  const bySteady = (performance.now() - anchor.at) / 1000;
  const byWall = (Date.now() - anchor.wall) / 1000;
  return anchor.elapsed_s + (byWall - bySteady > ASLEEP_S ? byWall : bySteady); // the steady clock rests while a device sleeps
}

const capped = (draft) => Math.min(Math.round(elapsed(draft) * 1000) / 1000, draft.assignment.time_cap_s);

function begin() {
  const assignment = nextAssignment();
  if (!assignment || foundDraft()) return;
  const id = freshId();
  setAnchor(id, 0);
  isResumed = true;
  wantsAll = false;
  say('');
  const account = { started_ms: Math.round(wallNow()), duration_s: null, marks: [], stop: null, label: null, counts: { placed: null, source: null, lost: null }, note: '' };
  writeDraft({ id, key: assignment.key, revision: 0, assignment, account, history: [] });
  if (navigator.wakeLock) navigator.wakeLock.request('screen').catch(() => {});
}

function marked(account, kind) {
  return account.marks.filter((mark) => mark.kind === kind).length;
}

function endClock(account, draft, t = capped(draft)) {
  account.duration_s = t;
  if (draft.assignment.items === null) return;
  if (account.marks.length && account.counts.placed === null) account.counts.placed = marked(account, 'placement');
  if (marked(account, 'drop_outside') && account.counts.lost === null) account.counts.lost = marked(account, 'drop_outside');
}

function timer() {
  if (!get('draft')) begin();
  else if (isRunning()) change(endClock);
}

function mark(kind) {
  const draft = get('draft');
  if (!isRunning()) return;
  const most = draft.assignment.items;
  if (most !== null && draft.account.marks.length >= most) {
    say(`${most} items are already marked, and there were ${most}`, 'bad');
    return;
  }
  change((account) => account.marks.push({ t_s: capped(draft), kind }));
}

function choose(label) {
  if (!isEnded()) return;
  change((account, draft) => {
    account.label = label;
    const items = draft.assignment.items;
    if (label === 'success' && items !== null && COUNTS.every((name) => account.counts[name] === null || name === 'placed')) {
      if (account.counts.placed === null || account.counts.placed === items) account.counts = { placed: items, source: 0, lost: 0 };
    }
  });
  const draft = get('draft');
  const empty = draft.assignment.items === null ? null : COUNTS.find((name) => draft.account.counts[name] === null);
  if (empty && label !== 'fault' && matchMedia('(pointer: fine)').matches) find(`[data-count=${empty}]`).focus();
}

function setCount(name, text) {
  if (!isEnded()) return;
  change((account) => { account.counts[name] = text === '' ? null : Number(text); }, { isUndoable: false });
}

function step(name, by) {
  const draft = get('draft');
  if (!isEnded()) return;
  change((account) => { account.counts[name] = Math.max(0, (account.counts[name] === null ? (by > 0 ? 0 : 1) : account.counts[name]) + by); });
  return draft;
}

const draftHere = () => (isResumed ? get('draft') : null);
const isRunning = () => draftHere() !== null && draftHere().account.duration_s === null;
const isEnded = () => draftHere() !== null && draftHere().account.duration_s !== null;

function finish(draft) {
  queue({ kind: 'record', id: draft.id, key: draft.key, revision: draft.revision + 1, account: draft.account, object: draft.assignment.object });
  remove('draft');
  remove('dirty');
  wantsAll = false;
  isResumed = false;
  anchor = null;
}

function save() {
  const draft = draftHere();
  if (!draft || !isEnded()) return;
  wantsAll = true;
  const trouble = findTrouble(draft.account, draft.assignment);
  if (trouble) {
    render();
    const field = find(`[data-count=${trouble.field}]`);
    if (field) field.focus();
    return;
  }
  finish(draft);
  say('');
  if (document.activeElement) document.activeElement.blur();
  render();
  send();
}

function adopt() {
  const draft = foundDraft();
  if (!draft) return null;
  if (!get('draft')) put('draft', { ...draft, history: [] });
  isResumed = true;
  return get('draft');
}

function resume() {
  if (isResumed || !adopt()) return;
  render();
  send();
}

function giveUp() {
  if (isResumed) return;
  const draft = adopt();
  if (!draft) return;
  const account = draft.account;
  if (account.duration_s === null) account.duration_s = capped(draft);
  account.label = 'fault';
  account.counts = { placed: null, source: null, lost: null };
  account.note = account.note || 'interrupted: the session was cut off';
  finish(draft);
  render();
  send();
}

function undo() {
  const draft = draftHere();
  if (draft) {
    if (draft.account.stop) {
      say('You stopped the arm: that stays on record. Save the episode, and undo it then.', 'bad');
      return;
    }
    if (draft.history.length) {
      draft.account = draft.history.pop();
      wantsAll = false;
      writeDraft(draft);
      return;
    }
    queue({ kind: 'withdraw', id: draft.id, key: draft.key });
    remove('draft');
    remove('dirty');
    isResumed = false;
    anchor = null;
    say('The start is undone; the record shows that it was begun.');
    render();
    send();
  } else if (lastSaved()) {
    isAsking = true;
    render();
    find('[data-why]').focus();
  }
}

function undoSaved() {
  const last = lastSaved();
  const why = find('[data-why]').value.trim();
  if (!why) {
    find('[data-trouble=why]').textContent = 'say why: it goes into the log of edits';
    return;
  }
  if (last) queue({ kind: 'undo', id: freshId(), key: last.key, why });
  closeWhy();
  say('Undone: the assignment is offered again.');
  send();
}

function closeWhy() {
  isAsking = false;
  find('[data-why]').value = '';
  find('[data-trouble=why]').textContent = '';
  render();
}

// --- stopping the arm: first of all, before anything is kept or drawn

async function askToStop(body) {
  for (let attempt = 0; attempt < 3; attempt += 1) {
    try {
      const answer = await fetch('/api/stop', { method: 'POST', keepalive: true, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal: AbortSignal.timeout(8000) });
      if (answer.ok) return await answer.json();
    } catch (error) { /* once more */ }
    await new Promise((done) => { setTimeout(done, 300); });
  }
  return { confirmed: false, told: 'the server cannot be reached' };
}

function stopArm() {
  const draft = get('draft');
  const runs = draft !== null && draft.account.duration_s === null;
  const t = runs ? capped(draft) : null;
  const asked = askToStop({ key: draft ? draft.key : '', t_s: t });
  if (runs) {
    isResumed = true;
    draft.history = [];
    draft.account.stop = { t_s: t, confirmed: null };
    endClock(draft.account, draft, t);
    draft.account.label = 'safety';
    writeDraft(draft);
  }
  say('Stopping the arm…', 'bad');
  const late = setTimeout(() => say("No answer yet: use the robot's own emergency stop.", 'bad'), LATE_MS);
  asked.then((answer) => {
    clearTimeout(late);
    const at = new Date().toLocaleTimeString();
    if (answer.confirmed) say(`The arm was stopped: confirmed at ${at}.`, 'good');
    else say(`THE STOP IS NOT CONFIRMED: use the robot's own emergency stop. (${answer.told})`, 'bad');
    const now = get('draft');
    if (runs && now && now.id === draft.id && answer.confirmed !== null) {
      now.account.stop.confirmed = answer.confirmed;
      writeDraft(now);
    }
  });
}

// --- the way to the server

async function post(action) {
  const { object, ...body } = action;
  return fetch('/api/actions', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body), signal: AbortSignal.timeout(15000) });
}

async function reasonOf(answer) {
  const text = await answer.text();
  try {
    return JSON.parse(text).error || `the server answered ${answer.status}`;
  } catch (error) {
    return text.slice(0, 200) || `the server answered ${answer.status}`;
  }
}

// What an action came to, in case that the connection breaks before the server can say how things stand.
function takeIn(action, answer) {
  const state = get('known');
  if (!state) return;
  state.drafts = state.drafts.filter((draft) => draft.id !== action.id);
  if (action.kind === 'record') {
    state.assignments = state.assignments.filter((assignment) => assignment.key !== action.key);
    state.last = answer;
  } else if (action.kind === 'undo') state.last = null;
  put('known', state);
}

function setAside(draft) {
  put(`refused:${draft.id}`, { key: draft.key, object: draft.assignment.object, account: draft.account, reason: 'it was ended on another screen' });
  if ((get('draft') || {}).id !== draft.id) return;
  remove('draft');
  isResumed = false;
  anchor = null;
}

const sane = (count) => (Number.isInteger(count) && Math.abs(count) <= 1e6 ? count : null); // half-typed

async function check(answer) {
  if (answer.status === 401 || answer.status >= 500) throw Object.assign(new Error(await reasonOf(answer)), { isTold: true });
}

// The server's clock, by the quickest answer so far: a slow one would put every start too early, and telemetry is
// joined to episodes by their starts. An answer that contradicts it means that a clock was set.
function setClock(asked, now_ms) {
  const trip = Date.now() - asked;
  const offset = now_ms - (asked + trip / 2);
  const isContradicted = Math.abs(offset - (get('offset') || 0)) > (trip + quickest) / 2;
  if (trip > quickest && !isContradicted) return;
  quickest = trip;
  put('offset', Math.round(offset));
}

async function sendOnce() {
  for (const { name, value } of outgoing()) {
    const answer = await post(value);
    await check(answer);
    if (answer.ok) takeIn(value, await answer.json());
    else put(name.replace('out:', 'refused:'), { ...value, reason: await reasonOf(answer) });
    remove(name);
  }
  const draft = get('draft');
  if (draft && get('dirty')) {
    const { id, key, revision } = draft;
    const account = { ...draft.account, counts: Object.fromEntries(COUNTS.map((name) => [name, sane(draft.account.counts[name])])) };
    const answer = await post({ kind: 'draft', id, key, revision, account });
    await check(answer);
    if (!answer.ok) say(`The server refused this episode: ${await reasonOf(answer)}`, 'bad');
    else if ((await answer.json()).is_ended) setAside(draft);
    const now = get('draft');
    if (!now || now.revision === revision) remove('dirty');
  }
  const asked = Date.now();
  const answer = await fetch('/api/state', { cache: 'no-store', signal: AbortSignal.timeout(15000) });
  await check(answer);
  const state = await answer.json();
  setClock(asked, state.now_ms);
  delete state.now_ms;
  put('known', state);
}

async function send() {
  if (isSending) {
    sendAgain = true;
    return;
  }
  isSending = true;
  try {
    do {
      sendAgain = false;
      await sendOnce();
    } while (sendAgain);
    isOnline = true;
  } catch (error) {
    isOnline = false;
    if (error.isTold) say(`Kept here, but refused by the server: ${error.message}`, 'bad');
  }
  isSending = false;
  render();
  document.documentElement.dataset.ready = 'yes';
}

// --- what is seen

function render() {
  const state = known();
  const draft = draftHere();
  const other = draft ? null : foundDraft();
  const next = nextAssignment();
  const last = draft ? null : lastSaved();
  const waiting = pendingOf('record').length;
  find('[data-progress]').textContent = state.isUnknown ? 'The server has not answered yet.' : `${state.n_valid} of ${state.n_total} episodes are in${waiting ? `, ${waiting} waiting here` : ''}${state.n_given_up ? `, ${state.n_given_up} given up` : ''}.`;
  drawLink(isOnline, outgoing().length);
  const panels = drawRefused(listed('refused:'), (name) => { remove(name); render(); }) ? ['refused'] : [];
  if (!keeps && !find('[data-told]').textContent) say('This browser stores nothing: leave this page open until everything has been sent.', 'bad');
  if (isAsking) {
    panels.push('last', 'why');
  } else if (other) {
    panels.push('resume', 'assignment');
    drawAssignment(other.assignment);
    const since = new Date(other.account.started_ms - (get('offset') || 0)).toLocaleTimeString();
    find('[data-resume-text]').textContent = `Begun at ${since}, ${other.account.marks.length === 1 ? '1 mark' : `${other.account.marks.length} marks`}. ${other.account.duration_s === null ? 'Its clock has been running since then.' : 'Its clock is stopped; it is not saved yet.'} If the arm did not continue, record it as a system fault: it will be run again.`;
  } else if (draft) {
    panels.push('assignment', 'clock');
    if (!draft.account.stop) panels.push('undo');
    drawAssignment(draft.assignment, { isSet: true });
    const runs = draft.account.duration_s === null;
    find('[data-panel=clock]').classList.toggle('over', !runs);
    find('[data-do=timer]').hidden = !runs;
    find('[data-timer-word]').textContent = 'Stop the clock';
    find('[data-live]').hidden = !runs;
    for (const kind of ['placement', 'drop_outside']) find(`[data-n=${kind}]`).textContent = marked(draft.account, kind);
    if (!runs) {
      panels.push('end');
      drawEnd(draft);
    }
    find('[data-undo-word]').textContent = draft.history.length ? 'Undo the last action' : 'Undo the start';
    drawClock(draft.assignment, elapsed(draft), draft);
  } else if (next) {
    panels.push('assignment', 'clock');
    drawAssignment(next);
    find('[data-panel=clock]').classList.remove('over');
    find('[data-do=timer]').hidden = false;
    find('[data-timer-word]').textContent = next.is_human ? 'Start, and act' : 'Start';
    find('[data-live]').hidden = true;
    drawClock(next, 0, null);
  } else if (!state.isUnknown) {
    panels.push('over');
    find('[data-over]').textContent = state.stopped ? `The trial was stopped by its rule: ${state.stopped}` : state.is_over ? 'Every assignment is done. The trial can now be closed by the holder of the plan.' : 'The next assignment comes from the server, which is not responding. Saved episodes are kept here.';
  }
  if (last) {
    panels.push('last');
    if (!isAsking) panels.push('undo');
    find('[data-undo-word]').textContent = 'Undo the saved episode';
    find('[data-last]').textContent = `Last saved: ${last.object}, ${LABELS[last.outcome] || last.outcome}${last.placed === null ? '' : `, ${last.placed} placed`}${last.isWaiting ? ' (kept here, not sent yet)' : ''}.`;
  }
  const trouble = draft && draft.account.duration_s !== null ? findTrouble(draft.account, draft.assignment) : null;
  drawTrouble(trouble && (wantsAll || !trouble.missing) ? trouble : null);
  show(...panels);
}

// --- keys, buttons, and time

const actions = {
  timer, save, undo, resume, stop: stopArm, keep: closeWhy, 'give-up': giveUp,
  place: () => mark('placement'), lose: () => mark('drop_outside'),
};
const keys = { ' ': timer, p: actions.place, l: actions.lose, 1: () => choose('success'), 2: () => choose('timeout'), 3: () => choose('safety'), 4: () => choose('fault'), u: undo, r: resume, f: giveUp, Enter: save };

root.addEventListener('click', (event) => {
  const button = event.target.closest('button');
  if (!button) return;
  if (button.dataset.do) actions[button.dataset.do]();
  else if (button.dataset.label) choose(button.dataset.label);
  else if (button.dataset.more) step(button.dataset.more, 1);
  else if (button.dataset.less) step(button.dataset.less, -1);
});
root.addEventListener('input', (event) => {
  const { target } = event;
  if (target.dataset.count) setCount(target.dataset.count, target.validity.badInput ? 'not a number' : target.value);
  else if (target.matches('[data-note]') && isEnded()) change((account) => { account.note = target.value; }, { isUndoable: false });
});
find('form').addEventListener('submit', (event) => {
  event.preventDefault();
  undoSaved();
});
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') {
    event.preventDefault();
    if (!event.repeat) stopArm();
    return;
  }
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
  const isField = event.target.matches('input, textarea, select');
  if (isField && !(event.key === 'Enter' && !event.target.matches('[data-why]'))) return;
  if (event.target.matches('button, a') && (event.key === ' ' || event.key === 'Enter')) return;
  if (isAsking) return;
  const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  action();
});
onOthers(() => {
  const draft = get('draft');
  if (!draft) isResumed = false;
  render();
});
addEventListener('online', send);
addEventListener('offline', () => { isOnline = false; render(); });
setInterval(() => {
  const draft = draftHere();
  if (draft && draft.account.duration_s === null) {
    if (elapsed(draft) >= draft.assignment.time_cap_s) {
      change(endClock);
      if (navigator.vibrate) navigator.vibrate([300, 100, 300]);
      say('Time is up: the clock is stopped.', 'bad');
    } else drawClock(draft.assignment, elapsed(draft), draft);
  }
}, 100);
setInterval(() => { if (!document.hidden) send(); }, ASK_EVERY_MS);

if (location.search) history.replaceState(null, '', '/');
if ('serviceWorker' in navigator) navigator.serviceWorker.register('/worker.js').catch(() => {});
render();
send();
