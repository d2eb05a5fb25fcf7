/* SPDX-License-Identifier: Apache-2.0 */
/* Where neither x86-64 nor AArch64: no other stack, the program's has to do. */
#include "trace/guest/own_stack.h"

void recorder_stack_call(void (*function)(void *argument), void *argument, uintptr_t sp, uintptr_t *sp_old)
{
    (void)sp;
    *sp_old = (uintptr_t)__builtin_frame_address(0);
    function(argument);
}
