"""Numbers to verdicts: analysis, planning, robustness, audit."""
