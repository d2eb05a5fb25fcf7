/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses that a second expandable segment gets after the first one is gone: what its blocks were last
 * asked for is nothing, whatever the first one's blocks at these addresses were. As long as a segment has any
 * memory, its unmapped blocks keep what they were asked for.
 * Costs: 1 s
 */
#include "trace/error.h"
#include "trace/model/layout/layout.h"
#include "trace/record.h"
#include "trace/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define PIECE UINT64_C(0x200000)
#define BASE UINT64_C(0x7f0000000000)

static void apply(struct varve_layout *layout, enum varve_kind kind, uint64_t addr, uint64_t size, uint64_t requested,
                  uint64_t number)
{
    const struct varve_record record = {
        .dev_seq_kind_flags = varve_record_tag(0, kind, 0),
        .addr = addr,
        .size = size,
        .requested = requested,
        .arg = number,
    };
    assert_int_equal(varve_layout_apply(layout, &record), VARVE_OK);
    assert_int_equal(layout_check(layout), VARVE_OK);
}

/* A block of the whole piece that was used once. */
static void use(struct varve_layout *layout, uint64_t addr, uint64_t requested, uint64_t number)
{
    apply(layout, VARVE_KIND_SEGMENT_MAP, addr, PIECE, 0, number);
    apply(layout, VARVE_KIND_ALLOC, addr, PIECE, requested, number);
    apply(layout, VARVE_KIND_FREE_REQUESTED, addr, PIECE, requested, number);
    apply(layout, VARVE_KIND_FREE_COMPLETED, addr, PIECE, requested, number);
}

static uint64_t requested_at(const struct varve_layout *layout, uint64_t addr)
{
    struct varve_layout_block block;
    assert_true(varve_layout_block(layout, addr, &block));
    assert_int_equal(block.addr, addr);
    return block.requested;
}

TEST(test_a_new_segment_begins_anew)
{
    struct varve_layout *layout = varve_layout_new();
    use(layout, BASE, 1234, 1);
    apply(layout, VARVE_KIND_SEGMENT_UNMAP, BASE, PIECE, 0, 1);
    assert_int_equal(layout->unmapped.count, 0);
    apply(layout, VARVE_KIND_SEGMENT_MAP, BASE, PIECE, 0, 2);
    assert_int_equal(requested_at(layout, BASE), 0);
    varve_layout_free(layout);
}

TEST(test_pieces_unmapped_one_by_one)
{
    struct varve_layout *layout = varve_layout_new();
    use(layout, BASE, 11, 1);
    apply(layout, VARVE_KIND_ALLOC, BASE, PIECE, 11, 1);
    use(layout, BASE + PIECE, 22, 1);
    apply(layout, VARVE_KIND_ALLOC, BASE + PIECE, PIECE, 22, 1);
    use(layout, BASE + 3 * PIECE, 44, 1); /* with a gap that was never mapped */
    apply(layout, VARVE_KIND_SEGMENT_UNMAP, BASE + 3 * PIECE, PIECE, 0, 1);
    assert_int_equal(layout->unmapped.count, 1);
    /* the segment lives: its unmapped block is what it was */
    apply(layout, VARVE_KIND_SEGMENT_MAP, BASE + 3 * PIECE, PIECE, 0, 1);
    assert_int_equal(requested_at(layout, BASE + 3 * PIECE), 44);
    apply(layout, VARVE_KIND_SEGMENT_UNMAP, BASE + 3 * PIECE, PIECE, 0, 1);
    for (int i = 0; i < 2; i++) {
        apply(layout, VARVE_KIND_FREE_COMPLETED, BASE + (uint64_t)i * PIECE, PIECE, 0, 1);
    }
    apply(layout, VARVE_KIND_SEGMENT_UNMAP, BASE, 2 * PIECE, 0, 1);
    assert_int_equal(layout->unmapped.count, 0);
    assert_int_equal(layout->expandable_count, 0);
    varve_layout_free(layout);
}

/* Two segments whose addresses touch: the end of one does not touch what the other has unmapped. */
TEST(test_a_neighbour_keeps_its_own)
{
    struct varve_layout *layout = varve_layout_new();
    use(layout, BASE, 11, 1);
    use(layout, BASE + PIECE, 22, 2);
    apply(layout, VARVE_KIND_ALLOC, BASE + PIECE, PIECE, 22, 2);
    use(layout, BASE + 2 * PIECE, 33, 2);
    apply(layout, VARVE_KIND_ALLOC, BASE + 2 * PIECE, PIECE, 33, 2);
    apply(layout, VARVE_KIND_FREE_COMPLETED, BASE + PIECE, PIECE, 22, 2);
    apply(layout, VARVE_KIND_SEGMENT_UNMAP, BASE + PIECE, PIECE, 0, 2);
    apply(layout, VARVE_KIND_SEGMENT_UNMAP, BASE, PIECE, 0, 1);
    assert_int_equal(layout->unmapped.count, 1);
    apply(layout, VARVE_KIND_SEGMENT_MAP, BASE + PIECE, PIECE, 0, 2);
    assert_int_equal(requested_at(layout, BASE + PIECE), 22);
    apply(layout, VARVE_KIND_SEGMENT_MAP, BASE, PIECE, 0, 3);
    assert_int_equal(requested_at(layout, BASE), 0);
    varve_layout_free(layout);
}

/* A request of 2^64 - 1 bytes, which only a damaged trace holds, is one byte less after the unmapping. */
TEST(test_the_largest_request)
{
    struct varve_layout *layout = varve_layout_new();
    use(layout, BASE, 11, 1);
    use(layout, BASE + 2 * PIECE, UINT64_MAX, 1);
    apply(layout, VARVE_KIND_SEGMENT_UNMAP, BASE + 2 * PIECE, PIECE, 0, 1);
    apply(layout, VARVE_KIND_SEGMENT_MAP, BASE + 2 * PIECE, PIECE, 0, 1);
    assert_int_equal(requested_at(layout, BASE + 2 * PIECE), UINT64_MAX - 1);
    varve_layout_free(layout);
}
