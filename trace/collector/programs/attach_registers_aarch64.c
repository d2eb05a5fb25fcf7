/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 64-bit Arm. The kernel has prepared the repetition of an interrupted system call before a thread stops, so the saved
 * registers hold it; that the function called is in none is said by a register set of its own.
 */
#include "trace/collector/programs/attach_registers.h"

#include <assert.h>
#include <asm/ptrace.h>
#include <elf.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static_assert(sizeof(struct user_pt_regs) <= REGISTERS_GENERAL_BYTES, "there is room for them");

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

bool registers_read(int32_t tid, struct registers *registers_out)
{
    registers_out->general_bytes = sizeof(registers_out->general);
    registers_out->vector_bytes = sizeof(registers_out->vector);
    return set_read(tid, NT_PRSTATUS, registers_out->general, &registers_out->general_bytes) &&
           set_read(tid, NT_PRFPREG, registers_out->vector, &registers_out->vector_bytes);
}

bool registers_write(int32_t tid, const struct registers *registers)
{
    return set_write(tid, NT_PRFPREG, registers->vector, registers->vector_bytes) &&
           set_write(tid, NT_PRSTATUS, registers->general, registers->general_bytes);
}

/* Its first argument is gone: the kernel keeps it to itself. */
void registers_repeat(int32_t tid)
{
    (void)tid;
}

void registers_repeat_anew(int32_t tid, struct registers *saved)
{
    (void)tid;
    (void)saved;
}

uint64_t registers_pc(const struct registers *registers)
{
    struct user_pt_regs general = {0};
    memcpy(&general, registers->general, sizeof(general));
    return general.pc;
}

void registers_pc_set(struct registers *registers, uint64_t pc)
{
    struct user_pt_regs general = {0};
    memcpy(&general, registers->general, sizeof(general));
    general.pc = pc;
    memcpy(registers->general, &general, sizeof(general));
}

uint64_t registers_thread_pointer(int32_t tid)
{
    uint64_t pointer = 0;
    size_t count = sizeof(pointer);
    return set_read(tid, NT_ARM_TLS, &pointer, &count) ? pointer : 0;
}

uint64_t registers_free_stack(const struct registers *registers)
{
    struct user_pt_regs general = {0};

    memcpy(&general, registers->general, sizeof(general));
    return general.sp & ~UINT64_C(15);
}

bool registers_call(int32_t tid, const struct registers *saved, uint64_t function, const uint64_t arguments[6],
                    uint64_t stack)
{
    struct user_pt_regs general = {0};
    const int none = -1;

    memcpy(&general, saved->general, sizeof(general));
    memcpy(general.regs, arguments, 6 * sizeof(uint64_t));
    general.regs[29] = 0;
    general.regs[30] = 0; /* where it returns to */
    general.sp = stack;
    general.pc = function;
    return set_write(tid, NT_ARM_SYSTEM_CALL, &none, sizeof(none)) &&
           set_write(tid, NT_PRSTATUS, &general, sizeof(general));
}

bool registers_returned(int32_t tid, uint64_t *result)
{
    struct user_pt_regs general = {0};
    size_t count = sizeof(general);

    if (!set_read(tid, NT_PRSTATUS, &general, &count) || general.pc != 0) {
        return false;
    }
    *result = general.regs[0];
    return true;
}

bool registers_wait_for_lock(int32_t tid)
{
    struct user_pt_regs general = {0};
    size_t count = sizeof(general);

    return set_read(tid, NT_PRSTATUS, &general, &count) && general.regs[8] == SYS_futex;
}
