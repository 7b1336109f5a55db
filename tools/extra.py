"""Print the requirements of an extra of pyproject.toml, one per word: `python tools/extra.py docs`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(extra: str) -> list[str]:
    text = (Path(__file__).resolve().parent.parent / 'pyproject.toml').read_text(encoding='utf-8')
    return list(tomllib.loads(text)['project']['optional-dependencies'][extra])


if __name__ == '__main__':
    print(*requirements(sys.argv[1]))
