/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording that is put together again from what a second sink got. Records go into a table as they come
 * (rebuild_records.c), call sites into call-site files (rebuild_callsites.c), the rest into memory (rebuild.c). At the
 * end control pages and ring files are made of it (rebuild_directory.c), and the collector reads them as if the
 * workload had written them (rebuild_finish.c). All of it belongs to one thread. Files have numbers for names until it
 * is known at the end whose they are.
 */
#ifndef VARVE_TRACE_IMPORT_REBUILD_H
#define VARVE_TRACE_IMPORT_REBUILD_H

#include "base/hash_index.h"
#include "trace/collector/collector_clock.h"
#include "trace/collector/collector.h"
#include "trace/format/ring_format.h"
#include "trace/import/rebuild_callsites.h"
#include "trace/import/rebuild_records.h"
#include "trace/record.h"
#include "base/error.h"
#include "trace/sink.h"
#include "trace/writer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REBUILD_NUMBER_LIMIT (UINT64_C(1) << 48)  /* ring sequence numbers: larger ones are damage */
#define REBUILD_PROCESS_LIMIT (UINT32_C(1) << 20) /* process numbers */
#define REBUILD_PATH_BYTES (DIRECTORY_PATH_BYTES + 64U)

struct rebuild_ring {
    struct varve_sink_origin origin;
    uint32_t id;         /* in the table of records, and in `rings` */
    uint64_t tid_number; /* lowest record so far: its tid is origin.tid */
    struct rebuild_process *process;
    bool is_described, has_end;
    uint64_t created_ticks;
    char name[16];
    struct varve_sink_thread_end end;
    /* at the end, in the order of numbers: what the collector will read */
    uint64_t records, markers;        /* its rows; a marker stands for missing records */
    uint64_t missing;                 /* what the markers stand for */
    uint64_t last;                    /* number of the last row */
    uint64_t lost, lost_bytes;        /* as LOST records say */
    uint64_t first_ticks, last_ticks; /* UINT64_MAX, 0: no record */
    uint64_t begin_ticks;
    bool is_open; /* the collector has it */
};

struct rebuild_process {
    uint32_t number;
    int32_t pid;
    uint64_t file;                    /* number in file names; also the order of appearance */
    bool is_described, is_of_another; /* of another recording in the same trace */
    struct varve_sink_process description;
    char *executable, *command_line, *exec_path;
    bool has_end;
    uint32_t end;
    struct rebuild_callsites callsites;
    /* at the end */
    bool is_taken;
    struct rebuild_ring **rings; /* by index */
    size_t ring_count, ring_capacity, rings_open;
    uint64_t first_ticks, last_ticks;
    bool is_replaced, has_closed;
};

struct rebuild_meta {
    char *key, *text; /* text NULL: integer */
    int64_t integer;
};

struct rebuild_stat {
    char *name;
    bool is_loss;
    uint64_t value;
};

struct varve_rebuild {
    char *path;
    char folder[DIRECTORY_PATH_BYTES]; /* "": not made yet */
    bool may_replace;
    int error; /* the first one */
    struct varve_message message;
    bool has_trace_id;
    uint64_t trace_id; /* the first that came */
    uint64_t events, damaged;
    struct rebuild_records *records;
    struct index ring_index, process_index; /* by number, ring and pid: positions in the arrays */
    struct rebuild_ring **rings;            /* in order of appearance */
    size_t ring_count, ring_capacity;
    struct rebuild_process **processes;
    size_t process_count, process_capacity;
    struct rebuild_ring *ring_last; /* the one of the last record */
    struct rebuild_callsites_buffer callsites;
    struct clock_anchor *anchors;
    size_t anchor_count, anchor_capacity;
    struct rebuild_meta *meta;
    size_t meta_count, meta_capacity;
    struct rebuild_stat *stats;
    size_t stat_count, stat_capacity;
    /* of rebuild_directory.c, at the end */
    struct varve_record *block; /* RING_STAGING_RECORDS */
    uint8_t *packed;            /* such a block packed, its struct record_block before it */
};

/// Keep the first error; returns it.
int rebuild_keep(struct varve_rebuild *rebuild, int code, const struct varve_message *message);
int rebuild_no_memory(struct varve_message *message);
int rebuild_keep_no_memory(struct varve_rebuild *rebuild);
/// Made if there is none; NULL: an error is kept, or the numbers make no sense (which is counted).
struct rebuild_process *rebuild_process_of(struct varve_rebuild *rebuild, uint32_t number, int32_t pid);
/// Write all of `bytes` at `offset`, < 0: at the end; the file is made if it is not there.
int rebuild_file_write(const char *path, const void *bytes, size_t count, int64_t offset,
                       struct varve_message *message);

#endif
