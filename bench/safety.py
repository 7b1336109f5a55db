"""Safety clauses over many episodes, side by side with rtamt's discrete-time offline monitor."""

from __future__ import annotations

import re
import time
import warnings

import numpy as np

from bench.measure import Result, against, seconds
from robotrials.measure.safety import parse_stl
from robotrials.measure.safety.formula import Formula, event_names, signal_names
from robotrials.measure.safety.margin import Gate, margins, margins_at_start, traces_of

EPISODES, STEPS, DT_S = 1000, 300, 0.05
PEER_EPISODES = 100
CLAUSES = {
    'arm_furniture_force': 'always (arm_furniture_force_n < 200)',
    'target_furniture_force': 'always (target_furniture_force_n < 200)',
    'max_contact_force': 'always (max_contact_force_n < 200)',
    'non_target_max_disp': 'always (non_target_disp_m < 0.005)',
    'held_object_tilt_world': 'always (transport -> held_object_tilt_deg < 15)',
    'stable_grasp_maintained': 'always (grip -> target_height_m > -0.02)',
    'joint_torque': 'always (joint_torque_ratio < 1)',
    'self_collision_free': 'always (self_collision < 0.5)',
}
EVENTS = ('transport', 'grip', 'self_collision')
WINDOWS = ('always[0.5,5] (x > 0)', 'eventually[0.5,5] (x > 0)', 'always[0,0.5] (x > 0)', 'eventually[0,0.5] (x > 0)')


def episodes(names: list[str], rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """Ragged in nothing but name: every episode has 300 steps, so that the work is what the target says."""
    columns: dict[str, list[np.ndarray]] = {}
    for name in names:
        if name in EVENTS:
            columns[name] = [(rng.random(STEPS) < 0.5).astype(float) for _ in range(EPISODES)]
        else:
            columns[name] = [rng.normal(0, 1, STEPS) for _ in range(EPISODES)]
    return columns


class Peer:
    """rtamt's monitor of one formula."""

    def __init__(self, text: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            import rtamt
        self.formula = parse_stl(text)
        self.monitor = rtamt.StlDiscreteTimeSpecification()
        for name in signal_names(self.formula):
            self.monitor.declare_var(name, 'float')
        self.monitor.set_sampling_period(50, 'ms', 0.1)
        self.monitor.spec = re.sub(r'\[([^\]]*)\]', _in_ms, _spelt(text, self.formula))
        self.monitor.parse()

    def margins(self, columns: dict[str, list[np.ndarray]], episode: int) -> list[float]:
        data = {name: columns[name][episode].tolist() for name in signal_names(self.formula)}
        result = self.monitor.evaluate({'time': [i * DT_S for i in range(STEPS)], **data})
        return [value for _, value in result]


def _spelt(text: str, formula: Formula) -> str:
    """rtamt writes implies for -> and knows no bare events."""
    for name in event_names(formula):
        text = re.sub(rf'\b{name}\b(?= ->)', f'({name} > 0.5)', text)
    return re.sub(r'-> (.*)\)$', r'implies (\1))', text)


def _in_ms(match: re.Match[str]) -> str:
    return '[' + ','.join(f'{round(float(part) * 1000)}ms' for part in match.group(1).split(',')) + ']'


def run() -> list[Result]:
    return [_clauses(), _windows()]


def _clauses() -> Result:
    parsed = [parse_stl(text) for text in CLAUSES.values()]
    names = sorted({name for formula in parsed for name in signal_names(formula)})
    columns = episodes(names, np.random.default_rng(0))
    flat, lengths = {name: np.concatenate(parts) for name, parts in columns.items()}, [STEPS] * EPISODES

    def ours() -> list[np.ndarray]:
        batch = traces_of(flat, DT_S, lengths=lengths, events=frozenset(EVENTS))
        return [margins_at_start(formula, batch, gate=Gate.LITERAL) for formula in parsed]

    ours_by_clause = ours()
    peers = [Peer(text) for text in CLAUSES.values()]
    started = time.perf_counter()
    theirs = [[peer.margins(columns, e)[0] for e in range(PEER_EPISODES)] for peer in peers]
    peer_s = (time.perf_counter() - started) * EPISODES / PEER_EPISODES
    for ours_of, theirs_of, text in zip(ours_by_clause, theirs, CLAUSES, strict=True):
        if ours_of[:PEER_EPISODES].tolist() != theirs_of:
            raise SystemExit(f'safety/clauses: {text} differs from rtamt')
    work = (
        f'{EPISODES} episodes x {STEPS} steps x {len(CLAUSES)} clauses, finiteness checked; equal to rtamt on the '
        f'{PEER_EPISODES} episodes it ran, its time extrapolated from them'
    )
    return against(
        'safety/clauses', ours_s=seconds(ours, repeats=10), peer='rtamt', peer_s=peer_s, target=1000, work=work
    )


def _windows() -> Result:
    columns = episodes(['x'], np.random.default_rng(1))
    flat, lengths = {'x': np.concatenate(columns['x'])}, [STEPS] * EPISODES
    parsed = [parse_stl(text) for text in WINDOWS]

    def ours() -> None:
        batch = traces_of(flat, DT_S, lengths=lengths)
        for formula in parsed:
            margins(formula, batch)

    batch = traces_of(flat, DT_S, lengths=lengths)
    by_formula = [margins(formula, batch) for formula in parsed]
    peers = [Peer(text) for text in WINDOWS]
    started = time.perf_counter()
    theirs = [[peer.margins(columns, e) for e in range(PEER_EPISODES)] for peer in peers]
    peer_s = (time.perf_counter() - started) * EPISODES / PEER_EPISODES
    for ours_of, theirs_of, text in zip(by_formula, theirs, WINDOWS, strict=True):
        if ours_of[: PEER_EPISODES * STEPS].tolist() != [value for episode in theirs_of for value in episode]:
            raise SystemExit(f'safety/windows: {text} differs from rtamt')
    work = (
        f'{EPISODES} episodes x {STEPS} steps, always and eventually over windows of 11 and 91 samples, every time; '
        f'equal to rtamt on the {PEER_EPISODES} episodes it ran, its time extrapolated from them'
    )
    return against(
        'safety/windows', ours_s=seconds(ours, repeats=10), peer='rtamt', peer_s=peer_s, target=500, work=work
    )
