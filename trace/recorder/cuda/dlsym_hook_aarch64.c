/* SPDX-License-Identifier: Apache-2.0 */
/* dlsym for 64-bit Arm; dlsym_hook_x86_64.c says why it is written by hand. */
#include "trace/recorder/cuda/cuda_call.h"

#include <stddef.h>

const char *const cuda_dlsym_versions[] = {"GLIBC_2.17", "GLIBC_2.34", NULL};

__asm__(".text\n"
        ".p2align 4\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        "dlsym:\n"
        "    .cfi_startproc\n"
        "    hint #34\n" /* a landing pad, where branches are checked */
        "0:  adrp x16, cuda_dlsym_real\n"
        "    ldr x16, [x16, #:lo12:cuda_dlsym_real]\n"
        "    cbz x16, 3f\n"
        "    adrp x17, cuda_wanted\n"
        "    ldrb w17, [x17, #:lo12:cuda_wanted]\n"
        "    cmp w17, #2\n" /* CUDA_WANTED_YES */
        "    b.ne 1f\n"
        "    ldrb w17, [x1]\n"
        "    cmp w17, #0x63\n" /* 'c' */
        "    b.ne 1f\n"
        "    ldrb w17, [x1, #1]\n"
        "    cmp w17, #0x75\n" /* 'u' */
        "    b.eq 2f\n"
        "1:  br x16\n"
        "2:  stp x29, x30, [sp, #-32]!\n"
        "    .cfi_def_cfa_offset 32\n"
        "    .cfi_offset 29, -32\n"
        "    .cfi_offset 30, -24\n"
        "    mov x29, sp\n"
        "    stp x0, x1, [sp, #16]\n"
        "    mov x2, x30\n"
        "    bl cuda_dlsym_answer\n"
        "    mov x17, x0\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    .cfi_restore 29\n"
        "    .cfi_restore 30\n"
        "    .cfi_def_cfa_offset 0\n"
        "    adrp x16, cuda_dlsym_real\n"
        "    ldr x16, [x16, #:lo12:cuda_dlsym_real]\n"
        "    cbz x17, 1b\n"
        "    mov x0, x17\n"
        "    ret\n"
        "3:  stp x29, x30, [sp, #-32]!\n" /* the first call of all */
        "    .cfi_def_cfa_offset 32\n"
        "    .cfi_offset 29, -32\n"
        "    .cfi_offset 30, -24\n"
        "    mov x29, sp\n"
        "    stp x0, x1, [sp, #16]\n"
        "    bl cuda_prepare\n"
        "    ldp x0, x1, [sp, #16]\n"
        "    ldp x29, x30, [sp], #32\n"
        "    .cfi_restore 29\n"
        "    .cfi_restore 30\n"
        "    .cfi_def_cfa_offset 0\n"
        "    b 0b\n"
        "    .cfi_endproc\n"
        "    .size dlsym, .-dlsym\n");
