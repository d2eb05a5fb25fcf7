/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserved bytes only grow within a request, so that the moment with most of them is right behind one. Which one is not known before
 * the end: each new peak takes the place of the last.
 */
#include "analysis/whatif/waste.h"

#include "analysis/replay/infer/settings.h"

struct peak {
    struct varve_alloc_config config;
    const char *policy;
    const struct varve_alloc *alloc; /* of the device that is played; each has its own */
    int64_t reserved;                /* the most so far */
    struct whatif_waste waste;       /* then */
    struct whatif_waste sum;         /* of devices before */
    int error;
};

static void add_waste(struct whatif_waste *sum, const struct whatif_waste *waste)
{
    sum->reserved += waste->reserved;
    sum->requested += waste->requested;
    sum->rounding += waste->rounding;
    sum->unsplit += waste->unsplit;
    sum->pending += waste->pending;
    sum->cached += waste->cached;
    sum->holes += waste->holes;
}

static void add_block(struct whatif_waste *waste, const struct peak *peak,
                      const struct varve_segment_info *segment, const struct varve_block_info *block)
{
    int64_t bytes = (int64_t)block->bytes;
    int64_t rounded;

    if (block->state == VARVE_BLOCK_ACTIVE_PENDING_FREE) {
        waste->pending += bytes;
    } else if (block->state == VARVE_BLOCK_INACTIVE) {
        *(segment->active_bytes > 0 ? &waste->holes : &waste->cached) += bytes;
    } else {
        rounded = (int64_t)varve_alloc_block_size(peak->policy, &peak->config, block->requested);
        rounded = rounded < bytes ? rounded : bytes;
        waste->requested += (int64_t)block->requested;
        waste->rounding += rounded - (int64_t)block->requested;
        waste->unsplit += bytes - rounded;
    }
}

static void look(void *context, struct varve_alloc *alloc, bool has_failed)
{
    struct peak *peak = context;
    int64_t reserved = varve_alloc_memory_reserved(alloc);
    struct varve_alloc_snapshot snapshot;

    (void)has_failed;
    if (alloc != peak->alloc) {
        add_waste(&peak->sum, &peak->waste);
        peak->waste = (struct whatif_waste){0};
        peak->reserved = 0;
        peak->alloc = alloc;
    }
    if (reserved <= peak->reserved || peak->error != VARVE_OK) {
        return;
    }
    peak->reserved = reserved;
    peak->error = varve_alloc_snapshot(alloc, &snapshot);
    if (peak->error != VARVE_OK) {
        return;
    }
    peak->waste = (struct whatif_waste){.reserved = reserved};
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        const struct varve_segment_info *segment = &snapshot.segments[i];

        for (size_t j = 0; j < segment->block_count; j++) {
            add_block(&peak->waste, peak, segment, &snapshot.blocks[segment->first_block + j]);
        }
    }
    varve_alloc_snapshot_free(&snapshot);
}

int whatif_waste_at_peak(const struct history *history, const struct whatif_setting *setting, bool follow,
                         struct whatif_waste *out, struct varve_message *message)
{
    struct peak peak = {.policy = setting->policy};
    struct replay_options options = {
        .policy = setting->policy,
        .conf = setting->conf,
        .memory_limit = setting->memory_limit,
        .capacity = setting->capacity,
        .follow = follow,
        .observe = look,
        .observe_context = &peak,
    };
    struct replay_inference *inference;
    struct replay_result result;
    int error = replay_config(history, setting->conf, &peak.config, message);

    *out = (struct whatif_waste){0};
    if (error == VARVE_OK) {
        error = replay_infer(history, &options, &inference, &result, message);
    }
    if (error != VARVE_OK) {
        return error;
    }
    error = replay_play(inference, &options, &result, message);
    replay_inference_free(inference);
    if (error == VARVE_OK) {
        error = peak.error;
    }
    add_waste(&peak.sum, &peak.waste);
    *out = peak.sum;
    return error;
}
