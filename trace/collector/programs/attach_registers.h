/* SPDX-License-Identifier: Apache-2.0 */
/* Registers of a thread that is traced and stopped, and a function call made of them. One file per machine. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_ATTACH_REGISTERS_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_ATTACH_REGISTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGISTERS_GENERAL_BYTES 512U
#define REGISTERS_VECTOR_BYTES 16384U

struct registers {
    _Alignas(64) unsigned char general[REGISTERS_GENERAL_BYTES];
    _Alignas(64) unsigned char vector[REGISTERS_VECTOR_BYTES];
    size_t general_bytes, vector_bytes;
};

/// Can functions be called in a process of this machine?
bool registers_are_known(void);

/// All registers of the thread; false: it is gone.
bool registers_read(int32_t tid, struct registers *registers_out);
/// All of them back. A system call that was interrupted is then begun again by the kernel, as it would have been: all
/// but those that end with EINTR also where there was no signal (signal(7)), of which registers_repeat takes care.
bool registers_write(int32_t tid, const struct registers *registers);
/// The thread was just stopped, not for a signal: if that has ended a call with EINTR (epoll_wait, semtimedop,
/// sendmmsg, io_uring_enter, those on sockets with a time limit, and others), it's begun again once the thread goes on,
/// its time anew; unless there is a signal by then, which ends it as it should. x86-64 only: elsewhere the program gets
/// EINTR.
void registers_repeat(int32_t tid);
/// A handler has run meanwhile, with which the kernel forgets how much of its time a call has left: the one of `saved`,
/// if it is of these (nanosleep, poll), begins anew.
void registers_repeat_anew(int32_t tid, struct registers *saved);

/// The instruction that the thread is at.
uint64_t registers_pc(const struct registers *registers);
void registers_pc_set(struct registers *registers, uint64_t pc);

/// Where the C library keeps what it knows of the thread, on both sides; 0: unknown.
uint64_t registers_thread_pointer(int32_t tid);

/// Where the thread has its stack, below what the function it is in may use without moving the pointer.
uint64_t registers_free_stack(const struct registers *registers);

/// Let the thread, whose registers were `saved`, call `function` with these arguments on the stack at `stack` (a
/// multiple of 16; what lies below is free) once it goes on; it ends by returning to address 0, which is a SIGSEGV.
bool registers_call(int32_t tid, const struct registers *saved, uint64_t function, const uint64_t arguments[6],
                    uint64_t stack);
/// The thread has stopped by a signal: because such a call has returned? Then its result.
bool registers_returned(int32_t tid, uint64_t *result);
/// It waits in the kernel for a lock (futex).
bool registers_wait_for_lock(int32_t tid);

#endif
