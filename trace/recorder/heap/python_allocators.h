/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects and buffers of a CPython interpreter, which its own allocator cuts from arenas: seen by hooks that the
 * interpreter offers.
 */
#ifndef VARVE_TRACE_RECORDER_HEAP_PYTHON_ALLOCATORS_H
#define VARVE_TRACE_RECORDER_HEAP_PYTHON_ALLOCATORS_H

/// Once per program, before main and while it has one thread: an interpreter that it is linked with calls our hooks
/// from its first object on.
void python_allocators_hook(void);

#endif
