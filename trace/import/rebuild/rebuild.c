/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuilding a recording from what a second sink was told (trace.h): begin, end without a result, and what
 * belongs to the recording as a whole. Records are in rings.c, processes in processes.c, call
 * sites in callsites.c, the end in finish.c. Nothing is decided before the end but one thing:
 * which of two recordings in one trace is meant, the one that is heard of first.
 */
#include "trace/import/rebuild/rebuild.h"

#include "trace/import/rebuild/rebuild.h"

#include "trace/import/rebuild/rebuild.h"

#include "trace/import/rebuild/rebuild.h"

#include "trace/base/array.h"
#include "trace/collector/clock.h"
#include "trace/error.h"
#include "trace/trace.h"

#include "trace/import/rebuild/rebuild.h"

#include <stdlib.h>
#include <string.h>

int rebuild_keep(struct varve_rebuild *rebuild, int code, const struct varve_message *message)
{
    if (code != VARVE_OK && rebuild->error == VARVE_OK) {
        rebuild->error = code;
        rebuild->message = *message;
    }
    return rebuild->error;
}

bool rebuild_is_ours(struct varve_rebuild *rebuild, uint64_t trace_id)
{
    if (!rebuild->has_trace_id) {
        rebuild->has_trace_id = true;
        rebuild->trace_id = trace_id;
    }
    return rebuild->trace_id == trace_id;
}

/* ---- begin and end ---- */

int varve_rebuild_open(const char *path, bool replace, struct varve_rebuild **rebuild_out,
                       struct varve_message *message)
{
    struct varve_rebuild *rebuild = calloc(1, sizeof(*rebuild));
    int code;

    *rebuild_out = NULL;
    if (rebuild == NULL || (rebuild->path = strdup(path)) == NULL) {
        free(rebuild);
        return rebuild_no_memory(message);
    }
    rebuild->may_replace = replace;
    code = rebuild_folder_make(&rebuild->folder, path, replace, message);
    if (code != VARVE_OK) {
        varve_rebuild_abandon(rebuild);
        return code;
    }
    *rebuild_out = rebuild;
    return VARVE_OK;
}

static void told_free(struct varve_rebuild *rebuild)
{
    for (size_t i = 0; i < rebuild->meta_count; i++) {
        free(rebuild->meta[i].key);
        free(rebuild->meta[i].text);
    }
    for (size_t i = 0; i < rebuild->stat_count; i++) {
        free(rebuild->stats[i].name);
    }
    free(rebuild->meta);
    free(rebuild->stats);
    free(rebuild->anchors);
}

void varve_rebuild_abandon(struct varve_rebuild *rebuild)
{
    if (rebuild == NULL) {
        return;
    }
    for (size_t i = 0; i < rebuild->ring_count; i++) {
        rebuild_ring_free(rebuild, rebuild->rings[i]);
    }
    for (size_t i = 0; i < rebuild->process_count; i++) {
        rebuild_process_free(rebuild->processes[i]);
    }
    told_free(rebuild);
    rebuild_folder_remove(&rebuild->folder);
    free(rebuild->rings);
    free(rebuild->processes);
    free(rebuild->ring_index.slots);
    free(rebuild->process_index.slots);
    free(rebuild->sites.bytes);
    free(rebuild->path);
    free(rebuild);
}

uint64_t varve_rebuild_events(const struct varve_rebuild *rebuild)
{
    return rebuild->records;
}

/* ---- what is told of the whole ---- */

static int keep_no_memory(struct varve_rebuild *rebuild)
{
    struct varve_message message;

    return rebuild_keep(rebuild, rebuild_no_memory(&message), &message);
}

int varve_rebuild_clock(struct varve_rebuild *rebuild, const struct varve_mirror_clock *told)
{
    if (rebuild->error != VARVE_OK || !rebuild_is_ours(rebuild, told->trace_id)) {
        return rebuild->error;
    }
    if (!array_grow((void **)&rebuild->anchors, &rebuild->anchor_capacity, rebuild->anchor_count + 1,
                    sizeof(*rebuild->anchors))) {
        return keep_no_memory(rebuild);
    }
    rebuild->anchors[rebuild->anchor_count++] =
        (struct clock_anchor){.ticks = told->ticks, .mono_ns = told->mono_ns, .real_ns = told->real_ns};
    return VARVE_OK;
}

/* The row of a key, a new one if there is none; NULL: an error is kept, or it is another recording's. */
static struct rebuild_meta *meta_of(struct varve_rebuild *rebuild, uint64_t trace_id, const char *key)
{
    struct rebuild_meta *meta;

    if (rebuild->error != VARVE_OK || !rebuild_is_ours(rebuild, trace_id)) {
        return NULL;
    }
    for (size_t i = 0; i < rebuild->meta_count; i++) {
        if (strcmp(rebuild->meta[i].key, key) == 0) {
            return &rebuild->meta[i];
        }
    }
    if (!array_grow((void **)&rebuild->meta, &rebuild->meta_capacity, rebuild->meta_count + 1,
                    sizeof(*rebuild->meta))) {
        keep_no_memory(rebuild);
        return NULL;
    }
    meta = &rebuild->meta[rebuild->meta_count];
    *meta = (struct rebuild_meta){.key = strdup(key)};
    if (meta->key == NULL) {
        keep_no_memory(rebuild);
        return NULL;
    }
    rebuild->meta_count++;
    return meta;
}

int varve_rebuild_meta_text(struct varve_rebuild *rebuild, uint64_t trace_id, const char *key,
                            const char *value)
{
    struct rebuild_meta *meta = meta_of(rebuild, trace_id, key);
    char *text = meta != NULL ? strdup(value != NULL ? value : "") : NULL;

    if (meta != NULL && text == NULL) {
        return keep_no_memory(rebuild);
    }
    if (meta != NULL) {
        free(meta->text);
        meta->text = text;
    }
    return rebuild->error;
}

int varve_rebuild_meta_integer(struct varve_rebuild *rebuild, uint64_t trace_id, const char *key,
                               int64_t value)
{
    struct rebuild_meta *meta = meta_of(rebuild, trace_id, key);

    if (meta != NULL) {
        free(meta->text);
        meta->text = NULL;
        meta->integer = value;
    }
    return rebuild->error;
}

int varve_rebuild_stat(struct varve_rebuild *rebuild, const char *name, bool is_loss, uint64_t value)
{
    struct rebuild_stat *stat;

    if (rebuild->error != VARVE_OK) {
        return rebuild->error;
    }
    for (size_t i = 0; i < rebuild->stat_count; i++) {
        if (strcmp(rebuild->stats[i].name, name) == 0) {
            rebuild->stats[i].value += value;
            rebuild->stats[i].is_loss = rebuild->stats[i].is_loss || is_loss;
            return VARVE_OK;
        }
    }
    if (!array_grow((void **)&rebuild->stats, &rebuild->stat_capacity, rebuild->stat_count + 1,
                    sizeof(*rebuild->stats))) {
        return keep_no_memory(rebuild);
    }
    stat = &rebuild->stats[rebuild->stat_count];
    *stat = (struct rebuild_stat){.name = strdup(name), .is_loss = is_loss, .value = value};
    if (stat->name == NULL) {
        return keep_no_memory(rebuild);
    }
    rebuild->stat_count++;
    return VARVE_OK;
}
