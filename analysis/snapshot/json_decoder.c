/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers are filled in portions, as picklers do, so that a list of millions of events is never whole in memory.
 * Depth is the decoder's to limit: nothing here calls itself.
 */
#include "analysis/snapshot/json_decoder.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PORTION 1000
#define WORD_BYTES_MAX 63 /* of a number that is kept, or true, NaN, -Infinity */
#define END (-1)

#define OPCODE_MARK '('
#define OPCODE_EMPTY_DICT '}'
#define OPCODE_EMPTY_LIST ']'
#define OPCODE_SETITEMS 'u'
#define OPCODE_APPENDS 'e'

/* A container that is not closed. */
struct level {
    bool is_dict, has_items;
    uint32_t waiting; /* items above its mark */
};

struct reader {
    struct pickle *pickle;
    struct level *levels;
    size_t depth, capacity;
    char *text; /* PICKLE_TEXT_MAX bytes of the string at hand */
    size_t text_bytes;
    bool is_text_long; /* longer than that */
    uint32_t high;     /* the first half of a pair of UTF-16, whose second one may come; 0: none */
    int error;         /* of the stream */
};

static int json_decoder_fail(struct reader *reader, const char *what)
{
    struct input_stream *input = reader->pickle->input;
    return reader->error != VARVE_OK ? reader->error
           : input->next == input->end
               ? pickle_fail(reader->pickle, input_stream_offset(input), "the JSON ends where %s is due", what)
               : pickle_fail(reader->pickle, input_stream_offset(input), "no JSON: %s is due", what);
}

/* ---- bytes ---- */

/* The next byte, which stays where it is, or END. */
static int peek(struct reader *reader)
{
    struct pickle *pickle = reader->pickle;
    struct input_stream *input = pickle->input;
    if (input->next == input->end && reader->error == VARVE_OK) {
        reader->error = input_stream_fill(input, 1, pickle->message);
        if (pickle->progress != NULL) {
            progress_step(pickle->progress, "reading the snapshot", input_stream_done(input),
                          input_stream_total(input));
        }
    }
    return reader->error != VARVE_OK || input->next == input->end ? END : *input->next;
}

static int json_decoder_take(struct reader *reader)
{
    int byte = peek(reader);
    reader->pickle->input->next += byte != END;
    return byte;
}

/* The first byte that is no white space; it stays. */
static int peek_token(struct reader *reader)
{
    int byte = peek(reader);
    while (byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r') {
        json_decoder_take(reader);
        byte = peek(reader);
    }
    return byte;
}

static int json_decoder_step(struct reader *reader, unsigned char opcode)
{
    return pickle_step(reader->pickle, input_stream_offset(reader->pickle->input), opcode);
}

static int json_decoder_push(struct reader *reader, enum pickle_type type, uint64_t bits)
{
    return pickle_push(reader->pickle, input_stream_offset(reader->pickle->input), type, bits);
}

/* ---- strings ---- */

static void json_decoder_add(struct reader *reader, const void *bytes, size_t count)
{
    if (count > PICKLE_TEXT_MAX - reader->text_bytes) {
        reader->is_text_long = true;
        return;
    }
    memcpy(reader->text + reader->text_bytes, bytes, count);
    reader->text_bytes += count;
}

static void add_character(struct reader *reader, uint32_t code)
{
    char bytes[4];
    const size_t count = format_utf8_point(bytes, code);
    json_decoder_add(reader, bytes, count);
}

/* Four digits of hexadecimal; false if they are not there. */
static bool json_decoder_take_code(struct reader *reader, uint32_t *code_out)
{
    *code_out = 0;
    for (int i = 0; i < 4; i++) {
        int digit = format_hexadecimal_digit(json_decoder_take(reader));
        if (digit < 0) {
            return false;
        }
        *code_out = *code_out << 4 | (uint32_t)digit;
    }
    return true;
}

/* What is in front of it was half a pair, which no UTF-8 has. */
static void end_pair(struct reader *reader)
{
    if (reader->high != 0) {
        reader->high = 0;
        add_character(reader, 0xfffd);
    }
}

/* Behind \u. */
static bool take_unicode(struct reader *reader)
{
    uint32_t code;
    if (!json_decoder_take_code(reader, &code)) {
        return false;
    }
    bool is_high = code >= 0xd800 && code < 0xdc00, is_low = code >= 0xdc00 && code < 0xe000;
    if (is_low && reader->high != 0) {
        code = 0x10000 + ((reader->high - 0xd800) << 10 | (code - 0xdc00));
        reader->high = 0;
        add_character(reader, code);
        return true;
    }
    end_pair(reader);
    if (is_high) {
        reader->high = code;
    } else {
        add_character(reader, is_low ? 0xfffd : code);
    }
    return true;
}

static bool take_escape(struct reader *reader)
{
    static const char escapes[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    int byte = json_decoder_take(reader);
    if (byte == 'u') {
        return take_unicode(reader);
    }
    end_pair(reader);
    const char *found = byte > 0 ? strchr(escapes, byte) : NULL;
    if (found != NULL) {
        json_decoder_add(reader, &meanings[found - escapes], 1);
    }
    return found != NULL;
}

/* Behind the opening quote. */
static int take_string(struct reader *reader)
{
    struct input_stream *input = reader->pickle->input;
    reader->text_bytes = 0;
    reader->is_text_long = false;
    reader->high = 0;
    for (int byte = peek(reader); byte != '"'; byte = peek(reader)) {
        if (byte == END) {
            return json_decoder_fail(reader, "the end of a string");
        }
        const unsigned char *at = input->next;
        while (at < input->end && *at != '"' && *at != '\\') {
            at++;
        }
        if (at > input->next) {
            end_pair(reader);
            json_decoder_add(reader, input->next, (size_t)(at - input->next));
            input->next = at;
        }
        if (at < input->end && *at == '\\') {
            json_decoder_take(reader);
            if (!take_escape(reader)) {
                return json_decoder_fail(reader, "what an escape stands for");
            }
        }
    }
    json_decoder_take(reader);
    end_pair(reader);
    return reader->is_text_long
               ? json_decoder_push(reader, PICKLE_LONG_TEXT, 0)
               : json_decoder_push(reader, PICKLE_TEXT,
                                   pickle_text(&reader->pickle->memory, reader->text, reader->text_bytes));
}

/* ---- numbers and words ---- */

static bool is_of_word(int byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           byte == '-' || byte == '+' || byte == '.';
}

static int json_decoder_push_integer(struct reader *reader, const char *word)
{
    errno = 0;
    uint64_t magnitude = strtoull(word + (*word == '-'), NULL, 10);
    if (errno != 0 || (*word == '-' && magnitude > (uint64_t)INT64_MAX + 1)) {
        return json_decoder_push(reader, PICKLE_BIG, 0);
    }
    return json_decoder_push(reader, *word != '-' && magnitude > INT64_MAX ? PICKLE_UNSIGNED : PICKLE_INTEGER,
                             *word == '-' ? 0 - magnitude : magnitude);
}

static int push_word(struct reader *reader, const char *word)
{
    const char *digits = word + (*word == '-');
    if (strcmp(word, "null") == 0) {
        return json_decoder_push(reader, PICKLE_NONE, 0);
    }
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        return json_decoder_push(reader, PICKLE_BOOL, *word == 't');
    }
    if (*digits != '\0' && digits[strspn(digits, "0123456789")] == '\0') {
        return json_decoder_push_integer(reader, word);
    }
    char *end;
    double number = strtod(word, &end);
    uint64_t bits;
    if (end == word || *end != '\0') {
        return json_decoder_fail(reader, "a value");
    }
    memcpy(&bits, &number, sizeof(bits));
    return json_decoder_push(reader, PICKLE_FLOAT, bits);
}

static int take_word(struct reader *reader)
{
    char word[WORD_BYTES_MAX + 1];
    size_t count = 0;
    bool is_number = true;
    for (int byte = peek(reader); is_of_word(byte); byte = peek(reader)) {
        is_number = is_number && ((byte >= '0' && byte <= '9') || (count == 0 && byte == '-'));
        word[count < WORD_BYTES_MAX ? count : WORD_BYTES_MAX - 1] = (char)json_decoder_take(reader);
        count++;
    }
    if (count > WORD_BYTES_MAX) {
        return is_number ? json_decoder_push(reader, PICKLE_BIG, 0) : json_decoder_fail(reader, "a value");
    }
    word[count] = '\0';
    return push_word(reader, word);
}

/* ---- containers ---- */

static int open_level(struct reader *reader, bool is_dict)
{
    int error = json_decoder_step(reader, is_dict ? OPCODE_EMPTY_DICT : OPCODE_EMPTY_LIST);
    VARVE_THEN(error, json_decoder_step(reader, OPCODE_MARK));
    json_decoder_take(reader);
    *MEMORY_ADD(reader->levels, reader->depth, reader->capacity) = (struct level){.is_dict = is_dict};
    return error;
}

static int json_decoder_fill(struct reader *reader, struct level *level)
{
    level->waiting = 0;
    return json_decoder_step(reader, level->is_dict ? OPCODE_SETITEMS : OPCODE_APPENDS);
}

static int take_value(struct reader *reader)
{
    int byte = peek_token(reader);
    if (byte == '{' || byte == '[') {
        return open_level(reader, byte == '{');
    }
    if (byte == '"') {
        json_decoder_take(reader);
        return take_string(reader);
    }
    return is_of_word(byte) ? take_word(reader) : json_decoder_fail(reader, "a value");
}

static int take_key(struct reader *reader)
{
    if (peek_token(reader) != '"') {
        return json_decoder_fail(reader, "a key");
    }
    json_decoder_take(reader);
    int error = take_string(reader);
    if (error == VARVE_OK && peek_token(reader) != ':') {
        return json_decoder_fail(reader, "a colon");
    }
    json_decoder_take(reader);
    return error;
}

/* The innermost container's next item, or its end. */
static int json_decoder_take_item(struct reader *reader)
{
    struct level *level = &reader->levels[reader->depth - 1];
    int error = VARVE_OK;
    int byte = peek_token(reader);
    if (byte == (level->is_dict ? '}' : ']')) {
        json_decoder_take(reader);
        reader->depth--;
        return json_decoder_fill(reader, level);
    }
    if (level->has_items) {
        if (byte != ',') {
            return json_decoder_fail(reader, "a comma");
        }
        json_decoder_take(reader);
    }
    level->has_items = true;
    if (level->waiting++ == PORTION) {
        error = json_decoder_fill(reader, level);
        VARVE_THEN(error, json_decoder_step(reader, OPCODE_MARK));
        level->waiting = 1;
    }
    if (level->is_dict) {
        VARVE_THEN(error, take_key(reader));
    }
    VARVE_THEN(error, take_value(reader));
    return error;
}

int pickle_run_json(struct pickle *pickle, struct pickle_value *root_out)
{
    struct reader reader = {.pickle = pickle, .text = memory_resize(NULL, PICKLE_TEXT_MAX)};
    int error = take_value(&reader);
    while (error == VARVE_OK && reader.depth > 0) {
        error = json_decoder_take_item(&reader);
    }
    if (error == VARVE_OK && peek_token(&reader) != END) {
        error = pickle_fail(pickle, input_stream_offset(pickle->input), "data follow the JSON");
    }
    VARVE_THEN(error, reader.error);
    if (error == VARVE_OK) {
        *root_out = pickle->stack[0];
    }
    free(reader.levels);
    free(reader.text);
    return error;
}
