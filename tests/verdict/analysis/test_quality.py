"""Reports say first what makes results not comparable: assets that are not the originals, protocols that differ."""

from __future__ import annotations

from robotrials.record import Provenance
from robotrials.verdict.analysis.quality import comparability_cautions, protocol_differences

SPATIAL = {'benchmark': 'libero-spatial', 'step_cap': '220', 'assets': 'a1'}


def test_episodes_without_stated_protocol_say_nothing() -> None:
    assert comparability_cautions([]) == ()
    assert comparability_cautions([(Provenance(), 5), (Provenance(protocol=SPATIAL), 3)]) == ()


def test_stand_in_assets_are_named_with_their_share() -> None:
    real, fake = Provenance(protocol=SPATIAL), Provenance(protocol={**SPATIAL, 'assets_note': 'stand-in assets'})
    assert comparability_cautions([(fake, 4)]) == ('All episodes were run with stand-in assets.',)
    assert comparability_cautions([(fake, 1), (real, 3)]) == ('1 of 4 episodes was run with stand-in assets.',)


def test_different_rules_within_a_benchmark_are_named_across_benchmarks_they_are_expected() -> None:
    longer = {**SPATIAL, 'step_cap': '400', 'settling_steps': '10'}
    origins = [(Provenance(protocol=SPATIAL), 2), (Provenance(protocol=longer), 3)]
    (told,) = comparability_cautions(origins)
    assert told == (
        'Episodes of libero-spatial follow different protocols: step cap is 220 (2 episodes), 400 (3 episodes); '
        'settling steps is not stated (2 episodes), 10 (3 episodes).'
    )
    assert len(protocol_differences(origins)) == 2
    other = Provenance(protocol={'benchmark': 'libero-object', 'step_cap': '280'})
    assert comparability_cautions([origins[0], (other, 1)]) == ()
