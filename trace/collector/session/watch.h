/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who watches a recording, and what he gets: the collector's side. That of the watcher is in trace/collect.h
 * (varve_watch_…).
 *
 *   ring/watch     empty; byte 1 is locked by the collector while it has the directory, byte 0 by each watcher
 *                  (shared). Locks of open file descriptions: they go with their holder, however it ends, and
 *                  nobody waits for one
 *   ring/live.json figures of a moment, only while somebody watches; another file takes its place each time
 */
#ifndef VARVE_TRACE_COLLECTOR_SESSION_WATCH_H
#define VARVE_TRACE_COLLECTOR_SESSION_WATCH_H

#include <stdbool.h>
#include <stddef.h>

struct session_directory;

/// The recording can be watched from here on, until session_directory_close. If that fails, it can't be.
void watch_allow(struct session_directory *directory);
/// Somebody watches now: one system call.
bool watch_is_wanted(const struct session_directory *directory);
/// The figures of a moment in place of those before, or, without room for them, none.
void watch_publish(const struct session_directory *directory, const void *bytes, size_t count);
/// There are no figures any more.
void watch_withdraw(const struct session_directory *directory);

#endif
