/* Loops over ragged traces: episode e has the flat rows offsets[e] to offsets[e + 1]; kernel.py says what each does.

   A sliding minimum costs O(n) for any window: a wide one is the least of a suffix of one block of rows and a prefix of
   the next (van Herk 1992, Gil and Werman 1993), a narrow one that of two spans whose length is a power of two.
   NaN is refused before any kernel runs; infinities are ordinary values here. */

#include "native.h"

enum { NARROW = 128 }; /* rows; up to here seven passes of doubled spans, each a vector loop, beat the block method's three */

/* Least values over spans of 1, 2, 4, ... rows; two such spans cover the window. */
LANED static void extreme_by_doubling(const double *trace, double *result, int64_t n, int64_t low, int64_t high, double sign, double *first, double *second) {
    int64_t width = high - low + 1, span = 1, inside = n - low > 0 ? n - low : 0;
    for (int64_t i = 0; i < n; i++) first[i] = sign * trace[i];
    for (int64_t i = n; i < n + width; i++) first[i] = second[i] = INFINITY;
    for (; 2 * span <= width; span *= 2) {
        const double *restrict from = first;
        double *restrict to = second;
        for (int64_t i = 0; i < n; i++) to[i] = smaller(from[i], from[i + span]);
        double *swap = first;
        first = second;
        second = swap;
    }
    for (int64_t t = 0; t < inside; t++) result[t] = sign * smaller(first[t + low], first[t + low + width - span]);
    for (int64_t t = inside; t < n; t++) result[t] = sign * INFINITY;
}

/* The least of a suffix of one block and a prefix of the next. */
static void extreme_by_blocks(const double *trace, double *result, int64_t n, int64_t low, int64_t high, double sign, double *prefix, double *suffix) {
    int64_t width = high - low + 1, whole = n - high > 0 ? n - high : 0;
    for (int64_t first = 0; first < n; first += width) {
        int64_t last = least(first + width, n);
        double ahead = INFINITY, back = INFINITY;
        /* Two chains in one loop, so that neither waits for the other. */
        for (int64_t k = 0; k < last - first; k++) {
            ahead = smaller(ahead, sign * trace[first + k]);
            back = smaller(back, sign * trace[last - 1 - k]);
            prefix[first + k] = ahead;
            suffix[last - 1 - k] = back;
        }
    }
    /* Windows that lie inside the trace, then those cut by its end, then those beyond it. */
    for (int64_t t = 0; t < whole; t++) result[t] = sign * smaller(suffix[t + low], prefix[t + high]);
    for (int64_t t = whole; t < n; t++) {
        int64_t i = t + low;
        if (i >= n) result[t] = sign * INFINITY;
        else if (i / width == (n - 1) / width) result[t] = sign * suffix[i];
        else result[t] = sign * smaller(suffix[i], prefix[n - 1]);
    }
}

static int window_extreme_run(Arg *a) {
    const int64_t *offsets = I8(1), *low = I8(2), *high = I8(3);
    int64_t episodes = LENGTH('e'), longest = 0;
    double sign = a[4].x;
    for (int64_t e = 0; e < episodes; e++)
        if (offsets[e + 1] - offsets[e] > longest) longest = offsets[e + 1] - offsets[e];
    /* Scratch of one episode stays in the cache. */
    double *scratch = malloc(sizeof(double) * 2 * (size_t)(longest + NARROW));
    if (!scratch) return -1;
    for (int64_t e = 0; e < episodes; e++) {
        const double *trace = F8(0) + offsets[e];
        double *result = F8(5) + offsets[e], *other = scratch + longest + NARROW;
        int64_t n = offsets[e + 1] - offsets[e];
        if (high[e] < low[e])
            for (int64_t t = 0; t < n; t++) result[t] = sign * INFINITY;
        else if (high[e] - low[e] < NARROW) extreme_by_doubling(trace, result, n, low[e], high[e], sign, scratch, other);
        else extreme_by_blocks(trace, result, n, low[e], high[e], sign, scratch, other);
    }
    free(scratch);
    return 0;
}
KERNEL(window_extreme, "d:n l:_ l:e l:e x D:n")

static int span_extreme_run(Arg *a) {
    const double *values = F8(0);
    const int64_t *first = I8(1), *last = I8(2);
    double sign = a[3].x, *out = F8(4);
    int64_t n = LENGTH('n'), head = 0, tail = 0, seen = 0;
    int64_t *queue = malloc(sizeof(int64_t) * (size_t)(n + 1));
    if (!queue) return -1;
    for (int64_t t = 0; t < n; t++) {
        for (int64_t end = least(last[t], n - 1); seen <= end; seen++) {
            while (tail > head && sign * values[queue[tail - 1]] >= sign * values[seen]) tail--;
            queue[tail++] = seen;
        }
        while (head < tail && queue[head] < first[t]) head++;
        out[t] = head < tail && first[t] <= last[t] ? values[queue[head]] : sign * INFINITY;
    }
    free(queue);
    return 0;
}
KERNEL(span_extreme, "d:n l:n l:n x D:n")

LANED static int count_not_binary_run(Arg *a) {
    const double *values = F8(0);
    int64_t n = LENGTH('n'), count = 0;
    for (int64_t i = 0; i < n; i++) count += (values[i] != 0.0) & (values[i] != 1.0);
    a[0].n = count;
    return 0;
}
COUNTING(count_not_binary, "d:n")

static int suffix_extreme_run(Arg *a) {
    const double *values = F8(0);
    const int64_t *offsets = I8(1);
    double sign = a[2].x, *out = F8(3);
    for (int64_t e = 0; e + 1 < LENGTH('o'); e++) {
        double extreme = INFINITY;
        for (int64_t t = offsets[e + 1] - 1; t >= offsets[e]; t--) {
            extreme = smaller(extreme, sign * values[t]);
            out[t] = sign * extreme;
        }
    }
    return 0;
}
KERNEL(suffix_extreme, "d:n l:o x D:n")

static int until_forever_run(Arg *a) {
    const double *left = F8(0), *right = F8(1);
    const int64_t *offsets = I8(2);
    double *out = F8(3);
    for (int64_t e = 0; e + 1 < LENGTH('o'); e++) {
        double best = -INFINITY;
        for (int64_t t = offsets[e + 1] - 1; t >= offsets[e]; t--) out[t] = best = larger(right[t], smaller(left[t], best));
    }
    return 0;
}
KERNEL(until_forever, "d:n d:n l:o D:n")

static double greatest_of(const double *values, int64_t n) {
    double lane[8];
    for (int k = 0; k < 8; k++) lane[k] = -INFINITY;
    int64_t t = 0;
    for (; t + 8 <= n; t += 8)
        for (int k = 0; k < 8; k++) lane[k] = larger(lane[k], values[t + k]);
    for (; t < n; t++) lane[0] = larger(lane[0], values[t]);
    for (int k = 1; k < 8; k++) lane[0] = larger(lane[0], lane[k]);
    return lane[0];
}

static double least_of(const double *values, int64_t n) {
    double lane[8];
    for (int k = 0; k < 8; k++) lane[k] = INFINITY;
    int64_t t = 0;
    for (; t + 8 <= n; t += 8)
        for (int k = 0; k < 8; k++) lane[k] = smaller(lane[k], values[t + k]);
    for (; t < n; t++) lane[0] = smaller(lane[0], values[t]);
    for (int k = 1; k < 8; k++) lane[0] = smaller(lane[0], lane[k]);
    return lane[0];
}

static int bound_minimum_run(Arg *a) {
    const int64_t *offsets = I8(1);
    double bound = a[2].x, *out = F8(4);
    for (int64_t e = 0; e < LENGTH('e'); e++) {
        const double *values = F8(0) + offsets[e];
        int64_t n = offsets[e + 1] - offsets[e];
        out[e] = a[3].n ? bound - greatest_of(values, n) : least_of(values, n) - bound;
    }
    return 0;
}
KERNEL(bound_minimum, "d:n l:_ x n D:e")

static int gated_bound_minimum_run(Arg *a) {
    const double *values = F8(0), *gate = F8(1);
    const int64_t *offsets = I8(2);
    double bound = a[3].x, *out = F8(6);
    int64_t is_upper = a[4].n, is_literal = a[5].n;
    for (int64_t e = 0; e < LENGTH('e'); e++) {
        double least_margin = INFINITY;
        for (int64_t t = offsets[e]; t < offsets[e + 1]; t++) {
            double margin = is_upper ? bound - values[t] : values[t] - bound;
            if (is_literal) margin = larger(0.5 - gate[t], margin);
            else margin = gate[t] > 0.5 ? margin : INFINITY;
            least_margin = smaller(least_margin, margin);
        }
        out[e] = least_margin;
    }
    return 0;
}
KERNEL(gated_bound_minimum, "d:n d:n l:_ x n n D:e")

static PyMethodDef methods[] = {
    ENTRY(window_extreme), ENTRY(span_extreme), ENTRY(count_not_binary), ENTRY(suffix_extreme), ENTRY(until_forever),
    ENTRY(bound_minimum), ENTRY(gated_bound_minimum), {NULL, NULL, 0, NULL},
};
MODULE(methods)
