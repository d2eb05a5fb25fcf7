/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of a recording under way, in the order of seq, in a file beside its database: each is there from the
 * commit on by which its ring was told, until it has become rows. A heap event takes about ten bytes. One
 * thread at a time, but for event_log_write.
 */
#ifndef VARVE_TRACE_STORE_EVENT_LOG_H
#define VARVE_TRACE_STORE_EVENT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event;
struct varve_message;

struct event_log;

/// Make the file `path`, or open it to go on behind its first `bytes` bytes, or what is left of
/// them: what follows was never committed. Owner of the result: the caller, until event_log_close. Errors:
/// VARVE_ERROR_NO_MEMORY and those of files, with the reason in `message`.
int event_log_create(const char *path, struct event_log **log_out, struct varve_message *message);
int event_log_resume(const char *path, uint64_t bytes, struct event_log **log_out, struct varve_message *message);
void event_log_close(struct event_log *log);
/// All of it is in rows: the file goes.
void event_log_remove(struct event_log *log);

/// Append an event, of which everything but its row follows from the events before it and from its allocation if it
/// `is_plain` (store.c). Seqs grow. Errors: VARVE_ERROR_NO_MEMORY.
int event_log_append(struct event_log *log, const struct event *event, bool is_plain);
/// What was appended is to be written next. Errors: VARVE_ERROR_NO_MEMORY.
int event_log_seal(struct event_log *log);
/// Write that into the file: any thread, while another one appends, but does not seal. VARVE_ERROR_FULL and others:
/// nothing has changed, and it may be called again.
int event_log_write(struct event_log *log, struct varve_message *message);
/// Both: all that was appended is in the file.
int event_log_flush(struct event_log *log, struct varve_message *message);
/// The length of the file as of the last event_log_seal, which a commit notes.
uint64_t event_log_bytes(const struct event_log *log);
/// Events appended that event_log_rest has not handed out, plain ones left aside.
uint64_t event_log_waiting(const struct event_log *log);

/// Hand out the events that are in the file, before any is appended or handed out by event_log_rest; of plain ones id,
/// requested, and the size of what is freed are 0. The first value of `take` other than 0 ends that and is returned.
/// Errors: VARVE_ERROR_CORRUPT: what follows the events that were handed out can't be read, and is cut off.
int event_log_each(struct event_log *log, int (*take)(void *context, struct event *event, bool is_plain), void *context,
                   struct varve_message *message);
/// Hand out the events that are in the file and not plain, from where the last call ended. `take` returns false to be
/// handed the same one by the next call.
int event_log_rest(struct event_log *log, bool (*take)(void *context, struct event *event), void *context,
                   struct varve_message *message);

#endif
