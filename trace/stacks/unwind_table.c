/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the frame description entry (FDE) of an address in an object's unwind table: the sorted index in
 * .eh_frame_hdr, then the entry in .eh_frame and the common information entry (CIE) it names. The tables are
 * read in place, in the workload, so every read is bounded by the object's mapping and a malformed table ends
 * in "not found". Called by unwind_rules.c on a miss of the rule cache.
 *
 * Source of the format: Linux Standard Base 5.0, core generic, sections 10.5 to 10.6; DWARF 4, section 6.4.
 */
#include "trace/stacks/unwind_table.h"
#include "trace/guest/loaded_object.h"

#include <string.h>

enum pointer_encoding {
    POINTER_ABSOLUTE = 0x00,
    POINTER_ULEB = 0x01,
    POINTER_UDATA2 = 0x02,
    POINTER_UDATA4 = 0x03,
    POINTER_UDATA8 = 0x04,
    POINTER_SLEB = 0x09,
    POINTER_SDATA2 = 0x0a,
    POINTER_SDATA4 = 0x0b,
    POINTER_SDATA8 = 0x0c,
    POINTER_FORMAT = 0x0f,
    POINTER_PC_RELATIVE = 0x10,
    POINTER_DATA_RELATIVE = 0x30,
    POINTER_BASE = 0x70,
    POINTER_INDIRECT = 0x80,
    POINTER_OMITTED = 0xff,
};

/* One row of the index: both relative to the index' own address. */
struct index_row {
    int32_t start;
    int32_t entry;
};

uint64_t unwind_read_long_uleb(struct unwind_reader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = unwind_read_fixed(reader, 1);
        value |= (byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return value;
        }
    }
    reader->bad = true;
    return 0;
}

int64_t unwind_read_sleb(struct unwind_reader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = unwind_read_fixed(reader, 1);
        value |= (byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            if ((byte & 0x40) != 0 && shift + 7 < 64) {
                value |= UINT64_MAX << (shift + 7);
            }
            return (int64_t)value;
        }
    }
    reader->bad = true;
    return 0;
}

uint64_t unwind_read_pointer(struct unwind_reader *reader, unsigned encoding, uintptr_t data_base)
{
    uintptr_t here = (uintptr_t)reader->at;
    uint64_t value = 0;
    switch (encoding & POINTER_FORMAT) {
    case POINTER_ABSOLUTE:
    case POINTER_UDATA8:
    case POINTER_SDATA8:
        value = unwind_read_fixed(reader, 8);
        break;
    case POINTER_UDATA4:
        value = unwind_read_fixed(reader, 4);
        break;
    case POINTER_SDATA4:
        value = (uint64_t)(int64_t)(int32_t)unwind_read_fixed(reader, 4);
        break;
    case POINTER_UDATA2:
        value = unwind_read_fixed(reader, 2);
        break;
    case POINTER_SDATA2:
        value = (uint64_t)(int64_t)(int16_t)unwind_read_fixed(reader, 2);
        break;
    case POINTER_ULEB:
        value = unwind_read_uleb(reader);
        break;
    case POINTER_SLEB:
        value = (uint64_t)unwind_read_sleb(reader);
        break;
    default:
        reader->bad = true;
        return 0;
    }
    switch (encoding & POINTER_BASE) {
    case 0:
        return value;
    case POINTER_PC_RELATIVE:
        return value + here;
    case POINTER_DATA_RELATIVE:
        return value + data_base;
    default:
        reader->bad = true;
        return 0;
    }
}

static bool reader_open(struct unwind_reader *reader, const struct loaded_object *object, uintptr_t at)
{
    if (at < object->start || at >= object->end) {
        return false;
    }
    *reader = (struct unwind_reader){(const unsigned char *)at, (const unsigned char *)object->end, false};
    return true;
}

/* Reads the length of an entry and narrows `reader` to its contents; false at the terminator. */
static bool entry_open(struct unwind_reader *reader)
{
    uint64_t bytes = unwind_read_fixed(reader, 4);
    if (bytes == UINT32_MAX) {
        bytes = unwind_read_fixed(reader, 8);
    }
    if (reader->bad || bytes == 0 || bytes > (size_t)(reader->end - reader->at)) {
        return false;
    }
    reader->end = reader->at + bytes;
    return true;
}

/* The part of a CIE that the letters of its augmentation string announce. */
static bool augmentation_read(const char *letters, struct unwind_reader *reader, struct unwind_entry *entry)
{
    if (*letters == '\0') {
        return true;
    }
    if (*letters != 'z') {
        return false;
    }
    entry->has_augmentation = true;
    uint64_t bytes = unwind_read_uleb(reader);

    if (reader->bad || bytes > (size_t)(reader->end - reader->at)) {
        return false;
    }
    struct unwind_reader data = {reader->at, reader->at + bytes, false};

    for (letters++; *letters != '\0'; letters++) {
        if (*letters == 'R') {
            entry->pointer_encoding = (unsigned char)unwind_read_fixed(&data, 1);
        } else if (*letters == 'P') {
            unsigned encoding = (unsigned)unwind_read_fixed(&data, 1);
            (void)unwind_read_pointer(&data, encoding & ~(unsigned)POINTER_INDIRECT, 0);
        } else if (*letters == 'L') {
            (void)unwind_read_fixed(&data, 1);
        } else if (*letters == 'S') {
            entry->is_signal_frame = true;
        } else if (*letters != 'B') {
            break; /* unknown: what follows can't be read, but the length is known */
        }
    }
    reader->at = data.end;
    return !data.bad;
}

static bool common_read(const struct loaded_object *object, uintptr_t at, struct unwind_entry *entry)
{
    struct unwind_reader reader;
    if (!reader_open(&reader, object, at) || !entry_open(&reader) || unwind_read_fixed(&reader, 4) != 0) {
        return false;
    }
    uint64_t version = unwind_read_fixed(&reader, 1);
    const char *letters = (const char *)reader.at;
    const unsigned char *letters_end = memchr(reader.at, '\0', (size_t)(reader.end - reader.at));

    if (letters_end == NULL || (version != 1 && version != 3 && version != 4)) {
        return false;
    }
    reader.at = letters_end + 1;
    if (version == 4 && unwind_read_fixed(&reader, 2) != 8) {
        return false; /* sizes of an address and of a segment selector: not 64-bit flat addresses */
    }
    entry->code_alignment = unwind_read_uleb(&reader);
    entry->data_alignment = unwind_read_sleb(&reader);
    entry->return_register = version == 1 ? unwind_read_fixed(&reader, 1) : unwind_read_uleb(&reader);
    if (!augmentation_read(letters, &reader, entry)) {
        return false;
    }
    entry->common = reader;
    return !reader.bad;
}

/* Address of the FDE whose index row is the last one that begins at or before `address`; 0 if none. */
static uintptr_t index_search(const struct loaded_object *object, uintptr_t address)
{
    const uintptr_t base = (uintptr_t)object->eh_frame_hdr;
    struct unwind_reader reader;
    if (base == 0 || !reader_open(&reader, object, base) || unwind_read_fixed(&reader, 1) != 1) {
        return 0;
    }
    unsigned frame_encoding = (unsigned)unwind_read_fixed(&reader, 1);
    unsigned count_encoding = (unsigned)unwind_read_fixed(&reader, 1);
    unsigned row_encoding = (unsigned)unwind_read_fixed(&reader, 1);

    if (count_encoding == POINTER_OMITTED || row_encoding != (POINTER_DATA_RELATIVE | POINTER_SDATA4)) {
        return 0;
    }
    (void)unwind_read_pointer(&reader, frame_encoding, base);
    uint64_t high = unwind_read_pointer(&reader, count_encoding, base);

    if (reader.bad || high == 0 || high > (size_t)(reader.end - reader.at) / sizeof(struct index_row)) {
        return 0;
    }
    const struct index_row *rows = (const void *)reader.at;
    int64_t wanted = (int64_t)(address - base);

    if (wanted < rows[0].start) {
        return 0;
    }
    uint64_t low = 0;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (rows[middle].start <= wanted) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return base + (uintptr_t)(int64_t)rows[low].entry;
}

bool unwind_entry_find(const struct loaded_object *object, uintptr_t address, struct unwind_entry *entry)
{
    uintptr_t at = index_search(object, address);
    *entry = (struct unwind_entry){0};
    struct unwind_reader reader;
    if (at == 0 || !reader_open(&reader, object, at) || !entry_open(&reader)) {
        return false;
    }
    uintptr_t here = (uintptr_t)reader.at;
    uint64_t back = unwind_read_fixed(&reader, 4);

    if (reader.bad || back == 0 || !common_read(object, here - back, entry)) {
        return false;
    }
    entry->start = unwind_read_pointer(&reader, entry->pointer_encoding, 0);
    entry->bytes = unwind_read_pointer(&reader, entry->pointer_encoding & POINTER_FORMAT, 0);

    if (reader.bad || address < entry->start || address - entry->start >= entry->bytes) {
        return false;
    }
    /* The augmentation data (a pointer to the exception tables) is of no interest here. */
    uint64_t skip = entry->has_augmentation ? unwind_read_uleb(&reader) : 0;

    if (reader.bad || skip > (size_t)(reader.end - reader.at)) {
        return false;
    }
    reader.at += skip;
    entry->special = reader;
    return true;
}
