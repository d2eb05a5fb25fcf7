/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this folder share: an index expression is read (index_expression.c), its arrays and masks become
 * positions (index_positions.c, index_bits.c), both are kept in a plan (index_plan_make.c), and elements are moved as
 * it says (index_gather.c).
 */
#ifndef VARVE_STORAGE_TENSORS_INDEX_INTERNAL_H
#define VARVE_STORAGE_TENSORS_INDEX_INTERNAL_H

#include "storage/index_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reading an expression */

/* An array or a mask with axes, and the axes of the source that it indexes. */
struct index_advanced {
    const struct varve_array *array;
    bool is_mask;
    unsigned axis;
    unsigned axis_count; /* 1; of a mask as many as it has */
};

struct index_expression {
    const struct varve_geometry *source;
    struct varve_geometry rest; /* the axes that slices and new axes leave, at the offset of all integers and slices */
    unsigned advanced_at;       /* the axes of arrays and masks come before this one of `rest` */
    bool has_advanced;
    /* Masks without axes make one axis, of this size: 1, or 0 if one of them is False. -1: there is none. */
    int64_t flag_size;
    unsigned advanced_count;
    struct index_advanced advanced[VARVE_DIMS_MAX];
};

/// Everything about `indices` but the values in arrays and masks is checked here. Errors: VARVE_ERROR_INVALID.
int index_expression_read(const struct varve_geometry *source, const struct varve_index *indices, unsigned count,
                          struct index_expression *expression, struct varve_message *message);

/* Masks as bits */

/* The elements of a mask in the usual order, 64 in a word, the first one the lowest bit. */
struct index_bits {
    uint64_t *words;
    int64_t size;
    int64_t set_count;
};

/// Owner of the words: the caller, by free(). Errors: VARVE_ERROR_NO_MEMORY.
int index_bits_read(const struct varve_array *mask, struct index_bits *bits_out, struct varve_message *message);
int64_t index_bits_words(const struct index_bits *bits);

/* Positions */

/* Where the arrays and masks of an expression point to, all together: bytes from the first element of its `rest`. */
struct index_positions {
    unsigned ndim; /* the shape that arrays and masks broadcast to */
    int64_t shape[VARVE_DIMS_MAX];
    int64_t count;
    bool is_wide; /* of 8 bytes instead of 4 */
    void *list;   /* NULL: `bits` are used */
    /* One mask, of axes that lie as one axis would: bit i is the position i * bit_stride. */
    struct index_bits bits;
    int64_t bit_stride;
};

/// Errors: VARVE_ERROR_INVALID (an index outside of its axis, shapes that don't broadcast), VARVE_ERROR_NO_MEMORY.
int index_positions_make(const struct index_expression *expression, size_t element_bytes,
                         struct index_positions *positions_out, struct varve_message *message);
int64_t index_positions_bytes(const struct index_positions *positions);
void index_positions_free(struct index_positions *positions);
/// "(2,3)", as NumPy writes shapes in what it says about indices; returns `text`.
const char *index_shape_text(unsigned ndim, const int64_t *shape, char *text, size_t bytes);

/* Moving elements */

/* A plan as this folder sees it. */
struct index_plan {
    struct varve_index_plan plan; /* the first member */
    /* GATHER, SCATTER. The result's axes are those of `rest` before `advanced_at`, then the positions',
     * then the others. */
    struct varve_geometry rest;
    unsigned advanced_at;
    struct index_positions positions;
    /* SCATTER, COPY, FILL. */
    bool is_number;
    unsigned char number[8]; /* an element */
    struct varve_scalar scalar;
    enum varve_dtype value_dtype;
    struct varve_geometry value; /* only its shape counts */
};

/* What runs plans in some memory; all arrays are in that one. Part of whatever the functions need to know. */
struct index_runner {
    /// Owner: the caller, by release().
    int (*allocate)(const struct index_runner *runner, uint64_t bytes, void **data_out, struct varve_message *message);
    void (*release)(const struct index_runner *runner, void *data);
    /// As varve_array_copy and varve_array_fill.
    int (*copy)(const struct index_runner *runner, const struct varve_array *target, const struct varve_array *source,
                struct varve_message *message);
    int (*fill)(const struct index_runner *runner, const struct varve_array *target, struct varve_scalar value,
                struct varve_message *message);
    /// As index_move, of a GATHER from the indexed array and of a SCATTER to it.
    int (*move)(const struct index_runner *runner, const struct index_plan *plan, const struct varve_array *packed,
                void *indexed_data, int64_t indexed_offset, struct varve_message *message);
};

/// As varve_index_plan_run, in the memory of the runner.
int index_plan_run(const struct index_runner *runner, const struct varve_index_plan *plan,
                   const struct varve_array *target, const struct varve_array *source, struct varve_message *message);

/// Move elements between `packed`, an array of the result's shape, and the picked ones of `indexed`, whose data begins
/// at `indexed_data`: to `packed`, or, if `is_put`, from it. The two do not overlap.
void index_move(const struct index_plan *plan, const struct varve_array *packed, void *indexed_data,
                int64_t indexed_offset, bool is_put);

#ifdef __cplusplus
}
#endif

#endif
