/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of a rebuild as they come, in a table of an SQLite file of their own, which gives them back in the order
 * of ring and number. One thread calls all of it.
 */
#ifndef VARVE_TRACE_IMPORT_REBUILD_RECORDS_H
#define VARVE_TRACE_IMPORT_REBUILD_RECORDS_H

#include "base/error.h"
#include "trace/record.h"

#include <stdint.h>

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

#endif
