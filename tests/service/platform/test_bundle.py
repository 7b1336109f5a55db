import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robotrials.errors import InputError, RecordError
from robotrials.record import Episode, trajectories_equal
from robotrials.run.plan import PolicyEntry
from robotrials.service.platform.bundle import bundle_digest, pack_bundle, unpack_bundle
from robotrials.service.platform.job import Job, job_from_json, read_benchmark
from robotrials.testing.strategies import episodes, trajectories
from robotrials.wire import WireLimits, pack, unpack

EPISODE = Episode(policy='A', task='pick', outcome='success', duration_s=2.0, labels={'a': 'b'})
PLAN = """
seed = 7
host = 'point-mass'
tasks = ['reach', 'push']
time_cap_s = 2.0
episodes_per_cell = 3
"""


@given(episodes(), trajectories() | st.none())
@settings(max_examples=40)
def test_a_bundle_gives_back_what_was_packed(episode, trajectory):
    data = pack_bundle(
        episode, trajectory=trajectory, media={f'faults/{episode.episode_id}-{episode.attempt}.txt': b'x'}
    )
    bundle = unpack_bundle(data)
    assert bundle.episode == episode
    assert (bundle.trajectory is None) == (trajectory is None)
    assert trajectory is None or trajectories_equal(bundle.trajectory, trajectory)
    assert bundle.digest == bundle_digest(data)


@pytest.mark.parametrize(
    'name',
    ['../trial.json', '/etc/passwd', 'a/../../b', '', 'episodes/other-0/film.mp4', 'faults/other-0.txt', 'x.mp4'],
)
def test_files_outside_the_episodes_own_folder_are_refused(name):
    with pytest.raises(InputError, match='media'):
        pack_bundle(EPISODE, media={name: b''})
    values = unpack(pack_bundle(EPISODE))
    with pytest.raises(InputError, match='media'):
        unpack_bundle(pack({**values, 'media': {name: b''}}))


@pytest.mark.parametrize(
    ('field', 'value'),
    [
        ('outcome', 'splendid'), ('duration_s', -1.0), ('duration_s', float('nan')), ('policy', ''), ('policy', 3),
        ('attempt', True), ('labels', {'a': 3}), ('started_at', 'yesterday'), ('unknown', 1), ('events', []),
        ('seed', 2**64 - 1),
    ],
)  # fmt: skip
def test_an_episode_that_breaks_a_rule_is_refused(field, value):
    values = unpack(pack_bundle(EPISODE))
    with pytest.raises(InputError):
        unpack_bundle(pack({**values, 'episode': {**values['episode'], field: value}}))


@pytest.mark.parametrize(
    'change', [{'version': 2}, {'more': 1}, {'events': [1]}, {'trajectory': b'no parquet'}, {'media': {'a': 'text'}}]
)
def test_a_malformed_bundle_is_refused(change):
    with pytest.raises(InputError):
        unpack_bundle(pack({**unpack(pack_bundle(EPISODE)), **change}))


@given(st.binary(max_size=300))
def test_rubbish_is_refused(data):
    with pytest.raises(InputError):
        unpack_bundle(data)


def test_a_trajectory_of_another_episode_is_refused():
    from robotrials.record import Trajectory

    other = EPISODE.replace(attempt=1)
    values = unpack(pack_bundle(other, trajectory=Trajectory(time_s=np.arange(1.0, 4.0))))
    own = unpack(pack_bundle(EPISODE))
    with pytest.raises(RecordError, match='attempt 1'):
        unpack_bundle(pack({**own, 'trajectory': values['trajectory']}))


def test_a_small_file_that_unfolds_into_a_large_one_is_refused_before_it_is_read():
    table = pa.table({'episode_id': ['x'], 'attempt': [0], 'scene': ['{}'], 'time_s': [np.zeros(1_000_000)]})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression='zstd')
    assert len(sink.getvalue()) < 20_000
    values = unpack(pack_bundle(EPISODE))
    with pytest.raises(InputError, match='unfolds'):
        unpack_bundle(pack({**values, 'trajectory': sink.getvalue()}), limits=WireLimits(max_bytes=1 << 20))


def test_server_and_worker_derive_the_same_planned_episode_from_a_job():
    job = Job(job_id='j', plan=read_benchmark(PLAN).as_json(), slot=4, attempt=1, code='arm-1')
    again = job_from_json(job.as_json())
    assert again == job
    assert again.planned() == job.planned()
    assert job.planned().policy == 'arm-1'
    assert job.planned().attempt == 1


def test_a_dialled_job_comes_back_as_it_was():
    dial = PolicyEntry('openpi', {'url': 'ws://127.0.0.1:8000'})
    job = Job(job_id='j', plan=read_benchmark(PLAN).as_json(), slot=0, attempt=0, code='a', dial=dial)
    assert job_from_json(job.as_json()) == job


def test_submissions_meet_the_same_start_states_under_different_ids():
    plan = read_benchmark(PLAN).as_json()
    seen = [[Job(job_id='j', plan=plan, slot=n, attempt=0, code=code) for n in range(6)] for code in ('a', 'b')]
    assert [j.planned().seed for j in seen[0]] == [j.planned().seed for j in seen[1]]
    assert [j.loop_seed for j in seen[0]] == [j.loop_seed for j in seen[1]]
    assert len({j.planned().episode_id for jobs in seen for j in jobs}) == 12


@pytest.mark.parametrize('extra', ['reference = "a"', '[policies.a]\nuse = "scripted"', '[stopping]\nrule = "none"'])
def test_a_benchmark_names_no_policies(extra):
    with pytest.raises(InputError, match='submissions'):
        read_benchmark(PLAN + extra)


def test_a_bit_that_aborts_the_parquet_library_is_an_error_in_words():
    """The file ended the process that read it: an exception in the library that Python cannot catch."""
    flipped = (Path(__file__).parent / 'corpus' / 'trajectory-one-bit-flipped.parquet').read_bytes()
    values = unpack(pack_bundle(EPISODE))
    with pytest.raises(InputError, match=r'cannot be read: its parser died \(SIGABRT\)'):
        unpack_bundle(pack({**values, 'trajectory': flipped}))
