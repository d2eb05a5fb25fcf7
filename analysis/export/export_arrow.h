/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a statement over a trace database as record batches of the Arrow C stream interface
 * (arrow.apache.org/docs/format/CStreamInterface.html), for readers in other languages: nothing is formatted or copied
 * on the way. libvarve_query.so is this function; the Python package calls it.
 */
#ifndef VARVE_ANALYSIS_EXPORT_EXPORT_ARROW_H
#define VARVE_ANALYSIS_EXPORT_EXPORT_ARROW_H

#include <stddef.h>
#include <stdint.h>

struct varve_message;

/* As the specification has them; other copies in a program are the same. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

#endif

enum varve_query_type {
    VARVE_QUERY_NULL,
    VARVE_QUERY_INTEGER,
    VARVE_QUERY_REAL,
    VARVE_QUERY_TEXT,
};

/* A parameter of a statement. */
struct varve_query_value {
    int32_t type; /* an enum varve_query_type; any other is NULL */
    int64_t integer;
    double real;
    const char *text; /* UTF-8 */
};

struct varve_query_options {
    const char *sql; /* one statement that only reads */
    /* A letter for each column: l 64-bit integer, g double, u UTF-8, z bytes; ? or NULL: as it was declared, or as its
     * values in the first batch are. */
    const char *types;
    const struct varve_query_value *parameters;
    size_t parameter_count;
    int64_t batch_rows; /* at most, 1 to 2^24 */
    int64_t timeout_ns; /* of computing, for each batch; 0: as long as it wants */
    /* NULL, or an integer column of the statement with different values, by which SQLite finds rows and in whose order
     * it has them, as of a rowid: then only rows with first to last in it are read, and quicker. All types must be
     * given, and be l or g; there are no parameters. */
    const char *key;
    int64_t first, last;
};

/// Open the trace database at `path`, run the statement up to its first batch, and give the rest as a stream. Columns
/// are nullable. A value that does not fit the type of its column ends the stream with an error, but for numbers in
/// text, which are written out, and integers among doubles. Text that is no UTF-8 gets U+FFFD for each wrong byte.
/// The stream owns a connection of its own: any number of them may run at the same time, each in one thread at a time.
/// Owner of `stream_out`: the caller, by its release. Errors: those of opening a database, VARVE_ERROR_INVALID and
/// VARVE_ERROR_PERMISSION of the statement, VARVE_ERROR_DATABASE of reading, VARVE_ERROR_NO_MEMORY; `stream_out`
/// is untouched then.
int varve_query_arrow(const char *path, const struct varve_query_options *options, struct ArrowArrayStream *stream_out,
                      struct varve_message *message);

#endif
