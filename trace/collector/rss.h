/* SPDX-License-Identifier: Apache-2.0 */
/* Resident memory of the recorded processes over time, as the kernel counts it. */
#ifndef VARVE_TRACE_COLLECTOR_RSS_H
#define VARVE_TRACE_COLLECTOR_RSS_H

#include "base/downsample.h"

#include <stdbool.h>
#include <stdint.h>

struct collector;
struct traced_process;

/* Of one process. */
struct process_rss {
    int folder_fd;  /* its folder in /proc, which stays its own when the pid is given out anew; -1: not to be had */
    bool is_sought; /* all of /proc was searched for it */
    bool is_stored;
    uint64_t now_bytes;        /* of the last sample; 0: unknown, or it has ended */
    uint64_t peak_bytes;       /* the largest that the kernel reported; 0: unknown */
    uint64_t ended_peak_bytes; /* of waitpid, its waited-for children and earlier images included; 0: unknown */
    struct downsample samples; /* rows of time, bytes, and the most since the row before */
};

/* Of all of them. */
struct collect_rss {
    struct downsample samples; /* sums over those that live */
    uint64_t now_bytes;        /* the last one */
    uint64_t next_ns, next_search_ns;
    uint64_t own_bytes; /* of the collector when it started the program, which had as much until exec; 0: unknown */
    uint64_t points_written; /* rows of processes that ended */
};

/// The process is watched from here on, and sampled once. Before it ends.
void collect_rss_begin(struct collector *collector, struct traced_process *process);
/// In every round: a sample of all processes, if it is time for one.
void collect_rss_round(struct collector *collector, uint64_t now_ns);
/// The largest resident memory of a process, as far as it is known; 0: not known.
uint64_t collect_rss_peak(const struct collector *collector, const struct traced_process *process);
/// The process has ended, or the recording: its rows.
int collect_rss_rows(struct collector *collector, struct traced_process *process);
/// The recording has ended: the rows of all processes together.
int collect_rss_finish(struct collector *collector);
/// Let go of /proc.
void collect_rss_end(struct traced_process *process);

#endif
