/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other tools logged of a program's allocations and frees, as one list, whatever the format. The readers
 * (import_rmm.c, import_nsight.c, import_profiler.c) fill it; it puts the list in order, counts what contradicts
 * itself, and becomes events of a trace database. One thread uses it; memory that is not there ends the process.
 */
#ifndef VARVE_ANALYSIS_IMPORT_IMPORT_REQUESTS_H
#define VARVE_ANALYSIS_IMPORT_IMPORT_REQUESTS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress;

/* Numbers of several files' entries differ: by this for each file before. */
#define IMPORT_NUMBERS_PER_FILE (UINT64_C(1) << 40)

enum import_action {
    IMPORT_ALLOC,
    IMPORT_FREE,
    IMPORT_FAILURE, /* an allocation that failed */
};

/* Where the memory was asked for, and so the domain of the rows. */
enum import_target {
    IMPORT_BLOCK,  /* of a pool in the program: domain block */
    IMPORT_DEVICE, /* of the driver: domain device, pinned or managed, by the kind of memory in `pool` */
    IMPORT_HEAP,   /* of the C library */
};

struct import_request {
    int64_t time_ns;
    uint64_t addr, size; /* of a free size 0: not known */
    uint64_t number;     /* line, row or event of the source, from 1: its order */
    uint64_t took_ns;    /* of the call; 0: not known */
    uint32_t thread;     /* of import_requests_thread */
    uint32_t callsite;   /* of import_requests_callsite; 0: none */
    uint16_t stream;     /* of import_requests_stream */
    uint16_t pool;       /* of the record */
    uint8_t device, action, target;
    uint8_t cause;  /* enum varve_cause */
    bool is_async;  /* IMPORT_DEVICE: on a stream */
    uint16_t space; /* import_requests.c's: what has its own addresses */
};

/* What was wrong with a source. X(NAME, stat, is_loss, words for people behind a number, one and many) */
#define IMPORT_FAULT_LIST(X)                                                                                \
    X(UNREADABLE, "import_unreadable", true, "entry can't be read", "entries can't be read")                \
    X(CUT, "import_cut", true, "entry is cut off at the end", "entries are cut off at the end")             \
    X(UNKNOWN_ACTION, "import_unknown_actions", true, "entry has an action that varve does not know",       \
      "entries have actions that varve does not know")                                                      \
    X(UNKNOWN_FREE, "import_unknown_frees", true, "free of an address at which nothing was allocated",      \
      "frees of addresses at which nothing was allocated")                                                  \
    X(UNFREED, "import_missing_frees", true,                                                                \
      "allocation of an address that was not free: what was there ends with it",                            \
      "allocations of addresses that were not free: what was there ends with them")                         \
    X(BACKWARDS, "import_out_of_order", false, "entry has a time before that of the one in front of it",    \
      "entries have times before that of the one in front of them")                                         \
    X(OTHER_SIZE, "import_other_sizes", false, "free names another size than was allocated",                \
      "frees name other sizes than were allocated")                                                         \
    X(EMPTY, "import_empty", false, "request of no bytes is left out", "requests of no bytes are left out") \
    X(HEADER, "import_headers", false, "header in the middle", "headers in the middle")                     \
    X(NAMELESS, "import_nameless", false, "entry whose thread or stream is one too many to be kept apart",  \
      "entries whose threads or streams are too many to be kept apart")

enum import_fault {
#define IMPORT_FAULT_ENUM(name, stat, is_loss, one, many) IMPORT_FAULT_##name,
    IMPORT_FAULT_LIST(IMPORT_FAULT_ENUM)
#undef IMPORT_FAULT_ENUM
        IMPORT_FAULT_LIMIT
};

struct import_fault_count {
    uint64_t count, first; /* number of the first such entry */
};

/* What became of a source. */
struct import_log_result {
    const char *format, *entry; /* static: "RMM log"; what its numbers count: "line" */
    uint64_t entries, events;   /* read; in the database */
    uint64_t allocations, frees, failures, threads, processes, streams, callsites;
    uint64_t live_bytes, peak_bytes; /* of all domains together */
    uint64_t peak_reserved;          /* as the source says; 0: it does not */
    uint64_t inherited_bytes;        /* that were live before the source's first entry, as it says */
    int64_t duration_ns;
    bool by_time; /* its order contradicts itself more than that of its times */
    struct import_fault_count faults[IMPORT_FAULT_LIMIT];
};

struct import_requests;

struct import_requests *import_requests_new(const char *format, const char *entry);
void import_requests_free(struct import_requests *requests);
/// Zeroed but for its number; to be filled before the next call.
struct import_request *import_requests_add(struct import_requests *requests, uint64_t number);
void import_requests_fault(struct import_requests *requests, enum import_fault fault, uint64_t number);
/// Whether a machine can have that: what has not is no entry (IMPORT_FAULT_UNREADABLE).
bool import_is_memory(uint64_t addr, uint64_t size);
/// An entry was read, whatever came of it.
void import_requests_entry(struct import_requests *requests);
/// The number of a thread; `pid` 0: not known. A tid that no system has gets a number of its own.
uint32_t import_requests_thread(struct import_requests *requests, int32_t pid, uint64_t tid, uint64_t number);
/// The name of a process that has threads here.
void import_requests_process(struct import_requests *requests, int32_t pid, const char *name);
/// The number of a stream; the upmost bit of a handle distinguishes none.
uint16_t import_requests_stream(struct import_requests *requests, uint64_t handle, uint64_t number);
/// What a device is; `total_bytes` 0: not known.
void import_requests_device(struct import_requests *requests, unsigned index, const char *name, uint64_t total_bytes);
/// A symbol, interned; `file` and `module` NULL, `line` 0: not known. With a file it is one of Python.
uint32_t import_requests_symbol(struct import_requests *requests, const char *function, const char *file, uint32_t line,
                                const char *module);
/// A stack of symbols, innermost first, interned.
uint32_t import_requests_callsite(struct import_requests *requests, const uint32_t *symbols, size_t depth);
void import_requests_reserved(struct import_requests *requests, uint64_t bytes);  /* at one moment */
void import_requests_inherited(struct import_requests *requests, uint64_t bytes); /* one more block of these */
size_t import_requests_count(const struct import_requests *requests);
/// Of the first entry that was added; false if there is none.
bool import_requests_first_time(const struct import_requests *requests, int64_t *time_ns_out);

/* Whose word counts. */
enum import_order {
    IMPORT_BY_NUMBER, /* the source's order, unless its times make more sense */
    IMPORT_BY_TIME,   /* its order says nothing; at equal times what fits comes first */
};

/// The list as a database. The source's name is for `meta` and messages. Errors: VARVE_ERROR_FORMAT (there is nothing
/// in it), and the writer's; nothing is left behind then.
int import_requests_write(struct import_requests *requests, enum import_order order, const char *source,
                          const char *output, bool may_replace, struct progress *progress,
                          struct import_log_result *result, struct varve_message *message);

/// Put in order by time, every entry is there once, in numbers of what is interned, and its memory can be.
bool import_requests_check(struct import_requests *requests);

/// Name in `stats`, and whether it means loss; words behind a count. Static.
const char *import_fault_stat(enum import_fault fault, bool *is_loss_out);
const char *import_fault_words(enum import_fault fault, uint64_t count);

#endif
