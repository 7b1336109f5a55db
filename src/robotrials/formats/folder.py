"""A folder of files that are each a source of their own, such as one table per policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from robotrials.errors import InputError
from robotrials.formats.imported import POSSIBLE, FieldGuess, Imported, ImportOptions, Ledger, Question, Recording
from robotrials.formats.peek import listed

MOST_LOOKED_AT = 50


class FolderFormat:
    """Every file of a folder that some format knows; formats that know the folder itself are surer and go first."""

    name = 'folder'
    summary = 'a folder of files that are each one of the others, such as one table per policy'

    def recognise(self, path: Path) -> float | None:
        if not path.is_dir() or (path / 'trial.json').exists():
            return None
        files = [file for file in listed(path) if file.is_file()][:MOST_LOOKED_AT]
        return POSSIBLE / 2 if any(_is_known(file) for file in files) else None

    def read(self, path: Path, options: ImportOptions) -> Imported:
        from robotrials.formats.catalog import open_here

        ledger = Ledger()
        opened: list[tuple[Path, Imported]] = []
        for entry in listed(path):
            if entry.is_file() and _is_known(entry):
                opened.append((entry, open_here(entry, replace(options, folder=path.resolve().name))))
            else:
                ledger.drop(f'{entry.name}', None, why='a folder' if entry.is_dir() else 'of no known format')
        if not opened:
            raise InputError(f'{path}: no file in it has a known format')
        questions: dict[str, Question] = {q.key: q for _, imported in opened for q in imported.questions}

        def recordings() -> Iterator[Recording]:
            for _, imported in opened:
                yield from imported.recordings()
                ledger.add(imported.ledger)

        everywhere = set.intersection(*({(g.field, g.source) for g in imported.guesses} for _, imported in opened))
        guesses = dict.fromkeys(
            guess if (guess.field, guess.source) in everywhere
            else FieldGuess(guess.field, f'{file.name}: {guess.source}', guess.change)
            for file, imported in opened for guess in imported.guesses
        )  # fmt: skip
        return Imported(
            format=self.name,
            sources=tuple(source for _, imported in opened for source in imported.sources),
            recordings=recordings,
            ledger=ledger,
            guesses=tuple(guesses),
            questions=tuple(questions.values()),
        )


FOLDER = FolderFormat()


def _is_known(file: Path) -> bool:
    from robotrials.formats.catalog import candidates

    return bool(candidates(file))
