/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call on another stack, on x86-64. rbp keeps the old stack pointer, which is also what the unwind tables
 * say, so debuggers and unwinders find the caller; call and ret are balanced, as a shadow stack wants them.
 */

__asm__(".text\n"
        ".p2align 4\n"
        ".globl recorder_stack_call\n"
        ".hidden recorder_stack_call\n"
        ".type recorder_stack_call, @function\n"
        "recorder_stack_call:\n"
        "    .cfi_startproc\n"
        "    pushq %rbp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset %rbp, -16\n"
        "    movq %rsp, %rbp\n"
        "    .cfi_def_cfa_register %rbp\n"
        "    movq %rdi, %rax\n"
        "    movq %rsi, %rdi\n"
        "    movq %rsp, (%rcx)\n"
        "    movq %rdx, %rsp\n"
        "    callq *%rax\n"
        "    movq %rbp, %rsp\n"
        "    popq %rbp\n"
        "    .cfi_def_cfa %rsp, 8\n"
        "    retq\n"
        "    .cfi_endproc\n"
        ".size recorder_stack_call, . - recorder_stack_call\n");
