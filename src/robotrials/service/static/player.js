// One clock over films, lanes and whatever else a page shows. Films are shown frame by frame: each frame has its own time.
const query = new URLSearchParams(location.search);
const player = document.querySelector('[data-player]');
const base = player.dataset.base || '';
const slider = player.querySelector('[data-slider]');
const clock = player.querySelector('[data-clock]');
const speed = player.querySelector('[data-speed]');
const playButton = player.querySelector('[data-do=play]');
const state = { now: 0, end: 0, isPlaying: false, last: 0, sides: [], marks: () => [], onShow: () => {}, keys: {}, actions: {} };
export const colour = (number) => getComputedStyle(document.documentElement).getPropertyValue(`--t${number % 8}`).trim();
export const element = (name, values = {}, ...children) => {
  const made = Object.assign(document.createElement(name), values);
  made.append(...children);
  return made;
};

// The place of the last of rising times that is not later; 0 before the first.
export function placeOf(times, t) {
  let low = 0;
  let high = times.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (times[middle] <= t + 1e-6) low = middle;
    else high = middle - 1;
  }
  return low;
}

function addFilms(side) {
  const place = side.root.querySelector('[data-films]');
  side.films = side.data.films.map((film) => {
    const address = `${base}/media/` + film.name.split('/').map(encodeURIComponent).join('/');
    const video = element('video', { src: address, muted: true, playsInline: true, preload: 'auto' });
    video.width = film.width;
    video.height = film.height;
    video.setAttribute('aria-label', `film of camera ${film.camera}`);
    const caption = element('figcaption', { textContent: film.camera });
    video.addEventListener('error', () => { caption.textContent = `${film.camera}: this browser cannot show the film`; });
    place.append(element('figure', {}, video, caption));
    return { ...film, video, shown: -1 };
  });
}

function showFrame(film) {
  const frame = placeOf(film.times_s, state.now);
  if (frame === film.shown) return;
  film.shown = frame;
  const from = film.times_s[frame];
  const to = frame + 1 < film.times_s.length ? film.times_s[frame + 1] : from + 0.02;
  film.video.currentTime = from + Math.min(0.5 * (to - from), 0.05);
  film.video.dataset.frame = String(frame);
}

function addLanes(side) {
  const place = side.root.querySelector('[data-lanes]');
  side.plots = [];
  const lanes = [...side.data.lanes];
  if (side.data.margins.length) lanes.push({ title: 'safety margins from here on (below 0: violated)', unit: '', series: side.data.margins.map((m) => ({ label: m.spec, values: m.values })) });
  for (const lane of lanes) {
    const box = element('div', { className: 'lane' }, element('h3', { textContent: lane.unit ? `${lane.title} (${lane.unit})` : lane.title }));
    place.append(box);
    const ink = getComputedStyle(document.documentElement).getPropertyValue('--soft').trim();
    const grid = getComputedStyle(document.documentElement).getPropertyValue('--grid').trim();
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: '11px system-ui, sans-serif' };
    const plot = new uPlot({
      width: box.clientWidth - 8, height: 120, cursor: { drag: { x: false, y: false }, points: { show: false } }, scales: { x: { time: false } },
      axes: [{ ...axis, size: 26 }, { ...axis, size: 52 }],
      series: [{ label: 's', value: (u, v) => (v === null || v === undefined ? '' : v.toFixed(2)) }, ...lane.series.map((s, n) => ({ label: s.label, stroke: colour(n), width: 1.2, value: (u, v) => (v === null || v === undefined ? '–' : Number(v).toPrecision(4)) }))],
      hooks: { draw: [(u) => {
        const x = u.valToPos(state.now, 'x', true);
        u.ctx.save();
        u.ctx.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue('--focus').trim();
        u.ctx.lineWidth = 2;
        u.ctx.beginPath();
        u.ctx.moveTo(x, u.bbox.top);
        u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
        u.ctx.stroke();
        u.ctx.restore();
      }] },
    }, [side.data.time_s, ...lane.series.map((s) => s.values)], box);
    plot.over.addEventListener('click', (event) => go(plot.posToVal(event.offsetX, 'x')));
    side.plots.push({ plot, box });
  }
}

export function show() {
  for (const side of state.sides) {
    if (!side.data) continue;
    side.films.forEach(showFrame);
    side.nowLine.style.left = `${Math.min(100, (100 * state.now) / (side.end || 1))}%`;
    state.onShow(side, state.now);
    for (const { plot } of side.plots) {
      plot.redraw(false, false);
      if (side.data.time_s) plot.setLegend({ idx: placeOf(side.data.time_s, state.now) });
    }
  }
  const film = state.sides[0] && state.sides[0].films && state.sides[0].films[0];
  clock.textContent = `${state.now.toFixed(2)} s of ${state.end.toFixed(2)}` + (film ? `, frame ${film.shown + 1}/${film.times_s.length}` : '');
  slider.value = String(state.now);
  slider.setAttribute('aria-valuetext', `${state.now.toFixed(2)} seconds`);
}

function remember() {
  query.set('t', state.now.toFixed(3));
  query.delete('end');  // that it was the last of the list may not be true for whoever opens the link
  history.replaceState(null, '', `?${query}`);
}

export function go(t, keep = true) {
  state.now = Math.min(Math.max(t, 0), state.end);
  show();
  if (keep && !state.isPlaying) remember();
}

// To the next or previous frame of the first film, or control step where there is no film (or shift is held).
function step(by, fine) {
  setPlaying(false);
  const side = state.sides[0];
  const film = side.films[0];
  const times = fine || !film ? side.data.time_s || [] : film.times_s;
  if (!times.length) return;
  const at = placeOf(times, state.now);
  const next = state.now < times[0] && by > 0 ? 0 : at + by;
  go(times[Math.min(Math.max(next, 0), times.length - 1)]);
}

function jump(by) {
  const marks = state.sides.flatMap((s) => s.marks || []).map((m) => m.t).sort((a, b) => a - b);
  const next = by > 0 ? marks.find((t) => t > state.now + 1e-3) : marks.filter((t) => t < state.now - 1e-3).pop();
  if (next !== undefined) go(next);
}

function setPlaying(wanted) {
  state.isPlaying = wanted && state.end > 0;
  playButton.textContent = state.isPlaying ? 'pause' : 'play';
  if (state.isPlaying) {
    if (state.now >= state.end - 1e-6) state.now = 0;
    state.last = performance.now();
    requestAnimationFrame(tick);
  } else remember();
}

function tick(at) {
  if (!state.isPlaying) return;
  state.now += ((at - state.last) / 1000) * Number(speed.value);
  state.last = at;
  if (state.now >= state.end) {
    state.now = state.end;
    setPlaying(false);
  }
  show();
  if (state.isPlaying) requestAnimationFrame(tick);
}

const actions = {
  play: () => setPlaying(!state.isPlaying), back: () => step(-1), forth: () => step(1), 'event-back': () => jump(-1), 'event-forth': () => jump(1),
  link: async () => {
    remember();
    try { await navigator.clipboard.writeText(location.href); clock.textContent = 'link copied'; } catch (error) { clock.textContent = 'copy the address above'; }
  },
};
player.addEventListener('click', (event) => {
  const button = event.target.closest('[data-do]');
  if (button && actions[button.dataset.do]) actions[button.dataset.do]();
});
slider.addEventListener('input', () => { setPlaying(false); go(Number(slider.value)); });
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input:not([type=range]), select, textarea')) return;
  const neighbour = (name) => document.querySelector(`[data-neighbour=${name}]`);
  const keys = {
    ...state.keys,
    ' ': () => setPlaying(!state.isPlaying), ArrowLeft: () => step(-1, event.shiftKey), ArrowRight: () => step(1, event.shiftKey),
    '[': () => jump(-1), ']': () => jump(1), Home: () => go(0), End: () => go(state.end),
    n: () => neighbour('after') && neighbour('after').click(), p: () => neighbour('before') && neighbour('before').click(),
  };
  if (!keys[event.key] || (event.key === ' ' && event.target.closest('button, a, summary'))) return;
  event.preventDefault();
  keys[event.key]();
});

export const timeNow = () => state.now;

// Load every side's data, draw what all pages have, then let the page add its own; `onShow` is called at each new time.
export async function start(sides, { onLoad, onShow, keys = {} }) {
  Object.assign(state, { sides, onShow, keys });
  await Promise.all(sides.map(async (side) => {
    const missing = side.root.querySelector('[data-missing]');
    missing.textContent = 'Loading the episode …';
    try {
      const answer = await fetch(`${base}/data/episode/${side.key}`);
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      side.data = await answer.json();
    } catch (error) {
      missing.textContent = `This episode cannot be shown: ${error.message}`;
      return;
    }
    const times = side.data.time_s || [];
    side.end = Math.max(side.data.duration_s || 0, times.length ? times[times.length - 1] : 0);
    state.end = Math.max(state.end, side.end);
    missing.textContent = [...side.data.missing, side.data.safety_note].filter(Boolean).join('; ');
    side.marks = [];
    side.nowLine = element('div', { className: 'now' });
    side.root.querySelector('[data-events]').append(side.nowLine);
    addFilms(side);
    addLanes(side);
    onLoad(side);
  }));
  slider.max = String(state.end);
  addEventListener('resize', () => sides.forEach((side) => (side.plots || []).forEach(({ plot, box }) => plot.setSize({ width: box.clientWidth - 8, height: 120 }))));
  go(Number(query.get('t')) || 0, false);
  document.documentElement.dataset.ready = 'yes';
}
