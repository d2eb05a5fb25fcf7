/* SPDX-License-Identifier: Apache-2.0 */
/* C only: for the benchmark programs, each of which is one file */
/* What the benchmark programs share: clocks, medians, pauses, and an end where something is broken. */
#ifndef VARVE_TESTS_BENCH_BENCH_H
#define VARVE_TESTS_BENCH_BENCH_H

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(condition, text)                                                  \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s: %s\n", program_invocation_short_name, (text)); \
            exit(EXIT_FAILURE);                                                 \
        }                                                                       \
    } while (0)

static inline uint64_t bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static inline double bench_now(void)
{
    return (double)bench_now_ns() * 1e-9;
}

/* Sleeps until `*next_ns`, which becomes the end of the next period. */
static inline void bench_pause_until(uint64_t *next_ns, uint64_t period_ns)
{
    struct timespec wake = {(time_t)(*next_ns / 1000000000U), (long)(*next_ns % 1000000000U)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
    *next_ns += period_ns;
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double *bench_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), bench_compare);
    return values;
}

/* Without arguments there is nothing to measure: `./dev bench` starts every program once. */
static inline bool bench_is_started_alone(int argc, const char *script)
{
    if (argc == 1) {
        fprintf(stderr, "%s: is run by %s\n", program_invocation_short_name, script);
    }
    return argc == 1;
}

#endif
