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

#include "base/error.h"
#include "base/hash_index.h"
#include "trace/collector/collector.h"
#include "trace/collector/collector_clock.h"
#include "trace/format/ring_format.h"
#include "trace/record.h"
#include "trace/sink.h"
#include "trace/writer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The records of a rebuild as they come, in a table of an SQLite file of their own, which gives them back in the order
 * of ring and number. One thread calls all of it.
 */

struct rebuild_records;

/// `path`: a new file, which stays. Owner of the result: the caller, until rebuild_records_close. Errors: FULL, IO,
/// NO_MEMORY.
int rebuild_records_open(const char *path, struct rebuild_records **records_out, struct varve_message *message);
void rebuild_records_close(struct rebuild_records *records); /* NULL is allowed */

/// Of equal (ring, number) the first record is kept.
int rebuild_records_add(struct rebuild_records *records, uint32_t ring, uint64_t number,
                        const struct varve_record *record, struct varve_message *message);

struct rebuild_row {
    uint32_t ring;
    uint64_t number;
    struct varve_record record;
};

#define REBUILD_RINGS_ALL UINT32_MAX

/// Begin to read one ring or all; nothing is added from now on.
int rebuild_records_seek(struct rebuild_records *records, uint32_t ring, struct varve_message *message);
/// The next row. VARVE_ERROR_NOT_FOUND, without a message: there is none.
int rebuild_records_next(struct rebuild_records *records, struct rebuild_row *row, struct varve_message *message);

/*
 * The call-site files of a rebuild, one per process: modules, code objects and call sites in the order in which they
 * came, as the workload wrote them. One thread calls all of it.
 */

struct varve_rebuild;

/* Numbers that came already, one bit each. */
struct rebuild_bits {
    uint64_t *words;
    size_t word_count;
};

struct rebuild_callsites {
    struct rebuild_bits modules, gone, codes, callsites;
    bool has_file;
};

/* Entries of one process after the other are gathered here. */
struct rebuild_callsites_buffer {
    uint8_t *bytes;
    size_t count;
    uint64_t file; /* number of the process they belong to */
};

/// Write what is gathered; an error is kept by the rebuild.
int rebuild_callsites_flush(struct varve_rebuild *rebuild);
void rebuild_callsites_path(const struct varve_rebuild *rebuild, uint64_t file, char *path, size_t bytes);
void rebuild_callsites_drop(struct rebuild_callsites *callsites);

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

/* The recording directory that a rebuild makes for the collector. One thread calls all of it. */

struct varve_message;

/// What the headers of all rings will say, in one go through the records.
int rebuild_rings_measure(const struct varve_rebuild *rebuild, struct varve_message *message);
/// The files of a ring under the names that the collector looks for. `may_spill`: else no descriptor is needed to read
/// it, and it takes four times the space.
int rebuild_ring_write(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, bool may_spill,
                       struct varve_message *message);
/// Control page and call-site file.
int rebuild_process_write(const struct varve_rebuild *rebuild, const struct rebuild_process *process,
                          struct varve_message *message);

#endif
