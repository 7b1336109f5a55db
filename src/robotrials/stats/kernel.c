/* Passes over many simulated trials; kernel.py says what each does. */

#include "native.h"

static void mean_term(const double *values, int64_t n, double *mean_out, double *variance_out) {
    double mean = 0.0, total = 0.0;
    for (int64_t i = 0; i < n; i++) mean += values[i] / (double)n;
    for (int64_t i = 0; i < n; i++) total += (values[i] - mean) * (values[i] - mean);
    *mean_out = mean;
    *variance_out = n > 1 ? total / ((double)n * ((double)n - 1.0)) : 0.0;
}

/* The share of run-by-run, item-by-item comparisons that x wins; x is (r, items), y (s, items). */
static double share(const double *x, int64_t r, const double *y, int64_t s, int64_t items) {
    double wins = 0.0;
    for (int64_t i = 0; i < r; i++)
        for (int64_t j = 0; j < s; j++)
            for (int64_t k = 0; k < items; k++) {
                double p = x[i * items + k], q = y[j * items + k];
                wins += p < q ? 1.0 : p == q ? 0.5 : 0.0;
            }
    return wins / (double)(r * s * items);
}

/* Mean, and variance of the mean, of each sorted x's share of later y, level by half. */
static void later_shares(const double *x, int64_t n, const double *y, int64_t m, double *shares, double *mean, double *variance) {
    int64_t before = 0, not_after = 0;
    for (int64_t i = 0; i < n; i++) {
        while (before < m && y[before] < x[i]) before++;
        while (not_after < m && y[not_after] <= x[i]) not_after++;
        shares[i] = 1 - (double)(before + not_after) / (double)(2 * m);
    }
    mean_term(shares, n, mean, variance);
}

static int plain_placements_run(Arg *a) {
    int64_t trials = LENGTH('t'), n = LENGTH('n'), m = LENGTH('m');
    double *shares = malloc(sizeof(double) * (size_t)(n + m + 1)), mean;
    if (!shares) return -1;
    for (int64_t t = 0; t < trials; t++) {
        const double *x = F8(0) + t * n, *y = F8(1) + t * m;
        later_shares(x, n, y, m, shares, &F8(2)[t], &F8(3)[t]);
        later_shares(y, m, x, n, shares, &mean, &F8(4)[t]);
    }
    free(shares);
    return 0;
}
KERNEL(plain_placements, "d:tn d:tm D:t D:t D:t")

static int placements_run(Arg *a) {
    int64_t trials = LENGTH('t'), n = LENGTH('n'), m = LENGTH('m'), r = LENGTH('r'), s = LENGTH('s'), items = LENGTH('k');
    double *p = malloc(sizeof(double) * (size_t)(n + m + 1)), *q = p + n, mean;
    if (!p) return -1;
    for (int64_t t = 0; t < trials; t++) {
        for (int64_t i = 0; i < n + m; i++) p[i] = 0.0;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < m; j++) {
                double won = share(F8(0) + (t * n + i) * r * items, r, F8(1) + (t * m + j) * s * items, s, items);
                p[i] += won / (double)m;
                q[j] += won / (double)n;
            }
        mean_term(p, n, &F8(2)[t], &F8(3)[t]);
        mean_term(q, m, &mean, &F8(4)[t]);
    }
    free(p);
    return 0;
}
KERNEL(placements, "d:tnrk d:tmsk D:t D:t D:t")

static int pair_shares_run(Arg *a) {
    int64_t trials = LENGTH('t'), n = LENGTH('n'), r = LENGTH('r'), s = LENGTH('s'), items = LENGTH('k');
    double *w = malloc(sizeof(double) * (size_t)(n + 1));
    if (!w) return -1;
    for (int64_t t = 0; t < trials; t++) {
        for (int64_t i = 0; i < n; i++)
            w[i] = share(F8(0) + (t * n + i) * r * items, r, F8(1) + (t * n + i) * s * items, s, items);
        mean_term(w, n, &F8(2)[t], &F8(3)[t]);
    }
    free(w);
    return 0;
}
KERNEL(pair_shares, "d:tnrk d:tnsk D:t D:t")

LANED static void convolve(const double *law, int64_t length, const double *row, int64_t width, double *restrict next) {
    for (int64_t p = 0; p < length + width; p++) next[p] = 0.0;
    for (int64_t k = 0; k <= width; k++)
        if (row[k] > 0.0)
            for (int64_t p = 0; p < length; p++) next[p + k] += law[p] * row[k];
}

static int mid_tails_run(Arg *a) {
    const int64_t *hits_a = I8(0), *hits_b = I8(1), *ahead = I8(2), *behind = I8(3);
    const double *chances = F8(4), *coins = F8(5);
    int64_t trials = LENGTH('t'), strata = LENGTH('s'), columns = LENGTH('n'), n = columns - 1, c = LENGTH('c');
    size_t longest = (size_t)(strata * n + c + 1);
    double *law = malloc(2 * sizeof(double) * longest), *next = law + longest;
    if (!law) return -1;
    for (int64_t t = 0; t < trials; t++) {
        int64_t length = 1, observed = ahead[t];
        law[0] = 1.0;
        for (int64_t s = 0; s <= strata; s++) {
            const double *row;
            int64_t width;
            if (s < strata) {
                row = chances + (hits_a[t * strata + s] + hits_b[t * strata + s]) * columns;
                width = n;
                observed += hits_a[t * strata + s];
            } else {
                width = ahead[t] + behind[t];
                row = coins + width * c;
            }
            convolve(law, length, row, width, next);
            length += width;
            memcpy(law, next, sizeof(double) * (size_t)length);
        }
        double up = law[observed] / 2, down = law[observed] / 2;
        for (int64_t p = 0; p < observed; p++) down += law[p];
        for (int64_t p = observed + 1; p < length; p++) up += law[p];
        F8(6)[t] = up;
        F8(7)[t] = down;
    }
    free(law);
    return 0;
}
KERNEL(mid_tails, "l:ts l:ts l:t l:t d:_n d:cc D:t D:t")

static PyMethodDef methods[] = {
    ENTRY(plain_placements), ENTRY(placements), ENTRY(pair_shares), ENTRY(mid_tails), {NULL, NULL, 0, NULL},
};
MODULE(methods)
