"""Where success and E[IoU] of an analysis come from, in words for whoever reads the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from robotrials.measure.geometry.camera_score import METHOD
from robotrials.verdict.analysis.absent import Absent
from robotrials.verdict.planning.analysis_plan import SuccessSource

if TYPE_CHECKING:
    from robotrials.verdict.analysis.analysis import Analysis

OF_THE_HOST = "Times and safety are the host's."


def success_source(analysis: Analysis) -> str:
    """Who says what was a success, how much of it could be told, and what is known of the errors."""
    match analysis.plan.success:
        case SuccessSource.HOST:
            return "Success is the host's own account of each episode."
        case SuccessSource.OUTCOME:
            return 'Success is the recorded outcome of each episode.'
        case SuccessSource.BOTH:
            return f"Success is the host's own account of each episode. {_agreement(analysis)}"
        case SuccessSource.RECONSTRUCTION:
            return (
                f"Success and E[IoU] are what RGB-D cameras show ({METHOD}), not the host's account. "
                f'{_agreement(analysis)} {OF_THE_HOST}'
            )


def _agreement(analysis: Analysis) -> str:
    part = analysis.cameras
    if isinstance(part, Absent):
        return f'{part.reason[:1].upper()}{part.reason[1:]}.'
    n, unscored = sum(p.n for p in part.policies), sum(p.unscored for p in part.policies)
    told = f'Cameras scored {n - unscored} of {n} episodes'
    if part.unscored_reasons:
        told += f' (unscored most often: {next(iter(part.unscored_reasons))})'
    if not part.agreement.n:
        return f'{told}; the host judged none of them, so that how often cameras err is not known.'
    agreed = f'{part.agreement.count} of {part.agreement.n} as the host has it'
    if analysis.plan.success is SuccessSource.RECONSTRUCTION:
        is_corrected = {p.corrected.value is not None for p in part.policies}
        agreed += {
            True: '; rates are corrected for errors measured on other policies, and intervals include them',
            False: '; too little is known of their errors on other policies to correct rates for them',
        }[True in is_corrected]
        agreed += ', where enough is known of them' if len(is_corrected) > 1 else ''
    return f'{told}, {agreed}.'
