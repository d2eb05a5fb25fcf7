/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators without inputs: numbers that depend on their place alone, so that any part of an array can be made anew,
 * and the same on another device.
 */
#include "storage/tensors/operands.h"

#include "storage/tensors/element_loop.h"

#include <math.h>
#include <stdlib.h>

#define CHUNK 512 /* a multiple of what a block of random words gives */

struct generator;

/* Elements `first` to `first + count - 1`, in the type `dtype` of the generator; `first` is a multiple of CHUNK. */
typedef void generate(const struct generator *generator, int64_t first, int64_t count, void *chunk);

struct generator {
    generate *generate;
    enum varve_dtype dtype;
    uint64_t seed, stream;
    double a, b;         /* start and step, bounds, or mean and deviation */
    int64_t start, step; /* the former as integers */
};

static void generate_run(const struct generator *generator, char *target, enum varve_dtype dtype, int64_t count)
{
    elements_cast *cast = elements_cast_find(dtype, generator->dtype);
    int64_t bytes = (int64_t)varve_dtype_bytes(dtype);
    double chunk[CHUNK];
    for (int64_t done = 0; done < count; done += CHUNK) {
        int64_t part = count - done < CHUNK ? count - done : CHUNK;
        generator->generate(generator, done, part, chunk);
        cast(target + done * bytes, chunk, part);
    }
}

/* Into a checked target; where it is not contiguous by way of memory that is. */
static int generator_run(const struct generator *generator, const struct varve_array *out,
                         struct varve_message *message)
{
    int64_t count = varve_geometry_count(&out->geometry);
    struct varve_array whole = *out;
    if (varve_geometry_is_contiguous(&out->geometry)) {
        generate_run(generator, elements_begin(out), out->dtype, count);
        return VARVE_OK;
    }
    int error = varve_geometry_contiguous(out->geometry.ndim, out->geometry.shape, &whole.geometry, message);
    if (error != 0) {
        return error;
    }
    whole.data = malloc((size_t)count * varve_dtype_bytes(out->dtype));
    if (whole.data == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a copy of the result");
    }
    generate_run(generator, whole.data, out->dtype, count);
    elements_copy(out, &whole);
    free(whole.data);
    return VARVE_OK;
}

/* ---- sequences ---- */

static void generate_integers(const struct generator *generator, int64_t first, int64_t count, void *chunk)
{
    int64_t *values = chunk;
    for (int64_t i = 0; i < count; i++) {
        values[i] = (int64_t)((uint64_t)generator->start + (uint64_t)(first + i) * (uint64_t)generator->step);
    }
}

static void generate_reals(const struct generator *generator, int64_t first, int64_t count, void *chunk)
{
    double *values = chunk;
    for (int64_t i = 0; i < count; i++) {
        values[i] = generator->a + (double)(first + i) * generator->b;
    }
}

int varve_op_fill(const struct varve_array *out, struct varve_scalar value, struct varve_message *message)
{
    return varve_array_fill(out, value, message);
}

int varve_op_arange(const struct varve_array *out, struct varve_scalar start, struct varve_scalar step,
                    struct varve_message *message)
{
    bool is_real = start.kind == VARVE_SCALAR_REAL || step.kind == VARVE_SCALAR_REAL;
    struct generator generator = {.generate = is_real ? generate_reals : generate_integers,
                                  .dtype = is_real ? VARVE_DTYPE_F64 : VARVE_DTYPE_I64,
                                  .a = scalar_real(start),
                                  .b = scalar_real(step),
                                  .start = start.integer,
                                  .step = step.integer};
    int error = elements_check_target(out, message);
    return error != 0 ? error : generator_run(&generator, out, message);
}

/* ---- random numbers ---- */

struct block {
    uint32_t words[4];
};

/* Philox 4x32-10: the constants are those of the paper. */
static struct block philox(const struct generator *generator, uint64_t number)
{
    struct block block = {
        {(uint32_t)number, (uint32_t)(number >> 32), (uint32_t)generator->stream, (uint32_t)(generator->stream >> 32)}};
    uint32_t key[2] = {(uint32_t)generator->seed, (uint32_t)(generator->seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t even = (uint64_t)0xD2511F53U * block.words[0];
        uint64_t odd = (uint64_t)0xCD9E8D57U * block.words[2];
        block = (struct block){{(uint32_t)(odd >> 32) ^ block.words[1] ^ key[0], (uint32_t)odd,
                                (uint32_t)(even >> 32) ^ block.words[3] ^ key[1], (uint32_t)even}};
        key[0] += 0x9E3779B9U;
        key[1] += 0xBB67AE85U;
    }
    return block;
}

static void generate_uniform_f32(const struct generator *generator, int64_t first, int64_t count, void *chunk)
{
    float *values = chunk;
    float low = (float)generator->a;
    float width = (float)generator->b - low;
    for (int64_t i = 0; i < count; i += 4) {
        struct block block = philox(generator, (uint64_t)(first + i) / 4);
        for (int64_t k = 0; k < 4 && i + k < count; k++) {
            float unit = (float)(block.words[k] >> 8) * 0x1p-24F;
            values[i + k] = low + unit * width;
        }
    }
}

static void generate_uniform_f64(const struct generator *generator, int64_t first, int64_t count, void *chunk)
{
    double *values = chunk;
    double width = generator->b - generator->a;
    for (int64_t i = 0; i < count; i += 2) {
        struct block block = philox(generator, (uint64_t)(first + i) / 2);
        for (int64_t k = 0; k < 2 && i + k < count; k++) {
            uint64_t bits = (uint64_t)block.words[2 * k + 1] << 32 | block.words[2 * k];
            double unit = (double)(bits >> 11) * 0x1p-53;
            values[i + k] = generator->a + unit * width;
        }
    }
}

static void generate_normal(const struct generator *generator, int64_t first, int64_t count, void *chunk)
{
    const double two_pi = 6.283185307179586476925286766559;
    double *values = chunk;
    for (int64_t i = 0; i < count; i += 4) {
        struct block block = philox(generator, (uint64_t)(first + i) / 4);
        for (int64_t k = 0; k < 4 && i + k < count; k++) {
            uint32_t *pair = &block.words[k / 2 * 2];
            double radius = sqrt(-2.0 * log(((double)pair[0] + 1.0) * 0x1p-32));
            double angle = two_pi * ((double)pair[1] * 0x1p-32);
            double number = radius * (k % 2 == 0 ? cos(angle) : sin(angle));
            values[i + k] = generator->a + generator->b * number;
        }
    }
}

int random_check(enum varve_operator operation, const struct varve_array *out, double a, double b,
                 struct varve_message *message)
{
    if (operation == VARVE_OPERATOR_UNIFORM && (!isfinite(b - a) || b < a)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "uniform: [%g, %g) is no interval", a, b);
    }
    if (operation == VARVE_OPERATOR_NORMAL && (!isfinite(a) || !isfinite(b) || b < 0)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "normal: mean %g and standard deviation %g", a, b);
    }
    return operands_check(operation, out, out->dtype, NULL, 0, true, message);
}

static int random_run(enum varve_operator operation, const struct generator *generator, const struct varve_array *out,
                      struct varve_message *message)
{
    int error = random_check(operation, out, generator->a, generator->b, message);
    return error != 0 ? error : generator_run(generator, out, message);
}

int varve_op_uniform(const struct varve_array *out, uint64_t seed, uint64_t stream, double a, double b,
                     struct varve_message *message)
{
    bool is_wide = out->dtype == VARVE_DTYPE_F64;
    struct generator generator = {.generate = is_wide ? generate_uniform_f64 : generate_uniform_f32,
                                  .dtype = is_wide ? VARVE_DTYPE_F64 : VARVE_DTYPE_F32,
                                  .seed = seed,
                                  .stream = stream,
                                  .a = a,
                                  .b = b};
    return random_run(VARVE_OPERATOR_UNIFORM, &generator, out, message);
}

int varve_op_normal(const struct varve_array *out, uint64_t seed, uint64_t stream, double a, double b,
                    struct varve_message *message)
{
    struct generator generator = {
        .generate = generate_normal, .dtype = VARVE_DTYPE_F64, .seed = seed, .stream = stream, .a = a, .b = b};
    return random_run(VARVE_OPERATOR_NORMAL, &generator, out, message);
}
