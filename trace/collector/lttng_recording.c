/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LTTng session of a recording: begun before the program starts, ended after the last record was emitted. The trace
 * grows in the recording directory and is moved beside the database at the end. LTTng is the second sink: when it
 * cannot be had, that is said, and the recording goes on without it, unless it is the only one.
 */
#include "base/grown_array.h"
#include "trace/collector/collector.h"
#include "trace/collector/lttng_session.h"
#include "trace/format/sink_provider.h"
#include "trace/record.h"
#include "base/error.h"
#include "trace/collect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* By what the session page says: `varve recover` finds both again, and can end no other session. */
static struct lttng_recording_options options_fill(const struct collector *collector, struct collect_lttng *lttng)
{
    const struct session_control *control = collector->directory.control;
    snprintf(lttng->name, sizeof(lttng->name), "varve-%d-%06llx", (int)control->collector_pid,
             (unsigned long long)(control->trace_id & 0xffffff));
    snprintf(lttng->output, sizeof(lttng->output), "%.4000s/ctf", collector->directory.path);
    return (struct lttng_recording_options){
        .name = lttng->name, .output = lttng->output, .may_block = lttng->may_block};
}

static int lttng_recording_open(struct collector *collector, const char *provider_path, struct varve_message *message)
{
    struct collect_lttng *lttng = &collector->lttng;
    struct session_control *control = collector->directory.control;
    if (!lttng_recording_is_possible(message)) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    if (provider_path == NULL || access(provider_path, R_OK) != 0 ||
        strlen(provider_path) >= sizeof(control->sink_path)) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "%s is missing: this varve was built without LTTng (liblttng-ust-dev)",
                                 provider_path != NULL ? provider_path : "libvarve_lttng.so");
    }
    struct lttng_recording_options options = options_fill(collector, lttng);
    snprintf(control->sink_path, sizeof(control->sink_path), "%s", provider_path);
    control->sink |= SESSION_SINK_LTTNG; /* said before the session is there: this process may be killed */
    int error = lttng_recording_start(&options, &lttng->session, message);
    VARVE_THEN(error, collect_sink_open(collector, provider_path, message));
    if (error == VARVE_OK && lttng->may_block) {
        setenv("LTTNG_UST_ALLOW_BLOCKING", "1", 1); /* the program inherits it */
    }
    return error;
}

int collect_lttng_start(struct collector *collector, const struct varve_collect_options *options,
                        struct varve_message *message)
{
    struct varve_message reason = {""};
    collector->lttng.may_block = options->overflow == VARVE_OVERFLOW_BLOCK;
    int error = lttng_recording_open(collector, options->provider_path, &reason);
    if (error == VARVE_OK) {
        collector->lttng.numbers = options->numbers;
        return VARVE_OK;
    }
    collect_lttng_abandon(collector);
    if (collector->is_unstored) {
        return varve_message_set(message, error, "%s", reason.text);
    }
    if (!collector->quiet) {
        fprintf(stderr, "varve: no LTTng trace: %s; recording to SQLite goes on\n", reason.text);
    }
    return VARVE_OK;
}

void collect_lttng_abandon(struct collector *collector)
{
    struct collect_lttng *lttng = &collector->lttng;
    if (lttng->session != NULL) {
        lttng_recording_stop(lttng->session, NULL, NULL);
        lttng->session = NULL;
    }
    if (lttng->output[0] != '\0') {
        lttng_folder_remove(lttng->output);
        lttng->output[0] = '\0';
        collector->directory.control->sink &= ~(uint32_t)SESSION_SINK_LTTNG;
    }
}

/* What went wrong costs the second sink, not the recording. */
static void report_failure(const struct collector *collector, const struct varve_message *reason)
{
    if (!collector->quiet) {
        fprintf(stderr, "varve: the LTTng trace may be incomplete: %s\n", reason->text);
    }
}

/* ---- what the trace lacks ---- */

/* Without memory for it a ring is not counted. */
static void add_ring(struct collect_lttng *lttng, const struct lttng_ring *ring)
{
    if (ARRAY_GROW(lttng->rings, lttng->ring_capacity, lttng->ring_count + 1)) {
        lttng->rings[lttng->ring_count++] = *ring;
    }
}

void collect_lttng_ring(struct collector *collector, const struct ring_reader *reader)
{
    const struct lttng_ring ring = {.process = reader->process->id,
                                    .ring = reader->index,
                                    .records = reader->read + reader->spill_read - reader->unreadable,
                                    .last = reader->sequence};
    if (collector->lttng.output[0] != '\0' && collector->lttng.numbers != NULL) {
        add_ring(&collector->lttng, &ring);
    }
}

/* Rings that the database had complete when the collector died. */
static void add_known(struct collector *collector)
{
    for (size_t i = 0; i < collector->known_count; i++) {
        const struct store_ring_position *known = &collector->known[i];
        const struct lttng_ring ring = {.process = known->process_id,
                                        .ring = known->ring,
                                        .records = known->tail + known->spill_tail - known->unreadable,
                                        .last = known->sequence};
        if (known->is_final) {
            add_ring(&collector->lttng, &ring);
        }
    }
}

void collect_lttng_count(struct collector *collector, struct varve_collect_result *result)
{
    struct collect_lttng *lttng = &collector->lttng;
    const char *folder = result->ctf_path[0] != '\0' ? result->ctf_path : lttng->output;
    struct varve_message reason = {""};
    if (lttng->numbers == NULL || lttng->output[0] == '\0' || access(folder, F_OK) != 0) {
        return;
    }
    add_known(collector);
    if (lttng_missing_count(lttng->rings, lttng->ring_count, folder, lttng->numbers, &result->lttng_missing, &reason) !=
            VARVE_OK &&
        !collector->quiet) {
        fprintf(stderr, "varve: what the LTTng trace lacks is not known: %s\n", reason.text);
    }
}

static void end_session(struct collector *collector, struct varve_collect_result *result)
{
    struct collect_lttng *lttng = &collector->lttng;
    struct lttng_recording_loss loss = {0};
    struct varve_message reason = {""};

    int error = lttng_recording_stop(lttng->session, &loss, &reason);
    lttng->session = NULL;
    if (error != VARVE_OK) {
        report_failure(collector, &reason);
    }
    result->discarded = loss.discarded_events;
    if (loss.discarded_events + loss.discarded_packets > 0 && !collector->quiet) {
        fprintf(stderr, "varve: LTTng discarded %llu events and %llu packets: its trace is incomplete\n",
                (unsigned long long)loss.discarded_events, (unsigned long long)loss.discarded_packets);
    }
}

void collect_lttng_finish(struct collector *collector, struct varve_collect_result *result)
{
    struct collect_lttng *lttng = &collector->lttng;
    if (lttng->session == NULL) {
        return;
    }
    end_session(collector, result);
    if (collector->was_killed && !collector->is_recovering) {
        collect_lttng_count(collector, result);
    }
}

bool collect_lttng_adopt(struct collector *collector, struct varve_message *message)
{
    struct collect_lttng *lttng = &collector->lttng;
    const struct session_control *control = collector->directory.control;
    if (control == NULL || (control->sink & SESSION_SINK_LTTNG) == 0) { /* NULL: it went when all else was done */
        return false;
    }
    struct lttng_recording_options options = options_fill(collector, lttng);
    return lttng_recording_adopt(&options, &lttng->session, message) == VARVE_OK;
}

void collect_lttng_path(const char *database_path, char *path, size_t bytes)
{
    size_t length = strlen(database_path);
    length -= length > 3 && strcmp(database_path + length - 3, ".db") == 0 ? 3 : 0;
    snprintf(path, bytes, "%.*s.ctf", (int)length, database_path);
}

int collect_lttng_publish(struct collector *collector, const char *database_path, struct varve_collect_result *result,
                          struct varve_message *message)
{
    struct collect_lttng *lttng = &collector->lttng;
    if (lttng->output[0] == '\0') {
        return VARVE_OK;
    }
    collect_lttng_path(database_path, result->ctf_path, sizeof(result->ctf_path));
    if (access(lttng->output, F_OK) != 0) {
        result->ctf_path[0] = '\0';
        return VARVE_OK;
    }
    lttng_folder_remove(result->ctf_path); /* only there if it may be replaced */
    if (rename(lttng->output, result->ctf_path) != 0) {
        return varve_message_set(message, VARVE_ERROR_IO, "cannot move the LTTng trace to %s: %s", result->ctf_path,
                                 strerror(errno));
    }
    return VARVE_OK;
}
