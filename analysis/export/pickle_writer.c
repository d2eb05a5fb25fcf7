/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opcodes of pickle_writer.h. Source of the format: Python's pickletools, protocol 4.
 * export_pytorch.c calls it.
 */
#include "analysis/export/pickle_writer.h"

#include <string.h>

#define BATCH 1000U

enum opcode {
    OP_PROTO = 0x80,
    OP_STOP = '.',
    OP_MARK = '(',
    OP_NONE = 'N',
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_LONG1 = 0x8a,
    OP_BINFLOAT = 'G',
    OP_SHORT_BINUNICODE = 0x8c,
    OP_BINUNICODE = 'X',
    OP_MEMOIZE = 0x94,
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_TUPLE2 = 0x86,
    OP_EMPTY_LIST = ']',
    OP_APPENDS = 'e',
    OP_EMPTY_DICT = '}',
    OP_SETITEMS = 'u',
};

static void pickle_writer_put(struct pickle_writer *writer, int byte)
{
    putc(byte, writer->out);
}

static void pickle_writer_put_little(struct pickle_writer *writer, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        pickle_writer_put(writer, (int)(value >> (8 * i) & 0xff));
    }
}

void pickle_write_begin(struct pickle_writer *writer, FILE *out)
{
    *writer = (struct pickle_writer){.out = out};
    pickle_writer_put(writer, OP_PROTO);
    pickle_writer_put(writer, 4);
}

void pickle_write_end(struct pickle_writer *writer)
{
    pickle_writer_put(writer, OP_STOP);
}

void pickle_write_bool(struct pickle_writer *writer, bool value)
{
    pickle_writer_put(writer, value ? OP_NEWTRUE : OP_NEWFALSE);
}

void pickle_write_signed(struct pickle_writer *writer, int64_t value)
{
    if (value >= 0) {
        pickle_write_unsigned(writer, (uint64_t)value);
    } else if (value >= INT32_MIN) {
        pickle_writer_put(writer, OP_BININT);
        pickle_writer_put_little(writer, (uint64_t)value, 4);
    } else {
        pickle_writer_put(writer, OP_LONG1);
        pickle_writer_put(writer, 8);
        pickle_writer_put_little(writer, (uint64_t)value, 8);
    }
}

/* Longs are two's complement: a top bit that is set needs one byte more. */
void pickle_write_unsigned(struct pickle_writer *writer, uint64_t value)
{
    if (value <= UINT8_MAX) {
        pickle_writer_put(writer, OP_BININT1);
        pickle_writer_put_little(writer, value, 1);
    } else if (value <= UINT16_MAX) {
        pickle_writer_put(writer, OP_BININT2);
        pickle_writer_put_little(writer, value, 2);
    } else if (value <= INT32_MAX) {
        pickle_writer_put(writer, OP_BININT);
        pickle_writer_put_little(writer, value, 4);
    } else {
        unsigned bytes = (unsigned)(64 - __builtin_clzll(value)) / 8 + 1;
        pickle_writer_put(writer, OP_LONG1);
        pickle_writer_put(writer, (int)bytes);
        pickle_writer_put_little(writer, value, bytes < 8 ? bytes : 8);
        if (bytes > 8) {
            pickle_writer_put(writer, 0);
        }
    }
}

void pickle_write_real(struct pickle_writer *writer, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    pickle_writer_put(writer, OP_BINFLOAT);
    bits = __builtin_bswap64(bits);
    pickle_writer_put_little(writer, bits, 8);
}

void pickle_write_text(struct pickle_writer *writer, const char *text)
{
    size_t bytes = strlen(text);
    if (bytes <= UINT8_MAX) {
        pickle_writer_put(writer, OP_SHORT_BINUNICODE);
        pickle_writer_put_little(writer, bytes, 1);
    } else {
        pickle_writer_put(writer, OP_BINUNICODE);
        pickle_writer_put_little(writer, bytes, 4);
    }
    fwrite(text, 1, bytes, writer->out);
}

uint32_t pickle_write_memo(struct pickle_writer *writer)
{
    pickle_writer_put(writer, OP_MEMOIZE);
    return writer->memo_count++;
}

void pickle_write_again(struct pickle_writer *writer, uint32_t memo)
{
    if (memo <= UINT8_MAX) {
        pickle_writer_put(writer, OP_BINGET);
        pickle_writer_put_little(writer, memo, 1);
    } else {
        pickle_writer_put(writer, OP_LONG_BINGET);
        pickle_writer_put_little(writer, memo, 4);
    }
}

void pickle_write_key(struct pickle_writer *writer, const char *literal)
{
    for (size_t i = 0; i < writer->key_count; i++) {
        if (writer->keys[i].text == literal) {
            pickle_write_again(writer, writer->keys[i].memo);
            return;
        }
    }
    pickle_write_text(writer, literal);
    if (writer->key_count < PICKLE_WRITER_KEYS_MAX) {
        writer->keys[writer->key_count].text = literal;
        writer->keys[writer->key_count++].memo = pickle_write_memo(writer);
    }
}

void pickle_write_opcodes(struct pickle_writer *writer, const char *bytes, size_t count)
{
    fwrite(bytes, 1, count, writer->out);
}

void pickle_write_pair(struct pickle_writer *writer)
{
    pickle_writer_put(writer, OP_TUPLE2);
}

void pickle_list_begin(struct pickle_writer *writer, struct pickle_batch *batch)
{
    pickle_writer_put(writer, OP_EMPTY_LIST);
    batch->pending = 0;
}

void pickle_list_item(struct pickle_writer *writer, struct pickle_batch *batch)
{
    if (batch->pending == BATCH) {
        pickle_writer_put(writer, OP_APPENDS);
        batch->pending = 0;
    }
    if (batch->pending++ == 0) {
        pickle_writer_put(writer, OP_MARK);
    }
}

void pickle_list_end(struct pickle_writer *writer, struct pickle_batch *batch)
{
    if (batch->pending > 0) {
        pickle_writer_put(writer, OP_APPENDS);
    }
}

void pickle_dict_begin(struct pickle_writer *writer)
{
    pickle_writer_put(writer, OP_EMPTY_DICT);
    pickle_writer_put(writer, OP_MARK);
}

void pickle_dict_end(struct pickle_writer *writer)
{
    pickle_writer_put(writer, OP_SETITEMS);
}
