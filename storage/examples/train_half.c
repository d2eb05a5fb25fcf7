/* SPDX-License-Identifier: Apache-2.0 */
/* LAYERS layers h = exp(h W), trained with all the memory that they want, and with half of it. The losses are the same. */
#include "storage/storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 32, STEPS = 5, BATCH = 512, WIDTH = 64, RATE = LAYERS, INPUT, CONSTANTS };
#define DO(call) ((call) == VARVE_OK ? (void)0 : (fprintf(stderr, "%s\n", message.text), exit(1)))
#define DROP(tensor) varve_tensor_release(tensor)
static struct varve_message message;

static struct varve_tensor *constant(struct varve_runtime *runtime, int64_t rows, int64_t columns,
                                     double size)
{
    const struct varve_tensor_type type = {VARVE_DTYPE_F32, 2, (const int64_t[]){rows, columns}};
    struct varve_tensor *made;

    DO(varve_tensor_op_uniform(runtime, &type, 1, (uint64_t)rows, -size, 0, &made, &message));
    DO(varve_tensor_pin(made, &message)); /* stays; how it was made is forgotten */
    return made;
}

static void step(struct varve_tensor **weights, struct varve_tensor *input)
{
    struct varve_tensor *h[LAYERS + 1] = {input}, *z, *dz, *dw, *next, *turned, *gradient, *loss;
    struct varve_storage *value;

    for (int i = 0; i < LAYERS; i++, DROP(z)) {
        DO(varve_tensor_op_matmul(h[i], weights[i], &z, &message));
        DO(varve_tensor_op_exp(z, &h[i + 1], &message));
    }
    DO(varve_tensor_op_mean(h[LAYERS], VARVE_OP_ALL_AXES, &loss, &message));
    DO(varve_tensor_copy(weights[RATE], &gradient, &message)); /* of each element, times the rate */
    for (int i = LAYERS - 1; i >= 0; i--, DROP(turned), DROP(dz), DROP(dw), DROP(next), DROP(h[i + 2])) {
        DO(varve_tensor_op_mul(h[i + 1], gradient, &dz, &message)); /* exp is its own derivative */
        DROP(gradient);
        DO(varve_tensor_transpose(weights[i], 0, 1, &turned, &message));
        DO(varve_tensor_op_matmul(dz, turned, &gradient, &message));
        DROP(turned);
        DO(varve_tensor_transpose(h[i], 0, 1, &turned, &message));
        DO(varve_tensor_op_matmul(turned, dz, &dw, &message));
        DO(varve_tensor_op_sub(weights[i], dw, &next, &message));
        DO(varve_tensor_pin(next,
                            &message)); /* else it would take the weights of all steps to make it again */
        DO(varve_tensor_assign(weights[i], next, &message));
    }
    DO(varve_tensor_borrow(loss, &value, &message));
    printf(" %.9g", (double)*(const float *)varve_storage_data(value));
    DROP(loss), DROP(gradient);
}

static uint64_t train(struct varve_memory *memory, uint64_t budget)
{
    const struct varve_runtime_options options = {.memory = memory, .budget = budget};
    struct varve_tensor *constants[CONSTANTS];
    struct varve_runtime *runtime;

    DO(varve_runtime_open(&options, &runtime, &message));
    for (int i = 0; i < CONSTANTS; i++) {
        constants[i] = i == RATE    ? constant(runtime, 1, 1, 1e-6)
                       : i == INPUT ? constant(runtime, BATCH, WIDTH, 1)
                                    : constant(runtime, WIDTH, WIDTH, 1.0 / WIDTH);
    }
    for (int i = 0; i < STEPS; i++) {
        step(constants, constants[INPUT]);
    }
    for (int i = 0; i < CONSTANTS; i++) {
        DROP(constants[i]);
    }
    DO(varve_runtime_close(runtime, &message));
    return (uint64_t)varve_alloc_max_memory_allocated(varve_memory_alloc(memory));
}

int main(void)
{
    struct varve_alloc_options options;
    struct varve_memory *memory;
    struct varve_alloc *alloc;
    uint64_t peak;

    varve_alloc_options_init(&options);
    DO(varve_host_open(&(struct varve_host_options){0}, &options.device, &message));
    DO(varve_alloc_open(&options, &alloc, &message));
    DO(varve_memory_open(alloc, &memory, &message));
    peak = train(memory, 0);
    printf("\npeak %" PRIu64 "; with half of it:\n", peak);
    varve_alloc_reset_peak_stats(alloc);
    printf("\npeak %" PRIu64 "\n", train(memory, peak / 2));
    varve_memory_close(memory, NULL);
    varve_alloc_close(alloc);
    options.device->ops->close(options.device);
    return 0;
}
