/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator that begins where another one stood: its snapshot is that of the other, it decides as that one
 * would from there on, and states that can't be are refused with the reason. The second device gives the
 * addresses of the snapshot, as the script of a replay does.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

/* Places of a snapshot's segments, in order; reservations begin at the lowest range of their pool. */
struct script {
    struct varve_alloc_snapshot snapshot;
    size_t next;
    uint64_t shift; /* another device would give other addresses */
};

static int segment_address(void *context, uint64_t bytes, uint64_t stream, const struct varve_device_reservation *place,
                           uint64_t *addr_out)
{
    struct script *script = context;
    (void)place;
    (void)stream;
    while (script->next < script->snapshot.segment_count && script->snapshot.segments[script->next].is_expandable) {
        script->next++;
    }
    if (script->next == script->snapshot.segment_count) { /* behind everything */
        const struct varve_segment_info *last = &script->snapshot.segments[script->next - 1];
        *addr_out = last->addr + 1024 * MIB;
        return 0;
    }
    *addr_out = script->snapshot.segments[script->next].addr + script->shift;
    return script->snapshot.segments[script->next++].bytes == bytes ? 0 : VARVE_ERROR_INVALID;
}

static int reservation_address(void *context, uint64_t bytes, uint64_t stream,
                               const struct varve_device_reservation *place, uint64_t *addr_out)
{
    struct script *script = context;
    (void)bytes;
    for (size_t i = 0; i < script->snapshot.segment_count; i++) {
        const struct varve_segment_info *segment = &script->snapshot.segments[i];
        if (segment->is_expandable && segment->stream == stream && segment->is_small == place->is_small &&
            segment->pool.capture == place->pool_id[0] && segment->pool.user == place->pool_id[1]) {
            *addr_out = segment->addr + script->shift;
            return 0;
        }
    }
    return VARVE_ERROR_NOT_FOUND;
}

static void open_fresh(struct rig *rig, struct script *script, const char *config)
{
    rig_open(rig, &(struct rig_options){.sim = {.capacity_bytes = 2000 * MIB,
                                                .events_are_scripted = true,
                                                .segment_address = segment_address,
                                                .reservation_address = reservation_address,
                                                .address_context = script},
                                        .config = config});
}

/* ---- states ---- */

/* Pools, streams, pieces of all kinds, one block that waits for a stream. */
static void live(struct rig *rig, const char *config)
{
    const struct varve_pool_id pool = {2, 9};
    rig_open(rig, &(struct rig_options){.sim = {.capacity_bytes = 2000 * MIB, .events_are_scripted = true},
                                        .config = config});
    uint64_t addr[48];
    for (uint64_t i = 0; i < 48; i++) {
        static const uint64_t sizes[] = {700, 3 * MIB, 300 * KIB, 12 * MIB, 25 * MIB, 9 * MIB};
        if (i == 24) {
            assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, pool, NULL, NULL), VARVE_OK);
        } else if (i == 36) {
            assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, pool), VARVE_OK);
        }
        addr[i] = take_on(rig, sizes[i % 6] + 7 * i, i % 5 == 0 ? 6 : 0);
    }
    use_on(rig, addr[3], 5);
    for (uint64_t i = 0; i < 48; i++) {
        if (i * 7 % 3 == 0) {
            give(rig, addr[i]);
        }
    }
}

/* Blocks that waited for a stream are in use again. */
static void end_waiting(char *layout)
{
    for (char *at = strstr(layout, " p\n"); at != NULL; at = strstr(at, " p\n")) {
        at[1] = 'a';
    }
}

/* What both do from here on. */
static void assert_same_future(struct rig *a, struct rig *b)
{
    static const uint64_t sizes[] = {512, 2 * MIB, 700, 8 * MIB, 100 * KIB, 3 * MIB, 1 * MIB, 20 * MIB};
    for (size_t i = 0; i < 40; i++) {
        struct varve_alloc_forecast hit, other;
        uint64_t stream = i % 3 == 0 ? 6 : 0;
        assert_int_equal(varve_alloc_forecast(a->alloc, sizes[i % 8], stream, &hit), VARVE_OK);
        assert_int_equal(varve_alloc_forecast(b->alloc, sizes[i % 8], stream, &other), VARVE_OK);
        assert_int_equal(hit.is_hit, other.is_hit);
        if (hit.is_hit) {
            assert_int_equal(take_on(a, sizes[i % 8], stream), take_on(b, sizes[i % 8], stream));
        }
    }
}

/* The second rig begins where this one stands; under a limit, if it is not 0. */
static struct rig *begin_again(struct rig *rig, struct script *script, const char *config, uint64_t limit)
{
    struct rig *again = rig + 1;
    assert_int_equal(varve_alloc_snapshot(rig->alloc, &script->snapshot), VARVE_OK);
    open_fresh(again, script, config);
    assert_int_equal(varve_alloc_set_memory_limit(again->alloc, limit), VARVE_OK);
    if (varve_alloc_restore(again->alloc, &script->snapshot, &again->message) != VARVE_OK) {
        fail_msg("%s", again->message.text);
    }
    rig_check(again);
    memcpy(again->named, rig->named, sizeof(again->named));
    return again;
}

static void end_both(struct rig *rig, struct script *script)
{
    rig_close(rig + 1);
    rig_close(rig);
    varve_alloc_snapshot_free(&script->snapshot);
}

static void restored(struct rig *rig, const char *config)
{
    struct script script = {.next = 0};
    live(rig, config);
    struct rig *again = begin_again(rig, &script, config, 0);
    char *before = layout_of(rig);
    char *after = layout_of(again);
    end_waiting(before);
    assert_string_equal(after, before);
    struct varve_alloc_stats expected = stats_of(rig);
    struct varve_alloc_stats stats = stats_of(again);
    assert_int_equal(stats.active_bytes[0].current, expected.active_bytes[0].current);
    assert_int_equal(stats.requested_bytes[0].current, expected.requested_bytes[0].current);
    assert_int_equal(stats.segment[1].current, expected.segment[1].current);
    assert_int_equal(stats.reserved_bytes[2].current, expected.reserved_bytes[2].current);
    assert_int_equal(stats.inactive_split[0].current, expected.inactive_split[0].current);
    assert_int_equal(stats.inactive_split_bytes[0].current, expected.inactive_split_bytes[0].current);
    assert_int_equal(varve_sim_used(again->device), varve_sim_used(rig->device));
    assert_same_future(rig, again);
    free(before);
    free(after);
    end_both(rig, &script);
}

TEST_WITH(test_restored, rig_setup, rig_teardown)
{
    static const char *const configs[] = {NULL, "max_split_size_mb:20", "expandable_segments:True"};
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        restored(*state, configs[i]);
        memset(*state, 0, 2 * sizeof(struct rig));
    }
}

/* Ranges with a hole between them are one reservation again, and the hole can be filled. */
TEST_WITH(test_restored_hole, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct script script = {.next = 0};
    const char *config = "expandable_segments:True";
    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 2000 * MIB, .config = config});
    play(rig, "a=5M b=50M 5M -b empty");
    struct rig *again = begin_again(rig, &script, config, 0);
    assert_int_equal(script.snapshot.segment_count, 2);
    play(again, "reserve=1 40M>a+5M a{a5M a40M -10M a5M}");
    end_both(rig, &script);
}

/* The state was reached somehow: a limit does not stand in its way, but counts afterwards. */
TEST_WITH(test_restored_beyond_the_limit, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct script script = {.next = 0};
    live(rig, NULL);
    play(begin_again(rig, &script, NULL, 10 * MIB), "x40M");
    end_both(rig, &script);
}

TEST_WITH(test_restored_from_nothing, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct script script = {.next = 0};
    open_fresh(rig, &script, NULL);
    assert_int_equal(varve_alloc_restore(rig->alloc, &script.snapshot, &rig->message), VARVE_OK);
    rig_check(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 0);
}

/* A free part of a segment, of a size that is never split under these settings: it can't be released. */
TEST_WITH(test_split_oversize_block, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct varve_segment_info segment = {.addr = UINT64_C(0x7f0000000000), .bytes = 100 * MIB, .block_count = 2};
    struct varve_block_info blocks[2] = {
        {.addr = segment.addr, .bytes = 60 * MIB, .state = VARVE_BLOCK_INACTIVE},
        {.addr = segment.addr + 60 * MIB, .bytes = 40 * MIB, .state = VARVE_BLOCK_ACTIVE_ALLOCATED}};
    struct varve_alloc_snapshot snapshot = {&segment, blocks, 1, 2};
    rig_open(rig, &(struct rig_options){.limit = 110 * MIB, .config = "max_split_size_mb:20"});
    assert_int_equal(varve_alloc_restore(rig->alloc, &snapshot, &rig->message), VARVE_OK);
    rig_check(rig);
    rig->named[0] = blocks[1].addr;
    play(rig, "x30M reserved=100M -a 30M reserved=30M"); /* the whole of it can */
}

/* ---- refusals ---- */

/* One small segment of four blocks, to be spoilt. */
struct spoilt {
    struct varve_segment_info segment;
    struct varve_block_info blocks[4];
};

static struct spoilt sound(void)
{
    struct spoilt spoilt = {
        .segment = {.addr = UINT64_C(0x7f0000000000), .bytes = 2 * MIB, .is_small = true, .block_count = 4}};
    for (unsigned i = 0; i < 4; i++) {
        spoilt.blocks[i] =
            (struct varve_block_info){.addr = spoilt.segment.addr + i * 512 * KIB,
                                      .bytes = 512 * KIB,
                                      .requested = 500 * KIB,
                                      .state = i % 2 == 0 ? VARVE_BLOCK_ACTIVE_ALLOCATED : VARVE_BLOCK_INACTIVE};
    }
    return spoilt;
}

/* The allocator can still be closed, whatever it had when it gave up. */
static int restore_spoilt(struct rig *rig, struct spoilt *spoilt, uint64_t shift)
{
    struct script script = {.snapshot = {&spoilt->segment, spoilt->blocks, 1, 4}, .shift = shift};
    open_fresh(rig, &script, "expandable_segments:True");
    rig->message.text[0] = '\0';
    int error = varve_alloc_restore(rig->alloc, &script.snapshot, &rig->message);
    if (error != VARVE_OK) {
        assert_string_not_equal(rig->message.text, "");
    }
    varve_alloc_close(rig->alloc);
    rig->alloc = NULL;
    assert_int_equal(varve_sim_used(rig->device), 0); /* also what it had not come to finish */
    rig->device->ops->close(rig->device);
    rig->device = NULL;
    rig->count = rig->mark = 0;
    return error;
}

#define ASSERT_REFUSED(change)                                           \
    do {                                                                 \
        struct spoilt spoilt = sound();                                  \
        change;                                                          \
        if (restore_spoilt(*state, &spoilt, 0) != VARVE_ERROR_INVALID) { \
            fail_msg("accepted: " #change);                              \
        }                                                                \
    } while (0)

TEST_WITH(test_spoilt_states_are_refused, rig_setup, rig_teardown)
{
    struct spoilt untouched = sound();
    assert_int_equal(restore_spoilt(*state, &untouched, 0), VARVE_OK);
    /* blocks that do not tile */
    ASSERT_REFUSED(spoilt.blocks[0].addr += 512);
    ASSERT_REFUSED(spoilt.blocks[2].addr -= 512);
    ASSERT_REFUSED(spoilt.blocks[1].bytes += 512);
    ASSERT_REFUSED(spoilt.blocks[3].bytes -= 512);
    ASSERT_REFUSED(spoilt.blocks[3].bytes += 512);
    ASSERT_REFUSED(spoilt.blocks[3].bytes = 0);
    ASSERT_REFUSED(spoilt.blocks[2].bytes = UINT64_MAX - 511);
    ASSERT_REFUSED(spoilt.segment.bytes = 0);
    ASSERT_REFUSED(spoilt.segment.bytes = 4 * MIB);
    ASSERT_REFUSED(spoilt.segment.addr += 2 * MIB);
    /* sizes that are impossible */
    ASSERT_REFUSED((spoilt.segment.bytes = spoilt.blocks[0].bytes = UINT64_C(1) << 62, spoilt.segment.block_count = 1));
    ASSERT_REFUSED((spoilt.segment.bytes = spoilt.blocks[0].bytes = UINT64_C(1) << 61, spoilt.segment.block_count = 1,
                    spoilt.segment.is_expandable = true));
    ASSERT_REFUSED((spoilt.segment.addr = spoilt.blocks[0].addr = 0 - MIB, spoilt.blocks[0].bytes = 2 * MIB,
                    spoilt.segment.block_count = 1, spoilt.segment.is_expandable = true));
    ASSERT_REFUSED(spoilt.blocks[0].requested = 512 * KIB + 1);
    ASSERT_REFUSED(spoilt.blocks[0].requested = UINT64_C(1) << 63);
    ASSERT_REFUSED((spoilt.blocks[0].bytes -= 100, spoilt.blocks[1].bytes += 100, spoilt.blocks[1].addr -= 100));
    ASSERT_REFUSED(
        (spoilt.segment.is_expandable = true, spoilt.segment.bytes -= 512 * KIB, spoilt.segment.block_count = 3));
    /* counts that lie */
    ASSERT_REFUSED(spoilt.segment.block_count = 0);
    ASSERT_REFUSED(spoilt.segment.block_count = 3);
    ASSERT_REFUSED(spoilt.segment.block_count = 5);
    ASSERT_REFUSED(spoilt.segment.first_block = 1);
    ASSERT_REFUSED(spoilt.segment.first_block = SIZE_MAX);
    ASSERT_REFUSED((spoilt.segment.first_block = SIZE_MAX - 3, spoilt.segment.block_count = 4));
}

/* They become one block. */
TEST_WITH(test_free_neighbours, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct spoilt spoilt = sound();
    struct script script = {.snapshot = {&spoilt.segment, spoilt.blocks, 1, 4}};
    size_t inactive = 0;
    spoilt.blocks[2].state = VARVE_BLOCK_INACTIVE;
    open_fresh(rig, &script, NULL);
    assert_int_equal(varve_alloc_restore(rig->alloc, &script.snapshot, &rig->message), VARVE_OK);
    assert_int_equal(varve_alloc_check(rig->alloc, &rig->message), VARVE_OK);
    struct varve_alloc_snapshot got;
    assert_int_equal(varve_alloc_snapshot(rig->alloc, &got), VARVE_OK);
    for (size_t i = 0; i < got.block_count; i++) {
        inactive += got.blocks[i].state == VARVE_BLOCK_INACTIVE;
        assert_false(i > 0 && got.blocks[i].state == VARVE_BLOCK_INACTIVE &&
                     got.blocks[i - 1].state == VARVE_BLOCK_INACTIVE);
    }
    assert_true(inactive > 0 && got.block_count < 4);
    assert_int_equal(got.segments[0].bytes, spoilt.segment.bytes);
    varve_alloc_snapshot_free(&got);
}

TEST_WITH(test_other_addresses, rig_setup, rig_teardown)
{
    struct spoilt spoilt = sound();
    assert_int_equal(restore_spoilt(*state, &spoilt, 2 * MIB), VARVE_ERROR_INVALID);
    spoilt.segment.is_expandable = true;
    assert_int_equal(restore_spoilt(*state, &spoilt, 2 * MIB), VARVE_ERROR_INVALID);
}

TEST_WITH(test_device_without_memory, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct spoilt spoilt = sound();
    struct script script = {.snapshot = {&spoilt.segment, spoilt.blocks, 1, 4}};
    open_fresh(rig, &script, NULL);
    varve_sim_fail(rig->device, VARVE_DEVICE_SEGMENT_ALLOC, 1, 1, VARVE_ERROR_NO_MEMORY);
    rig->message.text[0] = '\0';
    assert_int_equal(varve_alloc_restore(rig->alloc, &script.snapshot, &rig->message), VARVE_ERROR_NO_MEMORY);
    assert_string_not_equal(rig->message.text, "");
}

TEST_WITH(test_not_fresh, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct script script = {.next = 0};
    rig_open(rig, &(struct rig_options){.limit = 0});
    take(rig, 512);
    char *before = layout_of(rig);
    struct varve_alloc_snapshot snapshot;
    assert_int_equal(varve_alloc_snapshot(rig->alloc, &snapshot), VARVE_OK);
    assert_int_equal(varve_alloc_restore(rig->alloc, &snapshot, &rig->message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_alloc_restore(rig->alloc, &script.snapshot, &rig->message), VARVE_ERROR_INVALID);
    char *after = layout_of(rig);
    assert_string_equal(after, before);
    free(before);
    free(after);
    varve_alloc_snapshot_free(&snapshot);
}
