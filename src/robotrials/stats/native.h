/* What every kernel.c shares: arguments taken by the buffer protocol, checked against a specification, and the call.

   A kernel is `static int name_run(Arg *a)`, which gives 0, or -1 where memory ran out. KERNEL(name, specification) makes
   it a Python function. The specification has one word an argument: a type, and for arrays a colon and the shape.

     d f i l b   array of float64, float32, int32, int64, bytes (uint8, int8, bool); the capital is written to
     x n s       a float, an integer, an unsigned 64-bit seed
     nk3_        shape: a letter is a length that must be the same wherever it stands, a digit itself, _ any length
     ~           after the type: may be strided (a[k].view.strides); without it the array is C-contiguous

   Floating point is exactly what is written: no fused multiply-add, no reordering (see tools/build_kernels.py). */

#ifndef ROBOTRIALS_NATIVE_H
#define ROBOTRIALS_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Loops over lanes are compiled for each width of the vector unit, and the loader picks; the results are the same. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define LANED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LANED
#endif
#define INLINE static inline __attribute__((always_inline))

#define MOST_ARGUMENTS 20

typedef struct {
    Py_buffer view;
    double x;
    int64_t n;
    uint64_t s;
    Py_ssize_t *lengths; /* by letter, the same for all arguments of a call */
} Arg;

#define F8(k) ((double *)a[k].view.buf)
#define F4(k) ((float *)a[k].view.buf)
#define I4(k) ((int32_t *)a[k].view.buf)
#define I8(k) ((int64_t *)a[k].view.buf)
#define U1(k) ((uint8_t *)a[k].view.buf)
#define I1(k) ((int8_t *)a[k].view.buf)
#define LENGTH(letter) ((int64_t)a[0].lengths[(letter) - 'a'])

static const char *formats_of(char type) {
    switch (type) {
    case 'd': return "d";
    case 'f': return "f";
    case 'i': return "i";
    case 'l': return "lq";
    case 'b': return "bB?";
    }
    return "";
}

/* Take one array; the word stands behind its type. */
static int take_array(const char *name, int at, PyObject *value, char type, const char *word, Arg *arg) {
    int writable = type < 'a', strided = *word == '~';
    char kind = (char)(writable ? type + ('a' - 'A') : type);
    int flags = PyBUF_FORMAT | (strided ? PyBUF_STRIDES : PyBUF_C_CONTIGUOUS) | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(value, &arg->view, flags) < 0) return -1;
    const char *format = arg->view.format, *wanted = formats_of(kind);
    Py_ssize_t size = kind == 'd' || kind == 'l' ? 8 : kind == 'b' ? 1 : 4;
    if (!format || !format[0] || format[1] || !strchr(wanted, format[0]) || arg->view.itemsize != size) {
        PyErr_Format(PyExc_TypeError, "%s: argument %d holds '%s', wanted '%c'", name, at + 1, format ? format : "?", kind);
        return -1;
    }
    const char *shape = word + strided;
    int axes = 0;
    if (*shape == ':')
        for (shape++; shape[axes] && shape[axes] != ' ';) axes++;
    if (arg->view.ndim != axes) {
        PyErr_Format(PyExc_ValueError, "%s: argument %d has %d axes, wanted %d", name, at + 1, arg->view.ndim, axes);
        return -1;
    }
    for (int axis = 0; axis < axes; axis++) {
        Py_ssize_t length = arg->view.shape[axis], want = length;
        if (shape[axis] >= '0' && shape[axis] <= '9') want = shape[axis] - '0';
        if (shape[axis] >= 'a' && shape[axis] <= 'z') {
            Py_ssize_t *known = arg->lengths + (shape[axis] - 'a');
            if (*known < 0) *known = length;
            want = *known;
        }
        if (length != want) {
            PyErr_Format(PyExc_ValueError, "%s: argument %d has length %zd in axis %d, wanted %zd", name, at + 1, length, axis, want);
            return -1;
        }
    }
    return 0;
}

static int take_one(const char *name, int at, PyObject *value, const char *word, Arg *arg) {
    switch (*word) {
    case 'x': arg->x = PyFloat_AsDouble(value); return PyErr_Occurred() ? -1 : 0;
    case 'n': arg->n = PyLong_AsLongLong(value); return PyErr_Occurred() ? -1 : 0;
    case 's': {
        PyObject *whole = PyNumber_Index(value);
        if (!whole) return -1;
        arg->s = PyLong_AsUnsignedLongLongMask(whole);
        Py_DECREF(whole);
        return PyErr_Occurred() ? -1 : 0;
    }
    }
    return take_array(name, at, value, *word, word + 1, arg);
}

/* Take the arguments, run the kernel, and give None, or a[0].n where the kernel counts. */
static PyObject *call_kernel(
    const char *name, const char *spec, PyObject *const *values, Py_ssize_t count, int (*run)(Arg *), int keeps_lock, int counts
) {
    Arg a[MOST_ARGUMENTS];
    Py_ssize_t lengths[26];
    PyObject *result = NULL;
    int taken = 0, status = 0, failed = 0;
    memset(a, 0, sizeof a);
    for (int k = 0; k < 26; k++) lengths[k] = -1;
    for (const char *word = spec; *word && !failed; taken++) {
        if (taken == count || taken == MOST_ARGUMENTS) break;
        a[taken].lengths = lengths;
        failed = take_one(name, taken, values[taken], word, &a[taken]) < 0;
        while (*word && *word != ' ') word++;
        while (*word == ' ') word++;
        if (!failed && ((taken + 1 == count) != (*word == 0))) {
            PyErr_Format(PyExc_TypeError, "%s: %zd arguments were given, which is not how many it takes", name, count);
            failed = 1;
        }
    }
    if (!failed && count == 0) {
        PyErr_Format(PyExc_TypeError, "%s: no arguments were given", name);
        failed = 1;
    }
    if (!failed) {
        if (keeps_lock) {
            status = run(a);
        } else {
            Py_BEGIN_ALLOW_THREADS
            status = run(a);
            Py_END_ALLOW_THREADS
        }
        if (status < 0) PyErr_NoMemory();
        else if (counts) result = PyLong_FromLongLong(a[0].n);
        else { Py_INCREF(Py_None); result = Py_None; }
    }
    for (int k = 0; k < taken; k++)
        if (a[k].view.obj) PyBuffer_Release(&a[k].view);
    return result;
}

#define KERNEL_OF(name, spec, keeps_lock, counts)                                                              \
    static PyObject *name##_call(PyObject *self, PyObject *const *values, Py_ssize_t count) {                  \
        (void)self;                                                                                            \
        return call_kernel(#name, spec, values, count, name##_run, keeps_lock, counts);                        \
    }
#define KERNEL(name, spec) KERNEL_OF(name, spec, 0, 0)       /* other threads run meanwhile */
#define COUNTING(name, spec) KERNEL_OF(name, spec, 0, 1)     /* and it gives a[0].n */
#define SHORT_KERNEL(name, spec) KERNEL_OF(name, spec, 1, 0) /* microseconds: giving the lock away would cost more */
#define ENTRY(name) {#name, (PyCFunction)(void (*)(void))name##_call, METH_FASTCALL, NULL}

#ifndef SOURCE_DIGEST
#define SOURCE_DIGEST ""
#endif

/* The module: SOURCE is the digest of what it was compiled from, so that a stale one shows. */
#define MODULE(methods)                                                                                        \
    static struct PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, "_kernel", NULL, -1, methods, NULL, NULL, NULL, NULL}; \
    PyMODINIT_FUNC PyInit__kernel(void) {                                                                      \
        PyObject *module = PyModule_Create(&module_definition);                                                \
        if (module && PyModule_AddStringConstant(module, "SOURCE", SOURCE_DIGEST) < 0) {                       \
            Py_DECREF(module);                                                                                 \
            return NULL;                                                                                       \
        }                                                                                                      \
        return module;                                                                                         \
    }

INLINE double larger(double p, double q) { return p > q ? p : q; }
INLINE double smaller(double p, double q) { return p < q ? p : q; }
INLINE int64_t least(int64_t p, int64_t q) { return p < q ? p : q; }

/* Rooms of one block of memory, so that one test and one free serve: `need` bytes each, rounded to a cache line. */
typedef struct {
    char *block, *next;
} Rooms;

INLINE size_t room_size(size_t bytes) { return (bytes + 63) / 64 * 64 + 64; }
INLINE int open_rooms(Rooms *rooms, size_t bytes) {
    rooms->block = malloc(bytes + 64);
    rooms->next = rooms->block ? rooms->block + (64 - (uintptr_t)rooms->block % 64) % 64 : NULL;
    return rooms->block ? 0 : -1;
}
INLINE void *room(Rooms *rooms, size_t bytes) {
    void *place = rooms->next;
    rooms->next += room_size(bytes);
    return place;
}

#endif
