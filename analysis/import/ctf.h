/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CTF traces of the provider `varve`: the program babeltrace2 reads them, with our plug-in at the end of its graph
 * (ctf_plugin.c), in a process of its own, as damaged traces make it abort. Nothing of babeltrace2 is linked here.
 */
#ifndef VARVE_ANALYSIS_IMPORT_CTF_H
#define VARVE_ANALYSIS_IMPORT_CTF_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress;

struct ctf_import_result {
    int64_t events, lost, uncommitted, processes, threads, allocations;
    int64_t discarded_events, discarded_packets; /* by LTTng */
    int64_t uncounted;                           /* losses of unknown size; 1 is in the sums for each */
    int64_t unknown_events;                      /* ours, of kinds that are not known here */
    int64_t other_events;                        /* of other providers */
};

/// False, with one line, if babeltrace2 (in PATH or beside this program) or the plug-in is missing.
bool ctf_is_possible(struct varve_message *message);
/// Where babeltrace2 is; false: nowhere.
bool ctf_program_find(char *path, size_t bytes);

/// The traces of a folder into a database, which is there whole or not at all. SIGINT, SIGTERM and SIGHUP while it
/// reads end the process, after nothing is left behind. Errors, with one line: UNSUPPORTED (babeltrace2 is missing),
/// FORMAT (damaged, or no event of ours in it), those of varve_rebuild_open.
int ctf_import(const char *folder, const char *database_path, bool replace, struct progress *progress,
               struct ctf_import_result *result, struct varve_message *message);

/// A varve_collect_numbers. Errors: those of ctf_import.
int ctf_each_number(const char *folder,
                    void (*take)(void *context, uint32_t process, uint32_t ring, uint64_t first, uint64_t last),
                    void *context, struct varve_message *message);

/*
 * The CTF traces of a folder, as far as it must be known before babeltrace2 sees them: it waits for ever for a pipe,
 * reads for ever where packets of metadata are cut, and names no file that it may not read.
 */

struct ctf_folder {
    char **traces; /* folders with a file `metadata` and at least one stream that is not empty; in order of names */
    size_t count;
};

/// Find all traces below `path`. Errors, with one line: VARVE_ERROR_NOT_FOUND, PERMISSION, FORMAT (no trace in it, or
/// something that is no trace), IO. Owner of the result: the caller, until ctf_folder_close, also after an error.
int ctf_folder_open(const char *path, struct ctf_folder *folder, struct varve_message *message);
void ctf_folder_close(struct ctf_folder *folder);

#endif
