/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By /proc/THREAD/syscall. A stop ends a call as a signal would: the kernel begins most of them again by itself, others
 * end with EINTR, which registers_repeat undoes. What nobody undoes is a call that has done a part and says so, or
 * whose EINTR is final. Numbers of calls are those of this machine. Called by thread_look.c.
 */
#include "trace/collector/programs/thread_look.h"

#include "base/proc_file.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define ARGUMENTS 6

struct wait {
    int number;
    enum asleep_harm harm;
    int argument;  /* it depends on this one; -1: on none */
    uint32_t bits; /* of it; 0: is it a time limit, or where one stands? */
};

static const struct wait waits[] = {
    {SYS_write, ASLEEP_CUT, -1, 0},
    {SYS_writev, ASLEEP_CUT, -1, 0},
    {SYS_pwritev, ASLEEP_CUT, -1, 0},
    {SYS_sendto, ASLEEP_CUT, -1, 0},
    {SYS_sendmsg, ASLEEP_CUT, -1, 0},
    {SYS_sendmmsg, ASLEEP_CUT, -1, 0},
    {SYS_recvfrom, ASLEEP_CUT, 3, MSG_WAITALL},
    {SYS_recvmsg, ASLEEP_CUT, 2, MSG_WAITALL},
    {SYS_recvmmsg, ASLEEP_CUT, -1, 0},
    {SYS_sendfile, ASLEEP_CUT, -1, 0},
    {SYS_splice, ASLEEP_CUT, -1, 0},
    {SYS_vmsplice, ASLEEP_CUT, -1, 0},
    {SYS_io_getevents, ASLEEP_CUT, -1, 0},
    {SYS_ioctl, ASLEEP_CUT, -1, 0}, /* nobody knows */
    {SYS_close, ASLEEP_CUT, -1, 0},
#ifdef SYS_pwritev2
    {SYS_pwritev2, ASLEEP_CUT, -1, 0},
#endif
#ifdef SYS_copy_file_range
    {SYS_copy_file_range, ASLEEP_CUT, -1, 0},
#endif
#ifdef SYS_getrandom
    {SYS_getrandom, ASLEEP_CUT, -1, 0},
#endif
#ifdef SYS_io_pgetevents
    {SYS_io_pgetevents, ASLEEP_CUT, -1, 0},
#endif
#ifdef SYS_io_uring_enter
    {SYS_io_uring_enter, ASLEEP_CUT, 1, UINT32_MAX}, /* it has handed something in */
#endif
#ifdef SYS_epoll_wait
    {SYS_epoll_wait, ASLEEP_ANEW, 3, 0},
#endif
    {SYS_epoll_pwait, ASLEEP_ANEW, 3, 0},
#ifdef SYS_epoll_pwait2
    {SYS_epoll_pwait2, ASLEEP_ANEW, 3, 0},
#endif
    {SYS_semtimedop, ASLEEP_ANEW, 3, 0},
    {SYS_rt_sigtimedwait, ASLEEP_ANEW, 2, 0},
};

static enum asleep_harm harm_of(int64_t number, const uint64_t arguments[ARGUMENTS])
{
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        const struct wait *wait = &waits[i];
        if (wait->number != number) {
            continue;
        }
        const uint64_t argument = wait->argument >= 0 ? arguments[wait->argument] : 0;
        const bool is_limited = argument != 0 && (int32_t)argument != -1;
        const bool is_so = wait->bits != 0 ? (argument & wait->bits) != 0 : wait->argument < 0 || is_limited;
        return is_so ? wait->harm : ASLEEP_UNHARMED;
    }
    return ASLEEP_UNHARMED;
}

/* "running", "NUMBER ARGUMENTS SP PC", or "-1 SP PC" of one that waits outside of a call. */
bool asleep_look(int32_t tid, struct asleep *asleep_out)
{
    char text[256];
    (void)proc_file_read(tid, "syscall", text, sizeof(text));
    int64_t number;
    uint64_t values[ARGUMENTS + 2];
    const int count = sscanf(
        text,
        "%" SCNd64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64,
        &number, &values[0], &values[1], &values[2], &values[3], &values[4], &values[5], &values[6], &values[7]);
    if (count != 3 && count != ARGUMENTS + 3) {
        return false;
    }
    *asleep_out = (struct asleep){.harm = count > 3 ? harm_of(number, values) : ASLEEP_UNHARMED,
                                  .sp = values[count - 3],
                                  .pc = values[count - 2]};
    return true;
}

bool asleep_still(int32_t tid, const struct asleep *asleep)
{
    struct asleep now;
    return asleep_look(tid, &now) && now.sp == asleep->sp && now.pc == asleep->pc;
}
