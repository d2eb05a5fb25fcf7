/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of the recording come and go. */
#ifndef VARVE_TRACE_COLLECTOR_TRACED_PROCESS_H
#define VARVE_TRACE_COLLECTOR_TRACED_PROCESS_H

#include "trace/collector/rss.h"
#include "trace/format/session_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct collector;
struct session_directory;

struct traced_process {
    uint32_t id;
    int32_t pid;
    struct process_control *control; /* NULL once closed */
    int pidfd;                       /* -1: not to be had */
    uint32_t rings_seen;             /* ring numbers below were opened or given up */
    bool late_opened;
    bool has_ended;       /* no thread of it can emit any more */
    bool is_replaced;     /* by exec: another image runs under its pid */
    bool was_executing;   /* is_closed: the last that it did was to exec */
    bool saw_end;         /* its rings were counted after it had ended */
    bool is_child;        /* of the collector: waitpid will report how it ended */
    bool is_closed;       /* all its rings are retired, its row is final */
    bool is_made_up;      /* its control page is gone, or damaged: this one is ours, and says little */
    uint32_t readers;     /* open ones */
    uint32_t rings_found; /* not counting those that the database of an interrupted recording knows */
    int64_t start_ns, end_ns;
    int wait_status;        /* -1 if not known */
    uint32_t rings_missing; /* numbers given up so far: a thread that was stopped may make its ring late */
    uint8_t *opened;        /* a bit for each ring number */
    size_t opened_bytes;
    uint32_t attach_limit;            /* ring numbers below were taken when the present wait began */
    uint64_t attach_seen_ns;          /* CLOCK_MONOTONIC when a ring number without a file was first seen, 0 = none */
    uint64_t attach_bound;            /* no record of that ring is older than this, ticks */
    struct process_identity identity; /* as the control page had it when it was first seen */
    bool is_ours;                     /* its pid is a number of our namespace, as far as is known */
    int lock_fd;                      /* of the control page, whose lock says that it lives; -1: pid checks */
    uint64_t next_search_ns;          /* when /proc may be searched for it again */
    struct process_rss rss;
};

/* Of an interrupted recording: its row is complete, and its control page most often gone. */
struct ended_process {
    uint32_t id, parent_id;
};

/* A process that waitpid reported before its control page was seen. */
struct reaped {
    int32_t pid;
    int wait_status;
    uint64_t peak_rss_bytes;
};

#define REAPED_KEPT 256U

int collect_processes_discover(struct collector *collector, uint64_t *bound);
void collect_processes_check(struct collector *collector);
void collect_process_reaped(struct collector *collector, int32_t pid, int wait_status, uint64_t peak_rss_bytes);
/// An image that `identity` names has recorded something, and has not executed another program since.
bool collect_process_has_page(const struct collector *collector, const struct process_identity *identity);
/// The pid of the process image with this number if it still runs, else 0.
int32_t collect_process_alive(const struct session_directory *directory, uint32_t id);
/// A process of the session may still record something, whether it has a page yet or not: it found the
/// session, or was forked from one that did, or has just been started with the session in its environment.
bool collect_session_lives(struct collector *collector);
/// Announce the call sites of a process, which are in a file of their own or in the reserve.
int collect_process_callsites(struct collector *collector, uint32_t id);
/// Those that are in the reserve get a file, before their slot is released.
int collect_process_callsites_keep(struct collector *collector, const struct traced_process *process);
/// Its control page, and what says that it lives.
void collect_process_release(struct traced_process *process);
void collect_processes_close(struct collector *collector);
/// Of an interrupted recording, after the rounds' own discovery: an ended process that has no page any more.
bool collect_process_is_over(const struct collector *collector, const struct ended_process *ended);
/// How many numbers processes have taken, as far as these are followed.
uint32_t collect_processes_announced(const struct collector *collector);
/// Numbers of processes that could not make a page: what they did is not recorded.
uint32_t collect_processes_unattached(const struct collector *collector);
/// Control pages that were made, and that nobody has seen.
uint32_t collect_processes_missing(const struct collector *collector);

#endif
