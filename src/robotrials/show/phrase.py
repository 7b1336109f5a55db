"""Numbers and names in running text, each with its exact value, definition and episodes; and verdicts in sentences.

On one endpoint a policy is faster, succeeds more often or is safer; "better" is said over all primary endpoints alone.
"""

from __future__ import annotations

import functools
import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from robotrials.errors import InputError, UnknownName
from robotrials.show.document import Definition, Document, EpisodeFilter, Words
from robotrials.show.table import CONTROL, format_cell
from robotrials.stats.dominance import PairDecision
from robotrials.stats.dominance import PairVerdict as Overall
from robotrials.stats.win import WinDesign
from robotrials.value import dataclass
from robotrials.verdict.analysis import EndpointPairs
from robotrials.verdict.analysis.endpoint_pairs import Standing
from robotrials.verdict.planning.analysis_plan import Correction, EndpointName

if TYPE_CHECKING:
    from robotrials.stats import Interval
    from robotrials.verdict.analysis import Comparisons, EndpointVerdict


def number(
    value: float | None, form: str, definition: str, *, unit: str = '', episodes: EpisodeFilter | None = None
) -> Words:
    """A number in a sentence; an absent one is a dash."""
    text = format_cell(value, form) + (unit if value is not None and math.isfinite(value) else '')
    return Words(text, definition, episodes, value)


def with_interval(
    value: float | None, interval: Interval | None, form: str, definition: str, *, unit: str = '', scale: float = 1.0
) -> list[Words]:
    """`14.2 s [13.1, 15.0]`, the value and both ends each with its exact number."""
    pieces = [number(None if value is None else scale * value, form, definition, unit=unit)]
    if interval is not None:
        low, high = (number(scale * end, form, 'interval') for end in interval)
        pieces += [Words(' ['), low, Words(', '), high, Words(']')]
    return pieces


def policy_name(name: str) -> Words:
    """A policy, linked to its episodes."""
    return Words(name, episodes={'policy': (name,)})


def listed(names: Sequence[Words]) -> list[Words]:
    """`a, b and c`."""
    pieces: list[Words] = []
    for place, name in enumerate(names):
        if place:
            pieces.append(Words(' and ' if place == len(names) - 1 else ', '))
        pieces.append(name)
    return pieces


IRREGULAR = {'policy': 'policies', 'stratum': 'strata'}


def plural(n: int, noun: str) -> str:
    """`1 pair`, `3 pairs`, `2 policies`."""
    return f'{n:,} {noun if n == 1 else IRREGULAR.get(noun, f"{noun}s")}'


def joined(names: Sequence[str]) -> str:
    """`a, b and c`; nothing of nothing."""
    return f'{", ".join(names[:-1])} and {names[-1]}' if len(names) > 1 else ''.join(names)


def capital(text: str) -> str:
    """The text with a capital first letter and the rest as it is."""
    return text[:1].upper() + text[1:]


def only_text(selection: EpisodeFilter) -> str:
    """` · only policy a or b` behind a title; nothing where nothing was chosen."""
    words = ', '.join(f'{field} {" or ".join(values)}' for field, values in selection.items())
    return f' · only {words}' if words else ''


def ends(interval: Interval | None, scale: float = 1.0) -> tuple[float | None, float | None]:
    """Both ends of an interval for two cells of a table."""
    return (None, None) if interval is None else (interval.low * scale, interval.high * scale)


def percent(share: float | None) -> float | None:
    """A share in per cent, for a cell of a table."""
    return None if share is None else 100 * share


# What the numbers of a report mean, and the works that they come from; the words are in `data/glossary.toml`.


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

    def cited(self, definitions: Iterable[Definition], *, also: Iterable[str] = ()) -> dict[str, str]:
        """The citations behind some definitions, and of further works, in the order of the list of references."""
        wanted = {d.source for d in definitions} | set(also)
        return {key: text for key, text in self.references.items() if key in wanted}


@functools.cache
def glossary() -> Glossary:
    import tomllib
    from importlib import resources

    text = (resources.files('robotrials.show') / 'data' / 'glossary.toml').read_text(encoding='utf-8')
    values = tomllib.loads(text)
    return Glossary({k: Definition(**v) for k, v in values['definitions'].items()}, values['references'])


# Addresses inside and out of a report's page: ids, definitions, and the episodes behind a claim.

OWN_IDS = frozenset(
    {'main', 'contents', 'verdict', 'episodes', 'glossary', 'references', 'tip', 'theme', 'all-policies',
     'episode-data', 'episode-table', 'episode-command', 'episode-choose', 'episode-pager'}
)  # fmt: skip


def html_ids(keys: Iterable[str], *, taken: Iterable[str] = ()) -> dict[str, str]:
    """An id a key: the key itself where HTML and CSS allow it and it is free, else the nearest that is."""
    used = {*OWN_IDS, *taken}
    ids = {}
    for key in keys:
        plain = ''.join(ch if ch.isascii() and (ch.isalnum() or ch in '-_.') else '-' for ch in key) or 'x'
        candidate, number = plain, 2
        while candidate in used or f'{candidate}-title' in used:
            candidate, number = f'{plain}-{number}', number + 1
        used |= {candidate, f'{candidate}-title'}
        ids[key] = candidate
    return ids


def list_command(source: str, where: EpisodeFilter | None = None) -> str:
    """The shell command that lists the episodes meant."""
    parts = ['robotrials', 'store', 'ls', shlex.quote(source or 'STORE')]
    for field, values in (where or {}).items():
        for value in values:
            parts += ['--where', shlex.quote(f'{field}={value}')]
    return ' '.join(parts)


def check_explorer(url: str) -> str:
    """An address that a link may open: http or https only."""
    if url and urlsplit(url).scheme not in ('http', 'https'):
        raise InputError(f'explorer_url wants an http or https address, found {url!r}')
    return url


def explorer_address(document: Document, where: EpisodeFilter) -> str:
    """Where the explorer lists these episodes, of those that the document is about."""
    pairs = [(field, value) for field, values in {**document.selection, **where}.items() for value in values]
    joint = '&' if '?' in document.explorer_url else '?'
    return f'{document.explorer_url}{joint}{urlencode(pairs)}' if pairs else document.explorer_url


def escape(text: object) -> str:
    """Text that is safe in an element and in a quoted attribute; control characters become spaces."""
    import html

    return html.escape(CONTROL.sub(' ', str(text)), quote=True)


def mark_links(svg: str, document: Document) -> str:
    """A drawing whose marks lead to where the document's episodes are shown; nowhere if nothing shows them."""
    import html

    def turned(match: re.Match[str]) -> str:
        if not document.explorer_url:
            return ''
        return f' rel="noopener" href="{escape(explorer_address(document, json.loads(html.unescape(match[1]))))}"'

    own_list = has_episode_list(document) and not document.explorer_url
    return svg if own_list else re.sub(' href="#episodes" data-where="([^"]*)"', turned, svg)


def episode_link(document: Document, where: EpisodeFilter, inner: str, *, label: str = '') -> str:
    """A link to the episodes behind a claim: the explorer's where one runs, else this page's own list."""
    named = f' aria-label="{escape(label)}"' if label else ''
    command = escape(list_command(document.source, {**document.selection, **where}))
    if document.explorer_url:
        address = escape(explorer_address(document, where))
        return f'<a class="eps" href="{address}" rel="noopener" title="{command}"{named}>{inner}</a>'
    chosen = escape(json.dumps({field: list(values) for field, values in where.items()}, ensure_ascii=False))
    return f'<a class="eps" href="#episodes" data-where="{chosen}" title="{command}"{named}>{inner}</a>'


def has_episode_list(document: Document) -> bool:
    """Whether the page has a place for its episode links: a list, or the command that makes one."""
    return document.episodes is not None or bool(document.source)


ENDPOINT_NAMES = {
    EndpointName.TIME: 'time to success', EndpointName.SUCCESS: 'episode success',
    EndpointName.THROUGHPUT: 'items per hour', EndpointName.SCORE: 'score', EndpointName.SAFETY: 'safety',
    EndpointName.LOST: 'items lost',
}  # fmt: skip
CLAIMS = {
    EndpointName.TIME: ('is faster', 'faster'), EndpointName.THROUGHPUT: ('is faster', 'faster'),
    EndpointName.SUCCESS: ('succeeds more often', 'succeeds more often'), EndpointName.SAFETY: ('is safer', 'safer'),
    EndpointName.SCORE: ('scores higher', 'scores higher'), EndpointName.LOST: ('loses fewer items', 'loses fewer'),
}  # fmt: skip
LEAST_P = 0.0001  # smaller ones are told as such
CORRECTIONS = {Correction.HOLM: 'Holm', Correction.BONFERRONI: 'Bonferroni'}
TRY, RACE = 'comparable tries', 'comparisons of items'


def endpoint_name(endpoint: EndpointName) -> str:
    """What an endpoint is called in sentences and headings."""
    return ENDPOINT_NAMES[endpoint]


def claim_words(endpoint: EndpointName | str) -> str:
    """What is claimed of the policy that is ahead on an endpoint: `is faster`."""
    return CLAIMS[EndpointName(endpoint)][0]


# --- a pair over all primary endpoints


def decision_words(comparisons: Comparisons, a: str, b: str) -> list[Words]:
    """What is said of two policies over all primary endpoints, in a sentence that ends in a full stop."""
    decided = comparisons.decision(a, b)
    if decided.verdict is Overall.BETTER and decided.winner is not None:
        return _better_words(comparisons, decided, winner=decided.winner, loser=b if decided.winner == a else a)
    if decided.verdict is Overall.TRADE_OFF:
        return _trade_off_words(comparisons, decided)
    first, second = policy_name(a), policy_name(b)
    if decided.verdict is Overall.DEPENDS:
        turned = [e for e in comparisons.tested if e.pair(a, b).standing is Standing.DEPENDS]
        names = ' and '.join(endpoint_name(e.endpoint) for e in turned)
        depends = Words(f' is ahead in {names} depends on the stratum.')
        return [Words('Which of '), first, Words(' and '), second, depends]
    if decided.verdict is Overall.SAME:
        return [first, Words(' and '), second, Words(' are the same within the declared margins.')]
    words = [first, Words(' and '), second, Words(' are not significantly different')]
    return [*words, *_resolving(comparisons, a, b), Words('.')]


def decision_sentence(comparisons: Comparisons, a: str, b: str) -> str:
    return ''.join(w.text for w in decision_words(comparisons, a, b))


def short_decision(decided: PairDecision) -> str:
    """In a cell of a table: `a better`, `a trade-off`, `unresolved`."""
    return f'{decided.winner} better' if decided.winner else decided.verdict.value


def _better_words(comparisons: Comparisons, decided: PairDecision, *, winner: str, loser: str) -> list[Words]:
    claims = decided.claims_for_a if winner == decided.pair[0] else decided.claims_for_b
    words = [policy_name(winner), Words(' is better than '), policy_name(loser), Words(f': it {_claimed(claims)}')]
    success = comparisons.endpoints.get(EndpointName.SUCCESS)
    if isinstance(success, EndpointPairs) and EndpointName.SUCCESS not in claims:
        pair = success.pair(winner, loser)
        words += [Words(', with a difference in episode success of '), *_difference(pair)]
    return [*words, Words('.')]


def _trade_off_words(comparisons: Comparisons, decided: PairDecision) -> list[Words]:
    a, b = decided.pair
    first = policy_name(a), _claimed(decided.claims_for_a)
    second = policy_name(b), _claimed(decided.claims_for_b)
    if decided.claims_for_a and decided.claims_for_b:
        return [Words('A trade-off: '), first[0], Words(f' {first[1]}, '), second[0], Words(f' {second[1]}.')]
    ahead, behind = (a, b) if decided.claims_for_a else (b, a)
    claims = decided.claims_for_a or decided.claims_for_b
    words = [Words('A trade-off: '), policy_name(ahead), Words(f' {_claimed(claims)} than '), policy_name(behind)]
    for place, name in enumerate(decided.vetoed_by):
        pair = comparisons.endpoints[EndpointName(name)]
        assert isinstance(pair, EndpointPairs)
        joint = ' and' if place else ', but looks worse'
        words += [Words(f'{joint} in {endpoint_name(EndpointName(name))} (by ')]
        words += [*_difference(pair.pair(ahead, behind).seen_from(behind)), Words(')')]
    if decided.contradicts and not decided.vetoed_by:
        words.append(Words(', but took longer on average'))
    return [*words, Words('.')]


def _claimed(endpoints: Sequence[str]) -> str:
    return joined([claim_words(e) for e in endpoints])


def _resolving(comparisons: Comparisons, a: str, b: str) -> list[Words]:
    """What would resolve a pair: the endpoint that is nearest to a claim, and the units it wants."""
    open_ = [e.pair(a, b) for e in comparisons.tested]
    planned = [p for p in open_ if p.needed is not None and math.isfinite(p.needed.n)]
    if planned:
        nearest = min(planned, key=lambda p: p.needed.n if p.needed else math.inf)
        return [Words(f'; nearest is {endpoint_name(nearest.endpoint)}: '), *needed_words(nearest)]
    withheld = next((p.withheld for p in open_ if p.withheld), '')
    if withheld:
        return [Words(f': {withheld}')]
    least = min((p.needed.low for p in open_ if p.needed is not None), default=math.inf)
    takes = f': a claim takes at least {least:.0f} {open_[0].unit}s per cell' if math.isfinite(least) else ''
    return [Words(f'; the observed differences are too small to plan for{takes}')]


# --- a pair on one endpoint


def pair_words(pair: EndpointVerdict, endpoint: EndpointPairs, *, n_strata: int) -> list[Words]:
    """One endpoint's verdict as a sentence, ending in a full stop; a claim is told from its own side."""
    oriented = pair.seen_from(pair.ahead) if pair.ahead else pair
    before = [] if pair.is_confirmatory else [Words('Exploratory: ')]
    if oriented.withheld:
        names = [policy_name(oriented.policy_a), Words(' and '), policy_name(oriented.policy_b)]
        why = Words(f' cannot be compared in {endpoint_name(oriented.endpoint)}: {oriented.withheld} (')
        return [*before, *names, why, *_evidence(oriented), Words(').')]
    say = {
        Standing.AHEAD: _ahead, Standing.DEPENDS: _depends, Standing.SAME: _same, Standing.UNRESOLVED: _unresolved,
    }[oriented.standing]  # fmt: skip
    note = [Words(f' ({oriented.contrast.note})')] if oriented.contrast.note else []
    return [*before, *say(oriented, endpoint, n_strata), *note, Words('.')]


def pair_sentence(pair: EndpointVerdict, endpoint: EndpointPairs, *, n_strata: int) -> str:
    """`pair_words` as plain text."""
    return ''.join(w.text for w in pair_words(pair, endpoint, n_strata=n_strata))


def short_verdict(pair: EndpointVerdict) -> str:
    """One endpoint's verdict in a cell of a table: `a faster`, `not significantly different`."""
    if pair.withheld:
        return 'withheld'
    if pair.ahead:
        return f'{pair.ahead} {CLAIMS[pair.endpoint][1]}'
    return 'not significantly different' if pair.standing is Standing.UNRESOLVED else pair.standing.value


def design_sentence(pair: EndpointVerdict) -> str:
    """Whether the pair was compared paired or as independent arms, by which test, and what was left out."""
    a, b = pair.n_units
    left = ''.join(f'; left out of {out.name}: {out.n} {out.why}' for out in pair.contrast.left_out)
    if pair.is_paired:
        return f'Paired by {pair.unit} ({plural(a, f"matched {pair.unit}")}); {pair.test}{left}.'
    each = plural(a, pair.unit) + ' each' if a == b else f'{a:,} and {b:,} {pair.unit}s'
    shared = pair.contrast.n_matched
    design = f'{shared} shared starts compared with themselves, the others with each other' if shared else ''
    test = '' if pair.test == WinDesign.INDEPENDENT else f'; {pair.test}'  # said already
    return f'{design or "Independent arms"} ({each}){test}{left}.'


def design_text(pairs: Sequence[EndpointVerdict]) -> str:
    """The design of all pairs in one sentence; where they differ, how many are paired."""
    if not pairs:
        return ''
    tests = ', '.join(dict.fromkeys(p.test for p in pairs))
    n_paired = sum(p.is_paired for p in pairs)
    if n_paired == len(pairs):
        return f'Paired by {pairs[0].unit}; {tests}.'
    if n_paired == 0:
        if any(p.contrast.n_matched for p in pairs):
            return f'{tests}.'
        return 'Independent arms.' if tests == WinDesign.INDEPENDENT else f'Independent arms; {tests}.'
    return f'{n_paired} of {plural(len(pairs), "pair")} are paired by start state, the others independent; {tests}.'


def letters_sentence(endpoint: EndpointPairs, policies: Sequence[str] | None = None) -> str:
    """Who shares a letter with whom, of the policies shown."""
    compared = [p for p in endpoint.policies if policies is None or p in policies]
    letters = ', '.join(f'{p} {endpoint.letters[p]}' for p in compared)
    return (
        f'Policies sharing a letter are not significantly different in {endpoint_name(endpoint.endpoint)} '
        f'(alpha = {endpoint.alpha:g}{_correction_text(endpoint, lead=", ")}): {letters}.'
    )


def needed_words(pair: EndpointVerdict) -> list[Words]:
    """What the observed difference would need; empty where nothing was worked out."""
    needed = pair.needed
    if needed is None:
        return []
    power, unit = f'{100 * needed.power:.0f} % power', f'{pair.unit}s per cell'
    if math.isinf(needed.n):
        least = '' if not math.isfinite(needed.low) else f', and at least {needed.low:.0f} {unit} would be needed'
        return [Words(f'no number of {pair.unit}s gives {power} for the difference that was observed{least}')]
    words = [Words('about '), Words(f'{needed.n:.0f}', 'needed', value=needed.n), Words(f' {unit} for {power} if ')]
    words.append(Words('the difference is what was observed'))
    if needed.low > 0 and math.isfinite(needed.low):
        words += [Words(', at least '), Words(f'{needed.low:.0f}', 'needed', value=needed.low)]
    return words


def needed_sentence(pair: EndpointVerdict) -> str:
    """`needed_words` as plain text."""
    return ''.join(w.text for w in needed_words(pair))


# --- the verdicts on one endpoint


def _ahead(pair: EndpointVerdict, endpoint: EndpointPairs, n_strata: int) -> list[Words]:
    words = [policy_name(pair.policy_a), Words(f' {claim_words(pair.endpoint)} than '), policy_name(pair.policy_b)]
    words += [Words(f'{_over(n_strata)} ('), *_evidence(pair), *_p_values(pair, endpoint), Words(')')]
    return [*words, *_reversed_words(pair)]


def _depends(pair: EndpointVerdict, endpoint: EndpointPairs, n_strata: int) -> list[Words]:
    said = [Words('Which of '), policy_name(pair.policy_a), Words(' and '), policy_name(pair.policy_b)]
    said += [Words(f' {claim_words(pair.endpoint)} depends on the stratum ('), *_evidence(pair), Words(_over(n_strata))]
    if pair.p_reversal is not None:
        n = len(endpoint.pairs)
        said += [Words('; reversal p '), _p(pair.p_reversal), Words(f' corrected over {n} pairs' if n > 1 else '')]
    return [*said, Words(')'), *_reversed_words(pair)]


def _same(pair: EndpointVerdict, endpoint: EndpointPairs, n_strata: int) -> list[Words]:
    margin = pair.contrast.margin
    within = '' if margin is None else f' within {plain(pair.scale * margin)} {pair.unit_text}'
    words = [policy_name(pair.policy_a), Words(' and '), policy_name(pair.policy_b)]
    words += [Words(f' are the same in {endpoint_name(pair.endpoint)}{within} ('), *_evidence(pair)]
    if pair.p_same is not None:
        words += [Words(', equivalence p '), _p(pair.p_same)]
    return [*words, Words(')')]


def _unresolved(pair: EndpointVerdict, endpoint: EndpointPairs, n_strata: int) -> list[Words]:
    words = [policy_name(pair.policy_a), Words(' and '), policy_name(pair.policy_b)]
    words += [Words(f' are not significantly different in {endpoint_name(pair.endpoint)} at this N (')]
    words += [*_evidence(pair), Words(_over(n_strata)), *_p_values(pair, endpoint), Words(')')]
    needed = needed_words(pair)
    return [*words, Words('; '), *needed] if needed else words


# --- pieces


def _evidence(pair: EndpointVerdict) -> list[Words]:
    """The estimate with its interval; of times who was first, and then how many seconds that came to."""
    if pair.contrast.null == 0:
        return [Words('difference '), *_difference(pair)]
    contrast = pair.contrast
    kind = RACE if contrast.n_items > 1 else TRY
    lead = 'fewer lost' if pair.endpoint is EndpointName.LOST else 'done first'
    same = ' from the same start' if contrast.is_matched else ''
    if contrast.n_items > 1 and contrast.seconds is not None:
        lead = f'its k-th of {contrast.n_items} items in place first'
    chance = with_interval(contrast.estimate, contrast.interval, '.0f', 'win', unit=' %', scale=100)
    words = [Words(f'{lead} in '), *chance, Words(f' of {kind}{same}; ')]
    if pair.endpoint is EndpointName.LOST:
        return [*words, Words(f'{plain(pair.difference)} items fewer per episode', value=pair.difference)]
    taus = sorted(set(contrast.taus_s.values()))
    until = f'{taus[0]:g} s' if len(taus) == 1 else f'{taus[0]:g} to {taus[-1]:g} s'
    return [*words, *_difference(pair), Words(f' less on average, restricted to {until}')]


def plain(value: float) -> str:
    """Three significant digits, and never an exponent for a large number."""
    return f'{value:.0f}' if abs(value) >= 1000 else f'{value + 0.0:.3g}'


def _difference(pair: EndpointVerdict) -> list[Words]:
    size = plain(pair.scale * pair.difference)
    unit = pair.unit_text.removesuffix('s') if size in {'1', '-1'} and len(pair.unit_text) > 1 else pair.unit_text
    words = [Words(f'{size} {unit}', 'advantage', value=pair.scale * pair.difference)]
    if pair.interval is not None:
        low, high = (Words(plain(pair.scale * end), 'interval', value=pair.scale * end) for end in pair.interval)
        words += [Words(' ['), low, Words(', '), high, Words(']')]
    return words


def _p_values(pair: EndpointVerdict, endpoint: EndpointPairs) -> list[Words]:
    if pair.p_value is None:
        return []
    words = [Words(', p '), _p(pair.p_value)]
    if pair.p_corrected is not None and endpoint.n_tests > 1 and endpoint.correction is not Correction.NONE:
        words += [Words(', '), _bare(pair.p_corrected), Words(_correction_text(endpoint, lead=' after '))]
    return words


def _p(value: float) -> Words:
    return Words(f'= {format_cell(value, ".2g")}' if value >= LEAST_P else f'< {LEAST_P:.4f}', value=value)


def _bare(value: float) -> Words:
    """The corrected value behind `p = 0.004,`."""
    return Words(format_cell(value, '.2g') if value >= LEAST_P else f'< {LEAST_P:.4f}', 'holm', value=value)


def _correction_text(endpoint: EndpointPairs, *, lead: str) -> str:
    if endpoint.n_tests < 2 or endpoint.correction is Correction.NONE:
        return ''
    n_pairs = len(endpoint.policies) * (len(endpoint.policies) - 1) // 2
    over = plural(n_pairs, 'pair') if n_pairs == endpoint.n_tests else plural(endpoint.n_tests, 'test')
    return f'{lead}{CORRECTIONS[endpoint.correction]} over {over}'


def _over(n_strata: int) -> str:
    return '' if n_strata < 2 else f' on average over these {n_strata} strata'


def _reversed_words(pair: EndpointVerdict) -> list[Words]:
    """Where the order is shown to be the other one."""
    words: list[Words] = []
    for place, cell in enumerate(pair.reversed):
        lead = f'; in {cell.name} the order is reversed (' if place == 0 else f', in {cell.name} ('
        if pair.contrast.null == 0:
            text = f'{plain(100 * cell.advantage)} points'
        else:
            text = f'first in {100 * (cell.advantage + 0.5):.0f} %'
        words += [Words(lead), Words(text, value=cell.advantage), Words(')')]
    return words
