/* SPDX-License-Identifier: Apache-2.0 */
/* dlopen and dlmopen for 64-bit Arm; loading_x86_64.c says why they are written by hand. */

#define LOADING_HOOK(name)                                           \
    ".p2align 4\n"                                                   \
    ".globl " name "\n"                                              \
    ".type " name ", %function\n" name ":\n"                         \
    "    .cfi_startproc\n"                                           \
    "    hint #34\n" /* a landing pad, where branches are checked */ \
    "    stp x29, x30, [sp, #-48]!\n"                                \
    "    .cfi_def_cfa_offset 48\n"                                   \
    "    .cfi_offset 29, -48\n"                                      \
    "    .cfi_offset 30, -40\n"                                      \
    "    mov x29, sp\n"                                              \
    "    stp x0, x1, [sp, #16]\n"                                    \
    "    str x2, [sp, #32]\n"                                        \
    "    bl loading_" name "\n"                                      \
    "    mov x16, x0\n"                                              \
    "    ldp x0, x1, [sp, #16]\n"                                    \
    "    ldr x2, [sp, #32]\n"                                        \
    "    ldp x29, x30, [sp], #48\n"                                  \
    "    .cfi_restore 29\n"                                          \
    "    .cfi_restore 30\n"                                          \
    "    .cfi_def_cfa_offset 0\n"                                    \
    "    br x16\n"                                                   \
    "    .cfi_endproc\n"                                             \
    "    .size " name ", .-" name "\n"

__asm__(".text\n" LOADING_HOOK("dlopen") LOADING_HOOK("dlmopen"));
