"""A benchmark card: nothing passes by being left out, and every part says what it found."""

from dataclasses import replace

import pytest

from robotrials.show.audit_data import alteration_table, card_document
from robotrials.show.document import Missing, render_document
from robotrials.verdict.audit.card import (
    BenchmarkCard,
    CardStanding,
    DeterminismCheck,
    significance_cutoffs,
)
from robotrials.verdict.audit.datasource import DataSource, SourcePoint, SourceProtocol
from robotrials.verdict.audit.determinism import Grade, Graded, ReproductionTarget
from robotrials.verdict.audit.overfit import Alteration, ChangeKind, Overfit, TrainingCount
from robotrials.verdict.audit.topline import Protocol, topline

EMPTY = BenchmarkCard(host='tabletop', title='tabletop', version='0', rules={}, tasks=('a', 'b'))


def row(low, change='poses'):
    return Alteration(
        policy='p', change=change, kind=ChangeKind.ALTERED, successes=(20.0, 10.0), n=(24, 24), n_starts=(24, 24),
        low=low, high=0.6, family_low=low, family_high=0.7,
    )  # fmt: skip


def point(asked_m, successes):
    return SourcePoint(
        task='a', asked_m=asked_m, n_demonstrations=5, n_tried=5, outcomes=(1,) * successes + (0,) * (12 - successes),
        nearest_m=(asked_m,) * 12, nearest_deg=(1.0,) * 12, n_same=0, n_leaked=0,
    )  # fmt: skip


def overfit_of(*rows, training=None):
    return Overfit(host='tabletop', task='a', level=0.95, rows=rows, training=training)


def finding(card, part):
    return next(f for f in card.findings() if f.part == part)


def made(**parts):
    return BenchmarkCard(host='tabletop', title='tabletop', version='0', rules={}, tasks=('a',), **parts)


def test_an_empty_card_passes_nothing():
    findings = EMPTY.findings()
    assert {f.standing for f in findings} == {CardStanding.NOT_RUN}
    assert EMPTY.standing() == 'Of 5 parts, 5 were not run.'


def test_a_part_that_broke_is_said_to_have_broken():
    card = made(failures={'determinism': 'the host died'})
    assert finding(card, 'determinism').standing is CardStanding.NOT_RUN
    assert 'the host died' in finding(card, 'determinism').text


def test_overfitting_is_a_weakness_only_where_it_was_counted():
    counted = TrainingCount(total=10, counts={'official': 4, 'poses': 4}, basis='starts')
    part = 'creeping overfitting'
    assert finding(made(overfit=overfit_of(row(0.1), training=counted)), part).standing is CardStanding.WEAK
    assert finding(made(overfit=overfit_of(row(0.1))), part).standing is CardStanding.OPEN
    assert finding(made(overfit=overfit_of(row(-0.1))), part).standing is CardStanding.SOUND


def test_no_drop_where_the_target_stayed_is_no_sign_of_soundness():
    still = replace(overfit_of(row(-0.1)), still=('poses',), starts={'poses': 'the target starts 0.0 mm away'})
    told = finding(made(overfit=still), 'creeping overfitting')
    assert told.standing is CardStanding.OPEN
    assert 'Under poses the target stays where it was, and no drop there says nothing.' in told.text
    assert 'Starts of poses: the target starts 0.0 mm away.' in str(alteration_table(still).note)


def test_a_fall_with_distance_is_a_weakness_and_one_distance_settles_nothing():
    protocol = SourceProtocol(host='tabletop', learner='lookup', seed=1)
    part = 'data-source dependence'
    falls = DataSource(protocol=protocol, points=(point(0.0, 12), point(0.1, 0)))
    assert finding(made(datasource=falls), part).standing is CardStanding.WEAK
    stays = DataSource(protocol=protocol, points=(point(0.0, 10), point(0.1, 10)))
    assert finding(made(datasource=stays), part).standing is CardStanding.OPEN
    alone = DataSource(protocol=protocol, points=(point(0.0, 12),))
    assert finding(made(datasource=alone), part).standing is CardStanding.OPEN


def test_cutoffs_are_those_of_topline():
    found = significance_cutoffs(Protocol(10, 50), source='preset')
    gaps = found.row_at(90)
    could = topline(450, 450 + gaps.smallest_feasible, tasks=10, samples=50, unit='count').classification
    below = topline(450, 450 + gaps.smallest_feasible - 1, tasks=10, samples=50, unit='count').classification
    assert (str(could), str(below)) == ('inconclusive', 'impossible')


@pytest.mark.parametrize(
    ('grades', 'standing'),
    [
        ((Grade.MET,) * 4, CardStanding.SOUND),
        ((Grade.NOT_MET, Grade.MET, Grade.MET, Grade.MET), CardStanding.WEAK),
        ((Grade.NOT_SHOWN,) * 4, CardStanding.OPEN),
    ],
)
def test_determinism_is_graded_by_what_was_shown(grades, standing):
    check = DeterminismCheck(
        contrast='same hardware', control='bitwise identical', n_episodes=2, policy='p', is_closed_loop=True,
        lacking=(),
        grades=tuple(Graded(t, g, 'e') for t, g in zip(ReproductionTarget, grades, strict=True)),
    )  # fmt: skip
    assert finding(made(determinism=check), 'determinism').standing is standing


def test_a_page_says_what_was_not_run_and_how_to_run_it():
    document = card_document(EMPTY)
    missing = [b for s in document.sections for b in s.blocks if isinstance(b, Missing)]
    assert len(missing) == 6  # five parts and the rules
    for form in ('html', 'md', 'json', 'latex'):
        text = render_document(document, form)
        assert 'not run' in text.lower()
        assert 'robotrials audit overfit' in text or 'robotrials audit overfit' in text.replace('\\', '')


def test_a_full_page_renders():
    falls = DataSource(
        protocol=SourceProtocol(host='tabletop', learner='lookup', seed=1), points=(point(0.0, 12), point(0.1, 0))
    )
    card = made(
        datasource=falls, overfit=overfit_of(row(0.1)), significance=significance_cutoffs(Protocol(14, 50), source='s')
    )
    text = render_document(card_document(card), 'html')
    assert '12/12' in text
    assert 'cause open' in text
