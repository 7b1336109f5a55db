/* The inner loops of a control step; kernel.py has the same in Python, bit for bit. */

#include "native.h"

enum { MOST_JOINTS = 16 };
#define PI 3.141592653589793

/* A strided element: what MuJoCo gives is a column of its own structs. */
#define AT(type, k, i, j) (*(type *)((char *)a[k].view.buf + (i) * a[k].view.strides[0] + (j) * a[k].view.strides[1]))

static int keep_peaks_run(Arg *a) {
    double *peaks = F8(0), *points = F8(1), *total = F8(2), *moment = F8(3);
    const int64_t *group = I8(8);
    int64_t bodies = LENGTH('b'), contacts = LENGTH('c');
    for (int64_t c = 0; c < contacts; c++) {
        int64_t r = *(int32_t *)((char *)a[5].view.buf + c * a[5].view.strides[0]);
        if (r < 0) continue;
        int64_t pair = group[AT(int32_t, 4, c, 0)] * bodies + group[AT(int32_t, 4, c, 1)];
        const double *f = F8(6) + r;
        double force = sqrt(f[0] * f[0] + f[1] * f[1] + f[2] * f[2]);
        total[pair] += force;
        for (int k = 0; k < 3; k++) moment[3 * pair + k] += force * AT(double, 7, c, k);
    }
    for (int64_t c = 0; c < contacts; c++) {
        int64_t p = group[AT(int32_t, 4, c, 0)], q = group[AT(int32_t, 4, c, 1)], pair = p * bodies + q;
        if (total[pair] > peaks[pair]) peaks[pair] = total[pair];
        if (total[pair] > 0.0)
            for (int k = 0; k < 3; k++) {
                points[3 * pair + k] = points[3 * (q * bodies + p) + k] = moment[3 * pair + k] / total[pair];
                moment[3 * pair + k] = 0.0;
            }
        total[pair] = 0.0;
    }
    return 0;
}
SHORT_KERNEL(keep_peaks, "D:bb D:bb3 D:bb D:bb3 i~:c2 i~:c d:_ d~:c3 l:_")

static void product(double c[3][3], double a[3][3], double b[3][3]) {
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) c[i][j] = a[i][0] * b[0][j] + a[i][1] * b[1][j] + a[i][2] * b[2][j];
}

/* Position and rotation of the tool, each joint's axis and origin. */
static void forward(const double *table, const double *hand, const double *angles, int n, double (*axes)[3], double (*origins)[3], double *place, double out[3][3]) {
    double rotation[3][3] = {{1.0, 0.0, 0.0}, {0.0, 1.0, 0.0}, {0.0, 0.0, 1.0}}, turned[3][3];
    for (int r = 0; r < 3; r++) place[r] = 0.0;
    for (int i = 0; i < n; i++) {
        double a = table[4 * i], d = table[4 * i + 1], sa = table[4 * i + 2], ca = table[4 * i + 3];
        double st = sin(angles[i]), ct = cos(angles[i]);
        for (int r = 0; r < 3; r++) place[r] += rotation[r][0] * a - rotation[r][1] * sa * d + rotation[r][2] * ca * d;
        double step[3][3] = {{ct, -st, 0.0}, {st * ca, ct * ca, -sa}, {st * sa, ct * sa, ca}};
        product(turned, rotation, step);
        memcpy(rotation, turned, sizeof rotation);
        for (int r = 0; r < 3; r++) {
            axes[i][r] = rotation[r][2];
            origins[i][r] = place[r];
        }
    }
    for (int r = 0; r < 3; r++) place[r] += rotation[r][2] * hand[0];
    double step[3][3] = {{hand[2], -hand[1], 0.0}, {hand[1], hand[2], 0.0}, {0.0, 0.0, 1.0}};
    product(out, rotation, step);
}

/* The wxyz quaternion of a rotation, by its largest component. */
static void quaternion(double m[3][3], double *q) {
    double trace = m[0][0] + m[1][1] + m[2][2];
    if (trace > 0) {
        double s = sqrt(trace + 1.0) * 2;
        q[0] = s / 4;
        q[1] = (m[2][1] - m[1][2]) / s;
        q[2] = (m[0][2] - m[2][0]) / s;
        q[3] = (m[1][0] - m[0][1]) / s;
        return;
    }
    int i = m[1][1] > m[0][0] ? 1 : 0;
    if (m[2][2] > m[i][i]) i = 2;
    int j = (i + 1) % 3, k = (i + 2) % 3;
    double s = sqrt(1.0 + m[i][i] - m[j][j] - m[k][k]) * 2;
    q[0] = (m[k][j] - m[j][k]) / s;
    q[1 + i] = s / 4;
    q[1 + j] = (m[j][i] + m[i][j]) / s;
    q[1 + k] = (m[k][i] + m[i][k]) / s;
}

/* The axis-angle vector from `rotation` to the target's quaternion, into error[3], error[4], error[5]. */
static void turn_error(const double *target, double rotation[3][3], double *error) {
    double q[4], tw = target[3], tx = target[4], ty = target[5], tz = target[6];
    quaternion(rotation, q);
    double w = tw * q[0] + tx * q[1] + ty * q[2] + tz * q[3];
    double x = -tw * q[1] + tx * q[0] - ty * q[3] + tz * q[2];
    double y = -tw * q[2] + tx * q[3] + ty * q[0] - tz * q[1];
    double z = -tw * q[3] - tx * q[2] + ty * q[1] + tz * q[0];
    if (w < 0) {
        w = -w;
        x = -x;
        y = -y;
        z = -z;
    }
    double sine = sqrt(x * x + y * y + z * z), scale = sine < 1e-9 ? 2.0 : 2 * atan2(sine, w) / sine;
    error[3] = x * scale;
    error[4] = y * scale;
    error[5] = z * scale;
}

/* Cholesky solution of a 6 by 6 positive definite system. */
static void solve(double gram[6][6], const double *right, double *y) {
    double low[6][6];
    for (int i = 0; i < 6; i++)
        for (int j = 0; j <= i; j++) {
            double total = gram[i][j];
            for (int k = 0; k < j; k++) total -= low[i][k] * low[j][k];
            low[i][j] = i == j ? sqrt(total) : total / low[j][j];
        }
    for (int i = 0; i < 6; i++) {
        double total = right[i];
        for (int k = 0; k < i; k++) total -= low[i][k] * y[k];
        y[i] = total / low[i][i];
    }
    for (int i = 5; i >= 0; i--) {
        double total = y[i];
        for (int k = i + 1; k < 6; k++) total -= low[k][i] * y[k];
        y[i] = total / low[i][i];
    }
}

static int inverse_run(Arg *a) {
    const double *target = F8(2), *home = F8(4), *ease = F8(5), *low = F8(6), *high = F8(7);
    double *angles = F8(9), axes[MOST_JOINTS][3], origins[MOST_JOINTS][3], jacobian[6][MOST_JOINTS];
    double gram[6][6], error[6], weight[6], place[3], rotation[3][3];
    int n = (int)LENGTH('n');
    if (n > MOST_JOINTS) return -1;
    for (int i = 0; i < n; i++) angles[i] = F8(3)[i];
    for (int64_t round = 0; round < a[8].n; round++) {
        forward(F8(0), F8(1), angles, n, axes, origins, place, rotation);
        for (int r = 0; r < 3; r++) error[r] = target[r] - place[r];
        turn_error(target, rotation, error);
        for (int i = 0; i < n; i++) {
            double x = place[0] - origins[i][0], y = place[1] - origins[i][1], z = place[2] - origins[i][2];
            jacobian[0][i] = axes[i][1] * z - axes[i][2] * y;
            jacobian[1][i] = axes[i][2] * x - axes[i][0] * z;
            jacobian[2][i] = axes[i][0] * y - axes[i][1] * x;
            for (int r = 0; r < 3; r++) jacobian[3 + r][i] = axes[i][r];
            for (int r = 0; r < 6; r++) error[r] -= jacobian[r][i] * ease[i] * (home[i] - angles[i]);
        }
        for (int r = 0; r < 6; r++)
            for (int c = 0; c < 6; c++) {
                double total = r == c ? 1e-4 : 0.0;
                for (int i = 0; i < n; i++) total += jacobian[r][i] * jacobian[c][i];
                gram[r][c] = total;
            }
        solve(gram, error, weight);
        for (int i = 0; i < n; i++) {
            double step = ease[i] * (home[i] - angles[i]);
            for (int r = 0; r < 6; r++) step += jacobian[r][i] * weight[r];
            angles[i] = smaller(larger(angles[i] + smaller(larger(step, -0.3), 0.3), low[i]), high[i]);
        }
    }
    return 0;
}
SHORT_KERNEL(inverse, "d:n4 d:3 d:7 d:n d:n d:n d:n d:n n D:n")

static int refer_run(Arg *a) {
    const double *goal = F8(0), *last_goal = F8(1), *angles = F8(2), *velocity = F8(3), *brake = F8(4), *fastest = F8(5), *acceleration = F8(6);
    double lasting_s = a[7].x, *end = F8(8), *after = F8(9);
    for (int64_t i = 0; i < LENGTH('n'); i++) {
        double pace = (goal[i] - last_goal[i]) / lasting_s, behind = goal[i] - angles[i] - pace * lasting_s;
        double slowed = brake[i] * lasting_s;
        double brakeable = (sqrt(slowed * slowed + 8 * brake[i] * fabs(behind)) - slowed) / 2;
        double wanted = pace + smaller(larger(behind / lasting_s, -brakeable), brakeable), change = acceleration[i] * lasting_s;
        wanted = smaller(larger(wanted, velocity[i] - change), velocity[i] + change);
        wanted = smaller(larger(wanted, -fastest[i]), fastest[i]);
        end[i] = angles[i] + wanted * lasting_s;
        after[i] = wanted;
    }
    return 0;
}
SHORT_KERNEL(refer, "d:n d:n d:n d:n d:n d:n d:n x D:n D:n")

static double heading(double w, double x, double y, double z) {
    if (fabs(2 * (x * z - w * y)) < 0.7) return atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z));
    return atan2(1 - 2 * (x * x + z * z), 2 * (x * y - w * z)) - PI / 2;
}

static void write_grasp(double *out, const double *pose, const double *grasp_m, const double *box_m, double turns, double tip_m) {
    double step = 2 * PI / turns, w = pose[3], x = pose[4], y = pose[5], z = pose[6], yaw = heading(w, x, y, z);
    yaw -= step * rint(yaw / step);
    double gx = grasp_m[0], gy = grasp_m[1], gz = grasp_m[2];
    double tx = 2 * (y * gz - z * gy), ty = 2 * (z * gx - x * gz), tz = 2 * (x * gy - y * gx);
    double ux = 2 * (x * z - w * y), uy = 2 * (y * z + w * x), uz = 1 - 2 * (x * x + y * y);
    double bottom = pose[2] - (fabs(ux) * box_m[0] + fabs(uy) * box_m[1] + fabs(uz) * box_m[2]) / 2;
    out[0] = pose[0] + gx + w * tx + y * tz - z * ty;
    out[1] = pose[1] + gy + w * ty + z * tx - x * tz;
    out[2] = larger(pose[2] + gz + w * tz + x * ty - y * tx, bottom + tip_m);
    out[3] = 0.0;
    out[4] = cos(yaw / 2); /* Rz(yaw) Rx(pi) */
    out[5] = sin(yaw / 2);
    out[6] = 0.0;
}

static void write_nearest_turn(double *out, const double *goal, const double *pose, double turns) {
    double step = 2 * PI / turns, own = heading(pose[3], pose[4], pose[5], pose[6]);
    double angle = step * rint((own - heading(goal[3], goal[4], goal[5], goal[6])) / step);
    double w = cos(angle / 2), z = sin(angle / 2);
    for (int k = 0; k < 3; k++) out[k] = goal[k];
    out[3] = goal[3] * w - goal[6] * z;
    out[4] = goal[4] * w + goal[5] * z;
    out[5] = goal[5] * w - goal[4] * z;
    out[6] = goal[3] * z + goal[6] * w;
}

static int write_slots_run(Arg *a) {
    for (int64_t i = 0; i < LENGTH('n'); i++) {
        double *row = F8(0) + i * LENGTH('w'), turns = (double)I8(3)[i];
        const double *pose = F8(1) + 7 * i, *measures = F8(2) + 8 * i, *goal = F8(4) + 7 * i;
        row[0] = F8(5)[i];
        row[1] = measures[0];
        row[2] = measures[1];
        memcpy(row + 3, pose, 7 * sizeof(double));
        write_grasp(row + 10, pose, measures + 2, measures + 5, turns, a[6].x);
        if (isnan(goal[0])) memcpy(row + 17, pose, 7 * sizeof(double));
        else write_nearest_turn(row + 17, goal, pose, turns);
    }
    return 0;
}
SHORT_KERNEL(write_slots, "D:_w d:n7 d:n8 l:n d:n7 d:n x")

static PyMethodDef methods[] = {ENTRY(keep_peaks), ENTRY(inverse), ENTRY(refer), ENTRY(write_slots), {NULL, NULL, 0, NULL}};
MODULE(methods)
