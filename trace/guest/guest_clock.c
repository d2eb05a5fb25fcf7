/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monotonic clock past the C library, whose clock_gettime may be an interceptor's: the function in the
 * object that the kernel maps into every process (the vDSO), or the system call where there is none. Called
 * for every event where the clock is not the time stamp counter.
 */
#include "trace/guest/guest_clock.h"
#include "trace/guest/confinement.h"
#include "trace/guest/elf_symbol.h"
#include "base/syscall.h"
#include "trace/emit.h"

#include <string.h>
#include <sys/auxv.h>

#define RETRY_FIRST_NS UINT64_C(1000000)
#define RETRY_LAST_NS UINT64_C(1000000000)

#if defined(__aarch64__)
#define CLOCK_SYMBOL "__kernel_clock_gettime"
#else
#define CLOCK_SYMBOL "__vdso_clock_gettime"
#endif

typedef int clock_function(clockid_t clock, struct timespec *now);

uint32_t varve_clock_is_tsc;

/* Both atomic. The answer is the same whoever looks: threads that look at the same time store the same. */
static clock_function *clock_of_kernel; /* NULL: there is none */
static bool has_looked;

static clock_function *guest_clock_look(void)
{
    struct elf_object object;
    void *address = NULL;
    if (elf_symbol_object_at((const void *)getauxval(AT_SYSINFO_EHDR), &object)) {
        address = elf_symbol_in(&object, CLOCK_SYMBOL);
    }
    clock_function *function = NULL;
    memcpy(&function, &address, sizeof(function)); /* no cast in ISO C */
    __atomic_store_n(&clock_of_kernel, function, __ATOMIC_RELAXED);
    __atomic_store_n(&has_looked, true, __ATOMIC_RELEASE);
    return function;
}

uint64_t varve_clock_monotonic_ns(void)
{
    clock_function *function = __atomic_load_n(&has_looked, __ATOMIC_ACQUIRE)
                                   ? __atomic_load_n(&clock_of_kernel, __ATOMIC_RELAXED)
                                   : guest_clock_look();
    struct timespec now = {0, 0};
    if (recorder_is_confined_in(RECORDER_CONFINE_CLOCK) || function == NULL || function(CLOCK_MONOTONIC, &now) != 0) {
        recorder_syscall(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0, 0, 0, 0);
    }
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* ---- what is tried again later ---- */

bool recorder_retry_is_due(const struct recorder_retry *retry)
{
    uint64_t next_ns = __atomic_load_n(&retry->next_ns, __ATOMIC_RELAXED);
    return next_ns == 0 || varve_clock_monotonic_ns() >= next_ns;
}

void recorder_retry_later(struct recorder_retry *retry)
{
    uint64_t step_ns = __atomic_load_n(&retry->step_ns, __ATOMIC_RELAXED) * 2;
    step_ns = step_ns < RETRY_FIRST_NS ? RETRY_FIRST_NS : step_ns;
    step_ns = step_ns > RETRY_LAST_NS ? RETRY_LAST_NS : step_ns;
    __atomic_store_n(&retry->step_ns, step_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&retry->next_ns, varve_clock_monotonic_ns() + step_ns, __ATOMIC_RELAXED);
}

/* ---- threads that may not read the time stamp counter ---- */

static uint64_t left_ticks; /* atomic: when this process last read its clock freely */

void recorder_clock_leave(void)
{
    uint64_t now = varve_clock_ticks();
    if (now > __atomic_load_n(&left_ticks, __ATOMIC_RELAXED)) {
        __atomic_store_n(&left_ticks, now, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&varve_clock_is_tsc, 0, __ATOMIC_RELEASE);
}

uint64_t recorder_clock_left_ticks(void)
{
    return __atomic_load_n(&left_ticks, __ATOMIC_RELAXED);
}
