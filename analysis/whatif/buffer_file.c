/* SPDX-License-Identifier: Apache-2.0 */
/* A line at a time out of the stream's window. Fields are numbers and plain names: nothing is quoted in this format. */
#include "analysis/whatif/buffer_file.h"

#include "analysis/base/file_kind.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/input_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LINE_BYTES_MAX ((size_t)INPUT_STREAM_WINDOW_BYTES / 2)
#define FIELDS_MAX 64
#define SHOWN(text) (int)((text).count < 40 ? (text).count : 40), (text).bytes

enum column {
    COLUMN_ID,
    COLUMN_LOWER,
    COLUMN_UPPER,
    COLUMN_SIZE,
    COLUMN_OFFSET,
    COLUMN_LIMIT,
    COLUMN_UNSUPPORTED = COLUMN_LIMIT,
    COLUMN_SKIPPED,
};

static const struct {
    const char *name;
    enum column column;
} column_names[] = {
    {"id", COLUMN_ID},       {"buffer", COLUMN_ID},     {"buffer_id", COLUMN_ID},          {"lower", COLUMN_LOWER},
    {"start", COLUMN_LOWER}, {"begin", COLUMN_LOWER},   {"upper", COLUMN_UPPER},           {"end", COLUMN_UPPER},
    {"size", COLUMN_SIZE},   {"offset", COLUMN_OFFSET}, {"alignment", COLUMN_UNSUPPORTED}, {"gaps", COLUMN_UNSUPPORTED},
};

struct text {
    const char *bytes;
    size_t count;
};

struct reader {
    struct input_stream *input;
    struct buffer_file *file;
    struct varve_message *message;
    size_t line;                /* from 1 */
    int field_of[COLUMN_LIMIT]; /* -1: none */
    int field_count;
    bool is_end_inclusive;
    uint64_t bytes; /* of all buffers so far */
};

static int buffer_file_fail(struct reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));

static int buffer_file_fail(struct reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char reason[256];
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return varve_message_set(reader->message, VARVE_ERROR_FORMAT, "%s: line %zu: %s", input_stream_path(reader->input),
                             reader->line, reason);
}

/* The next line, without its end; it lives until the next call. At the end: `bytes` is NULL. */
static int buffer_file_next_line(struct reader *reader, struct text *line_out)
{
    struct input_stream *input = reader->input;
    for (;;) {
        size_t there = (size_t)(input->end - input->next);
        const unsigned char *newline = there > 0 ? memchr(input->next, '\n', there) : NULL;
        if (newline != NULL || input->is_at_end) {
            size_t taken = newline != NULL ? (size_t)(newline - input->next) : there;
            *line_out = (struct text){there > 0 ? (const char *)input->next : NULL, taken};
            input->next += taken + (newline != NULL ? 1 : 0);
            while (line_out->count > 0 &&
                   (line_out->bytes[line_out->count - 1] == '\r' || line_out->bytes[line_out->count - 1] == ' ')) {
                line_out->count--;
            }
            reader->line++;
            return VARVE_OK;
        }
        if (there >= LINE_BYTES_MAX) {
            reader->line++;
            return buffer_file_fail(reader, "longer than %zu bytes", LINE_BYTES_MAX);
        }
        int error = input_stream_fill(input, there + 1, reader->message);
        if (error != VARVE_OK) {
            return error;
        }
    }
}

/* Returns how many fields there are, of which at most FIELDS_MAX are set. Blanks around a field are no part of it. */
static int buffer_file_split(struct text line, struct text fields[FIELDS_MAX])
{
    int count = 0;
    const char *at = line.bytes;
    const char *end = line.bytes + line.count;
    for (;;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        const char *last = stop;
        while (at < last && (*at == ' ' || *at == '\t')) {
            at++;
        }
        while (at < last && (last[-1] == ' ' || last[-1] == '\t')) {
            last--;
        }
        if (count < FIELDS_MAX) {
            fields[count] = (struct text){at, (size_t)(last - at)};
        }
        count++;
        if (comma == NULL) {
            return count;
        }
        at = comma + 1;
    }
}

static bool buffer_file_is_text(struct text text, const char *name)
{
    return text.count == strlen(name) && memcmp(text.bytes, name, text.count) == 0;
}

/* No control characters. */
static bool buffer_file_is_plain(struct text text)
{
    for (size_t i = 0; i < text.count; i++) {
        unsigned char byte = (unsigned char)text.bytes[i];
        if (byte < ' ' || byte == 0x7f) {
            return false;
        }
    }
    return true;
}

static enum column column_of(struct text name)
{
    for (size_t i = 0; i < sizeof(column_names) / sizeof(column_names[0]); i++) {
        if (buffer_file_is_text(name, column_names[i].name)) {
            return column_names[i].column;
        }
    }
    return COLUMN_SKIPPED;
}

static const char *column_name(enum column column)
{
    size_t i = 0;
    while (column_names[i].column != column) {
        i++;
    }
    return column_names[i].name;
}

static int take_header(struct reader *reader, struct text line)
{
    struct text fields[FIELDS_MAX];
    reader->field_count = buffer_file_split(line, fields);
    if (reader->field_count > FIELDS_MAX) {
        return buffer_file_fail(reader, "more than %d columns", FIELDS_MAX);
    }
    for (int i = 0; i < COLUMN_LIMIT; i++) {
        reader->field_of[i] = -1;
    }
    for (int i = 0; i < reader->field_count; i++) {
        enum column column = column_of(fields[i]);
        if (column == COLUMN_UNSUPPORTED) {
            return buffer_file_fail(reader, "buffers with a column '%.*s' can't be placed here", SHOWN(fields[i]));
        }
        if (column == COLUMN_SKIPPED) {
            continue;
        }
        if (reader->field_of[column] >= 0) {
            return buffer_file_fail(reader, "two columns for %s", column_name(column));
        }
        reader->field_of[column] = i;
        reader->is_end_inclusive = reader->is_end_inclusive || buffer_file_is_text(fields[i], "end");
    }
    for (int i = 0; i < COLUMN_OFFSET; i++) {
        if (reader->field_of[i] < 0) {
            return buffer_file_fail(reader, "no column '%s': the first line names the columns, id,lower,upper,size",
                                    column_name((enum column)i));
        }
    }
    reader->file->has_offsets = reader->field_of[COLUMN_OFFSET] >= 0;
    return VARVE_OK;
}

static int take_number(struct reader *reader, const struct text *fields, enum column column, int64_t *number_out)
{
    struct text text = fields[reader->field_of[column]];
    char digits[32];
    if (text.count == 0 || text.count >= sizeof(digits) || (text.bytes[0] != '-' && text.bytes[0] < '0') ||
        text.bytes[0] > '9') {
        return buffer_file_fail(reader, "%s '%.*s' is no whole number", column_name(column), SHOWN(text));
    }
    memcpy(digits, text.bytes, text.count);
    digits[text.count] = '\0';
    errno = 0;
    char *end;
    *number_out = strtoll(digits, &end, 10);
    if (end != digits + text.count || end == digits) {
        return buffer_file_fail(reader, "%s '%.*s' is no whole number", column_name(column), SHOWN(text));
    }
    if (errno == ERANGE) {
        return buffer_file_fail(reader, "%s %.*s does not fit into 64 bits", column_name(column), SHOWN(text));
    }
    if (*number_out < 0 && column >= COLUMN_SIZE) {
        return buffer_file_fail(reader, "%s %" PRId64 " is negative", column_name(column), *number_out);
    }
    return VARVE_OK;
}

static void add_buffer(struct buffer_file *file, struct text id, const struct placement_buffer *buffer)
{
    file->buffers = memory_grow(file->buffers, &file->buffer_capacity, file->count, sizeof(*file->buffers));
    file->ids = memory_grow(file->ids, &file->id_capacity, file->count, sizeof(*file->ids));
    if (file->text_capacity - file->text_bytes < id.count + 1) {
        file->text_capacity = 2 * (file->text_bytes + id.count + 1);
        file->texts = memory_resize(file->texts, file->text_capacity);
    }
    file->buffers[file->count] = *buffer;
    file->ids[file->count++] = file->text_bytes;
    memcpy(file->texts + file->text_bytes, id.bytes, id.count);
    file->text_bytes += id.count;
    file->texts[file->text_bytes++] = '\0';
}

static int take_buffer(struct reader *reader, struct text line)
{
    struct text fields[FIELDS_MAX];
    int count = buffer_file_split(line, fields);
    if (count != reader->field_count) {
        return buffer_file_fail(reader, "%d fields, but the first line names %d columns", count, reader->field_count);
    }
    if (!buffer_file_is_plain(fields[reader->field_of[COLUMN_ID]])) {
        return buffer_file_fail(reader, "the id has a control character");
    }
    int64_t numbers[COLUMN_LIMIT] = {0};
    for (int i = COLUMN_LOWER; i < COLUMN_LIMIT; i++) {
        int error = reader->field_of[i] < 0 ? VARVE_OK : take_number(reader, fields, (enum column)i, &numbers[i]);
        if (error != VARVE_OK) {
            return error;
        }
    }
    if (reader->is_end_inclusive && numbers[COLUMN_UPPER] < INT64_MAX) {
        numbers[COLUMN_UPPER]++;
    }
    if (numbers[COLUMN_LOWER] >= numbers[COLUMN_UPPER]) {
        return buffer_file_fail(reader, "the buffer ends at %" PRId64 ", no later than it begins, at %" PRId64,
                                numbers[COLUMN_UPPER], numbers[COLUMN_LOWER]);
    }
    if ((uint64_t)numbers[COLUMN_SIZE] > PLACEMENT_BYTES_MAX - reader->bytes) {
        return buffer_file_fail(reader, "with this one the buffers have more than 2^62 bytes");
    }
    reader->bytes += (uint64_t)numbers[COLUMN_SIZE];
    add_buffer(reader->file, fields[reader->field_of[COLUMN_ID]],
               &(struct placement_buffer){.lower = numbers[COLUMN_LOWER],
                                          .upper = numbers[COLUMN_UPPER],
                                          .size = (uint64_t)numbers[COLUMN_SIZE],
                                          .offset = (uint64_t)numbers[COLUMN_OFFSET]});
    return VARVE_OK;
}

static int buffer_file_take_lines(struct reader *reader)
{
    for (;;) {
        struct text line;
        int error = buffer_file_next_line(reader, &line);
        if (error != VARVE_OK) {
            return error;
        }
        if (line.bytes == NULL) {
            break;
        }
        if (line.count > 0) {
            error = reader->field_count == 0 ? take_header(reader, line) : take_buffer(reader, line);
        }
        if (error != VARVE_OK) {
            return error;
        }
    }
    return reader->file->count > 0 ? VARVE_OK
                                   : varve_message_set(reader->message, VARVE_ERROR_FORMAT, "%s: no buffers",
                                                       input_stream_path(reader->input));
}

int buffer_file_read_stream(struct input_stream *input, struct buffer_file *file, struct varve_message *message)
{
    struct reader reader = {.input = input, .file = file, .message = message};
    const struct file_kind *kind; /* no matter: this is for a byte order mark */
    *file = (struct buffer_file){0};
    int error = input_stream_kind(input, &kind, message);
    VARVE_THEN(error, buffer_file_take_lines(&reader));
    input_stream_close(input);
    if (error != VARVE_OK) {
        buffer_file_free(file);
    }
    return error;
}

int buffer_file_read(const char *path, struct buffer_file *file, struct varve_message *message)
{
    struct input_stream *input;
    int error = input_stream_open(path, &input, message);
    return error != VARVE_OK ? error : buffer_file_read_stream(input, file, message);
}

bool buffer_file_recognise(const char *path)
{
    struct varve_message ignored = {""};
    struct buffer_file none = {0};
    struct reader reader = {.file = &none, .message = &ignored};
    struct text line = {NULL, 0};
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISREG(status.st_mode) ||
        input_stream_open(path, &reader.input, &ignored) != VARVE_OK) {
        return false;
    }
    const struct file_kind *kind = NULL;
    bool is_one = input_stream_kind(reader.input, &kind, &ignored) == VARVE_OK && kind == NULL &&
                  buffer_file_next_line(&reader, &line) == VARVE_OK && line.bytes != NULL &&
                  memchr(line.bytes, ',', line.count) != NULL && buffer_file_is_plain(line);
    for (size_t i = 0; is_one && i < line.count; i++) {
        is_one = line.bytes[i] != '{' && line.bytes[i] != '[' && line.bytes[i] != '(';
    }
    input_stream_close(reader.input);
    return is_one;
}

const char *buffer_file_id(const struct buffer_file *file, size_t number)
{
    return file->texts + file->ids[number];
}

void buffer_file_write(FILE *out, const struct buffer_file *file, const struct placement_buffer *buffers, size_t count)
{
    fputs("id,lower,upper,size,offset\n", out);
    for (size_t i = 0; i < count; i++) {
        if (file != NULL) {
            fputs(buffer_file_id(file, i), out);
        } else {
            fprintf(out, "%zu", i);
        }
        fprintf(out, ",%" PRId64 ",%" PRId64 ",%" PRIu64 ",%" PRIu64 "\n", buffers[i].lower, buffers[i].upper,
                buffers[i].size, buffers[i].offset);
    }
}

void buffer_file_free(struct buffer_file *file)
{
    free(file->buffers);
    free(file->ids);
    free(file->texts);
    *file = (struct buffer_file){0};
}
