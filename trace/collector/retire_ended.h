/* SPDX-License-Identifier: Apache-2.0 */
/* Rings and processes that ended: their rows become final, their files go after the commit. */
#ifndef VARVE_TRACE_COLLECTOR_RETIRE_ENDED_H
#define VARVE_TRACE_COLLECTOR_RETIRE_ENDED_H

#include <stddef.h>
#include <stdint.h>

struct collector;
struct process_control;
struct ring_reader;
struct traced_process;

/// After a commit: remove the files of what was retired before it.
void collect_files_remove(struct collector *collector);
/// After a commit: close the rings that ended and the processes all of whose rings did.
int collect_processes_retire(struct collector *collector);
/// A counter of a page that programs write; 0 if nobody can have counted so far.
uint64_t collect_plausible(uint64_t count);
/// Executable and arguments as rows show them: ends with NUL, arguments separated by blanks.
void collect_process_command(const struct process_control *control, char *text, size_t bytes);
/// Events lost so far, as far as rings and pages say.
uint64_t collect_lost(const struct collector *collector);
int collect_process_row(struct collector *collector, struct traced_process *process);
int collect_thread_row(struct collector *collector, const struct ring_reader *reader, int64_t end_ns);

#endif
