/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ticks of the workload's clock to nanoseconds. With the invariant TSC, anchors (a TSC value and the
 * CLOCK_MONOTONIC time at that moment) are taken a few times per second; between two anchors time is linear,
 * after the last one the rate of the newest stretch is carried on. All anchors are kept (24 bytes, five per
 * second) and stored, so that a recovered recording has the same times.
 */
#include "trace/collector_internal.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define ANCHOR_TRIES 32
#define FIRST_STRETCH_NS 2000000 /* between the two anchors that give the first rate */

static int64_t read_clock(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t collect_monotonic_ns(void)
{
    return (uint64_t)read_clock(CLOCK_MONOTONIC);
}

#if defined(__x86_64__)
static bool tsc_is_invariant(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(0x80000007U, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
}

/* The kernel has compared the TSCs of all CPUs; it says what it thinks of them by using them or not. */
enum varve_clock_kind collect_clock_choose(void)
{
    char text[32] = "";
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;

    if (fd >= 0) {
        got = read(fd, text, sizeof(text) - 1);
        close(fd);
    }
    return got >= 3 && strncmp(text, "tsc", 3) == 0 && tsc_is_invariant() ? VARVE_CLOCK_TSC
                                                                          : VARVE_CLOCK_MONOTONIC;
}

static uint64_t read_tsc(void)
{
    return __builtin_ia32_rdtsc();
}
#else
enum varve_clock_kind collect_clock_choose(void)
{
    return VARVE_CLOCK_MONOTONIC;
}

static uint64_t read_tsc(void)
{
    return (uint64_t)read_clock(CLOCK_MONOTONIC);
}
#endif

uint64_t collect_clock_now(const struct collect_clock *clock)
{
    return clock->kind == VARVE_CLOCK_TSC ? read_tsc() : (uint64_t)read_clock(CLOCK_MONOTONIC);
}

int collect_clock_add(struct collect_clock *clock, const struct clock_anchor *anchor)
{
    struct clock_anchor *grown;

    if (clock->count > 0 && anchor->ticks <= clock->anchors[clock->count - 1].ticks) {
        return VARVE_OK; /* the same moment again */
    }
    if (clock->count == clock->capacity) {
        size_t capacity = clock->capacity == 0 ? 256 : clock->capacity * 2;
        grown = realloc(clock->anchors, capacity * sizeof(*grown));
        if (grown == NULL) {
            return VARVE_ERROR_NO_MEMORY;
        }
        clock->anchors = grown;
        clock->capacity = capacity;
    }
    clock->anchors[clock->count++] = *anchor;
    if (clock->count == 1) {
        clock->origin_mono_ns = anchor->mono_ns;
    } else {
        const struct clock_anchor *before = &clock->anchors[clock->count - 2];
        clock->ns_per_tick =
            (double)(anchor->mono_ns - before->mono_ns) / (double)(anchor->ticks - before->ticks);
    }
    clock->last_used = SIZE_MAX;
    return VARVE_OK;
}

static struct clock_anchor narrowest_anchor(const struct collect_clock *clock)
{
    struct clock_anchor best = {0};
    uint64_t width = UINT64_MAX;

    for (int i = 0; i < ANCHOR_TRIES; i++) {
        uint64_t before = collect_clock_now(clock);
        int64_t mono = read_clock(CLOCK_MONOTONIC);
        uint64_t after = collect_clock_now(clock);
        if (after - before < width) {
            width = after - before;
            best.ticks = before + width / 2;
            best.mono_ns = mono;
            best.real_ns = read_clock(CLOCK_REALTIME) + (mono - read_clock(CLOCK_MONOTONIC));
        }
    }
    if (clock->kind == VARVE_CLOCK_MONOTONIC) {
        best.ticks = (uint64_t)best.mono_ns;
    }
    return best;
}

int collect_clock_anchor(struct collect_clock *clock)
{
    struct clock_anchor anchor = narrowest_anchor(clock);

    return collect_clock_add(clock, &anchor);
}

int collect_clock_open(struct collect_clock *clock, enum varve_clock_kind kind)
{
    memset(clock, 0, sizeof(*clock));
    clock->kind = kind;
    clock->ns_per_tick = 1.0;
    clock->last_used = SIZE_MAX;
    return VARVE_OK;
}

void collect_clock_close(struct collect_clock *clock)
{
    free(clock->anchors);
    clock->anchors = NULL;
    clock->count = clock->capacity = 0;
}

/* Index of the last anchor at or before `ticks` (0 if all are later). */
static size_t find_anchor(const struct collect_clock *clock, uint64_t ticks)
{
    size_t low = 0;
    size_t high = clock->count;

    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        if (clock->anchors[middle].ticks <= ticks) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static void use_segment(struct collect_clock *clock, size_t index)
{
    clock->last_used = index;
    clock->slope = clock->ns_per_tick;
    if (index + 1 < clock->count) {
        const struct clock_anchor *from = &clock->anchors[index];
        clock->slope = (double)(from[1].mono_ns - from[0].mono_ns) / (double)(from[1].ticks - from[0].ticks);
    }
}

int64_t collect_clock_ns(struct collect_clock *clock, uint64_t ticks)
{
    const struct clock_anchor *anchor;
    int64_t delta;

    if (clock->count == 0) {
        return (int64_t)ticks;
    }
    if (clock->last_used >= clock->count || ticks < clock->anchors[clock->last_used].ticks ||
        (clock->last_used + 1 < clock->count && ticks >= clock->anchors[clock->last_used + 1].ticks)) {
        use_segment(clock, find_anchor(clock, ticks));
    }
    anchor = &clock->anchors[clock->last_used];
    delta = (int64_t)(ticks - anchor->ticks);
    return anchor->mono_ns - clock->origin_mono_ns + (int64_t)floor((double)delta * clock->slope);
}

uint64_t collect_clock_ticks_of(const struct collect_clock *clock, int64_t ns)
{
    return (uint64_t)((double)ns / clock->ns_per_tick);
}
