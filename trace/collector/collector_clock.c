/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ticks of the workload's clock to nanoseconds. With the invariant TSC, anchors (a TSC value and the
 * CLOCK_MONOTONIC time at that moment) are taken a few times per second. After an anchor time goes on from
 * there at the rate of the stretch before it: never by a later anchor, because then the time of an
 * event would depend on when it was looked at, and a recording that is recovered, or rebuilt from another
 * sink, would have other times. With anchors 200 ms apart that is off by some ns at most. All anchors are
 * kept (five per second) and stored.
 */
#include "trace/collector/collector_clock.h"

#include "base/monotonic.h"
#include "base/grown_array.h"
#include "base/error.h"
#include "trace/record.h"

#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define ANCHOR_TRIES 32
#define PAUSE_MIN_NS INT64_C(2000000)
#define PAUSE_MAX_NS INT64_C(200000000)

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
    return got >= 3 && strncmp(text, "tsc", 3) == 0 && tsc_is_invariant() ? VARVE_CLOCK_TSC : VARVE_CLOCK_MONOTONIC;
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
    return monotonic_ns();
}
#endif

uint64_t collect_clock_now(const struct collect_clock *clock)
{
    return clock->kind == VARVE_CLOCK_TSC ? read_tsc() : monotonic_ns();
}

/* Time at `ticks` by the stretch that begins at `anchor`. */
static int64_t stretch_ns(const struct clock_anchor *anchor, uint64_t ticks)
{
    int64_t ns = anchor->mono_ns + (int64_t)floor((double)(int64_t)(ticks - anchor->ticks) * anchor->rate);
    return ns > anchor->floor_ns ? ns : anchor->floor_ns;
}

/* The first stretch has no other before it: it takes the rate of its own end. */
static void set_stretch(struct collect_clock *clock, struct clock_anchor *anchor)
{
    struct clock_anchor *before = anchor - 1;
    anchor->rate = 1.0;
    anchor->floor_ns = INT64_MIN;
    if (anchor > clock->anchors) {
        anchor->rate = (double)(anchor->mono_ns - before->mono_ns) / (double)(anchor->ticks - before->ticks);
        before->rate = before == clock->anchors ? anchor->rate : before->rate;
        anchor->floor_ns = stretch_ns(before, anchor->ticks);
    }
}

int collect_clock_add(struct collect_clock *clock, const struct clock_anchor *anchor)
{
    if (clock->count > 0 && anchor->ticks <= clock->anchors[clock->count - 1].ticks) {
        return VARVE_OK; /* the same moment again */
    }
    if (!ARRAY_GROW(clock->anchors, clock->capacity, clock->count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    clock->anchors[clock->count] = *anchor;
    set_stretch(clock, &clock->anchors[clock->count]);
    clock->count++;
    if (clock->count == 1) {
        clock->origin_mono_ns = anchor->mono_ns;
    }
    clock->last_used = 0;
    return VARVE_OK;
}

void collect_clock_begin(struct collect_clock *clock, int64_t mono_ns)
{
    for (size_t i = 0; i < clock->count; i++) {
        if (clock->anchors[i].mono_ns == mono_ns) {
            clock->origin_mono_ns = mono_ns;
        }
    }
}

uint64_t collect_clock_pause_ns(const struct collect_clock *clock)
{
    int64_t span = clock->count > 0 ? clock->anchors[clock->count - 1].mono_ns - clock->origin_mono_ns : 0;
    return (uint64_t)(span < PAUSE_MIN_NS ? PAUSE_MIN_NS : span > PAUSE_MAX_NS ? PAUSE_MAX_NS : span);
}

static struct clock_anchor narrowest_anchor(const struct collect_clock *clock)
{
    struct clock_anchor best = {0};
    uint64_t width = UINT64_MAX;
    for (int i = 0; i < ANCHOR_TRIES; i++) {
        uint64_t before = collect_clock_now(clock);
        int64_t mono = (int64_t)monotonic_ns();
        uint64_t after = collect_clock_now(clock);
        if (after - before < width) {
            width = after - before;
            best.ticks = before + width / 2;
            best.mono_ns = mono;
            best.real_ns = (int64_t)monotonic_of(CLOCK_REALTIME) + (mono - (int64_t)monotonic_ns());
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

void collect_clock_open(struct collect_clock *clock, enum varve_clock_kind kind)
{
    *clock = (struct collect_clock){.kind = kind};
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

int64_t collect_clock_ns(struct collect_clock *clock, uint64_t ticks)
{
    if (clock->count == 0) {
        return (int64_t)ticks;
    }
    if (ticks < clock->anchors[clock->last_used].ticks ||
        (clock->last_used + 1 < clock->count && ticks >= clock->anchors[clock->last_used + 1].ticks)) {
        clock->last_used = find_anchor(clock, ticks);
    }
    return stretch_ns(&clock->anchors[clock->last_used], ticks) - clock->origin_mono_ns;
}

uint64_t collect_clock_ticks_of(const struct collect_clock *clock, int64_t ns)
{
    return (uint64_t)((double)ns / (clock->count > 0 ? clock->anchors[0].rate : 1.0));
}
