/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that compute each element from those at the same place. Runs that follow each other go straight to a loop;
 * others are gathered into buffers first, and f16 and bf16 become f32 on that way.
 */
#include "storage/tensors/operands.h"

#include "storage/tensors/element_loop.h"
#include "storage/tensors/element.h"
#include "storage/tensors/exponential.h"

#include <math.h>
#include <string.h>

/* ---- loops ---- */

/* `b` is NULL for operators of one input. */
typedef void elementwise_loop(void *out, const void *a, const void *b, int64_t count);

#define LOOP_BINARY_DEFINE(name, TYPE, expression, suffix, attributes)                                          \
    attributes static void loop_##name##_##TYPE##suffix(void *out, const void *a, const void *b, int64_t count) \
    {                                                                                                           \
        element_##TYPE *to = out;                                                                               \
        const element_##TYPE *left = a;                                                                         \
        const element_##TYPE *right = b;                                                                        \
                                                                                                                \
        ELEMENTS_LOOP                                                                                           \
        for (int64_t i = 0; i < count; i++) {                                                                   \
            element_##TYPE x = left[i], y = right[i];                                                           \
                                                                                                                \
            to[i] = (element_##TYPE)(expression);                                                               \
        }                                                                                                       \
    }

#define LOOP_UNARY_DEFINE(name, TYPE, expression, suffix, attributes)                                           \
    attributes static void loop_##name##_##TYPE##suffix(void *out, const void *a, const void *b, int64_t count) \
    {                                                                                                           \
        element_##TYPE *to = out;                                                                               \
        const element_##TYPE *left = a;                                                                         \
                                                                                                                \
        (void)b;                                                                                                \
        ELEMENTS_LOOP                                                                                           \
        for (int64_t i = 0; i < count; i++) {                                                                   \
            element_##TYPE x = left[i];                                                                         \
                                                                                                                \
            to[i] = (element_##TYPE)(expression);                                                               \
        }                                                                                                       \
    }

#if ELEMENTS_HAS_AVX2
#define LOOP_BINARY(name, TYPE, expression)              \
    LOOP_BINARY_DEFINE(name, TYPE, expression, _plain, ) \
    LOOP_BINARY_DEFINE(name, TYPE, expression, _avx2, ELEMENTS_AVX2)
#define LOOP_UNARY(name, TYPE, expression)              \
    LOOP_UNARY_DEFINE(name, TYPE, expression, _plain, ) \
    LOOP_UNARY_DEFINE(name, TYPE, expression, _avx2, ELEMENTS_AVX2)
#else
#define LOOP_BINARY(name, TYPE, expression) LOOP_BINARY_DEFINE(name, TYPE, expression, _plain, )
#define LOOP_UNARY(name, TYPE, expression) LOOP_UNARY_DEFINE(name, TYPE, expression, _plain, )
#endif

/* Integers wrap: signed ones are computed as unsigned ones of at least their size. */
#define LOOP_WRAPPING(name, operator)                        \
    LOOP_BINARY(name, F64, x operator y)                     \
    LOOP_BINARY(name, F32, x operator y)                     \
    LOOP_BINARY(name, I64, (uint64_t)x operator(uint64_t) y) \
    LOOP_BINARY(name, I32, (uint32_t)x operator(uint32_t) y) \
    LOOP_BINARY(name, I16, (uint32_t)x operator(uint32_t) y) \
    LOOP_BINARY(name, I8, (uint32_t)x operator(uint32_t) y)  \
    LOOP_BINARY(name, U8, (uint32_t)x operator(uint32_t) y)

LOOP_WRAPPING(add, +)
LOOP_WRAPPING(sub, -)
LOOP_WRAPPING(mul, *)
LOOP_BINARY(add, BOOL, (x | y) != 0)
LOOP_BINARY(mul, BOOL, (x != 0) & (y != 0))
LOOP_BINARY(div, F64, x / y)
LOOP_BINARY(div, F32, x / y)
LOOP_BINARY(pow, F64, pow(x, y))
LOOP_BINARY(pow, F32, powf(x, y))
LOOP_UNARY(exp, F64, exponential_f64(x))
LOOP_UNARY(exp, F32, exponential_f32(x))
LOOP_UNARY(relu, F64, x < 0 ? 0 : x)
LOOP_UNARY(relu, F32, x < 0 ? 0 : x)
LOOP_UNARY(relu, I64, x < 0 ? 0 : x)
LOOP_UNARY(relu, I32, x < 0 ? 0 : x)
LOOP_UNARY(relu, I16, x < 0 ? 0 : x)
LOOP_UNARY(relu, I8, x < 0 ? 0 : x)
LOOP_UNARY(relu, U8, x)

#define LOOPS_FLOAT(name, suffix) \
    [VARVE_DTYPE_F64] = loop_##name##_F64##suffix, [VARVE_DTYPE_F32] = loop_##name##_F32##suffix
#define LOOPS_NUMBER(name, suffix)                                                                    \
    LOOPS_FLOAT(name, suffix),                                                                        \
        [VARVE_DTYPE_I64] = loop_##name##_I64##suffix, [VARVE_DTYPE_I32] = loop_##name##_I32##suffix, \
        [VARVE_DTYPE_I16] = loop_##name##_I16##suffix, [VARVE_DTYPE_I8] = loop_##name##_I8##suffix,   \
        [VARVE_DTYPE_U8] = loop_##name##_U8##suffix
/* clang-format off */
#define LOOPS_TABLE(suffix) { \
    [VARVE_OPERATOR_ADD] = {LOOPS_NUMBER(add, suffix), [VARVE_DTYPE_BOOL] = loop_add_BOOL##suffix}, \
    [VARVE_OPERATOR_SUB] = {LOOPS_NUMBER(sub, suffix)}, \
    [VARVE_OPERATOR_MUL] = {LOOPS_NUMBER(mul, suffix), [VARVE_DTYPE_BOOL] = loop_mul_BOOL##suffix}, \
    [VARVE_OPERATOR_DIV] = {LOOPS_FLOAT(div, suffix)}, \
    [VARVE_OPERATOR_POW] = {LOOPS_FLOAT(pow, suffix)}, \
    [VARVE_OPERATOR_EXP] = {LOOPS_FLOAT(exp, suffix)}, \
    [VARVE_OPERATOR_RELU] = {LOOPS_NUMBER(relu, suffix)}, \
}
/* clang-format on */

static elementwise_loop *const loops_plain[VARVE_OPERATOR_LIMIT][VARVE_DTYPE_LIMIT] = LOOPS_TABLE(_plain);
#if ELEMENTS_HAS_AVX2
static elementwise_loop *const loops_avx2[VARVE_OPERATOR_LIMIT][VARVE_DTYPE_LIMIT] = LOOPS_TABLE(_avx2);

/* What computes more than it reads. */
LOOP_UNARY_DEFINE(exp, F64, exponential_f64(x), _avx512, ELEMENTS_AVX512)
LOOP_UNARY_DEFINE(exp, F32, exponential_f32(x), _avx512, ELEMENTS_AVX512)
static elementwise_loop *const loops_avx512[VARVE_OPERATOR_LIMIT][VARVE_DTYPE_LIMIT] = {
    [VARVE_OPERATOR_EXP] = {LOOPS_FLOAT(exp, _avx512)},
};
#endif

/* NULL: the operator does not take that type. */
static elementwise_loop *loop_find(enum varve_operator operation, enum varve_dtype dtype)
{
#if ELEMENTS_HAS_AVX2
    if (loops_avx512[operation][dtype] != NULL && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq")) {
        return loops_avx512[operation][dtype];
    }
    if (__builtin_cpu_supports("avx2")) {
        return loops_avx2[operation][dtype];
    }
#endif
    return loops_plain[operation][dtype];
}

/* ---- runs ---- */

#define CHUNK 512
#define INPUTS_MAX 2

struct elementwise {
    elementwise_loop *loop;
    elements_cast *read, *write; /* NULL unless the type is computed in another one */
    ptrdiff_t bytes;             /* of an element in memory */
    unsigned inputs;
};

/* Elements of an input as the loop wants them: in their place or in `buffer`. */
static const char *input_gather(const struct elementwise *elementwise, char *buffer, const char *source,
                                ptrdiff_t stride, int64_t count)
{
    char raw[CHUNK * 8];
    char *gathered = elementwise->read == NULL ? buffer : raw;
    if (stride != elementwise->bytes) {
        elements_move(gathered, elementwise->bytes, source, stride, count, (size_t)elementwise->bytes);
        source = gathered;
    }
    if (elementwise->read != NULL) {
        elementwise->read(buffer, source, count);
        source = buffer;
    }
    return source;
}

static void output_scatter(const struct elementwise *elementwise, char *target, ptrdiff_t stride, char *buffer,
                           int64_t count)
{
    if (elementwise->write != NULL && stride == elementwise->bytes) {
        elementwise->write(target, buffer, count);
        return;
    }
    if (elementwise->write != NULL) {
        char raw[CHUNK * 8];
        elementwise->write(raw, buffer, count);
        elements_move(target, stride, raw, elementwise->bytes, count, (size_t)elementwise->bytes);
    } else {
        elements_move(target, stride, buffer, elementwise->bytes, count, (size_t)elementwise->bytes);
    }
}

static void inner_chunks(const struct elementwise *elementwise, char *const *data, const ptrdiff_t *strides,
                         int64_t count)
{
    char buffers[INPUTS_MAX + 1][CHUNK * 8] __attribute__((aligned(64)));
    const char *inputs[INPUTS_MAX] = {NULL, NULL};
    bool is_direct = strides[0] == elementwise->bytes && elementwise->write == NULL;
    for (int64_t done = 0; done < count; done += CHUNK) {
        int64_t part = count - done < CHUNK ? count - done : CHUNK;
        char *out = data[0] + done * strides[0];
        for (unsigned i = 0; i < elementwise->inputs; i++) {
            if (strides[i + 1] != 0 || done == 0) { /* what is repeated stays in its buffer */
                inputs[i] =
                    input_gather(elementwise, buffers[i], data[i + 1] + done * strides[i + 1], strides[i + 1], part);
            }
        }
        elementwise->loop(is_direct ? out : buffers[INPUTS_MAX], inputs[0], inputs[1], part);
        if (!is_direct) {
            output_scatter(elementwise, out, strides[0], buffers[INPUTS_MAX], part);
        }
    }
}

static void inner_elementwise(const struct elements_loop *loop, char *const *data, const void *context)
{
    const struct elementwise *elementwise = context;
    unsigned last = loop->ndim - 1;
    ptrdiff_t strides[INPUTS_MAX + 1] = {0};
    bool is_direct = elementwise->read == NULL;
    for (unsigned i = 0; i < loop->operands; i++) {
        strides[i] = loop->strides[i][last];
        is_direct = is_direct && strides[i] == elementwise->bytes;
    }
    if (is_direct) {
        elementwise->loop(data[0], data[1], elementwise->inputs > 1 ? data[2] : NULL, loop->shape[last]);
    } else {
        inner_chunks(elementwise, data, strides, loop->shape[last]);
    }
}

/* ---- operators ---- */

static bool wants_float(enum varve_operator operation)
{
    return operation == VARVE_OPERATOR_DIV || operation == VARVE_OPERATOR_POW || operation == VARVE_OPERATOR_EXP;
}

static enum varve_dtype dtype_computed(enum varve_dtype dtype)
{
    return dtype_is_half(dtype) ? VARVE_DTYPE_F32 : dtype;
}

int elementwise_check(enum varve_operator operation, const struct varve_array *out,
                      const struct varve_array *const *inputs, unsigned count, struct varve_message *message)
{
    unsigned ndim = inputs[0]->geometry.ndim;
    int64_t shape[VARVE_DIMS_MAX];
    int error = operands_check(operation, out, inputs[0]->dtype, inputs, count, wants_float(operation), message);
    if (error == 0 && count > 1) {
        error = varve_op_binary_shape(operation, inputs[0], inputs[1], &ndim, shape, message);
    } else if (error == 0) {
        memcpy(shape, inputs[0]->geometry.shape, ndim * sizeof(*shape));
    }
    if (error != 0) {
        return error;
    }
    if (!varve_geometry_has_shape(&out->geometry, ndim, shape)) {
        return operands_refuse_shape(operation, out, ndim, shape, message);
    }
    if (loop_find(operation, dtype_computed(out->dtype)) == NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: not supported for %s",
                                 varve_operator_name(operation), varve_dtype_name(out->dtype));
    }
    return VARVE_OK;
}

static int elementwise_run(enum varve_operator operation, const struct varve_array *out,
                           const struct varve_array *const *inputs, unsigned count, struct varve_message *message)
{
    enum varve_dtype dtype = out->dtype;
    enum varve_dtype computed = dtype_computed(dtype);
    struct elementwise elementwise = {.bytes = (ptrdiff_t)varve_dtype_bytes(dtype), .inputs = count};
    int error = elementwise_check(operation, out, inputs, count, message);
    if (error != 0) {
        return error;
    }
    elementwise.loop = loop_find(operation, computed);
    if (computed != dtype) {
        elementwise.read = elements_cast_find(computed, dtype);
        elementwise.write = elements_cast_find(dtype, computed);
    }
    struct operands operands;
    error = operands_prepare(&operands, out, inputs, count, message);
    struct elements_loop loop;
    if (error == 0) {
        elements_loop_init(&loop, count + 1,
                           (const struct varve_array *const[]){out, &operands.inputs[0], &operands.inputs[1]});
        elements_loop_walk(&loop, 1, inner_elementwise, &elementwise);
    }
    operands_release(&operands);
    return error;
}

static int binary_run(enum varve_operator operation, const struct varve_array *out, const struct varve_array *a,
                      const struct varve_array *b, struct varve_message *message)
{
    return elementwise_run(operation, out, (const struct varve_array *const[]){a, b}, 2, message);
}

static int unary_run(enum varve_operator operation, const struct varve_array *out, const struct varve_array *a,
                     struct varve_message *message)
{
    return elementwise_run(operation, out, &a, 1, message);
}

int varve_op_add(const struct varve_array *out, const struct varve_array *a, const struct varve_array *b,
                 struct varve_message *message)
{
    return binary_run(VARVE_OPERATOR_ADD, out, a, b, message);
}

int varve_op_sub(const struct varve_array *out, const struct varve_array *a, const struct varve_array *b,
                 struct varve_message *message)
{
    return binary_run(VARVE_OPERATOR_SUB, out, a, b, message);
}

int varve_op_mul(const struct varve_array *out, const struct varve_array *a, const struct varve_array *b,
                 struct varve_message *message)
{
    return binary_run(VARVE_OPERATOR_MUL, out, a, b, message);
}

int varve_op_div(const struct varve_array *out, const struct varve_array *a, const struct varve_array *b,
                 struct varve_message *message)
{
    return binary_run(VARVE_OPERATOR_DIV, out, a, b, message);
}

int varve_op_pow(const struct varve_array *out, const struct varve_array *a, const struct varve_array *b,
                 struct varve_message *message)
{
    return binary_run(VARVE_OPERATOR_POW, out, a, b, message);
}

int varve_op_exp(const struct varve_array *out, const struct varve_array *a, struct varve_message *message)
{
    return unary_run(VARVE_OPERATOR_EXP, out, a, message);
}

int varve_op_relu(const struct varve_array *out, const struct varve_array *a, struct varve_message *message)
{
    return unary_run(VARVE_OPERATOR_RELU, out, a, message);
}
