"""What cells say they can do. A benchmark that none of them can run is refused when it is declared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from robotrials.errors import InputError
from robotrials.run.component import check_spec_fits
from robotrials.run.plan import TrialPlan
from robotrials.service.platform.message import host_spec_from_map
from robotrials.service.platform.refusal import Refusal
from robotrials.service.platform.table import Worker


def checked_spec(values: Mapping[str, Any] | None) -> str:
    """The spec of a cell's host as it is kept; '' if the cell does not say."""
    if values is None:
        return ''
    try:
        host_spec_from_map(values)
    except InputError as error:
        raise Refusal(422, 'bad_spec', str(error)) from error
    return json.dumps(values, sort_keys=True)


def check_runnable(session: Session, plan: TrialPlan) -> None:
    """Refuse a plan whose tasks or conditions no registered cell has, if any of them says what it has."""
    cells = select(Worker.name, Worker.spec).where(Worker.host == plan.host.use, Worker.spec != '')
    reasons = []
    for name, spec in session.execute(cells.order_by(Worker.name)):
        try:
            check_spec_fits(plan, host_spec_from_map(json.loads(spec)))
            return
        except InputError as error:
            reasons.append(f'cell {name}: {error}')
    if reasons:
        raise Refusal(
            422, 'not_runnable',
            f'no registered cell can run this plan ({reasons[0]}); correct it, or declare it unchecked if the plan\'s '
            'host options make the difference or such a cell is still to come',
        )  # fmt: skip
