/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is confined (confinement.h), and the gate in front of system calls. Called by all files of the recorder,
 * by way of recorder_syscall.
 */
#include "trace/guest/confinement.h"
#include "trace/guest/guest_clock.h"
#include "trace/guest/guest_memory.h"
#include "base/syscall.h"

#include <sys/prctl.h>

#define OF_ALL_SHIFT 8U              /* in `confined`: bits of all threads, above those of some thread */
#define SECTIONS_WAIT_NS 1000000000U /* for others to leave their calls; then they are on their own */
#define SECTIONS_NAP_NS 100000L

static uint32_t confined;      /* enum recorder_confine, of some thread and of all; atomic */
static uint32_t closing;       /* no section may begin; atomic */
static uint32_t sections;      /* threads with signals blocked by us; atomic */
static __thread uint8_t own;   /* enum recorder_confine: of this thread */
static __thread bool is_known; /* this thread is older than every confinement: `own` is all there is */

bool recorder_is_confined_in(unsigned what)
{
    uint32_t known = __atomic_load_n(&confined, __ATOMIC_ACQUIRE);
    if (__builtin_expect(known == 0, 1)) {
        return false;
    }
    return (own & what) != 0 || (known & what << OF_ALL_SHIFT) != 0 || ((known & what) != 0 && !is_known);
}

bool recorder_is_confined(void)
{
    return recorder_is_confined_in(RECORDER_CONFINE_CALLS);
}

void recorder_confine_thread_known(void)
{
    is_known = is_known || __atomic_load_n(&confined, __ATOMIC_ACQUIRE) == 0;
}

static __attribute__((noinline)) long syscall_if_allowed(long number, long a, long b, long c, long d, long e, long f)
{
    return recorder_is_confined() ? -EPERM : recorder_syscall_raw(number, a, b, c, d, e, f);
}

/* Where nobody is confined, a jump: hooks are called with little stack left. */
long recorder_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    return __builtin_expect(__atomic_load_n(&confined, __ATOMIC_ACQUIRE) == 0, 1)
               ? recorder_syscall_raw(number, a, b, c, d, e, f)
               : syscall_if_allowed(number, a, b, c, d, e, f);
}

bool recorder_confine_section_begin(void)
{
    if (recorder_is_confined()) {
        return false;
    }
    __atomic_fetch_add(&sections, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&closing, __ATOMIC_SEQ_CST) == 0) {
        return true;
    }
    __atomic_fetch_sub(&sections, 1, __ATOMIC_SEQ_CST);
    return false;
}

void recorder_confine_section_end(void)
{
    __atomic_fetch_sub(&sections, 1, __ATOMIC_SEQ_CST);
}

static void wait_for_sections(void)
{
    const struct timespec nap = {0, SECTIONS_NAP_NS};
    for (uint64_t waited = 0; waited < SECTIONS_WAIT_NS; waited += SECTIONS_NAP_NS) {
        if (__atomic_load_n(&sections, __ATOMIC_SEQ_CST) == 0) {
            return;
        }
        recorder_sys_nanosleep(&nap);
    }
}

uint32_t recorder_confine_begin(unsigned what, bool all_threads)
{
    uint32_t before = __atomic_load_n(&confined, __ATOMIC_ACQUIRE) | (uint32_t)own << 16;
    if (what == 0) {
        return before;
    }
    if (all_threads) {
        __atomic_store_n(&closing, 1, __ATOMIC_SEQ_CST);
        wait_for_sections();
    }
    if ((what & RECORDER_CONFINE_CLOCK) != 0) {
        recorder_clock_leave();
    }
    own = (uint8_t)(own | what);
    __atomic_fetch_or(&confined, all_threads ? what | what << OF_ALL_SHIFT : what, __ATOMIC_SEQ_CST);
    return before;
}

void recorder_confine_undo(uint32_t before)
{
    own = (uint8_t)(before >> 16);
    __atomic_fetch_and(&confined, before & 0xffffU, __ATOMIC_SEQ_CST);
    __atomic_store_n(&closing, 0, __ATOMIC_SEQ_CST);
}

unsigned recorder_confine_at_start(const struct session_control *session, char *scratch, size_t scratch_bytes)
{
    long length = recorder_read_file("/proc/self/status", scratch, scratch_bytes - 1);
    scratch[length > 0 ? length : 0] = '\0';
    if (session_status_number(scratch, "Seccomp:") != session->seccomp_mode ||
        session_status_number(scratch, "Seccomp_filters:") != session->seccomp_filters) {
        return RECORDER_CONFINE_CALLS | RECORDER_CONFINE_CLOCK; /* asking for the clock is a system call */
    }
    int tsc = PR_TSC_ENABLE;
    return recorder_syscall(SYS_prctl, PR_GET_TSC, (long)&tsc, 0, 0, 0, 0) == 0 && tsc == PR_TSC_SIGSEGV
               ? RECORDER_CONFINE_CLOCK
               : 0U;
}

void recorder_confine_process(unsigned what)
{
    __atomic_fetch_or(&confined, what | what << OF_ALL_SHIFT, __ATOMIC_SEQ_CST);
}
