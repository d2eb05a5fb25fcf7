/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pickles of protocol 4, with the opcodes that Python's own pickler writes for builtins, so that every reader
 * of such files takes them. Values are written as they come; nothing is kept but what was memoised.
 */
#ifndef VARVE_ANALYSIS_EXPORT_PICKLE_WRITER_H
#define VARVE_ANALYSIS_EXPORT_PICKLE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PICKLE_WRITER_KEYS_MAX 64

struct pickle_writer {
    FILE *out; /* borrowed; its error flag is set by failures */
    uint32_t memo_count;
    struct {
        const char *text; /* a literal: keys are distinguished by their address */
        uint32_t memo;
    } keys[PICKLE_WRITER_KEYS_MAX];
    size_t key_count;
};

/* A list or dict that is being written: items go out in batches, as Python's pickler does. */
struct pickle_batch {
    uint32_t pending;
};

void pickle_write_begin(struct pickle_writer *writer, FILE *out);
void pickle_write_end(struct pickle_writer *writer);

void pickle_write_bool(struct pickle_writer *writer, bool value);
void pickle_write_signed(struct pickle_writer *writer, int64_t value);
void pickle_write_unsigned(struct pickle_writer *writer, uint64_t value);
void pickle_write_real(struct pickle_writer *writer, double value);
void pickle_write_text(struct pickle_writer *writer, const char *text);
/// A text that will come again: a literal.
void pickle_write_key(struct pickle_writer *writer, const char *literal);
/// Remember the value that was written last; its number for pickle_write_again.
uint32_t pickle_write_memo(struct pickle_writer *writer);
void pickle_write_again(struct pickle_writer *writer, uint32_t memo);
/// Opcodes that make values and need no memo.
void pickle_write_opcodes(struct pickle_writer *writer, const char *bytes, size_t count);
/// A tuple of the last two values.
void pickle_write_pair(struct pickle_writer *writer);

void pickle_list_begin(struct pickle_writer *writer, struct pickle_batch *batch);
void pickle_list_item(struct pickle_writer *writer, struct pickle_batch *batch); /* before each item */
void pickle_list_end(struct pickle_writer *writer, struct pickle_batch *batch);
void pickle_dict_begin(struct pickle_writer *writer);
/// After the last of alternating keys and values; a dict of ours has fewer than a batch.
void pickle_dict_end(struct pickle_writer *writer);

#endif
