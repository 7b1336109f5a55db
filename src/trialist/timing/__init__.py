"""Time-to-success: operations, curves, scalars, significance and verdicts."""

from trialist.timing.curve import SuccessCurve, rmst, success_curve
from trialist.timing.operation import Operations, operations

__all__ = ['Operations', 'SuccessCurve', 'operations', 'rmst', 'success_curve']
