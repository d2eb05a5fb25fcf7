/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One batch of frames at a time. While a batch is under way everything in struct resolver but its last fields is the
 * thread's, else the caller's; so the thread reads copies of what the caller goes on changing. Within a batch frames
 * are resolved in order of module and address, so that few debug files are open at a time and each is read in one
 * sweep; then symbols are numbered in the order of the frames. Called by callsite_output.c.
 */
#include "trace/callsites/callsite_output.h"

#include "base/monotonic.h"
#include "base/grown_array.h"
#include "base/thread.h"
#include "trace/format/callsite_format.h"
#include "trace/store/store.h"
#include "trace/callsites/callsite_intern.h"
#include "trace/callsites/frame_kinds.h"
#include "trace/callsites/callsite_reader.h"
#include "trace/symbols/symbols.h"
#include "base/error.h"
#include "trace/writer.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NOT_KEPT_FUNCTION "(not kept: limit)"
#define FRAMES_MIN 256U /* fewer wait for others, but not for long */
#define WAIT_MAX_NS UINT64_C(500000000)
#define PROGRESS_EVERY_NS 50000000
#define REST 3U /* times as long as the batch before took: modules are opened anew for each */

enum state { STATE_IDLE, STATE_BUSY, STATE_DONE };

struct resolver_module {
    char *path;
    uint32_t text; /* of the path */
    uint8_t build_id[64];
    size_t build_id_bytes;
    struct symbols_image *image; /* the reader's; NULL: none */
    uint32_t roles;
    bool is_torn; /* its file became shorter while it was read */
};

/* A row of `symbol`; texts are numbers, 0: unknown. */
struct symbol_key {
    uint32_t function, file, module, line;
    uint32_t is_python, is_inlined;
};

struct resolver {
    struct symbols *symbols;
    struct varve_plumbing *plumbing;
    struct compiled compiled;
    struct interned texts, keys;
    uint8_t *ranks; /* of key k at [k - 1]: enum varve_frame_rank */
    size_t rank_count, rank_capacity;
    struct resolver_module *modules;
    size_t module_count, module_capacity;
    struct pair *codes; /* texts: function, file */
    size_t code_count, code_capacity;
    uint32_t *numbers; /* of key k at [k - 1]: its symbol, 0: it has none yet */
    size_t number_capacity;
    uint32_t *symbol_keys; /* of symbol n at [n - 1] */
    size_t symbol_capacity;
    uint32_t symbol_count;
    uint64_t taken; /* frames of the batches before */
    /* the batch */
    struct callsites_frame *frames;
    size_t frame_count, frame_capacity;
    struct callsites_resolved *resolved; /* of frames[], parts of places[] */
    size_t resolved_capacity;
    struct callsites_line_symbol *places; /* `symbol` is a key until the batch is done */
    size_t place_count, place_capacity;
    uint32_t *order; /* frames that are left, by module and address */
    size_t order_count, order_capacity;
    size_t order_at;
    bool is_numbered;                     /* all of it is resolved, and its symbols have their numbers */
    const struct resolver_module *module; /* of the frame being resolved; NULL: none */
    uint64_t place;                       /* of that, as struct callsites_resolved has it */
    int error;
    uint64_t began_ns, ended_ns;
    /* of both threads */
    sem_t work;
    int state; /* enum state */
    bool must_end;
    size_t done; /* of order[], for whoever shows it */
    /* the caller's */
    pthread_t thread;
    bool has_thread;
    bool is_alone;           /* no thread can be had: everything is resolved at the end */
    struct sigaction before; /* what SIGBUS did */
};

static void callsite_resolver_fail(struct resolver *resolver, int error)
{
    resolver->error = resolver->error == VARVE_OK ? error : resolver->error;
}

/* ---- one frame ---- */

static uint32_t callsite_resolver_text_number(struct resolver *resolver, const char *text)
{
    uint32_t number = text != NULL ? intern(&resolver->texts, text, strlen(text), 1) : 0;
    if (text != NULL && number == 0) {
        callsite_resolver_fail(resolver, VARVE_ERROR_NO_MEMORY);
    }
    return number;
}

static const char *callsite_resolver_text_of(const struct resolver *resolver, uint32_t number)
{
    return number != 0 ? callsites_text(&resolver->texts, number, NULL) : NULL;
}

static struct varve_writer_symbol callsite_resolver_symbol_of(const struct resolver *resolver,
                                                              const struct symbol_key *key)
{
    return (struct varve_writer_symbol){.function = callsite_resolver_text_of(resolver, key->function),
                                        .file = callsite_resolver_text_of(resolver, key->file),
                                        .module = callsite_resolver_text_of(resolver, key->module),
                                        .line = key->line,
                                        .is_python = key->is_python != 0,
                                        .is_inlined = key->is_inlined != 0};
}

/* The rank of a key that was met for the first time; keys are numbered in turn. */
static bool rank_add(struct resolver *resolver, const struct symbol_key *key, uint32_t roles)
{
    const struct varve_writer_symbol symbol = callsite_resolver_symbol_of(resolver, key);
    if (!ARRAY_GROW(resolver->ranks, resolver->rank_capacity, resolver->rank_count + 1)) {
        return false;
    }
    resolver->ranks[resolver->rank_count++] =
        (uint8_t)((roles & CALLSITES_ROLE_CUT) ? VARVE_FRAME_PLUMBING
                                               : varve_plumbing_rank(resolver->plumbing, &symbol));
    return true;
}

static void add_place(struct resolver *resolver, const struct symbol_key *key, uint32_t roles)
{
    /* a key whose rank is missing is the last one */
    uint32_t number = resolver->error == VARVE_OK ? intern(&resolver->keys, key, sizeof(*key), 0) : 0;
    if (number == 0 || (number > resolver->rank_count && !rank_add(resolver, key, roles)) ||
        resolver->place_count >= UINT32_MAX ||
        !ARRAY_GROW(resolver->places, resolver->place_capacity, resolver->place_count + 1)) {
        callsite_resolver_fail(resolver, VARVE_ERROR_NO_MEMORY);
        return;
    }
    resolver->places[resolver->place_count++] =
        (struct callsites_line_symbol){number, roles | (uint32_t)resolver->ranks[number - 1] << CALLSITES_RANK_SHIFT};
}

static void take_native(void *context, const struct symbols_frame *frame)
{
    struct resolver *resolver = context;
    const struct resolver_module *module = resolver->module;
    const struct symbol_key key = {.function = callsite_resolver_text_number(resolver, frame->function),
                                   .file = callsite_resolver_text_number(resolver, frame->file),
                                   .module = module != NULL ? module->text : 0,
                                   .line = frame->line,
                                   .is_inlined = frame->is_inlined};
    uint32_t roles = (module != NULL ? module->roles : 0) | (frame->function == NULL ? CALLSITES_ROLE_UNNAMED : 0U);
    if (frame->function != NULL && callsites_name_is_allocation(frame->function)) {
        roles |= CALLSITES_ROLE_ALLOCATION;
    }
    if (frame->function != NULL && callsites_name_is_interpreter_loop(frame->function)) {
        roles |= CALLSITES_ROLE_LOOP;
    }
    resolver->place = frame->function == NULL && frame->start != 0 ? frame->start : resolver->place;
    add_place(resolver, &key, roles);
}

/* The mark of frames that are not kept. */
static void add_cut(struct resolver *resolver, uint64_t position, bool is_python)
{
    const unsigned frames = (unsigned)(position - CALLSITE_FILE_CUT);
    char text[32] = "… frames …";
    if (frames >= 1000) {
        snprintf(text, sizeof(text), "… %u,%03u frames …", frames / 1000, frames % 1000);
    } else if (frames > 0) {
        snprintf(text, sizeof(text), frames == 1 ? "… %u frame …" : "… %u frames …", frames);
    }
    const struct symbol_key key = {.function = callsite_resolver_text_number(resolver, text), .is_python = is_python};
    add_place(resolver, &key, CALLSITES_ROLE_CUT | (is_python ? CALLSITES_ROLE_PYTHON : 0U));
}

static void resolve_outside(struct resolver *resolver, uint64_t position)
{
    struct symbol_key key = {0};
    if (position == CALLSITES_POSITION_NOT_KEPT) {
        key.function = callsite_resolver_text_number(resolver, NOT_KEPT_FUNCTION);
        add_place(resolver, &key, CALLSITES_ROLE_CUT);
    } else if (callsite_file_is_cut(position)) {
        add_cut(resolver, position, false);
    } else {
        add_place(resolver, &key, CALLSITES_ROLE_UNNAMED);
    }
}

static void resolve_native(struct resolver *resolver, const struct callsites_frame *frame)
{
    static const struct symbols_frame unknown = {0};
    struct resolver_module *module = &resolver->modules[frame->owner - 1];
    resolver->module = module;
    if (module->is_torn) {
        take_native(resolver, &unknown);
        return;
    }
    /* A return address is after the call, which may be the last instruction of its line or function. */
    int error = symbols_resolve(resolver->symbols, module->path, module->build_id, module->build_id_bytes,
                                module->image, resolver->place, take_native, resolver);
    if (error != VARVE_OK) {
        callsite_resolver_fail(resolver, error);
    }
}

static void callsite_resolver_add_python(struct resolver *resolver, const struct symbol_key *key)
{
    uint32_t roles = CALLSITES_ROLE_PYTHON;
    const char *file = callsite_resolver_text_of(resolver, key->file);
    if (file != NULL) {
        roles |= callsites_path_is_torch_python(file) || callsites_path_is_compiled(file) ? CALLSITES_ROLE_TORCH : 0U;
        roles |= callsites_path_is_storage_python(file) ? CALLSITES_ROLE_ALLOCATION : 0U;
    }
    add_place(resolver, key, roles);
}

/* Of code that torch.compile wrote: as if the model had called it. PyTorch's own stacks show it like that. */
static void add_model(struct resolver *resolver, const struct symbol_key *compiled)
{
    const char *file = callsite_resolver_text_of(resolver, compiled->file);
    struct compiled_line line;
    if (file != NULL && callsites_path_is_compiled(file) &&
        compiled_find(&resolver->compiled, file, compiled->line, &line)) {
        const struct symbol_key key = {.function = callsite_resolver_text_number(resolver, line.function),
                                       .file = callsite_resolver_text_number(resolver, line.file),
                                       .line = line.line,
                                       .is_python = 1};
        callsite_resolver_add_python(resolver, &key);
    }
}

static void resolve_python(struct resolver *resolver, const struct callsites_frame *frame)
{
    struct symbol_key key = {.is_python = 1};
    if (frame->owner == 0 && callsite_file_is_cut(frame->position)) {
        add_cut(resolver, frame->position, true);
        return;
    }
    if (frame->owner != 0) {
        key.function = resolver->codes[frame->owner - 1].first;
        key.file = resolver->codes[frame->owner - 1].second;
    }
    key.line = (uint32_t)frame->position & ~CALLSITE_FILE_PYTHON_ENTRY;
    callsite_resolver_add_python(resolver, &key);
    add_model(resolver, &key);
}

/* ---- a batch ---- */

/* Files are read as mappings: one that is cut meanwhile faults. */
static __thread sigjmp_buf *file_guard;

static void on_bus_error(int number)
{
    if (file_guard != NULL) {
        siglongjmp(*file_guard, 1);
    }
    signal(number, SIG_DFL); /* not one of ours: it comes again */
}

static void guard_install(struct resolver *resolver)
{
    struct sigaction action = {.sa_handler = on_bus_error, .sa_flags = SA_NODEFER};
    sigaction(SIGBUS, &action, &resolver->before);
}

static void resolve_next(struct resolver *resolver)
{
    const uint32_t at = resolver->order[resolver->order_at];
    const struct callsites_frame *frame = &resolver->frames[at];
    const size_t start = resolver->place_count;
    resolver->place = frame->position != 0 ? frame->position - 1 : 0;
    if (frame->is_python) {
        resolve_python(resolver, frame);
    } else if (frame->owner == 0) {
        resolve_outside(resolver, frame->position);
    } else {
        resolve_native(resolver, frame);
    }
    resolver->resolved[at] =
        (struct callsites_resolved){(uint32_t)start, (uint32_t)(resolver->place_count - start), resolver->place};
    __atomic_store_n(&resolver->done, ++resolver->order_at, __ATOMIC_RELAXED);
}

/* What was being read may hold anything by now and is left as it is; its module has no names from here on. */
static void give_module_up(struct resolver *resolver)
{
    struct symbols *fresh = NULL;
    const uint32_t owner = resolver->frames[resolver->order[resolver->order_at]].owner;
    if (symbols_open(&fresh, NULL) != VARVE_OK) {
        callsite_resolver_fail(resolver, VARVE_ERROR_NO_MEMORY);
        return;
    }
    resolver->symbols = fresh;
    resolver->modules[owner - 1].is_torn = true;
}

static void resolve_batch(struct resolver *resolver)
{
    sigjmp_buf guard;
    if (sigsetjmp(guard, 0) != 0) {
        give_module_up(resolver);
    }
    file_guard = &guard;
    while (resolver->order_at < resolver->order_count && resolver->error == VARVE_OK &&
           !__atomic_load_n(&resolver->must_end, __ATOMIC_ACQUIRE)) {
        resolve_next(resolver);
    }
    file_guard = NULL;
}

static uint32_t number_of_key(struct resolver *resolver, uint32_t key)
{
    if (!ARRAY_COVER(resolver->numbers, resolver->number_capacity, key)) {
        return 0;
    }
    if (resolver->numbers[key - 1] == 0 &&
        ARRAY_GROW(resolver->symbol_keys, resolver->symbol_capacity, (size_t)resolver->symbol_count + 1)) {
        resolver->symbol_keys[resolver->symbol_count] = key;
        resolver->numbers[key - 1] = ++resolver->symbol_count;
    }
    return resolver->numbers[key - 1];
}

/* Keys become symbols, numbered as the frames are. */
static void number_batch(struct resolver *resolver)
{
    for (size_t i = 0; i < resolver->frame_count; i++) {
        const struct callsites_resolved *resolved = &resolver->resolved[i];
        for (uint32_t k = 0; k < resolved->count; k++) {
            struct callsites_line_symbol *place = &resolver->places[resolved->start + k];
            place->symbol = number_of_key(resolver, place->symbol);
            if (place->symbol == 0) {
                callsite_resolver_fail(resolver, VARVE_ERROR_NO_MEMORY);
                return;
            }
        }
    }
}

static void run_batch(struct resolver *resolver)
{
    resolve_batch(resolver);
    if (resolver->order_at == resolver->order_count && resolver->error == VARVE_OK) {
        number_batch(resolver);
        resolver->is_numbered = true;
    }
    resolver->ended_ns = monotonic_ns();
    __atomic_store_n(&resolver->state, STATE_DONE, __ATOMIC_RELEASE);
}

/* ---- the thread ---- */

static void *run_beside(void *context)
{
    struct resolver *resolver = context;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), 10); /* on Linux, of this thread alone */
    while (!__atomic_load_n(&resolver->must_end, __ATOMIC_ACQUIRE)) {
        if (sem_wait(&resolver->work) == 0 && __atomic_load_n(&resolver->state, __ATOMIC_ACQUIRE) == STATE_BUSY) {
            run_batch(resolver);
        }
    }
    return NULL;
}

static void *run_at_once(void *context)
{
    run_batch(context);
    return NULL;
}

static bool begin_thread(struct resolver *resolver, void *(*run)(void *context))
{
    resolver->has_thread = thread_start(&resolver->thread, run, resolver) == 0;
    return resolver->has_thread;
}

static void end_thread(struct resolver *resolver)
{
    if (!resolver->has_thread) {
        return;
    }
    __atomic_store_n(&resolver->must_end, true, __ATOMIC_RELEASE);
    sem_post(&resolver->work);
    pthread_join(resolver->thread, NULL);
    resolver->has_thread = false;
}

/* ---- what the thread gets ---- */

static bool callsite_resolver_add_module(struct resolver *resolver, const struct callsites *callsites,
                                         const struct pair *pair)
{
    struct resolver_module module = {.path = strdup(callsites_text(&callsites->texts, pair->first, NULL))};
    const char *build_id = callsites_text(&callsites->texts, pair->second, &module.build_id_bytes);
    if (module.path == NULL || !ARRAY_GROW(resolver->modules, resolver->module_capacity, resolver->module_count + 1)) {
        free(module.path);
        return false;
    }
    if (module.build_id_bytes > sizeof(module.build_id)) {
        module.build_id_bytes = 0; /* the reader takes none that is longer */
    }
    memcpy(module.build_id, build_id, module.build_id_bytes);
    module.text = callsite_resolver_text_number(resolver, module.path);
    module.roles =
        (callsites_path_is_interpreter(module.path) ? CALLSITES_ROLE_INTERPRETER : 0U) |
        (callsites_path_is_recorder(module.path) ? CALLSITES_ROLE_RECORDER : 0U) |
        (callsites_path_is_driver(module.path) || callsites_path_is_storage(module.path) ? CALLSITES_ROLE_ALLOCATION
                                                                                         : 0U) |
        (callsites_path_is_torch(module.path) ? CALLSITES_ROLE_TORCH : 0U);
    resolver->modules[resolver->module_count++] = module;
    return true;
}

static bool add_owners(struct resolver *resolver, const struct callsites *callsites)
{
    while (resolver->module_count < callsites->modules.count) {
        if (!callsite_resolver_add_module(resolver, callsites, &callsites->modules.pairs[resolver->module_count])) {
            return false;
        }
    }
    for (size_t i = 0; i < resolver->module_count && i < callsites->image_capacity; i++) {
        resolver->modules[i].image = callsites->image_of[i]; /* may have been found later */
    }
    if (!ARRAY_GROW(resolver->codes, resolver->code_capacity, (size_t)callsites->codes.count + 1)) {
        return false;
    }
    while (resolver->code_count < callsites->codes.count) {
        const struct pair *code = &callsites->codes.pairs[resolver->code_count];
        resolver->codes[resolver->code_count++] = (struct pair){
            callsite_resolver_text_number(resolver, callsites_text(&callsites->texts, code->first, NULL)),
            callsite_resolver_text_number(resolver, callsites_text(&callsites->texts, code->second, NULL))};
    }
    return resolver->error == VARVE_OK;
}

/* Python last; else by module and address. */
static int compare_frames(const void *left, const void *right, void *context)
{
    const struct callsites_frame *frames = context;
    const struct callsites_frame *a = &frames[*(const uint32_t *)left], *b = &frames[*(const uint32_t *)right];
    if (a->is_python != b->is_python) {
        return a->is_python < b->is_python ? -1 : 1;
    }
    if (a->owner != b->owner) {
        return a->owner < b->owner ? -1 : 1;
    }
    return a->position < b->position ? -1 : a->position > b->position;
}

/* Frames that are new join the batch, of which some may be resolved already. */
static int batch_extend(struct resolver *resolver, const struct callsites *callsites)
{
    const struct callsites_frame *all = callsites->frames.bytes;
    const size_t before = resolver->frame_count;
    const size_t count = callsites->frames.count - resolver->taken;
    const size_t left = resolver->order_count - resolver->order_at;
    if (!add_owners(resolver, callsites) || !ARRAY_GROW(resolver->frames, resolver->frame_capacity, count + 1) ||
        !ARRAY_GROW(resolver->resolved, resolver->resolved_capacity, count + 1) ||
        !ARRAY_GROW(resolver->order, resolver->order_capacity, resolver->order_count + count - before + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (count > before) {
        memcpy(&resolver->frames[before], &all[resolver->taken + before], (count - before) * sizeof(*resolver->frames));
    }
    memmove(resolver->order, resolver->order + resolver->order_at, left * sizeof(*resolver->order));
    for (size_t i = before; i < count; i++) {
        resolver->order[left + i - before] = (uint32_t)i;
    }
    resolver->frame_count = count;
    resolver->order_count = left + count - before;
    resolver->order_at = 0;
    __atomic_store_n(&resolver->done, 0, __ATOMIC_RELAXED);
    qsort_r(resolver->order, resolver->order_count, sizeof(*resolver->order), compare_frames, resolver->frames);
    return VARVE_OK;
}

/* The batch that is done goes to `out`. */
static int callsite_resolver_batch_take(struct resolver *resolver, struct resolved_frames *out)
{
    const size_t base = out->symbol_count;
    if (resolver->error != VARVE_OK) {
        return resolver->error;
    }
    if (base + resolver->place_count > UINT32_MAX ||
        !ARRAY_GROW(out->frames, out->frame_capacity, out->count + resolver->frame_count + 1) ||
        !ARRAY_GROW(out->symbols, out->symbol_capacity, base + resolver->place_count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    for (size_t i = 0; i < resolver->frame_count; i++) {
        out->frames[out->count] = resolver->resolved[i];
        out->frames[out->count++].start += (uint32_t)base;
    }
    for (size_t i = 0; i < resolver->place_count; i++) {
        out->symbols[out->symbol_count++] = resolver->places[i];
    }
    resolver->taken += resolver->frame_count;
    resolver->frame_count = resolver->place_count = 0;
    resolver->order_count = resolver->order_at = 0;
    resolver->is_numbered = false;
    resolver->state = STATE_IDLE;
    return VARVE_OK;
}

/* ---- the interface ---- */

int resolver_open(struct resolver **resolver_out, struct varve_message *message)
{
    struct resolver *resolver = calloc(1, sizeof(*resolver));
    *resolver_out = NULL;
    if (resolver == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    int error = varve_plumbing_open(&resolver->plumbing);
    VARVE_THEN(error, symbols_open(&resolver->symbols, message));
    if (error != VARVE_OK) {
        varve_plumbing_close(resolver->plumbing);
        free(resolver);
        return error;
    }
    sem_init(&resolver->work, 0, 0);
    guard_install(resolver);
    *resolver_out = resolver;
    return VARVE_OK;
}

void resolver_close(struct resolver *resolver)
{
    if (resolver == NULL) {
        return;
    }
    end_thread(resolver);
    sigaction(SIGBUS, &resolver->before, NULL);
    if (resolver->symbols != NULL) {
        symbols_close(resolver->symbols);
    }
    interned_free(&resolver->texts);
    interned_free(&resolver->keys);
    varve_plumbing_close(resolver->plumbing);
    compiled_free(&resolver->compiled);
    free(resolver->ranks);
    for (size_t i = 0; i < resolver->module_count; i++) {
        free(resolver->modules[i].path);
    }
    free(resolver->modules);
    free(resolver->codes);
    free(resolver->numbers);
    free(resolver->symbol_keys);
    free(resolver->frames);
    free(resolver->resolved);
    free(resolver->places);
    free(resolver->order);
    sem_destroy(&resolver->work);
    free(resolver);
}

static bool callsite_resolver_is_due(const struct resolver *resolver, uint64_t frames)
{
    const uint64_t now_ns = monotonic_ns();
    const uint64_t took_ns = resolver->ended_ns - resolver->began_ns;
    return frames > 0 && now_ns - resolver->ended_ns >= REST * took_ns &&
           (frames >= FRAMES_MIN || now_ns - resolver->ended_ns >= WAIT_MAX_NS);
}

int resolver_step(struct resolver *resolver, const struct callsites *callsites, struct resolved_frames *resolved)
{
    int error = VARVE_OK;
    switch (__atomic_load_n(&resolver->state, __ATOMIC_ACQUIRE)) {
    case STATE_DONE:
        return callsite_resolver_batch_take(resolver, resolved);
    case STATE_IDLE:
        if (resolver->ended_ns == 0) {
            resolver->began_ns = resolver->ended_ns = monotonic_ns();
        }
        if (resolver->is_alone || !callsite_resolver_is_due(resolver, callsites->frames.count - resolver->taken)) {
            return VARVE_OK;
        }
        resolver->is_alone = !resolver->has_thread && !begin_thread(resolver, run_beside);
        if (resolver->is_alone) {
            return VARVE_OK;
        }
        error = batch_extend(resolver, callsites);
        if (error == VARVE_OK) {
            resolver->began_ns = monotonic_ns();
            __atomic_store_n(&resolver->state, STATE_BUSY, __ATOMIC_RELEASE);
            sem_post(&resolver->work);
        }
        return error;
    default:
        return VARVE_OK;
    }
}

int resolver_hurry(struct resolver *resolver, const struct callsites *callsites, struct resolved_frames *resolved)
{
    end_thread(resolver);
    resolver->must_end = false;
    int error = resolver->is_numbered ? callsite_resolver_batch_take(resolver, resolved) : resolver->error;
    VARVE_THEN(error, batch_extend(resolver, callsites));
    if (error == VARVE_OK && !begin_thread(resolver, run_at_once)) {
        run_batch(resolver);
    }
    return error;
}

int resolver_wait(struct resolver *resolver, struct resolved_frames *resolved, store_progress progress, void *context)
{
    while (resolver->has_thread) {
        resolver->has_thread = !thread_join_within(resolver->thread, PROGRESS_EVERY_NS);
        if (progress != NULL) {
            progress(context, "symbols", __atomic_load_n(&resolver->done, __ATOMIC_RELAXED), resolver->order_count);
        }
    }
    if (resolver->symbols == NULL) {
        return resolver->error; /* it was waited for before */
    }
    symbols_close(resolver->symbols);
    resolver->symbols = NULL;
    malloc_trim(0); /* the thread's memory would be of no use to those who need some now */
    return callsite_resolver_batch_take(resolver, resolved);
}

bool resolver_rests(const struct resolver *resolver)
{
    return __atomic_load_n(&resolver->state, __ATOMIC_ACQUIRE) != STATE_BUSY;
}

uint32_t resolver_symbol_count(const struct resolver *resolver)
{
    return resolver->symbol_count;
}

void resolver_symbol(const struct resolver *resolver, uint32_t number, struct store_symbol *symbol_out)
{
    const uint32_t key = resolver->symbol_keys[number - 1];
    const struct varve_writer_symbol symbol =
        callsite_resolver_symbol_of(resolver, (const struct symbol_key *)resolver->keys.bytes + (key - 1));
    *symbol_out = (struct store_symbol){.function = symbol.function,
                                        .file = symbol.file,
                                        .module = symbol.module,
                                        .line = symbol.line,
                                        .rank = resolver->ranks[key - 1],
                                        .is_python = symbol.is_python,
                                        .is_inlined = symbol.is_inlined};
}
