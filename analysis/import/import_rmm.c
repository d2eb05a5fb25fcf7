/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line is read whole or counted as unreadable: programs write to the same file, and buffers that a crash left
 * unwritten cut the last one. Times have no day: a time is put into the day in which it is nearest to the
 * one in front of it.
 */
#include "analysis/import/import_log.h"

#include "analysis/base/input_stream.h"
#include "analysis/base/number_format.h"
#include "analysis/base/progress.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX 4096
#define PROGRESS_LINES 65536
#define NS_PER_S INT64_C(1000000000)
#define DAY_NS (INT64_C(86400) * NS_PER_S)
#define SECONDS_MAX (INT64_C(1) << 33)

enum field {
    FIELD_THREAD,
    FIELD_TIME,
    FIELD_ACTION,
    FIELD_POINTER,
    FIELD_SIZE,
    FIELD_STREAM,
    FIELDS,
};

static const char *const field_names[FIELDS] = {"Thread", "Time", "Action", "Pointer", "Size", "Stream"};

struct text {
    const char *bytes;
    size_t count;
};

struct call {
    uint64_t thread, addr, size, stream;
    int64_t time_ns;
    bool is_of_day; /* the time is */
    struct text action;
};

struct reader {
    struct input_stream *input;
    struct import_requests *requests;
    unsigned device;
    uint64_t first, line; /* number of the line */
    size_t columns[FIELDS];
    size_t column_count;
    int64_t last_ns; /* of the entry in front; -1: none */
    bool is_cut;
    int error; /* of the stream: what is in its window are the last lines */
    struct varve_message message;
};

/* ---- a line ---- */

static bool import_rmm_is_text(struct text text, const char *word)
{
    return text.count == strlen(word) && memcmp(text.bytes, word, text.count) == 0;
}

/* Digits of a base and nothing else. */
static bool read_digits(struct text text, unsigned base, uint64_t *value_out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < text.count; i++) {
        int found = format_hexadecimal_digit(text.bytes[i]);
        unsigned digit = found >= 0 ? (unsigned)found : base;
        if (digit >= base || value > (UINT64_MAX - digit) / base) {
            return false;
        }
        value = value * base + digit;
    }
    *value_out = value;
    return text.count > 0;
}

/* A pointer as C, C++ and fmt print it. */
static bool read_pointer(struct text text, uint64_t *value_out)
{
    if (import_rmm_is_text(text, "(nil)") || import_rmm_is_text(text, "nullptr")) {
        *value_out = 0;
        return true;
    }
    if (text.count > 2 && text.bytes[0] == '0' && (text.bytes[1] | 0x20) == 'x') {
        text.bytes += 2;
        text.count -= 2;
    }
    return read_digits(text, 16, value_out);
}

/* A fraction of a second, of any number of digits. */
static bool import_rmm_read_fraction(struct text text, int64_t *ns_out)
{
    int64_t ns = 0;
    int64_t unit = NS_PER_S;
    for (size_t i = 0; i < text.count; i++) {
        if (text.bytes[i] < '0' || text.bytes[i] > '9') {
            return false;
        }
        unit /= 10;
        ns += (text.bytes[i] - '0') * unit;
    }
    *ns_out = ns;
    return text.count > 0;
}

static bool read_time_of_day(struct text text, int64_t *ns_out)
{
    if (text.count < 10 || text.bytes[2] != ':' || text.bytes[5] != ':' ||
        (text.bytes[8] != '.' && text.bytes[8] != ':')) {
        return false;
    }
    uint64_t parts[3];
    for (size_t i = 0; i < 3; i++) {
        if (!read_digits((struct text){text.bytes + 3 * i, 2}, 10, &parts[i])) {
            return false;
        }
    }
    int64_t ns;
    if (parts[0] > 23 || parts[1] > 59 || parts[2] > 60 ||
        !import_rmm_read_fraction((struct text){text.bytes + 9, text.count - 9}, &ns)) {
        return false;
    }
    *ns_out = (int64_t)(parts[0] * 3600 + parts[1] * 60 + parts[2]) * NS_PER_S + ns;
    return true;
}

static bool import_rmm_read_time(struct text text, struct call *call)
{
    const char *point = memchr(text.bytes, '.', text.count);
    size_t whole = point != NULL ? (size_t)(point - text.bytes) : text.count;
    call->is_of_day = read_time_of_day(text, &call->time_ns);
    if (call->is_of_day) {
        return true;
    }
    uint64_t seconds;
    int64_t ns = 0;
    if (!read_digits((struct text){text.bytes, whole}, 10, &seconds) || seconds > SECONDS_MAX ||
        (point != NULL && !import_rmm_read_fraction((struct text){point + 1, text.count - whole - 1}, &ns))) {
        return false;
    }
    call->time_ns = (int64_t)seconds * NS_PER_S + ns;
    return true;
}

/* At most `limit` fields; their number. */
static size_t import_rmm_split(struct text line, struct text *fields, size_t limit)
{
    size_t count = 0;
    const char *at = line.bytes;
    const char *end = line.bytes + line.count;
    while (count < limit) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        fields[count++] = (struct text){at, (size_t)(stop - at)};
        if (comma == NULL) {
            return count;
        }
        at = comma + 1;
    }
    return limit + 1;
}

#define COLUMNS_MAX 16

/* The columns that a header names, in any order and with others among them; unchanged if the line is none. */
static bool import_rmm_read_header(struct text line, size_t columns[FIELDS], size_t *count_out)
{
    struct text names[COLUMNS_MAX];
    size_t count = import_rmm_split(line, names, COLUMNS_MAX);
    if (count > COLUMNS_MAX) {
        return false;
    }
    size_t found[FIELDS];
    for (size_t field = 0; field < FIELDS; field++) {
        size_t column = 0;
        while (column < count && !import_rmm_is_text(names[column], field_names[field])) {
            column++;
        }
        if (column == count) {
            return false;
        }
        found[field] = column;
    }
    memcpy(columns, found, sizeof(found));
    *count_out = count;
    return true;
}

static bool read_call(struct text line, const size_t columns[FIELDS], size_t column_count, struct call *call)
{
    struct text fields[COLUMNS_MAX];
    if (column_count > COLUMNS_MAX || import_rmm_split(line, fields, COLUMNS_MAX) != column_count) {
        return false;
    }
    call->action = fields[columns[FIELD_ACTION]];
    return read_digits(fields[columns[FIELD_THREAD]], 10, &call->thread) &&
           import_rmm_read_time(fields[columns[FIELD_TIME]], call) &&
           read_pointer(fields[columns[FIELD_POINTER]], &call->addr) &&
           read_digits(fields[columns[FIELD_SIZE]], 10, &call->size) &&
           read_pointer(fields[columns[FIELD_STREAM]], &call->stream) && call->action.count > 0 &&
           import_is_memory(call->addr, call->size);
}

static struct text import_rmm_trim(struct text line)
{
    while (line.count > 0 && (line.bytes[line.count - 1] == '\r' || line.bytes[line.count - 1] == ' ')) {
        line.count--;
    }
    return line;
}

static const size_t columns_usual[FIELDS] = {0, 1, 2, 3, 4, 5};

static bool known_action(struct text text, enum import_action *action_out)
{
    static const struct {
        const char *name;
        enum import_action action;
    } actions[] = {
        {"allocate", IMPORT_ALLOC},
        {"free", IMPORT_FREE},
        {"deallocate", IMPORT_FREE}, /* so in RMM's user guide */
        {"allocate failure", IMPORT_FAILURE},
    };
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (import_rmm_is_text(text, actions[i].name)) {
            *action_out = actions[i].action;
            return true;
        }
    }
    return false;
}

bool rmm_is_line(const char *line, size_t bytes)
{
    struct text text = import_rmm_trim((struct text){line, bytes});
    size_t columns[FIELDS];
    size_t count;
    struct call call;
    enum import_action action;
    return import_rmm_read_header(text, columns, &count) ||
           (read_call(text, columns_usual, FIELDS, &call) && known_action(call.action, &action));
}

/* ---- the log ---- */

/* The day that is missing is the one that makes the step from the entry in front smallest. */
static int64_t time_of(struct reader *reader, const struct call *call)
{
    int64_t time_ns = call->time_ns;
    if (call->is_of_day && reader->last_ns >= 0) {
        time_ns += reader->last_ns / DAY_NS * DAY_NS;
        if (reader->last_ns - time_ns > DAY_NS / 2) {
            time_ns += DAY_NS;
        } else if (time_ns - reader->last_ns > DAY_NS / 2 && time_ns >= DAY_NS) {
            time_ns -= DAY_NS;
        }
    }
    reader->last_ns = time_ns;
    return time_ns;
}

static void import_rmm_take_call(struct reader *reader, const struct call *call, uint64_t number)
{
    struct import_requests *requests = reader->requests;
    enum import_action action;
    if (!known_action(call->action, &action)) {
        import_requests_fault(requests, IMPORT_FAULT_UNKNOWN_ACTION, number);
        return;
    }
    if (action != IMPORT_FAILURE && (call->addr == 0 || (call->size == 0 && action == IMPORT_ALLOC))) {
        import_requests_fault(requests, IMPORT_FAULT_EMPTY, number);
        return;
    }
    struct import_request *request = import_requests_add(requests, number);
    request->time_ns = time_of(reader, call);
    request->addr = call->addr;
    request->size = call->size;
    request->thread = import_requests_thread(requests, 0, call->thread, number);
    request->stream = import_requests_stream(requests, call->stream, number);
    request->device = (uint8_t)reader->device;
    request->action = (uint8_t)action;
    request->target = IMPORT_BLOCK;
}

static void import_rmm_take_line(struct reader *reader, struct text line, bool is_whole)
{
    uint64_t number = reader->first + reader->line;
    line = import_rmm_trim(line);
    if (line.count == 0) {
        return;
    }
    if (import_rmm_read_header(line, reader->columns, &reader->column_count)) {
        if (reader->line > 1) {
            import_requests_fault(reader->requests, IMPORT_FAULT_HEADER, number);
        }
        return;
    }
    import_requests_entry(reader->requests);
    struct call call;
    if (read_call(line, reader->columns, reader->column_count, &call)) {
        import_rmm_take_call(reader, &call, number);
    } else {
        import_requests_fault(reader->requests, is_whole ? IMPORT_FAULT_UNREADABLE : IMPORT_FAULT_CUT, number);
        reader->is_cut = !is_whole;
    }
}

/* The next line in the window, of which what is longer than any line of a log is cut into several; false at the end. */
static bool import_rmm_next_line(struct reader *reader, struct text *line_out, bool *is_whole_out)
{
    struct input_stream *input = reader->input;
    size_t seen = 0;
    for (;;) {
        size_t there = (size_t)(input->end - input->next);
        const unsigned char *newline = there > seen ? memchr(input->next + seen, '\n', there - seen) : NULL;
        bool is_end = input->is_at_end || reader->error != VARVE_OK;
        if (newline != NULL || there >= LINE_BYTES_MAX || is_end) {
            size_t count = newline != NULL ? (size_t)(newline - input->next) : there;
            *line_out = (struct text){(const char *)input->next, count};
            *is_whole_out = newline != NULL || !is_end;
            return newline != NULL || count > 0;
        }
        seen = there;
        reader->error = input_stream_fill(input, there + 1, &reader->message);
    }
}

static void take_next(struct reader *reader, struct text line)
{
    struct input_stream *input = reader->input;
    input->next = (const unsigned char *)line.bytes + line.count;
    if (input->next < input->end && *input->next == '\n') {
        input->next++;
    }
}

static void read_lines(struct reader *reader, struct progress *progress)
{
    struct text line;
    bool is_whole;
    while (import_rmm_next_line(reader, &line, &is_whole)) {
        reader->line++;
        import_rmm_take_line(reader, line, is_whole);
        take_next(reader, line);
        if (progress != NULL && reader->line % PROGRESS_LINES == 0) {
            progress_step(progress, "reading", input_stream_done(reader->input), input_stream_total(reader->input));
        }
    }
}

int rmm_read(struct input_stream *input, unsigned device, uint64_t first, struct import_requests *requests,
             struct progress *progress, struct varve_message *message)
{
    struct reader reader = {
        .input = input, .requests = requests, .column_count = FIELDS, .device = device, .first = first, .last_ns = -1};
    size_t before = import_requests_count(requests);
    memcpy(reader.columns, columns_usual, sizeof(columns_usual));
    import_requests_first_time(requests, &reader.last_ns); /* the day of the logs before */
    read_lines(&reader, progress);
    if (reader.error == VARVE_ERROR_FORMAT && import_requests_count(requests) > before) {
        if (!reader.is_cut) { /* compressed, and cut off between two lines */
            import_requests_fault(requests, IMPORT_FAULT_CUT, first + reader.line);
        }
        reader.error = VARVE_OK;
    }
    input_stream_close(input);
    return reader.error == VARVE_OK ? VARVE_OK : varve_message_set(message, reader.error, "%s", reader.message.text);
}
