/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file is, by its first bytes, for whoever got another one than it reads: one table of all kinds that people
 * hand in, with what to do instead. Each reader of files asks it before it begins.
 */
#ifndef VARVE_ANALYSIS_BASE_FILE_KIND_H
#define VARVE_ANALYSIS_BASE_FILE_KIND_H

#include "base/error.h"

#include <stddef.h>

#define FILE_KIND_BYTES 4096 /* as many are looked at */

/* Who reads it. */
enum file_use {
    FILE_DATABASE,  /* SQLite: a trace, or for varve import an export of Nsight Systems */
    FILE_SNAPSHOT,  /* snapshot/, if that is in it: a pickle or JSON */
    FILE_OLD_SAVE,  /* snapshot/: three pickles lie in front of what torch.save of old saved */
    FILE_LOG,       /* varve import */
    FILE_JSON,      /* varve import or varve dtr, by what is in it */
    FILE_OPERATORS, /* varve dtr */
    FILE_FOREIGN,   /* nobody */
};

struct file_kind {
    enum file_use use;
    const char *name; /* "a report of Nsight Systems" */
    const char *way;  /* what to do with it */
};

/// By the beginning of a file, unpacked or not; some kinds also by the end of their names. Static; NULL: unknown.
const struct file_kind *file_kind_of(const void *bytes, size_t count, const char *path);
/// VARVE_ERROR_FORMAT, with what `path` is and the way. `kind` NULL: unknown. `wanted`: what it should have been; NULL:
/// anything that varve reads.
int file_kind_refuse(const struct file_kind *kind, const char *path, const char *wanted, struct varve_message *message);

#endif
