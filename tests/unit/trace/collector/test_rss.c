/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace/collector/rss.c: whose memory is sampled, how many rows that makes, and what waitpid adds to it. Processes
 * are made by hand; the resident memory is that of a child that sleeps.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/collector.h"
#include "base/proc_file.h"
#include "trace/collector/collector.h"

/* A process that is what its page says it is. */
static pid_t hand_true_process(struct lab *lab)
{
    pid_t pid = lab_living(lab);
    hand_process(lab, pid)->start_ticks_proc = proc_file_started(pid);
    return pid;
}

static void sample_often(struct lab *lab, unsigned samples)
{
    uint64_t moved;
    for (unsigned i = 0; i < samples; i++) {
        lab->collector->rss.next_ns = 0;
        LAB_OK(lab, collector_round(lab->collector, false, &moved, &lab->message));
    }
}

TEST(test_samples_of_two)
{
    struct lab *lab = lab_begin();
    hand_true_process(lab);
    hand_true_process(lab);
    sample_often(lab, 50);
    lab_kill(lab, lab->holders[1]);
    collect_processes_check(lab->collector);
    sample_often(lab, 5);
    lab_kill(lab, lab->holders[0]);
    lab_finish(lab);
    lab_expect(lab, "SELECT count(*) FROM process WHERE peak_rss_bytes > 100000", 2);
    lab_expect(lab,
               "SELECT count(*) FROM process p WHERE peak_rss_bytes >= (SELECT max(rss_bytes_max) FROM rss r WHERE "
               "r.process_id = p.id)",
               2);
    /* the first round finds them, and takes a sample of each by itself */
    lab_expect(lab, "SELECT count(*) FROM rss_total", 54);
    lab_rows(lab, "SELECT process_id, count(*) FROM rss GROUP BY 1", "1 55\n2 50\n");
    lab_expect(lab,
               "SELECT count(*) FROM rss_total t WHERE rss_bytes <> (SELECT sum(rss_bytes) FROM rss r WHERE r.ts_ns "
               "= t.ts_ns)",
               0);
    lab_expect(lab, "SELECT rss_bytes = (SELECT max(rss_bytes) FROM rss_total) FROM rss_peak", 1);
    lab_end(lab);
}

/* The pid is another process' by now. */
TEST(test_pid_given_out_anew)
{
    struct lab *lab = lab_begin();
    pid_t pid = lab_living(lab);
    hand_process(lab, pid)->start_ticks_proc = proc_file_started(pid) + 1;
    sample_often(lab, 5);
    lab_kill(lab, pid);
    lab_finish(lab);
    lab_expect(lab, "SELECT count(*) FROM process WHERE peak_rss_bytes IS NULL", 1);
    lab_expect(lab, "SELECT count(*) FROM rss_sample", 0);
    lab_expect(lab, "SELECT count(*) FROM rss_peak WHERE rss_bytes IS NULL", 1);
    lab_end(lab);
}

TEST(test_rows_are_bounded)
{
    struct lab *lab = lab_begin();
    pid_t pid = hand_true_process(lab);
    sample_often(lab, 3000);
    lab_kill(lab, pid);
    lab_finish(lab);
    lab_expect(lab, "SELECT count(*) BETWEEN 512 AND 1024 FROM rss", 1);
    lab_expect(lab, "SELECT count(*) FROM rss_total", 2999);
    lab_expect(lab, "SELECT (SELECT max(rss_bytes_max) FROM rss) >= max(rss_bytes_max) FROM rss_total", 1);
    lab_end(lab);
}

/* `peak_bytes` of waitpid; the collector had `own_bytes` when it started the program. */
static int64_t peak_by_waitpid(uint64_t peak_bytes, uint64_t own_bytes)
{
    struct lab *lab = lab_begin();
    pid_t pid = hand_true_process(lab);
    lab->controls[0]->parent_pid = (int32_t)getpid();
    lab->collector->rss.own_bytes = own_bytes;
    sample_often(lab, 3);
    collect_process_reaped(lab->collector, pid, lab_kill(lab, pid), peak_bytes);
    lab_finish(lab);
    int64_t peak = lab_integer(lab, "SELECT peak_rss_bytes FROM process");
    lab_end(lab);
    return peak;
}

TEST(test_waitpid_knows_more)
{
    const int64_t huge = INT64_C(1) << 40;
    assert_int_equal(peak_by_waitpid((uint64_t)huge, 1), huge);
    assert_true(peak_by_waitpid((uint64_t)huge, (uint64_t)huge) < huge); /* it may have been the collector's */
    assert_true(peak_by_waitpid(1, 0) > 1);
}
