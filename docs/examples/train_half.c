/* SPDX-License-Identifier: Apache-2.0 */
/* LAYERS layers h = exp(h w), trained with all the memory that they want, and with half of it. The
 * losses are the same. */
#include "storage/storage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 32, STEPS = 5, BATCH = 1024, WIDTH = 64, RATE = LAYERS, INPUT, CONSTANTS };
#define DO(call) ((call) == VARVE_OK ? (void)0 : (fprintf(stderr, "%s\n", message.text), exit(1)))
#define DROP(tensor) varve_tensor_release(tensor)
static struct varve_message message;

static void step(struct varve_tensor **weights, struct varve_tensor *input)
{
    struct varve_tensor *h[LAYERS + 2] = {input}, *z, *dz, *products, *dw, *next, *gradient, *loss;
    struct varve_storage *value;

    for (int i = 0; i < LAYERS; i++, DROP(z)) {
        DO(varve_tensor_op_mul(h[i], weights[i], &z, &message));
        DO(varve_tensor_op_exp(z, &h[i + 1], &message));
    }
    DO(varve_tensor_op_mean(h[LAYERS], VARVE_OP_ALL_AXES, &loss, &message));
    DO(varve_tensor_copy(weights[RATE], &gradient, &message)); /* of each element, times the rate */
    for (int i = LAYERS - 1; i >= 0; i--, DROP(dz), DROP(products), DROP(dw), DROP(next), DROP(h[i + 2])) {
        DO(varve_tensor_op_mul(h[i + 1], gradient, &dz, &message)); /* exp is its own derivative */
        DROP(gradient);
        DO(varve_tensor_op_mul(dz, weights[i], &gradient, &message));
        DO(varve_tensor_op_mul(dz, h[i], &products, &message));
        DO(varve_tensor_op_sum(products, 0, &dw, &message));
        DO(varve_tensor_op_add(weights[i], dw, &next, &message));
        DO(varve_tensor_pin(next, &message)); /* else it takes the weights of all steps to make it again */
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

    varve_alloc_reset_peak_stats(varve_memory_alloc(memory));
    DO(varve_runtime_open(&options, &runtime, &message));
    for (unsigned i = 0; i < CONSTANTS; i++) {
        const int64_t shape[] = {i == INPUT ? BATCH : 1, i == RATE ? 1 : WIDTH};
        const struct varve_tensor_type type = {VARVE_DTYPE_F32, 2, shape};
        DO(varve_tensor_op_uniform(runtime, &type, i, 0, i == RATE ? -1e-7 : -1, 0, &constants[i], &message));
        DO(varve_tensor_pin(constants[i], &message)); /* stays; how it was made is forgotten */
    }
    for (int i = 0; i < STEPS; i++) {
        step(constants, constants[INPUT]);
    }
    for (int i = 0; i < CONSTANTS; i++) {
        DROP(constants[i]);
    }
    DO(varve_runtime_close(runtime, &message));
    printf("\npeak %" PRId64 " bytes\n", varve_alloc_max_memory_allocated(varve_memory_alloc(memory)));
    return (uint64_t)varve_alloc_max_memory_allocated(varve_memory_alloc(memory));
}

int main(void)
{
    struct varve_alloc_options options;
    struct varve_memory *memory;
    struct varve_alloc *alloc;

    varve_alloc_options_init(&options);
    DO(varve_host_open(&(struct varve_host_options){0}, &options.device, &message));
    DO(varve_alloc_open(&options, &alloc, &message));
    DO(varve_memory_open(alloc, &memory, &message));
    train(memory, train(memory, 0) / 2);
    varve_memory_close(memory, NULL);
    varve_alloc_close(alloc);
    options.device->ops->close(options.device);
    return 0;
}
