/* SPDX-License-Identifier: Apache-2.0 */
/* Who lives, by locks of files and by /proc. */
#ifndef VARVE_TRACE_COLLECTOR_SESSION_LIVENESS_H
#define VARVE_TRACE_COLLECTOR_SESSION_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

struct process_identity;
struct session_directory;

/// Somebody holds a lock of the file of `fd`.
bool liveness_is_locked(int fd);
/// On the file system of this file of the session a mapping keeps the locks of its file.
bool liveness_locks_work(const struct session_directory *directory, const char *name);
/// Our own PID namespace, as process_identity has it.
uint64_t liveness_namespace(void);
/// The number, here, of a process of any namespace; 0: there is none. Reads all of /proc.
int32_t liveness_find(const struct process_identity *identity);
/// The same of a process without /proc, which does not know its namespace: of those whose innermost one gave them
/// `pid`, one that has this session mapped; `pid` itself first.
int32_t liveness_find_unplaced(int32_t pid, uint64_t trace_id);
/// Some process other than this one was started with this session in its environment. Reads all of /proc.
bool liveness_has_followers(const char *session);

#endif
