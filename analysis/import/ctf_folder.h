/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CTF traces of a folder, as far as it must be known before babeltrace2 sees them: it waits for ever for a pipe,
 * reads for ever where packets of metadata are cut, and names no file that it may not read.
 */
#ifndef VARVE_ANALYSIS_IMPORT_CTF_FOLDER_H
#define VARVE_ANALYSIS_IMPORT_CTF_FOLDER_H

#include "base/error.h"

#include <stddef.h>

struct ctf_folder {
    char **traces; /* folders with a file `metadata` and at least one stream that is not empty; in order of names */
    size_t count;
};

/// Find all traces below `path`. Errors, with one line: VARVE_ERROR_NOT_FOUND, PERMISSION, FORMAT (no trace in it, or
/// something that is no trace), IO. Owner of the result: the caller, until ctf_folder_close, also after an error.
int ctf_folder_open(const char *path, struct ctf_folder *folder, struct varve_message *message);
void ctf_folder_close(struct ctf_folder *folder);

#endif
