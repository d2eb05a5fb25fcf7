/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storage_runtime [STEPS]: a runtime under a budget makes a chain of vectors and needs them in the opposite order,
 * STEPS times; a function with two outputs, evicted by request, is in it, and one vector is pinned. At last an
 * operator does not get its memory. Prints the runtime's counters as JSON. Exit status 2 after another error.
 */
#include "storage/storage.h"

#include <stdio.h>
#include <stdlib.h>

#define LENGTH 24
#define BUDGET ((uint64_t)13 * 4096)

static struct varve_message message;
static struct varve_runtime *runtime;
static const int64_t count = 1024;
static const struct varve_tensor_type types[] = {{VARVE_DTYPE_F32, 1, &count}, {VARVE_DTYPE_F32, 1, &count}};

static void expect(int error)
{
    if (error != VARVE_OK) {
        fprintf(stderr, "%s: %s\n", varve_strerror(error), message.text);
        exit(2);
    }
}

static int split(const void *arguments, struct varve_storage *const *inputs, struct varve_storage *const *outputs,
                 uint64_t stream, struct varve_message *reason)
{
    int error = varve_storage_op_add(outputs[0], inputs[0], inputs[0], stream, reason);
    (void)arguments;
    return error == VARVE_OK ? varve_storage_op_relu(outputs[1], inputs[0], stream, reason) : error;
}

static void walk(struct varve_tensor *start)
{
    const struct varve_recipe recipe = {
        .name = "split", .run = split, .outputs = types, .input_count = 1, .output_count = 2, .cost_ns = 500};
    struct varve_tensor *made[LENGTH + 2], *sum;
    expect(varve_tensor_copy(start, &made[0], &message));
    for (unsigned i = 1; i < LENGTH; i++) {
        expect(i % 2 == 0 ? varve_tensor_op_add(made[i - 1], start, &made[i], &message)
                          : varve_tensor_op_mul(made[i - 1], start, &made[i], &message));
    }
    expect(varve_runtime_run(runtime, &recipe, &made[LENGTH - 1], &made[LENGTH], &message));
    expect(varve_tensor_evict(made[LENGTH], &message));
    expect(varve_tensor_evict(made[LENGTH + 1], &message));
    for (unsigned i = LENGTH + 2; i-- > 0;) {
        expect(varve_tensor_op_add(made[i], start, &sum, &message));
        varve_tensor_release(sum);
        varve_tensor_release(made[i]);
    }
}

/* Everything that is needed for it at once is more than the budget. */
static void fail(void)
{
    const int64_t large = (int64_t)(BUDGET / sizeof(float));
    const struct varve_tensor_type type = {VARVE_DTYPE_F32, 1, &large};
    struct varve_tensor *out;
    if (varve_tensor_op_uniform(runtime, &type, 1, 2, 0, 1, &out, &message) != VARVE_ERROR_NO_MEMORY) {
        exit(3);
    }
}

static void print_counters(void)
{
    struct varve_remat_counters counters;
    varve_runtime_get_counters(runtime, &counters);
#define PRINT(name, meaning) printf("\"%s\": %llu, ", #name, (unsigned long long)counters.name);
    printf("{");
    VARVE_REMAT_COUNTER_LIST(PRINT)
    printf("\"budget\": %llu}\n", (unsigned long long)BUDGET);
}

int main(int argc, char **argv)
{
    unsigned long steps = argc > 1 ? strtoul(argv[1], NULL, 10) : 20;
    const struct varve_scalar one = {.kind = VARVE_SCALAR_REAL, .real = 1};
    struct varve_runtime_options options = {.budget = BUDGET};
    struct varve_device *device;
    expect(varve_host_open(&(struct varve_host_options){0}, &device, &message));
    struct varve_alloc_options alloc_options;
    varve_alloc_options_init(&alloc_options);
    alloc_options.device = device;
    struct varve_alloc *alloc;
    expect(varve_alloc_open(&alloc_options, &alloc, &message));
    expect(varve_memory_open(alloc, &options.memory, &message));
    expect(varve_runtime_open(&options, &runtime, &message));
    struct varve_tensor *start;
    expect(varve_tensor_op_fill(runtime, types, one, &start, &message));
    expect(varve_tensor_pin(start, &message));
    for (unsigned long i = 0; i < steps; i++) {
        walk(start);
    }
    fail();
    varve_tensor_release(start);
    print_counters();
    expect(varve_runtime_close(runtime, &message));
    expect(varve_memory_close(options.memory, &message));
    varve_alloc_close(alloc);
    device->ops->close(device);
    return 0;
}
