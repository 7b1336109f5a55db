/* Restricted means of many simulated cells with the exact jackknife over units; kernel.py says what each does. */

#include "native.h"

enum { ABSENT = 0, OBSERVED = 1, CENSORED = 2 };

static double plain(const double *times, const int8_t *state, const int64_t *unit, int64_t n, int64_t units, double tau, double *left, double *sums) {
    double total = 0.0, *sizes = sums + units;
    int64_t count = 0;
    for (int64_t g = 0; g < 2 * units; g++) sums[g] = 0.0;
    for (int64_t i = 0; i < n; i++)
        if (state[i] != ABSENT) {
            double capped = times[i] < tau ? times[i] : tau;
            total += capped;
            count++;
            sums[unit[i]] += capped;
            sizes[unit[i]] += 1.0;
        }
    for (int64_t g = 0; g < units; g++) {
        double rest = (double)count - sizes[g];
        left[g] = rest > 0 ? (total - sums[g]) / rest : tau;
    }
    return count > 0 ? total / (double)count : tau;
}

/* Operations in time order, successes before censorings at a tie: a stable merge sort, bottom up. */
static int64_t *time_order(const double *times, const int8_t *state, int64_t n, int64_t *order, int64_t *spare) {
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            int64_t middle = least(low + width, n), high = least(low + 2 * width, n), i = low, j = middle;
            for (int64_t k = low; k < high; k++) {
                int second = 0;
                if (i >= middle) second = 1;
                else if (j < high) {
                    double p = times[order[i]], q = times[order[j]];
                    second = q < p || (q == p && state[order[j]] < state[order[i]]);
                }
                spare[k] = second ? order[j++] : order[i++];
            }
        }
        int64_t *swap = order;
        order = spare;
        spare = swap;
    }
    return order;
}

static double curve_area(const double *times, const int8_t *state, const int64_t *unit, const int64_t *order, int64_t n, int64_t without, double tau) {
    int64_t at_risk = 0;
    for (int64_t i = 0; i < n; i++) at_risk += state[i] != ABSENT && unit[i] != without;
    double survival = 1.0, area = 0.0, before = 0.0;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = order[k];
        if (state[i] == ABSENT || unit[i] == without) continue;
        if (times[i] > tau) break;
        if (state[i] == OBSERVED) {
            area += survival * (times[i] - before);
            before = times[i];
            survival *= 1.0 - 1.0 / (double)at_risk;
        }
        at_risk--;
    }
    return area + survival * (tau - before);
}

static int unit_rmst_run(Arg *a) {
    const int64_t *unit = I8(2);
    int64_t rows = LENGTH('r'), n = LENGTH('n'), units = LENGTH('u');
    double tau = a[4].x, *value = F8(5), *variance = F8(6), *followed = F8(7);
    size_t doubles = (size_t)(3 * units + 1) * 8, indices = (size_t)n * 16 + 16, bytes = (size_t)units + 1;
    char *memory = malloc(doubles + indices + bytes);
    if (!memory) return -1;
    double *left = (double *)memory, *sums = left + units;
    int64_t *order = (int64_t *)(memory + doubles), *spare = order + n;
    char *seen = memory + doubles + indices;
    for (int64_t row = 0; row < rows; row++) {
        const double *times = F8(0) + row * n;
        const int8_t *state = I1(1) + row * n;
        double *influence = F8(8) + row * units, whole, mean = 0.0, sum = 0.0, count = 0.0;
        int64_t early = 0;
        memset(seen, 0, bytes);
        for (int64_t i = 0; i < n; i++) {
            if (state[i] == CENSORED && times[i] < tau) early++;
            else if (state[i] != ABSENT) seen[unit[i]] = 1;
        }
        if (early == 0) {
            whole = plain(times, state, unit, n, units, tau, left, sums);
        } else {
            const int64_t *sorted = time_order(times, state, n, order, spare);
            whole = curve_area(times, state, unit, sorted, n, -1, tau);
            for (int64_t g = 0; g < units; g++) left[g] = curve_area(times, state, unit, sorted, n, g, tau);
        }
        for (int64_t g = 0; g < units; g++) mean += left[g] / (double)units;
        double scale = sqrt(((double)units - 1.0) / (double)units);
        for (int64_t g = 0; g < units; g++) {
            influence[g] = scale * (mean - left[g]);
            sum += influence[g] * influence[g];
            count += seen[g] ? 1.0 : 0.0;
        }
        value[row] = whole;
        variance[row] = sum;
        followed[row] = count;
    }
    free(memory);
    return 0;
}
KERNEL(unit_rmst, "d:rn b:rn l:n n x D:r D:r D:r D:ru")

static PyMethodDef methods[] = {ENTRY(unit_rmst), {NULL, NULL, 0, NULL}};
MODULE(methods)
