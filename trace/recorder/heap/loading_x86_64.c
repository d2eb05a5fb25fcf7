/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlopen and dlmopen for x86-64. Where the C library looks for a file, and in which namespace, depends on who calls,
 * and it knows that from its return address: so ours end in a jump, with the stack as the program left it, which no
 * compiler promises. What they ask first answers with the address of the real one.
 */

#define LOADING_HOOK(name)                   \
    ".p2align 4\n"                           \
    ".globl " name "\n"                      \
    ".type " name ", @function\n" name ":\n" \
    "    .cfi_startproc\n"                   \
    "    endbr64\n"                          \
    "    pushq %rdi\n"                       \
    "    .cfi_adjust_cfa_offset 8\n"         \
    "    pushq %rsi\n"                       \
    "    .cfi_adjust_cfa_offset 8\n"         \
    "    pushq %rdx\n"                       \
    "    .cfi_adjust_cfa_offset 8\n"         \
    "    call loading_" name "\n"            \
    "    popq %rdx\n"                        \
    "    .cfi_adjust_cfa_offset -8\n"        \
    "    popq %rsi\n"                        \
    "    .cfi_adjust_cfa_offset -8\n"        \
    "    popq %rdi\n"                        \
    "    .cfi_adjust_cfa_offset -8\n"        \
    "    jmp *%rax\n"                        \
    "    .cfi_endproc\n"                     \
    "    .size " name ", .-" name "\n"

__asm__(".text\n" LOADING_HOOK("dlopen") LOADING_HOOK("dlmopen"));
