"""The plans that the how-to pages show can be read, and their policies made."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from robotrials.policies.mapping import read_mapping
from robotrials.run.component import POLICIES

PAGES = Path(__file__).resolve().parents[2] / 'docs' / 'how-to'


def shown() -> list[tuple[str, str, dict[str, Any]]]:
    """Page, policy and table of every [policies.NAME] that a page shows."""
    found = []
    for page in sorted(PAGES.glob('*.md')):
        for block in re.findall(r'```toml\n(.*?)```', page.read_text(encoding='utf-8'), flags=re.DOTALL):
            for name, entry in tomllib.loads(block).get('policies', {}).items():
                if 'options' in entry and entry.get('use') in SERVED:
                    found.append((page.stem, name, entry))
    return found


SERVED = ('openpi', 'roboarena', 'groot', 'openvla', 'vla-eval', 'positronic', 'lerobot', 'vlm')


def test_every_wire_has_a_page() -> None:
    assert {entry['use'] for _, _, entry in shown()} >= set(SERVED) - {'roboarena'}


@pytest.mark.parametrize(('page', 'name', 'entry'), shown(), ids=lambda value: value if isinstance(value, str) else '')
def test_a_shown_policy_can_be_made(
    page: str, name: str, entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(entry['options'])
    for key, variable in options.items():
        if key.endswith('_variable') and variable:
            monkeypatch.setenv(variable, 'x')
    if entry['use'] == 'lerobot':
        read_mapping(**{key: options[key] for key in ('preset', 'observation', 'action') if key in options})
        return
    maker: Any = POLICIES.load(entry['use'])
    maker(**options).close()
