/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ticks to nanoseconds: after each anchor at the rate of the stretch before it, growing with the ticks also
 * where the rate changes and before the first and after the last anchor, the same whatever anchors follow,
 * the right stretch found among thousands, and on this machine within a microsecond of what the kernel says.
 * Costs: 1 s
 */
#include "trace/collector/collector_clock.h"
#include "support/random.h"
#include "trace/collector/collector.h"
#include "base/error.h"
#include "trace/record.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <time.h>

static void add(struct collect_clock *clock, uint64_t ticks, int64_t mono_ns)
{
    const struct clock_anchor anchor = {.ticks = ticks, .mono_ns = mono_ns, .real_ns = mono_ns + 1};
    assert_int_equal(collect_clock_add(clock, &anchor), VARVE_OK);
}

/* What the header promises, in the plainest form: stretch after stretch from the first, in long double; none
 * begins before the end of the one before it. */
static int64_t naive_ns(const struct collect_clock *clock, uint64_t ticks)
{
    const struct clock_anchor *anchors = clock->anchors;
    long double ns = -HUGE_VALL;
    for (size_t i = 0; i < clock->count && (i == 0 || anchors[i].ticks <= ticks); i++) {
        bool is_last = i + 1 == clock->count || anchors[i + 1].ticks > ticks;
        uint64_t until = is_last ? ticks : anchors[i + 1].ticks;
        size_t end = i == 0 ? 1 : i; /* of the stretch whose rate it is */
        long double rate = 1.0L;
        if (clock->count > 1) {
            rate = (long double)(anchors[end].mono_ns - anchors[end - 1].mono_ns) /
                   (long double)(anchors[end].ticks - anchors[end - 1].ticks);
        }
        long double here = anchors[i].mono_ns + floorl((long double)(int64_t)(until - anchors[i].ticks) * rate);
        ns = here > ns ? here : ns;
    }
    return (int64_t)ns - clock->origin_mono_ns;
}

/* Rounding may differ by one. */
static void check_near(int64_t got, int64_t wanted, const char *what, uint64_t ticks)
{
    if (got < wanted - 1 || got > wanted + 1) {
        fail_msg("%s, ticks %llu: %lld ns, not %lld", what, (unsigned long long)ticks, (long long)got,
                 (long long)wanted);
    }
}

TEST(test_no_anchor_and_one_anchor)
{
    struct collect_clock clock;
    collect_clock_open(&clock, VARVE_CLOCK_MONOTONIC);
    assert_int_equal(collect_clock_ns(&clock, 12345), 12345);
    add(&clock, 1000, 500);
    assert_int_equal(collect_clock_ns(&clock, 1000), 0); /* the first anchor is the origin */
    assert_int_equal(collect_clock_ns(&clock, 1500), 500);
    assert_int_equal(collect_clock_ns(&clock, 400), -600);
    collect_clock_close(&clock);
}

TEST(test_times_count_from_an_anchor)
{
    struct collect_clock clock;
    collect_clock_open(&clock, VARVE_CLOCK_TSC);
    add(&clock, 1000, 500);
    add(&clock, 2000, 2500);
    assert_int_equal(collect_clock_ns(&clock, 2500), 3000);
    collect_clock_begin(&clock, 2500);
    assert_int_equal(collect_clock_ns(&clock, 2000), 0);
    assert_int_equal(collect_clock_ns(&clock, 2500), 1000);
    assert_int_equal(collect_clock_ns(&clock, 1000), -2000);
    collect_clock_begin(&clock, 2400); /* damage: no anchor has this time */
    add(&clock, 3000, 4500);
    assert_int_equal(collect_clock_ns(&clock, 3000), 2000);
    collect_clock_close(&clock);
}

TEST(test_a_stretch_goes_on_at_the_rate_before_it)
{
    static const int64_t expected[][2] = {
        {600, -200},                                                          /* the first rate is carried back */
        {1000, 0},    {2000, 500},  {3000, 1000}, {3500, 1250}, {4000, 2000}, /* the clock was behind: it jumps */
        {4400, 2400}, {4500, 2500},                                           /* it was ahead: it waits */
        {5900, 2500}, {6500, 2625},
    };
    struct collect_clock clock;
    collect_clock_open(&clock, VARVE_CLOCK_TSC);
    add(&clock, 1000, 7000);
    add(&clock, 3000, 8000); /* 0.5 ns a tick: holds before and after */
    add(&clock, 4000, 9000); /* 1 */
    add(&clock, 4500, 9125); /* 0.25; by the rate before it is 9500 by then */
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        assert_int_equal(collect_clock_ns(&clock, (uint64_t)expected[i][0]), expected[i][1]);
    }
    assert_int_equal(collect_clock_ticks_of(&clock, 100), 200);
    collect_clock_close(&clock);
}

TEST(test_the_same_moment_twice_is_one_anchor)
{
    struct collect_clock clock;
    collect_clock_open(&clock, VARVE_CLOCK_TSC);
    add(&clock, 1000, 100);
    add(&clock, 2000, 600);
    add(&clock, 2000, 900); /* no time has passed: a rate would be infinite */
    add(&clock, 1500, 900); /* back in time */
    assert_int_equal(clock.count, 2);
    assert_int_equal(collect_clock_ns(&clock, 3000), 1000);
    collect_clock_close(&clock);
}

/* At a moment of these, or next to an anchor. */
static void ask_near(struct collect_clock *clock, uint64_t *random, uint64_t first, uint64_t span)
{
    const struct clock_anchor *anchor = &clock->anchors[random_below(random, clock->count)];
    const uint64_t ticks =
        random_below(random, 4) == 0 ? anchor->ticks + random_below(random, 3) - 1 : first + random_below(random, span);
    check_near(collect_clock_ns(clock, ticks), naive_ns(clock, ticks), "at random", ticks);
}

/* Anchors as a machine makes them, 5 per second at about 2.6 GHz, each up to 100 ns off; and asked between two of them:
 * the hint of the search must not be believed blindly, and what was asked before the next anchor is as it was. */
TEST(test_against_linear_search)
{
    uint64_t random = 3, ticks = UINT64_C(5000000000000);
    int64_t mono_ns = INT64_C(77000000000);
    struct collect_clock clock;
    collect_clock_open(&clock, VARVE_CLOCK_TSC);
    for (int i = 0; i < 1500; i++, ticks += 520000000, mono_ns += 200000000) {
        const uint64_t late = ticks - 1;
        const int64_t before = collect_clock_ns(&clock, late);
        add(&clock, ticks, mono_ns + (int64_t)random_below(&random, 200) - 100);
        assert_true(i < 2 || collect_clock_ns(&clock, late) == before);
        for (int ask = 0; ask < 3; ask++) {
            ask_near(&clock, &random, clock.anchors[0].ticks - 1000000000, ticks - clock.anchors[0].ticks + 2000000000);
        }
    }
    int64_t before = INT64_MIN;
    for (uint64_t at = clock.anchors[0].ticks - 1000000000; at < ticks; at += 1 + random_below(&random, 40000000)) {
        int64_t now = collect_clock_ns(&clock, at);
        assert_true(now >= before); /* it grows with the ticks */
        before = now;
    }
    for (size_t i = 1; i < clock.count; i++) { /* and step by step across each anchor */
        before = INT64_MIN;
        for (uint64_t at = clock.anchors[i].ticks - 5; at < clock.anchors[i].ticks + 5; at++) {
            assert_true(collect_clock_ns(&clock, at) >= before);
            before = collect_clock_ns(&clock, at);
        }
    }
    collect_clock_close(&clock);
}

/* Years of uptime: the sums must not lose the last digits. */
TEST(test_large_values_stay_exact)
{
    struct collect_clock clock;
    uint64_t ticks = UINT64_C(1) << 62;
    int64_t mono_ns = INT64_C(1) << 60;
    collect_clock_open(&clock, VARVE_CLOCK_TSC);
    add(&clock, ticks, mono_ns);
    add(&clock, ticks + 3000000000U, mono_ns + 1000000000);
    assert_int_equal(collect_clock_ns(&clock, ticks + 3), 1);
    assert_int_equal(collect_clock_ns(&clock, ticks + 2999999997U), 999999999);
    check_near(collect_clock_ns(&clock, ticks + UINT64_C(3000000000) * 3600), INT64_C(3600000000000), "an hour on",
               ticks);
    collect_clock_close(&clock);
}

static int64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void nap(long ns)
{
    struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

/* The narrowest of a few readings: this thread may lose its CPU between two of them. */
static int64_t error_now(struct collect_clock *clock)
{
    int64_t best_error = 0;
    uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        uint64_t before = collect_clock_now(clock);
        int64_t mono_ns = monotonic_ns();
        uint64_t after = collect_clock_now(clock);
        if (after - before < best_width) {
            best_width = after - before;
            best_error = collect_clock_ns(clock, before + best_width / 2) + clock->origin_mono_ns - mono_ns;
        }
    }
    return best_error;
}

/* Anchors as the collector takes them; in between, and a stretch beyond the last one, within 1 us. */
static void check_on_this_machine(enum varve_clock_kind kind)
{
    struct collect_clock clock;
    int64_t worst = 0;
    collect_clock_open(&clock, kind);
    assert_int_equal(collect_clock_anchor(&clock), VARVE_OK);
    for (int anchor = 0; anchor < 5; anchor++) {
        nap(40000000);
        assert_int_equal(collect_clock_anchor(&clock), VARVE_OK);
        for (int i = 0; i < 4; i++) {
            int64_t error = error_now(&clock);
            worst = llabs(error) > llabs(worst) ? error : worst;
            nap(10000000);
        }
    }
    assert_true(clock.count == 6);
    collect_clock_close(&clock);
    if (worst < -1000 || worst > 1000) {
        fail_msg("clock kind %d is %lld ns off CLOCK_MONOTONIC", (int)kind, (long long)worst);
    }
}

TEST(test_error_on_this_machine)
{
    check_on_this_machine(VARVE_CLOCK_MONOTONIC);
    if (collect_clock_choose() == VARVE_CLOCK_TSC) {
        check_on_this_machine(VARVE_CLOCK_TSC);
    }
}

/* Wall-clock time is stored beside: it must be that of the same moment. */
TEST(test_anchor_names_one_moment)
{
    struct collect_clock clock;
    collect_clock_open(&clock, collect_clock_choose());
    assert_int_equal(collect_clock_anchor(&clock), VARVE_OK);
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    int64_t offset = (int64_t)real.tv_sec * 1000000000 + real.tv_nsec - monotonic_ns();
    assert_true(llabs(clock.anchors[0].real_ns - clock.anchors[0].mono_ns - offset) < 50000000);
    collect_clock_close(&clock);
}
