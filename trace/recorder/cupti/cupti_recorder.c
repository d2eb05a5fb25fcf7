/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUPTI recorder as a whole: the driver opens this library in cuInit (CUDA_INJECTION64_PATH) and calls
 * InitializeInjection, which subscribes to CUPTI and enables callbacks. That runs under the driver's own
 * locks, so nothing there calls CUDA or waits. CUPTI has one subscriber: whoever is there already stays;
 * the program goes on without us, and the trace says so.
 */
#include "trace/recorder/cupti/cupti_recorder.h"
#include "trace/recorder/cupti/cupti_driver.h"
#include "base/error.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Exit handlers run in the reverse order of their registration: one that is registered early runs when the
 * driver may be gone, so ours is registered in cuInit and again after the first allocation, and the first
 * of them to run has CUPTI hand over what it still holds. The subscription stays: frees in later handlers
 * are still calls of the driver, and until it is gone they are recorded. This library is never unloaded, so
 * a late callback finds its code.
 */

#define RECORDER_BYTES 4096U

_Static_assert(sizeof(struct cupti_recorder) <= RECORDER_BYTES, "one page");

static struct cupti_recorder *the_recorder; /* written once, before anybody calls */

struct cupti_recorder *cupti_recorder_get(void)
{
    return the_recorder;
}

void cupti_state_emit(enum varve_cause cause, uint64_t what, uint64_t number, uint64_t ns)
{
    struct varve_record record = {
        .size = what,
        .requested = ns,
        .arg = number,
        .dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_CUPTI_STATE, 0),
        .cause = (uint8_t)cause,
    };
    varve_emit(&record);
}

static void clock_emit(const struct cupti_recorder *recorder)
{
    uint64_t ns = 0;
    if (recorder->functions.timestamp(&ns) == CUPTI_RESULT_SUCCESS) {
        cupti_state_emit(VARVE_CAUSE_CUPTI_CLOCK, 0, 0, ns);
    }
}

/* ---- callbacks ---- */

static void on_resource(struct cupti_recorder *recorder, uint32_t id)
{
    if (id == CUPTI_RESOURCE_CONTEXT_DESTROYED) {
        cupti_calls_mark_end();
        cupti_activity_flush(recorder, true);
    }
}

/* CUPTI has shut itself down: from here on silence means nothing. */
static void on_fatal(struct cupti_recorder *recorder, const struct cupti_state_data *data)
{
    __atomic_store_n(&recorder->has_activity, false, __ATOMIC_RELEASE);
    __atomic_store_n(&recorder->is_on, false, __ATOMIC_RELEASE);
    cupti_state_emit(VARVE_CAUSE_CUPTI_FATAL, 0, data->result, 0);
    fprintf(stderr,
            "varve: CUPTI reports a fatal error (%u: %s) and has ended: what this process does with device "
            "memory from now on is not recorded by it\n",
            data->result, data->message != NULL ? data->message : "no reason given");
}

static void on_callback(void *context, uint32_t domain, uint32_t id, const void *data)
{
    struct cupti_recorder *recorder = context;
    int saved_errno = errno;
    if (!__atomic_load_n(&recorder->is_on, __ATOMIC_ACQUIRE) || data == NULL) {
        return;
    }
    switch (domain) {
    case CUPTI_DOMAIN_DRIVER:
        cupti_calls_on_callback(recorder, id, data);
        break;
    case CUPTI_DOMAIN_RESOURCE:
        on_resource(recorder, id);
        break;
    case CUPTI_DOMAIN_STATE:
        if (id == CUPTI_STATE_FATAL) {
            on_fatal(recorder, data);
        }
        break;
    default:
        break;
    }
    errno = saved_errno;
}

/* ---- the subscription ---- */

static const char *result_text(const struct cupti_recorder *recorder, cupti_result result)
{
    const char *text = NULL;
    if (recorder->functions.result_text != NULL) {
        recorder->functions.result_text(result, &text);
    }
    return text != NULL ? text : "no name";
}

static cupti_result subscribe(struct cupti_recorder *recorder, char holder[CUPTI_NAME_BYTES * 2])
{
    struct cupti_subscriber_params params = {
        .bytes = sizeof(params), .name = "varve", .old_name = holder, .old_name_bytes = CUPTI_NAME_BYTES * 2};
    holder[0] = '\0';
    if (recorder->functions.subscribe_v2 != NULL) {
        return recorder->functions.subscribe_v2(&recorder->subscriber, on_callback, recorder, &params);
    }
    return recorder->functions.subscribe(&recorder->subscriber, on_callback, recorder);
}

static void cupti_recorder_refuse(const struct cupti_recorder *recorder, cupti_result result, const char *holder)
{
    cupti_state_emit(VARVE_CAUSE_CUPTI_REFUSED, 0, result, 0);
    if (result == CUPTI_RESULT_SUBSCRIPTION_TAKEN) {
        fprintf(stderr,
                "varve: CUPTI serves one profiler per process, and %s uses it already: this process is recorded "
                "without CUPTI; end the other one, or record with --cuda\n",
                holder[0] != '\0' ? holder : "another one");
    } else {
        fprintf(stderr,
                "varve: CUPTI refuses the subscription (%s, %u): this process is recorded without it; look at the "
                "versions of driver and libcupti, or record with --cuda\n",
                result_text(recorder, result), result);
    }
}

static void begin_subscription(struct cupti_recorder *recorder)
{
    recorder->functions.version(&recorder->version);
    char holder[CUPTI_NAME_BYTES * 2];
    cupti_result result = subscribe(recorder, holder);
    if (result != CUPTI_RESULT_SUCCESS) {
        cupti_recorder_refuse(recorder, result, holder);
        return;
    }
    cupti_driver_find();
    __atomic_store_n(&recorder->is_on, true, __ATOMIC_RELEASE);
    result = cupti_calls_enable(recorder);
    if (result != CUPTI_RESULT_SUCCESS) {
        __atomic_store_n(&recorder->is_on, false, __ATOMIC_RELEASE);
        recorder->functions.unsubscribe(recorder->subscriber);
        cupti_recorder_refuse(recorder, result, "");
        return;
    }
    cupti_state_emit(VARVE_CAUSE_CUPTI_BEGIN, 0, recorder->version,
                     0); /* a refusal after it is not the subscription's */
    clock_emit(recorder);
    result = cupti_activity_begin(recorder);
    if (result != CUPTI_RESULT_SUCCESS) {
        cupti_state_emit(VARVE_CAUSE_CUPTI_REFUSED, CUPTI_ACTIVITY_MEMORY, result, 0);
    }
}

/* ---- the end ---- */

/* What is still with CUPTI, and the last records. The first caller does it. `is_release`: we hear of no call
 * any more, while at the exit of the process the last frees may still come. */
static void emit_last(struct cupti_recorder *recorder, bool is_release)
{
    if (!__atomic_exchange_n(&recorder->has_ended, true, __ATOMIC_ACQ_REL)) {
        cupti_activity_end(recorder);
        clock_emit(recorder);
        cupti_state_emit(VARVE_CAUSE_CUPTI_END, 0, is_release, 0);
    }
}

static void cupti_recorder_leave(void)
{
    if (__atomic_load_n(&the_recorder->is_on, __ATOMIC_ACQUIRE)) { /* not so in a fork child */
        emit_last(the_recorder, false);
    }
}

void cupti_exit_watch_again(void)
{
    static bool is_done;
    if (!__atomic_exchange_n(&is_done, true, __ATOMIC_RELAXED)) {
        atexit(cupti_recorder_leave);
    }
}

int varve_cupti_release(void)
{
    struct cupti_recorder *recorder = the_recorder;
    if (recorder == NULL || !__atomic_load_n(&recorder->is_on, __ATOMIC_ACQUIRE)) {
        return 1;
    }
    emit_last(recorder, true);
    if (!__atomic_exchange_n(&recorder->is_on, false, __ATOMIC_ACQ_REL)) {
        return 1;
    }
    return recorder->functions.unsubscribe(recorder->subscriber) == CUPTI_RESULT_SUCCESS ? VARVE_OK : VARVE_ERROR_BUSY;
}

/* ---- the beginning ---- */

static struct cupti_recorder *recorder_create(void)
{
    long memory = syscall(SYS_mmap, NULL, RECORDER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                          0L); /* mmap may be a hook that records it */
    if (memory == -1) {
        return NULL;
    }
    if (syscall(SYS_madvise, memory, RECORDER_BYTES, MADV_WIPEONFORK) != 0) {
        syscall(SYS_munmap, memory, RECORDER_BYTES);
        return NULL;
    }
    return (struct cupti_recorder *)memory;
}

/* Does the CUDA recorder record the same calls? It is in the preload library, whose functions then are the ones
 * that serve us; without it those of libvarve_trace.so do. */
static bool has_cuda_recorder(void)
{
    bool (*wanted)(unsigned) = varve_records_wanted;
    void *address;
    memcpy(&address, &wanted, sizeof(address)); /* no cast in ISO C */
    Dl_info owner;
    return varve_records_wanted(VARVE_RECORDS_CUDA) &&
           (dladdr(address, &owner) == 0 || strstr(owner.dli_fname, "libvarve_trace.so") == NULL);
}

/* 1 is what the driver wants to hear; it is the answer in any case, since the program can do without us. */
int varve_cupti_initialize(void)
{
    if (!varve_records_wanted(VARVE_RECORDS_CUPTI) || the_recorder != NULL) {
        return 1;
    }
    the_recorder = recorder_create();
    if (the_recorder == NULL) {
        fprintf(stderr, "varve: no memory for the CUPTI recorder: this process is recorded without it\n");
        return 1;
    }
    the_recorder->flags = has_cuda_recorder() ? VARVE_FLAG_DUPLICATE : 0;
    struct varve_message message;
    if (cupti_library_open(&the_recorder->functions, &message) != VARVE_OK) {
        cupti_state_emit(VARVE_CAUSE_CUPTI_REFUSED, 0, 0, 0);
        fprintf(stderr, "varve: CUPTI is not used in this process: %s\n", message.text);
        return 1;
    }
    begin_subscription(the_recorder);
    atexit(cupti_recorder_leave);
    return 1;
}
