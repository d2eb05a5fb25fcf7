/* SPDX-License-Identifier: Apache-2.0 */
/* A reading of CTF traces while it lasts: between reader.c and salvage.c. */
#ifndef VARVE_ANALYSIS_IMPORT_CTF_READER_H
#define VARVE_ANALYSIS_IMPORT_CTF_READER_H

#include "analysis/import/ctf/ctf.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ctf_sweep {
    CTF_SWEEP_ALL,
    CTF_SWEEP_SOURCES, /* what call sites refer to */
};

struct ctf_reader {
    const struct ctf_source *source;
    struct ctf_reading *reading;
    struct ctf_folder folder;
    struct ctf_copy *copy; /* NULL: nothing had to be copied yet */
    enum ctf_sweep sweep;
    uint64_t taken;           /* items */
    uint64_t packets_done;    /* of the folder */
    uint64_t packets;         /* of this run of babeltrace2 */
    bool has_counts;          /* of this run */
    struct ctf_counts counts; /* of this run */
    struct varve_message failure;
};

/// Run babeltrace2 over some traces. Where it could not read all, reader->failure says why.
int ctf_reader_run(struct ctf_reader *reader, char *const *folders, size_t count,
                   struct varve_message *message);
static inline bool ctf_reader_has_failed(const struct ctf_reader *reader)
{
    return reader->failure.text[0] != '\0';
}
/// See to it that there is a reader->copy.
int ctf_reader_copy(struct ctf_reader *reader, struct varve_message *message);
/// `stream` NULL: the metadata. Only the first note is kept.
void ctf_reader_damage(struct ctf_reader *reader, const struct ctf_trace *trace,
                       const struct ctf_stream *stream, const char *what);

/* ---- salvage.c ---- */

/// Each stream by itself, as far as it can be read. What was read before may come again.
int ctf_salvage_streams(struct ctf_reader *reader, struct varve_message *message);
/// The beginnings of packets whose end is missing.
int ctf_salvage_cuts(struct ctf_reader *reader, struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
