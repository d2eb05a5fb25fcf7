/* SPDX-License-Identifier: Apache-2.0 */
#include "support/alloc/pieces.h"

#include "cmocka.h"
#include "support/random.h"

#define LIVE_MAX 400U

static void insert_at(struct pieces *pieces, uint32_t at, struct piece piece)
{
    assert_true(pieces->count < PIECES_MAX);
    memmove(&pieces->at[at + 1], &pieces->at[at], (pieces->count - at) * sizeof(piece));
    pieces->at[at] = piece;
    pieces->count++;
}

static uint32_t find(const struct pieces *pieces, uint64_t addr)
{
    uint32_t at = 0;
    while (at < pieces->count && pieces->at[at].addr < addr) {
        at++;
    }
    return at;
}

uint32_t pieces_add(struct pieces *pieces, uint64_t addr, uint64_t bytes, uint64_t stream)
{
    uint32_t at = find(pieces, addr);
    insert_at(pieces, at,
              (struct piece){.addr = addr,
                             .size = bytes,
                             .stream = stream,
                             .base = addr,
                             .nth = ++pieces->segments,
                             .put = ++pieces->clock,
                             .is_free = true});
    pieces->bytes += bytes;
    return at;
}

void pieces_cut(struct pieces *pieces, uint32_t at, uint64_t bytes)
{
    struct piece rest = pieces->at[at];
    rest.addr += bytes;
    rest.size -= bytes;
    pieces->at[at].size = bytes;
    insert_at(pieces, at + 1, rest);
}

void pieces_remove(struct pieces *pieces, uint32_t at)
{
    pieces->count--;
    memmove(&pieces->at[at], &pieces->at[at + 1], (pieces->count - at) * sizeof(pieces->at[0]));
}

void pieces_merge(struct pieces *pieces, uint32_t at)
{
    pieces->at[at].size += pieces->at[at + 1].size;
    pieces_remove(pieces, at + 1);
}

bool pieces_meet(const struct pieces *pieces, uint32_t at)
{
    const struct piece *piece = &pieces->at[at];
    return at + 1 < pieces->count && piece[0].is_free && piece[1].is_free && piece[0].base == piece[1].base &&
           piece[0].group == piece[1].group;
}

bool pieces_is_whole(const struct pieces *pieces, uint32_t at)
{
    uint64_t base = pieces->at[at].base;
    return base == pieces->at[at].addr && (at + 1 == pieces->count || pieces->at[at + 1].base != base);
}

uint32_t pieces_best(const struct pieces *pieces, uint64_t bytes, uint64_t stream)
{
    uint32_t best = PIECES_NONE;
    for (uint32_t i = 0; i < pieces->count; i++) {
        const struct piece *piece = &pieces->at[i];
        if (piece->is_free && piece->size >= bytes && (stream == UINT64_MAX || piece->stream == stream) &&
            (best == PIECES_NONE || piece->size < pieces->at[best].size)) {
            best = i;
        }
    }
    return best;
}

void pieces_put(struct pieces *pieces, uint32_t at)
{
    uint64_t stream = pieces->at[at].stream;
    pieces->at[at].is_free = true;
    if (pieces_meet(pieces, at)) {
        pieces_merge(pieces, at);
    }
    if (at > 0 && pieces_meet(pieces, at - 1)) {
        pieces_merge(pieces, --at);
    }
    pieces->at[at].stream = stream;
    pieces->at[at].put = ++pieces->clock;
}

void pieces_release(struct pieces *pieces)
{
    for (uint32_t i = 0; i < pieces->count;) {
        if (pieces->at[i].is_free && pieces_is_whole(pieces, i)) {
            pieces->bytes -= pieces->at[i].size;
            pieces_remove(pieces, i);
        } else {
            i++;
        }
    }
}

/* ---- beside an allocator ---- */

static void put(const struct pieces_rules *rules, struct pieces *pieces, uint32_t at)
{
    if (rules->put != NULL) {
        rules->put(pieces, at);
    } else {
        pieces_put(pieces, at);
    }
}

static uint32_t choose(const struct pieces_rules *rules, struct pieces *pieces, uint64_t bytes, uint64_t stream)
{
    return rules->choose != NULL ? rules->choose(pieces, bytes, stream) : pieces_best(pieces, bytes, stream);
}

static const struct varve_record *new_segment(const struct rig *rig)
{
    for (size_t i = rig->mark; i < rig->count; i++) {
        if (varve_record_kind(&rig->records[i]) == VARVE_KIND_SEGMENT_ALLOC) {
            return &rig->records[i];
        }
    }
    return NULL;
}

/* What the model says about a request; the allocator has served it already, and new segments are in its records. */
static uint64_t serve(struct rig *rig, const struct pieces_rules *rules, struct pieces *pieces, uint64_t bytes,
                      uint64_t stream)
{
    uint64_t unit = rules->unit,
             rounded = rules->rounded != NULL ? rules->rounded(bytes) : (bytes + unit - 1) / unit * unit;
    uint32_t at = choose(rules, pieces, rounded, stream);
    const struct varve_record *segment = new_segment(rig);
    assert_true((at == PIECES_NONE) == (segment != NULL));
    if (segment != NULL) {
        assert_int_equal(segment->size, rules->grow != NULL ? rules->grow(pieces, rounded) : rounded);
        pieces_add(pieces, segment->addr, segment->size, stream);
        at = choose(rules, pieces, rounded, stream);
        assert_true(at != PIECES_NONE);
    }
    uint64_t handed = rules->cut != NULL ? rules->cut(&pieces->at[at], rounded) : rounded;
    pieces->at[at].is_free = false;
    if (handed < pieces->at[at].size) {
        pieces_cut(pieces, at, handed);
        put(rules, pieces, at + 1);
    }
    pieces->at[at].stream = stream;
    return pieces->at[at].addr;
}

static void compare_free(struct rig *rig, const struct pieces *pieces)
{
    uint64_t free_bytes = 0;
    for (uint32_t i = 0; i < pieces->count; i++) {
        free_bytes += pieces->at[i].is_free ? pieces->at[i].size : 0;
    }
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), pieces->bytes);
    assert_int_equal(varve_alloc_memory_allocated(rig->alloc), pieces->bytes - free_bytes);
}

static void step(struct rig *rig, const struct pieces_rules *rules, struct pieces *pieces, uint64_t *seed,
                 uint64_t live[LIVE_MAX])
{
    static const uint64_t largest[] = {2000, 40 * KIB, MIB, 9 * MIB};
    uint64_t slot = random_below(seed, LIVE_MAX);
    rig->count = rig->mark = 0;
    if (random_below(seed, 200) == 0) {
        empty_cache(rig);
        if (rules->release != NULL) {
            rules->release(pieces);
        } else {
            pieces_release(pieces);
        }
    } else if (live[slot] != 0) {
        give(rig, live[slot]);
        put(rules, pieces, find(pieces, live[slot]));
        live[slot] = 0;
    } else {
        uint64_t bytes = 1 + random_below(seed, largest[random_below(seed, 4)]);
        uint64_t stream = random_below(seed, rules->streams);
        live[slot] = take_on(rig, bytes, stream);
        assert_int_equal(serve(rig, rules, pieces, bytes, stream), live[slot]);
    }
    compare_free(rig, pieces);
}

void pieces_compare(struct rig *rig, const struct pieces_rules *rules, unsigned steps)
{
    static struct pieces pieces;
    uint64_t live[LIVE_MAX] = {0}, seed = test_first_seed(20261124);
    pieces = (struct pieces){.state = rules->state};
    rig_open(rig, &(struct rig_options){.sim = {.index = 0}, .policy = rules->policy});
    for (unsigned i = 0; i < steps; i++) {
        step(rig, rules, &pieces, &seed, live);
    }
    rig->count = rig->mark = 0;
}
