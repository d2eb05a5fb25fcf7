/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_check.c works on both sides. In programs recorder_confine.c stands in front of its system calls; the
 * collector is never confined. Weak, for executables that link both sides.
 */
#include "trace/recorder_syscall_internal.h"

__attribute__((weak)) long recorder_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    return recorder_syscall_raw(number, a, b, c, d, e, f);
}
