/* SPDX-License-Identifier: Apache-2.0 */
/* C only: for the two programs that bench_ring.py compares */
/*
 * The loop that bench_ring_emit.c and bench_ring_lttng.c run with their own way to emit a record: equal
 * records at equal times, measured in the same way. Everything is inlined into the program, the emitting
 * function too, so that neither side pays for a call that the other does not.
 *
 *   PROGRAM bursts COUNT    COUNT bursts of 10,000 records, one each 10 ms: what the consumer can keep up
 * with PROGRAM flat COUNT      COUNT records without a pause
 *
 * One JSON object on standard output.
 */
#ifndef VARVE_TESTS_BENCH_BENCH_RING_LOOP_H
#define VARVE_TESTS_BENCH_BENCH_RING_LOOP_H

#include "bench/bench.h"
#include "trace/record.h"

#define RING_LOOP_PERIOD_NS 10000000U
/* Records that are not counted: they touch each page of a ring for the first time. */
#define RING_LOOP_WARM_UP 70000U
#define RING_LOOP_BURSTS_MAX 4096U

typedef void (*ring_loop_emit)(const struct varve_record *record);

/* Built anew for each event, as the hooks of a recorder do: allocations and frees in turn, 64 blocks live. */
static inline __attribute__((always_inline)) void ring_loop_records(ring_loop_emit emit, uint64_t *position,
                                                                    uint64_t count)
{
    for (uint64_t i = 0; i < count; i++, (*position)++) {
        struct varve_record record = {0};
        bool is_free = (*position & 1) != 0;
        uint64_t block = *position / 2 - (is_free ? 63 : 0);
        record.addr = UINT64_C(0x7f0000000000) + block % 4096 * 1024;
        record.size = is_free ? 0 : 16 + block * 40503 % 1009;
        record.dev_seq_kind_flags = varve_record_tag(0, is_free ? VARVE_KIND_HEAP_FREE : VARVE_KIND_HEAP_ALLOC, 0);
        record.cause = is_free ? VARVE_CAUSE_FREE : VARVE_CAUSE_MALLOC;
        emit(&record);
    }
}

static inline __attribute__((always_inline)) int ring_loop_bursts(ring_loop_emit emit, uint64_t count, uint64_t records)
{
    static double ns[RING_LOOP_BURSTS_MAX]; /* no allocation while it is recorded */
    uint64_t position = 128;
    uint64_t warm_up = (RING_LOOP_WARM_UP + records - 1) / records;
    uint64_t total = count + warm_up;
    uint64_t next = bench_now_ns();
    uint64_t late = 0;
    for (uint64_t burst = 0; burst < total; burst++) {
        bench_pause_until(&next, RING_LOOP_PERIOD_NS);
        uint64_t begin = bench_now_ns();
        ring_loop_records(emit, &position, records);
        if (burst >= warm_up) {
            ns[burst - warm_up] = (double)(bench_now_ns() - begin) / (double)records;
        }
        late += bench_now_ns() > next;
    }
    bench_sort(ns, count);
    printf("{\"records\": %" PRIu64 ", \"ns\": %.3f, \"ns_min\": %.3f, \"ns_p90\": %.3f, \"ns_p99\": %.3f, "
           "\"late\": %" PRIu64 "}\n",
           total * records, ns[count / 2], ns[0], ns[count * 9 / 10], ns[count * 99 / 100], late);
    return EXIT_SUCCESS;
}

static inline __attribute__((always_inline)) int ring_loop_flat(ring_loop_emit emit, uint64_t count)
{
    uint64_t position = 128;
    ring_loop_records(emit, &position, RING_LOOP_WARM_UP);
    uint64_t begin = bench_now_ns();
    ring_loop_records(emit, &position, count);
    uint64_t end = bench_now_ns();
    printf("{\"records\": %" PRIu64 ", \"ns\": %.3f}\n", count + RING_LOOP_WARM_UP,
           (double)(end - begin) / (double)count);
    return EXIT_SUCCESS;
}

static inline __attribute__((always_inline)) int ring_loop_main(int argc, char **argv, ring_loop_emit emit)
{
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint64_t records = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    if (bench_is_started_alone(argc, "bench_ring.py")) {
        return EXIT_SUCCESS;
    }
    if (count > 0 && count <= RING_LOOP_BURSTS_MAX && records > 0 && strcmp(argv[1], "bursts") == 0) {
        return ring_loop_bursts(emit, count, records);
    }
    if (count > 0 && strcmp(argv[1], "flat") == 0) {
        return ring_loop_flat(emit, count);
    }
    fprintf(stderr, "usage: %s bursts COUNT RECORDS | flat COUNT; at most %u bursts\n", argv[0], RING_LOOP_BURSTS_MAX);
    return 2;
}

#endif
