/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes come and go. They announce themselves by a counter in shared memory (format/session_format.h) and
 * leave in many ways: exit, a signal, exec. Nothing is closed before all that it published is committed. A
 * number that was taken but has no file yet is waited for a second at most (ring_numbers.c): its owner may
 * have been killed in between. If it was only stopped, its file is still found later: its events are then
 * late, but not lost. The collector calls this in every round.
 */
#include "trace/collector/collector.h"

#include "base/grown_array.h"
#include "base/monotonic.h"
#include "base/proc_file.h"
#include "trace/collector/collector_clock.h"
#include "trace/collector/session/mapped_recordings.h"
#include "trace/collector/session/recording_directory.h"
#include "base/error.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/model/derive.h"
#include "trace/record.h"
#include "trace/callsites/callsites.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MISSING_EVERY_NS UINT64_C(500000000)
#define SEARCH_EVERY_NS UINT64_C(100000000)
#define FOLLOWERS_EVERY_NS UINT64_C(20000000)
#define FILES_AHEAD 64U /* of those that begin later: opened with each round */

/* `fd_out` gets the descriptor of the file, -1 without one. */
static struct process_control *map_control(const struct session_directory *directory, uint32_t id, int *fd_out)
{
    char name[32];
    snprintf(name, sizeof(name), "p%u", id);
    struct process_control *control = session_file_map(directory, name, O_RDWR, PROCESS_CONTROL_BYTES, NULL, fd_out);
    if (control != NULL && (__atomic_load_n(&control->magic, __ATOMIC_ACQUIRE) != PROCESS_MAGIC ||
                            control->version != VARVE_TRANSPORT_VERSION)) {
        munmap(control, PROCESS_CONTROL_BYTES);
        session_descriptor_close(fd_out);
        control = NULL;
    }
    return control;
}

static void mark_ended(struct collector *collector, struct traced_process *process)
{
    if (!process->has_ended) {
        process->has_ended = true;
        /* of one that nobody watched the end is where its rings end, see retire_ended.c */
        if (!collector->is_recovering) {
            process->end_ns = collect_clock_ns(&collector->clock, collect_clock_now(&collector->clock));
        } else if (process->end_ns < process->start_ns) {
            process->end_ns = process->start_ns;
        }
        collector->processes_alive--;
    }
}

/* Numbers of unknown namespaces are one and the same only here. */
static bool is_same_pid(const struct traced_process *a, const struct traced_process *b)
{
    return a->identity.pid == b->identity.pid && a->identity.pid_namespace == b->identity.pid_namespace &&
           a->is_ours == b->is_ours && (a->is_ours || a->identity.pid_namespace != 0);
}

/* A new image under the same pid: exec has ended every thread of the old one, and how the pid ended later is
 * the new one's story. */
static void replace_older(struct collector *collector, struct traced_process *newer)
{
    for (uint32_t i = collector->first_open; i + 1 < newer->id; i++) {
        struct traced_process *older = collector->processes[i];
        if (older == NULL || older->is_closed || !is_same_pid(older, newer)) {
            continue;
        }
        older->is_replaced = older->identity.start_ticks_proc == newer->identity.start_ticks_proc;
        if (older->is_replaced && older->wait_status != -1) {
            newer->wait_status = older->wait_status;
            newer->rss.ended_peak_bytes = older->rss.ended_peak_bytes;
            older->wait_status = -1;
            older->rss.ended_peak_bytes = 0;
            mark_ended(collector, newer);
        }
        mark_ended(collector, older);
    }
}

/* It was reaped before it was discovered. */
static void claim_status(struct collector *collector, struct traced_process *process)
{
    for (uint32_t i = 0; i < REAPED_KEPT; i++) {
        if (process->is_ours && collector->reaped[i].pid == process->pid) {
            process->wait_status = collector->reaped[i].wait_status;
            process->rss.ended_peak_bytes = collector->reaped[i].peak_rss_bytes;
            collector->reaped[i].pid = 0;
            mark_ended(collector, process);
        }
    }
}

/* 0 if it has ended, also if nobody has waited for it yet. */
static uint64_t process_start_ticks(int32_t pid)
{
    return proc_file_thread(pid) != 0 ? proc_file_started(pid) : 0;
}

/* The pid has been given out anew. Without /proc, or a descriptor, a process does not know when it began. */
static bool is_another(const struct traced_process *process)
{
    const struct process_identity *known = &process->identity;
    const bool is_known = known->pid_namespace != 0 && known->start_ticks_proc != 0;
    const uint64_t started = is_known ? process_start_ticks(process->pid) : 0;
    return started != 0 && started != known->start_ticks_proc;
}

/* A pid of another namespace says nothing here: all of /proc is searched for it, now and then. */
static bool is_gone_elsewhere(const struct collector *collector, struct traced_process *process)
{
    uint64_t now_ns = monotonic_ns();
    if (now_ns < process->next_search_ns) {
        return false;
    }
    process->next_search_ns = now_ns + SEARCH_EVERY_NS;
    return (process->identity.pid_namespace != 0
                ? liveness_find(&process->identity)
                : liveness_find_unplaced(process->identity.pid, collector->directory.trace_id)) == 0;
}

static bool traced_process_is_gone(const struct collector *collector, struct traced_process *process)
{
    struct pollfd wait = {.fd = process->pidfd, .events = POLLIN};
    if (process->lock_fd >= 0) {
        return !liveness_is_locked(process->lock_fd);
    }
    if (process->pidfd >= 0) {
        return poll(&wait, 1, 0) > 0;
    }
    if (!process->is_ours) {
        return is_gone_elsewhere(collector, process);
    }
    if (kill(process->pid, 0) != 0 && errno == ESRCH) {
        return true;
    }
    return is_another(process);
}

/* Where its lock can't be asked: the pid, if it is one of ours and means the same process still. */
static void watch_pid(struct traced_process *process)
{
    process->pidfd = process->is_ours ? (int)syscall(SYS_pidfd_open, process->pid, 0U) : -1;
    if (process->pidfd >= 0 && is_another(process)) {
        session_descriptor_close(&process->pidfd);
    }
}

/* Who does not know its namespace is here if it is our child, or if its number here is a process of this session. */
static bool traced_process_is_ours(const struct collector *collector, const struct process_control *control)
{
    if (control->pid_namespace != 0) {
        return control->pid_namespace == collector->pid_namespace;
    }
    return collector->is_recovering || control->parent_pid == (int32_t)getpid() ||
           liveness_find_unplaced(control->pid, collector->directory.trace_id) == control->pid;
}

/* `fd` of the control page becomes the process', or is closed. */
static void watch_process(struct collector *collector, struct traced_process *process, int fd)
{
    const struct process_control *control = process->control;
    process->identity = (struct process_identity){
        .pid_namespace = control->pid_namespace, .start_ticks_proc = control->start_ticks_proc, .pid = control->pid};
    process->pid = control->pid;
    process->is_ours = traced_process_is_ours(collector, control);
    process->is_child = process->is_ours && control->parent_pid == (int32_t)getpid();
    process->pidfd = -1;
    process->lock_fd = -1;
    if (!collector->is_recovering && collector->locks_work && control->is_locked != 0) {
        process->lock_fd = fd;
        return;
    }
    session_descriptor_close(&fd);
    if (!collector->is_recovering) {
        watch_pid(process);
    }
}

static void name_callsites(const struct collector *collector, uint32_t id, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/p%u.sites", collector->directory.path, id);
}

int collect_process_callsites(struct collector *collector, uint32_t id)
{
    const struct session_directory *directory = &collector->directory;
    char path[DIRECTORY_PATH_BYTES + 32];
    name_callsites(collector, id, path, sizeof(path));
    int error = callsites_process(collector->callsites, id, path);
    uint64_t offset;
    if (error == VARVE_OK && session_reserve_find(&directory->reserve, RESERVE_STATE_PROCESS, id, 0, &offset)) {
        snprintf(path, sizeof(path), "%s/counts", directory->rings);
        error = callsites_moved(collector->callsites, id, path, offset + RESERVE_SITES_OFFSET,
                                RESERVE_SLOT_BYTES - RESERVE_SITES_OFFSET);
    }
    return error;
}

/* What was read of them is read again at the end, when the slot serves another process. */
int collect_process_callsites_keep(struct collector *collector, const struct traced_process *process)
{
    const struct session_directory *directory = &collector->directory;
    uint64_t offset;
    if (!session_reserve_find(&directory->reserve, RESERVE_STATE_PROCESS, process->id, 0, &offset)) {
        return VARVE_OK;
    }
    char path[DIRECTORY_PATH_BYTES + 32];
    name_callsites(collector, process->id, path, sizeof(path));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    const uint64_t granted = __atomic_load_n(&process->control->sites.granted, __ATOMIC_ACQUIRE);
    off_t from = (off_t)(offset + RESERVE_SITES_OFFSET);
    const off_t end = granted < RESERVE_SLOT_BYTES - RESERVE_SITES_OFFSET ? from + (off_t)granted
                                                                          : (off_t)(offset + RESERVE_SLOT_BYTES);
    ssize_t copied = fd >= 0 ? 1 : -1;
    while (copied > 0 && from < end) {
        copied = sendfile(fd, directory->reserve.fd, &from, (size_t)(end - from));
    }
    session_descriptor_close(&fd);
    return copied < 0 ? VARVE_ERROR_IO : callsites_moved(collector->callsites, process->id, path, 0, 0);
}

static int start_process(struct collector *collector, uint32_t id, struct process_control *control, int fd)
{
    struct traced_process *process = calloc(1, sizeof(*process));

    /* as many as there are pages: numbers that have none take no memory */
    if (process == NULL || !ARRAY_COVER(collector->processes, collector->process_capacity, id - 1)) {
        free(process);
        munmap(control, PROCESS_CONTROL_BYTES);
        session_descriptor_close(&fd);
        return VARVE_ERROR_NO_MEMORY;
    }
    collector->process_count = id > collector->process_count ? id : collector->process_count;
    process->id = id;
    process->control = control;
    watch_process(collector, process, fd);
    process->wait_status = -1;
    process->rss.folder_fd = -1;
    process->end_ns = -1;
    process->rings_seen = 1;
    process->start_ns = collect_clock_ns(&collector->clock, control->start_ticks);
    collector->processes[id - 1] = process;
    collector->processes_alive++;
    if (collector->is_recovering) {
        if (!collector->is_imported || control->state != PROCESS_STATE_RUNNING) {
            mark_ended(collector, process);
        }
    } else if (traced_process_is_gone(collector, process)) {
        mark_ended(collector, process);
    } else {
        collect_rss_begin(collector, process);
        if (process->is_ours) {
            collect_bounds_process(collector, process->pid);
        }
        __atomic_store_n(&control->is_bounded, 1, __ATOMIC_RELEASE);
    }
    claim_status(collector, process);
    replace_older(collector, process);
    derive_process_start(collector->derive, id, control->parent_id);
    collect_sink_process(collector, process);
    int error = collect_process_callsites(collector, id);
    if (error == VARVE_OK && !process->has_ended && process->is_ours && !collector->is_recovering) {
        callsites_process_lives(collector->callsites, id, process->pid);
    }
    return error;
}

/* The page of a number that was given up, if it is complete now. Images that came after it under its pid know
 * nothing of it yet. */
static int start_missing(struct collector *collector, uint32_t id)
{
    int fd;
    struct process_control *control = map_control(&collector->directory, id, &fd);
    int error = control != NULL ? start_process(collector, id, control, fd) : VARVE_OK;
    if (id > collector->process_count || collector->processes[id - 1] == NULL) {
        return error;
    }
    collector->processes_missing--;
    collector->first_open = id - 1 < collector->first_open ? id - 1 : collector->first_open;
    for (uint32_t i = id; i < collector->process_count; i++) {
        struct traced_process *newer = collector->processes[i];
        if (newer != NULL && !newer->is_closed && is_same_pid(newer, collector->processes[id - 1])) {
            replace_older(collector, newer);
        }
    }
    return error;
}

uint32_t collect_processes_announced(const struct collector *collector)
{
    uint32_t count = __atomic_load_n(&collector->directory.counts->process_count, __ATOMIC_ACQUIRE);
    return count < SESSION_PROCESS_MAX ? count : SESSION_PROCESS_MAX;
}

/* The numbers up to `limit` that have a file by now; the others may still get one, and are looked for now and
 * then. */
static int skip_processes(struct collector *collector, uint32_t limit)
{
    struct session_file *files;
    uint32_t first = collector->numbers_seen + 1;
    size_t count;
    int error = session_directory_scan(&collector->directory, &files, &count);
    if (error != VARVE_OK) {
        return error;
    }
    collector->numbers_seen = limit;
    collector->processes_missing += limit - first + 1;
    for (size_t i = 0; error == VARVE_OK && i < count; i++) {
        if (files[i].kind == SESSION_FILE_PROCESS && files[i].process >= first && files[i].process <= limit) {
            error = start_missing(collector, files[i].process);
        }
    }
    free(files);
    return error;
}

static int discover_processes(struct collector *collector, uint64_t *bound)
{
    uint32_t count = collect_processes_announced(collector);
    int error = VARVE_OK;
    while (error == VARVE_OK && collector->numbers_seen < count) {
        uint32_t id = collector->numbers_seen + 1;
        int fd;
        struct process_control *control = map_control(&collector->directory, id, &fd);
        if (control == NULL && collector->process_seen_ns == 0) {
            collector->process_limit = count; /* waited for together */
        }
        if (control == NULL &&
            collect_file_wait(collector, &collector->process_seen_ns, &collector->process_bound, bound)) {
            break;
        }
        collector->process_seen_ns = 0;
        if (control == NULL) {
            error = skip_processes(collector, collector->process_limit);
            continue;
        }
        collector->numbers_seen = id;
        error = start_process(collector, id, control, fd);
    }
    return error;
}

/* Is it time to look for files that came late? Every second, when a process has ended whose rings are not all
 * there, and once more before the recording ends. */
static bool is_search_due(struct collector *collector)
{
    uint64_t now_ns = monotonic_ns();
    bool is_missing = collector->processes_missing > 0;
    bool is_due = collector->is_draining || now_ns >= collector->next_missing_ns;
    for (uint32_t i = collector->first_open; i < collector->process_count; i++) {
        const struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->is_closed && process->rings_missing > 0) {
            is_missing = true;
            is_due = is_due || (process->has_ended && !process->saw_end);
        }
    }
    if (is_missing && is_due) {
        collector->next_missing_ns = now_ns + MISSING_EVERY_NS;
    }
    return is_missing && is_due;
}

/* Files of numbers that were given up. */
static int search_missing(struct collector *collector)
{
    if (!is_search_due(collector)) {
        return VARVE_OK;
    }
    struct session_file *files;
    size_t count;
    int error = session_directory_scan(&collector->directory, &files, &count);
    if (error != VARVE_OK) {
        return error;
    }
    for (size_t i = 0; error == VARVE_OK && i < count && files[i].process <= collector->numbers_seen; i++) {
        uint32_t id = files[i].process;
        struct traced_process *process = id <= collector->process_count ? collector->processes[id - 1] : NULL;
        if (files[i].kind == SESSION_FILE_PROCESS && process == NULL) {
            error = start_missing(collector, id);
        } else if (files[i].kind == SESSION_FILE_RING && process != NULL && !process->is_closed) {
            error = collect_ring_missing(collector, process, files[i].ring);
        }
    }
    free(files);
    return error;
}

/* A page for rings whose own is gone or damaged: what is left to be said of their process. */
static struct process_control *make_up_control(const struct collector *collector, const struct session_file *file)
{
    struct traced_process probe = {.id = file->process};
    struct ring_reader *reader = NULL;
    for (; reader == NULL && file < collector->files + collector->file_count && file->process == probe.id; file++) {
        if (file->kind != SESSION_FILE_RING ||
            ring_reader_open(&reader, &collector->directory, &probe, file->ring) != VARVE_OK) {
            reader = NULL;
        }
    }
    if (reader == NULL) {
        return NULL;
    }
    struct process_control *control =
        mmap(NULL, PROCESS_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (control != MAP_FAILED) {
        control->magic = PROCESS_MAGIC;
        control->version = VARVE_TRANSPORT_VERSION;
        control->process_id = probe.id;
        control->pid = reader->tid; /* the main thread's, most often */
        control->rank = -1;
        control->start_ticks = reader->ring->created_ticks;
        control->state = PROCESS_STATE_RUNNING;
    }
    ring_reader_close(reader);
    return control == MAP_FAILED ? NULL : control;
}

static int compare_ended(const void *id, const void *ended_untyped)
{
    const struct ended_process *ended = ended_untyped;
    return (*(const uint32_t *)id > ended->id) - (*(const uint32_t *)id < ended->id);
}

/* A process of an interrupted recording: `file` is its first. */
static int open_left_process(struct collector *collector, const struct session_file *file)
{
    uint32_t id = file->process;
    int fd;
    struct process_control *control = map_control(&collector->directory, id, &fd);
    bool is_made_up = control == NULL;
    if (is_made_up && (collector->ended_count == 0 || bsearch(&id, collector->ended, collector->ended_count,
                                                              sizeof(*collector->ended), compare_ended) == NULL)) {
        control = make_up_control(collector, file);
    }
    if (control == NULL) {
        return VARVE_OK; /* its rows are complete, or nothing of it can be read: collect_processes_missing */
    }
    int error = start_process(collector, id, control, fd);
    if (error == VARVE_OK) {
        collector->processes[id - 1]->is_made_up = is_made_up;
    }
    return error;
}

static struct traced_process *left_process(const struct collector *collector, uint32_t id)
{
    return id <= collector->process_count ? collector->processes[id - 1] : NULL;
}

static int open_left_file(struct collector *collector, const struct session_file *file)
{
    bool is_first = file == collector->files || file[-1].process != file->process;
    int error = VARVE_OK;
    if (file->kind == SESSION_FILE_PROCESS || (is_first && left_process(collector, file->process) == NULL)) {
        error = open_left_process(collector, file);
    }
    struct traced_process *process = left_process(collector, file->process);
    if (error != VARVE_OK || process == NULL) {
        return error == VARVE_OK && collector->is_imported ? VARVE_ERROR_IO : error;
    }
    if (file->kind == SESSION_FILE_RING) {
        error = collect_ring_left(collector, process, file->ring);
    }
    /* where times are not known, all files are opened in one round */
    process->saw_end = file->begin == 0 || process->rings_found >= process->control->rings_made;
    return error;
}

/* What is there is known from the beginning, and nothing follows. Ten thousand rings are not opened at once if it is
 * known when each begins. */
static int open_left_files(struct collector *collector)
{
    int error = VARVE_OK;
    for (unsigned ahead = 0; error == VARVE_OK && collector->files_opened < collector->file_count; ahead++) {
        const struct session_file *file = &collector->files[collector->files_opened];
        if (file->begin != 0 && ahead >= FILES_AHEAD) {
            break;
        }
        collector->files_opened++;
        error = open_left_file(collector, file);
    }
    return error;
}

uint64_t collect_files_bound(const struct collector *collector)
{
    return collector->files_opened < collector->file_count ? collector->files[collector->files_opened].begin - 1
                                                           : UINT64_MAX;
}

bool collect_process_is_over(const struct collector *collector, const struct ended_process *ended)
{
    return ended->id > collector->process_count || collector->processes[ended->id - 1] == NULL;
}

/* Pages that were opened, now or by a collector that died. */
static uint32_t pages_seen(const struct collector *collector)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < collector->process_count; i++) {
        seen += collector->processes[i] != NULL && !collector->processes[i]->is_made_up;
    }
    for (size_t i = 0; i < collector->ended_count; i++) {
        seen += collect_process_is_over(collector, &collector->ended[i]);
    }
    return seen;
}

uint32_t collect_processes_missing(const struct collector *collector)
{
    const struct session_counts *counts = collector->directory.counts;
    /* NULL: all was stored, by a collector that died in its last steps */
    uint32_t made = counts != NULL ? __atomic_load_n(&counts->process_pages, __ATOMIC_ACQUIRE) : 0;
    uint32_t seen = pages_seen(collector);
    made = made < SESSION_PROCESS_MAX ? made : SESSION_PROCESS_MAX;
    return made > seen ? made - seen : 0;
}

uint32_t collect_processes_unattached(const struct collector *collector)
{
    uint32_t made = pages_seen(collector) + collect_processes_missing(collector);
    if (collector->directory.counts == NULL) {
        return 0;
    }
    /* one that can't make a page counts its events there; what was killed in its first event has lost nothing */
    if (__atomic_load_n(&collector->directory.counts->unattached, __ATOMIC_ACQUIRE) == 0) {
        return 0;
    }
    uint32_t taken = collect_processes_announced(collector);
    return taken > made ? taken - made : 0;
}

int collect_processes_discover(struct collector *collector, uint64_t *bound)
{
    if (collector->files != NULL) {
        return open_left_files(collector);
    }
    int error = search_missing(collector);
    VARVE_THEN(error, discover_processes(collector, bound));
    for (uint32_t i = collector->first_open; error == VARVE_OK && i < collector->process_count; i++) {
        struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->is_closed) {
            error = collect_rings_discover(collector, process, bound);
            process->saw_end = process->has_ended;
        }
    }
    return error;
}

void collect_processes_check(struct collector *collector)
{
    for (uint32_t i = collector->first_open; i < collector->process_count; i++) {
        struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->has_ended && traced_process_is_gone(collector, process)) {
            mark_ended(collector, process);
        }
    }
}

void collect_process_reaped(struct collector *collector, int32_t pid, int wait_status, uint64_t peak_rss_bytes)
{
    collect_execs_ended(collector, pid, wait_status);
    for (uint32_t i = collector->process_count; i-- > collector->first_open;) {
        struct traced_process *process = collector->processes[i];
        if (process != NULL && !process->is_closed && process->is_ours && process->pid == pid &&
            !process->is_replaced && process->wait_status == -1) {
            process->wait_status = wait_status;
            process->rss.ended_peak_bytes = peak_rss_bytes;
            mark_ended(collector, process);
            return;
        }
    }
    collector->reaped[collector->reaped_count++ % REAPED_KEPT] = (struct reaped){pid, wait_status, peak_rss_bytes};
}

void collect_process_release(struct traced_process *process)
{
    session_descriptor_close(&process->pidfd);
    session_descriptor_close(&process->lock_fd);
    collect_rss_end(process);
    if (process->control != NULL) {
        munmap(process->control, PROCESS_CONTROL_BYTES);
        process->control = NULL;
    }
}

void collect_processes_close(struct collector *collector)
{
    for (uint32_t i = 0; i < collector->process_count; i++) {
        struct traced_process *process = collector->processes[i];
        if (process == NULL) {
            continue;
        }
        collect_process_release(process);
        free(process->opened);
        free(process);
    }
    free(collector->processes);
    collector->processes = NULL;
    collector->process_count = 0;
}

bool collect_session_lives(struct collector *collector)
{
    uint64_t now_ns = monotonic_ns();
    bool may_follow = !collector->locks_work || collect_execs_any(collector);
    if (collector->processes_alive > 0 || collector->numbers_seen != collect_processes_announced(collector) ||
        (collector->locks_work && liveness_is_locked(collector->counts_fd))) {
        return true;
    }
    if (!may_follow) {
        return false;
    }
    if (now_ns < collector->next_followers_ns) {
        return true;
    }
    /* In the middle of an exec a process has neither lock nor environment: a second search sees it. */
    if (liveness_has_followers(collector->directory.path)) {
        collector->found_no_follower = false;
    } else if (collector->found_no_follower) {
        return collector->locks_work && liveness_is_locked(collector->counts_fd);
    } else {
        collector->found_no_follower = true;
    }
    collector->next_followers_ns = now_ns + FOLLOWERS_EVERY_NS;
    return true;
}

bool collect_process_has_page(const struct collector *collector, const struct process_identity *identity)
{
    for (uint32_t i = 0; i < collector->process_count; i++) {
        const struct traced_process *process = collector->processes[i];
        if (process == NULL || process->is_replaced || !process_identity_agrees(&process->identity, identity)) {
            continue;
        }
        if (process->control == NULL
                ? !process->was_executing
                : __atomic_load_n(&process->control->state, __ATOMIC_ACQUIRE) != PROCESS_STATE_EXECUTING) {
            return true;
        }
    }
    return false;
}

int32_t collect_process_alive(const struct session_directory *directory, uint32_t id)
{
    int fd;
    struct process_control *control = map_control(directory, id, &fd);
    if (control == NULL) {
        return 0;
    }
    int32_t pid = control->pid;
    uint64_t started = control->start_ticks_proc;
    bool is_detached = __atomic_load_n(&control->state, __ATOMIC_ACQUIRE) == PROCESS_STATE_DETACHED;
    bool is_locked = control->is_locked != 0 && liveness_is_locked(fd);
    munmap(control, PROCESS_CONTROL_BYTES);
    close(fd);
    return is_locked || (!is_detached && started != 0 && process_start_ticks(pid) == started) ? pid : 0;
}
