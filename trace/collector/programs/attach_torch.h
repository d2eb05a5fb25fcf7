/* SPDX-License-Identifier: Apache-2.0 */
/* The end of PyTorch's history that the interpreter of an attached process keeps (recorder/attach). Threads: one. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_ATTACH_TORCH_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_ATTACH_TORCH_H

#include <stdbool.h>
#include <stdint.h>

struct session_directory;
struct target;
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
                         const struct varve_collect_options *options, struct varve_message *message);

/// While somebody watches the memory as it is is asked for, once a second, if the last time was heard: that costs two
/// system calls. Nobody waits for what comes of it, and it goes with the last watcher.
void attach_torch_show(struct attach_torch *torch, bool is_watched, uint64_t now_ns);

/// The history lies in the directory and is no longer kept, and all is as it was, when this returns, or `remark_out`
/// says what is not so. `goes_on` is called meanwhile, since threads may wait for the collector; false: the user does
/// not wait. `target` has the recorder.
void attach_torch_end(struct attach_torch *torch, const struct target *target, bool (*goes_on)(void *context),
                      void *context, struct varve_message *remark_out);

/// The history that lies in the directory goes to PREFIX.PID.pickle, with what is to be added to it; where that can't
/// be done `remark_out` says so. False: there is none.
bool attach_torch_take(const struct session_directory *directory, const char *prefix, int32_t pid,
                       struct varve_message *remark_out);

void attach_torch_close(struct attach_torch *torch);

#endif
