"""What to type instead: a command for whoever mistyped one, made of the words that they gave."""

from __future__ import annotations

import contextlib
import difflib
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from robotrials.errors import RobotrialsError

if TYPE_CHECKING:
    from robotrials.formats.imported import FixableError, ImportOptions, Question
    from robotrials.record import Store

# What other tools call it.
OTHER_NAMES = {
    'analyze': 'compare', 'analyse': 'compare', 'stats': 'compare', 'eval': 'compare', 'evaluate': 'compare',
    'summary': 'score', 'summarize': 'score', 'show': 'score', 'results': 'score', 'view': 'explore', 'open': 'explore',
    'load': 'doctor', 'read': 'doctor', 'check': 'doctor', 'info': 'doctor', 'inspect': 'doctor', 'html': 'report',
    'init': 'plan', 'new': 'plan', 'start': 'run', 'table': 'tables', 'figure': 'plot',
}  # fmt: skip
# Options of `import` that say how a file is read: an asking verb has a store read so.
READING = frozenset({'--map', '--answer', '--value', '--blank', '--group-by', '--rate-hz', '--map-file', '--as'})
SETTINGS = {'--metric': 'primary', '--endpoint': 'primary', '--bootstrap': 'resamples', '--n-boot': 'resamples'}
FILES = ('.csv', '.tsv', '.xlsx', '.json', '.jsonl', '.parquet', '.yaml', '.md')


def command_instead(error: Any, argv: Sequence[str], verbs: Collection[str]) -> str:
    """The line that says what to try; `error` is what the command line's parser raised."""
    words = list(argv)
    kind, option = type(error).__name__, getattr(error, 'option_name', None)
    verb = next((word for word in words if word in verbs), '')
    tried = ''
    if kind == 'NoSuchOption' and option:
        tried = _other_option(words, verb, option, getattr(error, 'possibilities', None) or ())
    elif kind == 'MissingParameter' and getattr(error.param, 'param_type_name', '') == 'argument' and verb:
        tried = _gated() if verb == 'gate' else _with_a_source(error, words)
    elif 'unexpected extra argument' in str(error.format_message()) and verb in ('report', 'import', 'export'):
        tried = _with_output(words, verb)
    elif words and not verb:
        tried = _other_verb(words, verbs)
    refused_by = _command_path(error) or ([verb] if verb else [])
    return f'Try: robotrials {tried or shlex.join([*refused_by, "--help"])}'


def _command_path(error: Any) -> list[str]:
    """The verb that refused, and its subcommand."""
    path: list[str] = []
    context = error.ctx
    while context is not None and context.parent is not None:
        path.insert(0, context.info_name)
        context = context.parent
    return path


def _other_verb(words: list[str], verbs: Collection[str]) -> str:
    first, rest = words[0], words[1:]
    if Path(first).exists():
        return shlex.join(['compare', *words])
    if first in ('help', 'version'):
        return '--version' if first == 'version' else shlex.join([*rest[:1], '--help'])
    near = OTHER_NAMES.get(first) or next(iter(difflib.get_close_matches(first, sorted(verbs), n=1)), '')
    return shlex.join([near, *rest]) if near else ''


def _other_option(words: list[str], verb: str, option: str, possible: Sequence[str]) -> str:
    place = next((i for i, word in enumerate(words) if word.split('=')[0] == option), None)
    source = next((word for word in words[1:] if Path(word).exists()), None)
    if place is None or not verb:
        return shlex.join([possible[0]]) if possible else ''
    after = words[place + 1 :]
    if source is not None and (option in READING or (verb, option) == ('doctor', '--set')):
        if (Path(source) / 'trial.json').is_file():
            return ''  # a store has been read already
        return _read_so(words, source, {*READING, option})
    if option in SETTINGS and after:
        return shlex.join([*words[:place], '--set', f'{SETTINGS[option]}={after[0]}', *after[1:]])
    if option in ('-o', '--output') and source is not None and after:
        return shlex.join(['report', source, '-o', after[0]])
    near = difflib.get_close_matches(option, possible, n=1, cutoff=0.7)
    if not near:
        return ''
    values = after[0].split(',') if after and ',' in after[0] else after[:1]
    return shlex.join([*words[:place], *(part for value in values for part in (near[0], value)), *after[1:]])


def _read_so(words: list[str], source: str, reading: Collection[str]) -> str:
    """Import with the options that say how, then ask the store."""
    store = f'{Path(source).stem}-store'
    how: list[str] = []
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if word.split('=')[0] in reading:
            how += [word] if word.startswith('--') and '=' in word else [word, next(waiting, '')]
        else:
            rest.append(store if word == source else word)
    return f'{shlex.join(["import", source, "--to", store, *how])} && {shlex.join(["robotrials", *rest])}'


def _with_a_source(error: Any, words: Sequence[str]) -> str:
    """The same words on what lies here, where a source or a store is all that is missing."""
    required = [p for p in error.ctx.command.params if p.required and p.param_type_name == 'argument']
    takes_files = error.param.metavar == 'SOURCE'
    if len(required) != 1 or not (takes_files or error.param.name == 'store'):
        return ''
    sources = _stores_here()
    if takes_files:
        sources += [path for path in sorted(Path().iterdir()) if path.suffix.lower() in FILES]
    return shlex.join([*words, str(sources[0])]) if sources else ''


def _stores_here() -> list[Path]:
    return [path for path in sorted(Path().iterdir()) if (path / 'trial.json').is_file()]


def _gated() -> str:
    """Two policies of a store that lies here; a gate wants both."""
    from robotrials.record import read_store

    for path in _stores_here():
        with contextlib.suppress(RobotrialsError):
            names = tested_policies(read_store(path))
            if len(names) > 1:
                return gate_words(path, names[1], names[0])
    return ''


def tested_policies(store: Store) -> list[str]:
    """The policies of a store by name; none of a trial that is still blinded, whose arms no gate compares."""
    return [] if store.is_blinded else sorted({episode.policy for episode in store.episodes()})


def gate_words(source: Path, candidate: str, baseline: str) -> str:
    """The gate of one policy of a source against another of it."""
    named = ['--policy', candidate, '--baseline-policy', baseline]
    return shlex.join(['gate', str(source), '--baseline', str(source), *named])


def _with_output(words: list[str], verb: str) -> str:
    plain = [i for i, word in enumerate(words) if not word.startswith('-')]
    if len(plain) != 3:  # the verb, its source, and where to
        return ''
    flag = {'import': '--to', 'export': '-o', 'report': '-o'}[verb]
    return shlex.join([*words[: plain[2]], flag, words[plain[2]], *words[plain[2] + 1 :]])


# What a source leaves open, put to whoever sits at the terminal: its questions, and remedies that are run on "y".


def is_terminal() -> bool:
    """Whether somebody can be asked; what is printed may go elsewhere, questions go to stderr."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(questions: Sequence[Question]) -> dict[str, str]:
    """The answers of whoever sits there."""
    from robotrials.cli.output import say, shown_otherwise

    answers = {}
    with shown_otherwise():
        for question in questions:
            say(question.text)
            prompt = f'{question.key} [{"/".join(question.choices)}]'
            answers[question.key] = typer.prompt(prompt, default=question.assumed, err=True)
    return answers


def accepted(error: FixableError) -> ImportOptions:
    """The options of a remedy that is offered and taken; whoever declines ends the verb."""
    from robotrials.cli.output import wrapped

    typer.secho(wrapped(str(error)), err=True)
    if not _confirmed('Run it?'):
        raise typer.Exit(2) from error
    return error.options


def _confirmed(question: str) -> bool:
    from robotrials.cli.output import shown_otherwise

    with shown_otherwise():
        return typer.confirm(question, default=False, err=True)


def offer_mapping(source: Path, options: ImportOptions) -> None:
    """Keep how a source was read in a file beside it, where every verb finds it."""
    from robotrials.formats.catalog import open_source
    from robotrials.formats.intake import mapping_beside, write_mapping

    beside = mapping_beside(source)
    imported = open_source(source, options)
    if imported.resolved is None:
        return
    if _confirmed(f'Save this as {beside}, so that {source} is always read this way?'):
        write_mapping(beside, imported)


def can_be_asked(error: FixableError, source: Path) -> bool:
    """Whether the verb has an answer once the remedy is taken: episodes with a result, to compare of two policies."""
    from robotrials.formats.catalog import open_source

    wanted, policies = 2 if 'compare' in sys.argv[1:2] else 1, set()
    with contextlib.suppress(RobotrialsError):
        for episode in open_source(source, error.options).episodes():
            policies |= {episode.policy} if episode.is_valid else set()
            if len(policies) == wanted:
                return True
    return False


def asked_again(error: FixableError, source: Path) -> str:
    """The commands that import the source as its remedy says, and ask the store what this process was asked."""
    from robotrials.formats.imported import import_command

    return and_ask(f'{error.problem}\nTry: {import_command(source, error.options)}', source)


def and_ask(text: str, source: Path) -> str:
    """The text with every import of the source that it offers followed by this question, put to the store."""
    from robotrials.formats.imported import ImportOptions, import_command, store_name

    words = list(sys.argv[1:])
    if str(source) not in words:
        return text
    words[words.index(str(source))] = store_name(source)
    start = f'Try: {import_command(source, ImportOptions())}'
    return '\n'.join(
        f'{line} && {shlex.join(["robotrials", *words])}' if line.startswith(start) else line
        for line in text.split('\n')
    )
