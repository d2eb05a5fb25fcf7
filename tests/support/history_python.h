/* SPDX-License-Identifier: Apache-2.0 */
/* C only: the definitions of test programs, each includes it once */
/*
 * Snapshots that Python makes on the spot, for the tests that read them: a script between a prelude of
 * helpers and a pipe that carries each pickle with the text that goes with it.
 */
#ifndef VARVE_TESTS_SUPPORT_HISTORY_PYTHON_H
#define VARVE_TESTS_SUPPORT_HISTORY_PYTHON_H

#include <cmocka.h>
#include <stdio.h>

#include "analysis/snapshot/snapshot_read.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* `d` is the snapshot; pack() writes it. */
static const char prelude[] =
    "import pickle, random, struct, sys, io\n"
    "def pack(d, expected=b'', protocol=4, pickler=pickle.Pickler):\n"
    "    f = io.BytesIO(); pickler(f, protocol).dump(d); p = f.getvalue()\n"
    "    sys.stdout.buffer.write(struct.pack('<QQ', len(p), len(expected)) + p + expected)\n"
    "def event(action='alloc', addr=4096, size=512, **more):\n"
    "    return dict({'action': action, 'addr': addr, 'size': size, 'stream': 0, 'time_us': 7, 'frames': "
    "[]}, **more)\n"
    "def block(**more): return dict({'size': 2 << 20, 'state': 'inactive'}, **more)\n"
    "def segment(**more):\n"
    "    return dict({'device': 0, 'address': 1 << 21, 'total_size': 2 << 20, 'stream': 0, 'segment_type': "
    "'small',\n"
    "                 'blocks': [block()]}, **more)\n"
    "def snapshot(**more): return dict({'segments': [], 'device_traces': [[]]}, **more)\n"
    "def without(d, key): return {k: v for k, v in d.items() if k != key}\n";

struct made {
    char *data, *expected;
    size_t bytes;
};

static inline FILE *python_open(const char *body, const char *arguments)
{
    char script[] = "/tmp/varve-snapshot-XXXXXX", command[200];
    int file = mkstemp(script);
    assert_true(file >= 0);
    assert_int_equal(dprintf(file, "%s%s", prelude, body), sizeof(prelude) - 1 + strlen(body));
    close(file);
    snprintf(command, sizeof(command), "python3 %s %s; status=$?; rm %s; exit $status", script, arguments, script);
    FILE *pipe = popen(command, "r");

    assert_non_null(pipe);
    return pipe;
}

/* Bodies that know nothing of each other, in one Python: the one at `first`, and each `stride` bytes on. */
static inline FILE *python_open_each(const char *const *first, size_t stride, size_t count)
{
    char *body = NULL;
    size_t bytes;
    FILE *out = open_memstream(&body, &bytes);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "exec(r'''%s''', dict(globals()))\n", *(const char *const *)((const char *)first + i * stride));
    }
    fclose(out);
    FILE *pipe = python_open(body, "");

    free(body);
    return pipe;
}

/* False at the end, at which Python must have succeeded. */
static inline bool python_next(FILE *pipe, struct made *made)
{
    uint64_t sizes[2] = {0, 0};
    *made = (struct made){NULL, NULL, 0};
    if (fread(sizes, sizeof(sizes), 1, pipe) != 1) {
        assert_int_equal(pclose(pipe), 0);
        return false;
    }
    *made = (struct made){malloc(sizes[0]), calloc(1, sizes[1] + 1), sizes[0]};
    assert_int_equal(fread(made->data, 1, sizes[0], pipe), sizes[0]);
    assert_int_equal(fread(made->expected, 1, sizes[1], pipe), sizes[1]);
    return true;
}

static inline void made_free(struct made *made)
{
    free(made->data);
    free(made->expected);
}

static inline int read_bytes(const char *data, size_t bytes, struct history **history_out,
                             struct varve_message *message)
{
    struct input_stream *input;
    assert_int_equal(input_stream_open_memory("p", data, bytes, &input, message), VARVE_OK);
    return history_read_pytorch_stream(input, history_out, NULL, message);
}

/* ---- a history as text, line by line, without what was inferred ---- */

static inline void print_stack(FILE *out, const struct history *history, uint32_t number)
{
    const struct history_stack *stack = &history->stacks[number];
    for (uint32_t i = 0; i < stack->frame_count; i++) {
        const struct history_frame *frame = &history->frames[stack->first_frame + i];
        fprintf(out, " %s:%u:%s", history->texts[frame->file], frame->line, history->texts[frame->function]);
    }
    fputc('\n', out);
}

static inline void print_device(FILE *out, const struct history *history, const struct history_device *device)
{
    fprintf(out, "device %zu %d\n", device->skipped_count, device->has_overflowed);
    for (size_t i = 0; i < device->event_count; i++) {
        const struct history_event *event = &device->events[i];
        if (device->inferred >> event->action & 1U) {
            continue;
        }
        fprintf(out, "e %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRId64, event->action, event->addr, event->size,
                history->streams[event->stream], event->time_us);
        print_stack(out, history, event->stack);
    }
    for (size_t i = 0; i < device->segment_count; i++) {
        const struct history_segment *segment = &device->segments[i];
        fprintf(out,
                "s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                " %d %d",
                segment->addr, segment->size, segment->allocated, segment->active, segment->requested,
                history->streams[segment->stream], segment->pool_id[0], segment->pool_id[1], segment->is_small,
                segment->is_expandable);
        print_stack(out, history, segment->stack);
        for (size_t j = 0; j < segment->block_count; j++) {
            const struct history_block *block = &device->blocks[segment->first_block + j];
            fprintf(out, "b %" PRIu64 " %" PRIu64 " %" PRIu64 " %d", block->addr, block->size, block->requested,
                    block->state);
            print_stack(out, history, block->stack);
        }
    }
}

/* Owner: the caller, by free. */
static inline char *print_history(const struct history *history)
{
    const struct history_settings *settings = &history->settings;
    size_t bytes;
    char *text = NULL;
    FILE *out = open_memstream(&text, &bytes);
    for (size_t i = 0; i < history->device_count; i++) {
        print_device(out, history, &history->devices[i]);
    }
    fprintf(out, "settings %d '%s' %" PRId64 " %g %d", settings->is_known, settings->text, settings->max_split_size,
            settings->garbage_collection_threshold, settings->expandable_segments);
    for (int i = 0; i < 16; i++) {
        fprintf(out, " %" PRIu64, settings->divisions[i]);
    }
    fputc('\n', out);
    fclose(out);
    return text;
}

#endif
