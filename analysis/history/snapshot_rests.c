/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line each, numbers and bytes in hexadecimal; `event` is the number of the entry in the device's history:
 *   r event keys bytes      a history_rest
 *   x event bytes           an entry that says nothing of memory, before that event
 *   s event addr size stream time callsite   the mark of a snapshot, which no event of a database is
 *   t event time            of an event whose time went back, or was not known: times of a database do neither
 *   f event bytes           what the device had free, of a failed request
 *   g segment bytes         a history_segment's rest, by its number among those of the device
 *   b block bytes           the same of a block
 * Of the snapshot itself: `root` and `settings` with their bytes; `form` with a bit each for a list, no segments, no
 * traces, and the number of traces; `unknown` with the numbers of fields and entries, and what was wrong with the
 * first.
 */
#include "analysis/history/history_database.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/query/database.h"
#include "base/error.h"
#include "trace/writer.h"

#include <stdint.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES 40
#define DEPTH_MAX 20 /* of values within values */
#define FIELDS_MAX 6
#define DEVICES_MAX 256

/* ---- writing ---- */

static void snapshot_rests_write_bytes(FILE *out, const struct history *history, uint32_t text)
{
    char *digits = hexadecimal(history->texts[text], history_text_bytes(history, text));
    fprintf(out, " %s\n", digits);
    free(digits);
}

static void snapshot_rests_write_event(FILE *out, const struct history *history, const struct history_event *event,
                                       size_t index, const uint32_t *callsites)
{
    if (event->action == HISTORY_SNAPSHOT) {
        fprintf(out, "s %zx %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx32 "\n", index, event->addr,
                event->size, history->streams[event->stream], (uint64_t)event->time_us, callsites[event->stack]);
    } else if (event->action == HISTORY_OOM) {
        fprintf(out, "f %zx %" PRIx64 "\n", index, event->addr);
    }
}

static void write_device(FILE *out, const struct history *history, const struct history_device *device,
                         const uint32_t *callsites, const struct history_numbers *moved)
{
    for (size_t i = 0; i < device->event_count; i++) {
        snapshot_rests_write_event(out, history, &device->events[i], i, callsites);
    }
    for (size_t i = 0; i < moved->count; i++) {
        fprintf(out, "t %zx %" PRIx64 "\n", moved->items[i], (uint64_t)device->events[moved->items[i]].time_us);
    }
    for (size_t i = 0; i < device->rest_count; i++) {
        fprintf(out, "r %zx %x", device->rests[i].event, device->rests[i].keys);
        snapshot_rests_write_bytes(out, history, device->rests[i].text);
    }
    for (size_t i = 0; i < device->skipped_count; i++) {
        fprintf(out, "x %zx", device->skipped[i].event);
        snapshot_rests_write_bytes(out, history, device->skipped[i].text);
    }
    for (size_t i = 0; i < device->segment_count; i++) {
        if (device->segments[i].rest != 0) {
            fprintf(out, "g %zx", i);
            snapshot_rests_write_bytes(out, history, device->segments[i].rest);
        }
    }
    for (size_t i = 0; i < device->block_count; i++) {
        if (device->blocks[i].rest != 0) {
            fprintf(out, "b %zx", i);
            snapshot_rests_write_bytes(out, history, device->blocks[i].rest);
        }
    }
}

void history_write_rests(struct varve_writer *writer, const struct history *history, const uint32_t *callsites,
                         const struct history_numbers *moved)
{
    if (!history->rests.is_known) {
        return;
    }
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, &bytes);
    fputs("root", out);
    snapshot_rests_write_bytes(out, history, history->rests.root);
    fputs("settings", out);
    snapshot_rests_write_bytes(out, history, history->rests.settings);
    fprintf(out, "form %x %x\n",
            history->rests.is_list | history->rests.lacks_segments << 1 | history->rests.lacks_traces << 2,
            history->rests.traces);
    if (history->unknown.fields + history->unknown.entries > 0) {
        fprintf(out, "unknown %" PRIx64 " %" PRIx64 " %s\n", history->unknown.fields, history->unknown.entries,
                history->unknown.first);
    }
    history_write_lines(writer, "history.rest", out, &text);
    for (size_t i = 0; i < history->device_count; i++) {
        char key[KEY_BYTES];
        snprintf(key, sizeof(key), "history.rest.%zu", i);
        out = memory_stream(&text, &bytes);
        write_device(out, history, &history->devices[i], callsites, &moved[i]);
        history_write_lines(writer, key, out, &text);
    }
}

/* ---- reading ---- */

/* A file may be hostile, and what is taken here goes into a pickle that others load: these must be the opcodes of plain
 * values, whole ones, and no others. Returns the bytes of the value at `bytes`, 0 if it is none. */
static size_t value_bytes(const unsigned char *bytes, size_t count, unsigned depth);

static uint64_t little(const unsigned char *bytes)
{
    return bytes[0] | (uint64_t)bytes[1] << 8 | (uint64_t)bytes[2] << 16 | (uint64_t)bytes[3] << 24;
}

/* Values from `at` on up to the opcode `end`. */
static size_t container_bytes(const unsigned char *bytes, size_t count, size_t at, unsigned char end, unsigned depth)
{
    size_t values = 0;
    while (at < count && bytes[at] != end) {
        size_t value = depth < DEPTH_MAX ? value_bytes(bytes + at, count - at, depth + 1) : 0;
        if (value == 0) {
            return 0;
        }
        at += value;
        values++;
    }
    return at < count && (end != 'u' || values % 2 == 0) ? at + 1 : 0;
}

static size_t value_bytes(const unsigned char *bytes, size_t count, unsigned depth)
{
    if (count == 0) {
        return 0;
    }
    size_t needed = 0;
    switch (bytes[0]) {
    case 'N':
    case 0x88:
    case 0x89:
        needed = 1;
        break;
    case 'J':
        needed = 5;
        break;
    case 'G':
        needed = 9;
        break;
    case 0x8a:
        needed = count > 1 ? 2U + bytes[1] : 0;
        break;
    case 'X':
        needed = count > 4 ? 5U + (size_t)little(bytes + 1) : 0;
        break;
    case ']':
    case '}':
        return count > 1 && bytes[1] == '(' ? container_bytes(bytes, count, 2, bytes[0] == ']' ? 'e' : 'u', depth) : 0;
    case '(':
        return container_bytes(bytes, count, 1, 't', depth);
    default:
        break;
    }
    return needed <= count ? needed : 0;
}

/* Key and value by turns, or one value that is a dict. */
static bool snapshot_rests_is_plain(const char *text, size_t count, bool is_dict)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t values = 0;
    for (size_t at = 0; at < count; values++) {
        size_t value = value_bytes(bytes + at, count - at, 0);
        if (value == 0 || (is_dict ? bytes[at] != '}' : values % 2 == 0 && bytes[at] != 'X')) {
            return false;
        }
        at += value;
    }
    return is_dict ? values == 1 : values % 2 == 0;
}

/* Hexadecimal bytes, in place, as a text of the history. */
static bool snapshot_rests_take_bytes(struct history *history, char *text, bool is_dict, uint32_t *number_out)
{
    size_t count = strlen(text);
    for (size_t i = 0; i < count; i += 2) {
        int high = format_hexadecimal_digit(text[i]);
        int low = format_hexadecimal_digit(text[i + 1]); /* at the end of an odd number of digits: the zero */
        if (high < 0 || low < 0) {
            return false;
        }
        text[i / 2] = (char)(high * 16 + low);
    }
    if (!snapshot_rests_is_plain(text, count / 2, is_dict)) {
        return false;
    }
    *number_out = history_text(history, text, count / 2);
    return true;
}

/* `count` numbers, each behind a space; `*rest_out`: what follows. */
static bool take_numbers(char *line, uint64_t *numbers, size_t count, char **rest_out)
{
    for (size_t i = 0; i < count; i++) {
        if (*line != ' ') {
            return false;
        }
        char *end;
        numbers[i] = strtoull(line + 1, &end, 16);
        if (end == line + 1) {
            return false;
        }
        line = end;
    }
    *rest_out = line;
    return true;
}

struct rests_reader {
    struct history *history;
    struct history_device *device;
    struct history_stacks *stacks;
};

/* Marks come in rising order, so that each lands where it was. */
static bool take_mark(struct rests_reader *reader, const uint64_t *n)
{
    struct history_device *device = reader->device;
    struct history_event mark = {.addr = n[1], .size = n[2], .time_us = (int64_t)n[4], .action = HISTORY_SNAPSHOT};
    if (n[0] > device->event_count || history_stream(reader->history, n[3], &mark.stream) != VARVE_OK) {
        return false;
    }
    mark.stack = history_stacks_of(reader->stacks, n[5]);
    history_add_event(device);
    memmove(&device->events[n[0] + 1], &device->events[n[0]],
            (device->event_count - 1 - n[0]) * sizeof(device->events[0]));
    device->events[n[0]] = mark;
    return true;
}

static bool snapshot_rests_take_line(void *context, char *line)
{
    struct rests_reader *reader = context;
    struct history_device *device = reader->device;
    size_t fields = line[0] == 's' ? 6 : strchr("xgb", line[0]) != NULL ? 1 : 2;
    uint64_t n[FIELDS_MAX] = {0};
    char *rest;
    if (!take_numbers(line + 1, n, fields, &rest)) {
        return false;
    }
    uint32_t text;
    switch (line[0]) {
    case 's':
        return take_mark(reader, n);
    case 't':
    case 'f':
        if (n[0] >= device->event_count) {
            return false;
        }
        if (line[0] == 't') {
            device->events[n[0]].time_us = (int64_t)n[1];
        } else {
            device->events[n[0]].addr = n[1];
        }
        return true;
    case 'g':
    case 'b':
        return n[0] < (line[0] == 'g' ? device->segment_count : device->block_count) && *rest == ' ' &&
               snapshot_rests_take_bytes(reader->history, rest + 1, false,
                                         line[0] == 'g' ? &device->segments[n[0]].rest : &device->blocks[n[0]].rest);
    case 'r':
    case 'x':
        if (*rest != ' ' || !snapshot_rests_take_bytes(reader->history, rest + 1, line[0] == 'x', &text)) {
            return false;
        }
        if (line[0] == 'r') {
            history_add_rest(device, n[0], text, (uint16_t)n[1]);
        } else {
            history_add_skipped(device, text);
            device->skipped[device->skipped_count - 1].event = n[0];
        }
        return true;
    default:
        return false;
    }
}

static bool snapshot_rests_take_unknown(struct history *history, char *line)
{
    uint64_t n[2];
    char *rest;
    bool is_good = take_numbers(line, n, 2, &rest) && *rest == ' ';
    if (is_good) {
        history->unknown.fields = n[0];
        history->unknown.entries = n[1];
        snprintf(history->unknown.first, sizeof(history->unknown.first), "%.190s", rest + 1);
    }
    return is_good;
}

static bool take_form(struct history *history, char *line)
{
    uint64_t n[2];
    char *rest;
    if (!take_numbers(line, n, 2, &rest) || n[1] > DEVICES_MAX) {
        return false;
    }
    history->rests.is_list = (n[0] & 1) != 0;
    history->rests.lacks_segments = (n[0] & 2) != 0;
    history->rests.lacks_traces = (n[0] & 4) != 0;
    history->rests.traces = (uint16_t)n[1];
    return n[1] == 0 || history_device(history, n[1] - 1) != NULL;
}

static bool take_root_line(void *context, char *line)
{
    struct history *history = context;
    char *space = strchr(line, ' ');
    if (strncmp(line, "unknown ", 8) == 0) {
        return snapshot_rests_take_unknown(history, line + 7);
    }
    if (strncmp(line, "form ", 5) == 0) {
        return take_form(history, line + 4);
    }
    bool is_root = strncmp(line, "root ", 5) == 0;
    return space != NULL && (is_root || strncmp(line, "settings ", 9) == 0) &&
           snapshot_rests_take_bytes(history, space + 1, false,
                                     is_root ? &history->rests.root : &history->rests.settings);
}

int history_read_rests(struct database *database, struct history *history, struct history_stacks *stacks,
                       struct varve_message *message)
{
    struct rests_reader reader = {.history = history, .stacks = stacks};
    bool ignored;
    int error =
        history_read_lines(database, "history.rest", take_root_line, history, &history->rests.is_known, message);
    for (size_t i = 0; i < history->device_count && error == VARVE_OK && history->rests.is_known; i++) {
        char key[KEY_BYTES];
        snprintf(key, sizeof(key), "history.rest.%zu", i);
        reader.device = &history->devices[i];
        error = history_read_lines(database, key, snapshot_rests_take_line, &reader, &ignored, message);
    }
    return error;
}
