/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See pair.h: statistics and snapshots of allocator and model side by side, and operations
 * and settings as readable lines.
 */
#include "support/alloc/pair_internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- statistics ---- */

static bool stat_compare(struct pair *pair, const char *name, unsigned pool,
                         const struct varve_alloc_stat *real, const struct varve_alloc_stat *model)
{
    static const char *const pools[] = {"all", "small_pool", "large_pool", "scalar"};

    if (memcmp(real, model, sizeof(*real)) == 0) {
        return true;
    }
    return alloc_pair_fail(pair,
                           "%s.%s: current %" PRId64 " peak %" PRId64 " allocated %" PRId64 " freed %" PRId64
                           "; in the model: %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
                           name, pools[pool], real->current, real->peak, real->allocated, real->freed,
                           model->current, model->peak, model->allocated, model->freed);
}

static bool counter_compare(struct pair *pair, const char *name, int64_t real, int64_t model)
{
    return real == model ||
           alloc_pair_fail(pair, "%s: %" PRId64 ", in the model %" PRId64, name, real, model);
}

static bool stats_compare(struct pair *pair)
{
    const struct varve_alloc_stats *model = alloc_model_stats(pair->model);
    struct varve_alloc_stats real;
    bool is_equal = true;

    if (varve_alloc_get_device_stats(pair->alloc, &real)) {
        return alloc_pair_fail(pair, "no statistics");
    }
    for (unsigned i = 0; i < VARVE_ALLOC_STAT_POOLS; i++) {
#define PAIR_STAT_COMPARE(name) \
    is_equal = is_equal && stat_compare(pair, #name, i, &real.name[i], &model->name[i]);
        VARVE_ALLOC_STAT_LIST(PAIR_STAT_COMPARE)
#undef PAIR_STAT_COMPARE
    }
    return is_equal &&
           stat_compare(pair, "oversize_allocations", VARVE_ALLOC_STAT_POOLS, &real.oversize_allocations,
                        &model->oversize_allocations) &&
           stat_compare(pair, "oversize_segments", VARVE_ALLOC_STAT_POOLS, &real.oversize_segments,
                        &model->oversize_segments) &&
           counter_compare(pair, "num_alloc_retries", real.num_alloc_retries, model->num_alloc_retries) &&
           counter_compare(pair, "num_ooms", real.num_ooms, model->num_ooms) &&
           counter_compare(pair, "num_sync_all_streams", real.num_sync_all_streams,
                           model->num_sync_all_streams) &&
           counter_compare(pair, "num_device_alloc", real.num_device_alloc, model->num_device_alloc) &&
           counter_compare(pair, "num_device_free", real.num_device_free, model->num_device_free) &&
           counter_compare(pair, "max_split_size", real.max_split_size, model->max_split_size) &&
           counter_compare(pair, "memory_reserved", varve_alloc_memory_reserved(pair->alloc),
                           model->reserved_bytes[VARVE_ALLOC_STAT_ALL].current) &&
           counter_compare(pair, "bytes in use on the device", (int64_t)varve_sim_used(pair->device),
                           model->reserved_bytes[VARVE_ALLOC_STAT_ALL].current);
}

/* ---- snapshots ---- */

static bool block_compare(struct pair *pair, const struct varve_block_info *real,
                          const struct varve_block_info *model)
{
    if (real->addr == model->addr && real->bytes == model->bytes && real->requested == model->requested &&
        real->state == model->state && (real->allocation_id != 0) == (real->state != VARVE_BLOCK_INACTIVE)) {
        return true;
    }
    return alloc_pair_fail(pair,
                           "block %" PRIx64 ": %" PRIu64 " bytes, requested %" PRIu64
                           ", state %d, id %" PRIu64 "; in the model %" PRIx64 ": %" PRIu64 ", %" PRIu64
                           ", %d",
                           real->addr, real->bytes, real->requested, (int)real->state, real->allocation_id,
                           model->addr, model->bytes, model->requested, (int)model->state);
}

static bool segment_compare(struct pair *pair, const struct varve_segment_info *real,
                            const struct varve_segment_info *model)
{
    struct varve_segment_info copy = *real;

    copy.segment_id = 0;
    if (copy.addr == model->addr && copy.bytes == model->bytes &&
        copy.allocated_bytes == model->allocated_bytes && copy.active_bytes == model->active_bytes &&
        copy.requested_bytes == model->requested_bytes && copy.stream == model->stream &&
        copy.pool.capture == model->pool.capture && copy.pool.user == model->pool.user &&
        copy.is_small == model->is_small && copy.is_expandable == model->is_expandable &&
        copy.first_block == model->first_block && copy.block_count == model->block_count) {
        return true;
    }
    return alloc_pair_fail(pair,
                           "segment %" PRIx64 ": %" PRIu64 " bytes, %zu blocks, %" PRIu64
                           " active, stream %" PRIx64 "; in the model %" PRIx64 ": %" PRIu64 ", %zu, %" PRIu64
                           ", %" PRIx64,
                           real->addr, real->bytes, real->block_count, real->active_bytes, real->stream,
                           model->addr, model->bytes, model->block_count, model->active_bytes, model->stream);
}

/* What an allocated block says of the segment it lies in. */
static bool base_compare(struct pair *pair, const struct varve_segment_info *segment,
                         const struct varve_block_info *block)
{
    uint64_t base = 0;
    uint64_t bytes = 0;

    if (varve_alloc_get_base_allocation(pair->alloc, block->addr, &base, &bytes) == VARVE_OK &&
        base == segment->addr && bytes == segment->bytes) {
        return true;
    }
    return alloc_pair_fail(pair, "base allocation of block %" PRIx64 ": %" PRIu64 " bytes at %" PRIx64,
                           block->addr, bytes, base);
}

static bool snapshot_compare(struct pair *pair, const struct varve_alloc_snapshot *real,
                             const struct varve_alloc_snapshot *model)
{
    for (size_t i = 0; i < real->segment_count && i < model->segment_count; i++) {
        if (!segment_compare(pair, &real->segments[i], &model->segments[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < model->segment_count && i < real->segment_count; i++) {
        const struct varve_segment_info *segment = &model->segments[i];
        const struct varve_block_info *block = &model->blocks[segment->first_block];

        for (size_t j = 0; j < segment->block_count; j++) {
            if (block[j].state == VARVE_BLOCK_ACTIVE_ALLOCATED && !base_compare(pair, segment, &block[j])) {
                return false;
            }
        }
    }
    for (size_t i = 0; i < real->block_count && i < model->block_count; i++) {
        if (!block_compare(pair, &real->blocks[i], &model->blocks[i])) {
            return false;
        }
    }
    if (real->segment_count != model->segment_count || real->block_count != model->block_count) {
        return alloc_pair_fail(pair, "%zu segments and %zu blocks, in the model %zu and %zu",
                               real->segment_count, real->block_count, model->segment_count,
                               model->block_count);
    }
    return true;
}

bool alloc_pair_compare_state(struct pair *pair)
{
    struct varve_alloc_snapshot real, model;
    bool is_equal;

    if (!stats_compare(pair)) {
        return false;
    }
    if (varve_alloc_snapshot(pair->alloc, &real)) {
        return alloc_pair_fail(pair, "no snapshot");
    }
    alloc_model_snapshot(pair->model, &model);
    is_equal = snapshot_compare(pair, &real, &model);
    varve_alloc_snapshot_free(&real);
    alloc_model_snapshot_free(&model);
    return is_equal;
}

/* ---- readable lines ---- */

void alloc_pair_print_op(FILE *file, const struct alloc_pair_op *op)
{
    static const char *const names[] = {
#define PAIR_NAME(NAME, name) #name,
        ALLOC_PAIR_LIST(PAIR_NAME)
#undef PAIR_NAME
    };

    fprintf(file, "%s", names[op->kind]);
    switch (op->kind) {
    case ALLOC_PAIR_ALLOC:
        fprintf(file, " %" PRIu64 " bytes on stream %u, salt %u", op->bytes, op->stream, op->salt % 4);
        break;
    case ALLOC_PAIR_FREE:
    case ALLOC_PAIR_FREE_WRONG:
        fprintf(file, " block %u", op->pick);
        break;
    case ALLOC_PAIR_RECORD_STREAM:
        fprintf(file, " block %u on stream %u", op->pick, op->stream);
        break;
    case ALLOC_PAIR_COMPLETE:
        fprintf(file, " stream %u", op->stream);
        break;
    case ALLOC_PAIR_BEGIN:
        fprintf(file, " pool %u, filter %u", op->pick % ALLOC_PAIR_POOLS, op->stream % ALLOC_PAIR_FILTERS);
        break;
    case ALLOC_PAIR_END:
    case ALLOC_PAIR_RELEASE:
    case ALLOC_PAIR_NO_SPLIT:
    case ALLOC_PAIR_USE_ON_OOM:
        fprintf(file, " pool %u", op->pick % ALLOC_PAIR_POOLS);
        break;
    case ALLOC_PAIR_LIMIT:
    case ALLOC_PAIR_FRACTION:
        fprintf(file, " %" PRIu64, op->bytes);
        break;
    case ALLOC_PAIR_FAIL:
        fprintf(file, " call %u: the %uth and %u in all, error %d", op->pick % 3, op->nth, op->count,
                op->error);
        break;
    default:
        break;
    }
    fprintf(file, "\n");
}

void alloc_pair_print_setup(FILE *file, const struct alloc_pair_setup *setup)
{
    const struct varve_alloc_config *config = &setup->config;

    fprintf(file,
            "capacity %" PRIu64 ", limit %" PRIu64 ", max_split %" PRIu64 ", non_split_rounding %" PRIu64
            ", large_segment %" PRIu64 ", gc %.17g, expandable %d, callbacks free %u, divisions",
            setup->capacity, setup->memory_limit, config->max_split_size, config->max_non_split_rounding_size,
            config->large_segment_size, config->garbage_collection_threshold, config->expandable_segments,
            setup->miss_frees);
    for (unsigned i = 0; i < VARVE_ALLOC_DIVISIONS; i++) {
        fprintf(file, " %" PRIu64, config->roundup_power2_divisions[i]);
    }
    fprintf(file, "\n");
}
