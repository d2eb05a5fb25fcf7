/* SPDX-License-Identifier: Apache-2.0 */
/* Restartable sequences (rseq(2)): code that is begun again elsewhere when the thread was interrupted in it. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_RESTARTABLE_SEQUENCE_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_RESTARTABLE_SEQUENCE_H

#include <stdint.h>

struct registers;

/// The thread is stopped, with these registers, and will do other things before it gets them back: if it is in such a
/// sequence, they become those with which the kernel would have aborted that. The kernel itself sees only where the
/// thread goes on.
void sequence_abort(int32_t tid, struct registers *registers);

#endif
