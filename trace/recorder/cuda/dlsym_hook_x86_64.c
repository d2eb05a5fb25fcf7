/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlsym for x86-64. What RTLD_NEXT and RTLD_DEFAULT find depends on who calls, and the C library knows that
 * from its return address: so ours must end in a jump, with the stack as the program left it, which no
 * compiler promises. Names that begin with anything but "cu", and all of them where the session wants no
 * CUDA, are jumped through at once; of the others cuda_dlsym_answer says whether the answer is ours.
 */
#include "trace/recorder/cuda/cuda_call.h"

#include <stddef.h>

const char *const cuda_dlsym_versions[] = {"GLIBC_2.2.5", "GLIBC_2.34", NULL};

__asm__(".text\n"
        ".p2align 4\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "0:  cmpb $2, cuda_wanted(%rip)\n" /* CUDA_WANTED_YES */
        "    je 2f\n"
        "1:  movq cuda_dlsym_real(%rip), %rax\n"
        "    testq %rax, %rax\n"
        "    je 3f\n"
        "    jmp *%rax\n"
        "2:  cmpb $0x63, (%rsi)\n" /* 'c' */
        "    jne 1b\n"
        "    cmpb $0x75, 1(%rsi)\n" /* 'u' */
        "    jne 1b\n"
        "    pushq %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    movq 24(%rsp), %rdx\n"
        "    call cuda_dlsym_answer\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    testq %rax, %rax\n"
        "    je 1b\n"
        "    ret\n"
        "3:  pushq %rdi\n" /* the first call of all */
        "    .cfi_adjust_cfa_offset 8\n"
        "    pushq %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call cuda_prepare\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    jmp 0b\n"
        "    .cfi_endproc\n"
        "    .size dlsym, .-dlsym\n");
