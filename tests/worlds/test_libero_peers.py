"""LIBERO head to head: peers' own harnesses and ours give the same outcomes after the same steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.libero_peers import Arena, Run, playback
from tests.tool import peer_python, tool
from tests.worlds.conftest import made

pytestmark = pytest.mark.hosts

TASKS = {'libero-spatial': (0, 4), 'libero-object': (8,), 'libero-goal': (8,), 'libero-10': (2,)}


@pytest.fixture(scope='module')
def arena(libero_assets: Path) -> Arena:
    return Arena(made('libero'), libero_assets)


@pytest.fixture(scope='module')
def actions(arena: Arena, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp('actions') / 'all.npz'
    arena.record(TASKS, file)
    return file


@pytest.fixture(scope='module')
def ours(arena: Arena, actions: Path) -> Run:
    with playback(peer_python('vla-eval'), actions, chunk=5, is_whole=True) as url:
        return arena.ours(TASKS, url, chunk=5)


def test_vla_evals_harness_and_ours_agree(arena: Arena, actions: Path, ours: Run) -> None:
    """Ours looks at every fifth step and measures safety; outcomes and steps are the same all the same."""
    python = peer_python('vla-eval')
    with playback(python, actions, chunk=5, is_whole=False) as url:
        theirs = arena.vla_eval(TASKS, url, next(python.parents[1].glob('lib/python*/site-packages')))
    assert theirs.episodes == ours.episodes
    assert sorted(played.is_success for played in ours.episodes.values()) == [False, False, True, True, True]


@pytest.mark.drift
def test_lerobots_evaluator_and_ours_agree(arena: Arena, actions: Path, ours: Run) -> None:
    overlay = tool('peer_environments').make_overlay('lerobot-eval')
    theirs = arena.lerobot(TASKS, actions, made('lerobot-0.6'), overlay)
    assert theirs.episodes == ours.episodes
