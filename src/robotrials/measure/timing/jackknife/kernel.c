/* Kaplan-Meier curves with one episode left out, all of them from a few passes; kernel.py says how. */

#include "native.h"

enum { GAIN = 0, AT_STOP = 1, AT_END = 2, FIRST_QUANTILE = 3 };
#define SLACK 1e-12

typedef struct {
    const double *times, *gain, *levels;
    const int32_t *cluster, *sizes;
    const uint8_t *event;
    int64_t n, episodes, n_counted, n_levels;
} Cell;

/* The curve that starts with `at_risk` at risk, before each operation, and what it gained by then. */
static void tabulate(const Cell *c, int64_t at_risk, double *survival, double *gained) {
    double now = 1.0, sum = 0.0;
    survival[0] = now;
    gained[0] = sum;
    for (int64_t i = 0; i < c->n; i++) {
        int64_t left = at_risk - i;
        if (c->event[i] && left > 0) {
            double after = now * (1.0 - 1.0 / (double)left);
            sum += c->gain[i] * (now - after);
            now = after;
        }
        survival[i + 1] = now;
        gained[i + 1] = sum;
    }
}

/* Go on along the table over operations first..stop - 1, none of which is the left-out episode's. */
static int64_t append_piece(const Cell *c, int64_t first, int64_t stop, const double *survival, const double *gained, int64_t reached, double *row) {
    double base = survival[first], now = row[AT_END];
    if (base == 0.0) { /* nobody else is left */
        if (first <= c->n_counted && c->n_counted <= stop) row[AT_STOP] = now;
        return reached;
    }
    double scale = now / base;
    if (first <= c->n_counted) {
        row[GAIN] += scale * (gained[least(stop, c->n_counted)] - gained[first]);
        if (c->n_counted <= stop) row[AT_STOP] = scale * survival[c->n_counted];
    }
    now = scale * survival[stop];
    for (; reached < c->n_levels && 1.0 - now >= c->levels[reached] - SLACK; reached++) {
        int64_t low = first, high = stop - 1;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (1.0 - scale * survival[middle + 1] >= c->levels[reached] - SLACK) high = middle;
            else low = middle + 1;
        }
        row[FIRST_QUANTILE + reached] = c->times[low];
    }
    row[AT_END] = now;
    return reached;
}

/* The same row by going through all operations but those of episode e. */
static void whole_pass(const Cell *c, int64_t e, int64_t at_risk, double *row) {
    double now = 1.0;
    int64_t reached = 0;
    row[GAIN] = 0.0;
    row[AT_STOP] = 1.0;
    for (int64_t k = 0; k < c->n_levels; k++) row[FIRST_QUANTILE + k] = NAN;
    for (int64_t i = 0; i < c->n; i++) {
        if (c->cluster[i] == e) continue;
        if (c->event[i]) {
            double after = now * (1.0 - 1.0 / (double)at_risk);
            if (i < c->n_counted) row[GAIN] += c->gain[i] * (now - after);
            now = after;
            while (reached < c->n_levels && 1.0 - now >= c->levels[reached] - SLACK) row[FIRST_QUANTILE + reached++] = c->times[i];
        }
        at_risk--;
        if (i < c->n_counted) row[AT_STOP] = now;
    }
    row[AT_END] = now;
}

/* Where each episode's operations stand in the list: own[starts[e]] .. own[starts[e + 1] - 1], increasing. */
static void own_operations(const Cell *c, int64_t *starts, int64_t *free_place, int64_t *own) {
    for (int64_t e = 0; e <= c->episodes; e++) starts[e] = 0;
    for (int64_t i = 0; i < c->n; i++) starts[c->cluster[i] + 1]++;
    for (int64_t e = 0; e < c->episodes; e++) starts[e + 1] += starts[e];
    memcpy(free_place, starts, sizeof(int64_t) * (size_t)c->episodes);
    for (int64_t i = 0; i < c->n; i++) own[free_place[c->cluster[i]]++] = i;
}

static int left_out_curves_run(Arg *a) {
    Cell c = {F8(0), F8(4), F8(6), I4(1), I4(3), U1(2), LENGTH('n'), LENGTH('e'), a[5].n, LENGTH('q')};
    int64_t width = LENGTH('w'), total = 0, widest = 0;
    double *out = F8(7);
    size_t n = (size_t)c.n, episodes = (size_t)c.episodes;
    Rooms rooms;
    if (open_rooms(&rooms, 2 * room_size(8 * (n + 1)) + room_size(8 * (episodes + 1)) + 2 * room_size(8 * episodes) + room_size(8 * n)) < 0)
        return -1;
    double *survival = room(&rooms, 8 * (n + 1)), *gained = room(&rooms, 8 * (n + 1));
    int64_t *starts = room(&rooms, 8 * (episodes + 1)), *reached = room(&rooms, 8 * episodes);
    int64_t *free_place = room(&rooms, 8 * episodes), *own = room(&rooms, 8 * n);
    for (int64_t e = 0; e < c.episodes; e++) total += c.sizes[e];
    int64_t most_pieces = (int64_t)sqrt((double)total);
    for (int64_t e = 0; e < c.episodes; e++) {
        double *row = out + e * width;
        reached[e] = 0;
        if (c.sizes[e] > most_pieces) {
            whole_pass(&c, e, total - c.sizes[e], row);
            continue;
        }
        if (c.sizes[e] > widest) widest = c.sizes[e];
        row[GAIN] = 0.0;
        row[AT_STOP] = row[AT_END] = 1.0;
        for (int64_t k = 0; k < c.n_levels; k++) row[FIRST_QUANTILE + k] = NAN;
    }
    own_operations(&c, starts, free_place, own);
    for (int64_t still = widest; still >= 0; still--) {
        tabulate(&c, total - still, survival, gained);
        for (int64_t e = 0; e < c.episodes; e++) {
            int64_t passed = c.sizes[e] - still, listed = starts[e + 1] - starts[e];
            if (c.sizes[e] > most_pieces || passed < 0 || passed > listed) continue;
            int64_t first = passed > 0 ? own[starts[e] + passed - 1] + 1 : 0;
            int64_t stop = passed < listed ? own[starts[e] + passed] : c.n;
            reached[e] = append_piece(&c, first, stop, survival, gained, reached[e], out + e * width);
        }
    }
    free(rooms.block);
    return 0;
}
KERNEL(left_out_curves, "d:n i:n b:n i:e d:n n d:q D:ew")

static PyMethodDef methods[] = {ENTRY(left_out_curves), {NULL, NULL, 0, NULL}};
MODULE(methods)
