/* SPDX-License-Identifier: Apache-2.0 */
/* Which field of an event goes where: between fields.c, which reads them, and names.c, which knows.
 */
#ifndef VARVE_ANALYSIS_IMPORT_CTF_FIELDS_H
#define VARVE_ANALYSIS_IMPORT_CTF_FIELDS_H

#include "analysis/import/ctf/ctf.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CTF_FIELDS_MAX 18

enum ctf_field_use {
    CTF_FIELD_INTEGER,
    CTF_FIELD_TEXT,
    CTF_FIELD_ARRAY, /* of integers */
};

struct ctf_field_spec {
    const char *name; /* NULL: the last one was before */
    uint16_t offset;  /* in struct ctf_item, of a record in struct ctf_told_record; of a part: its number */
    uint8_t bytes;    /* of the member, or of an element of an array */
    enum ctf_field_use use;
};

struct ctf_event_spec {
    const char *name; /* without the provider's */
    enum ctf_item_kind kind;
    unsigned record_kind;
    const struct ctf_field_spec *fields; /* at most CTF_FIELDS_MAX */
};

/* The fields of a record as they are told, before they are packed. */
struct ctf_told_record {
    uint64_t ring_seq, ticks, dev_seq, id, addr, size, requested, arg;
    uint32_t process, ring, callsite;
    int32_t pid, tid;
    uint16_t stream, pool;
    uint8_t device, cause, flags;
};

/// What an event of ours is, by its name; NULL if it is not known.
const struct ctf_event_spec *ctf_event_spec(const char *name);

#ifdef __cplusplus
}
#endif

#endif
