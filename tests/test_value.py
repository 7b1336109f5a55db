"""Our `dataclass` beside the standard library's: nothing that one can see of a value differs."""

import copy
import dataclasses
import inspect
import math
import pickle
import re
import subprocess
import sys
from typing import Any, ClassVar

import pytest

from robotrials import value

OPTIONS = [
    {'frozen': frozen, 'slots': slots, 'eq': eq, 'kw_only': kw_only}
    for frozen in (True, False)
    for slots in (True, False)
    for eq in (True, False)
    for kw_only in (True, False)
]


def pair(define: Any, **options: bool) -> tuple[Any, Any]:
    return define(value.dataclass(**options)), define(dataclasses.dataclass(**options))


def a_class(decorate: Any) -> Any:
    class Sample:
        """A class of every kind of field."""

        name: str
        ratio: float = 0.5
        parts: list[int] = dataclasses.field(default_factory=list)
        hidden: str = dataclasses.field(default='h', repr=False, compare=False)
        unhashed: tuple[int, ...] = dataclasses.field(default=(1,), hash=False)
        twice: float = dataclasses.field(init=False)
        fixed: int = dataclasses.field(init=False, default=7)

        def __post_init__(self) -> None:
            object.__setattr__(self, 'twice', 2 * self.ratio)

    Sample.__qualname__ = 'Sample'
    return decorate(Sample)


def outcome(call: Any) -> Any:
    """What a call returns, or how it fails."""
    try:
        return call()
    except Exception as error:  # whatever it is, the other must raise it too
        return type(error), str(error).split('.')[-1]


@pytest.mark.parametrize('few', [0, 3, 1000])  # compiled at once, in between, and never
@pytest.mark.parametrize('options', OPTIONS, ids=str)
def test_a_value_looks_and_acts_as_the_standard_librarys(options, few, monkeypatch):
    monkeypatch.setattr(value, 'FEW_VALUES', few)

    def seen(kind: Any) -> list[Any]:
        first, same = kind(name='a', ratio=1.0), kind(name='a', ratio=1.0)
        other = dataclasses.replace(first, ratio=2.0)
        return [
            repr(first), first == same, first == other, first != other, first == 3,
            outcome(lambda: hash(first) == hash(same)), outcome(lambda: kind(name='a') in {first}),
            outcome(lambda: setattr(kind(name='c'), 'name', 'b')), outcome(lambda: delattr(kind(name='c'), 'name')),
            outcome(kind), outcome(lambda: repr(kind('a'))),
            outcome(lambda: kind(name='a', nothing=1)), outcome(lambda: kind('a', name='a')),
            outcome(lambda: repr(kind('a', 1.0, [2], 'x', (3,)))), outcome(lambda: kind(*'abcdefgh')),
            str(inspect.signature(kind)), kind.__match_args__, kind.__doc__, kind.__init__.__qualname__,
            [(f.name, f.type, f.kw_only) for f in dataclasses.fields(kind)], dataclasses.asdict(other),
            kind(name='a').parts is kind(name='a').parts, repr(copy.copy(first)), repr(copy.deepcopy(first)),
            hasattr(first, '__dict__'), '__hash__' in vars(kind) and vars(kind)['__hash__'] is None,
        ]  # fmt: skip

    ours, theirs = pair(a_class, **options)
    assert seen(ours) == seen(theirs)


@value.dataclass(frozen=True, slots=True)
class Kept:
    at: float
    words: tuple[str, ...] = ()


def test_a_frozen_value_survives_pickling():
    assert pickle.loads(pickle.dumps(Kept(1.0, ('a',)))) == Kept(1.0, ('a',))


def test_identical_parts_are_equal_whatever_they_say_themselves():
    assert Kept(math.nan) == Kept(math.nan)  # the same object; the standard library's since Python 3.13 differs
    assert Kept(float('nan')) != Kept(float('nan'))


def test_methods_that_a_class_has_are_kept():
    def own(decorate: Any) -> Any:
        class Own:
            at: float

            def __eq__(self, other: object) -> bool:
                return True

            def __repr__(self) -> str:
                return 'own'

        return decorate(Own)

    for kind in pair(own, frozen=True, slots=True):
        assert (repr(kind(1)), kind(1) == kind(2), hash(kind(1)) == hash(kind(2))) == ('own', True, False)


def test_a_value_within_itself_is_written_once():
    def nested(decorate: Any) -> Any:
        class Nested:
            parts: list[Any]

        return decorate(Nested)

    for kind in pair(nested, slots=True):
        ring = kind([])
        ring.parts.append(ring)
        assert repr(ring).endswith('(parts=[...])')


def test_derived_classes_and_class_variables_are_the_standard_librarys():
    @value.dataclass(frozen=True, slots=True)
    class Base:
        a: int

    @value.dataclass(frozen=True, slots=True)
    class Derived(Base):
        b: int = 2
        LIMIT: ClassVar[int] = 3

    @dataclasses.dataclass(frozen=True)
    class Foreign(Base):
        c: int = 4

    class Plain(Base):
        pass

    assert (Derived(1) == Derived(1, 2), Derived.LIMIT, Foreign(1).c) == (True, 3, 4)
    plain = Plain(1)
    plain.note = 'kept'  # type: ignore[attr-defined]  # a derived class may have more
    with pytest.raises(dataclasses.FrozenInstanceError):
        plain.a = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match='non-frozen'):
        value.dataclass(slots=True)(type('Thawed', (Base,), {}))


def test_nothing_is_compiled_for_a_few_values():
    code = (
        'import builtins, robotrials.value as v; compiled = []; run = builtins.exec\n'
        'builtins.exec = lambda *a: (compiled.append(a[0]), run(*a))[1]\n'
        'body = {"__annotations__": {"a": "int"}, "__module__": "builtins"}\n'
        'kind = v.dataclass(frozen=True, slots=True)(type("K", (), body))\n'
        'count = lambda: sum(str(c).count("def __init__") for c in compiled)\n'
        '[kind(a=n) for n in range(v.FEW_VALUES)]; assert count() == 0; kind(1); kind(2); assert count() == 1'
    )
    subprocess.run([sys.executable, '-c', code], check=True)


def test_a_frozen_value_takes_no_further_attribute():
    with pytest.raises(dataclasses.FrozenInstanceError, match='further'):
        Kept(1.0).further = 2  # type: ignore[attr-defined]


def test_a_pattern_is_compiled_at_its_first_use():
    letters = value.pattern('[a-c]+', re.IGNORECASE)
    assert 'match' not in vars(letters)
    assert letters.match('Abd').group() == 'Ab'
    assert letters.sub('-', 'xAByc') == 'x-y-'
    assert letters.pattern == '[a-c]+'
