/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that were run and could not be recorded. */
#ifndef VARVE_TRACE_COLLECTOR_UNRECORDED_PROGRAMS_H
#define VARVE_TRACE_COLLECTOR_UNRECORDED_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>

struct collector;
struct process_identity;

int collect_execs_open(struct collector *collector);
void collect_execs_close(struct collector *collector);
/// The child of the collector is about to run a program that should load the recorder.
void collect_execs_await(struct collector *collector, const struct process_identity *process, const char *path);
/// A child of the collector ended: how is known of it alone.
void collect_execs_ended(struct collector *collector, int32_t pid, int wait_status);
/// Take the notes that programs have written, once per round.
void collect_execs_take(struct collector *collector);
/// Many notes wait for a commit.
bool collect_execs_are_tight(const struct collector *collector);
/// Before a commit, and after it.
int collect_execs_store(struct collector *collector);
void collect_execs_committed(struct collector *collector);
/// Programs other than the first were run.
bool collect_execs_any(const struct collector *collector);
/// The recording is over: what is still awaited never came. Sets sum.unrecorded.
int collect_execs_finish(struct collector *collector);

#endif
