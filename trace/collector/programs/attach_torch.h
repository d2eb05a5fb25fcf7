/* SPDX-License-Identifier: Apache-2.0 */
/* The end of PyTorch's history that the interpreter of an attached process keeps (recorder/attach). Threads: one. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_ATTACH_TORCH_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_ATTACH_TORCH_H

#include <stdbool.h>
#include <stdint.h>

struct session_directory;
struct varve_collect_options;
struct varve_message;

struct attach_torch {
    int ask;    /* what is read there ends with this; -1 */
    int folder; /* the recording directory; borrowed */
    uint64_t next_ns;
    bool has_asked; /* for the memory as it is */
};

/// Before the process is attached to: the directory says what its Python is to run. Errors: VARVE_ERROR_IO.
int attach_torch_prepare(struct attach_torch *torch, const struct session_directory *directory,
                         const struct varve_collect_options *options, const char *history,
                         struct varve_message *message);

/// While somebody watches the memory as it is is asked for, once a second, if the last time was heard: that costs two
/// system calls. Nobody waits for what comes of it, and it goes with the last watcher.
void attach_torch_show(struct attach_torch *torch, bool is_watched, uint64_t now_ns);

/// The history is written and no longer kept, and all is as it was, when this returns, or `remark_out` says what is
/// not so. False: there is no history. `idle` is called meanwhile: threads may wait for the collector. `pid` lives.
bool attach_torch_end(struct attach_torch *torch, int32_t pid, void (*idle)(void *context), void *idle_context,
                      struct varve_message *remark_out);

void attach_torch_close(struct attach_torch *torch);

#endif
