/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to rebuild*.c */
/*
 * A recording that is put together again from what a second sink was told. Records go into the spill files of
 * a recording directory as they come, descriptions into call-site files and memory; at the end control pages
 * and ring files are made, and the collector reads the directory as if the workload had written it.
 *
 *   varve_rebuild_record ─► rebuild_run (in order: a spill file) ─┐
 *                       └─► rebuild_side (late ones: slices) ─────┴─► settled: one spill file per ring
 *   varve_rebuild_module, … ─► p<N>.sites            settled rings ─► collector: merge, derive, store
 *
 * All of it belongs to one thread. Files have numbers for names until the end tells whose they are.
 */
#ifndef VARVE_TRACE_IMPORT_REBUILD_REBUILD_H
#define VARVE_TRACE_IMPORT_REBUILD_REBUILD_H

#include "trace/collector/clock.h"
#include "trace/collector/collector.h"
#include "trace/format/ring.h"
#include "trace/error.h"
#include "trace/record.h"
#include "trace/trace.h"

#define REBUILD_NUMBER_LIMIT (UINT64_C(1) << 48)  /* ring sequence numbers: larger ones are damage */
#define REBUILD_PROCESS_LIMIT (UINT32_C(1) << 20) /* process numbers */
#define REBUILD_PATH_BYTES (DIRECTORY_PATH_BYTES + 64U)

/* ---- files.c: the folder ---- */

struct rebuild_folder {
    char path[DIRECTORY_PATH_BYTES]; /* "": not made yet */
    uint64_t buffered;               /* bytes that all runs and sides hold in memory */
    struct varve_record *block;      /* scratch: RING_STAGING_RECORDS */
    uint8_t *packed;                 /* scratch: such a block packed, its struct record_block before it */
};

/// Make a folder beside `target`. Errors: NOT_FOUND, PERMISSION, FULL, IO.
int rebuild_folder_make(struct rebuild_folder *folder, const char *target, bool may_replace,
                        struct varve_message *message);
/// Remove it with all that is in it.
void rebuild_folder_remove(struct rebuild_folder *folder);
/// Write all of `bytes`; the file is made if it is not there. The reason is in `message`.
int rebuild_file_write(const char *path, const void *bytes, size_t count, uint64_t offset,
                       struct varve_message *message);
int rebuild_file_append(const char *path, const void *bytes, size_t count, struct varve_message *message);
int rebuild_file_read(const char *path, void *bytes, size_t count, uint64_t offset,
                      struct varve_message *message);
int rebuild_no_memory(struct varve_message *message);

/* ---- run.c: records of one ring in the order of their numbers ---- */

/* Numbers are not kept: they follow from counting (LOST tells how many it skips), and where some are missing
 * a marker is in the run. In the order of the stream:
 *   `blocks` packed blocks of RING_STAGING_RECORDS, in the file runN, `bytes` long
 *   `parked` packed records in the file partN, `packed` ones in memory, `count` in the buffer as they are:
 *   all three are of one block, parked + packed + count < RING_STAGING_RECORDS */
struct rebuild_run {
    /* every record needs these */
    struct varve_record *buffer; /* the first one is `previous` */
    uint32_t count, capacity;
    uint32_t parked, packed;
    uint64_t last;                    /* number of the last record */
    uint64_t first_ticks, last_ticks; /* UINT64_MAX, 0: no record */
    /* some do */
    uint8_t *packed_records;
    uint32_t packed_bytes, packed_capacity;
    uint32_t parked_bytes;
    uint64_t file; /* N */
    uint64_t blocks, bytes;
    uint64_t markers, missing;    /* in the run, and what they stand for */
    uint64_t gap_first, gap_last; /* missing numbers are between these */
    uint64_t lost, lost_bytes;    /* as LOST records tell */
    struct varve_record previous; /* the last packed one of this block, zeros if there is none */
};

void rebuild_run_init(struct rebuild_run *run, uint64_t file);
/// Add a record whose number is above run->last.
int rebuild_run_append(struct rebuild_folder *folder, struct rebuild_run *run, uint64_t number,
                       const struct varve_record *record, struct varve_message *message);
/// Say that the numbers up to `last` are missing at the end.
int rebuild_run_extend(struct rebuild_folder *folder, struct rebuild_run *run, uint64_t last, uint64_t ticks,
                       struct varve_message *message);
/// Give its memory up for the time being; the records go into a file.
int rebuild_run_park(struct rebuild_folder *folder, struct rebuild_run *run, struct varve_message *message);
/// Free memory; with `files` remove its files too.
void rebuild_run_drop(struct rebuild_folder *folder, struct rebuild_run *run, bool files);
void rebuild_run_path(const struct rebuild_folder *folder, const struct rebuild_run *run, char *path,
                      size_t bytes);
/// Records in the run, markers included.
static inline uint64_t rebuild_run_rows(const struct rebuild_run *run)
{
    return run->blocks * RING_STAGING_RECORDS + run->parked + run->packed + run->count;
}

/* Reads a run from its beginning; nothing may be added to the run meanwhile. */
struct rebuild_run_reader {
    const struct rebuild_folder *folder;
    const struct rebuild_run *run;
    struct varve_record *records; /* of the present block */
    uint32_t count, at;
    uint64_t block, offset; /* of the next one */
    uint64_t number;        /* of the last record given */
    bool is_at_end;
};

/// `records`: room for RING_STAGING_RECORDS, borrowed.
void rebuild_run_reader_open(struct rebuild_run_reader *reader, const struct rebuild_folder *folder,
                             const struct rebuild_run *run, struct varve_record *records);
/// The next record, markers included, in `*record_out` (NULL at the end; valid until the next call); its
/// number is in reader->number.
int rebuild_run_next(struct rebuild_run_reader *reader, const struct varve_record **record_out,
                     struct varve_message *message);
/// Or the next ones all at once: reader->count of them, 0 at the end, in reader->records.
int rebuild_run_load(struct rebuild_run_reader *reader, struct varve_message *message);

static inline bool rebuild_is_marker(const struct varve_record *record)
{
    return (varve_record_flags(record) & VARVE_FLAG_GAP) != 0;
}

/* ---- side.c: records of one ring that came after later ones ---- */

struct rebuild_late {
    uint64_t number;
    struct varve_record record;
};

/* Sorted, each number once. */
struct rebuild_slice {
    uint64_t offset; /* in the file sideN */
    uint64_t first;  /* number */
    uint32_t count;
};

struct rebuild_side {
    uint64_t file; /* N */
    struct rebuild_late *late;
    uint32_t count, capacity;
    struct rebuild_slice *slices; /* in the order in which they came */
    uint32_t slice_count, slice_capacity;
    uint64_t bytes;
};

int rebuild_side_add(struct rebuild_folder *folder, struct rebuild_side *side, uint64_t number,
                     const struct varve_record *record, struct varve_message *message);
/// Make a slice of what is in memory, and free that.
int rebuild_side_park(struct rebuild_folder *folder, struct rebuild_side *side,
                      struct varve_message *message);
/// Put run and side together into a new run with the number `file`: of equal numbers the one of the run, then
/// the one that came first. Run and side are empty afterwards, but for the result in `run`.
int rebuild_side_settle(struct rebuild_folder *folder, struct rebuild_run *run, struct rebuild_side *side,
                        uint64_t file, struct varve_message *message);
void rebuild_side_drop(struct rebuild_folder *folder, struct rebuild_side *side);

/* ---- rebuild_index.c: from (pid, process, ring) to what is known of it ---- */

struct rebuild_key {
    uint32_t pid, process, ring;
};

struct rebuild_index {
    struct rebuild_index_slot {
        struct rebuild_key key;
        void *value; /* NULL: empty */
    } * slots;
    size_t slot_count, used;
};

/// Where the value of `key` is or belongs; NULL without memory. Whoever fills an empty one adds to `used`.
void **rebuild_index_slot(struct rebuild_index *index, const struct rebuild_key *key);

/* ---- callsites.c: call-site files ---- */

/* Numbers that came already, one bit each. */
struct rebuild_bits {
    uint64_t *words;
    size_t word_count;
};

struct rebuild_sites {
    struct rebuild_bits modules, gone, codes, sites;
    bool has_file;
};

/* Entries of one process after the other are gathered here. */
struct rebuild_sites_buffer {
    uint8_t *bytes;
    size_t count;
    uint64_t file; /* number of the process they belong to */
};

struct rebuild_process;

int rebuild_sites_flush(struct varve_rebuild *rebuild);
void rebuild_sites_path(const struct rebuild_folder *folder, uint64_t file, char *path, size_t bytes);
void rebuild_sites_drop(struct rebuild_sites *sites);

/* ---- processes.c, rings.c: what is known of each ---- */

struct rebuild_ring {
    struct varve_mirror_origin origin;
    uint64_t tid_number; /* lowest record so far: its tid is origin.tid */
    bool is_recent;      /* a record came since the last search for memory */
    struct rebuild_run run;
    struct rebuild_process *process;
    struct rebuild_side side;
    bool is_described, has_end;
    uint64_t created_ticks;
    char name[16];
    struct varve_mirror_thread_end end;
    /* at the end */
    uint64_t begin_ticks;
    bool is_open; /* the collector has it */
};

struct rebuild_process {
    uint32_t number;
    int32_t pid;
    uint64_t file;                 /* number in file names; also the order of appearance */
    bool is_described, is_foreign; /* foreign: of another recording */
    struct varve_mirror_process told;
    char *executable, *command_line, *exec_path;
    bool has_end;
    uint32_t end;
    struct rebuild_sites sites;
    /* at the end */
    bool is_taken;
    struct rebuild_ring **rings; /* by index */
    uint32_t ring_count, rings_open;
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
    bool may_replace;
    int error; /* the first one */
    struct varve_message message;
    bool has_trace_id;
    uint64_t trace_id; /* the first that came */
    uint64_t records, damaged;
    struct rebuild_folder folder;
    uint64_t files; /* numbers given to files */
    struct rebuild_index ring_index, process_index;
    struct rebuild_ring **rings; /* in order of appearance */
    size_t ring_count, ring_capacity, hand;
    struct rebuild_process **processes;
    size_t process_count, process_capacity;
    struct rebuild_ring *ring_last; /* the one of the last record */
    struct rebuild_sites_buffer sites;
    struct clock_anchor *anchors;
    size_t anchor_count, anchor_capacity;
    struct rebuild_meta *meta;
    size_t meta_count, meta_capacity;
    struct rebuild_stat *stats;
    size_t stat_count, stat_capacity;
};

/// Keep the first error; returns it.
int rebuild_keep(struct varve_rebuild *rebuild, int code, const struct varve_message *message);
/// Does this belong to the recording that is rebuilt? The first one to ask decides.
bool rebuild_is_ours(struct varve_rebuild *rebuild, uint64_t trace_id);

/// Made if there is none; NULL: an error is kept, or the numbers make no sense (which is counted).
struct rebuild_process *rebuild_process_of(struct varve_rebuild *rebuild, uint32_t number, int32_t pid);
struct rebuild_ring *rebuild_ring_of(struct varve_rebuild *rebuild, const struct varve_mirror_origin *origin);
void rebuild_process_free(struct rebuild_process *process);
void rebuild_ring_free(struct varve_rebuild *rebuild, struct rebuild_ring *ring);

/// All late records into their places, missing ones at the end told.
int rebuild_ring_settle(struct varve_rebuild *rebuild, struct rebuild_ring *ring,
                        struct varve_message *message);
/// The files of a settled ring under the names that the collector looks for. `may_spill`: else no descriptor
/// is needed to read it, and it takes four times the space.
int rebuild_ring_write(struct varve_rebuild *rebuild, struct rebuild_ring *ring, bool may_spill,
                       struct varve_message *message);
/// Which processes are taken, which rings each of them has; `*left_out` = records of the others. The result,
/// by number, NULL where there is none: the caller's, by free; `*limit_out` numbers.
int rebuild_processes_choose(struct varve_rebuild *rebuild, struct rebuild_process ***by_number_out,
                             uint32_t *limit_out, uint64_t *left_out, struct varve_message *message);
/// Control page and call-site file of a chosen process.
int rebuild_process_write(struct varve_rebuild *rebuild, const struct rebuild_process *process,
                          struct varve_message *message);

/* ---- finish.c, collect.c: the end ---- */

struct rebuild_end {
    struct varve_rebuild *rebuild;
    struct collector *collector;
    struct rebuild_process **by_number; /* [number], NULL: none */
    uint32_t number_limit;
    struct rebuild_ring **order; /* chosen rings, by the time when they began */
    size_t order_count;
    uint64_t rows;        /* events that will come out */
    unsigned spill_limit; /* rings whose spill files may be open at a time */
    varve_collect_progress progress;
    void *progress_context;
};

/// Feed all rings to the collector in the order in which they began.
int rebuild_collect(struct rebuild_end *end, struct varve_message *message);

#endif
