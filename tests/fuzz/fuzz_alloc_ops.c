/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: bytes as settings and operations of the caching allocator, run on the sim device and on
 * the naive model side by side. Whatever they are, results, addresses, events, statistics and snapshots are
 * equal, and the allocator's own check passes after every step.
 */
#include "fuzz/target.h"

#include "support/alloc/pair.h"

#include <stdlib.h>
#include <string.h>

#define MIB UINT64_C(0x100000)
#define OPS_LIMIT 512U

struct input {
    const uint8_t *data;
    size_t size;
};

/* Zeros once the input has ended. */
static unsigned byte_next(struct input *input)
{
    if (input->size == 0) {
        return 0;
    }
    input->size--;
    return *input->data++;
}

/* A byte that says how large, two that say which one. */
static uint64_t size_next(struct input *input)
{
    unsigned exponent = byte_next(input) % 32;
    uint64_t fraction = (uint64_t)byte_next(input) << 8;
    uint64_t base = UINT64_C(1) << exponent;

    fraction |= byte_next(input);
    return base + (base * (fraction >> 2) >> 14) + (fraction & 3) - 1;
}

static void setup_next(struct input *input, struct alloc_pair_setup *setup)
{
    struct varve_alloc_config *config = &setup->config;
    unsigned flags = byte_next(input);

    varve_alloc_config_init(config);
    setup->check_every = 1;
    setup->capacity = (flags & 1) ? 300 * MIB : 2000 * MIB;
    setup->memory_limit = (flags & 2) ? setup->capacity * (byte_next(input) + 20) / 256 : 0;
    config->expandable_segments = (flags & 4) != 0;
    setup->miss_frees = flags >> 7;
    if (flags & 8) {
        config->max_split_size = (20 + byte_next(input) % 180) * MIB;
    }
    if (flags & 16) {
        config->garbage_collection_threshold = (byte_next(input) % 9 + 1) / 10.0;
    }
    if (flags & 32) {
        uint64_t divisions = UINT64_C(1) << (byte_next(input) % 7);

        for (unsigned i = 0; i < VARVE_ALLOC_DIVISIONS; i++) {
            config->roundup_power2_divisions[i] = divisions;
        }
    }
}

static void op_next(struct input *input, const struct alloc_pair_setup *setup, struct alloc_pair_op *op)
{
    unsigned first = byte_next(input);

    memset(op, 0, sizeof(*op));
    if (first < 96) {
        op->kind = ALLOC_PAIR_ALLOC;
    } else if (first < 176) {
        op->kind = ALLOC_PAIR_FREE;
    } else {
        op->kind = (enum alloc_pair_kind)(first % ALLOC_PAIR_KINDS);
    }
    op->stream = byte_next(input);
    op->salt = op->stream >> 4;
    op->stream &= 0xf;
    if (op->kind == ALLOC_PAIR_ALLOC) {
        op->bytes = size_next(input);
        return;
    }
    op->pick = byte_next(input);
    if (op->kind == ALLOC_PAIR_LIMIT) {
        op->bytes = setup->capacity * op->pick / 256;
    } else if (op->kind == ALLOC_PAIR_FRACTION) {
        op->bytes = op->pick * UINT64_C(5);
    } else if (op->kind == ALLOC_PAIR_FAIL) {
        op->nth = op->stream % 8 + 1;
        op->count = op->salt % 4 + 1;
        op->error = op->pick < 240 ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_IO;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct alloc_pair_difference difference;
    struct alloc_pair_setup setup = {.capacity = 0};
    struct alloc_pair_op ops[OPS_LIMIT];
    size_t count = 0;

    setup_next(&input, &setup);
    while (input.size > 0 && count < OPS_LIMIT) {
        op_next(&input, &setup, &ops[count++]);
    }
    if (!alloc_pair_run(&setup, ops, count, &difference)) {
        alloc_pair_print_setup(stderr, &setup);
        for (size_t i = 0; i <= difference.step && i < count; i++) {
            alloc_pair_print_op(stderr, &ops[i]);
        }
        fprintf(stderr, "step %zu: %s\n", difference.step, difference.text);
        abort();
    }
    return 0;
}
