"""Every wording that is drawn is a sentence, and names one thing where the original does.

The grammar and the reading of noun phrases are written here anew, from the sentences alone: they share no table with
the lexicon.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from robotrials.errors import NotEstimable
from robotrials.run.conditions import Distractor, Thing
from robotrials.run.conditions.instruction import Instruction, RuleParaphraser, compare_meaning, keeps_references
from robotrials.worlds.cell.reset import add_distractors, things_of
from robotrials.worlds.cell.task import TASKS, DrawnEpisode, draw_layout

COLORS = {
    'red': 'red|crimson|scarlet', 'blue': 'blue|azure|cobalt', 'green': 'green|emerald',
    'yellow': 'yellow|lemon-coloured', 'white': 'white|snow-white', 'grey': 'grey|gray',
}  # fmt: skip
RGB = {'red': (0.8, 0.13, 0.12), 'green': (0.16, 0.56, 0.22), 'blue': (0.13, 0.32, 0.75), 'yellow': (0.93, 0.76, 0.12),
       'grey': (0.55, 0.56, 0.58)}  # fmt: skip
ITEMS = {'block': 'block|cube|brick', 'cylinder': 'cylinder|round column', 'peg': 'peg|pin', 'battery': 'battery',
         'spoon': 'spoon', 'scissors': 'pair of scissors'}  # fmt: skip
PLACES = 'square|slot|socket|bin|belt|tote|container|gripper|robot hand|end effector|camera'
THING = 'object|item|thing'
ADJECTIVE = '|'.join([*COLORS.values(), 'larger', 'smaller', 'front'])
NOUN = '|'.join([*ITEMS.values(), PLACES, THING])
CLAUSE = ' that the front camera cannot see'
NP = f'(?:(?:the|every) (?:(?:{ADJECTIVE}) )*(?:{NOUN})(?:{CLAUSE})?|it)'
VERB = 'put|place|set|position|deposit|lay|move|bring|transfer|shift|carry|stack|pile|insert|fit'
BESIDE = 'to the left of|left of|on the left side of|to the right of|right of|on the right side of|in front of|behind'
WHERE = f'{BESIDE}|in back of|on top of|onto|on|atop|into|inside|in'
VIEW = '(?:as seen from|from the viewpoint of|from the point of view of|relative to)'
PP = (
    f'(?:(?:{WHERE}) {NP}(?: {VIEW} {NP})?|(?:in )?between {NP} and {NP}|from {NP} to {NP}|on top|on the top)'
)  # fmt: skip
CORE = f'(?:{VERB}) {NP} {PP}(?:(?:,? then| and) {NP} {PP})*'
SENTENCES = [
    CORE, f'Please {CORE}', f'{CORE}, please', rf'Could you {CORE}\?', f'Robot, {CORE}', f'Now {CORE}',
    f'Go ahead and {CORE}', f'I want you to {CORE}', f'Your task: {CORE}',
]  # fmt: skip


def is_sentence(text: str) -> bool:
    words = text.lower().split()
    if any(a == b for a, b in itertools.pairwise(words)):
        return False
    lowered = text[0].lower() + text[1:]
    return any(re.fullmatch(s, text) or re.fullmatch(s, lowered) for s in SENTENCES)


def named(text: str, layout: DrawnEpisode) -> list[tuple[str, set[str]]]:
    """Every noun phrase that is about items, with the items of the scene that it fits, by their colour and shape."""
    found = []
    for match in re.finditer(rf'(the|every) ((?:(?:{ADJECTIVE}) )*)({NOUN})', text):
        noun = match[3]
        if re.fullmatch(PLACES, noun):
            continue
        color = next((c for c, words in COLORS.items() if re.search(rf'\b({words})\b', match[2])), None)
        fits = set()
        for name, item in layout.scene.items:
            rgb = [float(v) for v in item.rgba.split()[:3]]
            is_colored = color is None or max(abs(a - b) for a, b in zip(rgb, RGB[color], strict=True)) < 0.01
            body = 'cylinder' if item.shapes[0].kind == 'cylinder' and len(item.shapes) == 1 else 'block'
            label = item.name.split()[-1] if name not in layout.distractors else body
            is_shaped = bool(re.fullmatch(THING, noun) or re.fullmatch(ITEMS.get(label, '-'), noun))
            if is_colored and is_shaped:
                fits.add(name)
        found.append((match[0], fits))
    return found


def scenes() -> Iterator[DrawnEpisode]:
    for name, task in sorted(TASKS.items()):
        for stratum in task.strata:
            for instance in range(task.instances):
                layout = draw_layout(name, seed=instance, stratum=stratum, instance=instance)
                yield layout
                if not layout.is_order:
                    yield add_distractors(layout, Distractor.draw(0.5, seed=instance))


def test_no_draw_is_ungrammatical_and_none_is_ambiguous() -> None:
    """More than 5,000 wordings over every task, instance and object type, with and without distractors."""
    n, wide = 0, 0
    for layout in scenes():
        canonical = layout.instruction
        assert is_sentence(canonical), canonical
        things = things_of(layout)
        meant = [fits for _, fits in named(canonical, layout)]
        for phrase, fits in named(canonical, layout):
            is_told = 'every' in phrase or 'arger' in phrase or 'maller' in phrase or CLAUSE in canonical
            assert len(fits) == 1 or (is_told and fits), (canonical, phrase, fits)
        for severity in (0.2, 0.5, 0.8, 1.0):
            for seed in range(18):
                drawn = Instruction.draw(severity, seed=seed, canonical=canonical, things=things)
                assert is_sentence(drawn.text), drawn.text
                assert [fits for _, fits in named(drawn.text, layout)] == meant, (drawn.text, canonical)
                wide += bool(re.search(rf'\b({THING})\b', drawn.text))
                n += 1
    assert n > 5000
    assert wide > 100  # a wider word is used where the scene lets it


def test_a_wider_word_is_not_used_where_a_distractor_shares_the_colour() -> None:
    layout = draw_layout('single_block', seed=1, instance=0)
    cluttered = add_distractors(layout, Distractor.draw(0.25, seed=1))
    said = [
        {Instruction.draw(1.0, seed=s, canonical=layout.instruction, things=things).text for s in range(60)}
        for things in (things_of(layout), things_of(cluttered), None)
    ]
    assert [any('object' in text for text in texts) for texts in said] == [True, False, False]


def test_a_paraphraser_that_says_too_much_is_refused() -> None:
    class Vague:
        name = 'vague'

        def paraphrase(self, instruction: str, **_: object) -> str:
            return instruction.replace('block', 'object')

    things = (Thing('block', 'red'), Thing('cylinder', 'red'), Thing('square', 'white'))
    with pytest.raises(NotEstimable, match='not clear in its scene'):
        Instruction.draw(
            1.0, seed=1, canonical='put the red block on the white square', paraphraser=Vague(), things=things
        )
    drawn = Instruction.draw(
        1.0, seed=1, canonical='put the red block on the white square', paraphraser=Vague(), things=things[::2]
    )
    assert drawn.text == 'put the red object on the white square'


def test_references_are_read_with_their_colours() -> None:
    things = (Thing('block', 'red'), Thing('block', 'blue'), Thing('cylinder', 'red'))
    say = 'put the red block behind the blue block'
    assert keeps_references(say, 'place the crimson cube behind the azure object', things)
    assert not keeps_references(say, 'place the crimson object behind the azure cube', things)
    assert not keeps_references(say, 'place the crimson object behind the azure cube', None)


@pytest.mark.parametrize(
    ('canonical', 'never'),
    [
        ('pick up the mug on the plate', 'onto'),
        ('put the mug on the plate in the bin', 'into|onto'),
        ('stack the red block on the blue block, then the green block on top', 'top top|on top of top|atop top'),
    ],
)
def test_words_of_motion_are_only_said_of_motions(canonical: str, never: str) -> None:
    for seed in range(200):
        text = RuleParaphraser().paraphrase(canonical, severity=1.0, seed=seed)
        assert not re.search(rf'\b({never})\b', text), text
        assert compare_meaning(canonical, text) == 'same'


def test_the_checker_finds_what_it_is_for() -> None:
    for wrong in (
        'stack the blue block on the red block, then the green block on top of top', 'put the the red block on it',
        'put red block on the white square', 'Could you put the red block on the white square', 'put the red block',
    ):  # fmt: skip
        assert not is_sentence(wrong), wrong
