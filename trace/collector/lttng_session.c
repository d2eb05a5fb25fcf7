/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One LTTng session of ours: lttng_session.h. Each step that fails takes back those before it. The library waits for
 * ever for a daemon that hangs, so its calls are made by a thread that is given up after a time; what that thread may
 * still touch is never freed then. Called by collector/lttng_recording.c.
 */
#include "trace/collector/lttng_session.h"

#include "base/monotonic.h"
#include "base/thread.h"
#include "base/error.h"
#include "trace/event_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define SUB_BUFFER_MIN (64 * KIB)
#define SUB_BUFFER_MAX (4 * MIB)
#define SUB_BUFFERS_MIN 8U
#define SUB_BUFFERS_MAX 16U
#define META_SUB_BUFFER_BYTES 65536U
#define META_SUB_BUFFERS 8U
#define DEFAULT_MAX (256 * MIB)
#define DEFAULT_CPU_MIN MIB
#define DEPTH_MAX 12

static uint64_t limit_now_ns = UINT64_C(20000000000);

void lttng_limit_set(uint64_t limit_ns)
{
    limit_now_ns = limit_ns;
}

/* ---- buffers ---- */

/* Many small sub-buffers rather than few large ones: what a killed program leaves undelivered is at most the
 * open one of each CPU, and the consumer begins to write as soon as the first is full. */
struct lttng_buffers lttng_buffers_plan(uint64_t bytes, uint64_t free_bytes, unsigned cpus)
{
    struct lttng_buffers plan = {.sub_buffer_bytes = SUB_BUFFER_MIN, .sub_buffers = SUB_BUFFERS_MAX};
    uint64_t cpu_bytes = bytes / cpus;
    if (bytes == 0) {
        bytes = free_bytes / 4 < DEFAULT_MAX ? free_bytes / 4 : DEFAULT_MAX;
        cpu_bytes = bytes / cpus > DEFAULT_CPU_MIN ? bytes / cpus : DEFAULT_CPU_MIN;
    }
    if (cpu_bytes < SUB_BUFFER_MIN * SUB_BUFFERS_MAX) {
        plan.sub_buffers = SUB_BUFFERS_MIN;
    }
    while (plan.sub_buffer_bytes < SUB_BUFFER_MAX && plan.sub_buffer_bytes * 2 * plan.sub_buffers <= cpu_bytes) {
        plan.sub_buffer_bytes *= 2;
    }
    plan.bytes = (plan.sub_buffer_bytes * plan.sub_buffers + META_SUB_BUFFER_BYTES * (uint64_t)META_SUB_BUFFERS) * cpus;
    return plan;
}

/* Something else is in need of memory too, LTTng's own files among it. */
bool lttng_buffers_fit(const struct lttng_buffers *plan, uint64_t free_bytes)
{
    return plan->bytes <= free_bytes - free_bytes / 16;
}

unsigned lttng_buffers_cpus(void)
{
    FILE *file = fopen("/sys/devices/system/cpu/possible", "re");
    long configured = sysconf(_SC_NPROCESSORS_CONF);
    char line[256];
    if (file != NULL) {
        const char *last = NULL;
        if (fgets(line, sizeof(line), file) != NULL) {
            last = line + strcspn(line, "\n");
            while (last > line && last[-1] >= '0' && last[-1] <= '9') {
                last--;
            }
        }
        fclose(file);
        if (last != NULL && *last >= '0' && *last <= '9') {
            return (unsigned)strtoul(last, NULL, 10) + 1;
        }
    }
    return configured > 0 ? (unsigned)configured : 1;
}

/* ---- folders ---- */

static DIR *folder_open_at(int parent, const char *name)
{
    int descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = descriptor >= 0 ? fdopendir(descriptor) : NULL;
    if (folder == NULL && descriptor >= 0) {
        close(descriptor);
    }
    return folder;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* LTTng removes files in it at the same time: whatever is gone already is well. */
static void remove_below(int parent, const char *name, int depth)
{
    DIR *folder = depth < DEPTH_MAX ? folder_open_at(parent, name) : NULL;
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (!is_dots(entry->d_name) && unlinkat(dirfd(folder), entry->d_name, 0) != 0) {
            remove_below(dirfd(folder), entry->d_name, depth + 1);
        }
    }
    if (folder != NULL) {
        closedir(folder);
        unlinkat(parent, name, AT_REMOVEDIR);
    }
}

void lttng_folder_remove(const char *path)
{
    remove_below(AT_FDCWD, path, 0);
}

#ifdef VARVE_LTTNG_CTL

#include <dlfcn.h>
#include <lttng/lttng.h>
#include <pthread.h>
#include <time.h>

#define LIBRARY "liblttng-ctl.so.0"
#define NAP_NS 2000000L
#define NAME_BYTES 64
#define SLOW_DISK_BYTES_PER_S UINT64_C(8000000)
#define SECOND_NS UINT64_C(1000000000)
/* So many us an event waits for space at most; then it is discarded. */
#define BLOCK_US 1000000

/* ---- the library ---- */

#if VARVE_LTTNG_CTL >= 215
#define CALLS_OF_FORMATS(X) X(lttng_session_descriptor_set_trace_format)
#else
#define CALLS_OF_FORMATS(X)
#endif
#define CALLS(X)                               \
    X(lttng_session_daemon_alive)              \
    X(lttng_session_descriptor_local_create)   \
    X(lttng_session_descriptor_destroy)        \
    X(lttng_create_session_ext)                \
    X(lttng_create_handle)                     \
    X(lttng_destroy_handle)                    \
    X(lttng_channel_create)                    \
    X(lttng_channel_destroy)                   \
    X(lttng_channel_set_blocking_timeout)      \
    X(lttng_channel_get_discarded_event_count) \
    X(lttng_channel_get_lost_packet_count)     \
    X(lttng_enable_channel)                    \
    X(lttng_event_create)                      \
    X(lttng_event_destroy)                     \
    X(lttng_enable_event)                      \
    X(lttng_start_tracing)                     \
    X(lttng_stop_tracing_no_wait)              \
    X(lttng_data_pending)                      \
    X(lttng_list_channels)                     \
    X(lttng_list_sessions)                     \
    X(lttng_destroy_session_no_wait)           \
    X(lttng_strerror)                          \
    CALLS_OF_FORMATS(X)

static struct {
#define CALL_MEMBER(name) __typeof__(name) *name;
    CALLS(CALL_MEMBER)
#undef CALL_MEMBER
} ctl;

static bool lttng_session_library_open(void)
{
    static void *library;
    if (library != NULL) {
        return true;
    }
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
#define CALL_FIND(name)                             \
    if (library != NULL) {                          \
        void *symbol = dlsym(library, #name);       \
        memcpy(&ctl.name, &symbol, sizeof(symbol)); \
        if (symbol == NULL) {                       \
            dlclose(library);                       \
            library = NULL;                         \
        }                                           \
    }
    CALLS(CALL_FIND)
#undef CALL_FIND
    if (library != NULL) {
        int *quiet = dlsym(library, "lttng_opt_quiet"); /* what goes wrong is said by us */
        if (quiet != NULL) {
            *quiet = 1;
        }
    }
    return library != NULL;
}

bool lttng_recording_is_possible(struct varve_message *message)
{
    if (!lttng_session_library_open()) {
        varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                          LIBRARY " is missing or too old: install LTTng's tools (apt install lttng-tools)");
        return false;
    }
    if (!lttng_daemon_is_there()) {
        varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                          "lttng-sessiond is not in PATH: install LTTng's tools (apt install lttng-tools)");
        return false;
    }
    return true;
}

/* ---- the thread that calls it ---- */

struct lttng_recording {
    struct lttng_recording *next_given_up;
    char name[NAME_BYTES], output[PATH_MAX];
    uint64_t buffer_bytes;
    struct lttng_buffers buffers; /* what may still have to be written when it stops */
    bool may_block;
    bool is_known; /* to the session daemon */
    bool has_others;
    struct lttng_recording_loss loss;
    int error;
    struct varve_message message;
    int (*work)(struct lttng_recording *session); /* of the thread */
};

static int lttng_session_fail(struct lttng_recording *session, const char *what, int code)
{
    if (ctl.lttng_session_daemon_alive() != 1) { /* it has died since, whatever the call made of that */
        code = -LTTNG_ERR_NO_SESSIOND;
    }
    return varve_message_set(&session->message, VARVE_ERROR_IO, "LTTng cannot %s the session %s: %s", what,
                             session->name, ctl.lttng_strerror(code < 0 ? code : -code));
}

static void *lttng_session_thread_run(void *session_untyped)
{
    struct lttng_recording *session = session_untyped;
    session->error = session->work(session);
    return NULL;
}

static struct lttng_recording *given_up; /* each with its thread, which may go on one day */

/* VARVE_ERROR_BUSY: it did not end in time, and the thread still has the session. */
static int lttng_session_run(struct lttng_recording *session, int (*work)(struct lttng_recording *session),
                             uint64_t limit_ns, struct varve_message *message)
{
    session->work = work;
    session->message.text[0] = '\0';
    pthread_t thread;
    int reason = thread_start(&thread, lttng_session_thread_run, session);
    if (reason != 0) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "cannot make a thread for LTTng: %s",
                                 strerror(reason));
    }
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    uint64_t end_ns = (uint64_t)end.tv_nsec + limit_ns;
    end.tv_sec += (time_t)(end_ns / SECOND_NS);
    end.tv_nsec = (long)(end_ns % SECOND_NS);
    if (pthread_timedjoin_np(thread, NULL, &end) != 0) {
        pthread_detach(thread);
        session->next_given_up = given_up;
        given_up = session;
        return varve_message_set(message, VARVE_ERROR_BUSY,
                                 "LTTng did not answer within %.3g s: does the session daemon hang?",
                                 (double)limit_ns / 1e9);
    }
    if (session->error != VARVE_OK) {
        varve_message_set(message, session->error, "%s", session->message.text);
    }
    return session->error;
}

static uint64_t patience_ns(const struct lttng_recording *session)
{
    return limit_now_ns + session->buffers.bytes / SLOW_DISK_BYTES_PER_S * SECOND_NS;
}

/* ---- what the thread does ---- */

/* Whether the daemon has the session, and others. */
static int session_find(struct lttng_recording *session)
{
    session->is_known = session->has_others = false;
    if (ctl.lttng_session_daemon_alive() != 1) {
        return varve_message_set(&session->message, VARVE_ERROR_NOT_FOUND, "No session daemon is available");
    }
    struct lttng_session *sessions = NULL;
    int count = ctl.lttng_list_sessions(&sessions);
    if (count < 0) {
        return lttng_session_fail(session, "find", count);
    }
    for (int i = 0; i < count; i++) {
        bool is_it = strcmp(sessions[i].name, session->name) == 0;
        session->is_known |= is_it;
        session->has_others |= !is_it;
    }
    free(sessions);
    return VARVE_OK;
}

static int session_create(struct lttng_recording *session)
{
    struct lttng_session_descriptor *descriptor;
    int error;
    descriptor = ctl.lttng_session_descriptor_local_create(session->name, session->output);
    if (descriptor == NULL) {
        return varve_message_set(&session->message, VARVE_ERROR_IO, "LTTng does not accept the folder %s",
                                 session->output);
    }
#if VARVE_LTTNG_CTL >= 215 /* it writes CTF 2 unless asked otherwise; older ones know one format */
    ctl.lttng_session_descriptor_set_trace_format(descriptor, LTTNG_TRACE_FORMAT_CTF_1_8);
#endif
    error = (int)ctl.lttng_create_session_ext(descriptor);
    ctl.lttng_session_descriptor_destroy(descriptor);
    session->is_known = error == LTTNG_OK;
    return error == LTTNG_OK ? VARVE_OK : lttng_session_fail(session, "create", error);
}

static struct lttng_domain domain_make(void)
{
    return (struct lttng_domain){.type = LTTNG_DOMAIN_UST, .buf_type = LTTNG_BUFFER_PER_UID};
}

/* With buffers per user and CPU. No contexts: the payload says who emitted a record, and of those that the collector
 * emits for a program vpid and vtid would name the collector. No switch timer either: nobody reads while it runs. */
static int channel_make(struct lttng_recording *session, struct lttng_handle *handle, const char *name,
                        uint64_t sub_buffer_bytes, unsigned sub_buffers, bool may_block)
{
    struct lttng_domain domain = domain_make();
    struct lttng_channel *channel = ctl.lttng_channel_create(&domain);
    if (channel == NULL) {
        return varve_message_set(&session->message, VARVE_ERROR_NO_MEMORY, "no memory for an LTTng channel");
    }
    snprintf(channel->name, sizeof(channel->name), "%s", name);
    channel->attr.overwrite = 0;
    channel->attr.subbuf_size = sub_buffer_bytes;
    channel->attr.num_subbuf = sub_buffers;
    int error = may_block ? ctl.lttng_channel_set_blocking_timeout(channel, BLOCK_US) : 0;
    error = error < 0 ? error : ctl.lttng_enable_channel(handle, channel);
    ctl.lttng_channel_destroy(channel);
    return error < 0 ? lttng_session_fail(session, "make a channel of", error) : VARVE_OK;
}

static int event_enable(struct lttng_recording *session, struct lttng_handle *handle, const char *channel,
                        const char *name)
{
    struct lttng_event *event = ctl.lttng_event_create();
    if (event == NULL) {
        return varve_message_set(&session->message, VARVE_ERROR_NO_MEMORY, "no memory for an LTTng event");
    }
    snprintf(event->name, sizeof(event->name), "varve:%s", name);
    event->type = LTTNG_EVENT_TRACEPOINT;
    event->loglevel_type = LTTNG_EVENT_LOGLEVEL_ALL;
    event->loglevel = -1;
    int error = ctl.lttng_enable_event(handle, event, channel);
    ctl.lttng_event_destroy(event);
    return error < 0 ? lttng_session_fail(session, "enable the events of", error) : VARVE_OK;
}

/* `varve` takes the records. `varve_meta` takes what these need to be understood, in buffers of its own, because an
 * event that a killed program had begun hides those after it on its CPU. Small ones: only the collector emits such
 * things, and waits if they are full. Records name by name: "varve:*" with an exclusion makes `lttng list` crash the
 * session daemon of LTTng 2.13.9. */
static int channels_make(struct lttng_recording *session)
{
    static const char *const names[] = {
#define EVENT_NAME(code, NAME, name, group, addr, size, requested, arg, meaning) #name,
        VARVE_EVENT_LIST(EVENT_NAME)
#undef EVENT_NAME
    };
    struct lttng_domain domain = domain_make();
    struct lttng_handle *handle = ctl.lttng_create_handle(session->name, &domain);
    int error;
    if (handle == NULL) {
        return varve_message_set(&session->message, VARVE_ERROR_NO_MEMORY, "no memory for an LTTng session");
    }
    error = channel_make(session, handle, "varve", session->buffers.sub_buffer_bytes, session->buffers.sub_buffers,
                         session->may_block);
    VARVE_THEN(error, channel_make(session, handle, "varve_meta", META_SUB_BUFFER_BYTES, META_SUB_BUFFERS, true));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && error == VARVE_OK; i++) {
        error = event_enable(session, handle, "varve", names[i]);
    }
    VARVE_THEN(error, event_enable(session, handle, "varve_meta", "meta_*"));
    ctl.lttng_destroy_handle(handle);
    return error;
}

/* The lock covers the time in which a daemon has no session of ours yet. */
static int session_make(struct lttng_recording *session)
{
    int lock = lttng_daemon_lock(2 * limit_now_ns);
    int error = VARVE_OK;
    if (ctl.lttng_session_daemon_alive() != 1) {
        error = lttng_daemon_start(limit_now_ns, &session->message);
        if (error == VARVE_ERROR_IO && ctl.lttng_session_daemon_alive() == 1) {
            error = VARVE_OK; /* somebody else's was faster */
        }
    }
    error = error == VARVE_OK ? session_create(session) : error;
    if (lock >= 0) {
        close(lock);
    }
    return error;
}

/* The daemon's end must not be mistaken for idleness by somebody who is about to use it: without the lock it stays,
 * and whoever holds that asks the same question later. */
static void daemon_release(struct lttng_recording *session)
{
    int lock = lttng_daemon_is_ours() ? lttng_daemon_lock(2 * limit_now_ns) : -1;
    if (lock >= 0) {
        if (session_find(session) == VARVE_OK && !session->is_known && !session->has_others) {
            lttng_daemon_end();
        }
        close(lock);
    }
}

static int buffers_plan(struct lttng_recording *session)
{
    unsigned cpus = lttng_buffers_cpus();
    uint64_t free_bytes = UINT64_MAX;
    struct statvfs status;
    if (statvfs("/dev/shm", &status) == 0) {
        free_bytes = (uint64_t)status.f_bavail * status.f_frsize;
    }
    session->buffers = lttng_buffers_plan(session->buffer_bytes, free_bytes, cpus);
    if (!lttng_buffers_fit(&session->buffers, free_bytes)) {
        return varve_message_set(&session->message, VARVE_ERROR_FULL,
                                 "LTTng's buffers take %" PRIu64 " MiB for the %u CPUs that this machine may "
                                 "have, and only %" PRIu64 " MiB are free at /dev/shm",
                                 session->buffers.bytes >> 20, cpus, free_bytes >> 20);
    }
    return VARVE_OK;
}

static int start_work(struct lttng_recording *session)
{
    int error = buffers_plan(session);
    VARVE_THEN(error, session_make(session));
    VARVE_THEN(error, channels_make(session));
    if (error == VARVE_OK) {
        int code = ctl.lttng_start_tracing(session->name);
        error = code < 0 ? lttng_session_fail(session, "start", code) : VARVE_OK;
    }
    if (error != VARVE_OK) {
        struct varve_message reason = session->message;
        if (session->is_known) {
            ctl.lttng_destroy_session_no_wait(session->name);
        }
        daemon_release(session);
        session->message = reason;
    }
    return error;
}

/* Summed over the channels; LTTng's consumer takes a count that a stream reports late for a wrapped counter and adds
 * 2^63: the low bits stay right. */
static void loss_read(struct lttng_recording *session)
{
    struct lttng_domain domain = domain_make();
    struct lttng_handle *handle = ctl.lttng_create_handle(session->name, &domain);
    struct lttng_channel *channels = NULL;
    int count = handle != NULL ? ctl.lttng_list_channels(handle, &channels) : 0;
    for (int i = 0; i < count; i++) {
        uint64_t events = 0;
        ctl.lttng_channel_get_discarded_event_count(&channels[i], &events);
        uint64_t packets = 0;
        ctl.lttng_channel_get_lost_packet_count(&channels[i], &packets);
        session->loss.discarded_events += events & INT64_MAX;
        session->loss.discarded_packets += packets & INT64_MAX;
    }
    if (count > 0) {
        free(channels);
    }
    if (handle != NULL) {
        ctl.lttng_destroy_handle(handle);
    }
}

/* A session whose recorder died between stop and destroy is stopped already. If a program was killed in the middle of
 * an event its sub-buffer is never complete, and `destroy` would wait for that for ever: it does not wait at all, as
 * what can be delivered is there when nothing is pending any more. */
static int stop_work(struct lttng_recording *session)
{
    int error = VARVE_OK;
    int code = ctl.lttng_stop_tracing_no_wait(session->name);
    if (code < 0 && code != -LTTNG_ERR_TRACE_ALREADY_STOPPED) {
        error = lttng_session_fail(session, "stop", code);
    }
    int pending = 1;
    for (uint64_t naps = 0; error == VARVE_OK && pending == 1 && naps < limit_now_ns / NAP_NS; naps++) {
        pending = ctl.lttng_data_pending(session->name);
        if (pending == 1) {
            monotonic_nap(NAP_NS);
        }
    }
    if (error == VARVE_OK) {
        loss_read(session);
        code = ctl.lttng_destroy_session_no_wait(session->name);
        error = code < 0 ? lttng_session_fail(session, "destroy", code) : VARVE_OK;
    }
    if (error == VARVE_OK) {
        daemon_release(session);
    }
    return error;
}

/* Somebody else's, whose recorder died. */
static int adopt_work(struct lttng_recording *session)
{
    session->buffers.bytes = DEFAULT_MAX; /* at most so much is to be written, unless somebody chose more */
    int error = session_find(session);
    if (error == VARVE_OK && !session->is_known) {
        error = varve_message_set(&session->message, VARVE_ERROR_NOT_FOUND, "LTTng has no session %s any more",
                                  session->name);
    }
    return error;
}

/* ---- start, stop, adopt ---- */

/* After a run: what the thread may still touch stays. */
static int session_end(struct lttng_recording *session, int error)
{
    if (error == VARVE_ERROR_BUSY) {
        return VARVE_ERROR_IO;
    }
    free(session);
    return error;
}

static int session_begin(const struct lttng_recording_options *options, int (*work)(struct lttng_recording *session),
                         struct lttng_recording **session_out, struct varve_message *message)
{
    *session_out = NULL;
    if (!lttng_recording_is_possible(message)) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    struct lttng_recording *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an LTTng session");
    }
    snprintf(session->name, sizeof(session->name), "%s", options->name);
    snprintf(session->output, sizeof(session->output), "%s", options->output);
    session->may_block = options->may_block;
    session->buffer_bytes = options->buffer_bytes;
    int error = lttng_session_run(session, work, limit_now_ns, message);
    if (error != VARVE_OK) {
        return session_end(session, error);
    }
    *session_out = session;
    return VARVE_OK;
}

int lttng_recording_start(const struct lttng_recording_options *options, struct lttng_recording **session_out,
                          struct varve_message *message)
{
    return session_begin(options, start_work, session_out, message);
}

int lttng_recording_adopt(const struct lttng_recording_options *options, struct lttng_recording **session_out,
                          struct varve_message *message)
{
    return session_begin(options, adopt_work, session_out, message);
}

int lttng_recording_stop(struct lttng_recording *session, struct lttng_recording_loss *loss_out,
                         struct varve_message *message)
{
    int error = lttng_session_run(session, stop_work, 2 * patience_ns(session), message);
    if (loss_out != NULL) {
        *loss_out = error != VARVE_ERROR_BUSY ? session->loss : (struct lttng_recording_loss){0, 0};
    }
    return session_end(session, error);
}

#else /* built without liblttng-ctl */

bool lttng_recording_is_possible(struct varve_message *message)
{
    varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "this varve was built without LTTng (liblttng-ctl-dev)");
    return false;
}

int lttng_recording_start(const struct lttng_recording_options *options, struct lttng_recording **session_out,
                          struct varve_message *message)
{
    (void)options;
    *session_out = NULL;
    (void)lttng_recording_is_possible(message);
    return VARVE_ERROR_UNSUPPORTED;
}

int lttng_recording_stop(struct lttng_recording *session, struct lttng_recording_loss *loss_out,
                         struct varve_message *message)
{
    (void)session;
    (void)loss_out;
    (void)lttng_recording_is_possible(message);
    return VARVE_ERROR_UNSUPPORTED;
}

int lttng_recording_adopt(const struct lttng_recording_options *options, struct lttng_recording **session_out,
                          struct varve_message *message)
{
    return lttng_recording_start(options, session_out, message);
}

#endif
