"""Print `docs/reference/glossary.md`: the definitions that reports carry, and the works they cite."""

from __future__ import annotations

from robotrials.show.phrase import glossary


def page() -> str:
    words = glossary()
    lines = ['# Glossary', '', 'The words of the reports, as they are defined in each of them.', '']
    for definition in sorted(words.definitions.values(), key=lambda d: d.title.lower()):
        source = f' ({definition.source})' if definition.source else ''
        lines += [f'**{definition.title}.** {definition.text}{source}', '']
    lines += ['## Works', '', *(f'- **{key}**: {text}' for key, text in words.references.items())]
    return '\n'.join(lines).rstrip() + '\n'


if __name__ == '__main__':
    print(page(), end='')
