/* SPDX-License-Identifier: Apache-2.0 */
/* Where neither x86-64 nor AArch64: the C library's own, with its errno put back. */
#include "base/syscall.h"

#include <unistd.h>

long recorder_syscall_raw(long number, long a, long b, long c, long d, long e, long f)
{
    int saved_errno = errno;
    long result = syscall(number, a, b, c, d, e, f);

    result = result == -1 ? -errno : result;
    errno = saved_errno;
    return result;
}
