/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a recording: names for all call sites, and their rows in the database. Called by the collector, with a
 * transaction of the store open.
 */
#include "base/error.h"
#include "trace/store/store.h"
#include "trace/callsites/callsites.h"
#include "trace/callsites/callsite_intern.h"
#include "trace/callsites/callsite_output.h"
#include "trace/callsites/callsite_reader.h"

#include <assert.h>

static int write_modules(const struct callsites *callsites, struct store *store)
{
    static const char digits[] = "0123456789abcdef";
    int result = VARVE_OK;
    for (uint32_t id = 1; id <= callsites->modules.count && result == VARVE_OK; id++) {
        const struct pair *module = &callsites->modules.pairs[id - 1];
        size_t bytes;
        const char *build_id = callsites_text(&callsites->texts, module->second, &bytes);
        assert(bytes <= 64);
        char hex[2 * 64 + 1];
        for (size_t i = 0; i < bytes; i++) {
            hex[2 * i] = digits[(unsigned char)build_id[i] >> 4];
            hex[2 * i + 1] = digits[(unsigned char)build_id[i] & 15U];
        }
        hex[2 * bytes] = '\0';
        result = store_module(store, id, callsites_text(&callsites->texts, module->first, NULL), bytes ? hex : NULL);
    }
    return result;
}

static int callsite_finish_write_symbols(const struct resolver *resolver, struct store *store)
{
    for (uint32_t number = 1; number <= resolver_symbol_count(resolver); number++) {
        struct store_symbol symbol;
        resolver_symbol(resolver, number, &symbol);
        if (store_symbol(store, &symbol) != number) {
            return VARVE_ERROR_DATABASE;
        }
    }
    return VARVE_OK;
}

static int write_errors(const struct callsites *callsites, struct store *store)
{
    int result = VARVE_OK;
    for (size_t id = 0; id < callsites->process_capacity; id++) {
        static const char *const names[] = {"callsite_file_errors", "callsites_lost", CALLSITES_STAT_UNKNOWN,
                                            "callsites_gone"};
        const struct callsites_process *process = callsites->processes[id];
        const struct callsites_process none = {0};
        const struct callsites_process *from = process ? process : &none;
        const uint64_t counts[] = {from->errors, from->lost, from->unknown, from->gone};
        for (size_t i = 0; i < sizeof(names) / sizeof(*names) && result == VARVE_OK; i++) {
            if (counts[i]) {
                result = store_stat(store, names[i], (int64_t)id, "data_loss", "sites", (int64_t)counts[i]);
            }
        }
    }
    return result;
}

/* The tables are begun once: what was handed over since then stays, whatever else has to be repeated. */
static int tables_begin(struct callsites_output *output, struct store *store, struct varve_message *message)
{
    int result = output->is_begun || output->is_held ? VARVE_OK : store_callsites_begin(store, message);
    output->is_begun = result == VARVE_OK && !output->is_held;
    return result;
}

int callsites_merge_all(struct callsites *callsites, struct store *store, store_progress progress, void *context,
                        struct varve_message *message)
{
    int result = callsites_hurry(callsites, message);
    VARVE_THEN(result, output_wait(callsites, progress, context));
    VARVE_THEN(result, tables_begin(callsites->output, store, message));
    VARVE_THEN(result, output_finish(callsites, store, progress, context));
    return result == VARVE_OK
               ? VARVE_OK
               : varve_message_set(message, result, "call sites could not be written: %s", varve_strerror(result));
}

int callsites_finish(struct callsites *callsites, struct store *store, store_progress progress, void *context,
                     struct varve_message *message)
{
    int result = callsites_merge_all(callsites, store, progress, context, message);
    VARVE_THEN(result, callsites->output->is_joined ? store_callsites_begin(store, message)
                                                    : store_symbols_begin(store, message));
    VARVE_THEN(result, write_modules(callsites, store));
    VARVE_THEN(result, callsites->output->is_joined
                           ? join_write(callsites, store)
                           : callsite_finish_write_symbols(callsites->output->resolver, store));
    VARVE_THEN(result, output_write_frames(callsites, store));
    VARVE_THEN(result, write_errors(callsites, store));
    VARVE_THEN(result, store_commit(store, NULL, 0, message));
    if (result != VARVE_OK) {
        return varve_message_set(message, result, "call sites could not be written: %s", varve_strerror(result));
    }
    return VARVE_OK;
}
