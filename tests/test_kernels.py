"""Every kernel in C against its twin in numpy: the same bits, or 1e-12 where sums are taken in another order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tests.grid.kernel as grid

import robotrials.formats.kernel as formats
import robotrials.measure.geometry.kernel as geometry
import robotrials.measure.safety.kernel as safety
import robotrials.measure.timing.jackknife.kernel as jackknife
import robotrials.measure.timing.kernel as timing
import robotrials.stats.kernel as stats
import robotrials.verdict.planning.bridge.kernel as bridge
import robotrials.worlds.cell.kernel as cell
from robotrials.measure.timing import Operations
from robotrials.measure.timing.resample import inverse_counts, pair_layout, sort_cell, spread, unit_offsets
from robotrials.stats import compiled

needs_both = pytest.mark.skipif(
    set(compiled.backends().values()) != {compiled.COMPILED} and os.environ.get('CI') != 'true',
    reason='one back-end here: no compiled kernels',
)
Arrays = list[np.ndarray[Any, Any]]


def twins(
    module: Any, name: str, given: tuple[Any, ...], outs: Arrays, *, slack: float = 0.0, rest: tuple[Any, ...] = ()
) -> Arrays:
    """Run both on copies of `outs`, hold them equal, and give the compiled result."""
    results = []
    for function in (getattr(module, name), compiled.IN_NUMPY[module.__name__, name]):
        own = [out.copy() for out in outs]
        value = function(*given, *own, *rest)
        results.append(own if value is None else [*own, np.asarray(value)])
    assert isinstance(getattr(module, name), type(len)), f'{name} is not compiled'
    for k, (first, second) in enumerate(zip(*results, strict=True)):
        if slack:
            np.testing.assert_allclose(second, first, rtol=slack, atol=slack, err_msg=f'{name}, array {k}')
        else:
            np.testing.assert_array_equal(second, first, err_msg=f'{name}, array {k}')
    return results[0]


def operations(rng: np.random.Generator, n: int, each: int, *, coarse: bool) -> Operations:
    times = rng.exponential(30, n * each)
    times = np.ceil(times / 5) * 5 if coarse else times
    observed, never = rng.random(len(times)) > 0.3, rng.random(len(times)) < 0.1
    return Operations(np.where(never, np.inf, times), observed | never, np.repeat(np.arange(n), each))


@needs_both
@pytest.mark.parametrize('seed', range(6))
def test_resampled_curves_have_the_same_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, each, rows, tau = (
        int(rng.integers(1, 40)),
        int(rng.integers(1, 6)),
        int(rng.integers(1, 90)),
        float(rng.choice([5, 30, 1000])),
    )
    own, key, levels = (
        sort_cell(operations(rng, n, each, coarse=seed % 2 == 0)),
        np.uint64(seed + 2**63),
        np.array([0.1, 0.5, 0.9]),
    )
    columns = own.times_s, own.cluster, own.event, own.sizes
    weight = rng.integers(0, 3, n).astype(np.int32)
    twins(timing, 'curve_scalars', (*columns, weight, inverse_counts(2 * n * each), tau, levels), [np.empty(7)])
    for asked in (levels, np.empty(0)):
        twins(
            timing, 'bootstrap_scalars', (*columns, own.inverse, tau, asked, key, 5), [np.empty((rows, 4 + len(asked)))]
        )
    points = np.sort(rng.uniform(0, 100, 7))
    twins(timing, 'bootstrap_curves', (*columns, points, key, 3), [np.empty((rows, 7))])
    where = np.searchsorted(points, own.times_s).astype(np.int64)
    twins(timing, 'bootstrap_jumps', (*columns[1:], where, 0.25, key, 3), [np.zeros((rows, 7))])
    a, b = (operations(rng, k, 2, coarse=True) for k in (n, 7))
    layout = pair_layout({'': a}, {'': b}, tau_s=40.0 if seed % 3 else None)
    twins(
        timing,
        'bootstrap_auc',
        (layout.rank, layout.cluster, layout.event, layout.sizes, n, key, np.uint64(1), 0),
        [np.empty(rows)],
    )
    gain, counted = rng.random(len(own.times_s)), int(rng.integers(0, len(own.times_s) + 1))
    twins(jackknife, 'left_out_curves', (*columns, gain, counted, levels), [np.empty((n, 6))])
    episodes = np.sort(np.r_[np.arange(4), rng.choice(4, 40)])  # few, with many operations each
    few = sort_cell(Operations(np.ceil(rng.exponential(30, 44)), rng.random(44) > 0.3, episodes))
    given = few.times_s, few.cluster, few.event, few.sizes, rng.random(44), 30, levels
    twins(jackknife, 'left_out_curves', given, [np.empty((4, 6))])


@needs_both
@pytest.mark.parametrize('n', [255, 256, 257, 515])
def test_draws_of_a_large_cell_have_the_same_bits(n: int) -> None:
    """Random numbers are mixed a block at a time, and where all episodes are alike their operations are not counted."""
    rng = np.random.default_rng(n)
    for episode in (np.arange(n), np.sort(np.r_[np.arange(n), rng.choice(n, n // 2)])):
        own = sort_cell(Operations(rng.exponential(30, len(episode)), rng.random(len(episode)) > 0.3, episode))
        columns, key = (own.times_s, own.cluster, own.event, own.sizes), np.uint64(n)
        twins(timing, 'bootstrap_scalars', (*columns, own.inverse, 40.0, np.empty(0), key, 5), [np.empty((33, 4))])
        twins(timing, 'bootstrap_curves', (*columns, np.linspace(0, 90, 9), key, 3), [np.empty((17, 9))])
        rank = np.arange(len(episode), dtype=np.int32)
        twins(timing, 'bootstrap_auc', (rank, *columns[1:], n // 3, key, np.uint64(1), 0), [np.empty(17)])


@needs_both
@pytest.mark.parametrize('method', [timing.POOLED_BOOTSTRAP, timing.PERMUTATION, timing.PAIRED_SWAP])
def test_null_distributions_have_the_same_bits_on_one_thread_and_on_two(method: int) -> None:
    rng = np.random.default_rng(method)
    cells = [{s: operations(rng, 6, k, coarse=method == 1) for s in 'abc'} for k in (3, 2)]
    layout, n = pair_layout(*cells), np.full(3, 6)
    units = rng.integers(0, 12, (2, 36)).astype(np.int32)
    where = (
        layout.op_offsets,
        layout.sizes,
        layout.episode_offsets,
        units,
        unit_offsets(n, n),
        n,
        method,
        np.uint64(9),
        2,
    )
    columns = layout.rank, layout.cluster, layout.event
    _, null = twins(timing, 'macro_ks_trials', (*columns, *where, 7), [np.empty((2, 3)), np.empty((2, 70))])
    tail = 40.0, np.array([10.0, 20.0, 20.0, 55.0])
    twins(
        timing,
        'contrast_trials',
        (layout.times_s, *columns, *where, 7, *tail),
        [np.empty((2, 3, 6)), np.empty((2, 70, 6))],
    )
    halves = np.empty_like(null)

    def work(start: int, stop: int) -> None:
        part = np.empty((2, stop - start))
        timing.macro_ks_trials(*columns, *where, 7 + start, np.empty((2, 3)), part)
        halves[:, start:stop] = part

    spread(70, work, steps_a_row=10**6, threads=2, chunk_rows=16)
    np.testing.assert_array_equal(halves, null)


@needs_both
@pytest.mark.parametrize('is_plain', [0, 1])
@pytest.mark.parametrize('lengths', [[0], [45] * 7, range(1, 200)])
def test_ids_of_rows_have_the_same_bits(is_plain: int, lengths: Any) -> None:
    """Texts that end before, at and after the ends of blocks; numbers of every length, and none."""
    rng = np.random.default_rng(is_plain)
    n, ends = 500, np.cumsum(lengths)
    texts, codes = rng.integers(0, 256, ends[-1]).astype(np.uint8), rng.integers(0, len(ends), n)
    numbers = rng.integers(-(2**53), 2**53, (2, n)) >> rng.integers(0, 54, (2, n))
    numbers[rng.random((2, n)) < 0.2] = formats.NULL
    ids = np.zeros((n, 24), np.uint8)
    for columns, suffix in ((numbers, b',0]'), (numbers[:1], b']'), (numbers[:0], b'')):
        end = np.frombuffer(suffix, np.uint8)
        twins(formats, 'row_ids', (texts, ends, codes, columns, end), [ids], rest=(is_plain,))


@needs_both
@pytest.mark.parametrize(
    ('ends', 'code', 'digits'),
    [([1 << 40], 0, 24), ([65], 0, 24), ([64, 0], 1, 24), ([-64], 0, 24), ([64], 1, 24), ([64], -1, 24), ([64], 0, 65)],
)
def test_ids_of_rows_read_nothing_outside_the_texts(ends: list[int], code: int, digits: int) -> None:
    texts, ids = np.zeros(64, np.uint8), np.zeros((1, digits), np.uint8)
    nothing = np.zeros(0, np.uint8)
    with pytest.raises(MemoryError):
        formats.row_ids(texts, np.array(ends), np.array([code]), np.zeros((0, 1), np.int64), nothing, ids, 1)
    assert not ids.any()


@needs_both
@pytest.mark.parametrize('length', [0, 1, 24])
def test_hashes_of_ids_have_the_same_bits(length: int) -> None:
    letters = np.random.default_rng(0).integers(0, 256, (5000, length)).astype(np.uint8)
    twins(formats, 'fnv1a', (letters,), [np.zeros(5000, np.int64)])


@needs_both
@pytest.mark.parametrize('length', [0, 1, 7, 8, 4099])
def test_checksums_have_the_same_bits(length: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, length).astype(np.uint8)
    twins(formats, 'crc32c', (data,), [np.array([0xE3069283], np.int64)])


def step_arguments(lines: list[str], widths: dict[str, int]) -> tuple[tuple[Any, ...], np.ndarray[Any, Any]]:
    """What `step_numbers` is given for lines whose fields have these widths, and room for their numbers."""
    keys = [f'"{name}"'.encode() for name in widths]
    text, names = (np.frombuffer(b, np.uint8) for b in (''.join(f'{x}\n' for x in lines).encode(), b''.join(keys)))
    ends = np.cumsum([len(key) for key in keys])
    room = np.zeros(len(lines) * sum(max(width, 1) for width in widths.values()))
    return (text, names, ends, np.array([*widths.values()])), room


ODD_NUMBERS = [
    '0', '-0.0', '-0e0', '0e99999', '1E+05', '1e-0005', '5e-324', '1e-400', '2.2250738585072011e-308', '0.1',
    '1.7976931348623157e308', '9007199254740993', '9007199254740993.0', '9007199254740992.5', '9223372036854775808',
    '18446744073709551616', '18446744073709551616.5', '-18446744073709551615', '123456789012345678901234567890',
    '0.000000000000000000000000001', '0.0000000000000000000000000001', '1.00000000000000011102230246251565',
    '0.500000000000000166533453693773481063544750213623046875', '1e22', '1e23', '3.0e-27', '8.5e-28',
]  # fmt: skip


@needs_both
@pytest.mark.parametrize('digits', [1, 6, 15, 16, 17, 19, 20])
def test_numbers_in_json_have_the_bits_of_float(digits: int) -> None:
    """On both sides of every border: 53 and 64 bits of digits, 22 and 27 places; halves between two doubles."""
    rng = np.random.default_rng(digits)
    sizes = rng.normal(size=4000) * 10.0 ** rng.integers(-30, 30, 4000)
    texts = [f'{x:.{digits}g}' for x in sizes] + [f'{x:.{digits}f}' for x in sizes[np.abs(sizes) > 1]] + ODD_NUMBERS
    given, room = step_arguments([f'{{"a": {x}}}' for x in texts], {'a': 0})
    assert formats.step_numbers(*given, room) == 1
    assert room.tobytes() == np.array([float(x) for x in texts]).tobytes()


@needs_both
def test_steps_in_json_fill_a_block_for_each_field() -> None:
    lines = ['{"r": 0.5, "d": false, "a": [1, -2.5]}', '{ "r" :1,"d":true,"a":[ 3e0 ,4.0 ] } ']
    given, room = step_arguments(lines, {'r': 0, 'd': -1, 'a': 2})
    assert formats.step_numbers(*given, room) == 1
    assert room.tolist() == [0.5, 1, 0, 1, 1, 3, -2.5, 4]


@needs_both
@pytest.mark.parametrize(
    'line',
    [
        *(f'{{"r": {x}, "a": [1, 2]}}' for x in (
            '01', '+1', '.5', '1.', '-', '1e', '1e+', '0x1', 'NaN', '-Infinity', '1e400', '-0', '1_0', 'true', 'null',
            '"1"', '[1]', '{}', '', '1 2', '--1', '1.5.5', '1e5e5', '-1e999',
        )),
        *(f'{{"r": 1, "a": {x}}}' for x in (
            '[]', '[1]', '[1, 2, 3]', '[1 2]', '[1, 2', '[1, [2]]', '[1, true]', '1', '[1,, 2]', '[1, 2,]',
        )),
        '{"r": 1}', '{"r": 1, "a": [1, 2], "b": 3}', '{"r": 1, "r": 1, "a": [1, 2]}', '{"r": 1, "b": [1, 2]}',
        '{"r": 1, "a": [1, 2]', '{"r": 1, "a": [1, 2]}}', '{"r": 1, "a": [1, 2],}', '', '{}', '[]', '1', '{"r',
        '{"r": 1, "a": [1, 2]}\n{"r": 1, "a": [1, 2]}',
    ],
)  # fmt: skip
def test_json_that_is_not_as_told_is_left_to_another_reader(line: str) -> None:
    for lines in ([line], ['{"r": 1, "a": [1, 2]}', line]):
        given, room = step_arguments(lines, {'r': 0, 'a': 2})
        assert formats.step_numbers(*given, room) == 0


@needs_both
def test_steps_in_json_read_nothing_outside_the_text() -> None:
    (text, keys, ends, widths), room = step_arguments(['{"r": 1, "d": true, "a": [1, 2]}'], {'r': 0, 'd': -1, 'a': 2})
    for size in range(len(text) - 1):
        for cut in (text[:size], np.append(text[:size], np.uint8(10))):
            assert formats.step_numbers(cut.copy(), keys, ends, widths, room) == 0
    for broken in ((keys, ends + 1, widths), (keys, ends[::-1].copy(), widths), (keys, ends, widths + 9)):
        with pytest.raises(MemoryError):
            formats.step_numbers(text, *broken, room)


@needs_both
def test_traces_have_the_same_bits() -> None:
    rng = np.random.default_rng(3)
    offsets = np.r_[0, np.cumsum(rng.integers(1, 300, 6))].astype(np.int64)
    n = int(offsets[-1])
    values, right, gate = rng.standard_normal(n), rng.standard_normal(n), (rng.random(n) < 0.3) * 1.0
    values[rng.random(n) < 0.02] = np.inf
    for sign in (1.0, -1.0):
        low = rng.integers(0, 20, 6)
        for high in (low + rng.integers(-1, 9, 6), low + 250):
            twins(safety, 'window_extreme', (values, offsets, low, high, sign), [np.empty(n)])
        twins(safety, 'suffix_extreme', (values, offsets, sign), [np.empty(n)])
        for width in (-1, 0, 37):
            twins(safety, 'span_extreme', (values, np.arange(n) + 3, np.arange(n) + 3 + width, sign), [np.empty(n)])
    twins(safety, 'until_forever', (values, right, offsets), [np.empty(n)])
    twins(safety, 'count_not_binary', (np.r_[gate, 0.5, 0.5],), [])
    for is_upper in (True, False):
        twins(safety, 'bound_minimum', (values, offsets, 0.3, is_upper), [np.empty(6)])
        for is_literal in (True, False):
            twins(safety, 'gated_bound_minimum', (values, gate, offsets, 0.3, is_upper, is_literal), [np.empty(6)])


def rotations(rng: np.random.Generator, n: int, tilt: float | None) -> np.ndarray[Any, Any]:
    from scipy.spatial.transform import Rotation

    vectors = rng.standard_normal((n, 3))
    return np.ascontiguousarray(Rotation.from_rotvec(vectors * (1.0 if tilt is None else tilt)).as_matrix())


@needs_both
@pytest.mark.parametrize('tilt', [None, 1e-7, 0.0])
def test_boxes_and_voxels_have_the_same_bits(tilt: float | None) -> None:
    rng = np.random.default_rng(4)
    shift = 0.4 if tilt is None else 1e-8
    sizes = [rng.uniform(0.5, 1, (40, 3)) if tilt is None else np.full((40, 3), 0.7) for _ in range(2)]
    boxes = [(rng.standard_normal((40, 3)) * shift, size, rotations(rng, 40, tilt)) for size in sizes]
    twins(geometry, 'intersection_volumes', (*boxes[0], *boxes[1]), [np.empty(40)])
    depth, rgb = rng.uniform(0.5, 1.5, (30, 40)), rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
    depth[rng.random(depth.shape) < 0.1] = np.nan
    given = (
        depth, rgb, rng.random((30, 40)) < 0.7, tilt is None, np.array([40.0, 40.0, 20.0, 15.0]),
        rotations(rng, 1, tilt)[0], np.zeros(3), np.full(3, -1.0), 0.1, np.array([20, 20, 20]),
    )  # fmt: skip
    outs = [
        np.full(8000, -1, dtype=np.int32),
        np.zeros((1200, 6)),
        np.zeros(1200, dtype=np.int64),
        np.zeros(1200, dtype=np.int64),
    ]
    twins(geometry, 'fuse_pixels', given, outs, rest=(0,))
    for hue in (0.0, 120.0, 355.0):
        twins(geometry, 'hue_mask', (rgb, hue, 25.0, 0.3, 0.2), [np.zeros((30, 40), dtype=np.bool_)])


@needs_both
def test_the_controller_has_the_same_bits() -> None:
    pytest.importorskip('mujoco')
    from robotrials.worlds.cell import control, panda

    rng = np.random.default_rng(5)
    links = control._TABLE, control._HAND
    for _ in range(50):
        target = np.r_[rng.uniform(-0.6, 0.6, 3), rng.standard_normal(4)]
        target[3:] /= np.linalg.norm(target[3:])
        start = control._HOME + rng.normal(0, 0.3, 7)
        limits = control._HOME, control._EASE, control._LOW, control._HIGH, 4
        twins(cell, 'inverse', (*links, target, start, *limits), [np.empty(7)])
        states = [rng.normal(0, 1, 7) for _ in range(4)]
        rates = control._BRAKE, control._FASTEST, panda.JOINT_ACCELERATION_RAD_S2, 0.02
        twins(cell, 'refer', (*states, *rates), [np.empty(7), np.empty(7)])
        poses, goals = rng.standard_normal((5, 7)), rng.standard_normal((5, 7))
        goals[2] = np.nan
        measures, turns = rng.random((5, 8)), rng.integers(1, 5, 5)
        results = []
        for write in (cell.write_slots, compiled.IN_NUMPY[cell.__name__, 'write_slots']):
            out = np.zeros((6, 24))
            write(out, poses, measures, turns, goals, rng.random(5) * 0 + 1, 0.012)
            results.append(out)
        np.testing.assert_array_equal(*results)
        kind = np.dtype(
            [('geom', np.int32, 2), ('pos', float, 3), ('row', np.int32)], align=True
        )  # strided, as MuJoCo's
        contacts = np.zeros(int(rng.integers(0, 9)), dtype=kind)
        contacts['geom'], contacts['pos'] = rng.integers(0, 10, (len(contacts), 2)), rng.random((len(contacts), 3))
        contacts['row'] = rng.integers(-1, 20, len(contacts))
        forces, group = rng.random(30), rng.integers(0, 6, 10)
        kept = []
        for keep in (cell.keep_peaks, compiled.IN_NUMPY[cell.__name__, 'keep_peaks']):
            own = [np.full((6, 6), 0.3), np.full((6, 6, 3), np.nan), np.zeros((6, 6)), np.zeros((6, 6, 3))]
            keep(*own, contacts['geom'], contacts['row'], forces, contacts['pos'], group)
            kept.append(own)
        for first, second in zip(*kept, strict=True):
            np.testing.assert_array_equal(first, second)


@needs_both
def test_simulated_trials_agree_to_the_last_digits() -> None:
    rng = np.random.default_rng(6)
    a, b = np.ceil(rng.exponential(10, (5, 9, 2, 2))), np.ceil(rng.exponential(10, (5, 8, 3, 2)))
    a[rng.random(a.shape) < 0.1] = np.inf
    three = [np.empty(5) for _ in range(3)]
    twins(stats, 'placements', (a, b), three, slack=1e-12)
    twins(stats, 'plain_placements', (np.sort(a[:, :, 0, 0]), np.sort(b[:, :, 0, 0])), three, slack=1e-12)
    twins(stats, 'pair_shares', (a[:, :8].copy(), b), three[:2], slack=1e-12)
    ahead, behind = rng.integers(0, 4, 5), rng.integers(0, 4, 5)
    most = int((ahead + behind).max()) + 1
    counts = rng.integers(0, 7, (5, 3)), rng.integers(0, 6, (5, 3)), ahead, behind
    twins(stats, 'mid_tails', (*counts, rng.random((12, 7)), np.tril(rng.random((most, most)))), three[:2], slack=1e-12)
    walk, steps, clock = (rng.standard_normal(shape, dtype=np.float32) for shape in ((50, 13), 13, 12))
    results = []
    for add in (bridge.add_bridges, compiled.IN_NUMPY[bridge.__name__, 'add_bridges']):
        results.append(np.zeros((12, 50), dtype=np.float32))
        add(walk.copy(), steps, clock, np.float32(0.7), results[-1])
    np.testing.assert_array_equal(*results)
    drift, scale = clock[::-1].copy(), walk[:, 0].copy()
    twins(bridge, 'sup_shifted', (results[0], drift), [np.empty(50, dtype=np.float32)])
    twins(bridge, 'sup_scaled', (results[0], drift, scale), [np.empty(50, dtype=np.float32)])
    times = np.ceil(rng.exponential(30, (20, 12)))
    state = rng.choice(np.array([0, 1, 1, 1, 2], dtype=np.int8), (20, 12))
    times[state == 0] = 0.0
    state[:5][state[:5] == grid.CENSORED] = grid.OBSERVED
    outs = [*(np.empty(20) for _ in range(3)), np.empty((20, 4))]
    twins(grid, 'unit_rmst', (times, state, np.repeat(np.arange(4), 3), 4, 40.0), outs, slack=1e-12)


@needs_both
def test_a_comparison_says_the_same_on_either_back_end(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    rows = [
        f'p{p},t{i % 2},{i},{int(rng.random() < 0.6 + 0.2 * p)},{rng.exponential(20):.2f}'
        for p in range(2)
        for i in range(60)
    ]
    (tmp_path / 'r.csv').write_text('policy,task,seed,success,duration_s\n' + '\n'.join(rows) + '\n')
    answers = []
    for asked in (compiled.COMPILED, compiled.NUMPY):
        ran = subprocess.run(
            [sys.executable, '-m', 'robotrials', 'compare', 'r.csv', '--format', 'json', '--resamples', '200'],
            cwd=tmp_path, env={**os.environ, compiled.VARIABLE: asked}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        answers.append(json.loads(ran.stdout))
    assert answers[0] == answers[1]
