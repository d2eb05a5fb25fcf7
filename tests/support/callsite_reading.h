/* SPDX-License-Identifier: Apache-2.0 */
/* C only: the definitions of a test program, included by one file of each */
/*
 * For the tests of trace/stacks/callsite_here.c: a reader of the call-site file that accepts nothing but whole,
 * well-formed entries; stand-ins for the rest of the recorder and for a Python interpreter; and a function that calls
 * a hook by a chosen path, so that any number of distinct stacks can be made.
 */
#ifndef VARVE_TESTS_SUPPORT_CALLSITE_READING_H
#define VARVE_TESTS_SUPPORT_CALLSITE_READING_H

#include "trace/guest/guest_clock.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/own_stack.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/stacks/callsite_here.h"
#include "trace/stacks/callsite_writer.h"
#include "trace/stacks/python_stack.h"
#include "trace/format/callsite_format.h"
#include "trace/format/session_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__GNUC__) && !defined(__clang__)
#define NOINLINE __attribute__((noipa, unused))
#else
#define NOINLINE __attribute__((noinline, unused))
#endif
#define KEEP_FRAME() __asm__ volatile("" ::: "memory")

/* ---- stand-ins ---- */

__thread uint32_t recorder_reentrant_depth;
uint32_t varve_clock_is_tsc;

void recorder_clock_leave(void)
{
}

void recorder_reentrant_begin(struct recorder_signals *saved)
{
    recorder_signals_block(saved);
    recorder_reentrant_depth++;
}

void recorder_reentrant_end(const struct recorder_signals *saved)
{
    recorder_reentrant_depth--;
    recorder_signals_restore(saved);
}

static struct python_frame fake_python[CALLSITE_FILE_DEPTH_MAX];
static unsigned fake_python_count;
static unsigned fake_python_described;

unsigned python_stack_capture(struct python_frame *frames, unsigned max)
{
    unsigned count = fake_python_count < max ? fake_python_count : max;
    memcpy(frames, fake_python, count * sizeof(frames[0]));
    return count;
}

unsigned python_stack_ends(struct python_frame *frames)
{
    memcpy(frames, fake_python, fake_python_count * sizeof(frames[0]));
    return fake_python_count;
}

void python_stack_modules_changed(void)
{
}

/* A null name stands for one that cannot be read. */
bool python_stack_describe(const struct python_frame *frame, char *name, size_t name_bytes, char *file,
                           size_t file_bytes, uint32_t *line)
{
    if (frame->name == NULL) {
        return false;
    }
    fake_python_described++;
    snprintf(name, name_bytes, "%s", (const char *)frame->name);
    snprintf(file, file_bytes, "%s", (const char *)frame->filename);
    *line = frame->first_line + frame->instruction;
    return true;
}

/* ---- reading ---- */

struct read_callsite {
    uint16_t native_count;
    uint16_t python_count;
    uint64_t *pcs; /* innermost first, as the others */
    struct callsite_file_python *python;
};

struct read_node {
    uint64_t frame;
    uint32_t parent;
    bool is_python;
};

struct read_module {
    struct callsite_file_module entry;
    const unsigned char *build_id;
    char path[MODULE_PATH_MAX + 1];
    bool is_gone;
};

struct read_code {
    struct callsite_file_code entry;
    char name[512];
    char file[2048];
};

#define READ_MODULES_MAX 64
#define READ_CODES_MAX 64

struct reading {
    unsigned char *bytes;
    struct read_callsite *callsites; /* [number] */
    unsigned callsite_count;
    unsigned callsite_capacity;
    struct read_node *nodes; /* [number] */
    unsigned node_count;
    unsigned node_capacity;
    struct read_module modules[READ_MODULES_MAX];
    unsigned module_count;
    struct read_code codes[READ_CODES_MAX];
    unsigned code_count;
    struct callsite_file_loss lost;
};

static inline void read_module(struct reading *to, const unsigned char *payload, size_t bytes)
{
    struct read_module *module = &to->modules[to->module_count];
    assert_true(to->module_count < READ_MODULES_MAX && bytes >= sizeof(module->entry));
    memcpy(&module->entry, payload, sizeof(module->entry));
    size_t used = sizeof(module->entry) + module->entry.build_id_bytes + module->entry.path_bytes;

    assert_int_equal(bytes, (used + 7) & ~(size_t)7);
    assert_int_equal(module->entry.number, to->module_count++);
    assert_true(module->entry.base < module->entry.end);
    module->build_id = payload + sizeof(module->entry);
    memcpy(module->path, module->build_id + module->entry.build_id_bytes, module->entry.path_bytes);
    module->path[module->entry.path_bytes] = '\0';
}

static inline void read_gone(struct reading *to, const unsigned char *payload, size_t bytes)
{
    struct callsite_file_gone gone;
    assert_int_equal(bytes, sizeof(gone));
    memcpy(&gone, payload, sizeof(gone));
    assert_true(gone.number < to->module_count && !to->modules[gone.number].is_gone);
    to->modules[gone.number].is_gone = true;
}

static inline void read_code(struct reading *to, const unsigned char *payload, size_t bytes)
{
    struct read_code *code = &to->codes[to->code_count];
    assert_true(to->code_count < READ_CODES_MAX && bytes >= sizeof(code->entry));
    memcpy(&code->entry, payload, sizeof(code->entry));
    size_t used = sizeof(code->entry) + code->entry.name_bytes + code->entry.file_bytes;

    assert_int_equal(bytes, (used + 7) & ~(size_t)7);
    assert_int_equal(code->entry.code, ++to->code_count);
    assert_true(code->entry.name_bytes < sizeof(code->name) && code->entry.file_bytes < sizeof(code->file));
    memcpy(code->name, payload + sizeof(code->entry), code->entry.name_bytes);
    memcpy(code->file, payload + sizeof(code->entry) + code->entry.name_bytes, code->entry.file_bytes);
}

/* A chain: each node is new, its parent is there and of the same kind, and it has no sibling with the same frame. */
static inline void read_nodes(struct reading *to, bool is_python, const unsigned char *payload, size_t bytes)
{
    struct callsite_file_nodes chain;
    assert_true(bytes > sizeof(chain));
    memcpy(&chain, payload, sizeof(chain));
    assert_int_equal(chain.first, to->node_count + 1);
    assert_true(chain.parent <= to->node_count);
    assert_true(chain.parent == 0 || to->nodes[chain.parent].is_python == is_python);
    for (size_t at = sizeof(chain); at < bytes; at += sizeof(uint64_t)) {
        if (++to->node_count >= to->node_capacity) {
            to->node_capacity = to->node_capacity == 0 ? 1024 : to->node_capacity * 2;
            to->nodes = realloc(to->nodes, to->node_capacity * sizeof(*to->nodes));
            assert_non_null(to->nodes);
        }
        struct read_node *node = &to->nodes[to->node_count];

        node->is_python = is_python;
        node->parent = at == sizeof(chain) ? chain.parent : to->node_count - 1;
        memcpy(&node->frame, payload + at, sizeof(node->frame));
    }
}

/* The frames of a node and its parents; returns how many. */
static inline unsigned read_stack(const struct reading *from, uint32_t node, bool is_python, void **frames_out)
{
    uint64_t *frames = malloc(CALLSITE_FILE_DEPTH_MAX * sizeof(*frames));
    unsigned count = 0;
    assert_non_null(frames);
    assert_true(node <= from->node_count);
    for (; node != 0; node = from->nodes[node].parent) {
        assert_true(count < CALLSITE_FILE_DEPTH_MAX && from->nodes[node].is_python == is_python);
        frames[count++] = from->nodes[node].frame;
    }
    *frames_out = frames;
    return count;
}

/* Each native frame lies in a module that was written before, unless it is in no file at all (the vdso). */
static inline void read_callsite(struct reading *to, const unsigned char *payload, size_t bytes)
{
    struct callsite_file_site entry;
    assert_int_equal(bytes, sizeof(entry));
    memcpy(&entry, payload, sizeof(entry));
    assert_int_equal(entry.callsite, ++to->callsite_count);
    if (to->callsite_count >= to->callsite_capacity) {
        to->callsite_capacity = to->callsite_capacity == 0 ? 1024 : to->callsite_capacity * 2;
        to->callsites = realloc(to->callsites, to->callsite_capacity * sizeof(*to->callsites));
        assert_non_null(to->callsites);
    }
    struct read_callsite *callsite = &to->callsites[entry.callsite];
    callsite->native_count = (uint16_t)read_stack(to, entry.native, false, (void **)&callsite->pcs);
    callsite->python_count = (uint16_t)read_stack(to, entry.python, true, (void **)&callsite->python);
    for (unsigned i = 0; i < callsite->native_count; i++) {
        bool found = callsite_file_is_cut(callsite->pcs[i]);
        for (unsigned m = 0; m < to->module_count; m++) {
            const struct read_module *module = &to->modules[m];
            found = found || (!module->is_gone && callsite->pcs[i] - 1 >= module->entry.base &&
                              callsite->pcs[i] - 1 < module->entry.end);
        }
        assert_true(found);
    }
}

static inline void reading_open(struct reading *to, const char *path)
{
    FILE *file = fopen(path, "rb");
    memset(to, 0, sizeof(*to));
    assert_non_null(file);
    struct stat status;
    assert_int_equal(fstat(fileno(file), &status), 0);
    to->bytes = malloc((size_t)status.st_size + 1);
    assert_non_null(to->bytes);
    assert_int_equal(fread(to->bytes, 1, (size_t)status.st_size, file), status.st_size);
    fclose(file);
    for (size_t at = 0; at < (size_t)status.st_size;) {
        struct callsite_file_entry entry;
        assert_true(at + sizeof(entry) <= (size_t)status.st_size);
        memcpy(&entry, to->bytes + at, sizeof(entry));
        if (entry.tag == 0) {
            for (; at < (size_t)status.st_size; at++) {
                assert_int_equal(to->bytes[at], 0);
            }
            break;
        }
        at += sizeof(entry);
        assert_true(entry.bytes % 8 == 0 && at + entry.bytes <= (size_t)status.st_size);
        switch (entry.tag) {
        case CALLSITE_FILE_TAG_MODULE:
            read_module(to, to->bytes + at, entry.bytes);
            break;
        case CALLSITE_FILE_TAG_MODULE_GONE:
            read_gone(to, to->bytes + at, entry.bytes);
            break;
        case CALLSITE_FILE_TAG_CODE:
            read_code(to, to->bytes + at, entry.bytes);
            break;
        case CALLSITE_FILE_TAG_LOST:
            assert_int_equal(at, sizeof(entry));
            memcpy(&to->lost, to->bytes + at, sizeof(to->lost));
            break;
        case CALLSITE_FILE_TAG_PADDING:
            break;
        case CALLSITE_FILE_TAG_NATIVE:
        case CALLSITE_FILE_TAG_PYTHON:
            read_nodes(to, entry.tag == CALLSITE_FILE_TAG_PYTHON, to->bytes + at, entry.bytes);
            break;
        default:
            assert_int_equal(entry.tag, CALLSITE_FILE_TAG_SITE);
            read_callsite(to, to->bytes + at, entry.bytes);
            break;
        }
        at += entry.bytes;
    }
}

static inline void reading_close(struct reading *of)
{
    for (unsigned i = 1; i <= of->callsite_count; i++) {
        free(of->callsites[i].pcs);
        free(of->callsites[i].python);
    }
    free(of->callsites);
    free(of->nodes);
    free(of->bytes);
}

/* ---- making stacks: loops around captures count in a volatile, so a call in them stays one call ---- */

#define CAPTURE_FRAMES_MAX 4096U

struct capture {
    uint32_t callsite;
    unsigned count;
    uint64_t pcs[CAPTURE_FRAMES_MAX]; /* filled if `max` is not 0 */
    unsigned max;
};

/* What a malloc hook does. */
static NOINLINE void capture_here(struct capture *capture)
{
    const uintptr_t *frame = __builtin_frame_address(0);
    struct callsite_start start = {.pc = frame[1], .sp = (uintptr_t)(frame + 2), .fp = frame[0]};
    capture->callsite = callsite_capture(&start);
    if (capture->max > 0) {
        capture->count = native_stack_capture(&start, capture->pcs, capture->max);
    }
    KEEP_FRAME();
}

static void capture_by_path(struct capture *capture, uint32_t path, unsigned depth);

/* Calls through this one are neither inlined nor specialized: the stack is what the source says. */
static void (*const volatile capture_deeper)(struct capture *, uint32_t, unsigned) = capture_by_path;

/*
 * Code that is equal to no other. Compilers hoist the equal beginnings of two branches and join their equal
 * ends, so a call in each stays a call of its own, with its return address, only between two of these.
 */
#define UNLIKE_OTHERS(number) __asm__ volatile("" : : "i"(number) : "memory")

/* Bit i of `path` chooses one of two calls, with two return addresses, at depth i. */
static NOINLINE void capture_by_path(struct capture *capture, uint32_t path, unsigned depth)
{
    if (depth == 0) {
        capture_here(capture);
        KEEP_FRAME();
    } else if ((path & 1U) != 0) {
        UNLIKE_OTHERS(1);
        capture_deeper(capture, path >> 1, depth - 1);
        UNLIKE_OTHERS(2);
    } else {
        UNLIKE_OTHERS(3);
        capture_deeper(capture, path >> 1, depth - 1);
        UNLIKE_OTHERS(4);
    }
}

static inline void callsite_expect(const struct reading *reading, const struct capture *capture)
{
    assert_true(capture->callsite >= 1 && capture->callsite <= reading->callsite_count);
    if (reading->callsites == NULL) {
        fail_msg("a site without a table");
        return;
    }
    const struct read_callsite *callsite = &reading->callsites[capture->callsite];

    assert_int_equal(callsite->native_count, capture->count);
    assert_memory_equal(callsite->pcs, capture->pcs, capture->count * sizeof(capture->pcs[0]));
}

/* ---- a folder for the files ---- */

static char test_folder[] = "/tmp/varve-test-XXXXXX";
static char test_path[128];

static inline const char *test_file(const char *name)
{
    snprintf(test_path, sizeof(test_path), "%s/%s", test_folder, name);
    return test_path;
}

static inline int folder_make(void **state)
{
    (void)state;
    return mkdtemp(test_folder) == NULL;
}

static inline int folder_remove(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", test_folder);
    return system(command);
}

#endif
