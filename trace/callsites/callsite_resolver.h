/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for frames, in a thread of its own: batch by batch while the program runs, the rest after its end. What comes
 * out depends on the order of the frames alone, not on when which of them were asked for. Everything here is
 * called by one thread.
 */
#ifndef VARVE_TRACE_CALLSITES_CALLSITE_RESOLVER_H
#define VARVE_TRACE_CALLSITES_CALLSITE_RESOLVER_H

#include "trace/store/store.h"
#include "trace/callsites/stack_merge.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct callsites;
struct resolver;
struct store_symbol;
struct varve_message;

/* The frames that are resolved: a prefix of all. All zero: none. */
struct resolved_frames {
    struct callsites_resolved *frames; /* of frame n at [n - 1] */
    size_t frame_capacity;
    uint32_t count;
    struct callsites_line_symbol *symbols; /* `symbol` is a number of resolver_symbol */
    size_t symbol_count, symbol_capacity;
};

/// Owner of the result: the caller, until resolver_close, which waits for the thread. Nothing is started yet.
int resolver_open(struct resolver **resolver_out, struct varve_message *message);
void resolver_close(struct resolver *resolver);

/// While the program runs: what is resolved is appended to `resolved`, and the thread, which gives way to everybody
/// else and rests for most of the time, gets the frames that are new. Never waits.
int resolver_step(struct resolver *resolver, const struct callsites *callsites, struct resolved_frames *resolved);
/// The program is over: the thread resolves all that is left, as fast as it can. To be called once,
/// before resolver_wait.
int resolver_hurry(struct resolver *resolver, const struct callsites *callsites, struct resolved_frames *resolved);
/// After resolver_hurry: until everything is resolved, and appended to `resolved`. `progress` may be NULL.
int resolver_wait(struct resolver *resolver, struct resolved_frames *resolved, store_progress progress, void *context);

/// The thread has no batch: resolver_symbol may be called for what is in `resolved`, until the next resolver_step.
bool resolver_rests(const struct resolver *resolver);

/// After resolver_wait: the symbols that occur, from 1, each once; texts are borrowed until resolver_close.
uint32_t resolver_symbol_count(const struct resolver *resolver);
void resolver_symbol(const struct resolver *resolver, uint32_t number, struct store_symbol *symbol_out);

#endif
