/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the call-site files of all processes while they are written, and numbers their stacks for the whole recording.
 * A file may be anything: not there yet, growing, cut in the middle of an entry by a kill, damaged. Sizes that
 * contradict each other mean that the next entry cannot be found: the file ends there. Numbers that make no sense cost
 * only their own entry. Both are counted. The collector asks for the number of every event, so a known number costs
 * two array look-ups.
 */
#include "trace/callsites/callsite_reader.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/format/callsite_format.h"
#include "trace/callsites/callsites.h"
#include "trace/callsites/callsite_intern.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (256U << 10)
#define ENTRY_BYTES_MAX (160U << 10) /* a path and a build id of 16-bit lengths fit */
#define CHAIN_CHUNK 64U              /* frames that are looked at together */
#define OPEN_FILES_MAX 200U          /* more files are opened for each read: descriptors are limited */
#define PROCESS_ID_MAX (1U << 24)
#define BUILD_ID_BYTES_MAX 64U

/* ---- entries ---- */

static bool is_padded(const struct callsite_file_entry *entry, size_t bytes)
{
    return entry->bytes == ((bytes + 7) & ~(size_t)7);
}

/* Sizes that agree with each other: then the payload holds what its head says. */
static bool entry_is_sound(const struct callsite_file_entry *entry, const uint8_t *payload)
{
    struct callsite_file_module module;
    struct callsite_file_code code;
    struct callsite_file_stack callsite;
    size_t chain_bytes = sizeof(struct callsite_file_nodes);
    switch (entry->tag) {
    case CALLSITE_FILE_TAG_PADDING:
        return true;
    case CALLSITE_FILE_TAG_LOST:
        return entry->bytes == sizeof(struct callsite_file_loss);
    case CALLSITE_FILE_TAG_MODULE:
        if (entry->bytes < sizeof(module)) {
            return false;
        }
        memcpy(&module, payload, sizeof(module));
        return is_padded(entry, sizeof(module) + module.build_id_bytes + module.path_bytes);
    case CALLSITE_FILE_TAG_MODULE_GONE:
        return entry->bytes == sizeof(struct callsite_file_gone);
    case CALLSITE_FILE_TAG_CODE:
        if (entry->bytes < sizeof(code)) {
            return false;
        }
        memcpy(&code, payload, sizeof(code));
        return is_padded(entry, sizeof(code) + code.name_bytes + code.file_bytes);
    case CALLSITE_FILE_TAG_NATIVE:
    case CALLSITE_FILE_TAG_PYTHON:
        return entry->bytes >= chain_bytes && entry->bytes <= chain_bytes + CALLSITE_FILE_DEPTH_MAX * sizeof(uint64_t);
    case CALLSITE_FILE_TAG_SITE:
        return entry->bytes == sizeof(struct callsite_file_site);
    case CALLSITE_FILE_TAG_STACK:
        if (entry->bytes < sizeof(callsite)) {
            return false;
        }
        memcpy(&callsite, payload, sizeof(callsite));
        return callsite.native_count <= CALLSITE_FILE_DEPTH_MAX && callsite.python_count <= CALLSITE_FILE_DEPTH_MAX &&
               is_padded(entry, sizeof(callsite) + callsite.native_count * sizeof(uint64_t) +
                                    callsite.python_count * sizeof(struct callsite_file_python));
    default:
        return false;
    }
}

/* ---- modules ---- */

/* Holds the file of a module, which is there for as long as the process has it mapped; later it may be another one. */
static void hold_image(struct callsites *callsites, const struct callsites_process *process, uint32_t number,
                       uint64_t base)
{
    const struct pair *module = &callsites->modules.pairs[number - 1];
    size_t bytes = 0;
    const char *build_id = callsites_text(&callsites->texts, module->second, &bytes);
    if (!ARRAY_COVER(callsites->image_of, callsites->image_capacity, number) ||
        callsites->image_of[number - 1] != NULL) {
        return;
    }
    callsites->image_of[number - 1] =
        images_find(&callsites->images, callsites_text(&callsites->texts, module->first, NULL),
                    (const uint8_t *)build_id, bytes, process->pid, base);
}

/* Length of a path without what the kernel says of a file that is gone. */
static size_t path_length(const uint8_t *path, size_t bytes)
{
    static const char deleted[] = " (deleted)";
    const size_t suffix = strlen(deleted);
    return bytes > suffix && memcmp(path + bytes - suffix, deleted, suffix) == 0 ? bytes - suffix : bytes;
}

static void take_module(struct callsites *callsites, struct callsites_process *process, const uint8_t *payload)
{
    struct callsite_file_module module;
    struct pair pair = {0, 0};
    memcpy(&module, payload, sizeof(module));
    payload += sizeof(module);
    pair.first = intern(&callsites->texts, payload + module.build_id_bytes,
                        path_length(payload + module.build_id_bytes, module.path_bytes), 1);
    if (module.build_id_bytes && module.build_id_bytes <= BUILD_ID_BYTES_MAX) {
        pair.second = intern(&callsites->texts, payload, module.build_id_bytes, 1);
    }
    uint32_t number = pairs_intern(&callsites->modules, pair);
    if (module.base >= module.end || module.build_id_bytes > BUILD_ID_BYTES_MAX || number == 0 ||
        !ranges_reserve(&process->mapped, 1) ||
        !ARRAY_GROW(process->modules, process->module_capacity, process->module_count + 1)) {
        process->errors++;
        return;
    }
    struct range range;
    /* What the new range overlaps was unmapped without a word. */
    while (ranges_first(&process->mapped, module.base, module.end, &range)) {
        ranges_remove(&process->mapped, range.start);
    }
    process->modules[process->module_count++] = (struct callsites_module){module.bias, number, module.number};
    range = (struct range){.start = module.base, .end = module.end, .id = process->module_count};
    ranges_insert(&process->mapped, &range);
    hold_image(callsites, process, number, module.base);
}

static void take_gone(struct callsites_process *process, const uint8_t *payload)
{
    struct callsite_file_gone gone;
    memcpy(&gone, payload, sizeof(gone));
    struct range range;
    for (uint64_t at = 0; ranges_first(&process->mapped, at, UINT64_MAX, &range); at = range.end) {
        if (process->modules[range.id - 1].number == gone.number) {
            ranges_remove(&process->mapped, range.start);
            return;
        }
    }
}

/* ---- Python ---- */

static void callsite_reader_take_code(struct callsites *callsites, struct callsites_process *process,
                                      const uint8_t *payload)
{
    struct callsite_file_code code;
    memcpy(&code, payload, sizeof(code));
    payload += sizeof(code);
    struct pair pair;
    pair.first = intern(&callsites->texts, payload, code.name_bytes, 1);
    pair.second = intern(&callsites->texts, payload + code.name_bytes, code.file_bytes, 1);
    uint32_t number = pairs_intern(&callsites->codes, pair);
    if (number == 0 || code.code == 0 || code.code > CALLSITE_FILE_NUMBER_MAX || !index_reserve(&process->codes)) {
        process->errors++;
        return;
    }
    index_insert(&process->codes, code.code, number);
}

/* ---- numbers of a file ---- */

/* A hostile file cannot make the array much larger than what is in it. */
static bool numbers_reserve(struct callsites_numbers *numbers, uint32_t number)
{
    return number != 0 && number <= CALLSITE_FILE_NUMBER_MAX && number / 2 <= numbers->count + (1U << 16) &&
           ARRAY_COVER(numbers->ours, numbers->capacity, number);
}

/* After numbers_reserve. */
static void numbers_set(struct callsites_numbers *numbers, uint32_t number, uint32_t ours)
{
    numbers->count += numbers->ours[number] == 0;
    numbers->ours[number] = ours;
}

/* ---- stacks ---- */

/* A call at the very end of a module returns past it: the module is that of the call, one byte before. */
static uint32_t native_frame(struct callsites *callsites, const struct callsites_process *process, uint64_t pc)
{
    struct callsites_frame frame = {pc, 0, 0};
    const struct range *range = ranges_at(&process->mapped, pc ? pc - 1 : 0);
    if (range) {
        const struct callsites_module *module = &process->modules[range->id - 1];
        frame.position = pc - module->bias;
        frame.owner = module->module;
    }
    return intern(&callsites->frames, &frame, sizeof(frame), 0);
}

static uint32_t python_frame(struct callsites *callsites, const struct callsites_process *process, uint64_t word)
{
    struct callsites_frame frame = {.is_python = 1};
    struct callsite_file_python python;
    memcpy(&python, &word, sizeof(python));
    frame.position = python.line;
    frame.owner = (uint32_t)index_find(&process->codes, python.code);
    return intern(&callsites->frames, &frame, sizeof(frame), 0);
}

/* The number of a frame, which the file has as a word of 8 bytes; 0 without memory. */
static uint32_t callsite_reader_frame_number(struct callsites *callsites, const struct callsites_process *process,
                                             bool is_python, const uint8_t *payload)
{
    uint64_t word;
    memcpy(&word, payload, sizeof(word));
    return is_python ? python_frame(callsites, process, word) : native_frame(callsites, process, word);
}

/* The node of a frame inside `parent`; 0 without memory. */
static uint32_t take_frame(struct callsites *callsites, const struct callsites_process *process, bool is_python,
                           uint32_t parent, const uint8_t *payload)
{
    const struct pair node = {parent, callsite_reader_frame_number(callsites, process, is_python, payload)};
    return node.second ? pairs_intern(&callsites->nodes, node) : 0;
}

static bool node_is_python(const struct callsites *callsites, uint32_t number)
{
    const uint32_t frame = callsites->nodes.pairs[number - 1].second;
    return ((const struct callsites_frame *)callsites->frames.bytes)[frame - 1].is_python != 0;
}

/* The recording's number of a node of the file, 0 for none; false: it is not there, or of the other kind. */
static bool callsite_reader_find_node(const struct callsites *callsites, const struct callsites_process *process,
                                      bool is_python, uint32_t number, uint32_t *node_out)
{
    *node_out = numbers_find(&process->nodes, number);
    return number == 0 || (*node_out != 0 && node_is_python(callsites, *node_out) == is_python);
}

/* Numbers of frames; the nodes that they will be, if all of them are new, are brought near together. */
static void take_chunk(struct callsites *callsites, const struct callsites_process *process, bool is_python,
                       uint32_t parent, const uint8_t *payload, uint32_t *frames, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        frames[i] = callsite_reader_frame_number(callsites, process, is_python, payload + i * sizeof(uint64_t));
        pairs_fetch(&callsites->nodes,
                    (struct pair){i == 0 ? parent : callsites->nodes.count + (uint32_t)i, frames[i]});
    }
}

static void take_nodes(struct callsites *callsites, struct callsites_process *process, bool is_python,
                       const uint8_t *payload, size_t bytes)
{
    struct callsite_file_nodes chain;
    memcpy(&chain, payload, sizeof(chain));
    uint32_t node;
    if (!callsite_reader_find_node(callsites, process, is_python, chain.parent, &node)) {
        process->errors++;
        return;
    }
    uint32_t frames[CHAIN_CHUNK];
    size_t i = 0, count = 0;
    for (size_t at = sizeof(chain); at < bytes; at += sizeof(uint64_t), chain.first++, i++) {
        if (i == count) {
            i = 0;
            count = (bytes - at + sizeof(uint64_t) - 1) / sizeof(uint64_t);
            count = count < CHAIN_CHUNK ? count : CHAIN_CHUNK;
            take_chunk(callsites, process, is_python, node, payload + at, frames, count);
        }
        node = frames[i] ? pairs_intern(&callsites->nodes, (struct pair){node, frames[i]}) : 0;
        /* A number that comes twice keeps its first frame: call sites may refer to it. */
        if (node == 0 || numbers_find(&process->nodes, chain.first) || !numbers_reserve(&process->nodes, chain.first)) {
            process->errors++;
            return;
        }
        numbers_set(&process->nodes, chain.first, node);
    }
}

static uint32_t intern_stack(struct callsites *callsites, struct pair stack, struct callsites_origin origin)
{
    uint32_t count = callsites->stacks.count;
    if (!ARRAY_GROW(callsites->origins, callsites->origin_capacity, (size_t)count + 1)) {
        return 0;
    }
    uint32_t number = pairs_intern(&callsites->stacks, stack);
    if (number > count) {
        callsites->origins[count] = origin;
    }
    return number;
}

/* A number that comes twice keeps its first stack: events may carry it already. */
static void add_callsite(struct callsites *callsites, struct callsites_process *process, uint32_t process_id,
                         uint32_t local, struct pair stack)
{
    uint32_t number = 0;
    if (numbers_find(&process->callsites, local) == 0 && numbers_reserve(&process->callsites, local)) {
        number = intern_stack(callsites, stack, (struct callsites_origin){process_id, local});
    }
    if (number == 0) {
        process->errors++;
        return;
    }
    numbers_set(&process->callsites, local, number);
}

static void take_site(struct callsites *callsites, struct callsites_process *process, uint32_t process_id,
                      const uint8_t *payload)
{
    struct callsite_file_site site;
    memcpy(&site, payload, sizeof(site));
    struct pair stack;
    if (!callsite_reader_find_node(callsites, process, false, site.native, &stack.first) ||
        !callsite_reader_find_node(callsites, process, true, site.python, &stack.second)) {
        process->errors++;
        return;
    }
    add_callsite(callsites, process, process_id, site.callsite, stack);
}

/* The innermost node of frames that lie there innermost first; false without memory. */
static bool take_frames(struct callsites *callsites, const struct callsites_process *process, bool is_python,
                        const uint8_t *payload, unsigned count, uint32_t *node_out)
{
    for (*node_out = 0; count > 0; count--) {
        *node_out = take_frame(callsites, process, is_python, *node_out, payload + (count - 1) * sizeof(uint64_t));
        if (*node_out == 0) {
            return false;
        }
    }
    return true;
}

static void take_stack(struct callsites *callsites, struct callsites_process *process, uint32_t process_id,
                       const uint8_t *payload)
{
    struct callsite_file_stack whole;
    memcpy(&whole, payload, sizeof(whole));
    payload += sizeof(whole);
    struct pair stack;
    if (!take_frames(callsites, process, false, payload, whole.native_count, &stack.first) ||
        !take_frames(callsites, process, true, payload + whole.native_count * sizeof(uint64_t), whole.python_count,
                     &stack.second)) {
        process->errors++;
        return;
    }
    add_callsite(callsites, process, process_id, whole.callsite, stack);
}

uint32_t callsite_not_kept(struct callsites *callsites, struct callsites_process *process, uint32_t process_id)
{
    const struct callsites_frame frame = {.position = CALLSITES_POSITION_NOT_KEPT};
    struct pair node = {0, 0};
    struct pair stack = {0, 0};
    if (process->not_kept == 0) {
        node.second = intern(&callsites->frames, &frame, sizeof(frame), 0);
        stack.first = node.second ? pairs_intern(&callsites->nodes, node) : 0;
        process->not_kept =
            stack.first ? intern_stack(callsites, stack, (struct callsites_origin){process_id, CALLSITE_FILE_NOT_KEPT})
                        : 0;
    }
    return process->not_kept;
}

static bool callsite_reader_entry_take(struct callsites *callsites, struct callsites_process *process,
                                       uint32_t process_id, const struct callsite_file_entry *entry,
                                       const uint8_t *payload)
{
    if (!entry_is_sound(entry, payload)) {
        return false;
    }
    switch (entry->tag) {
    case CALLSITE_FILE_TAG_MODULE:
        take_module(callsites, process, payload);
        break;
    case CALLSITE_FILE_TAG_MODULE_GONE:
        take_gone(process, payload);
        break;
    case CALLSITE_FILE_TAG_CODE:
        callsite_reader_take_code(callsites, process, payload);
        break;
    case CALLSITE_FILE_TAG_NATIVE:
    case CALLSITE_FILE_TAG_PYTHON:
        take_nodes(callsites, process, entry->tag == CALLSITE_FILE_TAG_PYTHON, payload, entry->bytes);
        break;
    case CALLSITE_FILE_TAG_SITE:
        take_site(callsites, process, process_id, payload);
        break;
    case CALLSITE_FILE_TAG_STACK:
        take_stack(callsites, process, process_id, payload);
        break;
    default: /* of no use before the end */
        break;
    }
    return true;
}

/* ---- files ---- */

int callsites_open(struct callsites **callsite_file_out)
{
    struct callsites *callsites = calloc(1, sizeof(*callsites));
    *callsite_file_out = NULL;
    if (!callsites) {
        return VARVE_ERROR_NO_MEMORY;
    }
    callsites->buffer = malloc(BUFFER_BYTES);
    if (!callsites->buffer) {
        free(callsites);
        return VARVE_ERROR_NO_MEMORY;
    }
    *callsite_file_out = callsites;
    return VARVE_OK;
}

static void process_file_close(struct callsites *callsites, struct callsites_process *process)
{
    if (process->file < 0) {
        return;
    }
    close(process->file);
    process->file = -1;
    callsites->open_files--;
}

int callsites_moved(struct callsites *callsites, uint32_t process_id, const char *path, uint64_t base, uint64_t bytes)
{
    struct callsites_process *process = process_of(callsites, process_id);
    char *copy = process != NULL ? strdup(path) : NULL;
    if (copy == NULL) {
        return process != NULL ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_INVALID;
    }
    process_file_close(callsites, process);
    free(process->path);
    process->path = copy;
    process->base = base;
    process->bytes = bytes;
    return VARVE_OK;
}

/* What is only needed to read on. */
static void process_end(struct callsites *callsites, struct callsites_process *process)
{
    process->is_ended = true;
    process_file_close(callsites, process);
    index_free(&process->codes);
    ranges_clear(&process->mapped);
    free(process->modules);
    process->modules = NULL;
    process->module_count = process->module_capacity = 0;
    free(process->nodes.ours);
    process->nodes = (struct callsites_numbers){NULL, 0, 0};
    unroll_free(&process->unroll);
}

void callsites_close(struct callsites *callsites)
{
    if (!callsites) {
        return;
    }
    if (callsites->output != NULL) {
        callsites->output_close(callsites->output);
    }
    for (size_t i = 0; i < callsites->process_capacity; i++) {
        struct callsites_process *process = callsites->processes[i];
        if (!process) {
            continue;
        }
        process_end(callsites, process);
        free(process->callsites.ours);
        free(process->path);
        free(process);
    }
    free(callsites->processes);
    images_free(&callsites->images);
    free(callsites->image_of);
    interned_free(&callsites->texts);
    pairs_free(&callsites->modules);
    pairs_free(&callsites->codes);
    interned_free(&callsites->frames);
    pairs_free(&callsites->nodes);
    pairs_free(&callsites->stacks);
    free(callsites->origins);
    free(callsites->buffer);
    free(callsites);
}

int callsites_process(struct callsites *callsites, uint32_t process_id, const char *path)
{
    if (process_id == 0 || process_id > PROCESS_ID_MAX) {
        return VARVE_ERROR_INVALID;
    }
    if (process_id >= callsites->process_capacity &&
        !ARRAY_COVER(callsites->processes, callsites->process_capacity, process_id)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (callsites->processes[process_id]) {
        return VARVE_ERROR_INVALID;
    }
    struct callsites_process *process = calloc(1, sizeof(*process));
    if (!process) {
        return VARVE_ERROR_NO_MEMORY;
    }
    process->path = strdup(path);
    process->file = -1;
    if (!process->path) {
        free(process);
        return VARVE_ERROR_NO_MEMORY;
    }
    callsites->processes[process_id] = process;
    return VARVE_OK;
}

void callsites_process_lives(struct callsites *callsites, uint32_t process_id, int32_t pid)
{
    struct callsites_process *process = process_of(callsites, process_id);
    if (process != NULL) {
        process->pid = pid;
        images_keep_program(&callsites->images, pid);
    }
}

void callsites_program(struct callsites *callsites, const char *path)
{
    images_keep(&callsites->images, path);
}

/* Bytes of the complete entries at the front of the buffer, as far as their heads make sense. */
static size_t complete_bytes(const struct callsites *callsites, size_t bytes)
{
    struct callsite_file_entry entry;
    size_t at = 0;
    while (bytes - at >= sizeof(entry)) {
        memcpy(&entry, callsites->buffer + at, sizeof(entry));
        if (entry.tag == 0 || entry.bytes > ENTRY_BYTES_MAX || bytes - at - sizeof(entry) < entry.bytes) {
            break;
        }
        at += sizeof(entry) + ((size_t)entry.bytes + 7) / 8 * 8;
    }
    return at < bytes ? at : bytes;
}

/* Nodes are nothing to a listener: it gets whole stacks. */
static void tell_listener(const struct callsites *callsites, struct unroll *unroll, uint32_t process_id,
                          const struct callsite_file_entry *entry, const uint8_t *payload)
{
    if (callsites->listener == NULL) {
        return;
    }
    struct unroll_stack stack;
    if (entry->tag == CALLSITE_FILE_TAG_NATIVE || entry->tag == CALLSITE_FILE_TAG_PYTHON) {
        (void)unroll_take(unroll, entry, payload); /* without memory its call sites are not reported */
    } else if (entry->tag == CALLSITE_FILE_TAG_SITE) {
        if (unroll_site(unroll, payload, &stack)) {
            callsites->listener(callsites->listener_context, process_id, &stack.entry, (const uint8_t *)&stack.stack);
        }
    } else if (entry->tag < CALLSITE_FILE_TAG_PADDING) {
        callsites->listener(callsites->listener_context, process_id, entry, payload);
    }
}

/* Takes the complete entries at the front of the buffer; returns their bytes. */
static size_t take_entries(struct callsites *callsites, struct callsites_process *process, uint32_t process_id,
                           size_t bytes)
{
    struct callsite_file_entry entry;
    size_t at = 0;
    while (bytes - at >= sizeof(entry)) {
        memcpy(&entry, callsites->buffer + at, sizeof(entry));
        if (entry.tag == 0 && entry.bytes == 0) {
            break; /* the writer has not come further */
        }
        if (entry.bytes > ENTRY_BYTES_MAX || entry.bytes % 8 != 0) {
            process->errors++;
            process->is_ended = true;
            break;
        }
        if (bytes - at - sizeof(entry) < entry.bytes) {
            break;
        }
        if (!callsite_reader_entry_take(callsites, process, process_id, &entry,
                                        callsites->buffer + at + sizeof(entry))) {
            process->errors++;
            process->is_ended = true;
            break;
        }
        tell_listener(callsites, &process->unroll, process_id, &entry, callsites->buffer + at + sizeof(entry));
        at += sizeof(entry) + entry.bytes;
    }
    return at;
}

void callsites_listen(struct callsites *callsites, callsites_listener *listener, void *context)
{
    callsites->listener = listener;
    callsites->listener_context = context;
}

/* Entries [0, offset) were sound when they were taken; the file may have changed since. */
static void replay_process(const struct callsites *callsites, const struct callsites_process *process,
                           uint32_t process_id)
{
    int file = open(process->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    uint8_t *entries = malloc(process->offset + 1);
    struct unroll unroll = {NULL, 0};
    struct callsite_file_entry entry;
    if (file >= 0 && entries &&
        pread(file, entries, process->offset, (off_t)process->base) == (ssize_t)process->offset) {
        for (uint64_t at = 0; at + sizeof(entry) <= process->offset; at += sizeof(entry) + entry.bytes) {
            memcpy(&entry, entries + at, sizeof(entry));
            if (entry.bytes > process->offset - at - sizeof(entry)) {
                break;
            }
            if (entry_is_sound(&entry, entries + at + sizeof(entry))) {
                tell_listener(callsites, &unroll, process_id, &entry, entries + at + sizeof(entry));
            }
        }
    }
    unroll_free(&unroll);
    free(entries);
    if (file >= 0) {
        close(file);
    }
}

void callsites_replay(const struct callsites *callsites)
{
    for (uint32_t id = 1; callsites->listener && id < callsites->process_capacity; id++) {
        if (callsites->processes[id] && callsites->processes[id]->offset > 0) {
            replay_process(callsites, callsites->processes[id], id);
        }
    }
}

/* True if the file is open and is a file; `size_out` is how much it holds now. */
static bool process_file_open(struct callsites *callsites, struct callsites_process *process, uint64_t *size_out)
{
    if (process->file < 0) {
        process->file = open(process->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (process->file < 0) {
            return false;
        }
        callsites->open_files++;
    }
    struct stat status;
    if (fstat(process->file, &status) != 0 || !S_ISREG(status.st_mode)) {
        process->errors++;
        process->is_ended = true;
        return false;
    }
    const uint64_t size = (uint64_t)status.st_size > process->base ? (uint64_t)status.st_size - process->base : 0;
    *size_out = process->bytes != 0 && process->bytes < size ? process->bytes : size;
    return true;
}

void callsites_process_read(struct callsites *callsites, struct callsites_process *process, uint32_t process_id,
                            uint32_t wanted)
{
    uint64_t size = 0;
    if (process->is_ended) {
        return;
    }
    while (process_file_open(callsites, process, &size) && process->offset < size) {
        const uint64_t at = process->base + process->offset, left = size - process->offset;
        ssize_t bytes = pread(process->file, callsites->buffer, left < BUFFER_BYTES ? left : BUFFER_BYTES, (off_t)at);
        if (bytes < 0 && errno == EINTR) {
            continue;
        }
        if (bytes < 0) {
            process->errors++;
            process->is_ended = true;
            break;
        }
        /* A payload may be written between its own copy and that of its head: what is behind heads that were
         * there is copied again. */
        size_t complete = complete_bytes(callsites, (size_t)bytes);
        if (pread(process->file, callsites->buffer, complete, (off_t)at) != (ssize_t)complete) {
            continue;
        }
        size_t taken = take_entries(callsites, process, process_id, (size_t)bytes);
        process->offset += taken;
        /* Nothing complete is left: the end, or an entry that is still being written. */
        if (taken == 0 || process->is_ended || (wanted && numbers_find(&process->callsites, wanted))) {
            break;
        }
    }
    if (process->is_ended) {
        process_end(callsites, process);
    } else if (callsites->open_files > OPEN_FILES_MAX) {
        process_file_close(callsites, process);
    }
}

static void read_lost(struct callsites *callsites, struct callsites_process *process)
{
    struct {
        struct callsite_file_entry entry;
        struct callsite_file_loss lost;
    } first;
    uint64_t size = 0;
    if (!process->is_ended && process_file_open(callsites, process, &size) &&
        pread(process->file, &first, sizeof(first), (off_t)process->base) == (ssize_t)sizeof(first) &&
        first.entry.tag == CALLSITE_FILE_TAG_LOST) {
        process->lost = first.lost.stacks;
    }
}

void callsites_process_end(struct callsites *callsites, uint32_t process_id)
{
    struct callsites_process *process = process_of(callsites, process_id);
    if (!process) {
        return;
    }
    callsites_process_read(callsites, process, process_id, 0);
    read_lost(callsites, process);
    process_end(callsites, process);
}

uint32_t callsites_global(struct callsites *callsites, uint32_t process_id, uint32_t local)
{
    struct callsites_process *process = process_of(callsites, process_id);
    if (local == 0 || !process) {
        return 0;
    }
    uint32_t number = numbers_find(&process->callsites, local);
    if (number) {
        return number;
    }
    if (local == CALLSITE_FILE_NOT_KEPT) {
        number = callsite_not_kept(callsites, process, process_id);
    } else {
        callsites_process_read(callsites, process, process_id, local);
        number = numbers_find(&process->callsites, local);
    }
    if (number == 0 && process->unknown < UINT32_MAX) {
        process->unknown++;
    }
    callsites->has_new_unknown = callsites->has_new_unknown || number == 0;
    return number;
}
