/* Kaplan-Meier passes over resampled episodes; kernel.py says what each does.

   Where it pays, LANES resamples go through a pass together, so that the vector units divide for all of them at once, and
   one division serves two lanes: 1/(n m). Every resample has its own counter-based stream, so that results do not depend
   on how resamples are spread over threads. */

#include "native.h"

enum { LANES = 16, PAIRS = 128, N_SCALARS = 4, END_OF_TIE = 2, POOLED_BOOTSTRAP = 0, PERMUTATION = 1 };
#define SLACK 1e-12
#define GOLDEN 0x9E3779B97F4A7C15ULL
#define LOW32 0xFFFFFFFFULL

/* How often an episode is drawn: a row of lanes takes half of what doubles would, and large cells stay in the cache. */
typedef int32_t Count;

/* Splitmix64's output function. */
INLINE uint64_t mixed(uint64_t state) {
    uint64_t z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

/* The start of stream `index`: two rounds of mixing keep neighbouring streams apart. */
INLINE uint64_t stream_of(uint64_t seed, uint64_t index) { return mixed(mixed(seed + index * GOLDEN) + GOLDEN); }

static void clear(double *values, int64_t n) {
    for (int64_t i = 0; i < n; i++) values[i] = 0.0;
}

/* Counts of lanes as the numbers they are multiplied with. */
INLINE void of_row(const Count *restrict row, int lanes, double *restrict w) {
    for (int k = 0; k < lanes; k++) w[k] = (double)row[k];
}

/* Two numbers below `size` from each of the next steps of a stream: those of the lower halves, then the others. */
LANED static void pick_pairs(uint64_t state, uint64_t size, int64_t pairs, uint32_t *restrict pick) {
    for (int64_t j = 0; j < pairs; j++) {
        uint64_t z = mixed(state + (uint64_t)(j + 1) * GOLDEN);
        pick[j] = (uint32_t)(((z & LOW32) * size) >> 32);
        pick[pairs + j] = (uint32_t)(((z >> 32) * size) >> 32);
    }
}

/* As many draws with replacement as there are episodes, added to one column of `weight` for each stream from `first` on;
   and the risk set of each. */
static void draw_lanes(
    uint64_t seed, int64_t first, int64_t lanes, const int32_t *sizes, int64_t episodes, Count *weight, int64_t stride, double *at_risk
) {
    uint32_t pick[2 * PAIRS];
    int is_even = 1; /* all episodes have as many operations, and whichever are drawn, as many are at risk */
    for (int64_t e = 1; e < episodes; e++) is_even &= sizes[e] == sizes[0];
    clear(at_risk, stride);
    for (int64_t k = 0; k < lanes; k++) {
        uint64_t state = stream_of(seed, (uint64_t)(first + k));
        int64_t total = is_even && episodes > 0 ? episodes * sizes[0] : 0;
        for (int64_t left = episodes; left > 0; left -= 2 * PAIRS) {
            int64_t pairs = least(PAIRS, (left + 1) / 2), n = least(2 * pairs, left);
            pick_pairs(state, (uint64_t)episodes, pairs, pick);
            state += (uint64_t)pairs * GOLDEN;
            for (int64_t j = 0; j < n; j++) weight[(int64_t)pick[j] * stride + k]++;
            if (!is_even)
                for (int64_t j = 0; j < n; j++) total += sizes[pick[j]];
        }
        at_risk[k] = (double)total;
    }
}

typedef struct {
    const double *times, *inverse, *levels;
    const int32_t *cluster, *sizes;
    const uint8_t *event;
    int64_t n, episodes, n_levels;
    double tau;
} Cell;

static void scalars_of(const Cell *c, const int32_t *weight, double *out) {
    int64_t at_risk = 0, reached = 0;
    for (int64_t e = 0; e < c->episodes; e++) at_risk += (int64_t)weight[e] * c->sizes[e];
    double survival = 1.0, area = 0.0, first_moment = 0.0, before = 0.0, at_tau = -1.0;
    for (int64_t k = 0; k < c->n_levels; k++) out[N_SCALARS + k] = NAN;
    for (int64_t i = 0; i < c->n; i++) {
        int64_t w = weight[c->cluster[i]];
        if (w == 0) continue;
        double t = c->times[i];
        if (at_tau < 0.0 && t > c->tau) {
            area += survival * (c->tau - before);
            at_tau = survival;
        }
        if (c->event[i]) {
            if (at_tau < 0.0) {
                area += survival * (t - before);
                before = t;
            }
            double after = survival * (1.0 - (double)w * c->inverse[at_risk]);
            if (at_tau < 0.0) first_moment += t * (survival - after);
            survival = after;
            while (reached < c->n_levels && 1.0 - survival >= c->levels[reached] - SLACK) out[N_SCALARS + reached++] = t;
        }
        at_risk -= w;
    }
    if (at_tau < 0.0) {
        area += survival * (c->tau - before);
        at_tau = survival;
    }
    out[0] = area;
    out[1] = 1.0 - at_tau;
    out[2] = first_moment;
    out[3] = 1.0 - survival;
}

static int curve_scalars_run(Arg *a) {
    Cell c = {F8(0), F8(5), F8(7), I4(1), I4(3), U1(2), LENGTH('n'), LENGTH('e'), LENGTH('q'), a[6].x};
    scalars_of(&c, I4(4), F8(8));
    return 0;
}
KERNEL(curve_scalars, "d:n i:n b:n i:e i:e d:_ x d:q D:_")

INLINE void keep_at_tau(const double *survival, const double *area, double last_gap, double tau, double *out) {
    for (int k = 0; k < 2 * LANES; k++) {
        double mean = area[k] + survival[k] * last_gap;
        /* Integrating by parts: the integral of t dF up to tau is RMST less tau times what is left; 0 without a success. */
        out[k * N_SCALARS] = mean;
        out[k * N_SCALARS + 1] = 1.0 - survival[k];
        out[k * N_SCALARS + 2] = survival[k] < 1.0 ? mean - tau * survival[k] : 0.0;
    }
}

/* N_SCALARS of 2 LANES weighted curves; gaps are the times between operations, last_gap that from the last to tau. */
LANED static void scalar_lanes(
    const double *restrict gaps, int64_t n, int64_t n_to_tau, double last_gap, double tau, const int32_t *restrict cluster,
    const uint8_t *restrict event, const Count *restrict weight, double *restrict at_risk, double *restrict out
) {
    double survival[2 * LANES], area[2 * LANES];
    for (int k = 0; k < 2 * LANES; k++) survival[k] = 1.0, area[k] = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double w[2 * LANES], gap = gaps[i];
        of_row(weight + (int64_t)cluster[i] * 2 * LANES, 2 * LANES, w);
        if (i == n_to_tau) keep_at_tau(survival, area, last_gap, tau, out);
        if (event[i]) {
            for (int k = 0; k < LANES; k++) {
                double p = larger(at_risk[k], 1.0), q = larger(at_risk[k + LANES], 1.0), inverse = 1.0 / (p * q);
                area[k] += survival[k] * gap;
                area[k + LANES] += survival[k + LANES] * gap;
                survival[k] *= 1.0 - w[k] * q * inverse;
                survival[k + LANES] *= 1.0 - w[k + LANES] * p * inverse;
                at_risk[k] -= w[k];
                at_risk[k + LANES] -= w[k + LANES];
            }
        } else {
            for (int k = 0; k < 2 * LANES; k++) {
                area[k] += survival[k] * gap;
                at_risk[k] -= w[k];
            }
        }
    }
    if (n_to_tau == n) keep_at_tau(survival, area, last_gap, tau, out);
    for (int k = 0; k < 2 * LANES; k++) out[k * N_SCALARS + 3] = 1.0 - survival[k];
}

static int bootstrap_lanes(const Cell *c, uint64_t seed, int64_t start, int64_t rows, double *out) {
    size_t weights = sizeof(Count) * (size_t)c->episodes * 2 * LANES, gaps_size = sizeof(double) * (size_t)(c->n + 1);
    Rooms rooms;
    if (open_rooms(&rooms, room_size(weights) + room_size(gaps_size)) < 0) return -1;
    Count *weight = room(&rooms, weights);
    double *gaps = room(&rooms, gaps_size), before = 0.0;
    double at_risk[2 * LANES], kept[2 * LANES * N_SCALARS];
    int64_t n_to_tau = 0;
    for (int64_t i = 0; i < c->n; i++) {
        gaps[i] = c->times[i] - before;
        before = c->times[i];
        n_to_tau += c->times[i] <= c->tau;
    }
    double last_gap = n_to_tau > 0 ? c->tau - c->times[n_to_tau - 1] : c->tau;
    for (int64_t first = 0; first < rows; first += 2 * LANES) {
        int64_t lanes = least(2 * LANES, rows - first);
        memset(weight, 0, weights);
        draw_lanes(seed, start + first, lanes, c->sizes, c->episodes, weight, 2 * LANES, at_risk);
        scalar_lanes(gaps, c->n, n_to_tau, last_gap, c->tau, c->cluster, c->event, weight, at_risk, kept);
        memcpy(out + first * N_SCALARS, kept, sizeof(double) * (size_t)(lanes * N_SCALARS));
    }
    free(rooms.block);
    return 0;
}

static int bootstrap_scalars_run(Arg *a) {
    Cell c = {F8(0), F8(4), F8(6), I4(1), I4(3), U1(2), LENGTH('n'), LENGTH('e'), LENGTH('q'), a[5].x};
    uint64_t seed = a[7].s;
    int64_t start = a[8].n, rows = LENGTH('r'), width = LENGTH('w');
    if (c.n_levels == 0) return bootstrap_lanes(&c, seed, start, rows, F8(9));
    int32_t *weight = malloc(sizeof(int32_t) * (size_t)(c.episodes + 1));
    if (!weight) return -1;
    for (int64_t row = 0; row < rows; row++) {
        uint64_t state = stream_of(seed, (uint64_t)(start + row)), size = (uint64_t)c.episodes;
        memset(weight, 0, sizeof(int32_t) * (size_t)c.episodes);
        for (int64_t left = c.episodes; left > 0; left -= 2) {
            state += GOLDEN;
            uint64_t z = mixed(state);
            weight[((z & LOW32) * size) >> 32]++;
            if (left > 1) weight[((z >> 32) * size) >> 32]++;
        }
        scalars_of(&c, weight, F8(9) + row * width);
    }
    free(weight);
    return 0;
}
KERNEL(bootstrap_scalars, "d:n i:n b:n i:e d:_ x d:q s n D:rw")

INLINE void step_lanes(const Count *restrict row, int is_event, double *restrict at_risk, double *restrict survival) {
    double w[LANES];
    of_row(row, LANES, w);
    if (is_event) /* A curve whose last one at risk succeeds is exactly 0. */
        for (int k = 0; k < LANES; k++) survival[k] *= 1.0 - w[k] / larger(at_risk[k], 1.0);
    for (int k = 0; k < LANES; k++) at_risk[k] -= w[k];
}

LANED static void curve_lanes(
    const double *times, const int32_t *cluster, const uint8_t *event, int64_t n, const double *grid, int64_t points,
    const Count *weight, double *at_risk, double *out, int64_t lanes
) {
    double survival[LANES];
    int64_t c = 0;
    for (int k = 0; k < LANES; k++) survival[k] = 1.0;
    for (int64_t i = 0; i < n; i++) {
        for (; c < points && grid[c] < times[i]; c++)
            for (int64_t k = 0; k < lanes; k++) out[k * points + c] = 1.0 - survival[k];
        step_lanes(weight + (int64_t)cluster[i] * LANES, event[i], at_risk, survival);
    }
    for (; c < points; c++)
        for (int64_t k = 0; k < lanes; k++) out[k * points + c] = 1.0 - survival[k];
}

static int bootstrap_curves_run(Arg *a) {
    int64_t n = LENGTH('n'), episodes = LENGTH('e'), points = LENGTH('g'), rows = LENGTH('r'), start = a[6].n;
    size_t weights = sizeof(Count) * (size_t)(episodes * LANES);
    Count *weight = malloc(weights + 1);
    double at_risk[LANES];
    if (!weight) return -1;
    for (int64_t first = 0; first < rows; first += LANES) {
        int64_t lanes = least(LANES, rows - first);
        memset(weight, 0, weights);
        draw_lanes(a[5].s, start + first, lanes, I4(3), episodes, weight, LANES, at_risk);
        curve_lanes(F8(0), I4(1), U1(2), n, F8(4), points, weight, at_risk, F8(7) + first * points, lanes);
    }
    free(weight);
    return 0;
}
KERNEL(bootstrap_curves, "d:n i:n b:n i:e d:g s n D:rg")

LANED static void jump_lanes(
    const int32_t *cluster, const uint8_t *event, const int64_t *where, int64_t n, double share, const Count *weight,
    double *at_risk, double *out, int64_t points, int64_t lanes
) {
    double survival[LANES], before[LANES];
    for (int k = 0; k < LANES; k++) survival[k] = 1.0;
    for (int64_t i = 0; i < n && where[i] < points; i++) {
        memcpy(before, survival, sizeof before);
        step_lanes(weight + (int64_t)cluster[i] * LANES, event[i], at_risk, survival);
        if (event[i])
            for (int64_t k = 0; k < lanes; k++) out[k * points + where[i]] += (before[k] - survival[k]) * share;
    }
}

static int bootstrap_jumps_run(Arg *a) {
    int64_t n = LENGTH('n'), episodes = LENGTH('e'), points = LENGTH('g'), rows = LENGTH('r'), start = a[6].n;
    size_t weights = sizeof(Count) * (size_t)(episodes * LANES);
    Count *weight = malloc(weights + 1);
    double at_risk[LANES];
    if (!weight) return -1;
    for (int64_t first = 0; first < rows; first += LANES) {
        int64_t lanes = least(LANES, rows - first);
        memset(weight, 0, weights);
        draw_lanes(a[5].s, start + first, lanes, I4(2), episodes, weight, LANES, at_risk);
        jump_lanes(I4(0), U1(1), I8(3), n, a[4].x, weight, at_risk, F8(7) + first * points, points, lanes);
    }
    free(weight);
    return 0;
}
KERNEL(bootstrap_jumps, "i:n b:n i:e l:n x s n D:rg")

/* P(Ta < Tb) + P(Ta = Tb)/2 of LANES pairs of weighted curves, over one merged, sorted list of operations.

   Mass that is left at the end, or from where one risk set is empty with its curve short of 1, counts as tied: such a
   pair is no longer open. */
LANED static void auc_lanes(
    const int32_t *rank, const int32_t *place, const uint8_t *event, int64_t n, int64_t n_a, const Count *weight,
    double *risk_a, double *risk_b, double *out
) {
    double sa[LANES], sb[LANES], before_a[LANES], before_b[LANES], is_open[LANES], tied[LANES], sum[LANES];
    for (int k = 0; k < LANES; k++) sa[k] = sb[k] = before_a[k] = before_b[k] = is_open[k] = 1.0, tied[k] = sum[k] = 0.0;
    int has_moved = 0;
    for (int64_t i = 0; i < n; i++) {
        const Count *w = weight + (int64_t)place[i] * LANES;
        if (place[i] < n_a) step_lanes(w, event[i], risk_a, sa);
        else step_lanes(w, event[i], risk_b, sb);
        has_moved |= event[i];
        if (i + 1 < n && rank[i + 1] == rank[i]) continue;
        int n_empty = 0;
        if (has_moved)
            for (int k = 0; k < LANES; k++) {
                sum[k] += is_open[k] * (before_a[k] - sa[k]) * (before_b[k] + sb[k]);
                before_a[k] = sa[k];
                before_b[k] = sb[k];
            }
        has_moved = 0;
        for (int k = 0; k < LANES; k++) n_empty += (risk_a[k] < 0.5) | (risk_b[k] < 0.5);
        if (n_empty)
            for (int k = 0; k < LANES; k++)
                if (is_open[k] != 0.0 && ((risk_a[k] < 0.5 && sa[k] > SLACK) || (risk_b[k] < 0.5 && sb[k] > SLACK))) {
                    is_open[k] = 0.0;
                    tied[k] = sa[k] * sb[k];
                }
    }
    for (int k = 0; k < LANES; k++) out[k] = 0.5 * (sum[k] + tied[k] + is_open[k] * sa[k] * sb[k]);
}

static int bootstrap_auc_run(Arg *a) {
    int64_t n = LENGTH('n'), episodes = LENGTH('e'), n_a = a[4].n, start = a[7].n, rows = LENGTH('r');
    const int32_t *sizes = I4(3);
    size_t weights = sizeof(Count) * (size_t)(episodes * LANES);
    Count *weight = malloc(weights + 1);
    double risk_a[LANES], risk_b[LANES], kept[LANES];
    if (!weight) return -1;
    for (int64_t first = 0; first < rows; first += LANES) {
        int64_t lanes = least(LANES, rows - first);
        memset(weight, 0, weights);
        draw_lanes(a[5].s, start + first, lanes, sizes, n_a, weight, LANES, risk_a);
        draw_lanes(a[6].s, start + first, lanes, sizes + n_a, episodes - n_a, weight + n_a * LANES, LANES, risk_b);
        auc_lanes(I4(0), I4(1), U1(2), n, n_a, weight, risk_a, risk_b, kept);
        memcpy(F8(8) + first, kept, sizeof(double) * (size_t)lanes);
    }
    free(weight);
    return 0;
}
KERNEL(bootstrap_auc, "i:n i:n b:n i:e n s s n D:r")

/* Largest |Fa - Fb| of LANES pairs of weighted curves; lane k has arm a in column k and arm b in k + LANES. */
LANED static void ks_lanes(
    int64_t n, const uint32_t *restrict place, const uint8_t *restrict mark, const Count *restrict weight,
    double *restrict at_risk, double *restrict largest
) {
    double survival[2 * LANES], most[LANES];
    for (int k = 0; k < LANES; k++) survival[k] = survival[k + LANES] = 1.0, most[k] = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double w[2 * LANES];
        of_row(weight + (int64_t)place[i] * 2 * LANES, 2 * LANES, w);
        if (mark[i]) {
            double is_end = mark[i] == END_OF_TIE ? 1.0 : 0.0;
            for (int k = 0; k < LANES; k++) {
                double p = larger(at_risk[k], 1.0), q = larger(at_risk[k + LANES], 1.0), inverse = 1.0 / (p * q);
                double sa = survival[k] * (1.0 - w[k] * q * inverse), sb = survival[k + LANES] * (1.0 - w[k + LANES] * p * inverse);
                survival[k] = sa;
                survival[k + LANES] = sb;
                at_risk[k] -= w[k];
                at_risk[k + LANES] -= w[k + LANES];
                most[k] = larger(most[k], fabs(sa - sb) * is_end);
            }
        } else {
            for (int k = 0; k < 2 * LANES; k++) at_risk[k] -= w[k];
        }
    }
    memcpy(largest, most, sizeof most);
}

/* Rows of `out` (contrasts, LANES): sup|Fa - Fb| up to tau, RMST_a - RMST_b at tau, then Fa - Fb at each threshold. */
LANED static void contrast_lanes(
    int64_t n, const double *restrict times, const uint32_t *restrict place, const uint8_t *restrict mark,
    const Count *restrict weight, double *restrict at_risk, double tau, const double *restrict thresholds,
    int64_t n_thresholds, double *restrict out
) {
    double survival[2 * LANES], most[LANES], area[LANES], before = 0.0;
    int64_t c = 0;
    for (int k = 0; k < LANES; k++) survival[k] = survival[k + LANES] = 1.0, most[k] = area[k] = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double t = times[i], w[2 * LANES];
        of_row(weight + (int64_t)place[i] * 2 * LANES, 2 * LANES, w);
        for (; c < n_thresholds && thresholds[c] < t; c++)
            for (int k = 0; k < LANES; k++) out[(2 + c) * LANES + k] = survival[k + LANES] - survival[k];
        if (mark[i]) {
            double gap = larger(smaller(t, tau) - before, 0.0), counts = mark[i] == END_OF_TIE && t <= tau ? 1.0 : 0.0;
            before += gap;
            for (int k = 0; k < LANES; k++) {
                double p = larger(at_risk[k], 1.0), q = larger(at_risk[k + LANES], 1.0), inverse = 1.0 / (p * q);
                area[k] += (survival[k] - survival[k + LANES]) * gap;
                double sa = survival[k] * (1.0 - w[k] * q * inverse), sb = survival[k + LANES] * (1.0 - w[k + LANES] * p * inverse);
                survival[k] = sa;
                survival[k + LANES] = sb;
                most[k] = larger(most[k], fabs(sa - sb) * counts);
            }
        }
        for (int k = 0; k < 2 * LANES; k++) at_risk[k] -= w[k];
    }
    for (; c < n_thresholds; c++)
        for (int k = 0; k < LANES; k++) out[(2 + c) * LANES + k] = survival[k + LANES] - survival[k];
    for (int k = 0; k < LANES; k++) {
        out[k] = most[k];
        out[LANES + k] = area[k] + (survival[k] - survival[k + LANES]) * larger(tau - before, 0.0);
    }
}

/* The arrangement of one stratum in one trial: the distinct episodes numbered from 0, and their operations. */
typedef struct {
    int64_t n_units, n_a, n_local, n_ops;
    uint32_t *unit_local, *place, *order;
    int32_t *unit_size, *op, *local;
    uint8_t *mark;
    Count *weight;
    double *times, risk[2 * LANES];
} Stratum;

static void renumber(Stratum *s, const int32_t *units, const int32_t *sizes, int64_t episodes) {
    for (int64_t e = 0; e < episodes; e++) s->local[e] = -1;
    s->n_local = 0;
    for (int64_t u = 0; u < s->n_units; u++) {
        int32_t e = units[u];
        if (s->local[e] < 0) s->local[e] = (int32_t)s->n_local++;
        s->unit_local[u] = (uint32_t)s->local[e];
        s->unit_size[u] = sizes[e];
    }
}

/* Copy the operations of chosen episodes, marking events and the last event of a tie. */
static void choose(Stratum *s, int64_t lo, int64_t hi, const int32_t *rank, const int32_t *cluster, const uint8_t *event) {
    int64_t n = 0, later = -1;
    for (int64_t i = lo; i < hi; i++)
        if (s->local[cluster[i]] >= 0) {
            s->op[n] = (int32_t)i;
            s->place[n] = (uint32_t)s->local[cluster[i]];
            s->mark[n++] = event[i];
        }
    for (int64_t k = n - 1; k >= 0; k--)
        if (s->mark[k]) {
            int64_t r = rank[s->op[k]];
            if (r != later) s->mark[k] = END_OF_TIE;
            later = r;
        }
    s->n_ops = n;
}

INLINE void give(Stratum *s, int64_t unit, int64_t column) {
    s->weight[(int64_t)s->unit_local[unit] * 2 * LANES + column]++;
    s->risk[column] += s->unit_size[unit];
}

static void no_weights(Stratum *s) {
    memset(s->weight, 0, sizeof(Count) * (size_t)(s->n_local * 2 * LANES));
    clear(s->risk, 2 * LANES);
}

/* The arrangement itself, in lane 0: the first n_a units are arm a, the rest arm b. */
static void weigh_as_given(Stratum *s) {
    no_weights(s);
    for (int64_t u = 0; u < s->n_units; u++) give(s, u, u < s->n_a ? 0 : LANES);
}

/* Both arms drawn with replacement from all units, in their own sizes; two draws from each random number. */
static void weigh_pooled(Stratum *s, uint64_t state, int64_t lane) {
    uint64_t n = (uint64_t)s->n_units;
    for (int64_t arm = 0; arm < 2; arm++)
        for (int64_t left = arm == 0 ? s->n_a : s->n_units - s->n_a; left > 0; left -= 2) {
            state += GOLDEN;
            uint64_t z = mixed(state);
            give(s, (int64_t)(((z & LOW32) * n) >> 32), lane + arm * LANES);
            if (left > 1) give(s, (int64_t)(((z >> 32) * n) >> 32), lane + arm * LANES);
        }
}

/* The units dealt to the arms without replacement, in their own sizes (a partial Fisher-Yates shuffle). */
static void weigh_permuted(Stratum *s, uint64_t state, int64_t lane) {
    uint64_t n = (uint64_t)s->n_units, n_a = (uint64_t)s->n_a;
    for (uint64_t u = 0; u < n; u++) s->order[u] = (uint32_t)u;
    for (uint64_t u = 0; u < n_a; u++) {
        state += GOLDEN;
        uint64_t swap = u + (((mixed(state) & LOW32) * (n - u)) >> 32);
        uint32_t pick = s->order[swap];
        s->order[swap] = s->order[u];
        give(s, pick, lane);
    }
    for (uint64_t u = n_a; u < n; u++) give(s, s->order[u], lane + LANES);
}

/* Unit u of arm a is paired with unit u of arm b; a fair coin swaps each pair. */
static void weigh_swapped(Stratum *s, uint64_t state, int64_t lane) {
    for (int64_t u = 0; u < s->n_a; u++) {
        state += GOLDEN;
        int flip = (int)(mixed(state) >> 63);
        give(s, flip ? u + s->n_a : u, lane);
        give(s, flip ? u : u + s->n_a, lane + LANES);
    }
}

static void weigh(Stratum *s, int64_t method, uint64_t seed, uint64_t first, int64_t lanes) {
    no_weights(s);
    for (int64_t lane = 0; lane < lanes; lane++) {
        uint64_t state = stream_of(seed, first + (uint64_t)lane);
        if (method == POOLED_BOOTSTRAP) weigh_pooled(s, state, lane);
        else if (method == PERMUTATION) weigh_permuted(s, state, lane);
        else weigh_swapped(s, state, lane);
    }
}

static int64_t widest(const int64_t *offsets, int64_t strata) {
    int64_t most = 0;
    for (int64_t s = 0; s < strata; s++)
        if (offsets[s + 1] - offsets[s] > most) most = offsets[s + 1] - offsets[s];
    return most;
}

typedef struct {
    const double *times, *thresholds; /* times NULL: the KS distance alone */
    const int32_t *rank, *cluster, *sizes, *units;
    const uint8_t *event;
    const int64_t *op_offsets, *episode_offsets, *unit_offsets, *n_a;
    int64_t strata, row_units, trials, resamples, contrasts, method, first_trial, first_resample;
    uint64_t seed;
    double tau, *observed, *null;
} Trials;

static void pass(const Trials *t, Stratum *s, double *result) {
    if (t->times)
        contrast_lanes(s->n_ops, s->times, s->place, s->mark, s->weight, s->risk, t->tau, t->thresholds, t->contrasts - 2, result);
    else
        ks_lanes(s->n_ops, s->place, s->mark, s->weight, s->risk, result);
}

static void run_stratum(const Trials *t, Stratum *s, int64_t trial, int64_t at, double *result) {
    const int64_t lo = t->op_offsets[at], first_episode = t->episode_offsets[at], columns = t->contrasts;
    s->n_units = t->unit_offsets[at + 1] - t->unit_offsets[at];
    s->n_a = t->n_a[at];
    renumber(s, t->units + trial * t->row_units + t->unit_offsets[at], t->sizes + first_episode, t->episode_offsets[at + 1] - first_episode);
    choose(s, lo, t->op_offsets[at + 1], t->rank, t->cluster, t->event);
    if (t->times)
        for (int64_t i = 0; i < s->n_ops; i++) s->times[i] = t->times[s->op[i]];
    weigh_as_given(s);
    pass(t, s, result);
    for (int64_t c = 0; c < columns; c++) t->observed[(trial * t->strata + at) * columns + c] = result[c * LANES];
    uint64_t base = (uint64_t)((t->first_trial + trial) * t->strata + at) << 32;
    for (int64_t first = 0; first < t->resamples; first += LANES) {
        int64_t lanes = least(LANES, t->resamples - first);
        weigh(s, t->method, t->seed, base + (uint64_t)(t->first_resample + first), lanes);
        pass(t, s, result);
        for (int64_t k = 0; k < lanes; k++)
            for (int64_t c = 0; c < columns; c++)
                t->null[(trial * t->resamples + first + k) * columns + c] += result[c * LANES + k] / (double)t->strata;
    }
}

static int run_trials(const Trials *t) {
    size_t ops = (size_t)widest(t->op_offsets, t->strata), units = (size_t)widest(t->unit_offsets, t->strata);
    size_t episodes = (size_t)widest(t->episode_offsets, t->strata), lane = sizeof(double) * LANES, weights = units * 2 * LANES * sizeof(Count);
    Rooms rooms;
    size_t total = room_size(weights) + room_size(ops * 8) + 2 * room_size(ops * 4) + room_size(ops) +
                   room_size(episodes * 4) + 3 * room_size(units * 4) + room_size((size_t)t->contrasts * lane);
    if (open_rooms(&rooms, total) < 0) return -1;
    Stratum s;
    s.weight = room(&rooms, weights);
    s.times = room(&rooms, ops * 8);
    s.op = room(&rooms, ops * 4);
    s.place = room(&rooms, ops * 4);
    s.mark = room(&rooms, ops);
    s.local = room(&rooms, episodes * 4);
    s.unit_local = room(&rooms, units * 4);
    s.unit_size = room(&rooms, units * 4);
    s.order = room(&rooms, units * 4);
    double *result = room(&rooms, (size_t)t->contrasts * lane);
    clear(t->null, t->trials * t->resamples * t->contrasts);
    for (int64_t trial = 0; trial < t->trials; trial++)
        for (int64_t at = 0; at < t->strata; at++) run_stratum(t, &s, trial, at, result);
    free(rooms.block);
    return 0;
}

static int macro_ks_trials_run(Arg *a) {
    Trials t = {
        .rank = I4(0), .cluster = I4(1), .event = U1(2), .op_offsets = I8(3), .sizes = I4(4), .episode_offsets = I8(5),
        .units = I4(6), .unit_offsets = I8(7), .n_a = I8(8), .strata = LENGTH('s'), .row_units = LENGTH('u'),
        .trials = LENGTH('t'), .resamples = LENGTH('b'), .contrasts = 1, .method = a[9].n, .seed = a[10].s,
        .first_trial = a[11].n, .first_resample = a[12].n, .observed = F8(13), .null = F8(14),
    };
    return run_trials(&t);
}
KERNEL(macro_ks_trials, "i:n i:n b:n l:o i:_ l:o i:tu l:o l:s n s n n D:ts D:tb")

static int contrast_trials_run(Arg *a) {
    Trials t = {
        .times = F8(0), .rank = I4(1), .cluster = I4(2), .event = U1(3), .op_offsets = I8(4), .sizes = I4(5),
        .episode_offsets = I8(6), .units = I4(7), .unit_offsets = I8(8), .n_a = I8(9), .strata = LENGTH('s'),
        .row_units = LENGTH('u'), .trials = LENGTH('t'), .resamples = LENGTH('b'), .contrasts = LENGTH('c'),
        .method = a[10].n, .seed = a[11].s, .first_trial = a[12].n, .first_resample = a[13].n, .tau = a[14].x,
        .thresholds = F8(15), .observed = F8(16), .null = F8(17),
    };
    return run_trials(&t);
}
KERNEL(contrast_trials, "d:n i:n i:n b:n l:o i:_ l:o i:tu l:o l:s n s n n x d:_ D:tsc D:tbc")

static PyMethodDef methods[] = {
    ENTRY(curve_scalars), ENTRY(bootstrap_scalars), ENTRY(bootstrap_curves), ENTRY(bootstrap_jumps), ENTRY(bootstrap_auc),
    ENTRY(macro_ks_trials), ENTRY(contrast_trials), {NULL, NULL, 0, NULL},
};
MODULE(methods)
