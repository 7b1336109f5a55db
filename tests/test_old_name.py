"""What was made when the project had another name still opens: plans, packages, settings, environments."""

from __future__ import annotations

import importlib
import json
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from robotrials import old_name
from robotrials.catalog import Catalog, load_attribute
from robotrials.run.environment.recipe import environments, find_environment
from robotrials.worlds.cell.checked import checked_cell


def test_a_callable_of_a_saved_plan_is_found_in_its_new_room() -> None:
    assert load_attribute('trialist.cell.checked:checked_cell') is checked_cell


@pytest.mark.parametrize('old', sorted(old_name.MOVED))
def test_every_old_room_leads_to_a_module(old: str) -> None:
    assert importlib.import_module(old_name.current_module(old)).__name__ == old_name.MOVED[old]


def test_a_name_that_only_begins_alike_is_left_alone() -> None:
    assert old_name.current_module('trialist_pebble.format') == 'trialist_pebble.format'


def test_packages_made_for_the_old_name_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {'trialist.hosts': [('ours', 'trialist.cell:TabletopHost'), ('twice', 'old:X')]}
    mine['robotrials.hosts'] = [('twice', 'new:X')]
    installed = EntryPoints([EntryPoint(name, value, group) for group, own in mine.items() for name, value in own])
    monkeypatch.setattr('robotrials.catalog._entry_points', lambda path: installed)
    catalog = Catalog('host', {}, 'robotrials.hosts')
    assert catalog.names() == ('ours', 'twice')
    assert catalog._targets()['twice'] == 'new:X'
    assert load_attribute('robotrials.worlds.cell:TabletopHost') is catalog.load('ours')


def test_an_old_setting_counts_with_a_warning_and_a_new_one_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('ROBOTRIALS_TOKEN', raising=False)
    monkeypatch.setenv('TRIALIST_TOKEN', 'old')
    with pytest.warns(FutureWarning, match='TRIALIST_TOKEN is now called ROBOTRIALS_TOKEN'):
        assert old_name.setting('ROBOTRIALS_TOKEN') == 'old'
    monkeypatch.setenv('ROBOTRIALS_TOKEN', 'new')
    assert old_name.setting('ROBOTRIALS_TOKEN') == 'new'


def test_environments_in_the_old_cache_are_used_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('ROBOTRIALS_ENVIRONMENTS', raising=False)
    monkeypatch.delenv('TRIALIST_ENVIRONMENTS', raising=False)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    folder = tmp_path / 'trialist' / 'environments' / 'libero-0123'
    (folder / 'bin').mkdir(parents=True)
    (folder / 'bin' / 'python').touch()
    record = {'packages': {'numpy': '2'}, 'created_at': '2026-01-01T00:00:00Z'}
    (folder / 'trialist-environment.json').write_text(json.dumps(record), encoding='utf-8')
    (tmp_path / 'robotrials' / 'environments').mkdir(parents=True)
    assert find_environment('libero', '0123').folder == folder
    assert [e.folder for e in environments()] == [folder]
