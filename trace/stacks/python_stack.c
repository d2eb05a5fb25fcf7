/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python frames of the calling thread, from inside malloc: the interpreter may be making a frame,
 * collecting garbage, without the GIL, before or after its life. So nothing here allocates, changes a
 * reference count or calls more of the C API than the two functions that return a pointer; frames are read
 * as python_layout.c describes, only those of the calling thread. Called by stacks/callsite_here.c.
 */
#include "trace/stacks/python_stack.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/own_stack.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/guest/stack_ends.h"
#include "trace/guest/stack_hash.h"
#include "trace/stacks/python_frame.h"
#include "trace/stacks/python_layout.h"
#include "trace/stacks/python_pages.h"
#include "trace/stacks/python_walk.h"
#include "base/syscall.h"

#include <dlfcn.h>
#include <pthread.h>

/*
 * What makes it safe: the state is this thread's and still there (thread_state), and the layout is verified
 * on the first frames (python_verify.c). A signal handler that allocates may come while the interpreter links a
 * frame, and see stale pointers; that stack may then be wrong or short, but python_readable comes before
 * every step. The other entry, python_stack_hash, asks what python_memo.c remembers first.
 */

#define TRUST_AFTER_FRAMES 256U /* verified frames until their layout is believed */
#define LOOK_EVERY 1024U        /* captures of a thread in a process without an interpreter */
#define REFUSE_AFTER 64U        /* stacks that did not verify */

enum interpreter_phase {
    INTERPRETER_ABSENT,
    INTERPRETER_SEARCHING,
    INTERPRETER_UNVERIFIED,
    INTERPRETER_TRUSTED,
    INTERPRETER_REFUSED,
};

/*
 * What was found. Static because a process has one interpreter runtime; written by the thread that moves
 * the phase from ABSENT to SEARCHING, read by all once the phase is later than that.
 */
static struct {
    const char *version; /* its own text */
    const struct python_layout *layout;
    struct python_types types;
    /* of the thread that holds the GIL (up to 3.11) or of this one if it does */
    void *(*current_state)(void);
    void *(*own_state)(void);    /* of this thread, whether it holds the GIL or not */
    int (*is_initialized)(void); /* 0 from the beginning of Py_Finalize on */
} interpreter;

static int phase;
static int searcher; /* process id: a fork child does not wait for a thread that it has not */
static unsigned modules_generation = 1;
static unsigned searched_generation;
static struct elf_list_end searched_end; /* of the loader's list, before the last search */
static unsigned frames_verified;
static unsigned stacks_refused;

/* Of each thread its own: a count that all of them write would be what a capture costs. */
static _Thread_local __attribute__((tls_model("initial-exec"))) unsigned captures_without;

/* Reading the thread state may allocate (lazy binding, thread-local storage): that call's stack is not taken.
 */
static _Thread_local __attribute__((tls_model("initial-exec"))) bool capturing;

/* The last thread state found to be another thread's, so that it costs a system call only once. Only until this thread
 * is seen with the GIL: the state of a subinterpreter, which it may make then, may lie where that one lay. */
static _Thread_local __attribute__((tls_model("initial-exec"))) const void *other_threads_state;

void python_stack_modules_changed(void)
{
    __atomic_fetch_add(&modules_generation, 1, __ATOMIC_RELEASE);
}

/* Its library, the loader's own text: looked at where one is about to be unloaded. NULL: it stays. */
static const char *interpreter_path;

/* Its functions are called from the day that it was found, so it must stay. Opening it there and then would
 * allocate, in a hook that an allocator may have called with its locks held: time enough before a dlclose. */
void python_stack_pin_library(void)
{
    const char *path = __atomic_exchange_n(&interpreter_path, NULL, __ATOMIC_ACQ_REL);
    struct recorder_signals saved;
    if (path != NULL) {
        recorder_reentrant_begin(&saved);
        (void)dlopen(path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
        recorder_reentrant_end(&saved);
    }
}

/* ---- finding the interpreter ---- */

/* What is needed of it. */
enum python_symbol {
    SYMBOL_VERSION,
    SYMBOL_CODE,
    SYMBOL_FRAME,
    SYMBOL_UNICODE,
    SYMBOL_BYTES,
    SYMBOL_OWN_STATE,
    SYMBOL_IS_INITIALIZED,
    SYMBOL_CURRENT_STATE,
    SYMBOL_CURRENT_STATE_PRIVATE, /* up to 3.12 */
    SYMBOL_COUNT
};

static const char *const symbol_names[SYMBOL_COUNT] = {
    "Py_GetVersion",
    "PyCode_Type",
    "PyFrame_Type",
    "PyUnicode_Type",
    "PyBytes_Type",
    "PyGILState_GetThisThreadState",
    "Py_IsInitialized",
    "PyThreadState_GetUnchecked",
    "_PyThreadState_UncheckedGet",
};

static void (*report)(const char *version, const char *why); /* atomic */

void python_stack_report_by(void (*function)(const char *version, const char *why))
{
    __atomic_store_n(&report, function, __ATOMIC_RELEASE);
}

static void python_stack_tell(const char *why)
{
    void (*function)(const char *version, const char *why) = __atomic_load_n(&report, __ATOMIC_ACQUIRE);
    if (function != NULL) {
        function(interpreter.version, why);
    }
}

/* One that is linked into the program need not be visible to others: then the program's file knows, unless it was
 * stripped. */
static bool symbols_find(void **symbols)
{
    struct elf_object object = {0};
    static bool is_file_known; /* asked once */
    if (!elf_symbol_object(symbol_names[SYMBOL_VERSION], &object)) {
        const bool is_new = !__atomic_exchange_n(&is_file_known, true, __ATOMIC_ACQ_REL);
        return is_new && elf_file_symbols(".PyRuntime", symbol_names, SYMBOL_COUNT, symbols) &&
               symbols[SYMBOL_VERSION] != NULL;
    }
    interpreter_path = object.path[0] != '\0' ? object.path : NULL;
    for (unsigned i = 0; i < SYMBOL_COUNT; i++) {
        symbols[i] = elf_symbol_in(&object, symbol_names[i]);
    }
    return true;
}

static bool interpreter_find(void)
{
    void *symbols[SYMBOL_COUNT];
    const char *(*version)(void) = NULL;
    if (!symbols_find(symbols)) {
        return false;
    }
    *(void **)&version = symbols[SYMBOL_VERSION];
    interpreter.version = version();
    interpreter.layout = python_layout_find(interpreter.version);
    interpreter.types.code = symbols[SYMBOL_CODE];
    interpreter.types.frame = symbols[SYMBOL_FRAME];
    interpreter.types.unicode = symbols[SYMBOL_UNICODE];
    interpreter.types.bytes = symbols[SYMBOL_BYTES];
    *(void **)&interpreter.own_state = symbols[SYMBOL_OWN_STATE];
    *(void **)&interpreter.is_initialized = symbols[SYMBOL_IS_INITIALIZED];
    *(void **)&interpreter.current_state =
        symbols[SYMBOL_CURRENT_STATE] != NULL ? symbols[SYMBOL_CURRENT_STATE] : symbols[SYMBOL_CURRENT_STATE_PRIVATE];
    return true;
}

static bool interpreter_is_complete(void)
{
    const bool is_complete = interpreter.types.code != NULL && interpreter.types.frame != NULL &&
                             interpreter.types.unicode != NULL && interpreter.types.bytes != NULL &&
                             interpreter.current_state != NULL && interpreter.own_state != NULL &&
                             interpreter.is_initialized != NULL;
    python_stack_tell(interpreter.layout == NULL
                          ? strstr(interpreter.version, "free-threading") != NULL ? " without the GIL" : ""
                      : is_complete ? NULL
                                    : ", of which symbols are missing");
    return interpreter.layout != NULL && is_complete;
}

static void interpreter_find_now(void *argument)
{
    int *found = argument;
    if (interpreter_find()) {
        *found = interpreter_is_complete() ? INTERPRETER_UNVERIFIED : INTERPRETER_REFUSED;
    }
}

/* What needs far more of the stack than a walk, or binds symbols, which does. */
static __attribute__((noinline, cold)) void python_stack_run_aside(void (*function)(void *argument), void *argument)
{
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    (void)recorder_on_stack(function, argument);
    recorder_reentrant_end(&saved);
}

/* Apart from its caller, which each capture without an interpreter comes by. */
static __attribute__((noinline, cold)) int interpreter_search_now(unsigned generation)
{
    int expected = INTERPRETER_ABSENT;
    if (!__atomic_compare_exchange_n(&phase, &expected, INTERPRETER_SEARCHING, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST)) {
        return expected;
    }
    __atomic_store_n(&searcher, recorder_sys_getpid(), __ATOMIC_SEQ_CST);
    int found = INTERPRETER_ABSENT;
    elf_list_end_note(&searched_end);
    python_stack_run_aside(interpreter_find_now, &found);
    __atomic_store_n(&searched_generation, generation, __ATOMIC_RELAXED);
    __atomic_store_n(&phase, found, __ATOMIC_RELEASE);
    return found;
}

/* Looks once for each set of loaded objects that callsite_here.c reports, and now and then whether the loader's list
 * has got longer: what is loaded by dlopen shows in native stacks only. Returns the phase afterwards. */
static int interpreter_search(void)
{
    unsigned generation = __atomic_load_n(&modules_generation, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&searched_generation, __ATOMIC_RELAXED) == generation &&
        (++captures_without % LOOK_EVERY != 0 || elf_list_end_is(&searched_end))) {
        return INTERPRETER_ABSENT;
    }
    return interpreter_search_now(generation);
}

static int interpreter_phase_now(void)
{
    int now = __atomic_load_n(&phase, __ATOMIC_ACQUIRE);
    if (now == INTERPRETER_SEARCHING && __atomic_load_n(&searcher, __ATOMIC_SEQ_CST) != recorder_sys_getpid()) {
        __atomic_compare_exchange_n(&phase, &now, INTERPRETER_ABSENT, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        now = INTERPRETER_ABSENT;
    }
    return now == INTERPRETER_ABSENT ? interpreter_search() : now;
}

/* ---- whose frames ---- */

/* Up to 3.11 the current state is one variable of the process. Another one than this thread's first may still
 * be ours, that of a subinterpreter; if it is not, or if that interpreter is being deleted, it may be gone,
 * hence the careful read. */
static bool is_of_this_thread(const char *state)
{
    if (state == other_threads_state) {
        return false;
    }
    pthread_t thread;
    if (!recorder_read_memory(&thread, (uintptr_t)state + interpreter.layout->state_thread, sizeof(thread)) ||
        thread != pthread_self()) {
        other_threads_state = state;
        return false;
    }
    return true;
}

/*
 * The thread state of this thread, NULL if it has none: the current one if that is ours, else the one that
 * waits for the GIL, which stays until this thread ends or the interpreter does. `*top` is what it knows of
 * its frames.
 */
static const char *thread_state(const char **top)
{
    const struct python_layout *layout = interpreter.layout;
    const char *state = interpreter.current_state();
    if (state == NULL || !layout->state_per_thread) {
        const char *own = interpreter.own_state();
        if (state == NULL || (state != own && (own == NULL || !is_of_this_thread(state)))) {
            state = own != NULL && interpreter.is_initialized() ? own : NULL;
        } else {
            other_threads_state = NULL;
        }
    }
    if (state != NULL) {
        *top = python_pointer(state, layout->state_frame);
    }
    return state;
}

/* ---- walking ---- */

/* The innermost `max` frames, or both ends of all: python_stack_ends. */
static unsigned walk_frames(const char *at, struct python_frame *frames, unsigned max, bool goes_on)
{
    struct python_walk walk;
    struct python_frame frame;
    unsigned count = 0;
    python_walk_begin(&walk, interpreter.layout, interpreter.types.code, at);
    while ((goes_on || count < max) && python_walk_next(&walk, &frame)) {
        frames[goes_on ? stack_slot(count) : count] = frame;
        count++;
    }
    return goes_on && walk.is_ring ? STACK_UNENDED : count;
}

/* True if the stack below `state` may be walked: the layout is trusted, or this very stack is verified. */
static bool stack_is_safe(const char *state, int now)
{
    if (now == INTERPRETER_TRUSTED) {
        return true;
    }
    unsigned looked_at = 0;
    switch (python_verify_stack(interpreter.layout, &interpreter.types, state, &looked_at)) {
    case PYTHON_VERDICT_NO_FRAMES:
        return false;
    case PYTHON_VERDICT_BAD:
        if (__atomic_fetch_add(&stacks_refused, 1, __ATOMIC_RELAXED) + 1 == REFUSE_AFTER &&
            __atomic_compare_exchange_n(&phase, &now, INTERPRETER_REFUSED, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            python_stack_tell(", whose frames are not where they are expected");
        }
        return false;
    case PYTHON_VERDICT_GOOD:
        break;
    }
    unsigned before = __atomic_fetch_add(&frames_verified, looked_at, __ATOMIC_RELAXED);
    if (before + looked_at >= TRUST_AFTER_FRAMES) {
        __atomic_compare_exchange_n(&phase, &now, INTERPRETER_TRUSTED, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    return true;
}

/* The innermost frame of this thread, NULL if it has none. */
static const char *stack_top(int now)
{
    const struct python_layout *layout = interpreter.layout;
    const char *at = NULL;
    const char *state = thread_state(&at);
    if (state == NULL || !stack_is_safe(state, now)) {
        return NULL;
    }
    if (layout->has_cframe) {
        at = python_readable(at, 16) ? python_pointer(at, layout->cframe_frame) : NULL;
    }
    return at;
}

struct capture {
    struct python_frame *frames;
    unsigned max;
    bool goes_on;
    unsigned count;
};

static void capture_unverified(void *argument)
{
    struct capture *capture = argument;
    capture->count = walk_frames(stack_top(INTERPRETER_UNVERIFIED), capture->frames, capture->max, capture->goes_on);
}

static unsigned capture_trusted(const struct capture *capture)
{
    const char *at = stack_top(INTERPRETER_TRUSTED);
    unsigned count = PYTHON_STACK_UNKNOWN;
    if (capture->goes_on) {
        count = python_memo_ends(interpreter.layout, interpreter.types.code, at, capture->frames);
    }
    return count != PYTHON_STACK_UNKNOWN ? count : walk_frames(at, capture->frames, capture->max, capture->goes_on);
}

static void capture_begun(struct capture *capture)
{
    capturing = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    int now = interpreter_phase_now();
    if (now == INTERPRETER_TRUSTED) {
        capture->count = capture_trusted(capture);
    } else if (now == INTERPRETER_UNVERIFIED) {
        python_stack_run_aside(capture_unverified, capture);
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    capturing = false;
}

unsigned python_stack_capture(struct python_frame *frames, unsigned max)
{
    struct capture capture = {frames, max, false, 0};
    if (!capturing && max > 0) {
        capture_begun(&capture);
    }
    return capture.count;
}

unsigned python_stack_ends(struct python_frame *frames)
{
    struct capture capture = {frames, STACK_INSIDE, true, 0};
    if (!capturing) {
        capture_begun(&capture);
    }
    return capture.count;
}

unsigned python_stack_hash(struct stack_hash *hash, unsigned depth, struct python_frame *frames)
{
    if (capturing || depth == 0) {
        return 0;
    }
    capturing = true;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    int now = interpreter_phase_now();
    unsigned count = 0;
    if (now == INTERPRETER_UNVERIFIED) {
        count = PYTHON_STACK_UNKNOWN;
    } else if (now == INTERPRETER_TRUSTED) {
        const char *at = stack_top(now);
        if (at != NULL) {
            count = python_memo_hash(interpreter.layout, interpreter.types.code, at, depth, frames, hash);
        }
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    capturing = false;
    return count;
}

unsigned python_stack_inner(struct stack_hash hash, unsigned count, const uint64_t *outer, unsigned outer_count,
                            struct python_frame *frames, uint64_t *hashes)
{
    return python_memo_inner(interpreter.layout, hash, count, outer, outer_count, frames, hashes);
}

/* ---- names and lines ---- */

bool python_stack_describe(const struct python_frame *frame, char *name, size_t name_bytes, char *file,
                           size_t file_bytes, uint32_t *line)
{
    const struct python_layout *layout = interpreter.layout;
    const char *code = frame->code;
    *line = 0;
    if (layout == NULL || !python_readable(code, layout->code_bytes) ||
        python_pointer(code, PYTHON_OB_TYPE) != interpreter.types.code ||
        !python_text_copy(layout, &interpreter.types, frame->name, name, name_bytes) ||
        !python_text_copy(layout, &interpreter.types, frame->filename, file, file_bytes)) {
        return false;
    }
    const char *table = python_pointer(code, layout->code_lines);
    if (!python_readable(table, PYTHON_BYTES_DATA) ||
        python_pointer(table, PYTHON_OB_TYPE) != interpreter.types.bytes) {
        return false;
    }
    int64_t table_bytes = python_size(table, PYTHON_OB_SIZE);
    if (table_bytes < 0 || table_bytes > PYTHON_LENGTH_MAX ||
        !python_memory_probe(table, PYTHON_BYTES_DATA + (size_t)table_bytes)) {
        return false;
    }
    *line = python_line_find(layout->lines, (const uint8_t *)table + PYTHON_BYTES_DATA, (size_t)table_bytes,
                             (int32_t)frame->first_line, (int32_t)frame->instruction);
    return true;
}
