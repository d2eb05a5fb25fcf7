/* SPDX-License-Identifier: Apache-2.0 */
/* The recording directory TRACE.db.d and its files. */
#ifndef VARVE_TRACE_COLLECTOR_SESSION_RECORDING_DIRECTORY_H
#define VARVE_TRACE_COLLECTOR_SESSION_RECORDING_DIRECTORY_H

#include "trace/format/session_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The collector's side of the reserve (format/session_format.h): slots with memory for programs that can't make files
 * any more. What programs write into its table is not trusted: a slot is a place in the file and nothing else.
 */

struct session_reserve {
    struct session_counts *counts; /* borrowed; NULL: there is no reserve */
    int fd;                        /* of the file that `counts` is the beginning of; -1 */
    uint32_t ready;                /* slots to keep ready; grows where producers find none */
    uint32_t used;                 /* slots from this one on were never made ready */
};

/// Make slots ready: as many as are wanted, or as there is memory for. Cheap where nothing was taken.
void session_reserve_fill(struct session_reserve *reserve);
/// Where in the file the slot begins that holds ring `ring` of `process`, or its page (`kind`). False: none does.
bool session_reserve_find(const struct session_reserve *reserve, enum reserve_state kind, uint32_t process,
                          uint32_t ring, uint64_t *offset);
/// Memory behind `bytes` of a slot from `from` on, both counted from `offset`, its beginning. False: there is none.
bool session_reserve_grow(const struct session_reserve *reserve, uint64_t offset, uint64_t from, uint64_t bytes);
/// What the slot holds is stored: its memory goes back, and it can be made ready again.
void session_reserve_release(const struct session_reserve *reserve, enum reserve_state kind, uint32_t process,
                             uint32_t ring);

struct session_control;
struct session_counts;
struct varve_message;

#define DIRECTORY_PATH_BYTES 4096U

struct session_directory {
    char path[DIRECTORY_PATH_BYTES];  /* absolute, TRACE.db.d */
    char rings[DIRECTORY_PATH_BYTES]; /* where the mapped files are; not a link */
    int fd, rings_fd;                 /* of the two; -1 */
    int owner_fd;                     /* holds the lock; -1 */
    int watch_fd;                     /* watch.h; -1: it can't be watched */
    uint64_t trace_id;                /* as `owner` has it */
    bool is_empty;                    /* adopted: nothing was recorded, or nothing is left to be done */
    struct session_control *control;
    struct session_counts *counts; /* never NULL where control is not */
    struct session_reserve reserve;
};

/// Make the directory, the folder for rings (on tmpfs where there is room) and the session file.
/// Errors: VARVE_ERROR_BUSY (another collector, or an unfinished recording lies there, or something else),
/// PERMISSION, FULL, IO.
int session_directory_create(struct session_directory *directory, const char *database_path,
                             const struct session_control *settings, struct varve_message *message);

enum session_file_kind {
    SESSION_FILE_PROCESS = 1,   /* p<N> */
    SESSION_FILE_RING = 2,      /* p<N>.r<K> */
    SESSION_FILE_SPILL = 3,     /* p<N>.r<K>.spill<M> */
    SESSION_FILE_CALLSITES = 4, /* p<N>.sites */
    SESSION_FILE_STAGING = 5,   /* p<N>.r<K>.staging */
};

/* What the name of a file says, and when it begins, if somebody knows. */
struct session_file {
    enum session_file_kind kind;
    uint32_t process;
    uint32_t ring;  /* 0 where the kind has none */
    uint64_t begin; /* ticks: nothing in it is older; 0: not known */
};

/* Numbers beyond are not followed: they come from pages that programs write, and from names of files. */
#define SESSION_PROCESS_MAX (UINT32_C(1) << 22)
#define SESSION_RING_MAX (UINT32_C(1) << 24)

/// Numbers as the recorder writes them, none beyond the limits above; false: another name.
bool session_file_parse(const char *name, struct session_file *file_out);

/// Open a file of a recording, wherever in it it lies: a plain one of this user with one name, no link. -1
/// and errno otherwise; EPERM: it is something else.
int session_file_open(const struct session_directory *directory, const char *name, int flags);
/// Map such a file, or what the reserve holds in its place, from its beginning, to be written too unless `flags` is
/// O_RDONLY: `bytes`, or with `bytes_out` all of a file that has so many. `fd_out` gets the descriptor, -1 on failure
/// and for the reserve; NULL: it is closed. NULL and errno on failure; EPERM: it is something else, or too short.
void *session_file_map(const struct session_directory *directory, const char *name, int flags, size_t bytes,
                       size_t *bytes_out, int *fd_out);
/// Close a descriptor if it is one; it is -1 then.
void session_descriptor_close(int *fd);
/// Bytes of such a file, and whether it lies with the rings. False: it is not there.
bool session_file_size(const struct session_directory *directory, const char *name, uint64_t *bytes, bool *is_in_rings);
void session_file_remove(const struct session_directory *directory, const char *name);

/// The files of processes, by process, ring and kind. Owner of the result: the caller, by free. Errors:
/// NO_MEMORY, IO.
int session_directory_scan(const struct session_directory *directory, struct session_file **files_out,
                           size_t *count_out);

/// Take over the directory of a dead collector; of this user: also root takes over only what is root's.
/// `control` stays NULL if its rings are gone. Errors, before anything is changed: NOT_FOUND, FORMAT,
/// VERSION, BUSY.
int session_directory_adopt(struct session_directory *directory, const char *path, struct varve_message *message);

/// Open the directory of a living recording, or of one that nobody works on, to read in it: no lock is taken, nothing
/// is changed, and `control` and `counts` stay NULL. Errors: VARVE_ERROR_NOT_FOUND, PERMISSION, FORMAT.
int session_directory_look(struct session_directory *directory, const char *path, struct varve_message *message);

/// What the file `owner` says whose descriptor that is: the recording's id, 0 where it was not written yet. False:
/// nobody who records has written it.
bool session_owner_read(int fd, uint64_t *trace_id_out);

/// Remove all that a finished database does not need: what is left is trace.db and the lock.
void session_directory_clear(struct session_directory *directory);
/// Remove everything that belongs to the recording; files that are not ours stay and keep the folder.
void session_directory_remove(struct session_directory *directory);
/// Let go of it, files stay.
void session_directory_close(struct session_directory *directory);

#endif
