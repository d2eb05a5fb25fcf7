/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording that is put together again from what a second sink got: the directory that its programs would have left.
 * Records go into ring files as they come (rebuild_rings.c), call sites into call-site files (rebuild_callsites.c), the
 * rest into memory (rebuild.c) and at the end into control pages (rebuild_directory.c). Then the collector reads it all
 * as it does in `recover` (rebuild_finish.c). All of it belongs to one thread. Files have numbers for names until it is
 * known at the end whose they are.
 */
#ifndef VARVE_TRACE_IMPORT_REBUILD_H
#define VARVE_TRACE_IMPORT_REBUILD_H

#include "base/error.h"
#include "base/hash_index.h"
#include "trace/collector/collector.h"
#include "trace/collector/collector_clock.h"
#include "trace/format/callsite_format.h"
#include "trace/format/ring_format.h"
#include "trace/record.h"
#include "trace/sink.h"
#include "trace/writer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#define REBUILD_TAGS (CALLSITE_FILE_TAG_STACK + 1U)

struct rebuild_callsites {
    struct rebuild_bits seen[REBUILD_TAGS]; /* by tag of the entry */
    bool has_file;
};

/* Entries of one process after the other are gathered here. */
struct rebuild_callsites_buffer {
    uint8_t *bytes;
    size_t count;
    uint64_t file; /* number of the process they belong to */
};

/* Entries; one that comes again is nothing. Errors are kept by the rebuild. */
void rebuild_module(struct varve_rebuild *rebuild, const struct varve_sink_module *from);
void rebuild_module_gone(struct varve_rebuild *rebuild, uint32_t process, int32_t pid, uint32_t number);
void rebuild_code(struct varve_rebuild *rebuild, const struct varve_sink_code *from);
void rebuild_callsite(struct varve_rebuild *rebuild, const struct varve_sink_callsite *from);
/// Write what is gathered; an error is kept by the rebuild.
int rebuild_callsites_flush(struct varve_rebuild *rebuild);
void rebuild_callsites_path(const struct varve_rebuild *rebuild, uint64_t file, char *path, size_t bytes);
void rebuild_callsites_drop(struct rebuild_callsites *callsites);

#define REBUILD_NUMBER_LIMIT (UINT64_C(1) << 48)  /* ring sequence numbers: larger ones are damage */
#define REBUILD_PROCESS_LIMIT (UINT32_C(1) << 20) /* process numbers */
#define REBUILD_PATH_BYTES (DIRECTORY_PATH_BYTES + 64U)

#define REBUILD_BUFFER_RECORDS 64U /* of each ring: 4 KiB, as there may be ten thousand */

struct rebuild_late;

struct rebuild_ring {
    struct varve_sink_origin origin;
    uint32_t id;         /* in the name of its file */
    uint64_t tid_number; /* lowest record so far: its tid is origin.tid */
    struct rebuild_process *process;
    bool is_described, has_end;
    uint64_t created_ticks;
    char name[16];
    struct varve_sink_thread_end end;
    /* what the collector will read, so far */
    uint64_t records, markers;        /* its rows; a marker stands for missing records */
    uint64_t missing;                 /* what the markers stand for */
    uint64_t last;                    /* number of the last row */
    uint64_t lost, lost_bytes;        /* as LOST records say */
    uint64_t first_ticks, last_ticks; /* UINT64_MAX, 0: no record */
    uint64_t rows_written;            /* the others are in `buffer` */
    struct varve_record *buffer;      /* REBUILD_BUFFER_RECORDS; NULL: none came, or all is written */
    struct rebuild_late *late;        /* records that came after one with a higher number */
    size_t late_count, late_capacity;
    uint64_t begin_ticks; /* at the end: nothing of it, nor of later rings of its process, is older */
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
    uint32_t rings;
    uint64_t first_ticks, last_ticks;
    uint64_t begin_ticks; /* nothing of its rings is older */
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

/* rebuild_rings.c */

/// A record, in any order; of equal numbers the first is kept.
int rebuild_ring_add(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, uint64_t number,
                     const struct varve_record *record, struct varve_message *message);
/// All came: its rows and figures are final.
int rebuild_ring_end(const struct varve_rebuild *rebuild, struct rebuild_ring *ring, struct varve_message *message);
/// Its file becomes one that the collector reads.
int rebuild_ring_name(const struct varve_rebuild *rebuild, const struct rebuild_ring *ring,
                      struct varve_message *message);
void rebuild_ring_free(struct rebuild_ring *ring);

/* rebuild_directory.c */

/// Control page and call-site file.
int rebuild_process_write(const struct varve_rebuild *rebuild, const struct rebuild_process *process,
                          struct varve_message *message);

#endif
