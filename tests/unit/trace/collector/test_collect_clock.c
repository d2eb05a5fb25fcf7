/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ticks to nanoseconds: after each anchor at the rate of the stretch before it, growing with the ticks also
 * where the rate changes and before the first and after the last anchor, the same whatever anchors follow,
 * the right stretch found among thousands, and on this machine within a microsecond of what the kernel says.
 * Costs: 1 s
 */
#include "trace/collector/clock.h"
#include "support/random.h"
#include "trace/collector/collector.h"
#include "trace/error.h"
#include "trace/record.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <time.h>

static uint64_t random_state;

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

/* Anchors as a machine makes them: 5 per second at about 2.6 GHz, each up to 100 ns off. */
static void add_jittery_anchors(struct collect_clock *clock, size_t count)
{
    uint64_t ticks = UINT64_C(5000000000000);
    int64_t mono_ns = INT64_C(77000000000);
    for (size_t i = 0; i < count; i++) {
        add(clock, ticks, mono_ns + (int64_t)(random_next(&random_state) % 200) - 100);
        ticks += 520000000;
        mono_ns += 200000000;
    }
}

TEST(test_no_anchor_and_one_anchor)
{
    struct collect_clock clock;
    assert_int_equal(collect_clock_open(&clock, VARVE_CLOCK_MONOTONIC), VARVE_OK);
    assert_int_equal(collect_clock_ns(&clock, 12345), 12345);
    add(&clock, 1000, 500);
    assert_int_equal(collect_clock_ns(&clock, 1000), 0); /* the first anchor is the origin */
    assert_int_equal(collect_clock_ns(&clock, 1500), 500);
    assert_int_equal(collect_clock_ns(&clock, 400), -600);
    collect_clock_close(&clock);
}

TEST(test_a_stretch_goes_on_at_the_rate_before_it)
{
    struct collect_clock clock;
    assert_int_equal(collect_clock_open(&clock, VARVE_CLOCK_TSC), VARVE_OK);
    add(&clock, 1000, 7000);
    add(&clock, 3000, 8000);                               /* 0.5 ns a tick: holds before and after */
    add(&clock, 4000, 9000);                               /* 1 */
    add(&clock, 4500, 9125);                               /* 0.25; by the rate before it is 9500 by then */
    assert_int_equal(collect_clock_ns(&clock, 600), -200); /* the first rate is carried back */
    assert_int_equal(collect_clock_ns(&clock, 1000), 0);
    assert_int_equal(collect_clock_ns(&clock, 2000), 500);
    assert_int_equal(collect_clock_ns(&clock, 3000), 1000);
    assert_int_equal(collect_clock_ns(&clock, 3500), 1250);
    assert_int_equal(collect_clock_ns(&clock, 4000), 2000); /* the clock was behind: it jumps */
    assert_int_equal(collect_clock_ns(&clock, 4400), 2400);
    assert_int_equal(collect_clock_ns(&clock, 4500), 2500); /* it was ahead: it waits */
    assert_int_equal(collect_clock_ns(&clock, 5900), 2500);
    assert_int_equal(collect_clock_ns(&clock, 6500), 2625);
    assert_int_equal(collect_clock_ticks_of(&clock, 100), 200);
    collect_clock_close(&clock);
}

TEST(test_the_same_moment_twice_is_one_anchor)
{
    struct collect_clock clock;
    assert_int_equal(collect_clock_open(&clock, VARVE_CLOCK_TSC), VARVE_OK);
    add(&clock, 1000, 100);
    add(&clock, 2000, 600);
    add(&clock, 2000, 900); /* no time has passed: a rate would be infinite */
    add(&clock, 1500, 900); /* back in time */
    assert_int_equal(clock.count, 2);
    assert_int_equal(collect_clock_ns(&clock, 3000), 1000);
    collect_clock_close(&clock);
}

TEST(test_against_linear_search)
{
    random_state = 3;
    struct collect_clock clock;
    assert_int_equal(collect_clock_open(&clock, VARVE_CLOCK_TSC), VARVE_OK);
    add_jittery_anchors(&clock, 1500);
    uint64_t first = clock.anchors[0].ticks;
    uint64_t span = clock.anchors[clock.count - 1].ticks - first;
    for (int i = 0; i < 3000; i++) {
        uint64_t ticks = first - span / 50 + random_next(&random_state) % (span + span / 25);
        if (i % 4 == 0) { /* at an anchor, or next to it */
            ticks = clock.anchors[random_next(&random_state) % clock.count].ticks + random_next(&random_state) % 3 - 1;
        }
        check_near(collect_clock_ns(&clock, ticks), naive_ns(&clock, ticks), "random order", ticks);
    }
    collect_clock_close(&clock);
}

TEST(test_grows_with_ticks)
{
    int64_t before = INT64_MIN;
    random_state = 5;
    struct collect_clock clock;
    assert_int_equal(collect_clock_open(&clock, VARVE_CLOCK_TSC), VARVE_OK);
    add_jittery_anchors(&clock, 300);
    uint64_t ticks = clock.anchors[0].ticks - 1000000000;
    while (ticks < clock.anchors[clock.count - 1].ticks + 1000000000) {
        int64_t now = collect_clock_ns(&clock, ticks);
        if (now < before) {
            fail_msg("ticks %llu: time goes back by %lld ns", (unsigned long long)ticks, (long long)(before - now));
        }
        before = now;
        ticks += 1 + random_next(&random_state) % 4000000;
    }
    for (size_t i = 1; i < clock.count; i++) { /* and step by step across each anchor */
        before = INT64_MIN;
        for (ticks = clock.anchors[i].ticks - 5; ticks < clock.anchors[i].ticks + 5; ticks++) {
            assert_true(collect_clock_ns(&clock, ticks) >= before);
            before = collect_clock_ns(&clock, ticks);
        }
    }
    collect_clock_close(&clock);
}

/* The hint of the search belongs to a clock that has grown since: it must not be believed blindly. */
TEST(test_new_anchor_between_questions)
{
    random_state = 9;
    struct collect_clock clock;
    assert_int_equal(collect_clock_open(&clock, VARVE_CLOCK_TSC), VARVE_OK);
    for (int i = 0; i < 2000; i++) {
        uint64_t ticks = 1000 * ((uint64_t)i + 1);
        add(&clock, ticks, (int64_t)(ticks / 2 + random_next(&random_state) % 20));
        for (int ask = 0; ask < 3; ask++) {
            uint64_t when = 1000 + random_next(&random_state) % (ticks + 500);
            check_near(collect_clock_ns(&clock, when), naive_ns(&clock, when), "while growing", when);
        }
        if (i >= 2 && i % 50 == 0) { /* what was asked before the next anchor is as it was */
            uint64_t when = ticks + 999;
            int64_t before = collect_clock_ns(&clock, when);
            add(&clock, ticks + 1000, (int64_t)(ticks / 2 + 530 + random_next(&random_state) % 20));
            i++;
            assert_int_equal(collect_clock_ns(&clock, when), before);
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
    assert_int_equal(collect_clock_open(&clock, VARVE_CLOCK_TSC), VARVE_OK);
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
    assert_int_equal(collect_clock_open(&clock, kind), VARVE_OK);
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
    assert_int_equal(collect_clock_open(&clock, collect_clock_choose()), VARVE_OK);
    assert_int_equal(collect_clock_anchor(&clock), VARVE_OK);
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    int64_t offset = (int64_t)real.tv_sec * 1000000000 + real.tv_nsec - monotonic_ns();
    assert_true(llabs(clock.anchors[0].real_ns - clock.anchors[0].mono_ns - offset) < 50000000);
    collect_clock_close(&clock);
}
