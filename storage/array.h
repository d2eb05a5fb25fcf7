/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements in memory: their types, and where they lie as shape and strides tell. Part of storage.h; pure functions of
 * values that the caller owns, from any thread.
 *
 * A geometry is a shape with a stride for each axis, in elements as in PyTorch and DLPack (NumPy's are in bytes), and
 * the offset of its first element. Strides may be negative, and 0 where an axis was expanded. Sizes of axes are 0 or
 * more; an axis given as a negative number counts from the last one, as in NumPy. Functions that fail return a negative
 * enum varve_error with a reason in `message` (may be NULL), and leave what they would have written as it was.
 */
#ifndef VARVE_STORAGE_ARRAY_H
#define VARVE_STORAGE_ARRAY_H

#include "base/error.h"
#include "trace/event_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Types of elements ---- */

/* X(code, NAME, name, bytes): those that traces know. */
#define VARVE_DTYPE_LIST(X) VARVE_ELEMENT_LIST(X)

enum varve_dtype {
#define VARVE_DTYPE_ENUM(code, NAME, name, bytes) VARVE_DTYPE_##NAME = (code),
    VARVE_DTYPE_LIST(VARVE_DTYPE_ENUM)
#undef VARVE_DTYPE_ENUM
        VARVE_DTYPE_LIMIT,
};

/// Bytes of one element; 0 for no type of the list.
size_t varve_dtype_bytes(enum varve_dtype dtype);
/// "f32" and so on, static; "?" for no type of the list.
const char *varve_dtype_name(enum varve_dtype dtype);
/// The type of that name. Errors: VARVE_ERROR_NOT_FOUND.
int varve_dtype_find(const char *name, enum varve_dtype *dtype_out);

/* ---- Geometry ---- */

#define VARVE_DIMS_MAX 16

struct varve_geometry {
    int64_t shape[VARVE_DIMS_MAX];
    int64_t strides[VARVE_DIMS_MAX]; /* elements */
    int64_t offset;                  /* elements, from the beginning of the data to element [0, 0, …] */
    unsigned ndim;                   /* 0: one element */
};

/// The usual order, the last axis the densest, with offset 0. `shape` has `ndim` sizes. Errors: VARVE_ERROR_INVALID
/// (a negative size, too many axes, 2^60 elements or more, also where another axis has none).
int varve_geometry_contiguous(unsigned ndim, const int64_t *shape, struct varve_geometry *geometry_out,
                              struct varve_message *message);
/// Elements; the product of the shape.
int64_t varve_geometry_count(const struct varve_geometry *geometry);
/// Do the elements follow each other in the usual order, without gaps? Axes of size 1 do not matter, nor
/// does the offset.
bool varve_geometry_is_contiguous(const struct varve_geometry *geometry);
/// The range of elements of the data that the geometry reaches, [first, end); both 0 if it has no elements.
void varve_geometry_range(const struct varve_geometry *geometry, int64_t *first_out, int64_t *end_out);
/// Do all elements lie among the first `elements` of the data? Any geometry may be asked about, whoever wrote it.
/// Errors: VARVE_ERROR_INVALID (elements elsewhere, too many dimensions, negative sizes, too many elements).
int varve_geometry_check(const struct varve_geometry *geometry, uint64_t elements, struct varve_message *message);
bool varve_geometry_has_shape(const struct varve_geometry *geometry, unsigned ndim, const int64_t *shape);

/* The functions below change a geometry to that of a view of the same data; none touches data. */

/// Axis `axis` from `start` to `stop` (which does not belong to it) by `step`, as slice(start, stop, step) of Python:
/// negative bounds count from the end, bounds beyond it are moved to it, VARVE_SLICE_NONE stands for a bound that is
/// left out. Errors: VARVE_ERROR_INVALID (no such axis, step 0).
#define VARVE_SLICE_NONE INT64_MIN
int varve_geometry_slice(struct varve_geometry *geometry, int axis, int64_t start, int64_t stop, int64_t step,
                         struct varve_message *message);
/// Entry `index` of axis `axis`, which disappears. Errors: VARVE_ERROR_INVALID (no such axis, index outside of it).
int varve_geometry_select(struct varve_geometry *geometry, int axis, int64_t index, struct varve_message *message);
/// Exchange two axes. Errors: VARVE_ERROR_INVALID.
int varve_geometry_transpose(struct varve_geometry *geometry, int axis, int other, struct varve_message *message);
/// Axis `i` becomes the one that was `axes[i]`. Errors: VARVE_ERROR_INVALID (no permutation of the axes).
int varve_geometry_permute(struct varve_geometry *geometry, const int *axes, unsigned count,
                           struct varve_message *message);
/// Axes of size 1 become as large as `shape` says, with stride 0, and new ones come in front, as broadcasting does; -1
/// leaves an axis as it is. Errors: VARVE_ERROR_INVALID (the shapes do not fit).
int varve_geometry_expand(struct varve_geometry *geometry, unsigned ndim, const int64_t *shape,
                          struct varve_message *message);
/// Another shape of the same elements in the same order; one size may be -1, which is worked out. Errors:
/// VARVE_ERROR_INVALID (another number of elements), VARVE_ERROR_UNSUPPORTED (the strides allow no such
/// view: copy first).
int varve_geometry_reshape(struct varve_geometry *geometry, unsigned ndim, const int64_t *shape,
                           struct varve_message *message);
/// Errors: VARVE_ERROR_INVALID (too many dimensions, a negative size, 2^60 elements or more, also where
/// another axis has none).
int varve_shape_check(unsigned ndim, const int64_t *shape, struct varve_message *message);
/// The shape that two shapes broadcast to: written into `ndim_out` and `shape_out` (VARVE_DIMS_MAX sizes). Errors:
/// VARVE_ERROR_INVALID, with both shapes.
int varve_shape_broadcast(unsigned ndim, const int64_t *shape, unsigned other_ndim, const int64_t *other_shape,
                          unsigned *ndim_out, int64_t *shape_out, struct varve_message *message);
/// "(2, 3)", as NumPy writes shapes; returns `text`, which has `bytes` bytes.
const char *varve_shape_text(unsigned ndim, const int64_t *shape, char *text, size_t bytes);
#define VARVE_SHAPE_TEXT_BYTES 400

/* ---- Arrays ---- */

/* Elements somewhere: what storages, views and foreign memory look like to what works on elements. `data` may be at any
 * address, also one that is no multiple of the element's size. */
struct varve_array {
    void *data;
    struct varve_geometry geometry;
    enum varve_dtype dtype;
};

/* One number that elements are set to: what Python's True, 3 and 0.5 are. */
struct varve_scalar {
    enum { VARVE_SCALAR_BOOL, VARVE_SCALAR_INTEGER, VARVE_SCALAR_REAL } kind;
    int64_t integer; /* BOOL, INTEGER */
    double real;     /* REAL */
};

/// Copy elements, converted where the types differ, from `source` to `target`, whose shape the source's is expanded to
/// (axes of size 1 in front that the target lacks are not dropped, which NumPy would do). What overlaps is copied as if
/// the source had been set aside first (which takes memory only then). Conversions are those of C and of NumPy's astype
/// where these are defined: to floating point rounds once to nearest even, also from f64 and i64 to f16 and bf16; NaN
/// becomes quiet and keeps its sign and the upper bits of its payload, and within one type all its bits; to integers
/// truncates, values out of range saturate and NaN becomes 0 (NumPy leaves both undefined); integers to narrower ones
/// keep the low bits; to bool is `!= 0`. Host memory only. Errors: VARVE_ERROR_INVALID (types, shapes, a target with
/// elements that share an address, or with strides that interleave so that no axis steps over the ones with smaller
/// strides), VARVE_ERROR_NO_MEMORY.
int varve_array_copy(const struct varve_array *target, const struct varve_array *source, struct varve_message *message);
/// Set all elements; `value` is converted as varve_array_copy does from bool, i64 or f64. Errors: VARVE_ERROR_INVALID.
int varve_array_fill(const struct varve_array *target, struct varve_scalar value, struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
