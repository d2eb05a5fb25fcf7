/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session that the environment names, and this process image in it. Attaching happens at the first event
 * and not before: a process that never allocates leaves no file behind. The state of the process lies in a
 * page that the kernel wipes in fork children, so a child, also one of a bare clone(2), finds itself
 * unattached whatever its parent was doing at that moment, locks included.
 */
#include "trace/recorder_confine_internal.h"
#include "trace/recorder_internal.h"
#include "trace/recorder_stack_internal.h"
#include "trace/recorder_syscall_internal.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096U
#define WIPED_BYTES 4096U

enum lookup_state {
    LOOKUP_OPEN = 0,
    LOOKUP_DONE = 1,
};

/* Set once, at the first event, by whoever holds lookup_lock; read-only afterwards; inherited by children. */
static uint32_t lookup_lock;
static uint32_t lookup_state;
static const struct session_control *session;
static const struct session_control *found; /* the same, while it is being looked at */
static struct session_counts *counts;
static struct recorder_process *process_page;
static char directory[PATH_BYTES];
static int32_t rank_of_process = -1;

bool recorder_malloc_is_foreign;

/* Set by the parent's attach, kept over fork: in a child it still names the parent. */
static uint32_t last_process_id;

/* The C library sets `environ` up only after the loader has made its first allocations. */
static bool environment_from_proc(const char *name, char *value, size_t bytes)
{
    static char block[65536];
    long length = recorder_read_file("/proc/self/environ", block, sizeof(block) - 1);
    size_t name_bytes = strlen(name);

    for (long at = 0; at < length; at += (long)strlen(block + at) + 1) {
        if (strncmp(block + at, name, name_bytes) == 0 && block[at + (long)name_bytes] == '=') {
            recorder_format(value, bytes, "%s", block + at + name_bytes + 1);
            return true;
        }
    }
    return false;
}

static bool environment(const char *name, char *value, size_t bytes)
{
    size_t name_bytes = strlen(name);

    if (environ == NULL) {
        return environment_from_proc(name, value, bytes);
    }
    for (char *const *entry = environ; *entry != NULL; entry++) { /* getenv may be the program's own */
        if (strncmp(*entry, name, name_bytes) == 0 && (*entry)[name_bytes] == '=') {
            recorder_format(value, bytes, "%s", *entry + name_bytes + 1);
            return true;
        }
    }
    return false;
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

/* A page of the session by its file's name, writable or not; NULL if it can't be had. A file that is long
 * enough is known by reading it, which the loader does too: a program that was executed by a confined one may
 * do nothing else. */
static void *page_open(const char *path, const char *name, size_t bytes, bool is_writable)
{
    static char content[SESSION_CONTROL_BYTES];
    char file[PATH_BYTES];
    void *page = NULL;
    int fd;

    static_assert(SESSION_COUNTS_BYTES <= sizeof(content), "either page");
    recorder_format(file, sizeof(file), "%s/ring/%s", path, name);
    fd = recorder_sys_open(file, is_writable ? O_RDWR : O_RDONLY, 0);
    if (fd < 0) {
        return NULL;
    }
    if (recorder_sys_read(fd, content, bytes) == (long)bytes) {
        page = is_writable ? recorder_map_file(fd, bytes, false) : recorder_map_file_read(fd, bytes);
    }
    recorder_sys_close(fd);
    return page;
}

static bool session_open(const char *path)
{
    struct session_control *control = page_open(path, "session", SESSION_CONTROL_BYTES, false);

    if (control == NULL) {
        return false;
    }
    if (control->magic == SESSION_MAGIC && control->version == VARVE_TRANSPORT_VERSION &&
        control->state == SESSION_STATE_RECORDING) {
        counts = page_open(path, "counts", SESSION_COUNTS_BYTES, true);
    }
    if (counts == NULL) {
        recorder_unmap(control, SESSION_CONTROL_BYTES);
        return false;
    }
    varve_clock_is_tsc = control->clock_kind == VARVE_CLOCK_TSC;
    recorder_confine_from_start(control);
    found = control;
    return true;
}

static void lookup(void)
{
    static struct recorder_process never_attached;

    if (!environment(SESSION_ENVIRONMENT, directory, sizeof(directory)) || directory[0] != '/' ||
        !session_open(directory)) {
        return;
    }
    process_page = recorder_is_confined() ? &never_attached : recorder_map_wiped(WIPED_BYTES);
    if (process_page == NULL) {
        return;
    }
    rank_of_process = rank_from_environment();
    __atomic_store_n(&session, found, __ATOMIC_RELEASE);
}

void recorder_session_look(void)
{
    if (__atomic_load_n(&lookup_state, __ATOMIC_ACQUIRE) == LOOKUP_OPEN) {
        recorder_lock(&lookup_lock);
        if (lookup_state == LOOKUP_OPEN) {
            lookup();
            __atomic_store_n(&lookup_state, LOOKUP_DONE, __ATOMIC_RELEASE);
        }
        recorder_unlock(&lookup_lock);
    }
}

static void look(void *unused)
{
    (void)unused;
    recorder_session_look();
}

const struct session_control *recorder_session(void)
{
    if (__atomic_load_n(&lookup_state, __ATOMIC_ACQUIRE) == LOOKUP_OPEN) {
        struct recorder_signals saved;

        recorder_signals_block(&saved);
        (void)recorder_on_stack(look, NULL);
        recorder_signals_restore(&saved);
    }
    return session;
}

struct session_counts *recorder_session_counts(void)
{
    return recorder_session() != NULL ? counts : NULL;
}

const char *recorder_directory(void)
{
    return directory;
}

/* Field 22 of /proc/self/stat; the command name before it may hold spaces and parentheses. */
static uint64_t start_ticks_of_process(void)
{
    char text[1024];
    long length = recorder_read_file("/proc/self/stat", text, sizeof(text) - 1);
    char *at;

    if (length <= 0) {
        return 0;
    }
    text[length] = '\0';
    at = strrchr(text, ')');
    for (unsigned field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL ? recorder_number(at + 1) : 0;
}

static void control_fill(struct process_control *control, uint32_t id)
{
    long length =
        recorder_sys_readlink("/proc/self/exe", control->executable, sizeof(control->executable) - 1);

    control->executable[length > 0 ? length : 0] = '\0';
    recorder_read_file("/proc/self/cmdline", control->command_line, sizeof(control->command_line) - 2);
    control->version = VARVE_TRANSPORT_VERSION;
    control->process_id = id;
    control->parent_id = last_process_id;
    control->pid = recorder_sys_getpid();
    control->parent_pid = recorder_sys_getppid();
    control->rank = rank_of_process;
    control->start_ticks_proc = start_ticks_of_process();
    control->start_ticks = varve_clock_ticks();
    control->state = PROCESS_STATE_RUNNING;
    control->malloc_is_foreign = recorder_malloc_is_foreign;
    control->ring_count = 1;
    __atomic_store_n(&control->magic, PROCESS_MAGIC, __ATOMIC_RELEASE);
}

static struct process_control *control_create(uint32_t id)
{
    char file[PATH_BYTES];
    struct process_control *control = NULL;
    int fd;

    recorder_format(file, sizeof(file), "%s/ring/p%u", directory, id);
    fd = recorder_sys_open(file, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) {
        return NULL;
    }
    if (recorder_sys_fallocate(fd, 0, PROCESS_CONTROL_BYTES) == 0) {
        control = recorder_map_file(fd, PROCESS_CONTROL_BYTES, true);
    }
    recorder_sys_close(fd);
    if (control != NULL) {
        control_fill(control, id);
        __atomic_add_fetch(&counts->process_pages, 1, __ATOMIC_ACQ_REL);
    }
    return control;
}

static void attach(struct recorder_process *process)
{
    struct recorder_signals saved;
    char sites[PATH_BYTES];
    uint32_t id = __atomic_add_fetch(&counts->process_count, 1, __ATOMIC_ACQ_REL);

    process->control = control_create(id);
    if (process->control == NULL) {
        __atomic_store_n(&process->state, 2, __ATOMIC_RELEASE);
        return;
    }
    process->id = id;
    last_process_id = id;
    if (session->stacks != SESSION_STACKS_NONE) {
        recorder_format(sites, sizeof(sites), "%s/p%u.sites", directory, id);
        recorder_foreign_begin(&saved);
        callsite_attach(sites, session->stacks, session->stack_depth); /* without it: events without stacks */
        recorder_foreign_end(&saved);
    }
    __atomic_store_n(&process->state, 1, __ATOMIC_RELEASE);
}

struct recorder_process *recorder_process_page(void)
{
    return process_page;
}

struct recorder_process *recorder_process_attach(void)
{
    struct recorder_process *process = process_page;
    uint32_t state = __atomic_load_n(&process->state, __ATOMIC_ACQUIRE);

    if (state == 0) {
        recorder_lock(&process->lock);
        if (process->state == 0) {
            attach(process);
        }
        recorder_unlock(&process->lock);
        state = process->state;
    }
    return state == 1 ? process : NULL;
}

struct recorder_process *recorder_process_current(void)
{
    struct recorder_process *process = process_page;

    return process != NULL && __atomic_load_n(&process->state, __ATOMIC_ACQUIRE) == 1 ? process : NULL;
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

void recorder_process_executing(const char *path)
{
    struct process_control *control = own_control();

    if (control == NULL) {
        return;
    }
    recorder_format(control->exec_path, sizeof(control->exec_path), "%s", path != NULL ? path : "");
    __atomic_store_n(&control->state, path != NULL ? PROCESS_STATE_EXECUTING : PROCESS_STATE_RUNNING,
                     __ATOMIC_RELEASE);
}
