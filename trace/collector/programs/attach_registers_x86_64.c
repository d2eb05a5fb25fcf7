/* SPDX-License-Identifier: Apache-2.0 */
/*
 * x86-64. orig_rax of -1 says that the thread is in no system call: without it the kernel would make it repeat the one
 * that the stop has interrupted, two bytes before the function. With the saved registers back it does just that.
 */
#include "trace/collector/programs/attach_registers.h"

#include <assert.h>
#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

#define RED_ZONE_BYTES 128U
#define CALL_BYTES 2U            /* of the instruction syscall */
#define UNLESS_HANDLED (-514)    /* ERESTARTNOHAND of the kernel */
#define WITH_WHAT_IS_LEFT (-516) /* ERESTART_RESTARTBLOCK */
#define FLAG_TRAP 0x100U
#define FLAG_DIRECTION 0x400U

static_assert(sizeof(struct user_regs_struct) <= REGISTERS_GENERAL_BYTES, "there is room for them");

bool registers_are_known(void)
{
    return true;
}

static bool set_read(int32_t tid, int set, void *bytes, size_t *count)
{
    struct iovec part = {bytes, *count};
    if (ptrace(PTRACE_GETREGSET, tid, set, &part) != 0) {
        return false;
    }
    *count = part.iov_len;
    return true;
}

static bool set_write(int32_t tid, int set, const void *bytes, size_t count)
{
    struct iovec part = {(void *)(uintptr_t)bytes, count};
    return ptrace(PTRACE_SETREGSET, tid, set, &part) == 0;
}

static bool general_read(int32_t tid, struct user_regs_struct *general)
{
    size_t count = sizeof(*general);
    return set_read(tid, NT_PRSTATUS, general, &count);
}

bool registers_read(int32_t tid, struct registers *registers_out)
{
    registers_out->general_bytes = sizeof(registers_out->general);
    registers_out->vector_bytes = sizeof(registers_out->vector);
    return set_read(tid, NT_PRSTATUS, registers_out->general, &registers_out->general_bytes) &&
           set_read(tid, NT_X86_XSTATE, registers_out->vector, &registers_out->vector_bytes);
}

bool registers_write(int32_t tid, const struct registers *registers)
{
    return set_write(tid, NT_X86_XSTATE, registers->vector, registers->vector_bytes) &&
           set_write(tid, NT_PRSTATUS, registers->general, registers->general_bytes);
}

/* An EINTR says that nothing was done, but of these: a descriptor that is closed, and of what was the rest of a call
 * its time. Where the kernel says so itself, it has other numbers for it (ERESTARTSYS), which are none of this. */
static bool is_final(uint64_t number)
{
    return number == SYS_close || number == SYS_restart_syscall
#ifdef SYS_close_range
           || number == SYS_close_range
#endif
        ;
}

/* As a call says to the kernel that a handler ends it, and nothing else. */
void registers_repeat(int32_t tid)
{
    const int64_t interrupted = -EINTR, unless_handled = UNLESS_HANDLED;
    struct user_regs_struct general = {0};
    if (general_read(tid, &general) && (int64_t)general.rax == interrupted && (int64_t)general.orig_rax >= 0 &&
        !is_final(general.orig_rax)) {
        (void)ptrace(PTRACE_POKEUSER, tid, (void *)offsetof(struct user, regs.rax), (void *)unless_handled);
    }
}

/* The code before `pc`, if that is a system call; the C library makes them by mov $NUMBER,%eax; syscall. */
static bool call_before(int32_t tid, uint64_t pc, unsigned char code[8])
{
    errno = 0;
    const long word = ptrace(PTRACE_PEEKTEXT, tid, (void *)(uintptr_t)(pc - 8), NULL);
    memcpy(code, &word, 8);
    return errno == 0 && code[6] == 0x0f && code[7] == 0x05;
}

static bool number_before(int32_t tid, uint64_t pc, unsigned long long *number)
{
    unsigned char code[8];
    uint32_t given;
    if (!call_before(tid, pc, code) || code[1] != 0xb8) {
        return false;
    }
    memcpy(&given, code + 2, sizeof(given));
    *number = given;
    return true;
}

/* Stopped in the call, or, once let go, before it made restart_syscall of it: the kernel has set the thread to that. */
void registers_repeat_anew(int32_t tid, struct registers *saved)
{
    struct user_regs_struct general;
    memcpy(&general, saved->general, sizeof(general));
    unsigned char code[8];
    const bool is_inside = (int64_t)general.orig_rax >= 0 && (int64_t)general.rax == WITH_WHAT_IS_LEFT;
    const bool is_before = general.rax == SYS_restart_syscall && call_before(tid, general.rip + CALL_BYTES, code);
    if (!is_inside && !is_before) {
        return;
    }
    unsigned long long number = general.orig_rax;
    const bool is_known = (int64_t)number >= 0 && number != SYS_restart_syscall;
    if (!is_known && !number_before(tid, general.rip + (is_before ? CALL_BYTES : 0), &number)) {
        return;
    }
    general.rax = is_before ? number : (unsigned long long)UNLESS_HANDLED;
    general.orig_rax = is_before ? UINT64_MAX : number;
    memcpy(saved->general, &general, sizeof(general));
}

uint64_t registers_pc(const struct registers *registers)
{
    struct user_regs_struct general;
    memcpy(&general, registers->general, sizeof(general));
    return general.rip;
}

void registers_pc_set(struct registers *registers, uint64_t pc)
{
    struct user_regs_struct general;
    memcpy(&general, registers->general, sizeof(general));
    general.rip = pc;
    memcpy(registers->general, &general, sizeof(general));
}

uint64_t registers_thread_pointer(int32_t tid)
{
    struct user_regs_struct general;
    return general_read(tid, &general) ? general.fs_base : 0;
}

uint64_t registers_free_stack(const struct registers *registers)
{
    struct user_regs_struct general;
    memcpy(&general, registers->general, sizeof(general));
    return (general.rsp - RED_ZONE_BYTES) & ~UINT64_C(15);
}

bool registers_call(int32_t tid, const struct registers *saved, uint64_t function, const uint64_t arguments[6],
                    uint64_t stack)
{
    struct user_regs_struct general;
    memcpy(&general, saved->general, sizeof(general));
    general.rsp = stack - sizeof(uint64_t); /* as a call instruction leaves it */
    general.rip = function;
    general.rax = 0;
    general.orig_rax = UINT64_MAX;
    general.eflags &= ~(unsigned long long)(FLAG_TRAP | FLAG_DIRECTION);
    general.rdi = arguments[0];
    general.rsi = arguments[1];
    general.rdx = arguments[2];
    general.rcx = arguments[3];
    general.r8 = arguments[4];
    general.r9 = arguments[5];
    return ptrace(PTRACE_POKEDATA, tid, (void *)(uintptr_t)general.rsp, NULL) == 0 &&
           set_write(tid, NT_PRSTATUS, &general, sizeof(general));
}

bool registers_returned(int32_t tid, uint64_t *result)
{
    struct user_regs_struct general;
    if (!general_read(tid, &general) || general.rip != 0) {
        return false;
    }
    *result = general.rax;
    return true;
}

bool registers_wait_for_lock(int32_t tid)
{
    struct user_regs_struct general;
    return general_read(tid, &general) && general.orig_rax == SYS_futex;
}
