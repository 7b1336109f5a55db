"""What the numbers of a report mean, and the works that they come from; the words are in `data/glossary.toml`."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

from robotrials.errors import UnknownName
from robotrials.show.document import Definition


@dataclass(frozen=True, slots=True)
class Glossary:
    """Definitions by key, and the full citations that they name."""

    definitions: Mapping[str, Definition]
    references: Mapping[str, str]

    def of(self, keys: Iterable[str]) -> dict[str, Definition]:
        """The definitions of these keys, by title."""
        chosen = {}
        for key in keys:
            if key not in self.definitions:
                raise UnknownName('definition', key, self.definitions)
            chosen[key] = self.definitions[key]
        return dict(sorted(chosen.items(), key=lambda item: item[1].title.lower()))

    def cited(self, found: Iterable[Definition], *, also: Iterable[str] = ()) -> dict[str, str]:
        """The citations behind some definitions, and of further works, in the order of the list of references."""
        wanted = {d.source for d in found} | set(also)
        return {key: text for key, text in self.references.items() if key in wanted}


@functools.cache
def glossary() -> Glossary:
    text = (resources.files('robotrials.show') / 'data' / 'glossary.toml').read_text(encoding='utf-8')
    values = tomllib.loads(text)
    return Glossary({k: Definition(**v) for k, v in values['definitions'].items()}, values['references'])
