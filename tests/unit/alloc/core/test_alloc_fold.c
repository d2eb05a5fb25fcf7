/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folded records are the same events: two allocators do the same, one records event by event and one folds; unfolded,
 * the latter's records are the former's, field by field. Sizes that no folded record can hold go out one by one.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "alloc/alloc.h"
#include "support/alloc/kept.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

#define STEPS 20000U
#define LIVE 200U
#define EVENTS_MAX (8U * STEPS)
#define MIB (UINT64_C(1) << 20)

struct side {
    struct kept kept;
    uint64_t live[LIVE];
};

static void side_open(struct side *side, const char *config, bool folds)
{
    memset(side, 0, sizeof(*side));
    struct varve_alloc_options options;
    varve_alloc_options_init(&options);
    assert_int_equal(varve_alloc_config_parse(config, &options.config, NULL), VARVE_OK);
    options.recorder = &side->kept.recorder;
    kept_open(&side->kept, &options, EVENTS_MAX, folds);
}

/* Replace a block: sizes of all bins, two streams, now and then one that another stream uses too. */
static void step(struct side *side, uint64_t *random)
{
    uint64_t *slot = &side->live[random_below(random, LIVE)];
    uint64_t bytes = 1 + random_below(random, random_below(random, 4) == 0 ? 24 * MIB : 4096);
    uint64_t stream = random_below(random, 10) == 0 ? 5 : 0;
    bool is_shared = random_below(random, 20) == 0;
    if (*slot != 0) {
        varve_alloc_raw_delete(side->kept.alloc, *slot, NULL);
        *slot = 0;
    }
    if (varve_alloc_raw_alloc_with_stream(side->kept.alloc, bytes, stream, slot, NULL) == VARVE_OK && is_shared) {
        varve_alloc_record_stream(side->kept.alloc, *slot, 9, NULL);
    }
    if (random_below(random, 2000) == 0) {
        varve_alloc_empty_cache(side->kept.alloc);
    }
}

static void compare(const char *config)
{
    uint64_t random = 1, again = 1;
    varve_emit_may_fold = 1;
    struct side plain, folding;
    side_open(&plain, config, false);
    side_open(&folding, config, true);
    for (unsigned i = 0; i < STEPS; i++) {
        step(&plain, &random);
        step(&folding, &again);
    }
    assert_int_equal(plain.kept.folded, 0);
    assert_int_equal(plain.kept.records, plain.kept.count);
    assert_true(folding.kept.folded > STEPS / 2 && folding.kept.records < plain.kept.records);
    assert_true(plain.kept.count < EVENTS_MAX);
    assert_int_equal(plain.kept.count, folding.kept.count);
    for (size_t i = 0; i < plain.kept.count; i++) {
        if (memcmp(&plain.kept.events[i], &folding.kept.events[i], sizeof(plain.kept.events[i])) != 0) {
            fail_msg("%s: event %zu, kind %u and %u", config, i, varve_record_kind(&plain.kept.events[i]),
                     varve_record_kind(&folding.kept.events[i]));
        }
    }
    kept_close(&plain.kept);
    kept_close(&folding.kept);
}

TEST(test_same_events)
{
    compare("");
    compare("expandable_segments:True");
    compare("max_split_size_mb:32");
    compare("roundup_power2_divisions:4");
}

/* Nobody records, or a second sink wants each event. */
TEST(test_not_folded)
{
    uint64_t random = 3;
    varve_emit_may_fold = 0;
    struct side side;
    side_open(&side, "", true);
    for (unsigned i = 0; i < 500; i++) {
        step(&side, &random);
    }
    assert_int_equal(side.kept.folded, 0);
    assert_int_equal(side.kept.records, side.kept.count);
    kept_close(&side.kept);
}

TEST(test_what_fits)
{
    assert_true(varve_fold_fits(0));
    assert_true(varve_fold_fits(512));
    assert_true(varve_fold_fits(UINT64_C(0xffffffff) * 512));
    assert_false(varve_fold_fits(UINT64_C(0x100000000) * 512));
    assert_false(varve_fold_fits(513));
    assert_false(varve_fold_fits(UINT64_MAX));
}

/* Of other kinds the flag means something else. */
TEST(test_stray_flag)
{
    const struct varve_record record = {
        .addr = 1,
        .arg = UINT64_MAX,
        .callsite = 7,
        .dev_seq_kind_flags = varve_record_tag(4, VARVE_KIND_HEAP_ALLOC, VARVE_FLAG_FOLDED | VARVE_FLAG_FAILED),
    };
    assert_false(varve_record_is_folded(&record));
    struct varve_record parts[VARVE_FOLD_EVENTS_MAX];
    assert_int_equal(varve_record_unfold(&record, parts), 1);
    assert_memory_equal(&parts[0], &record, sizeof(record));
}
