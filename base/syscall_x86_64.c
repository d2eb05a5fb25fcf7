/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call instruction of x86-64. Registers as the kernel has them: number in rax, arguments in rdi,
 * rsi, rdx, r10, r8, r9; rcx and r11 are lost.
 */
#include "base/syscall.h"

long recorder_syscall_raw(long number, long a, long b, long c, long d, long e, long f)
{
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = e;
    register long sixth __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}
