/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of a recording under way, as a small SQLite database of their own (live.sql): made in memory, handed out
 * as the bytes of its file. Nothing here touches the trace database, nor can it fail the recording. One thread.
 */
#ifndef VARVE_TRACE_STORE_LIVE_STORE_H
#define VARVE_TRACE_STORE_LIVE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct leader;
struct live;
struct store_symbol;
struct total;

struct live_moment {
    int64_t ts_ns;
    const char *command;
    int32_t pid;
    bool is_over;
    uint64_t events, waiting, lost, rss_bytes; /* rss_bytes 0: NULL */
    uint32_t processes, processes_running, threads;
};

struct live_allocator {
    uint32_t process_id, device, segments;
    uint64_t reserved, active, allocated, requested, cached;
};

struct live_process {
    uint32_t id;
    int32_t pid, rank; /* rank < 0: NULL */
    const char *command_line;
    uint64_t rss_bytes; /* 0: NULL */
    uint32_t threads;
};

/// Owner of the result: the caller, until live_close. Errors: VARVE_ERROR_NO_MEMORY, DATABASE.
int live_open(struct live **live_out);
void live_close(struct live *live);

/// A new moment: what the one before had is forgotten, but for what rates need, and names. Then the rows;
/// then live_bytes.
int live_begin(struct live *live, const struct live_moment *moment);
int live_total(struct live *live, uint32_t process_id, unsigned slot, const struct total *total);
int live_callsite(struct live *live, const struct leader *leader);
int live_allocator(struct live *live, const struct live_allocator *row);
int live_process(struct live *live, const struct live_process *row);
bool live_has_name(struct live *live, uint32_t callsite);
/// `user`: the innermost frame that is not plumbing; `symbol`: the innermost that is no allocation function.
int live_name(struct live *live, uint32_t callsite, const struct store_symbol *user, const struct store_symbol *symbol);

/// End the moment; its database as a file has it. Owner: the caller, by live_bytes_free. NULL on failure.
void *live_bytes(struct live *live, size_t *bytes_out);
void live_bytes_free(void *bytes);

#endif
