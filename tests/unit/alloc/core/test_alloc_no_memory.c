/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator's own memory runs out: a realloc in this program, which stands before the C library's, fails
 * when the test says so. The request fails, nothing is half made, and the same request succeeds later.
 * Program of its own: it defines realloc.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

#include <dlfcn.h>

static volatile bool is_refusing;
static volatile unsigned refusals;

void *realloc(void *old, size_t bytes)
{
    static void *(*next)(void *, size_t);
    if (is_refusing) {
        refusals++;
        return NULL;
    }
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "realloc");
    }
    return next(old, bytes);
}

static int teardown(void **state)
{
    is_refusing = false; /* an assertion leaves it as it was */
    return rig_teardown(state);
}

/* A stream that got no number has none: neither this request nor a later one is recorded as the default
 * stream's. */
TEST_WITH(test_stream_without_a_number, rig_setup, teardown)
{
    const uint64_t stream = 1000;
    struct rig *rig = *state;
    uint64_t numbered = 1; /* the default stream is */
    rig_open(rig, &(struct rig_options){.limit = 0});
    is_refusing = true;
    while (refusals == 0 && numbered < 1000) {
        uint64_t addr = 0;
        int error = varve_alloc_raw_alloc_with_stream(rig->alloc, 3 * MIB, numbered, &addr, &rig->message);
        is_refusing = refusals == 0;
        assert_int_equal(error, refusals == 0 ? VARVE_OK : VARVE_ERROR_FULL);
        numbered += error == VARVE_OK;
    }
    assert_int_equal(refusals, 1);
    for (unsigned i = 0; i < 3; i++) { /* again and again, of both pools */
        is_refusing = true;
        refused_on(rig, i % 2 ? 512 : 3 * MIB, stream, VARVE_ERROR_FULL);
        is_refusing = false;
    }
    forget(rig);
    take_on(rig, 3 * MIB, stream);
    take_on(rig, 512, stream);
    take_on(rig, 3 * MIB, 0);
    assert_int_equal(varve_record_stream(nth_record(rig, VARVE_KIND_ALLOC, 0)), numbered);
    assert_int_equal(varve_record_stream(nth_record(rig, VARVE_KIND_ALLOC, 1)), numbered);
    assert_int_equal(varve_record_stream(nth_record(rig, VARVE_KIND_ALLOC, 2)), 0);
}
