"""Curves, restricted means, logrank and competing ends against R's `survival`, with ties, censoring, ghosts, clusters.

`make study` installs R and the package (Debian: r-base-core, r-cran-survival) where apt is at hand; a machine without
them skips, and fails under CI.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from robotrials.measure.timing import Operations, logrank, rmst, success_curve
from robotrials.measure.timing.curve import arm_means, clustered_variance
from robotrials.measure.timing.incidence import CAUSES, Curves, Endings, cumulative_incidence

pytestmark = pytest.mark.study
TIGHT = 1e-10
NEVER_S = 1e6  # R has no event at infinity: a ghost is watched for ever, that is, censored after everything
HEAD = 'suppressPackageStartupMessages(library(survival)); rows <- read.csv(commandArgs(TRUE)[1]); out <- list()\n'
TAIL = """
text <- sapply(names(out), function(n) {
  values <- ifelse(is.finite(out[[n]]), sprintf("%.17g", out[[n]]), "null")
  sprintf('"%s": [%s]', n, paste(values, collapse = ", "))
})
writeLines(paste0("{", paste(text, collapse = ", "), "}"))
"""


def ask_r(script: str, columns: Mapping[str, object], folder: Path) -> dict[str, list[float]]:
    """What an R script puts into `out`, given `rows` as a data frame."""
    program = shutil.which('Rscript')
    lacking = 'R is missing' if program is None else ''
    if program is not None:
        have = subprocess.run([program, '--vanilla', '-e', 'library(survival)'], capture_output=True, check=False)
        lacking = '' if have.returncode == 0 else "R's package survival is missing"
    if lacking:
        told = f'{lacking}; install r-base-core and r-cran-survival (sh tools/system_libraries.sh study)'
        (pytest.fail if os.environ.get('CI') == 'true' else pytest.skip)(told)
    assert program is not None
    table = [','.join(columns), *(','.join(f'{x:.17g}' for x in row) for row in zip(*columns.values(), strict=True))]  # type: ignore[call-overload]
    (folder / 'rows.csv').write_text('\n'.join(table))
    (folder / 'script.R').write_text(HEAD + script + TAIL)
    command = [program, '--vanilla', str(folder / 'script.R'), str(folder / 'rows.csv')]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def cell(rng: np.random.Generator, n: int, *, mean_s: float) -> Operations:
    """Operations of episodes of one to three, in whole half-seconds (ties), some censored, some never done."""
    episode = np.repeat(np.arange(n), rng.integers(1, 4, n))
    times = np.ceil(2 * rng.exponential(mean_s, len(episode)) * rng.gamma(4, 0.25, n)[episode]) / 2
    cut = np.ceil(2 * rng.uniform(0.3, 3, len(episode)) * mean_s) / 2
    ghost = rng.random(len(episode)) < 0.07
    return Operations(np.where(ghost, np.inf, np.minimum(times, cut)), ghost | (times <= cut), episode)


def columns_of(cells: Mapping[tuple[int, int], Operations]) -> dict[str, np.ndarray]:
    """(world, arm or stratum) -> operations as one table; a ghost is censored beyond everything."""
    parts = []
    for (first, second), ops in cells.items():
        is_ghost = np.isinf(ops.durations_s)
        parts.append(
            np.column_stack(
                [np.full(len(ops.episode), first), np.full(len(ops.episode), second),
                 np.where(is_ghost, NEVER_S, ops.durations_s), ops.observed & ~is_ghost, ops.episode]
            )
        )  # fmt: skip
    table = np.concatenate(parts)
    return dict(zip(('first', 'second', 'time', 'event', 'episode'), table.T, strict=True))


def test_curves_restricted_means_and_their_variances_against_r(tmp_path: Path) -> None:
    """Kaplan-Meier and Greenwood (survfit), the clustered variance (cluster =), RMST (rmean), its jackknife."""
    rng = np.random.default_rng(11)
    worlds = {(k, 0): cell(rng, int(rng.integers(4, 25)), mean_s=float(rng.uniform(4, 30))) for k in range(12)}
    taus = [20.0, 7.5, 33.3]
    script = f"""
    taus <- c({', '.join(map(str, taus))})
    means <- function(d) {{
      fit <- survfit(Surv(time, event) ~ 1, data = d)
      sapply(taus, function(tau) summary(fit, rmean = tau)$table[["rmean"]])
    }}
    for (w in unique(rows$first)) {{
      d <- rows[rows$first == w, ]
      at <- sort(unique(d$time[d$time < {NEVER_S / 2:g}]))
      plain <- summary(survfit(Surv(time, event) ~ 1, data = d), times = at, extend = TRUE)
      robust <- summary(survfit(Surv(time, event) ~ 1, data = d, cluster = episode), times = at, extend = TRUE)
      out[[paste0("times", w)]] <- at
      out[[paste0("surv", w)]] <- plain$surv
      out[[paste0("greenwood", w)]] <- plain$std.err^2
      out[[paste0("clustered", w)]] <- robust$std.err^2
      out[[paste0("rmst", w)]] <- means(d)
      ids <- unique(d$episode)
      left <- sapply(ids, function(i) means(d[d$episode != i, ]))
      out[[paste0("jackknife", w)]] <- (length(ids) - 1) / length(ids) * rowSums((left - rowMeans(left))^2)
    }}
    """
    told = ask_r(script, columns_of(worlds), tmp_path)
    for (k, _), ops in worlds.items():
        curve = success_curve(ops.durations_s, ops.observed)
        at = np.array(told[f'times{k}'])
        assert np.array_equal(at, curve.times_s)
        assert 1 - curve.chance == pytest.approx(told[f'surv{k}'], abs=TIGHT)
        inside = 1 - curve.chance > 0  # where nobody is left R has no standard error
        expected = np.array([math.nan if x is None else x for x in told[f'greenwood{k}']])
        assert curve.greenwood_variance(at)[inside] == pytest.approx(expected[inside], abs=TIGHT)
        robust = np.array([math.nan if x is None else x for x in told[f'clustered{k}']])
        ours = clustered_variance(ops.durations_s, ops.observed, ops.episode, at)
        assert ours[inside] == pytest.approx(robust[inside], abs=TIGHT)
        assert [rmst(curve, tau) for tau in taus] == pytest.approx(told[f'rmst{k}'], rel=TIGHT)
        means = [arm_means({'': ops}, tau).cells[''] for tau in taus]
        assert [m.value for m in means] == pytest.approx(told[f'rmst{k}'], rel=TIGHT)
        assert [m.variance for m in means] == pytest.approx(told[f'jackknife{k}'], rel=TIGHT)


def test_the_logrank_test_against_r(tmp_path: Path) -> None:
    """survdiff, stratified; and the robust score test of coxph (Breslow, at beta = 0) with episodes as clusters."""
    rng = np.random.default_rng(12)
    n_worlds, n_strata = 12, 3
    pairs = [
        {
            (s, arm): cell(rng, int(rng.integers(6, 25)), mean_s=float(rng.uniform(8, 16)))
            for s in range(n_strata)
            for arm in (0, 1)
        }
        for _ in range(n_worlds)
    ]
    parts = []
    for w, pair in enumerate(pairs):
        own = columns_of(pair)
        own['world'] = np.full(len(own['time']), w)
        parts.append(own)
    table = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    script = """
    for (w in unique(rows$world)) {
      d <- rows[rows$world == w, ]
      d$id <- interaction(d$first, d$second, d$episode, drop = TRUE)
      d$a <- as.numeric(d$second == 0)
      found <- survdiff(Surv(time, event) ~ second + strata(first), data = d)
      excess <- sum(found$obs[1, ] - found$exp[1, ])
      out[[paste0("classical", w)]] <- c(found$chisq, excess, found$var[1, 1])
      pooled <- survdiff(Surv(time, event) ~ second, data = d)
      out[[paste0("pooled", w)]] <- c(pooled$chisq, pooled$obs[1] - pooled$exp[1], pooled$var[1, 1])
      fit <- coxph(Surv(time, event) ~ a + strata(first), data = d, cluster = id, ties = "breslow", init = 0,
                   control = coxph.control(iter.max = 0))
      out[[paste0("robust", w)]] <- c(fit$rscore)
    }
    """
    told = ask_r(script, table, tmp_path)
    for w, pair in enumerate(pairs):
        a, b = ({str(s): pair[s, arm] for s in range(n_strata)} for arm in (0, 1))
        found = logrank(a, b)
        ours = found.classical.statistic, found.classical.excess, found.classical.variance
        assert ours == pytest.approx(told[f'classical{w}'], rel=TIGHT, abs=TIGHT)
        assert found.robust.statistic == pytest.approx(told[f'robust{w}'][0], rel=TIGHT)
        pooled = logrank(a, b, stratified=False).classical
        ours = pooled.statistic, pooled.excess, pooled.variance
        assert ours == pytest.approx(told[f'pooled{w}'], rel=TIGHT, abs=TIGHT)


def test_competing_ends_against_r(tmp_path: Path) -> None:
    """Aalen-Johansen (survfit of a multi-state Surv): incidences, their clustered variances, and the time lost."""
    rng = np.random.default_rng(13)
    tau_s, worlds = 15.0, []
    for _ in range(15):
        n = int(rng.integers(8, 60))
        unit = np.unique(rng.integers(0, n // 2, n), return_inverse=True)[1]
        times = np.ceil(2 * rng.exponential(8.0, n)) / 2
        worlds.append(Endings(times, rng.choice([-1, 0, 0, 0, 1, 2, 3, 4], n), unit, int(unit.max()) + 1))
    table = {
        'world': np.concatenate([np.full(len(e.times_s), w) for w, e in enumerate(worlds)]),
        'time': np.concatenate([e.times_s for e in worlds]),
        'cause': np.concatenate([e.cause for e in worlds]),
        'unit': np.concatenate([e.unit for e in worlds]),
    }
    script = f"""
    for (w in unique(rows$world)) {{
      d <- rows[rows$world == w, ]
      d$row <- seq_len(nrow(d))
      d$end <- factor(d$cause, levels = -1:4, labels = c("censored", paste0("c", 0:4)))
      # survfit does not sum over clusters here: its influences, an operation each, are summed within units below.
      fit <- survfit(Surv(time, end) ~ 1, data = d, id = row, influence = TRUE)
      at <- summary(fit, times = sort(unique(d$time)), extend = TRUE)
      out[[paste0("times", w)]] <- at$time
      moved <- fit$influence.pstate[, match(at$time, fit$time) + dim(fit$influence.pstate)[2] - length(fit$time), ]
      lost <- summary(fit, rmean = {tau_s})$table
      for (k in 0:4) {{
        here <- which(fit$states == paste0("c", k))
        out[[paste0("chance", w, "_", k)]] <- at$pstate[, here]
        out[[paste0("error", w, "_", k)]] <- sqrt(colSums(rowsum(moved[, , here], d$unit)^2))
        out[[paste0("lost", w, "_", k)]] <- lost[here, "rmean"]
      }}
    }}
    """
    told = ask_r(script, table, tmp_path)
    for w, cell_ends in enumerate(worlds):
        at = told[f'times{w}']
        found = cumulative_incidence(cell_ends, times_s=at, tau_s=tau_s)
        curves = Curves.of(cell_ends)
        for k, cause in enumerate(CAUSES):
            own = found.causes[cause]
            assert own.chance == pytest.approx(told[f'chance{w}_{k}'], abs=TIGHT)
            assert own.time_lost_s == pytest.approx(told[f'lost{w}_{k}'][0], abs=TIGHT)
            moved = curves.influence(k, cell_ends, np.array(at), tau_s)[:, :-1]
            assert np.sqrt((moved**2).sum(axis=0)) == pytest.approx(told[f'error{w}_{k}'], abs=TIGHT)
