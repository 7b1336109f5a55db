"""A host's own rules are kept in the provenance of its episodes."""

from __future__ import annotations

from pathlib import Path

from robotrials.record import Provenance, read_store
from robotrials.record.episode import provenance_from_json
from robotrials.run import read_plan, run_trial
from robotrials.run.seam import ProtocolFacts, source_hash
from robotrials.worlds.cell import TabletopHost

PLAN = """
seed = 1
episodes_per_cell = 1
time_cap_s = 0.5
tasks = [{name = "single_block"}]
[host]
use = "tabletop"
[policies.still]
use = "no_op"
[blinding]
enabled = false
"""


def test_the_cells_protocol_is_in_the_provenance_of_its_episodes(tmp_path: Path) -> None:
    (tmp_path / 'trial.toml').write_text(PLAN)
    run_trial(read_plan(tmp_path / 'trial.toml'), tmp_path / 'store', workers=0)
    store = read_store(tmp_path / 'store')
    (episode,) = store.episodes()
    origin = store.provenance(episode.provenance_id)
    assert origin.protocol == TabletopHost().protocol().stated()
    assert origin.protocol['benchmark'] == origin.environment_id == 'tabletop'
    assert origin.protocol['control_rate_hz'] == '20'
    assert origin.simulator.startswith('mujoco ')
    assert origin.config.startswith('plan ')
    assert TabletopHost().protocol() is not None


def test_what_a_host_does_not_know_is_not_stated() -> None:
    stated = ProtocolFacts(benchmark='b', control_rate_hz=12.5, packages={'numpy': '2'}).stated()
    assert stated == {'benchmark': 'b', 'control_rate_hz': '12.5'}


def test_a_predicate_is_known_by_its_source() -> None:
    assert source_hash(test_a_predicate_is_known_by_its_source) != source_hash(
        test_what_a_host_does_not_know_is_not_stated
    )
    assert len(source_hash(ProtocolFacts)) == 16


def test_provenance_without_protocol_keeps_its_id_and_one_with_it_comes_back() -> None:
    assert 'protocol' not in Provenance().as_json()
    stated = Provenance(protocol={'step_cap': '220'})
    assert stated.provenance_id != Provenance().provenance_id
    assert provenance_from_json(stated.as_json(), where='here') == stated
