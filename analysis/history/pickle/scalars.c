/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opcodes that push a number, a text or bytes. Lengths are claims of the file: a text is read as far as
 * the data go, a long one (PICKLE_TEXT_MAX) and all bytes are passed over without being kept, so that memory
 * follows what has arrived. Numbers of protocols 0 and 1 stand in lines of text. Called through
 * pickle_opcodes.
 */
#include "analysis/history/pickle/pickle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 4096

/* ---- numbers in binary ---- */

static uint64_t little_endian(const unsigned char *bytes, size_t count)
{
    uint64_t number = 0;

    for (size_t i = 0; i < count; i++) {
        number |= (uint64_t)bytes[i] << (8 * i);
    }
    return number;
}

int pickle_run_binint(struct pickle *pickle)
{
    const unsigned char *bytes = pickle_take_bytes(pickle, 4);

    if (bytes == NULL) {
        return pickle_fail_truncated(pickle);
    }
    return pickle_push(pickle, PICKLE_INTEGER, (uint64_t)(int64_t)(int32_t)little_endian(bytes, 4));
}

int pickle_run_binint1(struct pickle *pickle)
{
    const unsigned char *bytes = pickle_take_bytes(pickle, 1);

    return bytes == NULL ? pickle_fail_truncated(pickle) : pickle_push(pickle, PICKLE_INTEGER, bytes[0]);
}

int pickle_run_binint2(struct pickle *pickle)
{
    const unsigned char *bytes = pickle_take_bytes(pickle, 2);

    if (bytes == NULL) {
        return pickle_fail_truncated(pickle);
    }
    return pickle_push(pickle, PICKLE_INTEGER, little_endian(bytes, 2));
}

/* Two's complement, lowest byte first, of any length. */
static int push_integer(struct pickle *pickle, const unsigned char *bytes, size_t count)
{
    unsigned char sign = count > 0 && bytes[count - 1] >= 0x80 ? 0xff : 0;
    uint64_t number;

    while (count > 8 && bytes[count - 1] == sign) {
        count--;
    }
    if (count > 8) {
        return pickle_push(pickle, PICKLE_BIG, 0);
    }
    number = little_endian(bytes, count);
    if (sign != 0 && count < 8) {
        number |= UINT64_MAX << (8 * count);
    }
    if ((int64_t)number < 0 && sign == 0) {
        return pickle_push(pickle, PICKLE_UNSIGNED, number);
    }
    if ((int64_t)number >= 0 && sign != 0) {
        return pickle_push(pickle, PICKLE_BIG, 0);
    }
    return pickle_push(pickle, PICKLE_INTEGER, number);
}

int pickle_run_long1(struct pickle *pickle)
{
    const unsigned char *count = pickle_take_bytes(pickle, 1);
    const unsigned char *bytes = count != NULL ? pickle_take_bytes(pickle, *count) : NULL;

    return bytes == NULL ? pickle_fail_truncated(pickle) : push_integer(pickle, bytes, *count);
}

static int skip_bytes(struct pickle *pickle, uint64_t count)
{
    struct input_stream *input = pickle->input;

    while (count > 0) {
        size_t there = (size_t)(input->end - input->next);
        size_t step = count < there ? (size_t)count : there;
        int error;

        input->next += step;
        count -= step;
        if (count > 0) {
            error = input_stream_fill(input, 1, pickle->message);
            if (error != VARVE_OK) {
                return error;
            }
            if (input->next == input->end) {
                return pickle_fail_truncated(pickle);
            }
        }
    }
    return VARVE_OK;
}

int pickle_run_long4(struct pickle *pickle)
{
    const unsigned char *bytes = pickle_take_bytes(pickle, 4);
    uint64_t count = bytes != NULL ? little_endian(bytes, 4) : 0;
    int error;

    if (bytes == NULL) {
        return pickle_fail_truncated(pickle);
    }
    if (count > INT32_MAX) {
        return pickle_fail(pickle, pickle->offset, "LONG4 of a negative length");
    }
    if (count <= 256) {
        bytes = pickle_take_bytes(pickle, (size_t)count);
        return bytes == NULL ? pickle_fail_truncated(pickle) : push_integer(pickle, bytes, (size_t)count);
    }
    error = skip_bytes(pickle, count);
    return error != VARVE_OK ? error : pickle_push(pickle, PICKLE_BIG, 0);
}

int pickle_run_binfloat(struct pickle *pickle)
{
    const unsigned char *bytes = pickle_take_bytes(pickle, 8);
    uint64_t bits = 0;

    if (bytes == NULL) {
        return pickle_fail_truncated(pickle);
    }
    for (size_t i = 0; i < 8; i++) {
        bits = bits << 8 | bytes[i];
    }
    return pickle_push(pickle, PICKLE_FLOAT, bits);
}

/* ---- texts and bytes with a length ---- */

static int push_text(struct pickle *pickle, uint64_t count)
{
    struct input_stream *input = pickle->input;
    int error;

    if (count > PICKLE_TEXT_MAX) {
        error = skip_bytes(pickle, count);
        return error != VARVE_OK ? error : pickle_push(pickle, PICKLE_LONG_TEXT, 0);
    }
    if ((size_t)(input->end - input->next) < count) {
        error = input_stream_fill(input, (size_t)count, pickle->message);
        if (error != VARVE_OK) {
            return error;
        }
        if ((size_t)(input->end - input->next) < count) {
            return pickle_fail_truncated(pickle);
        }
    }
    input->next += count;
    return pickle_push(pickle, PICKLE_TEXT,
                       pickle_text(pickle, (const char *)input->next - count, (size_t)count));
}

static int push_bytes(struct pickle *pickle, uint64_t count)
{
    int error = skip_bytes(pickle, count);

    return error != VARVE_OK ? error : pickle_push(pickle, PICKLE_BYTES, 0);
}

static int run_counted(struct pickle *pickle, size_t count_bytes,
                       int (*push)(struct pickle *pickle, uint64_t count))
{
    const unsigned char *bytes = pickle_take_bytes(pickle, count_bytes);
    uint64_t count = bytes != NULL ? little_endian(bytes, count_bytes) : 0;

    if (bytes == NULL) {
        return pickle_fail_truncated(pickle);
    }
    if (count > INT64_MAX) {
        return pickle_fail(pickle, pickle->offset, "a length of %llu bytes", (unsigned long long)count);
    }
    return push(pickle, count);
}

int pickle_run_text1(struct pickle *pickle)
{
    return run_counted(pickle, 1, push_text);
}

int pickle_run_text4(struct pickle *pickle)
{
    return run_counted(pickle, 4, push_text);
}

int pickle_run_text8(struct pickle *pickle)
{
    return run_counted(pickle, 8, push_text);
}

int pickle_run_bytes1(struct pickle *pickle)
{
    return run_counted(pickle, 1, push_bytes);
}

int pickle_run_bytes4(struct pickle *pickle)
{
    return run_counted(pickle, 4, push_bytes);
}

int pickle_run_bytes8(struct pickle *pickle)
{
    return run_counted(pickle, 8, push_bytes);
}

/* ---- lines of protocols 0 and 1 ---- */

/* The line behind the opcode, without its end; valid until the window moves. */
static int read_line(struct pickle *pickle, const char **line_out, size_t *bytes_out)
{
    struct input_stream *input = pickle->input;
    int error = input_stream_fill(input, LINE_MAX_BYTES, pickle->message);
    size_t there = (size_t)(input->end - input->next);
    size_t limit = there < LINE_MAX_BYTES ? there : LINE_MAX_BYTES;
    const unsigned char *end;

    if (error != VARVE_OK) {
        return error;
    }
    end = memchr(input->next, '\n', limit);
    if (end == NULL) {
        return limit < LINE_MAX_BYTES
                   ? pickle_fail_truncated(pickle)
                   : pickle_fail(pickle, pickle->offset, "a line of more than %d bytes", LINE_MAX_BYTES);
    }
    *line_out = (const char *)input->next;
    *bytes_out = (size_t)(end - input->next);
    input->next = end + 1;
    return VARVE_OK;
}

static struct pickle_value parse_decimal(const char *digits)
{
    struct pickle_value value = {.type = PICKLE_INTEGER};
    char *end;

    errno = 0;
    value.bits = (uint64_t)strtoll(digits, &end, 10);
    if (errno == ERANGE && digits[0] != '-') {
        errno = 0;
        value.type = PICKLE_UNSIGNED;
        value.bits = strtoull(digits, &end, 10);
    }
    if (errno == ERANGE) {
        value.type = PICKLE_BIG;
        value.bits = 0;
    }
    return value;
}

int pickle_read_decimal(struct pickle *pickle, struct pickle_value *value_out)
{
    const char *line = "";
    size_t bytes = 0;
    char digits[64];
    int error = read_line(pickle, &line, &bytes);

    if (error != VARVE_OK) {
        return error;
    }
    if (bytes > 1 && line[bytes - 1] == 'L') { /* of LONG */
        bytes--;
    }
    for (size_t i = 0; i < bytes; i++) {
        if ((line[i] < '0' || line[i] > '9') && (i > 0 || line[i] != '-' || bytes == 1)) {
            bytes = 0;
        }
    }
    if (bytes == 0) {
        return pickle_fail(pickle, pickle->offset, "%s without a decimal number",
                           pickle_opcodes[pickle->opcode].name);
    }
    if (bytes < sizeof(digits)) {
        memcpy(digits, line, bytes);
        digits[bytes] = '\0';
        *value_out = parse_decimal(digits);
    } else {
        *value_out = (struct pickle_value){.type = PICKLE_BIG};
    }
    return VARVE_OK;
}

int pickle_run_int(struct pickle *pickle)
{
    const unsigned char *next = pickle->input->next;
    struct pickle_value value = {0};
    int error;

    /* Protocols before 2 write bools as I00 and I01. */
    if (pickle->input->end - next >= 3 && next[0] == '0' && (next[1] | 1) == '1' && next[2] == '\n') {
        pickle->input->next += 3;
        return pickle_push(pickle, PICKLE_BOOL, next[1] == '1');
    }
    error = pickle_read_decimal(pickle, &value);
    return error != VARVE_OK ? error : pickle_push(pickle, (enum pickle_type)value.type, value.bits);
}

int pickle_run_long(struct pickle *pickle)
{
    struct pickle_value value = {0};
    int error = pickle_read_decimal(pickle, &value);

    return error != VARVE_OK ? error : pickle_push(pickle, (enum pickle_type)value.type, value.bits);
}

int pickle_run_float(struct pickle *pickle)
{
    const char *line = "";
    size_t bytes = 0;
    char digits[64], *end;
    double number;
    uint64_t bits;
    int error = read_line(pickle, &line, &bytes);

    if (error != VARVE_OK) {
        return error;
    }
    snprintf(digits, sizeof(digits), "%.*s", bytes < sizeof(digits) ? (int)bytes : 0, line);
    number = strtod(digits, &end);
    if (digits[0] == '\0' || *end != '\0') {
        return pickle_fail(pickle, pickle->offset, "FLOAT without a number");
    }
    memcpy(&bits, &number, sizeof(bits));
    return pickle_push(pickle, PICKLE_FLOAT, bits);
}

/* A text in quotes, as Python 2 wrote it. */
int pickle_run_string(struct pickle *pickle)
{
    const char *line = "";
    size_t bytes = 0;
    int error = read_line(pickle, &line, &bytes);

    if (error != VARVE_OK) {
        return error;
    }
    if (bytes < 2 || (line[0] != '\'' && line[0] != '"') || line[bytes - 1] != line[0]) {
        return pickle_fail(pickle, pickle->offset, "STRING without quotes");
    }
    if (memchr(line, '\\', bytes) != NULL) {
        return pickle_fail(pickle, pickle->offset, "STRING with escapes is not supported");
    }
    return pickle_push(pickle, PICKLE_TEXT, pickle_text(pickle, line + 1, bytes - 2));
}

static size_t put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 63));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 63));
        to[2] = (char)(0x80 | (code & 63));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 63));
    to[2] = (char)(0x80 | (code >> 6 & 63));
    to[3] = (char)(0x80 | (code & 63));
    return 4;
}

/* A line in Latin 1 with \uXXXX and \UXXXXXXXX. */
int pickle_run_unicode(struct pickle *pickle)
{
    const char *line = "";
    size_t bytes = 0, to = 0;
    char text[2 * LINE_MAX_BYTES];
    int error = read_line(pickle, &line, &bytes);

    if (error != VARVE_OK) {
        return error;
    }
    for (size_t from = 0; from < bytes;) {
        uint32_t code = (unsigned char)line[from++];
        size_t digits = code == '\\' && from < bytes ? (line[from] == 'u'   ? 4
                                                        : line[from] == 'U' ? 8
                                                                            : 0)
                                                     : 0;

        if (digits > 0) {
            char number[9] = "", *end;

            memcpy(number, line + from + 1, digits < bytes - from - 1 ? digits : bytes - from - 1);
            code = (uint32_t)strtoul(number, &end, 16);
            if (end != number + digits || code > 0x10ffff) {
                return pickle_fail(pickle, pickle->offset, "UNICODE with a damaged escape");
            }
            from += 1 + digits;
        }
        to += put_utf8(text + to, code);
    }
    return pickle_push(pickle, PICKLE_TEXT, pickle_text(pickle, text, to));
}
