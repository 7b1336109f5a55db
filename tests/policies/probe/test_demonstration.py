from __future__ import annotations

import json
import re
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.policies.probe.build import CONVENTION, TASKS, make_demonstrations

from robotrials.errors import InputError, WriteError
from robotrials.policies.probe import DemonstrationWriter, EpisodeFacts, read_demonstrations


def writer(folder: Path) -> DemonstrationWriter:
    return DemonstrationWriter(folder, action=CONVENTION, control_rate_hz=10.0, source={'kind': 'made'})


def arrays(steps: int = 4, **changes: np.ndarray) -> dict[str, object]:
    made = {'images': {'top': np.zeros((steps, 8, 8, 3), np.uint8)}, 'state': np.zeros((steps, 2))}
    return {**made, 'action': np.zeros((steps, 3)), **changes}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    made = make_demonstrations(tmp_path / 'demos')
    assert (made.n_episodes, made.n_steps) == (8, len(made.state))
    assert made.facts.tasks == TASKS
    assert made.facts.phrasings == {f'please {task}': task for task in TASKS}
    assert [e.seed for e in made.facts.episodes] == list(range(8))
    assert made.facts.action == CONVENTION
    for e, (start, end) in enumerate(zip(made.starts[:-1], made.starts[1:], strict=True)):
        assert end - start == 6 + e % 3
        assert (made.task[start:end] == e % 2).all()
        assert made.start_state is not None
        row = int(made.start_state[e, 0])
        np.testing.assert_array_equal(made.images['top'][start, row, 5], [255, 255, 255])
    assert isinstance(made.images['top'], np.memmap)
    again = read_demonstrations(tmp_path / 'demos')
    assert (again.facts, again.digest) == (made.facts, made.digest)
    again.verify()


def test_equal_demonstrations_have_equal_digests_and_others_do_not(tmp_path: Path) -> None:
    first, same, other = (make_demonstrations(tmp_path / n, seed=s) for n, s in (('a', 0), ('b', 0), ('c', 1)))
    assert first.digest == same.digest != other.digest


def test_an_unfinished_writer_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match='power'), writer(tmp_path / 'demos') as draft:
        draft.append(EpisodeFacts(task='a'), **arrays())  # type: ignore[arg-type]
        raise RuntimeError('the power went')
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(WriteError, match='cannot be written'), writer(tmp_path / 'demos') as draft:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
            draft.append(EpisodeFacts(task='a'), **arrays(steps=400))  # type: ignore[arg-type]
            draft.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_no_demonstrations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='no demonstration was kept'), writer(tmp_path / 'demos') as draft:
        draft.finish()


def test_a_folder_is_never_written_over(tmp_path: Path) -> None:
    make_demonstrations(tmp_path / 'demos')
    with pytest.raises(InputError, match='already exists'):
        make_demonstrations(tmp_path / 'demos')


def test_a_changed_picture_is_found(tmp_path: Path) -> None:
    made = make_demonstrations(tmp_path / 'demos')
    path = tmp_path / 'demos' / 'images_top.npy'
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r'images_top\.npy.*changed'):
        made.verify()


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'action': np.zeros((4, 2))}, 'actions of shape'),
        ({'action': np.full((4, 3), np.nan)}, 'action holds numbers that are not finite'),
        ({'state': np.zeros((3, 2))}, 'wanted 4 steps'),
        ({'images': {'top': np.zeros((4, 8, 8, 3))}}, 'wanted uint8'),
        ({'images': {'../top': np.zeros((4, 8, 8, 3), np.uint8)}}, 'a camera is named'),
    ],
)
def test_a_bad_episode_is_refused(tmp_path: Path, changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message), writer(tmp_path / 'demos') as draft:
        draft.append(EpisodeFacts(task='a'), **arrays(**changes))  # type: ignore[arg-type]


def test_episodes_of_another_shape_or_camera_are_refused(tmp_path: Path) -> None:
    with writer(tmp_path / 'demos') as draft:
        draft.append(EpisodeFacts(task='a'), **arrays())  # type: ignore[arg-type]
        with pytest.raises(InputError, match='per step'):
            draft.append(EpisodeFacts(task='a'), **arrays(state=np.zeros((4, 5))))  # type: ignore[arg-type]
        with pytest.raises(InputError, match='cameras'):
            draft.append(EpisodeFacts(task='a'), **arrays(images={}))  # type: ignore[arg-type]
        assert draft.finish().n_episodes == 1


def test_words_that_ask_for_two_tasks_are_refused(tmp_path: Path) -> None:
    with writer(tmp_path / 'demos') as draft:
        draft.append(EpisodeFacts(task='a', instruction='Go.'), **arrays())  # type: ignore[arg-type]
        with pytest.raises(InputError, match='asks for task'):
            draft.append(EpisodeFacts(task='b', instruction='go'), **arrays())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ('name', 'array', 'message'),
    [
        ('starts', np.array([0, 3]), 'starts.npy'),
        ('task', np.full(3, 7), 'task.npy holds 7'),
        ('action', np.zeros((5, 3), np.float32), 'state has'),
    ],
)
def test_files_that_do_not_fit_together_are_named(
    tmp_path: Path, name: str, array: np.ndarray, message: str
) -> None:  # fmt: skip
    made = make_demonstrations(tmp_path / 'demos')
    np.save(tmp_path / 'demos' / f'{name}.npy', np.resize(array, made.n_steps) if name == 'task' else array)
    with pytest.raises(InputError, match=message):
        read_demonstrations(tmp_path / 'demos')


@pytest.mark.parametrize(
    ('name', 'change', 'message'),
    [
        ('state', lambda a: a[:, 0], 'wanted (N, S)'),
        ('task', lambda a: np.stack([a, a], axis=1), 'wanted (N, S) and (N,)'),
        ('task', lambda a: 1 - a, 'another task than its episode has'),
        ('images_top', lambda a: a[..., 0], 'wanted (N, H, W, 3)'),
        ('images_top', lambda a: a[:, :0], 'wanted (N, H, W, 3)'),
    ],
)
def test_arrays_of_another_shape_or_meaning_are_refused(
    tmp_path: Path, name: str, change: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    make_demonstrations(tmp_path / 'demos')
    path = tmp_path / 'demos' / f'{name}.npy'
    np.save(path, change(np.load(path)))
    with pytest.raises(InputError, match=re.escape(message)):
        read_demonstrations(tmp_path / 'demos')


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'episodes': [1]}, 'wanted a table'),
        ({'episodes': []}, 'no demonstration is in it'),
        ({'phrasings': {'go': 'nowhere'}}, "of task 'nowhere'"),
        ({'tasks': ['left', 'right', 'right']}, 'wanted each once'),
        ({'control_rate_hz': 0}, 'control_rate_hz is 0.0, wanted > 0'),
        ({'state_layout': ['x']}, 'state_layout names 1'),
    ],
)
def test_facts_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    make_demonstrations(tmp_path / 'demos')
    path = tmp_path / 'demos' / 'facts.json'
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=message):
        read_demonstrations(tmp_path / 'demos')


def test_an_array_without_a_digest_or_a_digest_without_its_file_is_no_proof(tmp_path: Path) -> None:
    made = make_demonstrations(tmp_path / 'demos')
    path = tmp_path / 'demos' / 'facts.json'
    facts = json.loads(path.read_text())
    for digests, message in (({}, 'no digest of state.npy'), ({**facts['digests'], 'gone.npy': '00'}, 'gone.npy')):
        path.write_text(json.dumps({**facts, 'digests': digests}))
        with pytest.raises(InputError, match=message):
            read_demonstrations(made.folder).verify()


def test_missing_or_foreign_facts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='wanted a folder of demonstrations'):
        read_demonstrations(tmp_path)
    make_demonstrations(tmp_path / 'demos')
    path = tmp_path / 'demos' / 'facts.json'
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, 'version': 2}))
    with pytest.raises(InputError, match='version 1'):
        read_demonstrations(tmp_path / 'demos')
    path.write_text(json.dumps({**facts, 'cameras': ['top', 'side']}))
    with pytest.raises(InputError, match=r'images_side\.npy'):
        read_demonstrations(tmp_path / 'demos')
