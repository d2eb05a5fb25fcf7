/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays and masks as positions: for each element of the shape that they broadcast to, the bytes from the first element
 * of what slices and integers leave. All values are checked here, so that running a plan can't fail for them. Positions
 * take 4 bytes where that reaches; a dense mask over axes that lie as one axis would stays a bit an element.
 */
#include "storage/tensors/index_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ALWAYS_INLINE inline __attribute__((always_inline))

static inline void position_put(const struct index_positions *positions, int64_t at, int64_t value)
{
    if (positions->is_wide) {
        ((int64_t *)positions->list)[at] = value;
    } else {
        ((int32_t *)positions->list)[at] = (int32_t)value;
    }
}

static int list_alloc(struct index_positions *positions, struct varve_message *message)
{
    size_t bytes = positions->is_wide ? sizeof(int64_t) : sizeof(int32_t);
    positions->list = positions->count < INT64_C(1) << 58 ? malloc((size_t)positions->count * bytes + 1) : NULL;
    if (positions->list == NULL) {
        varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for %" PRId64 " positions", positions->count);
        return VARVE_ERROR_NO_MEMORY;
    }
    return VARVE_OK;
}

/* ---- arrays ---- */

/* One integer of a type that is known when this is compiled. */
static ALWAYS_INLINE int64_t value_load(const char *data, enum varve_dtype dtype)
{
    int64_t whole;
    int32_t word;
    int16_t half;
    switch (dtype) {
    case VARVE_DTYPE_I64:
        memcpy(&whole, data, sizeof(whole));
        return whole;
    case VARVE_DTYPE_I32:
        memcpy(&word, data, sizeof(word));
        return word;
    case VARVE_DTYPE_I16:
        memcpy(&half, data, sizeof(half));
        return half;
    case VARVE_DTYPE_I8:
        return (signed char)*data;
    default:
        return (unsigned char)*data;
    }
}

/* A row of integers, and where they point to. */
struct index_row {
    const char *data;
    int64_t step; /* bytes */
    int64_t count;
    int64_t size;   /* of the axis */
    int64_t stride; /* of the axis, in bytes */
    void *list;     /* of the first integer */
};

/* Negative integers count from the end. Returns whether one is outside of the axis. */
static ALWAYS_INLINE bool row_list_of(const struct index_row *row, enum varve_dtype dtype, bool is_wide)
{
    const char *data = row->data;
    int64_t step = row->step, count = row->count, size = row->size, stride = row->stride;
    int64_t *wide = row->list;
    int32_t *narrow = row->list;
    unsigned outside = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t value = value_load(data + i * step, dtype);
        value += value < 0 ? size : 0;
        outside |= (uint64_t)value >= (uint64_t)size;
        if (is_wide) {
            wide[i] = (int64_t)((uint64_t)value * (uint64_t)stride);
        } else {
            narrow[i] = (int32_t)((uint32_t)value * (uint32_t)stride);
        }
    }
    return outside != 0;
}

/* The usual row, integers side by side and short positions, four at a time; in unsigned arithmetic, since what is
 * outside may wrap around. `row` is left at what is still to do. */
typedef uint32_t four_words __attribute__((vector_size(16)));
typedef int32_t four_integers __attribute__((vector_size(16)));

static ALWAYS_INLINE bool row_list_fours_of(struct index_row *row, bool is_long, bool is_shift)
{
    uint32_t one_size = (uint32_t)row->size, one_stride = (uint32_t)row->stride;
    int shift = __builtin_ctz(one_stride | 1U << 31);
    four_words size = {one_size, one_size, one_size, one_size};
    four_words last = size - 1;
    four_words outside = {0}, wide = {0}; /* outside: in the highest bit; wide: not of 32 bits */
    const char *data = row->data;
    int32_t *list = row->list;
    int64_t i;
    for (i = 0; i + 4 <= row->count; i += 4) {
        four_words low, negative;
        if (is_long) {
            four_words pair;
            memcpy(&pair, data + 8 * i, sizeof(pair));
            four_words other;
            memcpy(&other, data + 8 * i + 16, sizeof(other));
            low = __builtin_shufflevector(pair, other, 0, 2, 4, 6);
            negative = (four_words)((four_integers)low < 0);
            wide |= negative ^ __builtin_shufflevector(pair, other, 1, 3, 5, 7);
        } else {
            memcpy(&low, data + 4 * i, sizeof(low));
            negative = (four_words)((four_integers)low < 0);
        }
        low += negative & size;
        outside |= low | (last - low);
        low = is_shift ? low << shift : low * one_stride;
        memcpy(list + i, &low, sizeof(low));
    }
    row->data += i * row->step;
    row->list = list + i;
    row->count -= i;
    wide |= outside >> 31;
    return (wide[0] | wide[1] | wide[2] | wide[3]) != 0;
}

static ALWAYS_INLINE bool row_list_fours_sized(struct index_row *row, bool is_long)
{
    if (row->stride > 0 && (row->stride & (row->stride - 1)) == 0) {
        return row_list_fours_of(row, is_long, true);
    }
    return row_list_fours_of(row, is_long, false);
}

static bool row_list_fours(struct index_row *row, enum varve_dtype dtype)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (row->size > 0 && row->size <= INT32_MAX) {
        if (dtype == VARVE_DTYPE_I64 && row->step == sizeof(int64_t)) {
            return row_list_fours_sized(row, true);
        }
        if (dtype == VARVE_DTYPE_I32 && row->step == sizeof(int32_t)) {
            return row_list_fours_sized(row, false);
        }
    }
#endif
    return false;
}

static ALWAYS_INLINE bool row_list_wide(const struct index_row *row, enum varve_dtype dtype, bool is_wide)
{
    switch (dtype) {
    case VARVE_DTYPE_I64:
        return row_list_of(row, VARVE_DTYPE_I64, is_wide);
    case VARVE_DTYPE_I32:
        return row_list_of(row, VARVE_DTYPE_I32, is_wide);
    case VARVE_DTYPE_I16:
        return row_list_of(row, VARVE_DTYPE_I16, is_wide);
    case VARVE_DTYPE_I8:
        return row_list_of(row, VARVE_DTYPE_I8, is_wide);
    default:
        return row_list_of(row, VARVE_DTYPE_U8, is_wide);
    }
}

static bool row_list(const struct index_row *row, enum varve_dtype dtype, bool is_wide)
{
    struct index_row left = *row;
    if (is_wide) {
        return row_list_wide(row, dtype, true);
    }
    return row_list_fours(&left, dtype) || row_list_wide(&left, dtype, false);
}

/* Where the values of one array go. */
struct array_reading {
    const struct index_advanced *advanced;
    struct index_row row;
    bool is_wide;
};

static int row_refuse(const struct array_reading *reading, struct varve_message *message)
{
    const struct index_row *row = &reading->row;
    int64_t value, size = row->size;
    int64_t i = 0;
    do {
        value = value_load(row->data + i++ * row->step, reading->advanced->array->dtype);
    } while (i < row->count && value >= -size && value < size);
    return varve_message_set(message, VARVE_ERROR_INVALID,
                             "index %" PRId64 " is out of bounds for axis %u with size %" PRId64, value,
                             reading->advanced->axis, size);
}

/* The row that `reading` has; the list goes on behind it. */
static int index_positions_row_read(struct array_reading *reading, struct varve_message *message)
{
    struct index_row *row = &reading->row;
    enum varve_dtype dtype = reading->advanced->array->dtype;
    size_t width = reading->is_wide ? sizeof(int64_t) : sizeof(int32_t);
    if (row_list(row, dtype, reading->is_wide)) {
        return row_refuse(reading, message);
    }
    row->list = (char *)row->list + (size_t)row->count * width;
    return VARVE_OK;
}

static int index_positions_array_read(struct array_reading *reading, struct varve_message *message)
{
    const struct varve_array *array = reading->advanced->array;
    const struct varve_geometry *geometry = &array->geometry;
    int64_t bytes = (int64_t)varve_dtype_bytes(array->dtype);
    const char *data = (const char *)array->data + geometry->offset * bytes;
    unsigned last = geometry->ndim - 1;
    reading->row.data = data;
    reading->row.step = bytes;
    reading->row.count = varve_geometry_count(geometry);
    if (varve_geometry_is_contiguous(geometry)) {
        return index_positions_row_read(reading, message);
    }
    reading->row.step = geometry->strides[last] * bytes;
    reading->row.count = geometry->shape[last];
    int64_t at[VARVE_DIMS_MAX] = {0};
    for (;;) {
        unsigned axis = last;
        reading->row.data = data;
        VARVE_TRY(index_positions_row_read(reading, message));
        while (axis > 0 && ++at[axis - 1] == geometry->shape[axis - 1]) {
            axis--;
            data -= (geometry->shape[axis] - 1) * geometry->strides[axis] * bytes;
            at[axis] = 0;
        }
        if (axis == 0) {
            return VARVE_OK;
        }
        data += geometry->strides[axis - 1] * bytes;
    }
}

/* ---- masks ---- */

/* The axes of a mask as one axis of the source. */
static bool axes_are_one(const struct varve_geometry *source, const struct index_advanced *mask, int64_t *stride_out)
{
    int64_t stride = 0, size = 1;
    for (unsigned i = mask->axis + mask->axis_count; i-- > mask->axis;) {
        if (source->shape[i] == 1) {
            continue;
        }
        if (size != 1 && source->strides[i] != stride * size) {
            return false;
        }
        stride = size == 1 ? source->strides[i] : stride;
        size *= source->shape[i];
    }
    *stride_out = stride;
    return true;
}

/* Rows of the mask's last axis in the source, in bytes. */
struct mask_rows {
    const int64_t *shape;
    const int64_t *strides;
    unsigned last;
    int64_t element_bytes;
    int64_t at[VARVE_DIMS_MAX];
    int64_t first_bit; /* of the row */
    int64_t position;  /* of its first element */
};

static void mask_rows_next(struct mask_rows *rows)
{
    unsigned axis = rows->last;
    rows->first_bit += rows->shape[rows->last];
    while (axis > 0 && ++rows->at[axis - 1] == rows->shape[axis - 1]) {
        axis--;
        rows->position -= (rows->shape[axis] - 1) * rows->strides[axis] * rows->element_bytes;
        rows->at[axis] = 0;
    }
    if (axis > 0) {
        rows->position += rows->strides[axis - 1] * rows->element_bytes;
    }
}

static void mask_list(const struct varve_geometry *source, const struct index_advanced *mask, int64_t element_bytes,
                      const struct index_bits *bits, struct index_positions *positions)
{
    struct mask_rows rows = {
        .shape = source->shape + mask->axis,
        .strides = source->strides + mask->axis,
        .last = mask->axis_count - 1,
        .element_bytes = element_bytes,
    };
    int64_t stride = rows.strides[rows.last] * element_bytes;
    int64_t words = index_bits_words(bits), done = 0;
    for (int64_t i = 0; i < words; i++) {
        for (uint64_t word = bits->words[i]; word != 0; word &= word - 1) {
            int64_t bit = 64 * i + __builtin_ctzll(word);
            while (bit >= rows.first_bit + rows.shape[rows.last]) {
                mask_rows_next(&rows);
            }
            position_put(positions, done++, rows.position + (bit - rows.first_bit) * stride);
        }
    }
}

/* ---- all together ---- */

static int64_t bytes_reach(const struct index_expression *expression, int64_t element_bytes)
{
    int64_t reach = 0;
    for (unsigned i = 0; i < expression->advanced_count; i++) {
        const struct index_advanced *advanced = &expression->advanced[i];
        for (unsigned axis = advanced->axis; axis < advanced->axis + advanced->axis_count; axis++) {
            int64_t size = expression->source->shape[axis];
            int64_t stride = expression->source->strides[axis];
            reach += (size > 0 ? size - 1 : 0) * (stride < 0 ? -stride : stride) * element_bytes;
        }
    }
    return reach;
}

/* What one array or mask is, and is broadcast as. */
struct component {
    const struct index_advanced *advanced; /* NULL: the axis of masks without axes */
    struct varve_geometry geometry;        /* of its positions, in the usual order */
    struct index_bits bits;
};

const char *index_shape_text(unsigned ndim, const int64_t *shape, char *text, size_t bytes)
{
    char *to = text;
    (void)varve_shape_text(ndim, shape, text, bytes);
    for (const char *from = text; *from != '\0'; from++) {
        if (*from != ' ') {
            *to++ = *from;
        }
    }
    *to = '\0';
    return text;
}

static int components_refuse(const struct component *components, unsigned count, struct varve_message *message)
{
    char shapes[256] = "", one[VARVE_SHAPE_TEXT_BYTES];
    size_t used = 0;
    for (unsigned i = 0; i < count && used < sizeof(shapes) - 40; i++) {
        const struct varve_geometry *geometry = &components[i].geometry;
        unsigned times = components[i].bits.words != NULL ? components[i].advanced->axis_count : 1;
        (void)index_shape_text(geometry->ndim, geometry->shape, one, sizeof(one));
        for (unsigned j = 0; j < times && used + strlen(one) + 2 < sizeof(shapes); j++) {
            shapes[used++] = ' ';
            memcpy(shapes + used, one, strlen(one) + 1);
            used += strlen(one);
        }
    }
    return varve_message_set(message, VARVE_ERROR_INVALID,
                             "shape mismatch: indexing arrays could not be broadcast together with shapes%s", shapes);
}

static int components_broadcast(const struct component *components, unsigned count, struct index_positions *positions,
                                struct varve_message *message)
{
    positions->ndim = 0;
    for (unsigned i = 0; i < count; i++) {
        if (varve_shape_broadcast(positions->ndim, positions->shape, components[i].geometry.ndim,
                                  components[i].geometry.shape, &positions->ndim, positions->shape, NULL) != VARVE_OK) {
            return components_refuse(components, count, message);
        }
    }
    struct varve_geometry all;
    int error = varve_geometry_contiguous(positions->ndim, positions->shape, &all, message);
    if (error == VARVE_OK) {
        positions->count = varve_geometry_count(&all);
    }
    return error;
}

/* `component` is not set yet. A mask has as many positions as bits that are set. */
static int component_make(const struct index_advanced *advanced, struct component *component,
                          struct varve_message *message)
{
    const struct varve_geometry *geometry = &advanced->array->geometry;
    *component = (struct component){.advanced = advanced};
    if (advanced->is_mask) {
        int error = index_bits_read(advanced->array, &component->bits, message);
        return error != VARVE_OK
                   ? error
                   : varve_geometry_contiguous(1, &component->bits.set_count, &component->geometry, message);
    }
    return varve_geometry_contiguous(geometry->ndim, geometry->shape, &component->geometry, message);
}

static int components_make(const struct index_expression *expression, struct component *components, unsigned *count_out,
                           struct varve_message *message)
{
    unsigned count = 0;
    if (expression->flag_size >= 0) {
        components[count] = (struct component){0};
        (void)varve_geometry_contiguous(1, &expression->flag_size, &components[count++].geometry, NULL);
    }
    int error = VARVE_OK;
    for (unsigned i = 0; i < expression->advanced_count && error == VARVE_OK; i++) {
        error = component_make(&expression->advanced[i], &components[count++], message);
    }
    *count_out = count;
    return error;
}

/* The positions of one array or mask alone, `positions->count` of them. */
static int component_list(const struct index_expression *expression, const struct component *component,
                          int64_t element_bytes, struct index_positions *positions, struct varve_message *message)
{
    const struct index_advanced *advanced = component->advanced;
    struct array_reading reading = {
        .advanced = advanced,
        .row.list = positions->list,
        .is_wide = positions->is_wide,
    };
    if (advanced->is_mask) {
        mask_list(expression->source, advanced, element_bytes, &component->bits, positions);
        return VARVE_OK;
    }
    reading.row.size = expression->source->shape[advanced->axis];
    reading.row.stride = expression->source->strides[advanced->axis] * element_bytes;
    return index_positions_array_read(&reading, message);
}

/* Add a row of positions to another one, element by element or one to all. */
static ALWAYS_INLINE void row_add_of(void *list, const void *added, int64_t step, int64_t count, bool is_wide)
{
    for (int64_t i = 0; i < count; i++) {
        if (is_wide) {
            ((int64_t *)list)[i] += ((const int64_t *)added)[i * step];
        } else {
            ((int32_t *)list)[i] += ((const int32_t *)added)[i * step];
        }
    }
}

static void index_positions_row_add(void *list, const void *added, int64_t step, int64_t count, bool is_wide)
{
    if (is_wide) {
        row_add_of(list, added, step, count, true);
    } else if (step == 0) {
        row_add_of(list, added, 0, count, false);
    } else {
        row_add_of(list, added, 1, count, false);
    }
}

/* Add positions, broadcast as `geometry`, to those that are there. */
static void list_add(const struct index_positions *positions, const struct varve_geometry *geometry,
                     const struct index_positions *added)
{
    int64_t at[VARVE_DIMS_MAX] = {0};
    int64_t width = positions->is_wide ? (int64_t)sizeof(int64_t) : (int64_t)sizeof(int32_t);
    bool is_one_row = varve_geometry_is_contiguous(geometry);
    unsigned last = positions->ndim - 1;
    int64_t row = is_one_row ? positions->count : positions->shape[last];
    int64_t step = is_one_row ? 1 : geometry->strides[last];
    const char *from = added->list;
    for (int64_t i = 0; i < positions->count; i += row) {
        unsigned axis = last;
        index_positions_row_add((char *)positions->list + i * width, from, step, row, positions->is_wide);
        while (axis > 0 && ++at[axis - 1] == positions->shape[axis - 1]) {
            axis--;
            at[axis] = 0;
            from -= (positions->shape[axis] - 1) * geometry->strides[axis] * width;
        }
        from += axis > 0 ? geometry->strides[axis - 1] * width : 0;
    }
}

/* One of several, added to the positions of the others. */
static int component_add(const struct index_expression *expression, const struct component *component,
                         int64_t element_bytes, struct index_positions *positions, struct varve_message *message)
{
    struct varve_geometry geometry = component->geometry;
    struct index_positions own = {
        .count = varve_geometry_count(&geometry),
        .is_wide = positions->is_wide,
    };
    int error = list_alloc(&own, message);
    VARVE_THEN(error, component_list(expression, component, element_bytes, &own, message));
    if (error == VARVE_OK) {
        (void)varve_geometry_expand(&geometry, positions->ndim, positions->shape, NULL);
        list_add(positions, &geometry, &own);
    }
    free(own.list);
    return error;
}

/* A first one with all axes is read into the list at once, the others are added. If no position is left at all, NumPy
 * checks no value either, and this is not called. */
static int components_add(const struct index_expression *expression, const struct component *components, unsigned count,
                          int64_t element_bytes, struct index_positions *positions, struct varve_message *message)
{
    size_t width = positions->is_wide ? sizeof(int64_t) : sizeof(int32_t);
    bool is_begun = false;
    int error = VARVE_OK;
    for (unsigned i = 0; i < count && error == VARVE_OK; i++) {
        if (components[i].advanced == NULL) {
            continue;
        }
        if (!is_begun && varve_geometry_has_shape(&components[i].geometry, positions->ndim, positions->shape)) {
            error = component_list(expression, &components[i], element_bytes, positions, message);
        } else {
            if (!is_begun) {
                memset(positions->list, 0, (size_t)positions->count * width);
            }
            error = component_add(expression, &components[i], element_bytes, positions, message);
        }
        is_begun = true;
    }
    if (!is_begun && error == VARVE_OK) {
        memset(positions->list, 0, (size_t)positions->count * width);
    }
    return error;
}

/* Bits are kept of a mask that stands alone, if they are smaller than a list and are gone through only once. */
static bool bits_suffice(const struct index_expression *expression, const struct component *component,
                         const struct index_positions *positions, int64_t *stride_out)
{
    int64_t repeats = 1;
    for (unsigned i = 0; i < expression->advanced_at; i++) {
        repeats *= expression->rest.shape[i];
    }
    return component->bits.words != NULL && repeats == 1 &&
           positions->count * (positions->is_wide ? 64 : 32) > component->bits.size &&
           axes_are_one(expression->source, component->advanced, stride_out);
}

int index_positions_make(const struct index_expression *expression, size_t element_bytes,
                         struct index_positions *positions_out, struct varve_message *message)
{
    struct component components[VARVE_DIMS_MAX + 1];
    struct index_positions positions = {0};
    int64_t bytes = (int64_t)element_bytes;
    unsigned count = 0;
    int error = components_make(expression, components, &count, message);
    VARVE_THEN(error, components_broadcast(components, count, &positions, message));
    positions.is_wide = bytes_reach(expression, bytes) > INT32_MAX;
    if (error == VARVE_OK && count == 1 &&
        bits_suffice(expression, &components[0], &positions, &positions.bit_stride)) {
        positions.bit_stride *= bytes;
        positions.bits = components[0].bits;
        components[0].bits.words = NULL;
    } else if (error == VARVE_OK) {
        error = list_alloc(&positions, message);
        if (error == VARVE_OK && positions.count > 0) {
            error = components_add(expression, components, count, bytes, &positions, message);
        }
    }
    for (unsigned i = 0; i < count; i++) {
        free(components[i].bits.words);
    }
    if (error != VARVE_OK) {
        free(positions.list);
        return error;
    }
    *positions_out = positions;
    return VARVE_OK;
}

int64_t index_positions_bytes(const struct index_positions *positions)
{
    if (positions->list == NULL) {
        return index_bits_words(&positions->bits) * (int64_t)sizeof(uint64_t);
    }
    return positions->count * (int64_t)(positions->is_wide ? sizeof(int64_t) : sizeof(int32_t));
}

void index_positions_free(struct index_positions *positions)
{
    free(positions->list);
    free(positions->bits.words);
    positions->list = NULL;
    positions->bits.words = NULL;
}
