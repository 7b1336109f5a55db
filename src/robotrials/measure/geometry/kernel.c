/* The intersection of two oriented boxes, and the fusing of depth images into voxels; kernel.py says how. */

#include "native.h"

enum { MAX_FACES = 40, MAX_FACE_VERTICES = 64, MAX_VERTICES = 512, MAX_CUTS = 128 };

/* Corners of a box by the signs of bits 0 (x), 1 (y), 2 (z); faces counter-clockwise from outside. */
static const int BOX_FACES[6][4] = {{0, 4, 6, 2}, {1, 3, 7, 5}, {0, 1, 5, 4}, {2, 6, 7, 3}, {0, 2, 3, 1}, {4, 5, 7, 6}};

typedef struct {
    double vertices[MAX_VERTICES][3], distance[MAX_VERTICES];
    int faces[MAX_FACES][MAX_FACE_VERTICES], counts[MAX_FACES], ends[MAX_CUTS][2], follows[MAX_CUTS], kept[MAX_FACE_VERTICES];
    int n_vertices, n_faces, n_cuts;
} Body;

static void start(Body *body, const double *center, const double *half, double turn[3][3]) {
    for (int corner = 0; corner < 8; corner++)
        for (int axis = 0; axis < 3; axis++) {
            double value = center[axis];
            for (int k = 0; k < 3; k++) value += turn[axis][k] * ((corner >> k) & 1 ? 1.0 : -1.0) * half[k];
            body->vertices[corner][axis] = value;
        }
    for (int f = 0; f < 6; f++) {
        body->counts[f] = 4;
        for (int i = 0; i < 4; i++) body->faces[f][i] = BOX_FACES[f][i];
    }
    body->n_vertices = 8;
    body->n_faces = 6;
}

/* The number, within this clip, of the new vertex on edge i-j; it is made when the edge is met first. */
static int cut(Body *body, int i, int j, int axis, double level) {
    int low = i < j ? i : j, high = i < j ? j : i;
    for (int c = 0; c < body->n_cuts; c++)
        if (body->ends[c][0] == low && body->ends[c][1] == high) return c;
    double share = body->distance[low] / (body->distance[low] - body->distance[high]);
    int made = body->n_vertices + body->n_cuts;
    for (int k = 0; k < 3; k++)
        body->vertices[made][k] = body->vertices[low][k] + share * (body->vertices[high][k] - body->vertices[low][k]);
    body->vertices[made][axis] = level;
    body->ends[body->n_cuts][0] = low;
    body->ends[body->n_cuts][1] = high;
    return body->n_cuts++;
}

/* One face without what lies outside; gives how many vertices are kept. */
static int clip_face(Body *body, int f, int axis, double level) {
    int n = body->counts[f], size = 0, first_entry = -1, last_exit = -1;
    for (int i = 0; i < n; i++) {
        int v = body->faces[f][i], w = body->faces[f][i + 1 < n ? i + 1 : 0], v_in = body->distance[v] <= 0.0;
        if (v_in) body->kept[size++] = v;
        if (v_in == (body->distance[w] <= 0.0)) continue;
        int c = cut(body, v, w, axis, level);
        body->kept[size++] = body->n_vertices + c;
        if (v_in) last_exit = c;
        else if (last_exit >= 0) {
            body->follows[c] = last_exit;
            last_exit = -1;
        } else first_entry = c;
    }
    if (first_entry >= 0) body->follows[first_entry] = last_exit;
    return size;
}

/* Keep what lies at sign * x[axis] <= limit. */
static void clip(Body *body, int axis, double sign, double limit) {
    int n_out = 0, n_in = 0, written = 0;
    for (int f = 0; f < body->n_faces; f++)
        for (int i = 0; i < body->counts[f]; i++) {
            int v = body->faces[f][i];
            body->distance[v] = sign * body->vertices[v][axis] - limit;
            if (body->distance[v] > 0.0) n_out++;
            else n_in++;
        }
    if (n_out == 0) return;
    if (n_in == 0) {
        body->n_faces = 0;
        return;
    }
    body->n_cuts = 0;
    for (int f = 0; f < body->n_faces; f++) {
        int size = clip_face(body, f, axis, sign * limit);
        if (size < 3) continue;
        for (int i = 0; i < size; i++) body->faces[written][i] = body->kept[i];
        body->counts[written++] = size;
    }
    for (int c = 0; c < body->n_cuts; c++) {
        int size = 0, at = c;
        while (body->follows[at] >= 0) {
            int onward = body->follows[at];
            body->faces[written][size++] = body->n_vertices + at;
            body->follows[at] = -1;
            at = onward;
        }
        if (size >= 3) body->counts[written++] = size;
    }
    body->n_vertices += body->n_cuts;
    body->n_faces = written;
}

/* By the divergence theorem, from a vertex of the body itself, so that distance from the origin costs nothing. */
static double volume(const Body *body) {
    if (body->n_faces == 0) return 0.0;
    const double *o = body->vertices[body->faces[0][0]];
    double total = 0.0;
    for (int f = 0; f < body->n_faces; f++) {
        const double *p = body->vertices[body->faces[f][0]];
        double ax = p[0] - o[0], ay = p[1] - o[1], az = p[2] - o[2];
        for (int i = 1; i < body->counts[f] - 1; i++) {
            const double *q = body->vertices[body->faces[f][i]], *r = body->vertices[body->faces[f][i + 1]];
            double bx = q[0] - o[0], by = q[1] - o[1], bz = q[2] - o[2], cx = r[0] - o[0], cy = r[1] - o[1], cz = r[2] - o[2];
            total += ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx);
        }
    }
    return total / 6.0;
}

/* An order of two boxes that doesn't depend on which came first, so that the result is the same bit for bit. */
static int b_first(const double *ca, const double *sa, const double *ra, const double *cb, const double *sb, const double *rb) {
    double va = sa[0] * sa[1] * sa[2], vb = sb[0] * sb[1] * sb[2];
    if (va != vb) return vb > va;
    for (int k = 0; k < 3; k++) {
        if (sa[k] != sb[k]) return sb[k] > sa[k];
        if (ca[k] != cb[k]) return cb[k] > ca[k];
    }
    for (int k = 0; k < 9; k++)
        if (ra[k] != rb[k]) return rb[k] > ra[k];
    return 0;
}

static double shared_volume(Body *body, const double *ca, const double *sa, const double *ra, const double *cb, const double *sb, const double *rb) {
    if (b_first(ca, sa, ra, cb, sb, rb)) return shared_volume(body, cb, sb, rb, ca, sa, ra);
    double center[3], half[3], turn[3][3], gap = 0.0, reach = 0.0;
    for (int k = 0; k < 3; k++) {
        gap += (cb[k] - ca[k]) * (cb[k] - ca[k]);
        reach += sa[k] * sa[k];
        half[k] = 0.5 * sb[k];
    }
    double other = sb[0] * sb[0] + sb[1] * sb[1] + sb[2] * sb[2], touch = 0.5 * (sqrt(reach) + sqrt(other));
    if (gap > touch * touch * (1 + 1e-12)) return 0.0;
    for (int i = 0; i < 3; i++) {
        center[i] = 0.0;
        for (int k = 0; k < 3; k++) {
            center[i] += ra[3 * k + i] * (cb[k] - ca[k]);
            turn[i][k] = ra[i] * rb[k] + ra[3 + i] * rb[3 + k] + ra[6 + i] * rb[6 + k];
        }
    }
    start(body, center, half, turn);
    for (int axis = 0; axis < 3; axis++)
        for (int side = 0; side < 2 && body->n_faces > 0; side++) clip(body, axis, side ? -1.0 : 1.0, 0.5 * sa[axis]);
    return larger(0.0, volume(body));
}

static int intersection_volumes_run(Arg *a) {
    Body *body = malloc(sizeof(Body));
    if (!body) return -1;
    for (int c = 0; c < MAX_CUTS; c++) body->follows[c] = -1;
    for (int64_t p = 0; p < LENGTH('n'); p++)
        F8(6)[p] = shared_volume(body, F8(0) + 3 * p, F8(1) + 3 * p, F8(2) + 9 * p, F8(3) + 3 * p, F8(4) + 3 * p, F8(5) + 9 * p);
    free(body);
    return 0;
}
KERNEL(intersection_volumes, "d:n3 d:n3 d:n33 d:n3 d:n3 d:n33 D:n")

static int fuse_pixels_run(Arg *a) {
    const double *depth = F8(0), *focal = F8(4), *turn = F8(5), *shift = F8(6), *low = F8(7);
    const uint8_t *rgb = U1(1), *mask = U1(2);
    const int64_t *shape = I8(9);
    int32_t *index = I4(10);
    double *sums = F8(11), scale = 1.0 / a[8].x;
    int64_t *counts = I8(12), *cells = I8(13), n = a[14].n, height = LENGTH('h'), width = LENGTH('w'), use_mask = a[3].n;
    for (int64_t v = 0; v < height; v++) {
        double y_ray = ((double)v - focal[3]) / focal[1];
        for (int64_t u = 0; u < width; u++) {
            int64_t pixel = v * width + u;
            double d = depth[pixel];
            if (!(d > 0.0 && d < 1e9) || (use_mask && !mask[pixel])) continue;
            double x_ray = ((double)u - focal[2]) / focal[0];
            double x = d * (turn[0] * x_ray + turn[1] * y_ray + turn[2]) + shift[0];
            double y = d * (turn[3] * x_ray + turn[4] * y_ray + turn[5]) + shift[1];
            double z = d * (turn[6] * x_ray + turn[7] * y_ray + turn[8]) + shift[2];
            double fx = (x - low[0]) * scale, fy = (y - low[1]) * scale, fz = (z - low[2]) * scale;
            if (fx < 0.0 || fy < 0.0 || fz < 0.0 || fx >= (double)shape[0] || fy >= (double)shape[1] || fz >= (double)shape[2]) continue;
            int64_t cell = ((int64_t)fx * shape[1] + (int64_t)fy) * shape[2] + (int64_t)fz, at = index[cell];
            if (at < 0) {
                at = n++;
                index[cell] = (int32_t)at;
                cells[at] = cell;
                counts[at] = 0;
                for (int k = 0; k < 6; k++) sums[6 * at + k] = 0.0;
            }
            counts[at]++;
            sums[6 * at] += x;
            sums[6 * at + 1] += y;
            sums[6 * at + 2] += z;
            for (int k = 0; k < 3; k++) sums[6 * at + 3 + k] += rgb[3 * pixel + k];
        }
    }
    a[0].n = n;
    return 0;
}
COUNTING(fuse_pixels, "d:hw b:hw3 b:__ n d:4 d:33 d:3 d:3 x l:3 I:_ D:_6 L:_ L:_ n")

static int hue_mask_run(Arg *a) {
    const uint8_t *rgb = U1(0);
    uint8_t *out = U1(5);
    double hue_deg = a[1].x, slack = a[2].x, least_saturation = a[3].x, least_value = a[4].x;
    int64_t pixels = LENGTH('h') * LENGTH('w');
    for (int64_t i = 0; i < pixels; i++) {
        double r = rgb[3 * i], g = rgb[3 * i + 1], b = rgb[3 * i + 2];
        double top = larger(larger(r, g), b), chroma = top - smaller(smaller(r, g), b), hue;
        out[i] = 0;
        if (top < least_value * 255.0 || chroma < least_saturation * top || chroma <= 0.0) continue;
        if (top == r) hue = 60.0 * ((g - b) / chroma);
        else if (top == g) hue = 60.0 * ((b - r) / chroma + 2.0);
        else hue = 60.0 * ((r - g) / chroma + 4.0);
        double round = fmod(hue - hue_deg + 180.0, 360.0);
        if (round < 0.0) round += 360.0;
        out[i] = fabs(round - 180.0) <= slack;
    }
    return 0;
}
KERNEL(hue_mask, "b:hw3 x x x x B:hw")

static PyMethodDef methods[] = {ENTRY(intersection_volumes), ENTRY(fuse_pixels), ENTRY(hue_mask), {NULL, NULL, 0, NULL}};
MODULE(methods)
