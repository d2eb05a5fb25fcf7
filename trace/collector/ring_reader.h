/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer's end of one ring: its records in the producer's order, from the ring, its pieces and what signal
 * handlers put aside.
 */
#ifndef VARVE_TRACE_COLLECTOR_RING_READER_H
#define VARVE_TRACE_COLLECTOR_RING_READER_H

#include "trace/record.h"

#include <stdbool.h>
#include <stdint.h>

struct ring_header;
struct session_directory;
struct traced_process;
struct varve_message;

struct ring_reader {
    struct traced_process *process;
    struct ring_header *ring;
    uint64_t ring_bytes; /* of the file: slots beyond it are gone */
    uint32_t capacity;   /* as checked: the header may be overwritten later */
    uint32_t index;
    uint32_t thread_id;
    int32_t tid;
    uint64_t read;                  /* ring records taken by the merge */
    uint64_t spill_read;            /* spilled records taken */
    uint64_t stored;                /* read + spill_read at the last commit */
    uint64_t head_seen, spill_seen; /* published, as of the last refresh */
    uint64_t resume_seen;           /* spilled records before this one are older than those in the ring */
    uint64_t last_ticks;            /* of the last record taken */
    int64_t last_ns;
    uint64_t sequence;               /* number of the last one, lost records counted */
    uint64_t gaps, gap_rows;         /* of a rebuilt recording: records that are missing, markers that say so */
    uint64_t key;                    /* ring_merge.c: when the next record is due */
    const struct varve_record *next; /* ring_merge.c: the next record, as long as none is taken */
    bool is_deferred;                /* ring_merge.c: its next record waited for another ring once */
    uint64_t deferred_addr;
    struct ring_reader *next_deferred;
    bool is_in_flight; /* a record was being written at the last refresh */
    bool is_retired;   /* the producer said that nothing follows */
    bool saw_end;      /* the last refresh came after the process had ended */
    /* records of signal handlers, put aside when their thread was killed */
    uint32_t orphans_first, orphans_seen, orphans_read;
    bool has_counted_orphans;
    const char *damage; /* 'cut' or 'damaged': the header's figures are not to be believed; NULL */
    const struct session_directory *directory;
    int piece_fd;           /* -1: not open */
    uint64_t granted_bytes; /* of memory that the collector has given to its file */
    uint64_t unreadable;    /* published records that stood in what is gone of the files */
    uint64_t unfolded;      /* events taken, beyond one for each record taken (trace/record_fold.h) */
    uint32_t parts;         /* ring_merge.c: of these, of the record that comes next, which is not taken yet */
    const struct varve_record *staging; /* NULL: not looked for yet */
    bool has_staging_apart;             /* it is a mapping of its own */
    struct varve_record *buffer;        /* spill records [buffer_from, buffer_to) */
    uint64_t buffer_from, buffer_to;
    uint8_t *packed;       /* one block of a piece */
    uint32_t piece;        /* the oldest one that may hold records to be read */
    uint32_t piece_kept;   /* the oldest one that was not removed */
    uint64_t piece_offset; /* of the next block to be looked at */
};

int ring_reader_open(struct ring_reader **reader_out, const struct session_directory *directory,
                     struct traced_process *process, uint32_t index);
void ring_reader_close(struct ring_reader *reader);
/// The database does not know all that was handed back to the producer (its last part is gone): what may have
/// been overwritten since counts as unreadable. Before the first refresh.
void ring_reader_skip_overwritten(struct ring_reader *reader);
/// Look at what the producer has published by now.
void ring_reader_refresh(struct ring_reader *reader);
/// Next record in the producer's order, NULL if none is published; valid until ring_reader_pop.
const struct varve_record *ring_reader_peek(struct ring_reader *reader, const struct session_directory *directory);
void ring_reader_pop(struct ring_reader *reader);
/// Hand the space of everything taken back to the producer, and remove pieces that hold nothing else: after the commit,
/// never before.
void ring_reader_release(struct ring_reader *reader);
int ring_check(const struct ring_header *ring, bool producer_is_dead, struct varve_message *message);

#endif
