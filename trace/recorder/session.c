/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session that the environment names, and this process image in it. Attaching happens at the first event
 * and not before: a process that never allocates leaves no file behind. The state of the process lies in a
 * page that the kernel wipes in fork children, so a child, also one of a bare clone(2), finds itself
 * unattached whatever its parent was doing at that moment, locks included.
 */
#include "trace/recorder/session.h"
#include "trace/recorder/ring.h"
#include "trace/guest/guest_clock.h"
#include "trace/guest/confinement.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/guest_lock.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/stacks/callsite_here.h"
#include "trace/stacks/python_stack.h"
#include "base/syscall.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096U
#define ENVIRONMENT_BYTES 65536U
#define WIPED_BYTES 4096U
#define COLLECTOR_GONE_NS UINT64_C(3000000000) /* without a heartbeat */

/* What the environment names: found once, then only read, inherited by fork children. */
struct found_session {
    const struct session_control *control;
    struct session_counts *counts;
    struct recorder_process *process;
    unsigned confined; /* enum recorder_confine: from the start */
    int32_t rank;
    char directory[PATH_BYTES];
    char scratch[PATH_BYTES]; /* for whoever looks */
};

static_assert(sizeof(struct recorder_process) <= WIPED_BYTES, "fits its page");

/* `found` is set once, by compare-and-swap: threads that look at the same time all look, and one is first. */
static struct found_session none;
static struct found_session *found; /* NULL: nobody has looked; &none: there is no session */

bool recorder_malloc_is_unhooked;

/* As in the control page: kept over fork. */
static struct process_unhooked unhooked[UNHOOKED_MAX];
static uint32_t unhooked_count;
static uint32_t python; /* enum process_python; atomic */
static char python_text[PROCESS_PYTHON_BYTES];

/* Set by the parent's attach, kept over fork: in a child it still names the parent. */
static uint32_t last_process_id;

static struct found_session *session_found(void)
{
    return __atomic_load_n(&found, __ATOMIC_ACQUIRE);
}

/* ---- the environment ---- */

/* The C library sets `environ` up only after the loader has made its first allocations. */
static bool environment_from_proc(const char *name, char *value, size_t bytes)
{
    char *block = recorder_map(ENVIRONMENT_BYTES);
    long length = block != NULL ? recorder_read_file("/proc/self/environ", block, ENVIRONMENT_BYTES - 1) : 0;
    const char *found_value = NULL;
    for (long at = 0; at < length && found_value == NULL; at += (long)strlen(block + at) + 1) {
        char *const entries[] = {block + at, NULL};
        found_value = recorder_variable(entries, name);
    }
    if (found_value != NULL) {
        recorder_format(value, bytes, "%s", found_value);
    }
    if (block != NULL) {
        recorder_unmap(block, ENVIRONMENT_BYTES);
    }
    return found_value != NULL;
}

static bool environment(const char *name, char *value, size_t bytes)
{
    if (environ == NULL) {
        return environment_from_proc(name, value, bytes);
    }
    const char *found_value = recorder_variable(environ, name); /* getenv may be the program's own */
    if (found_value != NULL) {
        recorder_format(value, bytes, "%s", found_value);
    }
    return found_value != NULL;
}

static int32_t rank_from_environment(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    char value[16];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (environment(names[i], value, sizeof(value)) && value[0] >= '0' && value[0] <= '9') {
            return (int32_t)recorder_number(value);
        }
    }
    return -1;
}

/* ---- the session ---- */

/* A page of the session by its file's name, writable or not; NULL if it can't be had. A file that is long
 * enough is known by reading its end, which the loader does too: a program that was executed by a confined
 * one may do nothing else. A lock, which the mapping keeps, says to the collector that somebody of the
 * session lives: this process and its fork children. */
static void *session_page_open(struct found_session *looking, const char *name, size_t bytes, bool is_writable,
                               bool is_locked)
{
    recorder_format(looking->scratch, sizeof(looking->scratch), "%s/ring/%s", looking->directory, name);
    int fd = recorder_sys_open(looking->scratch, is_writable ? O_RDWR : O_RDONLY, 0);
    if (fd < 0) {
        return NULL;
    }
    void *page = NULL;
    if (recorder_sys_pread(fd, looking->scratch, 1, bytes - 1) == 1) {
        page = is_writable ? recorder_map_file(fd, bytes, false) : recorder_map_file_read(fd, bytes);
    }
    if (page != NULL && is_locked) {
        recorder_sys_lock_shared(fd);
    }
    recorder_sys_close(fd);
    return page;
}

static bool session_open(struct found_session *looking)
{
    const struct session_control *control = session_page_open(looking, "session", SESSION_CONTROL_BYTES, false, false);
    looking->control = control;
    if (control != NULL && control->magic == SESSION_MAGIC && control->version == VARVE_TRANSPORT_VERSION &&
        control->state == SESSION_STATE_RECORDING) {
        looking->confined = recorder_confine_at_start(control, looking->scratch, sizeof(looking->scratch));
        looking->counts = session_page_open(looking, "counts", SESSION_COUNTS_BYTES, true,
                                            (looking->confined & RECORDER_CONFINE_CALLS) == 0);
    }
    return looking->counts != NULL;
}

/* Of an image that is confined from its start. */
static struct recorder_process never_attached;

static void discard(struct found_session *looked)
{
    if (looked->control != NULL) {
        recorder_unmap((void *)(uintptr_t)looked->control, SESSION_CONTROL_BYTES);
    }
    if (looked->counts != NULL) {
        recorder_unmap(looked->counts, SESSION_COUNTS_BYTES);
    }
    if (looked->process != NULL && looked->process != &never_attached) {
        recorder_unmap(looked->process, WIPED_BYTES);
    }
    recorder_unmap(looked, sizeof(*looked));
}

static void attach_at_capture(void)
{
    (void)recorder_process_attach();
}

/* The session of `directory`, NULL: of the one that the environment names. NULL: there is none, or one that can't be
 * reached. */
static struct found_session *session_find_named(const char *directory)
{
    struct found_session *looking = recorder_map(sizeof(*looking));
    if (looking == NULL) {
        return NULL;
    }
    if (directory != NULL) {
        recorder_format(looking->directory, sizeof(looking->directory), "%s", directory);
    }
    if ((directory != NULL || environment(SESSION_ENVIRONMENT, looking->directory, sizeof(looking->directory))) &&
        looking->directory[0] == '/' && session_open(looking)) {
        recorder_confine_process(looking->confined);
        looking->process = recorder_is_confined() ? &never_attached : recorder_map_wiped(WIPED_BYTES);
    }
    if (looking->process == NULL) {
        discard(looking);
        return NULL;
    }
    if (looking->control->clock_kind == VARVE_CLOCK_TSC && !recorder_is_confined_in(RECORDER_CONFINE_CLOCK)) {
        varve_clock_is_tsc = 1; /* before anybody can see that there is a session */
    }
    looking->rank = rank_from_environment();
    recorder_executable(looking->scratch, sizeof(looking->scratch)); /* while it can be asked */
    callsite_attach_by(attach_at_capture);
    return looking;
}

void recorder_session_find(void)
{
    if (session_found() != NULL) {
        return;
    }
    struct found_session *looked = session_find_named(NULL);
    struct found_session *expected = NULL;
    if (!__atomic_compare_exchange_n(&found, &expected, looked != NULL ? looked : &none, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE) &&
        looked != NULL) {
        discard(looked);
    }
}

void recorder_session_forgo(void)
{
    struct found_session *expected = NULL;
    (void)__atomic_compare_exchange_n(&found, &expected, &none, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

bool recorder_session_begin(const char *directory)
{
    struct found_session *looked = session_found() == &none ? session_find_named(directory) : NULL;
    if (looked == NULL) {
        return false;
    }
    if (looked->process == &never_attached) {
        discard(looked);
        return false;
    }
    last_process_id = 0;
    __atomic_store_n(&found, looked, __ATOMIC_RELEASE);
    return true;
}

void recorder_session_end(void)
{
    struct found_session *old = session_found();
    if (old == NULL || old == &none) {
        return;
    }
    __atomic_store_n(&found, &none, __ATOMIC_RELEASE);
    if (old->process->control != NULL) {
        __atomic_store_n(&old->process->control->state, PROCESS_STATE_DETACHED, __ATOMIC_RELEASE);
        recorder_unmap(old->process->control, PROCESS_CONTROL_BYTES);
    }
    discard(old);
}

const struct session_control *recorder_session(void)
{
    if (session_found() == NULL) {
        struct recorder_signals saved;
        recorder_signals_block(&saved);
        recorder_session_find();
        recorder_signals_restore(&saved);
    }
    return session_found()->control;
}

struct session_counts *recorder_session_counts(void)
{
    return recorder_session() != NULL ? session_found()->counts : NULL;
}

const char *recorder_directory(void)
{
    return session_found()->directory;
}

bool recorder_memory_is_scarce(void)
{
    return __atomic_load_n(&recorder_session()->memory_is_scarce, __ATOMIC_RELAXED) != 0;
}

bool recorder_collector_is_gone(void)
{
    const struct session_control *session = recorder_session();
    return __atomic_load_n(&session->state, __ATOMIC_ACQUIRE) == SESSION_STATE_CLOSED ||
           varve_clock_monotonic_ns() > __atomic_load_n(&session->heartbeat_ns, __ATOMIC_ACQUIRE) + COLLECTOR_GONE_NS;
}

/* ---- this process image ---- */

/* For the time of an attach: more than may lie on the stack of a program. */
struct attaching {
    char path[PATH_BYTES];
};

/* The number in the text of the link, "pid:[4026531836]". */
static uint64_t namespace_of_process(void)
{
    char text[64];
    long length = recorder_sys_readlink("/proc/thread-self/ns/pid", text, sizeof(text) - 1);
    if (length <= 0) {
        return 0;
    }
    text[length] = '\0';
    const char *number = strchr(text, '[');
    return number != NULL ? recorder_number(number + 1) : 0;
}

/* Field 22 of /proc/self/stat; the command name before it may hold spaces and parentheses. */
static uint64_t start_ticks_of_process(void)
{
    char text[512]; /* 22 fields of at most 20 digits, and a name */
    long length = recorder_read_file("/proc/self/stat", text, sizeof(text) - 1);
    if (length <= 0) {
        return 0;
    }
    text[length] = '\0';
    char *at = strrchr(text, ')');
    for (unsigned field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL ? recorder_number(at + 1) : 0;
}

void process_identity_read(struct process_identity *identity)
{
    identity->pid = recorder_sys_getpid();
    identity->pid_namespace = namespace_of_process();
    identity->start_ticks_proc = start_ticks_of_process();
}

/* ---- libraries that are not recorded ---- */

static void unhooked_publish(struct process_control *control)
{
    const uint32_t count = __atomic_load_n(&unhooked_count, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < UNHOOKED_MAX && i < count; i++) {
        const uint32_t reason = __atomic_load_n(&unhooked[i].reason, __ATOMIC_ACQUIRE);
        memcpy(control->unhooked[i].path, unhooked[i].path, sizeof(unhooked[i].path));
        __atomic_store_n(&control->unhooked[i].reason, reason, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&control->unhooked_count, count, __ATOMIC_RELEASE);
}

void recorder_note_unhooked(const char *path, enum unhooked_reason reason)
{
    const uint32_t known = __atomic_load_n(&unhooked_count, __ATOMIC_ACQUIRE);
    const size_t bytes = strlen(path);
    const char *end = bytes < sizeof(unhooked[0].path) ? path : path + bytes + 1 - sizeof(unhooked[0].path);
    for (unsigned i = 0; i < UNHOOKED_MAX && i < known; i++) {
        if (unhooked[i].reason == reason && strcmp(unhooked[i].path, end) == 0) {
            return;
        }
    }
    const uint32_t at = __atomic_fetch_add(&unhooked_count, 1, __ATOMIC_ACQ_REL);
    if (at < UNHOOKED_MAX) {
        memcpy(unhooked[at].path, end, strlen(end) + 1);
        __atomic_store_n(&unhooked[at].reason, reason, __ATOMIC_RELEASE);
    }
    struct recorder_process *process = recorder_process_current();
    if (process != NULL) {
        unhooked_publish(process->control);
    }
}

/* ---- interpreters of Python ---- */

static void python_publish(struct process_control *control)
{
    const uint32_t state = __atomic_load_n(&python, __ATOMIC_ACQUIRE);
    memcpy(control->python_text, python_text, sizeof(python_text));
    __atomic_store_n(&control->python, state, __ATOMIC_RELEASE);
}

/* `why` NULL: its frames are read. */
static void python_found(const char *version, const char *why)
{
    char number[32] = "";
    for (unsigned i = 0; i + 1 < sizeof(number) && version[i] != ' ' && version[i] != '\0'; i++) {
        number[i] = version[i];
        number[i + 1] = '\0';
    }
    if (why != NULL) {
        recorder_format(python_text, sizeof(python_text), "Python %s%s", number, why);
    }
    __atomic_store_n(&python, why != NULL ? PROCESS_PYTHON_UNREAD : PROCESS_PYTHON_READ, __ATOMIC_RELEASE);
    struct recorder_process *process = recorder_process_current();
    if (process != NULL) {
        python_publish(process->control);
    }
}

/* ---- the control page ---- */

static void session_control_fill(struct process_control *control, uint32_t id)
{
    recorder_executable(control->executable, sizeof(control->executable));
    recorder_read_file("/proc/thread-self/cmdline", control->command_line, sizeof(control->command_line) - 2);
    struct process_identity identity;
    process_identity_read(&identity);
    control->version = VARVE_TRANSPORT_VERSION;
    control->process_id = id;
    control->parent_id = last_process_id;
    control->pid = identity.pid;
    control->pid_namespace = identity.pid_namespace;
    control->parent_pid = recorder_sys_getppid();
    control->rank = session_found()->rank;
    control->start_ticks_proc = identity.start_ticks_proc;
    control->start_ticks = varve_clock_ticks();
    control->state = PROCESS_STATE_RUNNING;
    control->malloc_is_unhooked = recorder_malloc_is_unhooked;
    unhooked_publish(control);
    python_publish(control);
    control->ring_count = 1;
    __atomic_store_n(&control->magic, PROCESS_MAGIC, __ATOMIC_RELEASE);
}

static void control_publish(struct process_control *control, uint32_t id)
{
    session_control_fill(control, id);
    __atomic_add_fetch(&session_found()->counts->process_pages, 1, __ATOMIC_ACQ_REL);
}

/* Does the mapping of a file keep the lock that was set through a descriptor, now closed? */
static bool is_locked(const char *path)
{
    int fd = recorder_sys_open(path, O_RDWR | O_NOFOLLOW, 0);
    bool is_kept = fd >= 0 && recorder_sys_is_locked(fd);
    if (fd >= 0) {
        recorder_sys_close(fd);
    }
    return is_kept;
}

/* The page of this image in `folder`, below the recording directory. 0 or -errno; -EEXIST: another thread is
 * making it. */
static long control_create_in(const char *folder, uint32_t id, struct attaching *attaching,
                              struct process_control **control_out)
{
    recorder_format(attaching->path, sizeof(attaching->path), "%s%s/p%u", recorder_directory(), folder, id);
    int fd = recorder_sys_open(attaching->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fd;
    }
    long result = recorder_file_allocate(fd, 0, PROCESS_CONTROL_BYTES);
    struct process_control *control = NULL;
    if (result == 0) {
        control = recorder_map_file(fd, PROCESS_CONTROL_BYTES, true);
    }
    if (control != NULL) {
        recorder_sys_lock_shared(fd);
    }
    recorder_sys_close(fd);
    if (control == NULL) {
        recorder_sys_unlink(attaching->path); /* for the next try */
        return result != 0 ? result : -ENOMEM;
    }
    control->is_locked = is_locked(attaching->path); /* known before the collector can see the page */
    control_publish(control, id);
    *control_out = control;
    return 0;
}

/* In the reserve, by one thread. As control_create_in. */
static long control_reserve(struct recorder_process *process, uint32_t id, struct process_control **control_out)
{
    if (__atomic_exchange_n(&process->takes_from_reserve, 1, __ATOMIC_ACQ_REL) != 0) {
        return -EEXIST;
    }
    struct process_control *control = recorder_reserve_take(RESERVE_STATE_PROCESS, id, 0, PROCESS_CONTROL_BYTES);
    if (control == NULL) {
        __atomic_store_n(&process->takes_from_reserve, 0, __ATOMIC_RELEASE);
        return -ENOMEM;
    }
    control->is_in_reserve = 1;
    control->sites.granted = RESERVE_SITES_FIRST_BYTES;
    control_publish(control, id);
    *control_out = control;
    return 0;
}

/* Beside the rings, or where these have no room in the recording directory itself, or where no file can be made in the
 * reserve. */
static long control_create(struct recorder_process *process, uint32_t id, struct process_control **control_out)
{
    struct attaching *attaching = recorder_map(sizeof(*attaching));
    long result = -ENOMEM;
    if (attaching != NULL) {
        result = control_create_in("/ring", id, attaching, control_out);
        if (result == -ENOSPC || result == -EDQUOT) {
            result = control_create_in("", id, attaching, control_out);
        }
        recorder_unmap(attaching, sizeof(*attaching));
    }
    return result == 0 || result == -EEXIST ? result : control_reserve(process, id, control_out);
}

/* The number of this image, the same for all its threads and tries; 0: not now. */
static uint32_t number_acquire(struct recorder_process *process)
{
    uint32_t id = __atomic_load_n(&process->id, __ATOMIC_ACQUIRE);
    if (id == 0 && recorder_lock_soon(&process->lock)) {
        id = process->id;
        if (id == 0) {
            id = __atomic_add_fetch(&session_found()->counts->process_count, 1, __ATOMIC_ACQ_REL);
            __atomic_store_n(&process->id, id, __ATOMIC_RELEASE);
        }
        recorder_unlock(&process->lock);
    }
    return id;
}

static uint32_t stage_of(const struct recorder_process *process)
{
    return __atomic_load_n(&process->stage, __ATOMIC_ACQUIRE);
}

static void session_callsite_file_open(const struct recorder_process *process)
{
    const struct session_control *session = session_found()->control;
    struct recorder_signals saved;
    const bool is_in_reserve = process->control->is_in_reserve != 0;
    char *path = session->stacks != SESSION_STACKS_NONE ? recorder_map(PATH_BYTES) : NULL;
    if (path != NULL) {
        recorder_format(path, PATH_BYTES, "%s/p%u.sites", recorder_directory(), process->id);
        recorder_reentrant_begin(&saved);
        python_stack_report_by(python_found);
        callsite_limit(session->stacks_max);
        callsite_grow_by(&process->control->sites, is_in_reserve ? process->control : NULL, RESERVE_SITES_OFFSET);
        callsite_attach(path, session->stacks, session->stack_depth); /* without it: events without stacks */
        recorder_reentrant_end(&saved);
        recorder_unmap(path, PATH_BYTES);
    }
}

/* No lock is held while the files are made: the page of an image is made by the thread that created its file,
 * and others wait for that for a moment only. */
static void session_attach(struct recorder_process *process)
{
    long result = -EAGAIN;
    if (!recorder_retry_is_due(&process->retry)) {
        return;
    }
    uint32_t id = number_acquire(process);
    struct process_control *control = NULL;
    if (id != 0) {
        result = control_create(process, id, &control);
    }
    if (result == 0) {
        last_process_id = id;
        __atomic_store_n(&process->control, control, __ATOMIC_RELEASE);
        recorder_stage_set(&process->stage, RECORDER_STAGE_ATTACHED);
        session_callsite_file_open(process);
        recorder_stage_set(&process->stage, RECORDER_STAGE_CALLSITES);
    } else if (result == -EEXIST) {
        recorder_stage_wait(&process->stage, RECORDER_STAGE_ATTACHED);
    } else {
        recorder_retry_later(&process->retry);
    }
}

struct recorder_process *recorder_process_page(void)
{
    struct found_session *session = session_found();
    return session != NULL ? session->process : NULL;
}

struct recorder_process *recorder_process_attach(void)
{
    struct recorder_process *process = session_found()->process;
    if (stage_of(process) == RECORDER_STAGE_NONE) {
        session_attach(process);
    }
    if (stage_of(process) == RECORDER_STAGE_ATTACHED) {
        recorder_stage_wait(&process->stage,
                            RECORDER_STAGE_CALLSITES); /* or the first stacks of this thread were missing */
    }
    return recorder_process_current();
}

struct recorder_process *recorder_process_current(void)
{
    struct recorder_process *process = recorder_process_page();
    return process != NULL && stage_of(process) != RECORDER_STAGE_NONE ? process : NULL;
}

/* A vfork child shares this memory but is another process: what it does with itself is not ours to note. */
static struct process_control *own_control(void)
{
    struct recorder_process *process = recorder_process_current();
    if (process == NULL || process->control->pid != recorder_sys_getpid()) {
        return NULL;
    }
    return process->control;
}

void recorder_process_exited(void)
{
    struct process_control *control = own_control();
    if (control != NULL) {
        __atomic_store_n(&control->state, PROCESS_STATE_EXITED, __ATOMIC_RELEASE);
    }
}

bool recorder_process_main_ends(void)
{
    struct recorder_process *process = recorder_process_page();
    if (process == NULL || (recorder_process_current() != NULL && own_control() == NULL)) {
        return false;
    }
    return !__atomic_exchange_n(&process->main_has_ended, true, __ATOMIC_ACQ_REL) && recorder_process_current() != NULL;
}

void recorder_process_executing(const char *path)
{
    struct process_control *control = own_control();
    if (control == NULL) {
        return;
    }
    recorder_format(control->exec_path, sizeof(control->exec_path), "%s", path != NULL ? path : "");
    __atomic_store_n(&control->state, path != NULL ? PROCESS_STATE_EXECUTING : PROCESS_STATE_RUNNING, __ATOMIC_RELEASE);
}
