/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One entry of a call-site file into the interned tables. The hard part is trust: the bytes come from another
 * process, perhaps one that wrote over its own memory. Sizes that contradict each other mean that the next
 * entry cannot be found: the file ends there. Numbers that make no sense cost only their own entry. Both are
 * counted. A module answers for a pc from its MODULE entry to its MODULE_GONE. Called by reader.c.
 */
#include "trace/symbols/callsites/callsites.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BUILD_ID_BYTES_MAX 64U

static bool is_padded(const struct sites_entry *entry, size_t bytes)
{
    return entry->bytes == ((bytes + 7) & ~(size_t)7);
}

/* Sizes that agree with each other: then the payload holds what its head says. */
bool sites_entry_is_sound(const struct sites_entry *entry, const uint8_t *payload)
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

bool sites_entry_take(struct sites *sites, struct sites_process *process, uint32_t process_id,
                      const struct sites_entry *entry, const uint8_t *payload)
{
    if (!sites_entry_is_sound(entry, payload))
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
