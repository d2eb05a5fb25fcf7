/* SPDX-License-Identifier: Apache-2.0 */
/* From the stack at a hook to a 32-bit number, which stands for it in records. */
#ifndef VARVE_TRACE_STACKS_CALLSITE_HERE_H
#define VARVE_TRACE_STACKS_CALLSITE_HERE_H

#include "trace/stacks/native_stack.h"

#include <stdint.h>

/// What attaches this process image to its session, by callsite_attach in the end: called by the first capture. Set
/// before it; threads that set it set the same.
void callsite_attach_by(void (*attach)(void));

/// Prepare for this process image: opens `callsite_file_path` for appending. `stacks` and `depth` as in
/// session_control. Called once per process image, again in a fork child (numbers start again at 1, all
/// earlier state is forgotten). Returns 0 or a negative varve_error; then capture returns 0 from there on.
int callsite_attach(const char *callsite_file_path, unsigned stacks, unsigned depth);

/// The recording of this process image is over: what it keeps of call sites goes, and the next capture attaches anew.
/// No thread is in a capture, and none comes before callsite_attach.
void callsite_release(void);

/// At most so many different stacks get a number, and never more than 3 Mi (0: that many); all others get
/// CALLSITE_FILE_NOT_KEPT. Before callsite_attach.
void callsite_limit(uint32_t stacks);

/// How the file of the next callsite_attach gets longer where it can't be opened any more: the collector sees
/// `growth`, bytes of the file. `reserve`: it is not a file of its own but lies there, from `offset` on; NULL: it is
/// one. Both stay until callsite_release. Before callsite_attach.
struct session_growth;
void callsite_grow_by(struct session_growth *growth, const void *reserve, uint64_t offset);

/// Number of the current stack, 0 if there is none (stacks off, nested call in a signal handler, no memory).
/// The call site is in the file before the number is returned. Threads: any; async-signal-safe.
uint32_t callsite_capture(const struct callsite_start *start);
/// The same, with the parent stack that another thread has published where this one has no Python frames.
uint32_t callsite_capture_inheriting(const struct callsite_start *start);

/// The set of loaded objects may have changed (after dlopen, before dlclose): rescans at the next capture.
void callsite_modules_changed(void);

#endif
