/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of rings and processes that were taken, but whose file is not there yet: their owner may be about
 * to bring an event older than all others, may be stopped, or dead. The merge waits a second at most, once
 * for all that is missing; what comes later is stored all the same.
 * Costs: 2 s
 */
#include "support/collector.h"
#include "trace/collector/clock.h"
#include "trace/collector/collector.h"
#include "trace/format/ring.h"
#include "trace/record.h"

#define HANGS_NS UINT64_C(60000000000)

/* Time until the one event that is there moves. */
static uint64_t time_until_moved(struct lab *lab)
{
    uint64_t begin = collect_monotonic_ns();
    while (lab_rounds(lab, 1000000) == 0) {
        if (collect_monotonic_ns() - begin > HANGS_NS) {
            fail_msg("an event is held back for ever");
        }
    }
    return collect_monotonic_ns() - begin;
}

/* It may be about to bring an event that is older than all that is seen; but its owner may be dead. */
static void check_missing(struct lab *lab, struct ring_header *ring, const uint32_t *given_up, uint32_t missing)
{
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, collect_monotonic_ns(), 0, 1);
    uint64_t took_ns = time_until_moved(lab);
    if (took_ns < UINT64_C(500000000)) {
        fail_msg("waited only %llu ms for %u that are missing", (unsigned long long)(took_ns / 1000000), missing);
    }
    lab_round(lab);
    assert_int_equal(*given_up, missing); /* all at once, and so not waited for again */
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, collect_monotonic_ns(), 0, 2);
    time_until_moved(lab);
    assert_int_equal(*given_up, missing);
    lab_drain(lab);
    lab_expect(lab, "SELECT count(*) FROM event", 2);
    lab_end(lab);
}

TEST(test_missing_rings_hold_back_for_a_second)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    lab->controls[0]->ring_count = 40; /* 1 … 38 were never made: a second for all of them together */
    struct ring_header *ring = hand_ring_file(lab, 1, 39, 64);
    lab_rounds(lab, 2000000);
    check_missing(lab, ring, &lab->collector->processes[0]->rings_missing, 38);
}

TEST(test_missing_processes_hold_back_for_a_second)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 64);
    lab_rounds(lab, 2000000);
    lab->collector->directory.counts->process_count = 8; /* 2 … 8 are missing */
    check_missing(lab, ring, &lab->collector->processes_missing, 7);
}

/* It came after all, before the second was over: nothing was merged past it. */
TEST(test_ring_that_comes_late_is_in_order)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 64);
    lab_rounds(lab, 2000000);
    lab->controls[0]->ring_count++; /* the number is taken … */
    uint64_t taken_ticks = collect_monotonic_ns();
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, taken_ticks + 2000, 0, 2);
    assert_int_equal(lab_rounds(lab, 100000000), 0);
    struct ring_header *late = hand_ring_file(lab, 1, 2, 64); /* … and here is its ring */
    hand_emit(late, VARVE_KIND_MARK_BEGIN, taken_ticks + 1000, 0, 1);
    assert_int_equal(lab_rounds(lab, 20000000), 2);
    lab_drain(lab);
    lab_expect(lab, "SELECT group_concat(arg, '') FROM (SELECT arg FROM event ORDER BY seq)", 12);
    lab_end(lab);
}

/* A thread that was stopped for longer, between taking its number and making its ring: late, not lost. */
TEST(test_ring_that_comes_very_late_is_stored)
{
    struct lab *lab = lab_begin();
    hand_process(lab, lab_living(lab));
    struct ring_header *ring = hand_ring(lab, 1, 64);
    lab->controls[0]->ring_count++;
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, collect_monotonic_ns(), 0, 1);
    time_until_moved(lab);
    struct ring_header *late = hand_ring_file(lab, 1, 2, 64);
    hand_emit(late, VARVE_KIND_MARK_BEGIN, collect_monotonic_ns(), 0, 2);
    lab_rounds(lab, 20000000);
    lab_drain(lab);
    lab_expect(lab, "SELECT count(*) FROM event", 2);
    lab_end(lab);
}

/* A process that was stopped between taking a process' number and making its page; the newer image of its pid
 * is known by then. */
static void check_late_process(bool is_last_look, bool is_replaced, bool is_first_over)
{
    struct lab *lab = lab_begin();
    pid_t child = lab_living(lab), first = lab_living(lab);
    hand_process(lab, first);
    struct ring_header *ring = hand_ring(lab, 1, 64);
    lab->collector->directory.counts->process_count = 2;
    if (is_replaced) {
        hand_process(lab, child)->start_ticks_proc = 7;
    }
    hand_emit(ring, VARVE_KIND_MARK_BEGIN, collect_monotonic_ns(), 0, 1);
    time_until_moved(lab);
    lab_round(lab);
    assert_int_equal(lab->collector->processes_missing, 1);
    if (is_first_over) { /* no process is left open before the one that comes */
        lab_kill(lab, first);
        lab_rounds(lab, 10000000);
        lab_drain(lab);
        assert_int_equal(lab->collector->first_open, lab->collector->process_count);
    }
    hand_control(lab, 2, child)->start_ticks_proc = 7;
    struct ring_header *late = hand_ring(lab, 2, 64);
    hand_emit(late, VARVE_KIND_MARK_BEGIN, collect_monotonic_ns(), 0, 2);
    if (!is_last_look) {
        time_until_moved(lab); /* looked for every second */
        assert_int_equal(lab->collector->processes_missing, 0);
    }
    lab_drain(lab);
    LAB_OK(lab, collector_finish(lab->collector, NULL, NULL, &lab->message));
    lab_expect(lab, "SELECT sum(arg) FROM event", 3);
    lab_expect(lab, "SELECT count(*) FROM process", is_replaced ? 3 : 2);
    lab_expect(lab, "SELECT count(*) FROM process WHERE end_cause = 'exec'", is_replaced);
    lab_end(lab);
}

TEST(test_process_that_comes_very_late_is_stored)
{
    check_late_process(false, false, false);
    check_late_process(true, false, false);
    check_late_process(false, true, false);
    check_late_process(false, false, true);
}
