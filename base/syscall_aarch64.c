/* SPDX-License-Identifier: Apache-2.0 */
/* The system call instruction of AArch64: number in x8, arguments in x0 to x5, the result in x0. */
#include "base/syscall.h"

long recorder_syscall_raw(long number, long a, long b, long c, long d, long e, long f)
{
    register long number_in __asm__("x8") = number;
    register long first __asm__("x0") = a;
    register long second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    register long fourth __asm__("x3") = d;
    register long fifth __asm__("x4") = e;
    register long sixth __asm__("x5") = f;

    __asm__ volatile("svc #0"
                     : "+r"(first)
                     : "r"(number_in), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "memory");
    return first;
}
