/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the stack at a hook to a 32-bit call-site number. A stack seen before costs the walk, a hash and one
 * lookup without a lock; a new one is described, written to the call-site file and only then made visible.
 * It runs inside malloc, under any lock of the program or of the loader, in signal handlers and in fork
 * children: so its lock is taken with signals blocked, and neither the loader nor the Python interpreter is
 * called while it is held. Called by the hooks; threads: any.
 */
#include "trace/stacks/callsite_here.h"
#include "trace/guest/loaded_object.h"
#include "trace/guest/guest_lock.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/own_stack.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/guest/stack_ends.h"
#include "trace/guest/stack_hash.h"
#include "trace/stacks/callsite_writer.h"
#include "trace/stacks/native_stack.h"
#include "trace/stacks/python_frame.h"
#include "trace/stacks/python_stack.h"
#include "base/error.h"
#include "trace/format/callsite_format.h"
#include "trace/format/session_format.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define COLD __attribute__((noinline, cold))
#define NAME_BYTES 256U
#define FILE_NAME_BYTES 1024U
#define MODULES_NOTED 8U

/* Their table takes 64 MiB then. */
#define CALLSITES_MAX (3U << 20)

#define CAPTURE_INHERITS 0x100U /* beside enum session_stacks: inherit a published parent stack */

enum attached_state { NOT_ATTACHED = 0, ATTACHED, DETACHED };

/* A stack that is not in the table. */
struct note {
    struct stack *stack;
    struct stack_hash hash;
    struct stack_hash python; /* of its Python frames */
    bool again;               /* it must be captured anew, with what is loaded now */
    uint32_t callsite;
};

/* What a thread remembers of the last new stack that it had. */
struct noted {
    struct note now;     /* here, since the program's stack may be small */
    uint32_t epoch;      /* of the call sites; what is of another one is of no use, nor what is of another: */
    unsigned generation; /* of the loaded objects */
    struct stack_path paths[STACK_KINDS];
    struct loaded_object modules[MODULES_NOTED]; /* in the file, each where its address says */
};

/* What a capture keeps in the scratch of its thread. */
struct scratch {
    uint64_t pcs[STACK_ENDS];
    struct python_frame python[STACK_ENDS];
    struct noted noted;
};

/* One stack, as it was captured. */
struct stack {
    const struct callsite_start *start;
    struct scratch *own; /* its frames */
    unsigned native_count;
    unsigned python_count;
    unsigned generation; /* of the loaded objects, before the walk */
    bool is_begun;       /* its native frames are there */
    bool has_frames;     /* those of Python too, else only their hash is known */
};

static_assert(sizeof(struct scratch) <= sizeof(struct recorder_scratch), "fits the thread's scratch");
static_assert(SESSION_STACK_DEPTH_MAX + STACK_OUTSIDE == CALLSITE_FILE_DEPTH_MAX, "the mark, and less than a step");
static_assert(SESSION_STACK_DEPTH_MAX / 4 == STACK_OUTSIDE && CALLSITE_FILE_DEPTH_MAX == STACK_INSIDE, "both ends fit");
static_assert((STACK_NUMBERS - 1) * STACK_OUTSIDE <= CALLSITE_FILE_CUT_FRAMES_MAX, "each figure has a mark");

/*
 * In a page of its own that reads as zeros in a fork child: a child that has not attached must not use the
 * tables and the file of its parent. Written by callsite_attach only.
 */
struct attachment {
    uint32_t state; /* enum attached_state */
    uint32_t stacks;
    uint32_t depth;
};

static struct attachment *attachment;
static void (*attach_process)(void); /* atomic; NULL: there is no session */

/*
 * The call sites of this process image. What is not atomic is guarded by `lock`, see lock_enter. What a capture of a
 * known stack reads lies in other cache lines than what a new one writes.
 */
static struct {
    _Alignas(CACHE_LINE_BYTES) unsigned generation; /* grows when an object was replaced or unloaded: part of hashes */
    uint32_t epoch;                                 /* grows where all of it is forgotten; not 0 once there is any */
    bool modules_changed;
    bool is_full; /* no new stack is kept */
    uint32_t limit;
    struct callsite_table callsites;
    struct callsite_table codes; /* Python code objects */
    struct callsite_table lines; /* positions in these: their line + 1 */
    _Alignas(CACHE_LINE_BYTES) uint32_t lock;
    uint32_t callsite_count;
    uint32_t code_count;
    struct stack_tree tree;
} callsites = {.limit = CALLSITES_MAX};

static inline bool callsite_here_is_attached(void)
{
    return __builtin_expect(attachment != NULL, 1) && __atomic_load_n(&attachment->state, __ATOMIC_ACQUIRE) == ATTACHED;
}

/* Signals are blocked: no handler of this thread can wait for the lock, and nothing cancels its owner. */
static void lock_enter(void)
{
    assert(recorder_reentrant_depth > 0);
    recorder_lock(&callsites.lock);
}

static void lock_leave(void)
{
    recorder_unlock(&callsites.lock);
}

/* With room in the file for what is appended under one lock, if there is any to be had. */
static void lock_enter_to_append(void)
{
    lock_enter();
    struct callsite_window window;
    while (callsite_window_is_wanted(&window)) {
        lock_leave();
        callsite_window_open(&window);
        lock_enter();
        callsite_window_install(&window);
        lock_leave();
        callsite_window_unmap(&window);
        lock_enter();
    }
}

/* ---- hashing ---- */

/* `python` is the hash of the Python frames, whichever way it was found. */
static inline struct stack_hash hash_stack(const struct stack *stack, struct stack_hash python)
{
    const uint64_t sizes = (uint64_t)stack->generation << 32 | stack->native_count << 16 | stack->python_count;
    struct stack_hash hash = {sizes ^ UINT64_C(0x1d8e4e27c47d124f), sizes ^ UINT64_C(0xeb44accab455d165)};
    stack_hash_words(&hash, stack->own->pcs, stack->native_count);
    if (stack->python_count > 0) {
        hash.low = stack_hash_mix(hash.low ^ UINT64_C(0xa0761d6478bd642f), python.low);
        hash.high = stack_hash_mix(hash.high ^ UINT64_C(0xe7037ed1a0b428db), python.high);
    }
    hash.low += hash.low == 0; /* 0 marks empty entries */
    return hash;
}

static struct stack_hash hash_code(const struct python_frame *frame)
{
    const uint64_t words[] = {(uintptr_t)frame->code, (uintptr_t)frame->name, (uintptr_t)frame->filename,
                              frame->first_line};
    struct stack_hash hash = {UINT64_C(0x1d8e4e27c47d124f), UINT64_C(0xeb44accab455d165)};
    stack_hash_words(&hash, words, 4);
    hash.low += hash.low == 0;
    return hash;
}

/* Of a frame whose code object has this hash. */
static struct stack_hash hash_position(struct stack_hash code, const struct python_frame *frame)
{
    const uint64_t instruction = frame->instruction;
    stack_hash_words(&code, &instruction, 1);
    code.low += code.low == 0;
    return code;
}

/* ---- loaded objects ---- */

static COLD void modules_replaced(void)
{
    native_stack_forget();
    __atomic_fetch_add(&callsites.generation, 1, __ATOMIC_ACQ_REL);
}

static void modules_check_now(void *unused)
{
    (void)unused;
    if (callsite_here_is_attached() && __atomic_exchange_n(&callsites.modules_changed, false, __ATOMIC_ACQ_REL)) {
        loaded_object_forget();
        lock_enter_to_append();
        bool replaced = modules_scan() > 0;
        lock_leave();
        if (replaced) {
            modules_replaced();
        }
    }
}

/* `function` where there is room for it; false: nowhere. */
static COLD bool callsite_here_run_aside(void (*function)(void *argument), void *argument)
{
    const int saved_errno = errno;
    struct recorder_signals signals;
    recorder_reentrant_begin(&signals);
    bool is_done = recorder_on_stack(function, argument);
    recorder_reentrant_end(&signals);
    errno = saved_errno;
    return is_done;
}

/* After dlclose: were objects unloaded that call sites name? */
static COLD void modules_check(void)
{
    (void)callsite_here_run_aside(modules_check_now, NULL);
}

/* Writes the object to the file if need be. False if it replaced another one. */
static bool module_note(struct noted *noted, const struct loaded_object *object)
{
    struct loaded_object *recent = &noted->modules[(object->start >> 12) % MODULES_NOTED];
    if (loaded_object_equal(recent, object)) {
        return true;
    }
    lock_enter();
    enum module_state state = module_lookup(object);
    lock_leave();
    if (state == MODULE_KNOWN) {
        *recent = *object;
        return true;
    }
    struct module_description module;
    module_describe(object, &module);
    lock_enter_to_append();
    state = module_lookup(object);
    if (state != MODULE_KNOWN) {
        (void)module_write(&module); /* without it the frames keep their addresses; the next site tries again */
    }
    lock_leave();
    if (memmem(module.path, module.path_bytes, "libpython", strlen("libpython")) != NULL) {
        python_stack_modules_changed(); /* an interpreter that was loaded late */
    }
    return state != MODULE_CHANGED;
}

/* Of the inner frames, `count` of them: outer ones of a stack that was noted before are known. */
static bool stack_note_modules(const struct stack *stack, unsigned count)
{
    struct loaded_object object = {0};
    bool same = true;
    for (unsigned i = 0; i < count; i++) {
        const uintptr_t call = (uintptr_t)stack->own->pcs[i] - 1;
        if (!callsite_file_is_cut(stack->own->pcs[i]) && (call < object.start || call >= object.end) &&
            loaded_object_find(call, &object)) {
            same = module_note(&stack->own->noted, &object) && same;
        }
    }
    return same;
}

/* ---- Python code ---- */

static void line_keep(struct stack_hash hash, uint32_t line)
{
    if (callsite_table_find(&callsites.lines, hash) == 0 && callsite_table_reserve(&callsites.lines) == VARVE_OK) {
        callsite_table_insert(&callsites.lines, hash, line + 1);
    }
}

/* Number of the frame's code object, which is written if it is new; 0 if it cannot be described. */
static COLD uint32_t code_describe(const struct python_frame *frame, struct stack_hash hash, struct stack_hash position,
                                   uint32_t *line)
{
    struct callsite_file_code entry = {.first_line = frame->first_line};
    char name[NAME_BYTES];
    char file[FILE_NAME_BYTES];
    if (!python_stack_describe(frame, name, sizeof(name), file, sizeof(file), line)) {
        *line = 0;
        return 0;
    }
    lock_enter_to_append();
    uint32_t code = callsite_table_find(&callsites.codes, hash);
    if (code == 0 && callsites.code_count < CALLSITE_FILE_NUMBER_MAX &&
        callsite_table_reserve(&callsites.codes) == VARVE_OK) {
        entry.code = callsites.code_count + 1;
        entry.name_bytes = (uint16_t)strnlen(name, sizeof(name));
        entry.file_bytes = (uint16_t)strnlen(file, sizeof(file));
        struct callsite_part parts[] = {{&entry, sizeof(entry)}, {name, entry.name_bytes}, {file, entry.file_bytes}};

        if (callsite_file_append(CALLSITE_FILE_TAG_CODE, parts, 3) == VARVE_OK) {
            code = ++callsites.code_count;
            callsite_table_insert(&callsites.codes, hash, code);
        }
    }
    line_keep(position, *line);
    lock_leave();
    return code;
}

/* The same; most frames of a new stack are known. */
static uint32_t code_note(const struct python_frame *frame, uint32_t *line)
{
    const struct stack_hash hash = hash_code(frame), position = hash_position(hash, frame);
    const uint32_t code = callsite_table_find(&callsites.codes, hash);
    const uint32_t known = callsite_table_find(&callsites.lines, position);
    *line = known - 1;
    return code != 0 && known != 0 ? code : code_describe(frame, hash, position, line);
}

/* The inner frames, `count` of them, as the file holds them. */
static void stack_note_code(const struct stack *stack, uint64_t *words, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const struct python_frame *frame = &stack->own->python[i];
        struct callsite_file_python described = {.line = CALLSITE_FILE_CUT + frame->instruction};
        if (frame->code != NULL) {
            described.code = code_note(frame, &described.line);
            described.line &= ~CALLSITE_FILE_PYTHON_ENTRY;
            described.line |= frame->is_entry ? CALLSITE_FILE_PYTHON_ENTRY : 0;
        }
        memcpy(&words[i], &described, sizeof(described));
    }
}

/* ---- what is new of a stack ---- */

/* The inner frames of a new stack, innermost first, which the last one of its thread does not have. */
struct unknown {
    unsigned python_count;
    uint64_t keys[CALLSITE_FILE_DEPTH_MAX]; /* of the Python frames */
    uint64_t words[CALLSITE_FILE_DEPTH_MAX];
};

static void noted_begin(struct noted *noted, unsigned generation)
{
    if (noted->epoch != callsites.epoch || noted->generation != generation) {
        noted->epoch = callsites.epoch;
        noted->generation = generation;
        noted->paths[STACK_NATIVE].count = noted->paths[STACK_PYTHON].count = 0;
        memset(noted->modules, 0, sizeof(noted->modules));
    }
}

/* From the outermost frame inwards: nearly all are shared. */
static unsigned native_shared(const struct stack_path *path, const uint64_t *pcs, unsigned count)
{
    const unsigned most = path->count < count ? path->count : count;
    const uint64_t *keys = path->keys;
    unsigned shared = 0;
    for (const uint64_t *at = pcs + count - 4; shared + 4 <= most; shared += 4, at -= 4) {
        if (((keys[shared] ^ at[3]) | (keys[shared + 1] ^ at[2]) | (keys[shared + 2] ^ at[1]) |
             (keys[shared + 3] ^ at[0])) != 0) {
            break;
        }
    }
    while (shared < most && keys[shared] == pcs[count - 1 - shared]) {
        shared++;
    }
    return shared;
}

/* With signals open: what this leaves to callsite_note_now is checked there. It takes the time of the system call in
 * between to fetch what the table of nodes has there. */
static void stack_compare_native(struct stack *stack)
{
    struct noted *noted = &stack->own->noted;
    noted_begin(noted, stack->generation);
    struct stack_path *path = &noted->paths[STACK_NATIVE];
    if (stack->native_count > 0) {
        path->count = native_shared(path, stack->own->pcs, stack->native_count);
        stack_tree_fetch(&callsites.tree, STACK_NATIVE, path, stack->own->pcs, stack->native_count - path->count,
                         stack->generation);
    }
}

/* From the innermost frame outwards: a key stands for all outside of its frame too. */
static unsigned captured_unknown(const struct stack_path *path, const struct stack *stack, uint64_t *keys)
{
    struct stack_hash hash = {0};
    unsigned inner = 0;
    for (unsigned i = stack->python_count; i-- > 0;) {
        python_hash_captured(&hash, &stack->own->python[i]);
        keys[i] = hash.low;
    }
    for (unsigned depth = stack->python_count; depth > 0; depth--, inner++) {
        if (depth <= path->count && path->keys[depth - 1] == keys[inner]) {
            break;
        }
    }
    return inner;
}

/* False: its Python frames must be captured. */
static bool stack_compare_python(struct stack *stack, struct stack_hash python, struct unknown *unknown)
{
    struct stack_path *path = &stack->own->noted.paths[STACK_PYTHON];
    unknown->python_count = stack->has_frames ? captured_unknown(path, stack, unknown->keys)
                                              : python_stack_inner(python, stack->python_count, path->keys, path->count,
                                                                   stack->own->python, unknown->keys);
    if (unknown->python_count == PYTHON_STACK_UNKNOWN) {
        return false;
    }
    path->count = stack->python_count - unknown->python_count;
    return true;
}

/* ---- capture ---- */

/* The nodes of a stack, written if they are new; false: there is no room. */
static bool nodes_note(const struct stack *stack, const struct unknown *unknown, struct callsite_file_site *entry)
{
    struct stack_path *paths = stack->own->noted.paths;
    if (stack->native_count > 0) {
        entry->native =
            stack_tree_put(&callsites.tree, STACK_NATIVE, &paths[STACK_NATIVE], stack->own->pcs, stack->own->pcs,
                           stack->native_count - paths[STACK_NATIVE].count, stack->generation);
    }
    if (stack->python_count > 0) {
        entry->python = stack_tree_put(&callsites.tree, STACK_PYTHON, &paths[STACK_PYTHON], unknown->keys,
                                       unknown->words, unknown->python_count, stack->generation);
    }
    return (entry->native != 0 || stack->native_count == 0) && (entry->python != 0 || stack->python_count == 0);
}

/* Under the lock, all that the site refers to is written. */
static uint32_t callsite_add(const struct stack *stack, const struct unknown *unknown, struct stack_hash hash)
{
    struct callsite_file_site entry = {.callsite = callsites.callsite_count + 1};
    const struct callsite_part part = {&entry, sizeof(entry)};
    if (entry.callsite > callsites.limit || callsites.tree.count > STACK_TREE_NODES_MAX - 2 * CALLSITE_FILE_DEPTH_MAX) {
        __atomic_store_n(&callsites.is_full, true, __ATOMIC_RELAXED);
        callsite_file_lost();
        return CALLSITE_FILE_NOT_KEPT;
    }
    if (callsite_table_reserve(&callsites.callsites) != VARVE_OK || !nodes_note(stack, unknown, &entry) ||
        callsite_file_append(CALLSITE_FILE_TAG_SITE, &part, 1) != VARVE_OK) {
        callsite_file_lost();
        return 0;
    }
    callsites.callsite_count = entry.callsite;
    callsite_table_insert(&callsites.callsites, hash, entry.callsite);
    return entry.callsite;
}

static void callsite_note_now(void *argument)
{
    struct note *note = argument;
    struct stack *stack = note->stack;
    if (!callsite_here_is_attached()) {
        return; /* a signal handler forked since the capture began: these tables are the parent's */
    }
    struct unknown unknown;
    if (stack->own->noted.epoch != callsites.epoch || !stack_compare_python(stack, note->python, &unknown)) {
        note->again = true;
        return;
    }
    if (!stack_note_modules(stack, stack->native_count - stack->own->noted.paths[STACK_NATIVE].count)) {
        modules_replaced();
        note->again = true;
        return;
    }
    stack_note_code(stack, unknown.words, unknown.python_count);
    lock_enter_to_append();
    note->callsite = callsite_table_find(&callsites.callsites, note->hash);
    if (note->callsite == 0) {
        note->callsite = callsite_add(stack, &unknown, note->hash);
    }
    lock_leave();
}

/* `*callsite` of a stack that is not in the table; false: it must be captured anew. */
static COLD bool stack_note(struct stack *stack, struct stack_hash hash, struct stack_hash python, uint32_t *callsite)
{
    struct note *note = &stack->own->noted.now;
    if (__atomic_load_n(&callsites.is_full, __ATOMIC_RELAXED)) {
        callsite_file_lost();
        *callsite = CALLSITE_FILE_NOT_KEPT;
        return true;
    }
    *note = (struct note){.stack = stack, .hash = hash, .python = python};
    stack_compare_native(stack);
    (void)callsite_here_run_aside(callsite_note_now, note);
    *callsite = note->callsite;
    stack->is_begun = !note->again;
    return stack->is_begun;
}

static inline bool callsite_find(struct stack *stack, uint32_t *callsite)
{
    const struct stack_hash python = python_hash_frames(stack->own->python, stack->python_count);
    const struct stack_hash hash = hash_stack(stack, python);
    *callsite = callsite_table_find(&callsites.callsites, hash);
    return __builtin_expect(*callsite != 0, 1) || stack_note(stack, hash, python, callsite);
}

static COLD void native_cut(struct stack *stack, unsigned depth)
{
    struct stack_cut cut;
    if (stack_is_cut(stack->native_count, depth, &cut)) {
        stack->own->pcs[cut.inside] = CALLSITE_FILE_CUT + cut.left_out;
        for (unsigned i = 0; i < cut.outside; i++) {
            stack->own->pcs[cut.inside + 1 + i] = stack->own->pcs[stack_slot(cut.first_outside + i)];
        }
        stack->native_count = cut.inside + 1 + cut.outside;
    }
}

static COLD void python_cut(struct stack *stack, unsigned depth)
{
    stack->python_count = python_frames_cut(stack->own->python, stack->python_count, depth);
}

static inline void stack_begin(struct stack *stack, uint32_t stacks, unsigned depth)
{
    stack->generation = __atomic_load_n(&callsites.generation, __ATOMIC_ACQUIRE);
    stack->native_count = 0;
    stack->python_count = 0;
    stack->is_begun = true;
    stack->has_frames = false;
    if ((stacks & SESSION_STACKS_NATIVE) != 0) {
        stack->native_count = native_stack_ends(stack->start, stack->own->pcs);
        if (__builtin_expect(stack->native_count > depth, 0)) {
            native_cut(stack, depth);
        }
    }
}

/*
 * With the hash of the Python frames alone, which costs far less than the frames; of a new site those are read that its
 * thread's last one did not have. False if that is not enough: the hash is unknown, some frames are left out, or a
 * parent stack is published.
 */
static inline __attribute__((always_inline)) bool stack_lookup(struct stack *stack, uint32_t stacks, unsigned depth,
                                                               uint32_t *callsite)
{
    stack_begin(stack, stacks, depth);
    struct stack_hash python = {0};
    stack->python_count = python_stack_hash(&python, depth, stack->own->python);
    if (stack->python_count == PYTHON_STACK_UNKNOWN || ((stacks & CAPTURE_INHERITS) != 0 && parent_stack_is_lent())) {
        return false;
    }
    *callsite = 0;
    if (stack->native_count + stack->python_count == 0) {
        return true;
    }
    const struct stack_hash hash = hash_stack(stack, python);
    *callsite = callsite_table_find(&callsites.callsites, hash);
    return __builtin_expect(*callsite != 0, 1) || stack_note(stack, hash, python, callsite);
}

static inline __attribute__((always_inline)) uint32_t stack_capture(struct stack *stack, uint32_t stacks,
                                                                    unsigned depth)
{
    uint32_t callsite = 0;
    for (unsigned attempt = 0; attempt < 2; attempt++) {
        if (!stack->is_begun) {
            stack_begin(stack, stacks, depth);
        }
        stack->python_count = 0;
        stack->has_frames = true;
        if ((stacks & SESSION_STACKS_PYTHON) != 0) {
            stack->python_count = python_stack_ends(stack->own->python);
            if ((stacks & CAPTURE_INHERITS) != 0) {
                stack->python_count = parent_stack_inherit(stack->own->python, stack->python_count, STACK_INSIDE);
            }
            if (stack->python_count > depth) {
                python_cut(stack, depth);
            }
        }
        if (stack->native_count + stack->python_count == 0) {
            return 0;
        }
        if (callsite_find(stack, &callsite)) {
            break;
        }
    }
    return callsite;
}

static void attach_process_now(void *unused)
{
    void (*attach)(void) = __atomic_load_n(&attach_process, __ATOMIC_ACQUIRE);
    (void)unused;
    if (attach != NULL) {
        attach();
    }
}

void callsite_grow_by(struct session_growth *growth, const void *reserve, uint64_t offset)
{
    callsite_file_grow_by(growth, reserve, offset);
}

void callsite_attach_by(void (*attach)(void))
{
    __atomic_store_n(&attach_process, attach, __ATOMIC_RELEASE);
}

/* The first event of a fork child comes here before anything has attached it. */
static COLD bool attach_now(void)
{
    if (attachment == NULL || __atomic_load_n(&attachment->state, __ATOMIC_ACQUIRE) == NOT_ATTACHED) {
        (void)callsite_here_run_aside(attach_process_now, NULL);
    }
    return callsite_here_is_attached();
}

static inline __attribute__((always_inline)) uint32_t capture_into(void *scratch, const struct callsite_start *start,
                                                                   uint32_t how)
{
    const struct attachment *now = attachment;
    const uint32_t stacks = now->stacks | how;
    struct stack stack = {.start = start, .own = scratch};
    uint32_t callsite;
    if ((stacks & SESSION_STACKS_PYTHON) != 0 && stack_lookup(&stack, stacks, now->depth, &callsite)) {
        return callsite;
    }
    return stack_capture(&stack, stacks, now->depth);
}

struct capture {
    const struct callsite_start *start;
    uint32_t how;
    uint32_t callsite;
};

static void capture_now(void *argument)
{
    struct capture *capture = argument;
    struct scratch scratch;
    scratch.noted.epoch = 0;
    capture->callsite = capture_into(&scratch, capture->start, capture->how);
}

/* In the midst of another capture of this thread, or after the thread's end. */
static COLD uint32_t capture_aside(const struct callsite_start *start, uint32_t how)
{
    struct capture capture = {start, how, 0};
    (void)callsite_here_run_aside(capture_now, &capture);
    return capture.callsite;
}

static inline __attribute__((always_inline)) uint32_t callsite_here_capture(const struct callsite_start *start,
                                                                            uint32_t how)
{
    if (__builtin_expect(!callsite_here_is_attached(), 0) && !attach_now()) {
        return 0;
    }
    if (__builtin_expect(__atomic_load_n(&callsites.modules_changed, __ATOMIC_RELAXED), 0)) {
        modules_check();
    }
    struct recorder_scratch *scratch = recorder_scratch_acquire();

    if (__builtin_expect(scratch == NULL, 0)) {
        return capture_aside(start, how);
    }
    uint32_t callsite = capture_into(scratch, start, how);
    recorder_scratch_release(scratch);
    return callsite;
}

uint32_t callsite_capture(const struct callsite_start *start)
{
    return callsite_here_capture(start, 0);
}

uint32_t callsite_capture_inheriting(const struct callsite_start *start)
{
    return callsite_here_capture(start, CAPTURE_INHERITS);
}

void callsite_limit(uint32_t stacks)
{
    callsites.limit = stacks > 0 && stacks < CALLSITES_MAX ? stacks : CALLSITES_MAX;
}

void callsite_modules_changed(void)
{
    __atomic_store_n(&callsites.modules_changed, true, __ATOMIC_RELEASE);
}

static void callsites_forget(void)
{
    callsites.lock = 0;
    callsites.epoch++;
    callsite_table_reset(&callsites.callsites);
    callsite_table_reset(&callsites.codes);
    callsite_table_reset(&callsites.lines);
    stack_tree_reset(&callsites.tree);
    callsites.is_full = false;
    callsites.callsite_count = 0;
    callsites.code_count = 0;
    modules_forget();
}

void callsite_release(void)
{
    callsite_attach_by(NULL);
    if (attachment != NULL && __atomic_load_n(&attachment->state, __ATOMIC_ACQUIRE) != NOT_ATTACHED) {
        __atomic_store_n(&attachment->state, NOT_ATTACHED, __ATOMIC_RELEASE);
        callsites_forget();
        callsite_file_close();
    }
}

int callsite_attach(const char *callsite_file_path, unsigned stacks, unsigned depth)
{
    if (attachment == NULL) {
        attachment = recorder_map_wiped(sizeof(*attachment));
        if (attachment == NULL) {
            return VARVE_ERROR_NO_MEMORY;
        }
    }
    const bool is_again = __atomic_load_n(&attachment->state, __ATOMIC_RELAXED) != NOT_ATTACHED; /* only in tests */

    /* In a fork child no other thread exists, whatever its parent was doing. */
    callsites_forget();
    attachment->stacks = stacks & SESSION_STACKS_ALL;
    attachment->depth = depth < SESSION_STACK_DEPTH_MAX ? depth : SESSION_STACK_DEPTH_MAX;
    int error =
        attachment->stacks == 0 || depth == 0 ? VARVE_ERROR_INVALID : callsite_file_open(callsite_file_path, is_again);
    __atomic_store_n(&attachment->state, error == VARVE_OK ? ATTACHED : DETACHED, __ATOMIC_RELEASE);
    return error;
}
