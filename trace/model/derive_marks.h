/* SPDX-License-Identifier: Apache-2.0 */
/* Named phases of the program (varve_mark_begin, varve_mark_end). */
#ifndef VARVE_TRACE_MODEL_DERIVE_MARKS_H
#define VARVE_TRACE_MODEL_DERIVE_MARKS_H

struct derive_step;
struct varve_message;

/// Take a MARK_BEGIN or MARK_END: a row of `mark` begins, or the innermost one of this name in the process ends.
int derive_mark(const struct derive_step *step, struct varve_message *message);

#endif
