/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/remat_regions.h"

#include <stdlib.h>

/* ---- memory ---- */

static void free_region(struct region *region)
{
    free(region->interior.words);
    free(region->frontier.words);
}

void regions_free(struct remat_regions *regions)
{
    for (unsigned d = 0; d < REACH_DIRECTIONS; d++) {
        for (uint32_t i = 0; i < regions->capacity; i++) {
            free_region(&regions->of[i][d]);
        }
        free_region(&regions->spare[d]);
        free(regions->ends[d].words);
    }
    free(regions->of);
    reach_free(&regions->reach);
}

bool regions_reserve(struct remat_regions *regions, const struct remat_graph *graph)
{
    return growth_reserve(&regions->of, &regions->capacity, graph->storage_count, sizeof(*regions->of)) &&
           reach_reserve(&regions->reach, graph);
}

/* ---- evictions ---- */

/* `evicted` moves from the frontier of `to` into its interior, and its own region with it. */
static bool remat_regions_absorb(struct remat_regions *regions, const struct remat_graph *graph, struct region *to,
                                 const struct region *from, uint32_t evicted)
{
    uint32_t begin = evicted / 64, end = begin + 1;
    const struct reach_set *more = &from->interior;
    if (more->begin != more->end) {
        begin = more->begin < begin ? more->begin : begin;
        end = more->end > end ? more->end : end;
    }
    reach_set_remove(&to->frontier, evicted);
    if (!reach_set_add(&to->frontier, &from->frontier, &regions->bytes) ||
        !reach_set_cover(&to->interior, begin, end, &regions->bytes)) {
        return false;
    }
    for (uint32_t i = more->begin; i < more->end; i++) {
        uint64_t *word = &to->interior.words[i - to->interior.begin];
        uint64_t news = more->words[i - more->begin] & ~*word;
        if (news == 0) {
            continue;
        }
        *word |= news;
        for (; news != 0; news &= news - 1) {
            regions->accesses++;
            to->cost += graph->storages[i * 64 + (unsigned)__builtin_ctzll(news)].compute;
        }
    }
    to->interior.words[evicted / 64 - to->interior.begin] |= UINT64_C(1) << evicted % 64;
    regions->accesses++;
    to->cost += graph->storages[evicted].compute;
    return true;
}

static void remat_regions_clear(struct region *region)
{
    region->interior.begin = region->interior.end = 0;
    region->frontier.begin = region->frontier.end = 0;
    region->cost = 0;
}

void regions_set_resident(struct remat_regions *regions, uint32_t storage, bool is_resident)
{
    reach_set_resident(&regions->reach, storage, is_resident);
}

bool regions_evict(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage)
{
    struct region *own = regions->of[storage];
    reach_set_resident(&regions->reach, storage, false);
    bool is_done = true;
    for (unsigned d = 0; d < REACH_DIRECTIONS; d++) {
        const struct reach_set *ends = &own[REACH_DIRECTIONS - 1 - d].frontier;
        REACH_FOR_EACH(number, ends)
        {
            if (number != storage) {
                is_done &= remat_regions_absorb(regions, graph, &regions->of[number][d], &own[d], storage);
            }
        }
    }
    for (unsigned d = 0; d < REACH_DIRECTIONS; d++) {
        struct reach_set ends = own[d].frontier;
        own[d].frontier = regions->ends[d];
        regions->ends[d] = ends;
        remat_regions_clear(&own[d]);
    }
    return is_done;
}

/* ---- runs ---- */

static bool rebuild(struct remat_regions *regions, const struct remat_graph *graph, const uint32_t *storages,
                    unsigned count, enum reach_direction direction)
{
    struct reach_found found[REACH_LANES];
    for (unsigned i = 0; i < count; i++) {
        struct region *region = &regions->of[storages[i]][direction];
        found[i] = (struct reach_found){.interior = &region->interior, .frontier = &region->frontier};
    }
    bool is_done =
        reach_walk(&regions->reach, graph, storages, count, direction, found, &regions->bytes, &regions->accesses);
    for (unsigned i = 0; i < count; i++) {
        regions->of[storages[i]][direction].cost = found[i].cost;
    }
    return is_done;
}

static bool rebuild_set(struct remat_regions *regions, const struct remat_graph *graph, const struct reach_set *set,
                        enum reach_direction direction)
{
    uint32_t storages[REACH_LANES];
    unsigned count = 0;
    bool is_done = true;
    REACH_FOR_EACH(number, set)
    {
        storages[count++] = number;
        if (count == REACH_LANES) {
            is_done &= rebuild(regions, graph, storages, count, direction);
            count = 0;
        }
    }
    return is_done && (count == 0 || rebuild(regions, graph, storages, count, direction));
}

/* Was any of them evicted, as far as the region knows? */
static bool has_any(const struct region *region, const uint32_t *storages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (reach_set_has(&region->interior, storages[i])) {
            return true;
        }
    }
    return false;
}

/* What was made for the first time, and has its ways up end at the owner, is one end more; nothing else
 * is new but costs. */
static bool extend_down(struct remat_regions *regions, const struct remat_graph *graph, uint32_t owner,
                        const uint32_t *made, uint32_t count)
{
    struct region *region = &regions->of[owner][REACH_DOWN];
    region->cost = 0;
    regions->accesses += graph->storages[owner].child_visits;
    REACH_FOR_EACH(number, &region->interior)
    {
        region->cost += graph->storages[number].compute;
        regions->accesses += graph->storages[number].child_visits;
    }
    bool is_done = true;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t word = made[i] / 64;
        if (!reach_set_has(&regions->of[made[i]][REACH_UP].frontier, owner)) {
            continue;
        }
        if (!reach_set_cover(&region->frontier, word, word + 1, &regions->bytes)) {
            is_done = false;
        } else {
            region->frontier.words[word - region->frontier.begin] |= UINT64_C(1) << made[i] % 64;
        }
    }
    return is_done;
}

/* Most runs are first ones: then nobody needs to walk from what the operator was given. */
static bool rebuild_inputs(struct remat_regions *regions, const struct remat_graph *graph, const uint32_t *made,
                           uint32_t count)
{
    struct reach_set *inputs = &regions->ends[REACH_UP];
    bool is_done = true;
    REACH_FOR_EACH(number, inputs)
    {
        if (!graph->has_late_edges && graph->banished == 0 && !has_any(&regions->of[number][REACH_DOWN], made, count)) {
            is_done &= extend_down(regions, graph, number, made, count);
            reach_set_remove(inputs, number);
        }
    }
    return is_done && rebuild_set(regions, graph, inputs, REACH_DOWN);
}

bool regions_made(struct remat_regions *regions, const struct remat_graph *graph, const uint32_t *storages,
                  uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        reach_set_resident(&regions->reach, storages[i], true);
    }
    bool is_done = true;
    for (unsigned d = 0; d < REACH_DIRECTIONS; d++) {
        regions->ends[d].begin = regions->ends[d].end = 0;
        for (uint32_t i = 0; i < count; i += REACH_LANES) {
            is_done &= rebuild(regions, graph, storages + i, count - i < REACH_LANES ? count - i : REACH_LANES,
                               (enum reach_direction)d);
        }
        for (uint32_t i = 0; i < count; i++) {
            is_done &= reach_set_add(&regions->ends[d], &regions->of[storages[i]][d].frontier, &regions->bytes);
        }
    }
    return is_done && rebuild_inputs(regions, graph, storages, count) &&
           rebuild_set(regions, graph, &regions->ends[REACH_DOWN], REACH_UP);
}

bool regions_unlinked(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage)
{
    struct reach_set *ends = &regions->ends[REACH_UP];
    ends->begin = ends->end = 0;
    regions->ends[REACH_DOWN].begin = regions->ends[REACH_DOWN].end = 0;
    bool is_done = reach_set_add(ends, &regions->of[storage][REACH_UP].frontier, &regions->bytes);
    is_done &= rebuild(regions, graph, &storage, 1, REACH_UP);
    return is_done && rebuild_set(regions, graph, ends, REACH_DOWN);
}

/* ---- walks for nobody's region ---- */

static bool remat_regions_walk(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage,
                               enum reach_direction direction, uint64_t *visits)
{
    struct region *spare = &regions->spare[direction];
    struct reach_found found = {.interior = &spare->interior, .frontier = &spare->frontier};
    return reach_walk(&regions->reach, graph, &storage, 1, direction, &found, &regions->bytes, visits);
}

bool regions_forget(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage)
{
    uint64_t visits = 0;
    bool is_done = remat_regions_walk(regions, graph, storage, REACH_UP, &visits);
    struct reach_set ends = regions->spare[REACH_UP].frontier;
    regions->spare[REACH_UP].frontier = regions->ends[REACH_UP];
    regions->ends[REACH_UP] = ends;
    regions->ends[REACH_DOWN].begin = regions->ends[REACH_DOWN].end = 0;
    REACH_FOR_EACH(number, &ends)
    {
        struct region *region = &regions->of[number][REACH_DOWN];
        if (reach_set_has(&region->interior, storage)) {
            region->cost -= graph->storages[storage].compute;
        }
        reach_set_remove(&region->interior, storage);
        reach_set_remove(&region->frontier, storage);
    }
    remat_regions_clear(&regions->of[storage][REACH_DOWN]);
    remat_regions_clear(&regions->of[storage][REACH_UP]);
    return is_done;
}

bool regions_union_cost(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage,
                        int64_t *cost_out, int64_t *last_access_out)
{
    struct reach_set *both = &regions->spare[REACH_DOWN].interior;
    bool is_done = remat_regions_walk(regions, graph, storage, REACH_DOWN, &regions->accesses);
    is_done &= remat_regions_walk(regions, graph, storage, REACH_UP, &regions->accesses);
    is_done &= reach_set_add(both, &regions->spare[REACH_UP].interior, &regions->bytes);
    *cost_out = 0;
    REACH_FOR_EACH(number, both)
    {
        const struct remat_storage *of = &graph->storages[number];
        *cost_out += of->compute;
        *last_access_out = of->last_access > *last_access_out ? of->last_access : *last_access_out;
    }
    return is_done;
}

static bool is_within(const struct reach_set *set, const struct reach_set *other)
{
    REACH_FOR_EACH(number, set)
    {
        if (!reach_set_has(other, number)) {
            return false;
        }
    }
    return true;
}

int regions_check(struct remat_regions *regions, const struct remat_graph *graph, struct varve_message *message)
{
    uint64_t visits = 0;
    for (uint32_t i = 0; i < graph->storage_count; i++) {
        for (unsigned d = 0; d < REACH_DIRECTIONS && graph->storages[i].is_resident; d++) {
            const struct region *stored = &regions->of[i][d], *found = &regions->spare[d];
            if (!remat_regions_walk(regions, graph, i, (enum reach_direction)d, &visits)) {
                return VARVE_ERROR_NO_MEMORY;
            }
            if (!is_within(&stored->interior, &found->interior) || !is_within(&found->interior, &stored->interior) ||
                !is_within(&stored->frontier, &found->frontier) || !is_within(&found->frontier, &stored->frontier)) {
                return varve_message_set(message, VARVE_ERROR_CORRUPT, "storage %u: a region %s is wrong", i,
                                         d == REACH_DOWN ? "down" : "up");
            }
        }
    }
    return 0;
}
