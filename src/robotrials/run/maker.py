"""What a plan may have called: only what is known to make a host, a policy or an environment."""

from __future__ import annotations

import typing
from collections.abc import Sequence

from robotrials.errors import InputError


def check_maker(kind: str, use: str, maker: object, *, methods: Sequence[str]) -> None:
    """Refuse to call what is not known to make a host or a policy: a plan is data, and must not run what it likes.

    A class must have the methods; a function must say in its return annotation that it gives something that has.
    """
    made = maker if isinstance(maker, type) else _annotated_result(maker)
    if made is None or not all(callable(getattr(made, name, None)) for name in methods):
        wanted = ' and '.join(methods)
        raise InputError(
            f'{kind} {use}: not known to be a {kind}, so it is not called; wanted a class with {wanted}, or a function '
            f'with a return annotation that has'
        )


def _annotated_result(maker: object) -> object:
    try:
        return typing.get_type_hints(maker).get('return')
    except (TypeError, NameError, AttributeError):
        return None
