/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call on another stack, on AArch64. x29 keeps the old stack pointer, which is also what the unwind tables
 * say, so debuggers and unwinders find the caller.
 */

__asm__(".text\n"
        ".p2align 4\n"
        ".globl recorder_stack_call\n"
        ".hidden recorder_stack_call\n"
        ".type recorder_stack_call, %function\n"
        "recorder_stack_call:\n"
        "    .cfi_startproc\n"
        "    stp x29, x30, [sp, #-16]!\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset x29, -16\n"
        "    .cfi_offset x30, -8\n"
        "    mov x29, sp\n"
        "    .cfi_def_cfa_register x29\n"
        "    str x29, [x3]\n"
        "    mov x9, x0\n"
        "    mov x0, x1\n"
        "    mov sp, x2\n"
        "    blr x9\n"
        "    mov sp, x29\n"
        "    .cfi_def_cfa_register sp\n"
        "    ldp x29, x30, [sp], #16\n"
        "    .cfi_def_cfa_offset 0\n"
        "    .cfi_restore x29\n"
        "    .cfi_restore x30\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size recorder_stack_call, . - recorder_stack_call\n");
