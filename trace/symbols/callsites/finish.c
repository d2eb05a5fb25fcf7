/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a recording: names for all call sites, and their rows in the database. Each distinct frame is
 * resolved once, ordered by module and address, so that few debug files are open at a time and each is read
 * in one sweep; then each stack is put together from the results. Called once by the collector, with a
 * transaction of the store open.
 */
#include "trace/base/array.h"
#include "trace/error.h"
#include "trace/format/callsite_file.h"
#include "trace/store/rows.h"
#include "trace/store/store.h"
#include "trace/symbols/callsites/callsites.h"
#include "trace/symbols/callsites/intern.h"
#include "trace/symbols/callsites/merge.h"
#include "trace/symbols/callsites/names.h"
#include "trace/symbols/callsites/reader.h"
#include "trace/symbols/module.h"
#include "trace/symbols/symbols.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_STEP 512U
#define CUT_FUNCTION "(frames left out)"

struct finish {
    const struct callsites *callsites;
    struct store *store;
    struct callsites_resolved *resolved; /* at [frame number - 1] */
    struct callsites_line_symbol *symbols;
    size_t symbol_count, symbol_capacity;
    /* of the frame being resolved */
    const char *module_path; /* NULL if there is none */
    uint32_t module_roles;
    int result;
};

static void add_symbol(struct finish *finish, const struct store_symbol *symbol, uint32_t roles)
{
    uint32_t row;

    if (finish->result != VARVE_OK) {
        return;
    }
    row = store_symbol(finish->store, symbol);
    if (row == 0) {
        finish->result = VARVE_ERROR_DATABASE;
    } else if (finish->symbol_count >= UINT32_MAX ||
               !ARRAY_GROW(finish->symbols, finish->symbol_capacity, finish->symbol_count + 1)) {
        finish->result = VARVE_ERROR_NO_MEMORY;
    } else {
        finish->symbols[finish->symbol_count++] = (struct callsites_line_symbol){row, roles};
    }
}

static void take_native(void *context, const struct symbols_frame *frame)
{
    struct finish *finish = context;
    struct store_symbol symbol = {.function = frame->function,
                                  .file = frame->file,
                                  .module = finish->module_path,
                                  .line = frame->line,
                                  .is_inlined = frame->is_inlined};
    uint32_t roles = finish->module_roles | (frame->function == NULL ? CALLSITES_ROLE_UNNAMED : 0U);

    if (frame->function && callsites_name_is_allocation(frame->function)) {
        roles |= CALLSITES_ROLE_ALLOCATION;
    }
    if (frame->function && callsites_name_is_interpreter_loop(frame->function)) {
        roles |= CALLSITES_ROLE_LOOP;
    }
    add_symbol(finish, &symbol, roles);
}

static void resolve_native(struct finish *finish, struct symbols *symbols,
                           const struct callsites_frame *frame)
{
    static const struct symbols_frame unknown = {NULL, NULL, 0, false};
    static const struct symbols_frame cut = {CUT_FUNCTION, NULL, 0, false};
    static const struct symbols_frame not_kept = {"(not kept: limit)", NULL, 0, false};
    const struct interned *texts = &finish->callsites->texts;
    const struct pair *module;
    const char *build_id;
    size_t build_id_bytes;
    int result;

    finish->module_path = NULL;
    finish->module_roles = 0;
    if (frame->owner == 0) {
        bool is_mark =
            frame->position == CALLSITES_POSITION_CUT || frame->position == CALLSITES_POSITION_NOT_KEPT;

        finish->module_roles = is_mark ? CALLSITES_ROLE_CUT : 0;
        take_native(finish, !is_mark                                    ? &unknown
                            : frame->position == CALLSITES_POSITION_CUT ? &cut
                                                                        : &not_kept);
        return;
    }
    module = &finish->callsites->modules.pairs[frame->owner - 1];
    finish->module_path = callsites_text(texts, module->first, NULL);
    if (callsites_path_is_interpreter(finish->module_path)) {
        finish->module_roles |= CALLSITES_ROLE_INTERPRETER;
    }
    if (callsites_path_is_recorder(finish->module_path)) {
        finish->module_roles |= CALLSITES_ROLE_RECORDER;
    }
    if (callsites_path_is_driver(finish->module_path)) {
        finish->module_roles |= CALLSITES_ROLE_ALLOCATION;
    }
    if (callsites_path_is_torch(finish->module_path)) {
        finish->module_roles |= CALLSITES_ROLE_TORCH;
    }
    build_id = callsites_text(texts, module->second, &build_id_bytes);
    /* A return address is after the call, which may be the last instruction of its line or function. */
    result = symbols_resolve(symbols, finish->module_path, (const uint8_t *)build_id, build_id_bytes,
                             frame->position ? frame->position - 1 : 0, take_native, finish);
    if (result != VARVE_OK && finish->result == VARVE_OK) {
        finish->result = result;
    }
}

static void resolve_python(struct finish *finish, const struct callsites_frame *frame)
{
    const struct interned *texts = &finish->callsites->texts;
    struct store_symbol symbol = {.is_python = true};
    uint32_t roles = CALLSITES_ROLE_PYTHON;

    if (frame->owner == 0 && frame->position == CALLSITE_FILE_CUT) {
        symbol.function = CUT_FUNCTION;
        add_symbol(finish, &symbol, roles | CALLSITES_ROLE_CUT);
        return;
    }
    if (frame->owner) {
        const struct pair *code = &finish->callsites->codes.pairs[frame->owner - 1];

        symbol.function = callsites_text(texts, code->first, NULL);
        symbol.file = callsites_text(texts, code->second, NULL);
    }
    symbol.line = (uint32_t)frame->position & ~CALLSITE_FILE_PYTHON_ENTRY;
    if (symbol.file && callsites_path_is_torch_python(symbol.file)) {
        roles |= CALLSITES_ROLE_TORCH;
    }
    add_symbol(finish, &symbol, roles);
}

/* Python last; else by module and address. */
static int compare_frames(const void *left, const void *right, void *context)
{
    const struct callsites_frame *frames = context;
    const struct callsites_frame *a = &frames[*(const uint32_t *)left - 1],
                                 *b = &frames[*(const uint32_t *)right - 1];

    if (a->is_python != b->is_python) {
        return a->is_python < b->is_python ? -1 : 1;
    }
    if (a->owner != b->owner) {
        return a->owner < b->owner ? -1 : 1;
    }
    return a->position < b->position ? -1 : a->position > b->position;
}

static int resolve_frames(struct finish *finish, struct symbols *symbols, store_progress progress,
                          void *context)
{
    const struct interned *frames = &finish->callsites->frames;
    uint32_t *order = malloc(((size_t)frames->count + 1) * sizeof(*order));

    finish->resolved = calloc((size_t)frames->count + 1, sizeof(*finish->resolved));
    if (!order || !finish->resolved) {
        free(order);
        return VARVE_ERROR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < frames->count; i++) {
        order[i] = i + 1;
    }
    qsort_r(order, frames->count, sizeof(*order), compare_frames, frames->bytes);
    for (uint32_t i = 0; i < frames->count && finish->result == VARVE_OK; i++) {
        const struct callsites_frame *frame = (const struct callsites_frame *)frames->bytes + (order[i] - 1);
        struct callsites_resolved *resolved = &finish->resolved[order[i] - 1];

        if (progress && i % PROGRESS_STEP == 0) {
            progress(context, "symbols", i, frames->count);
        }
        resolved->start = (uint32_t)finish->symbol_count;
        if (frame->is_python) {
            resolve_python(finish, frame);
        } else {
            resolve_native(finish, symbols, frame);
        }
        resolved->count = (uint32_t)finish->symbol_count - resolved->start;
    }
    if (progress) {
        progress(context, "symbols", frames->count, frames->count);
    }
    free(order);
    return finish->result;
}

static int write_modules(const struct callsites *callsites, struct store *store)
{
    static const char digits[] = "0123456789abcdef";
    int result = VARVE_OK;

    for (uint32_t id = 1; id <= callsites->modules.count && result == VARVE_OK; id++) {
        const struct pair *module = &callsites->modules.pairs[id - 1];
        char hex[2 * 64 + 1];
        size_t bytes;
        const char *build_id = callsites_text(&callsites->texts, module->second, &bytes);

        assert(bytes <= 64);
        for (size_t i = 0; i < bytes; i++) {
            hex[2 * i] = digits[(unsigned char)build_id[i] >> 4];
            hex[2 * i + 1] = digits[(unsigned char)build_id[i] & 15U];
        }
        hex[2 * bytes] = '\0';
        result = store_module(store, id, callsites_text(&callsites->texts, module->first, NULL),
                              bytes ? hex : NULL);
    }
    return result;
}

static int write_line(void *context, uint32_t line, uint32_t parent, uint32_t symbol, int64_t pc)
{
    return store_stack_node(context, line, parent, symbol, pc);
}

static int write_stacks(struct finish *finish, store_progress progress, void *context)
{
    const struct callsites *callsites = finish->callsites;
    struct callsites_merge merge = {
        .nodes = &callsites->nodes,
        .frames = callsites->frames.bytes,
        .frame_count = callsites->frames.count,
        .resolved = finish->resolved,
        .symbols = finish->symbols,
        .add = write_line,
        .context = finish->store,
    };
    int result = callsites_merge_open(&merge);

    for (uint32_t id = 1; id <= callsites->stacks.count && result == VARVE_OK; id++) {
        uint32_t line = 0;

        if (progress && id % PROGRESS_STEP == 0) {
            progress(context, "call sites", id, callsites->stacks.count);
        }
        result = callsites_merge_stack(&merge, callsites->stacks.pairs[id - 1], &line);
        if (result == VARVE_OK) {
            result = store_callsite(finish->store, id, line, line != 0 ? merge.lines[line].depth : 0,
                                    callsites_line_symbol(merge.lines, line));
        }
    }
    callsites_merge_close(&merge);
    return result;
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

int callsites_finish(struct callsites *callsites, struct store *store, store_progress progress, void *context,
                     struct varve_message *message)
{
    struct finish finish = {.callsites = callsites, .store = store};
    struct symbols *symbols = NULL;
    int result = symbols_open(&symbols, message);

    if (result != VARVE_OK) {
        return result;
    }
    result = store_callsites_begin(store, message);
    if (result == VARVE_OK) {
        result = resolve_frames(&finish, symbols, progress, context);
    }
    symbols_close(symbols);
    if (result == VARVE_OK) {
        result = write_modules(callsites, store);
    }
    if (result == VARVE_OK) {
        result = write_stacks(&finish, progress, context);
    }
    if (result == VARVE_OK) {
        result = write_errors(callsites, store);
    }
    if (result == VARVE_OK) {
        result = store_commit(store, NULL, 0, message);
    }
    free(finish.resolved);
    free(finish.symbols);
    if (result != VARVE_OK) {
        return varve_message_set(message, result, "call sites could not be written: %s",
                                 varve_strerror(result));
    }
    return VARVE_OK;
}
