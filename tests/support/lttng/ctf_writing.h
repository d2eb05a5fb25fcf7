/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * CTF 1.8 traces by hand, laid out as LTTng-UST does it: metadata from lists of event classes whose fields
 * may be of any name, width and sign, and streams of packets that may be damaged in any way.
 *
 *   fields: "u32 process", "s8 flags", "text name", "list64 native" (a sequence), "enum8 cause"
 */
#ifndef VARVE_TESTS_SUPPORT_LTTNG_CTF_WRITING_H
#define VARVE_TESTS_SUPPORT_LTTNG_CTF_WRITING_H

#include "support/command.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CTF_FIELDS 20

struct ctf_writing_class {
    const char *name;
    const char *fields[CTF_FIELDS]; /* up to NULL; the event's id is its place in the list */
};

/* One stream in memory. */
struct ctf_writing {
    unsigned char *bytes;
    size_t count, capacity;
    size_t packet; /* where the present one begins */
    uint64_t ticks, packets, discarded;
};

/* What the provider says of a record. */
#define CTF_RECORD_FIELDS                                                                                          \
    {                                                                                                              \
        "u32 process", "u32 ring", "u64 ring_seq", "u64 ticks", "s32 pid", "s32 tid", "u8 device", "u64 dev_seq",  \
            "u16 stream", "u16 pool", "u64 id", "u64 addr", "u64 size", "u64 requested", "u64 arg", "enum8 cause", \
            "u32 callsite", "u8 flags"                                                                             \
    }

/* ---- metadata ---- */

static inline void ctf_writing_field(FILE *out, const char *field)
{
    const char *name = strchr(field, ' ') + 1;
    unsigned bits = 0;
    char type[16] = "";
    sscanf(field, "%15[a-z]%u", type, &bits);
    if (strcmp(type, "text") == 0) {
        fprintf(out, "string _%s;\n", name);
    } else if (strcmp(type, "list") == 0) {
        fprintf(out, "uint32_t __%s_length; integer { size = %u; align = 8; } _%s[__%s_length];\n", name, bits, name,
                name);
    } else if (strcmp(type, "enum") == 0) {
        fprintf(out, "enum : uint%u_t { none = 0, some = 1 ... 3, } _%s;\n", bits, name);
    } else {
        fprintf(out, "integer { size = %u; align = 8; signed = %d; } _%s;\n", bits, type[0] == 's', name);
    }
}

static inline void ctf_writing_metadata(const char *folder, const struct ctf_writing_class *classes, size_t count)
{
    mkdir(folder, 0700);
    char path[4096];
    snprintf(path, sizeof(path), "%s/metadata", folder);
    FILE *out = fopen(path, "we");
    fputs("/* CTF 1.8 */\n\n"
          "typealias integer { size = 8; align = 8; } := uint8_t;\n"
          "typealias integer { size = 16; align = 8; } := uint16_t;\n"
          "typealias integer { size = 32; align = 8; } := uint32_t;\n"
          "typealias integer { size = 64; align = 8; } := uint64_t;\n"
          "trace { major = 1; minor = 8; uuid = \"00112233-4455-6677-8899-aabbccddeeff\"; byte_order = le;\n"
          "packet.header := struct { uint32_t magic; uint8_t uuid[16]; uint32_t stream_id;\n"
          "uint64_t stream_instance_id; }; };\n"
          "env { domain = \"ust\"; tracer_name = \"lttng-ust\"; tracer_major = 2; tracer_minor = 13; };\n"
          "clock { name = monotonic; freq = 1000000000; offset = 1700000000000000000; };\n"
          "typealias integer { size = 64; align = 8; map = clock.monotonic.value; } := ticks_t;\n"
          "stream { id = 0; event.header := struct { uint16_t id; ticks_t timestamp; };\n"
          "packet.context := struct { ticks_t timestamp_begin; ticks_t timestamp_end; uint64_t content_size;\n"
          "uint64_t packet_size; uint64_t packet_seq_num; uint64_t events_discarded; uint32_t cpu_id; }; };\n",
          out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "event { name = \"%s\"; id = %zu; stream_id = 0; fields := struct {\n", classes[i].name, i);
        for (const char *const *field = classes[i].fields; *field != NULL; field++) {
            ctf_writing_field(out, *field);
        }
        fputs("}; };\n", out);
    }
    fclose(out);
}

/* ---- streams ---- */

static inline void ctf_writing_put(struct ctf_writing *out, unsigned bytes, uint64_t value)
{
    if (out->count + 8 > out->capacity) {
        out->capacity = out->capacity * 2 + 4096;
        out->bytes = realloc(out->bytes, out->capacity);
    }
    for (unsigned i = 0; i < bytes; i++) {
        out->bytes[out->count++] = (unsigned char)(value >> (8 * i));
    }
}

/* Fields of these widths, up to 0, that hold `first` and the numbers after it. */
static inline void ctf_writing_numbers(struct ctf_writing *out, const unsigned *widths, uint64_t first)
{
    for (; *widths != 0; widths++) {
        ctf_writing_put(out, *widths, first++);
    }
}

/* Values of these widths, up to 0. */
static inline void ctf_writing_values(struct ctf_writing *out, const unsigned *widths, const uint64_t *values)
{
    for (; *widths != 0; widths++) {
        ctf_writing_put(out, *widths, *values++);
    }
}

static inline void ctf_writing_text(struct ctf_writing *out, const char *text)
{
    do {
        ctf_writing_put(out, 1, (unsigned char)*text);
    } while (*text++ != '\0');
}

static inline void ctf_writing_set(struct ctf_writing *out, size_t offset, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++) {
        out->bytes[out->packet + offset + i] = (unsigned char)(value >> (8 * i));
    }
}

/* `instance`: of the stream; `lost`: packets before this one that are not in the file. */
static inline void ctf_writing_packet(struct ctf_writing *out, uint64_t instance, uint64_t lost)
{
    static const unsigned widths[] = {4, 8, 8, 8, 8, 8, 8, 8, 4, 0};
    out->packet = out->count;
    out->packets += lost;
    ctf_writing_put(out, 4, 0xc1fc1fc1);
    for (unsigned i = 0; i < 16; i++) {
        ctf_writing_put(out, 1, 0x11 * i);
    }
    /* the end and the sizes follow */
    const uint64_t values[] = {0, instance, out->ticks, 0, 0, 0, out->packets++, out->discarded, 0};
    ctf_writing_values(out, widths, values);
}

static inline void ctf_writing_packet_end(struct ctf_writing *out)
{
    ctf_writing_set(out, 40, out->ticks);
    ctf_writing_set(out, 48, (out->count - out->packet) * 8);
    while ((out->count - out->packet) % 64 != 0) {
        ctf_writing_put(out, 1, 0);
    }
    ctf_writing_set(out, 56, (out->count - out->packet) * 8);
    ctf_writing_set(out, 72, out->discarded);
}

/* The head of an event; its fields follow. */
static inline void ctf_writing_event(struct ctf_writing *out, unsigned id)
{
    ctf_writing_put(out, 2, id);
    ctf_writing_put(out, 8, ++out->ticks);
}

/* Write what there is to FOLDER/NAME, and begin anew. */
static inline void ctf_writing_save(struct ctf_writing *out, const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file_write(path, out->bytes, out->count);
    free(out->bytes);
    *out = (struct ctf_writing){.ticks = out->ticks};
}

/* A record of CTF_RECORD_FIELDS. */
static inline void ctf_writing_record(struct ctf_writing *out, unsigned id, uint32_t ring, uint64_t ring_seq,
                                      uint64_t addr, uint64_t size)
{
    static const unsigned widths[] = {4, 4, 8, 8, 4, 4, 1, 8, 2, 2, 8, 8, 8, 8, 8, 1, 4, 1, 0};
    ctf_writing_event(out, id);
    const uint64_t values[] = {1, ring, ring_seq, out->ticks, 4000, 4000 + ring,     0, 0, 0, 0,
                               0, addr, size,     size,       0,    16 /* malloc */, 0, 0};
    ctf_writing_values(out, widths, values);
}

#endif
