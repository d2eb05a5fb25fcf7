/* SPDX-License-Identifier: Apache-2.0 */
/* Other machines: programs are recorded from their start only. */
#include "trace/collector/programs/attach_registers.h"

bool registers_are_known(void)
{
    return false;
}

bool registers_read(int32_t tid, struct registers *registers_out)
{
    (void)tid;
    (void)registers_out;
    return false;
}

bool registers_write(int32_t tid, const struct registers *registers)
{
    (void)tid;
    (void)registers;
    return false;
}

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
    (void)registers;
    return 0;
}

void registers_pc_set(struct registers *registers, uint64_t pc)
{
    (void)registers;
    (void)pc;
}

uint64_t registers_thread_pointer(int32_t tid)
{
    (void)tid;
    return 0;
}

uint64_t registers_free_stack(const struct registers *registers)
{
    (void)registers;
    return 0;
}

bool registers_call(int32_t tid, const struct registers *saved, uint64_t function, const uint64_t arguments[6],
                    uint64_t stack)
{
    (void)tid;
    (void)saved;
    (void)function;
    (void)arguments;
    (void)stack;
    return false;
}

bool registers_returned(int32_t tid, uint64_t *result)
{
    (void)tid;
    (void)result;
    return false;
}

bool registers_wait_for_lock(int32_t tid)
{
    (void)tid;
    return false;
}
