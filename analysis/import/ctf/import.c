/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done with a CTF trace that is read: a database of it, or a list of the records in it. What was lost
 * on the way, by LTTng or to damage, goes into the table `stats`.
 */
#include "analysis/import/ctf/ctf.h"

#include "analysis/output/format.h"
#include "analysis/output/progress.h"
#include "analysis/query/db.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- a database ---- */

static int rebuild_take(void *context, const struct ctf_item *item)
{
    return ctf_item_rebuild(context, item);
}

/* "1,204 of lttng_ust_statedump, 7 of other": those of the tracer itself are in nearly every trace. */
static void foreign_describe(const struct ctf_counts *counts, char *text, size_t bytes)
{
    size_t length = 0;

    text[0] = '\0';
    for (size_t i = 0; i < CTF_PROVIDERS && counts->providers[i].events > 0 && length < bytes; i++) {
        int added =
            snprintf(text + length, bytes - length, "%s%s of %.47s", i > 0 ? ", " : "",
                     format_count((int64_t)counts->providers[i].events).text, counts->providers[i].name);

        length += added > 0 ? (size_t)added : 0;
    }
}

static int nothing_of_ours(const char *folder, const struct ctf_counts *counts, struct varve_message *message)
{
    char others[300];

    if (counts->foreign > 0) {
        foreign_describe(counts, others, sizeof(others));
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s: no varve events in it; it has %s", folder,
                                 others);
    }
    return varve_message_set(message, VARVE_ERROR_FORMAT, "%s: no varve events in it%s", folder,
                             counts->statedump > 0 ? " but a state dump" : ", nor any others");
}

static int losses_rebuild(struct varve_rebuild *rebuild, const struct ctf_reading *reading)
{
    int error = ctf_counts_rebuild(rebuild, &reading->counts);

    if (error == VARVE_OK && reading->damage.text[0] != '\0') {
        error = varve_rebuild_stat(rebuild, "ctf_streams_damaged", true,
                                   reading->streams_damaged > 0 ? reading->streams_damaged : 1);
    }
    if (error == VARVE_OK && reading->bytes_damaged > 0) {
        error = varve_rebuild_stat(rebuild, "ctf_bytes_damaged", true, reading->bytes_damaged);
    }
    return error;
}

static int import_into(const struct ctf_source *source, struct varve_rebuild *rebuild,
                       struct ctf_import_result *result, struct varve_message *message)
{
    int error = ctf_read(source, &result->reading, message);

    if (error == VARVE_OK && result->reading.counts.records + result->reading.counts.definitions == 0) {
        error = nothing_of_ours(source->folder, &result->reading.counts, message);
    }
    if (error != VARVE_OK && message->text[0] != '\0') {
        varve_rebuild_abandon(rebuild);
        return error;
    }
    if (error == VARVE_ERROR_BUSY && result->reading.signal_number != 0) {
        varve_rebuild_abandon(rebuild);
        raise(result->reading.signal_number);
        return varve_message_set(message, error, "%s: interrupted", source->folder);
    }
    if (error == VARVE_OK) {
        (void)losses_rebuild(rebuild, &result->reading);
    }
    /* An error of the rebuild sticks to it, and its end says what it was. */
    return varve_rebuild_finish(rebuild, progress_step, source->progress, &result->recording, message);
}

int ctf_import(const char *folder, const char *database_path, bool replace, struct progress *progress,
               struct ctf_import_result *result, struct varve_message *message)
{
    struct varve_rebuild *rebuild;
    struct ctf_source source = {.folder = folder, .near = database_path, .progress = progress};
    int error;

    *result = (struct ctf_import_result){0};
    if (!ctf_is_possible(folder, message)) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    error = varve_rebuild_open(database_path, replace, &rebuild, message);
    if (error != VARVE_OK) {
        return error;
    }
    source.take = rebuild_take;
    source.context = rebuild;
    message->text[0] = '\0';
    return import_into(&source, rebuild, result, message);
}

/* ---- numbers ---- */

struct number_taker {
    void (*take)(void *context, uint32_t process, uint32_t ring, uint64_t first, uint64_t last);
    void *context;
};

static int number_take(void *context, const struct ctf_item *item)
{
    const struct number_taker *taker = context;

    if (item->kind == CTF_ITEM_RECORD) {
        taker->take(taker->context, item->of.record.origin.process, item->of.record.origin.ring,
                    item->of.record.ring_seq, item->of.record.ring_seq);
    }
    return VARVE_OK;
}

int ctf_each_number(const char *folder,
                    void (*take)(void *context, uint32_t process, uint32_t ring, uint64_t first,
                                 uint64_t last),
                    void *context, struct varve_message *message)
{
    struct number_taker taker = {.take = take, .context = context};
    struct ctf_source source = {.folder = folder, .take = number_take, .context = &taker};
    struct varve_message reason = {""};
    struct ctf_reading reading;
    int error = ctf_read(&source, &reading, &reason);

    if (error == VARVE_ERROR_BUSY && reading.signal_number != 0) {
        raise(reading.signal_number);
        return varve_message_set(message, error, "%s: interrupted", folder);
    }
    return error == VARVE_OK ? VARVE_OK : varve_message_set(message, error, "%s", reason.text);
}
