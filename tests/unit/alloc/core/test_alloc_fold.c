/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folded records are the same events: two allocators do the same, one records event by event and one folds; unfolded, the
 * latter's records are the former's, field by field. Sizes that no folded record can hold go out one by one.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "alloc/alloc.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

#define STEPS 20000U
#define LIVE 200U
#define EVENTS_MAX (8U * STEPS)
#define MIB (UINT64_C(1) << 20)

struct side {
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct varve_record *events;
    size_t count;
    uint64_t records, folded;
    uint64_t live[LIVE];
};

static void take(void *context, const struct varve_record *record)
{
    struct side *side = context;
    struct varve_record parts[VARVE_FOLD_EVENTS_MAX];
    unsigned count = varve_record_unfold(record, parts);

    side->records++;
    side->folded += varve_record_is_folded(record);
    for (unsigned i = 0; i < count && side->count < EVENTS_MAX; i++) {
        side->events[side->count++] = parts[i];
    }
}

static void side_open(struct side *side, const char *config, bool folds)
{
    struct varve_sim_options sim = {.index = 3};
    struct varve_alloc_options options;
    struct varve_message message = {""};

    memset(side, 0, sizeof(*side));
    side->events = calloc(EVENTS_MAX, sizeof(*side->events));
    assert_non_null(side->events);
    side->recorder = (struct varve_alloc_recorder){.record = take, .context = side, .folds = folds};
    varve_alloc_options_init(&options);
    assert_int_equal(varve_alloc_config_parse(config, &options.config, &message), VARVE_OK);
    assert_int_equal(varve_sim_open(&sim, &side->device, &message), VARVE_OK);
    options.device = side->device;
    options.recorder = &side->recorder;
    assert_int_equal(varve_alloc_open(&options, &side->alloc, &message), VARVE_OK);
}

static void side_close(struct side *side)
{
    struct varve_message message = {""};

    assert_int_equal(varve_alloc_check(side->alloc, &message), VARVE_OK);
    varve_alloc_close(side->alloc);
    side->device->ops->close(side->device);
    free(side->events);
}

/* Replace a block: sizes of all bins, two streams, now and then one that another stream uses too. */
static void step(struct side *side, uint64_t *random)
{
    uint64_t *slot = &side->live[random_below(random, LIVE)];
    uint64_t bytes = 1 + random_below(random, random_below(random, 4) == 0 ? 24 * MIB : 4096);
    uint64_t stream = random_below(random, 10) == 0 ? 5 : 0;
    bool is_shared = random_below(random, 20) == 0;

    if (*slot != 0) {
        varve_alloc_raw_delete(side->alloc, *slot, NULL);
        *slot = 0;
    }
    if (varve_alloc_raw_alloc_with_stream(side->alloc, bytes, stream, slot, NULL) == VARVE_OK && is_shared) {
        varve_alloc_record_stream(side->alloc, *slot, 9, NULL);
    }
    if (random_below(random, 2000) == 0) {
        varve_alloc_empty_cache(side->alloc);
    }
}

static void compare(const char *config)
{
    struct side plain, folding;
    uint64_t random = 1, again = 1;

    varve_emit_may_fold = 1;
    side_open(&plain, config, false);
    side_open(&folding, config, true);
    for (unsigned i = 0; i < STEPS; i++) {
        step(&plain, &random);
        step(&folding, &again);
    }
    assert_int_equal(plain.folded, 0);
    assert_int_equal(plain.records, plain.count);
    assert_true(folding.folded > STEPS / 2 && folding.records < plain.records);
    assert_true(plain.count < EVENTS_MAX);
    assert_int_equal(plain.count, folding.count);
    for (size_t i = 0; i < plain.count; i++) {
        if (memcmp(&plain.events[i], &folding.events[i], sizeof(plain.events[i])) != 0) {
            fail_msg("%s: event %zu, kind %u and %u", config, i, varve_record_kind(&plain.events[i]),
                     varve_record_kind(&folding.events[i]));
        }
    }
    side_close(&plain);
    side_close(&folding);
}

static void test_same_events(void **state)
{
    (void)state;
    compare("");
    compare("expandable_segments:True");
    compare("max_split_size_mb:32");
    compare("roundup_power2_divisions:4");
}

/* Nobody records, or a second sink wants each event. */
static void test_not_folded(void **state)
{
    struct side side;
    uint64_t random = 3;

    (void)state;
    varve_emit_may_fold = 0;
    side_open(&side, "", true);
    for (unsigned i = 0; i < 500; i++) {
        step(&side, &random);
    }
    assert_int_equal(side.folded, 0);
    assert_int_equal(side.records, side.count);
    side_close(&side);
}

static void test_what_fits(void **state)
{
    (void)state;
    assert_true(varve_fold_fits(0));
    assert_true(varve_fold_fits(512));
    assert_true(varve_fold_fits(UINT64_C(0xffffffff) * 512));
    assert_false(varve_fold_fits(UINT64_C(0x100000000) * 512));
    assert_false(varve_fold_fits(513));
    assert_false(varve_fold_fits(UINT64_MAX));
}

/* Of other kinds the flag means something else. */
static void test_stray_flag(void **state)
{
    const struct varve_record record = {
        .addr = 1,
        .arg = UINT64_MAX,
        .callsite = 7,
        .dev_seq_kind_flags =
            varve_record_tag(4, VARVE_KIND_HEAP_ALLOC, VARVE_FLAG_FOLDED | VARVE_FLAG_FAILED),
    };
    struct varve_record parts[VARVE_FOLD_EVENTS_MAX];

    (void)state;
    assert_false(varve_record_is_folded(&record));
    assert_int_equal(varve_record_unfold(&record, parts), 1);
    assert_memory_equal(&parts[0], &record, sizeof(record));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_events),
        cmocka_unit_test(test_not_folded),
        cmocka_unit_test(test_what_fits),
        cmocka_unit_test(test_stray_flag),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
