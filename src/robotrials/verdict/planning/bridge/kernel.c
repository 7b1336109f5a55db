/* Passes over simulated Brownian bridges; kernel.py says what each does. */

#include "native.h"

static int add_bridges_run(Arg *a) {
    float *walk = F4(0), *out = F4(4);
    const float *steps = F4(1), *clock = F4(2);
    float scale = (float)a[3].x;
    int64_t bridges = LENGTH('r'), k = LENGTH('k');
    for (int64_t r = 0; r < bridges; r++) {
        float *row = walk + r * (k + 1), total = 0.0f;
        for (int64_t j = 0; j < k + 1; j++) {
            total += row[j] * steps[j];
            row[j] = total;
        }
        for (int64_t j = 0; j < k; j++) out[j * bridges + r] += (row[j] - clock[j] * total) * scale;
    }
    return 0;
}
KERNEL(add_bridges, "F:rj f:j f:k x F:kr")

LANED static int sup_shifted_run(Arg *a) {
    const float *noise = F4(0), *drift = F4(1);
    float *restrict out = F4(2);
    int64_t k = LENGTH('k'), bridges = LENGTH('r');
    for (int64_t r = 0; r < bridges; r++) out[r] = 0.0f;
    for (int64_t j = 0; j < k; j++) {
        const float *row = noise + j * bridges;
        float shift = drift[j];
        for (int64_t r = 0; r < bridges; r++) {
            float size = fabsf(row[r] + shift);
            out[r] = out[r] > size ? out[r] : size;
        }
    }
    return 0;
}
KERNEL(sup_shifted, "f:kr f:k F:r")

LANED static int sup_scaled_run(Arg *a) {
    const float *noise = F4(0), *drift = F4(1), *scale = F4(2);
    float *restrict out = F4(3);
    int64_t k = LENGTH('k'), bridges = LENGTH('r');
    for (int64_t r = 0; r < bridges; r++) out[r] = 0.0f;
    for (int64_t j = 0; j < k; j++) {
        const float *row = noise + j * bridges;
        float shift = drift[j];
        for (int64_t r = 0; r < bridges; r++) {
            float size = fabsf(row[r] + scale[r] * shift);
            out[r] = out[r] > size ? out[r] : size;
        }
    }
    return 0;
}
KERNEL(sup_scaled, "f:kr f:k f:r F:r")

static PyMethodDef methods[] = {ENTRY(add_bridges), ENTRY(sup_shifted), ENTRY(sup_scaled), {NULL, NULL, 0, NULL}};
MODULE(methods)
