"""What is printed and drawn of a shortcut diagnosis."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from typer.testing import CliRunner

from robotrials.cli import full_app
from robotrials.show.plot_paper import paint_paper
from robotrials.show.shortcut import (
    CANNOT_SAY,
    checkpoint_table,
    gap_table,
    input_table,
    paper_score_table,
    shortcut_plot,
    shortcut_words,
    task_table,
)
from robotrials.testing.scene import write_shortcut
from robotrials.verdict.audit import Shortcut, read_shortcut


@pytest.fixture(scope='module')
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp('shortcut') / 'shortcut.json'
    write_shortcut(made)
    return made


@pytest.fixture(scope='module')
def found(path: Path) -> Shortcut:
    return read_shortcut(path)


def test_the_words_say_score_choice_gap_and_inputs(found: Shortcut) -> None:
    words = shortcut_words(found)
    assert 'a probe of 0.41 M parameters with no language encoder reaches 93.4 %' in words
    assert 'the best of 4 checkpoints, chosen on the test itself' in words
    assert 'at its last step, it reaches 91.8 %' in words
    assert 'The best reported score is 96.4 % (the best), +3.0' in words
    assert 'Without the right task the probe loses 1.4 [-1.0, 3.9] points: the score does not need it.' in words
    assert CANNOT_SAY in words


def test_an_unprovable_difference_is_said_in_those_words(found: Shortcut) -> None:
    from robotrials.verdict.audit.reported import ProbeStanding

    gaps = tuple(dataclasses.replace(g, standing=ProbeStanding.NOT_PROVABLE) for g in found.gaps)
    assert 'the difference is not provable' in shortcut_words(dataclasses.replace(found, gaps=gaps))


def test_mid_motion_deviations_and_what_was_not_run_are_said(found: Shortcut) -> None:
    changed = dataclasses.replace(
        found, probe=dataclasses.replace(found.probe, mid_motion=120), deviations=('5 of 10 tasks',),
        not_run=('shuffled: one task',),
    )  # fmt: skip
    words = shortcut_words(changed)
    assert '120 of 500 demonstrations begin in mid-motion' in words
    assert 'Not the official protocol: 5 of 10 tasks.' in words
    assert 'Not run: shuffled: one task.' in words


def test_tables_hold_the_values(found: Shortcut) -> None:
    best = next(row for row in gap_table(found).rows if row[0] == 'best' and row[2] == 'best')
    assert best[1] == pytest.approx(93.4)
    assert best[6] == pytest.approx(3.0)
    assert [row[-1] for row in checkpoint_table(found).rows] == ['', '', 'best', 'final']
    assert [row[-1] for row in input_table(found).rows] == ['needed', 'needed', 'not needed']
    assert len(task_table(found).rows) == 10
    assert len(paper_score_table().rows) == 22


def test_the_figure_shows_every_checkpoint_and_variant(found: Shortcut) -> None:
    left, right = paint_paper(shortcut_plot(found)).axes
    assert [t.get_text() for t in left.get_xticklabels()] == ['10000', '20000', '30000', '40000']
    assert [t.get_text() for t in right.get_xticklabels()] == ['full', 'blind', 'proprioception', 'shuffled']


def test_the_paper_and_a_result_are_tables_by_name(path: Path) -> None:
    runner, app = CliRunner(), full_app()
    listed = runner.invoke(app, ['audit', 'shortcut', '--paper', '--format', 'csv'])
    assert listed.exit_code == 0
    assert 'LIBERO Long,92.4,best,CORAL (SimVLA),0.8B,98.8,6.4,+6.4,provably below' in listed.stdout.replace("'", '')
    named = runner.invoke(app, ['tables', 'shortcut-inputs', str(path)])
    assert named.exit_code == 0
    assert 'not needed' in named.stdout


def test_the_command_says_what_it_wants() -> None:
    runner, app = CliRunner(), full_app()
    for arguments, said in (
        ([], 'wanted a TOML plan or the name of a host'),
        (['tabeltop'], "did you mean 'tabletop'"),
        (['absent.toml'], 'cannot be read'),
        (['absent.toml', '--task', 'x'], '--task goes with the name of a host'),
    ):
        result = runner.invoke(app, ['audit', 'shortcut', *arguments])
        assert result.exit_code != 0
        assert said in str(result.exception)
