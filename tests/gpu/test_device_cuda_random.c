/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator on the cuda device against the allocator on the sim device, which unit/alloc/core/test_alloc_model.c compares
 * with its model: random operations on both, step by step. The GPU's driver chooses the addresses and the sim
 * gets the same ones, so results, records, statistics and snapshots must be equal. What is more on the GPU
 * is the memory: each block is marked at both ends when it is handed out, and looked at when it is freed.
 *
 * VARVE_TEST_SEED and VARVE_MODEL_STEPS choose other runs, and longer ones.
 */
#include "gpu/device_cuda_support.h"
#include "alloc/device/cuda/cuda.h"
#include "support/alloc/random.h"

#include <inttypes.h>

#define DEFAULT_STEPS 25000U
#define PLACES_MAX 4096U
#define RECORDS_MAX 65536U
#define LIVE_MAX 16384U
#define MARK ((uint64_t)256)

struct place {
    uint64_t addr, bytes;
};

struct side {
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct varve_record records[RECORDS_MAX]; /* of this step */
    size_t record_count;
};

struct live {
    uint64_t addr, bytes;
    unsigned char mark;
};

static struct run {
    struct side cuda, sim;
    struct varve_device_ops real; /* of the cuda device, before ours */
    struct place places[PLACES_MAX];
    size_t place_count, place_taken; /* of this step */
    struct live live[LIVE_MAX];
    size_t live_count;
    unsigned references[ALLOC_PAIR_POOLS];
    bool is_scope[ALLOC_PAIR_POOLS];
    uint64_t marks;
} run;

static uint64_t streams[ALLOC_PAIR_STREAMS];
static unsigned masks[ALLOC_PAIR_FILTERS] = {0, 0x1, 0x6, 0x1e};

/* ---- the same addresses on both sides ---- */

static int place_note(int error, const uint64_t *addr, uint64_t bytes)
{
    if (error == VARVE_OK && run.place_count < PLACES_MAX) {
        run.places[run.place_count++] = (struct place){*addr, bytes};
    }
    return error;
}

static int noted_segment_alloc(struct varve_device *device, uint64_t bytes, uint64_t stream,
                               uint64_t *addr_out)
{
    return place_note(run.real.segment_alloc(device, bytes, stream, addr_out), addr_out, bytes);
}

static int noted_reserve(struct varve_device *device, uint64_t bytes,
                         const struct varve_device_reservation *place, uint64_t *addr_out)
{
    return place_note(run.real.vmm_reserve(device, bytes, place, addr_out), addr_out, bytes);
}

/* The sim's events are complete at once; the GPU's after a moment. */
static int patient_query(struct varve_device *device, uint64_t event)
{
    int error = run.real.event_synchronize(device, event);

    return error != VARVE_OK ? error : run.real.event_query(device, event);
}

static int place_emit(void *context, uint64_t bytes, uint64_t stream,
                      const struct varve_device_reservation *place, uint64_t *addr_out)
{
    (void)context;
    (void)stream;
    (void)place;
    if (run.place_taken == run.place_count || run.places[run.place_taken].bytes != bytes) {
        return VARVE_ERROR_CORRUPT; /* the results differ then */
    }
    *addr_out = run.places[run.place_taken++].addr;
    return VARVE_OK;
}

/* ---- one run ---- */

static void record_take(void *context, const struct varve_record *record)
{
    struct side *side = context;

    if (side->record_count < RECORDS_MAX) {
        side->records[side->record_count++] = *record;
    }
}

static void side_open(struct side *side, const struct alloc_pair_setup *setup)
{
    struct varve_message message = {""};
    struct varve_alloc_options options;

    side->recorder = (struct varve_alloc_recorder){.record = record_take, .context = side};
    varve_alloc_options_init(&options);
    options.device = side->device;
    options.config = setup->config;
    options.memory_limit = setup->memory_limit;
    options.recorder = &side->recorder;
    if (varve_alloc_open(&options, &side->alloc, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
}

static void run_open(const struct alloc_pair_setup *setup)
{
    const struct varve_sim_options sim = {.capacity_bytes = setup->capacity,
                                          .total_bytes = setup->capacity,
                                          .segment_address = place_emit,
                                          .reservation_address = place_emit};
    struct varve_device_ops *ops;

    memset(&run, 0, sizeof(run));
    run.cuda.device = cuda_open(setup->capacity);
    ops = &cuda_of(run.cuda.device)->ops;
    run.real = *ops;
    ops->segment_alloc = noted_segment_alloc;
    ops->vmm_reserve = noted_reserve;
    ops->event_query = patient_query;
    assert_int_equal(varve_sim_open(&sim, &run.sim.device, NULL), VARVE_OK);
    side_open(&run.cuda, setup);
    side_open(&run.sim, setup);
}

static void run_close(void)
{
    uint64_t free_bytes = 0, total = 0;

    varve_alloc_close(run.cuda.alloc);
    varve_alloc_close(run.sim.alloc);
    assert_int_equal(run.real.memory_info(run.cuda.device, &free_bytes, &total), 0);
    assert_int_equal(free_bytes, total);
    cuda_close_checked(run.cuda.device);
    run.sim.device->ops->close(run.sim.device);
}

/* ---- steps ---- */

static bool filter_stream(void *context, uint64_t stream)
{
    for (unsigned i = 0; i < ALLOC_PAIR_STREAMS; i++) {
        if (streams[i] == stream) {
            return (*(unsigned *)context >> i) & 1U;
        }
    }
    return false;
}

static uint64_t mark_bytes(const struct live *live)
{
    return live->bytes < MARK ? live->bytes : MARK;
}

static void mark(const struct live *live)
{
    gpu_fill(live->addr, mark_bytes(live), live->mark, 0);
    gpu_fill(live->addr + live->bytes - mark_bytes(live), mark_bytes(live), live->mark, 0);
}

static bool is_marked(const struct live *live)
{
    uint64_t bytes = mark_bytes(live);

    return gpu_first_other(live->addr, bytes, live->mark) == bytes &&
           gpu_first_other(live->addr + live->bytes - bytes, bytes, live->mark) == bytes;
}

static void step_alloc(const struct alloc_pair_op *op, int results[2])
{
    uint64_t stream = streams[op->stream % ALLOC_PAIR_STREAMS], addrs[2] = {0, 0};

    results[0] = varve_alloc_raw_alloc_with_stream(run.cuda.alloc, op->bytes, stream, &addrs[0], NULL);
    results[1] = varve_alloc_raw_alloc_with_stream(run.sim.alloc, op->bytes, stream, &addrs[1], NULL);
    if (results[0] == VARVE_OK && results[1] == VARVE_OK && addrs[0] != 0) {
        struct live *live = &run.live[run.live_count];

        assert_int_equal(addrs[0], addrs[1]);
        assert_true(run.live_count < LIVE_MAX);
        *live = (struct live){addrs[0], op->bytes, (unsigned char)(++run.marks % 251)};
        run.live_count++;
        mark(live);
    }
}

static void step_block(const struct alloc_pair_op *op, int results[2])
{
    uint64_t stream = streams[op->stream % ALLOC_PAIR_STREAMS];
    size_t index = run.live_count ? op->pick % run.live_count : 0;
    struct live live = run.live[index];

    if (run.live_count == 0) {
        return;
    }
    if (op->kind == ALLOC_PAIR_RECORD_STREAM) {
        results[0] = varve_alloc_record_stream(run.cuda.alloc, live.addr, stream, NULL);
        results[1] = varve_alloc_record_stream(run.sim.alloc, live.addr, stream, NULL);
        return;
    }
    if (op->kind == ALLOC_PAIR_FREE_WRONG) {
        live.addr += 512; /* now and then, where the next block begins */
        for (index = 0; index < run.live_count && run.live[index].addr != live.addr;) {
            index++;
        }
    }
    if (index < run.live_count) {
        assert_true(is_marked(&run.live[index]));
        run.live_count--;
        memmove(&run.live[index], &run.live[index + 1], (run.live_count - index) * sizeof(run.live[0]));
    }
    results[0] = varve_alloc_raw_delete(run.cuda.alloc, live.addr, NULL);
    results[1] = varve_alloc_raw_delete(run.sim.alloc, live.addr, NULL);
}

static int pool_call(struct varve_alloc *alloc, const struct alloc_pair_op *op)
{
    uint32_t number = op->pick % ALLOC_PAIR_POOLS;
    struct varve_pool_id id = {number / 2, number % 2 + 1};
    unsigned *mask = &masks[op->stream % ALLOC_PAIR_FILTERS];

    switch (op->kind) {
    case ALLOC_PAIR_BEGIN:
        return varve_alloc_begin_allocate_to_pool(alloc, id, *mask ? filter_stream : NULL, mask);
    case ALLOC_PAIR_END:
        return varve_alloc_end_allocate_to_pool(alloc, id);
    case ALLOC_PAIR_NO_SPLIT:
        return varve_alloc_set_no_split(alloc, id);
    case ALLOC_PAIR_USE_ON_OOM:
        return varve_alloc_set_use_on_oom(alloc, id);
    default:
        return varve_alloc_release_pool(alloc, id);
    }
}

static void step_pool(const struct alloc_pair_op *op, int results[2])
{
    uint32_t number = op->pick % ALLOC_PAIR_POOLS;
    bool changes = op->kind != ALLOC_PAIR_BEGIN && op->kind != ALLOC_PAIR_END;

    if (changes && (run.references[number] == 0 || (op->kind == ALLOC_PAIR_RELEASE &&
                                                    run.references[number] == 1 && run.is_scope[number]))) {
        return; /* a pool that is, and whose scope has ended */
    }
    results[0] = pool_call(run.cuda.alloc, op);
    results[1] = pool_call(run.sim.alloc, op);
    if (results[0] == VARVE_OK && !(changes && op->kind != ALLOC_PAIR_RELEASE)) {
        run.references[number] += op->kind == ALLOC_PAIR_BEGIN;
        run.references[number] -= op->kind == ALLOC_PAIR_RELEASE;
        run.is_scope[number] =
            op->kind == ALLOC_PAIR_BEGIN || (run.is_scope[number] && op->kind != ALLOC_PAIR_END);
    }
}

static int other_call(struct varve_alloc *alloc, const struct alloc_pair_op *op)
{
    switch (op->kind) {
    case ALLOC_PAIR_EMPTY_CACHE:
        return varve_alloc_empty_cache(alloc);
    case ALLOC_PAIR_LIMIT:
        return varve_alloc_set_memory_limit(alloc, op->bytes);
    case ALLOC_PAIR_FRACTION:
        return varve_alloc_set_memory_fraction(alloc, (double)op->bytes / 1000);
    case ALLOC_PAIR_RESET_PEAK:
        varve_alloc_reset_peak_stats(alloc);
        return VARVE_OK;
    case ALLOC_PAIR_RESET_ACCUMULATED:
        varve_alloc_reset_accumulated_stats(alloc);
        return VARVE_OK;
    default:
        return VARVE_OK; /* a GPU fails and completes when it wants to */
    }
}

static void step(const struct alloc_pair_op *op, int results[2])
{
    switch (op->kind) {
    case ALLOC_PAIR_ALLOC:
        step_alloc(op, results);
        break;
    case ALLOC_PAIR_FREE:
    case ALLOC_PAIR_RECORD_STREAM:
    case ALLOC_PAIR_FREE_WRONG:
        step_block(op, results);
        break;
    case ALLOC_PAIR_BEGIN:
    case ALLOC_PAIR_END:
    case ALLOC_PAIR_RELEASE:
    case ALLOC_PAIR_NO_SPLIT:
    case ALLOC_PAIR_USE_ON_OOM:
        step_pool(op, results);
        break;
    default:
        results[0] = other_call(run.cuda.alloc, op);
        results[1] = other_call(run.sim.alloc, op);
        break;
    }
}

/* ---- comparing ---- */

static bool are_records_equal(void)
{
    return run.cuda.record_count == run.sim.record_count &&
           memcmp(run.cuda.records, run.sim.records, run.cuda.record_count * sizeof(struct varve_record)) ==
               0;
}

static bool are_states_equal(void)
{
    struct varve_alloc_stats stats[2];
    struct varve_alloc_snapshot snapshots[2];
    bool is_equal;

    assert_int_equal(varve_alloc_get_device_stats(run.cuda.alloc, &stats[0]), VARVE_OK);
    assert_int_equal(varve_alloc_get_device_stats(run.sim.alloc, &stats[1]), VARVE_OK);
    assert_int_equal(varve_alloc_snapshot(run.cuda.alloc, &snapshots[0]), VARVE_OK);
    assert_int_equal(varve_alloc_snapshot(run.sim.alloc, &snapshots[1]), VARVE_OK);
    is_equal = memcmp(&stats[0], &stats[1], sizeof(stats[0])) == 0 &&
               snapshots[0].segment_count == snapshots[1].segment_count &&
               snapshots[0].block_count == snapshots[1].block_count;
    for (size_t i = 0; is_equal && i < snapshots[0].block_count; i++) {
        is_equal = snapshots[0].blocks[i].addr == snapshots[1].blocks[i].addr &&
                   snapshots[0].blocks[i].bytes == snapshots[1].blocks[i].bytes &&
                   snapshots[0].blocks[i].state == snapshots[1].blocks[i].state;
    }
    varve_alloc_snapshot_free(&snapshots[0]);
    varve_alloc_snapshot_free(&snapshots[1]);
    return is_equal && varve_alloc_check(run.cuda.alloc, NULL) == VARVE_OK &&
           varve_cuda_check(run.cuda.device, NULL) == VARVE_OK;
}

static void run_all(uint64_t seed, const struct alloc_pair_setup *setup, const struct alloc_pair_op *ops,
                    size_t count)
{
    run_open(setup);
    for (size_t i = 0; i < count; i++) {
        int results[2] = {VARVE_OK, VARVE_OK};

        run.place_count = 0;
        run.place_taken = 0;
        run.cuda.record_count = 0;
        run.sim.record_count = 0;
        step(&ops[i], results);
        if (results[0] != results[1] || run.place_taken != run.place_count || !are_records_equal() ||
            (i % 64 == 63 && !are_states_equal())) {
            alloc_pair_print_setup(stderr, setup);
            alloc_pair_print_op(stderr, &ops[i]);
            fail_msg("seed %" PRIu64 ", step %zu: %d and %d, %zu and %zu segments, %zu and %zu records: %s",
                     seed, i, results[0], results[1], run.place_count, run.place_taken, run.cuda.record_count,
                     run.sim.record_count, cuda_reason(run.cuda.device));
        }
    }
    for (size_t i = 0; i < run.live_count; i++) {
        assert_true(is_marked(&run.live[i]));
    }
    run_close();
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static uint64_t at_least(uint64_t value, uint64_t least)
{
    return value > least ? value : least;
}

/* A GPU has memory in pieces of 2 MiB, the sim in bytes. */
static void config_make_whole(struct varve_alloc_config *config)
{
    config->large_segment_size = 20 * MIB;
    config->max_split_size = at_least(config->max_split_size, 20 * MIB);
    config->max_non_split_rounding_size = at_least(config->max_non_split_rounding_size, 20 * MIB);
}

TEST(test_random_operations)
{
    uint64_t seed = test_first_seed(1), first = seed, done = 0, left_out = 0;
    uint64_t steps = number_from("VARVE_MODEL_STEPS", DEFAULT_STEPS);
    struct alloc_pair_op *ops = calloc(ALLOC_RANDOM_STEPS_MAX, sizeof(*ops));
    struct varve_device *device = cuda_open(0);
    uint64_t free_bytes = 0, total = 0;

    assert_non_null(ops);
    assert_int_equal(device->ops->memory_info(device, &free_bytes, &total), 0);
    device->ops->close(device);
    for (; done < steps; seed++) {
        struct alloc_pair_setup setup = {.capacity = 0};
        size_t count = alloc_random_run(seed, &setup, ops);

        if (setup.config.large_segment_size % UNIT != 0) {
            config_make_whole(&setup.config);
        }
        if (setup.capacity > free_bytes / 2) {
            left_out++;
            assert_true(left_out < 1000);
            continue;
        }
        run_all(seed, &setup, ops, count);
        done += count;
    }
    printf("%" PRIu64 " operations in %" PRIu64 " runs are equal; %" PRIu64
           " runs left out: they need more memory\n",
           done, seed - first - left_out, left_out);
    free(ops);
}

static int start(void **state)
{
    int failed = gpu_start(state);

    for (unsigned i = 1; failed == 0 && i < ALLOC_PAIR_STREAMS; i++) {
        cuda_stream stream = NULL;

        failed = gpu.stream_create(&stream, GPU_STREAM_NON_BLOCKING) != 0;
        streams[i] = (uint64_t)(uintptr_t)stream;
    }
    return failed;
}

TEST_FILE(start, NULL)
