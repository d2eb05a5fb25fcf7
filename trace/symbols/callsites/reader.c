/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the call-site files of all processes while they are written, and numbers their stacks for the whole recording. A file
 * may be anything: not there yet, growing, cut in the middle of an entry by a kill, damaged. Sizes that contradict each other
 * mean that the next entry cannot be found: the file ends there. Numbers that make no sense cost only their own entry. Both are
 * counted. The collector asks for the number of every event, so a known number costs two array look-ups.
 */
#include "trace/symbols/callsites/reader.h"

#include "trace/base/array.h"
#include "trace/error.h"
#include "trace/format/callsite_file.h"
#include "trace/store/resume.h"
#include "trace/store/rows.h"
#include "trace/symbols/callsites/callsites.h"
#include "trace/symbols/callsites/intern.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (256U << 10)
#define ENTRY_BYTES_MAX (160U << 10) /* a path and a build id of 16-bit lengths fit */
#define OPEN_FILES_MAX 200U          /* more files are opened for each read: descriptors are limited */
#define PROCESS_ID_MAX (1U << 24)
#define BUILD_ID_BYTES_MAX 64U

static struct sites_process *process_of(const struct sites *sites, uint32_t process_id)
{
    return process_id < sites->process_capacity ? sites->processes[process_id] : NULL;
}

/* ---- entries ---- */

static bool is_padded(const struct sites_entry *entry, size_t bytes)
{
    return entry->bytes == ((bytes + 7) & ~(size_t)7);
}

/* Sizes that agree with each other: then the payload holds what its head says. */
static bool entry_is_sound(const struct sites_entry *entry, const uint8_t *payload)
{
    struct sites_module module;
    struct sites_code code;
    struct sites_site site;

    switch (entry->tag) {
    case SITES_TAG_PADDING:
        return true;
    case SITES_TAG_LOST:
        return entry->bytes == sizeof(struct sites_lost);
    case SITES_TAG_MODULE:
        if (entry->bytes < sizeof(module))
            return false;
        memcpy(&module, payload, sizeof(module));
        return is_padded(entry, sizeof(module) + module.build_id_bytes + module.path_bytes);
    case SITES_TAG_MODULE_GONE:
        return entry->bytes == sizeof(struct sites_gone);
    case SITES_TAG_CODE:
        if (entry->bytes < sizeof(code))
            return false;
        memcpy(&code, payload, sizeof(code));
        return is_padded(entry, sizeof(code) + code.name_bytes + code.file_bytes);
    case SITES_TAG_SITE:
        if (entry->bytes < sizeof(site))
            return false;
        memcpy(&site, payload, sizeof(site));
        return site.native_count <= SITES_DEPTH_MAX && site.python_count <= SITES_DEPTH_MAX &&
               is_padded(entry, sizeof(site) + site.native_count * sizeof(uint64_t) +
                                    site.python_count * sizeof(struct sites_python));
    default:
        return false;
    }
}

/* ---- modules ---- */

/* First live module whose end is past `address`. */
static size_t mapped_find(const struct sites_process *process, uint64_t address)
{
    size_t low = 0, high = process->mapped_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (process->mapped[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What the new range overlaps was unmapped without a word; ranges stay disjoint and ordered. */
static bool mapped_insert(struct sites_process *process, const struct sites_mapped *mapped)
{
    size_t from = mapped_find(process, mapped->base), to = from;

    if (!array_grow((void **)&process->mapped, &process->mapped_capacity, process->mapped_count + 1,
                    sizeof(*mapped)))
        return false;
    while (to < process->mapped_count && process->mapped[to].base < mapped->end)
        to++;
    memmove(process->mapped + from + 1, process->mapped + to,
            (process->mapped_count - to) * sizeof(*process->mapped));
    process->mapped[from] = *mapped;
    process->mapped_count = process->mapped_count - (to - from) + 1;
    return true;
}

static void take_module(struct sites *sites, struct sites_process *process, const uint8_t *payload)
{
    struct sites_module module;
    struct sites_pair pair = {0, 0};
    struct sites_mapped mapped;

    memcpy(&module, payload, sizeof(module));
    payload += sizeof(module);
    pair.first = sites_text_intern(&sites->texts, payload + module.build_id_bytes, module.path_bytes);
    if (module.build_id_bytes && module.build_id_bytes <= BUILD_ID_BYTES_MAX)
        pair.second = sites_text_intern(&sites->texts, payload, module.build_id_bytes);
    mapped = (struct sites_mapped){module.base, module.end, module.bias,
                                   sites_pair_intern(&sites->modules, pair), module.number};
    if (module.base >= module.end || module.build_id_bytes > BUILD_ID_BYTES_MAX || mapped.module == 0 ||
        !mapped_insert(process, &mapped))
        process->errors++;
}

static void take_gone(struct sites_process *process, const uint8_t *payload)
{
    struct sites_gone gone;

    memcpy(&gone, payload, sizeof(gone));
    for (size_t i = 0; i < process->mapped_count; i++) {
        if (process->mapped[i].number != gone.number)
            continue;
        process->mapped_count--;
        memmove(process->mapped + i, process->mapped + i + 1,
                (process->mapped_count - i) * sizeof(*process->mapped));
        break;
    }
}

/* ---- Python ---- */

static void take_code(struct sites *sites, struct sites_process *process, const uint8_t *payload)
{
    struct sites_code code;
    struct sites_pair pair;
    uint32_t number;

    memcpy(&code, payload, sizeof(code));
    payload += sizeof(code);
    pair.first = sites_text_intern(&sites->texts, payload, code.name_bytes);
    pair.second = sites_text_intern(&sites->texts, payload + code.name_bytes, code.file_bytes);
    number = sites_pair_intern(&sites->codes, pair);
    if (number == 0 || code.code == 0 || code.code > SITES_NUMBER_MAX ||
        !sites_map_set(&process->codes, code.code, number))
        process->errors++;
}

/* ---- sites ---- */

/* A call at the very end of a module returns past it: the module is that of the call, one byte before. */
static uint32_t native_frame(struct sites *sites, const struct sites_process *process, uint64_t pc)
{
    struct sites_frame frame = {pc, 0, 0};
    uint64_t call = pc ? pc - 1 : 0;
    size_t at = mapped_find(process, call);

    if (at < process->mapped_count && process->mapped[at].base <= call) {
        frame.place = pc - process->mapped[at].bias;
        frame.owner = process->mapped[at].module;
    }
    return sites_frame_intern(&sites->frames, frame);
}

static void take_site(struct sites *sites, struct sites_process *process, uint32_t process_id,
                      const uint8_t *payload)
{
    uint32_t words[2 * SITES_DEPTH_MAX], number = 0, missing = 0;
    struct sites_stack stack = {.process_id = process_id};
    struct sites_site site;

    memcpy(&site, payload, sizeof(site));
    payload += sizeof(site);
    stack.local = site.site;
    stack.native_count = site.native_count;
    stack.python_count = site.python_count;
    for (unsigned i = 0; i < site.native_count; i++, payload += sizeof(uint64_t)) {
        uint64_t pc;

        memcpy(&pc, payload, sizeof(pc));
        words[i] = native_frame(sites, process, pc);
        missing += words[i] == 0;
    }
    for (unsigned i = 0; i < site.python_count; i++, payload += sizeof(struct sites_python)) {
        struct sites_python python;
        struct sites_frame frame = {.is_python = 1};

        memcpy(&python, payload, sizeof(python));
        frame.place = python.line;
        frame.owner = sites_map_get(&process->codes, python.code);
        words[site.native_count + i] = sites_frame_intern(&sites->frames, frame);
        missing += words[site.native_count + i] == 0;
    }
    /* A number that comes twice keeps its first stack: events may carry it already. */
    if (site.site == 0 || site.site > SITES_NUMBER_MAX || sites_map_get(&process->sites, site.site) != 0) {
        process->errors++;
        return;
    }
    if (missing == 0)
        number = sites_stack_intern(&sites->stacks, &stack, words);
    if (number == 0 || !sites_map_set(&process->sites, site.site, number))
        process->errors++;
}

static bool entry_take(struct sites *sites, struct sites_process *process, uint32_t process_id,
                       const struct sites_entry *entry, const uint8_t *payload)
{
    if (!entry_is_sound(entry, payload))
        return false;
    switch (entry->tag) {
    case SITES_TAG_MODULE:
        take_module(sites, process, payload);
        break;
    case SITES_TAG_MODULE_GONE:
        take_gone(process, payload);
        break;
    case SITES_TAG_CODE:
        take_code(sites, process, payload);
        break;
    case SITES_TAG_SITE:
        take_site(sites, process, process_id, payload);
        break;
    default: /* of no use before the end */
        break;
    }
    return true;
}

/* ---- files ---- */

int sites_open(struct sites **sites_out)
{
    struct sites *sites = calloc(1, sizeof(*sites));

    *sites_out = NULL;
    if (!sites)
        return VARVE_ERROR_NO_MEMORY;
    sites->buffer = malloc(BUFFER_BYTES);
    if (!sites->buffer) {
        free(sites);
        return VARVE_ERROR_NO_MEMORY;
    }
    *sites_out = sites;
    return VARVE_OK;
}

static void process_file_close(struct sites *sites, struct sites_process *process)
{
    if (process->file < 0)
        return;
    close(process->file);
    process->file = -1;
    sites->open_files--;
}

/* What is only needed to read on. */
static void process_end(struct sites *sites, struct sites_process *process)
{
    process->is_ended = true;
    process_file_close(sites, process);
    sites_map_free(&process->codes);
    free(process->mapped);
    process->mapped = NULL;
    process->mapped_count = process->mapped_capacity = 0;
}

void sites_close(struct sites *sites)
{
    if (!sites)
        return;
    for (size_t i = 0; i < sites->process_capacity; i++) {
        struct sites_process *process = sites->processes[i];

        if (!process)
            continue;
        process_end(sites, process);
        sites_map_free(&process->sites);
        free(process->path);
        free(process);
    }
    free(sites->processes);
    free(sites->texts.bytes);
    free(sites->texts.starts);
    free(sites->texts.index.slots);
    free(sites->modules.pairs);
    free(sites->modules.index.slots);
    free(sites->codes.pairs);
    free(sites->codes.index.slots);
    free(sites->frames.frames);
    free(sites->frames.index.slots);
    free(sites->stacks.stacks);
    free(sites->stacks.words);
    free(sites->stacks.index.slots);
    free(sites->buffer);
    free(sites);
}

int sites_process(struct sites *sites, uint32_t process_id, const char *path)
{
    size_t capacity = sites->process_capacity;
    struct sites_process *process;

    if (process_id == 0 || process_id > PROCESS_ID_MAX)
        return VARVE_ERROR_INVALID;
    if (!array_grow((void **)&sites->processes, &capacity, (size_t)process_id + 1,
                    sizeof(struct sites_process *)))
        return VARVE_ERROR_NO_MEMORY;
    if (capacity > sites->process_capacity)
        memset(sites->processes + sites->process_capacity, 0,
               (capacity - sites->process_capacity) * sizeof(struct sites_process *));
    sites->process_capacity = capacity;
    if (sites->processes[process_id])
        return VARVE_ERROR_INVALID;
    process = calloc(1, sizeof(*process));
    if (!process)
        return VARVE_ERROR_NO_MEMORY;
    process->path = strdup(path);
    process->file = -1;
    if (!process->path) {
        free(process);
        return VARVE_ERROR_NO_MEMORY;
    }
    sites->processes[process_id] = process;
    return VARVE_OK;
}

/* Bytes of the complete entries at the front of the buffer, as far as their heads make sense. */
static size_t complete_bytes(const struct sites *sites, size_t bytes)
{
    struct sites_entry entry;
    size_t at = 0;

    while (bytes - at >= sizeof(entry)) {
        memcpy(&entry, sites->buffer + at, sizeof(entry));
        if (entry.tag == 0 || entry.bytes > ENTRY_BYTES_MAX || bytes - at - sizeof(entry) < entry.bytes)
            break;
        at += sizeof(entry) + ((size_t)entry.bytes + 7) / 8 * 8;
    }
    return at < bytes ? at : bytes;
}

/* Takes the complete entries at the front of the buffer; returns their bytes. */
static size_t take_entries(struct sites *sites, struct sites_process *process, uint32_t process_id,
                           size_t bytes)
{
    struct sites_entry entry;
    size_t at = 0;

    while (bytes - at >= sizeof(entry)) {
        memcpy(&entry, sites->buffer + at, sizeof(entry));
        if (entry.tag == 0 && entry.bytes == 0)
            break; /* the writer has not come further */
        if (entry.bytes > ENTRY_BYTES_MAX || entry.bytes % 8 != 0) {
            process->errors++;
            process->is_ended = true;
            break;
        }
        if (bytes - at - sizeof(entry) < entry.bytes)
            break;
        if (!entry_take(sites, process, process_id, &entry, sites->buffer + at + sizeof(entry))) {
            process->errors++;
            process->is_ended = true;
            break;
        }
        if (sites->listener && entry.tag < SITES_TAG_PADDING)
            sites->listener(sites->listener_context, process_id, &entry, sites->buffer + at + sizeof(entry));
        at += sizeof(entry) + entry.bytes;
    }
    return at;
}

void sites_listen(struct sites *sites, sites_listener *listener, void *context)
{
    sites->listener = listener;
    sites->listener_context = context;
}

/* Entries [0, offset) were sound when they were taken; the file may have changed since. */
static void retell_process(const struct sites *sites, const struct sites_process *process,
                           uint32_t process_id)
{
    int file = open(process->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    uint8_t *entries = malloc(process->offset + 1);
    struct sites_entry entry;

    if (file >= 0 && entries && pread(file, entries, process->offset, 0) == (ssize_t)process->offset) {
        for (uint64_t at = 0; at + sizeof(entry) <= process->offset; at += sizeof(entry) + entry.bytes) {
            memcpy(&entry, entries + at, sizeof(entry));
            if (entry.bytes > process->offset - at - sizeof(entry))
                break;
            if (entry.tag < SITES_TAG_PADDING && entry_is_sound(&entry, entries + at + sizeof(entry)))
                sites->listener(sites->listener_context, process_id, &entry, entries + at + sizeof(entry));
        }
    }
    free(entries);
    if (file >= 0)
        close(file);
}

void sites_retell(const struct sites *sites)
{
    for (uint32_t id = 1; sites->listener && id < sites->process_capacity; id++) {
        if (sites->processes[id] && sites->processes[id]->offset > 0)
            retell_process(sites, sites->processes[id], id);
    }
}

/* True if the file is open and is a file; `size_out` is how much it holds now. */
static bool process_file_open(struct sites *sites, struct sites_process *process, uint64_t *size_out)
{
    struct stat status;

    if (process->file < 0) {
        process->file = open(process->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (process->file < 0)
            return false;
        sites->open_files++;
    }
    if (fstat(process->file, &status) != 0 || !S_ISREG(status.st_mode)) {
        process->errors++;
        process->is_ended = true;
        return false;
    }
    *size_out = (uint64_t)status.st_size;
    return true;
}

static void process_read(struct sites *sites, struct sites_process *process, uint32_t process_id,
                         uint32_t wanted)
{
    uint64_t size = 0;

    if (process->is_ended)
        return;
    while (process_file_open(sites, process, &size) && process->offset < size) {
        ssize_t bytes = pread(process->file, sites->buffer, BUFFER_BYTES, (off_t)process->offset);
        size_t complete, taken;

        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes < 0) {
            process->errors++;
            process->is_ended = true;
            break;
        }
        /* A payload may be written between its own copy and that of its head: what is behind heads that were
         * there is copied again. */
        complete = complete_bytes(sites, (size_t)bytes);
        if (pread(process->file, sites->buffer, complete, (off_t)process->offset) != (ssize_t)complete)
            continue;
        taken = take_entries(sites, process, process_id, (size_t)bytes);
        process->offset += taken;
        /* Nothing complete is left: the end, or an entry that is still being written. */
        if (taken == 0 || process->is_ended || (wanted && sites_map_get(&process->sites, wanted)))
            break;
    }
    if (process->is_ended)
        process_end(sites, process);
    else if (sites->open_files > OPEN_FILES_MAX)
        process_file_close(sites, process);
}

static void read_lost(struct sites *sites, struct sites_process *process)
{
    struct {
        struct sites_entry entry;
        struct sites_lost lost;
    } first;
    uint64_t size = 0;

    if (!process->is_ended && process_file_open(sites, process, &size) &&
        pread(process->file, &first, sizeof(first), 0) == (ssize_t)sizeof(first) &&
        first.entry.tag == SITES_TAG_LOST)
        process->lost = first.lost.stacks;
}

void sites_process_end(struct sites *sites, uint32_t process_id)
{
    struct sites_process *process = process_of(sites, process_id);

    if (!process)
        return;
    process_read(sites, process, process_id, 0);
    read_lost(sites, process);
    process_end(sites, process);
}

uint32_t sites_global(struct sites *sites, uint32_t process_id, uint32_t local)
{
    struct sites_process *process = process_of(sites, process_id);
    uint32_t number;

    if (local == 0 || !process)
        return 0;
    number = sites_map_get(&process->sites, local);
    if (number)
        return number;
    process_read(sites, process, process_id, local);
    number = sites_map_get(&process->sites, local);
    if (number == 0 && process->unknown < UINT32_MAX)
        process->unknown++;
    sites->has_new_unknown = sites->has_new_unknown || number == 0;
    return number;
}

/* With the events that lack them: whoever continues counts from there. */
static int commit_unknown(struct sites *sites, struct store *store)
{
    int result = VARVE_OK;

    for (uint32_t id = 1; sites->has_new_unknown && id < sites->process_capacity && result == VARVE_OK;
         id++) {
        if (sites->processes[id] && sites->processes[id]->unknown)
            result = store_stat(store, SITES_STAT_UNKNOWN, (int64_t)id, "data_loss", "sites",
                                sites->processes[id]->unknown);
    }
    sites->has_new_unknown = sites->has_new_unknown && result != VARVE_OK;
    return result;
}

int sites_commit(struct sites *sites, struct store *store)
{
    while (sites->committed < sites->stacks.count) {
        uint32_t number = sites->committed + 1;
        const struct sites_stack *stack = &sites->stacks.stacks[number - 1];
        int result = store_callsite_origin(store, number, stack->process_id, stack->local);

        if (result != VARVE_OK)
            return result;
        sites->committed = number;
    }
    return commit_unknown(sites, store);
}

/* ---- an interrupted recording: the numbers that its stored events already carry ----
 *
 * The files are read as always, which numbers the stacks in the order of reading; then the stacks are put where
 * callsite_origin says, and those that were not stored follow. A number whose stack is gone keeps its slot, with an empty stack. */

struct origin {
    uint32_t number, process_id, local;
};

struct origins {
    struct origin *rows;
    size_t count, capacity;
};

static int take_origin(void *context, uint32_t callsite_id, uint32_t process_id, uint32_t site)
{
    struct origins *origins = context;

    if (!array_grow((void **)&origins->rows, &origins->capacity, origins->count + 1, sizeof(*origins->rows)))
        return VARVE_ERROR_NO_MEMORY;
    origins->rows[origins->count++] = (struct origin){callsite_id, process_id, site};
    return VARVE_OK;
}

static uint32_t origin_stack(const struct sites *sites, const struct origin *origin)
{
    const struct sites_process *process = process_of(sites, origin->process_id);

    return process ? sites_map_get(&process->sites, origin->local) : 0;
}

static void note_gone(const struct sites *sites, uint32_t process_id)
{
    struct sites_process *process = process_of(sites, process_id);

    if (process)
        process->gone++;
}

static int take_unknown(void *context, int64_t idx, int64_t value)
{
    struct sites *sites = context;
    struct sites_process *process = idx > 0 && idx < UINT32_MAX ? process_of(sites, (uint32_t)idx) : NULL;

    if (process && value > 0)
        process->unknown = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
    return VARVE_OK;
}

/* Fill the numbers 1..origins->count of `placed`; `moved` says for each stack read where it went. */
static int place_stored(const struct sites *sites, const struct origins *origins, struct sites_stack *placed,
                        uint32_t *moved, struct varve_message *message)
{
    bool *is_taken = calloc(origins->count + 1, sizeof(*is_taken));

    if (!is_taken)
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the call sites");
    for (size_t i = 0; i < origins->count; i++) {
        const struct origin *origin = &origins->rows[i];
        uint32_t read = origin_stack(sites, origin);

        if (origin->number == 0 || origin->number > origins->count || is_taken[origin->number]) {
            free(is_taken);
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "call site %u of %zu in callsite_origin",
                                     origin->number, origins->count);
        }
        is_taken[origin->number] = true;
        if (read == 0)
            note_gone(sites, origin->process_id);
        if (read) {
            placed[origin->number - 1] = sites->stacks.stacks[read - 1];
            if (moved[read] == 0)
                moved[read] = origin->number;
        }
        placed[origin->number - 1].process_id = origin->process_id;
        placed[origin->number - 1].local = origin->local;
    }
    free(is_taken);
    return VARVE_OK;
}

static void renumber_maps(struct sites *sites, const uint32_t *moved)
{
    for (size_t i = 0; i < sites->process_capacity; i++) {
        struct sites_process *process = sites->processes[i];

        for (size_t page = 0; process && page < process->sites.page_count; page++) {
            uint32_t *numbers = process->sites.pages[page];

            for (size_t at = 0; numbers && at < SITES_MAP_PAGE; at++)
                numbers[at] = moved[numbers[at]];
        }
    }
}

/* Stored stacks first, the others behind them; then maps and index follow. */
static int place_all(struct sites *sites, const struct origins *origins, struct varve_message *message)
{
    size_t capacity = origins->count + sites->stacks.count + 1;
    struct sites_stack *placed = calloc(capacity, sizeof(*placed));
    uint32_t *moved = calloc((size_t)sites->stacks.count + 1, sizeof(*moved));
    uint32_t count = (uint32_t)origins->count;
    int result = VARVE_ERROR_NO_MEMORY;

    if (!placed || !moved ||
        !array_grow((void **)&sites->stacks.words, &sites->stacks.words_capacity, 1, sizeof(uint32_t)))
        varve_message_set(message, result, "no memory for the call sites");
    else
        result = place_stored(sites, origins, placed, moved, message);
    if (result != VARVE_OK) {
        free(placed);
        free(moved);
        return result;
    }
    for (uint32_t read = 1; read <= sites->stacks.count; read++) {
        if (moved[read] == 0) {
            placed[count++] = sites->stacks.stacks[read - 1];
            moved[read] = count;
        }
    }
    renumber_maps(sites, moved);
    free(moved);
    free(sites->stacks.stacks);
    sites->stacks.stacks = placed;
    sites->stacks.count = count;
    sites->stacks.capacity = (uint32_t)capacity;
    sites->committed = (uint32_t)origins->count;
    if (!sites_stacks_reindex(&sites->stacks))
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the call sites");
    return VARVE_OK;
}

int sites_resume(struct sites *sites, struct store *store, struct varve_message *message)
{
    struct origins origins = {NULL, 0, 0};
    int result;

    assert(sites->committed == 0);
    for (size_t i = 0; i < sites->process_capacity; i++) {
        if (sites->processes[i])
            process_read(sites, sites->processes[i], (uint32_t)i, 0);
    }
    result = store_each_callsite_origin(store, take_origin, &origins, message);
    if (result == VARVE_OK)
        result = store_each_stat(store, SITES_STAT_UNKNOWN, take_unknown, sites, message);
    if (result == VARVE_OK && origins.count >= (UINT32_C(1) << 31))
        result = varve_message_set(message, VARVE_ERROR_CORRUPT, "too many rows in callsite_origin");
    if (result == VARVE_OK)
        result = place_all(sites, &origins, message);
    free(origins.rows);
    return result;
}
