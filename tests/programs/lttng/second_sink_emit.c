/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens the provider library as recorder and collector do and emits to it made-up records and facts, whose
 * values follow from kind and cause alone, so that a reader of the trace can work them out again. Commands
 * come by stdin, one per line; each is answered by one line, so that a test can put them between steps of its
 * own (a session that starts, an event that is enabled) without waiting for time to pass.
 *
 *   open PATH     dlopen and varve_sink_provider     opened
 *   on            how many kinds are on, how often `started` came, how many kinds were on at its last call
 *   wait N        until `started` came N times
 *   records       one record of every kind and cause, and of what has no tracepoint
 *   facts         one of everything else
 *   cancel        cancels a thread that emits records; 1 if that ended it in the middle of one
 *
 * second_sink_emit LIBRARY COUNT [kill | storm] emits COUNT records, prints how many, and ends or kills itself.
 * `storm`: several threads go on emitting for a moment before, so that it dies in the middle of an event, or nearly.
 * Exit status 3: the library cannot be opened or no session wants the events within 10 s.
 */
#include "trace/format/sink_provider.h"
#include "trace/record.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct sink_provider *provider;

static struct {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t changed;
    unsigned calls, kinds_on;
} begun = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static unsigned kinds_on(void)
{
    unsigned count = 0;
    for (unsigned kind = 0; provider != NULL && kind < 256; kind++) {
        count += *provider->enabled[kind] > 0;
    }
    return count;
}

static void started(void *context)
{
    if (context != &begun) {
        abort();
    }
    pthread_mutex_lock(&begun.lock);
    begun.calls++;
    begun.kinds_on = kinds_on();
    pthread_cond_broadcast(&begun.changed);
    pthread_mutex_unlock(&begun.lock);
}

static const struct sink_host host = {.context = &begun, .started = started};

static int open_provider(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "second_sink_emit: %s\n", dlerror());
        return 1;
    }
    void *symbol = dlsym(library, SINK_PROVIDER_SYMBOL);
    sink_provider_open *open;
    memcpy(&open, &symbol, sizeof(open));
    if (open == NULL || open(SINK_INTERFACE_VERSION + 1, &host) != NULL) {
        fprintf(stderr, "second_sink_emit: no %s, or one that takes any version\n", SINK_PROVIDER_SYMBOL);
        return 1;
    }
    pthread_mutex_lock(&begun.lock);
    provider = open(SINK_INTERFACE_VERSION, &host);
    pthread_mutex_unlock(&begun.lock);
    if (provider == NULL || provider->version != SINK_INTERFACE_VERSION) {
        fprintf(stderr, "second_sink_emit: the library does not open\n");
        return 1;
    }
    return 0;
}

static void wait_for_start(unsigned calls)
{
    pthread_mutex_lock(&begun.lock);
    while (begun.calls < calls) {
        pthread_cond_wait(&begun.changed, &begun.lock);
    }
    pthread_mutex_unlock(&begun.lock);
    printf("waited\n");
}

static void emit_record(unsigned kind, unsigned cause)
{
    uint64_t number = (uint64_t)kind * 1000 + cause;
    struct varve_sink_origin origin = {
        .process = (uint32_t)(4000000000 + number),
        .ring = (uint32_t)(3000000000 + number),
        .pid = (int32_t)(2000000000 + number),
        .tid = -(int32_t)number,
    };
    struct varve_record record = {
        .ticks = (UINT64_C(1) << 63) + number,
        .addr = UINT64_C(0xffff800000000000) + number,
        .size = UINT64_MAX - number,
        .requested = (UINT64_C(1) << 62) + number,
        .arg = (UINT64_C(3) << 62) + number,
        .id_stream = ((UINT64_C(1) << 47) + number) | ((UINT64_C(0xf000) + cause) << 48),
        .dev_seq_kind_flags = varve_record_tag((UINT64_C(3) << 46) + number, kind, 0xff - cause),
        .callsite = (uint32_t)(UINT32_MAX - number),
        .pool = (uint16_t)(0x8000 + kind),
        .device = (uint8_t)(255 - kind),
        .cause = (uint8_t)cause,
    };
    provider->record(&origin, (UINT64_C(1) << 48) + number, &record);
}

static void emit_records(void)
{
    static const unsigned causes[] = {
#define CAUSE_CODE(code, NAME, text) (code),
        VARVE_CAUSE_LIST(CAUSE_CODE)
#undef CAUSE_CODE
            200};
    for (unsigned kind = 0; kind < 256; kind++) {
        for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
            emit_record(kind, causes[i]);
        }
    }
    printf("reported\n");
}

static void emit_processes(void)
{
    const struct varve_sink_origin origin = {.process = 11, .ring = 12, .pid = 13, .tid = 14};
    provider->process(
        &(struct varve_sink_process){.trace_id = UINT64_C(0xfedcba9876543210),
                                     .process = 21,
                                     .parent = 22,
                                     .pid = 23,
                                     .parent_pid = 24,
                                     .rank = -1,
                                     .clock_kind = VARVE_CLOCK_TSC,
                                     .start_ticks = UINT64_MAX - 25,
                                     .start_ticks_proc = UINT64_MAX - 26,
                                     .executable = "/bin/some thing",
                                     .command_line = "some \"thing\" --with=\\ 'quotes', = and { } \xc3\xa4"});
    provider->process(&(struct varve_sink_process){.trace_id = 1});
    provider->process_end(
        &(struct varve_sink_process_end){.process = 31, .pid = 32, .end = VARVE_SINK_END_RUNNING, .exec_path = NULL});
    provider->process_end(
        &(struct varve_sink_process_end){.process = 31, .pid = 32, .end = VARVE_SINK_END_EXITED, .exec_path = ""});
    provider->process_end(&(struct varve_sink_process_end){
        .process = 31, .pid = 32, .end = VARVE_SINK_END_EXECUTING, .exec_path = "/bin/next"});
    provider->thread(
        &(struct varve_sink_thread){.origin = origin, .created_ticks = UINT64_MAX - 15, .name = "worker 1"});
    provider->thread_end(&(struct varve_sink_thread_end){
        .origin = origin, .emitted = UINT64_MAX - 16, .lost = 17, .lost_bytes = UINT64_MAX - 18});
    provider->clock(&(struct varve_sink_clock){
        .trace_id = 41, .ticks = UINT64_MAX - 42, .mono_ns = -43, .real_ns = INT64_MAX - 44});
}

static void emit_code(void)
{
    static const uint8_t build_id[] = {0x00, 0x7f, 0x80, 0xff};
    static const uint64_t native[] = {UINT64_C(0x7fffffffffff), 0, UINT64_MAX};
    static const uint32_t codes[] = {1, 0, UINT32_MAX, 4};
    static const uint32_t lines[] = {10, UINT32_C(0x80000000), 0, 40};
    provider->module(&(struct varve_sink_module){.process = 51,
                                                 .pid = 52,
                                                 .base = UINT64_C(0x7f0000000000),
                                                 .end = UINT64_C(0x7f0000001000),
                                                 .bias = UINT64_MAX - 53,
                                                 .number = 54,
                                                 .build_id_bytes = sizeof(build_id),
                                                 .build_id = build_id,
                                                 .path = "/lib/libsome.so.6"});
    provider->module(&(struct varve_sink_module){.process = 55});
    provider->module_gone(61, 62, 63);
    provider->code(&(struct varve_sink_code){
        .process = 71, .pid = 72, .code = 73, .first_line = 74, .function = "forward", .file = "net.py"});
    provider->callsite(&(struct varve_sink_callsite){.process = 81,
                                                     .pid = 82,
                                                     .callsite = 83,
                                                     .native_count = 3,
                                                     .python_count = 4,
                                                     .native = native,
                                                     .codes = codes,
                                                     .lines = lines});
    provider->callsite(&(struct varve_sink_callsite){.process = 84});
    provider->meta_text(91, "host", "some name");
    provider->meta_text(92, "nothing", NULL);
    provider->meta_integer(93, "least", INT64_MIN);
}

static volatile bool is_emitting; /* of one thread at a time, read when it has ended */
static volatile unsigned reported;

static void *emit_until_cancelled(void *unused)
{
    (void)unused;
    for (;;) {
        is_emitting = true;
        emit_record(VARVE_KIND_HEAP_ALLOC, VARVE_CAUSE_MALLOC);
        is_emitting = false;
        reported++;
        pthread_testcancel();
    }
    return NULL;
}

static int cancel_thread(void)
{
    const struct timespec pause = {.tv_nsec = 100000};
    reported = 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, emit_until_cancelled, NULL) != 0) {
        return 2;
    }
    while (reported < 200) { /* more than the smallest buffers hold */
        nanosleep(&pause, NULL);
    }
    pthread_cancel(thread);
    void *result;
    pthread_join(thread, &result);
    if (result != PTHREAD_CANCELED) {
        return 2;
    }
    printf("cancelled %d\n", is_emitting);
    return 0;
}

static int obey(char *line)
{
    char *argument = strchr(line, ' ');
    line[strcspn(line, "\n")] = '\0';
    if (argument != NULL) {
        *argument++ = '\0';
    }
    if (strcmp(line, "open") == 0 && argument != NULL) {
        if (open_provider(argument) != 0) {
            return 1;
        }
        puts("opened");
        return 0;
    }
    if (provider == NULL) {
        return 2;
    }
    if (strcmp(line, "on") == 0) {
        pthread_mutex_lock(&begun.lock);
        printf("on %u %u %u\n", kinds_on(), begun.calls, begun.kinds_on);
        pthread_mutex_unlock(&begun.lock);
    } else if (strcmp(line, "wait") == 0 && argument != NULL) {
        wait_for_start((unsigned)strtoul(argument, NULL, 10));
    } else if (strcmp(line, "records") == 0) {
        emit_records();
    } else if (strcmp(line, "facts") == 0) {
        emit_processes();
        emit_code();
        printf("reported\n");
    } else if (strcmp(line, "cancel") == 0) {
        return cancel_thread();
    } else {
        return 2;
    }
    return 0;
}

/* ---- with arguments ---- */

static void emit_counted(uint32_t ring, int32_t tid, uint64_t number)
{
    const struct varve_sink_origin origin = {.process = 1, .ring = ring, .pid = (int32_t)getpid(), .tid = tid};
    struct varve_record record = {.addr = 16 * number, .size = 16};
    record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_ALLOC, 0);
    provider->record(&origin, number, &record);
}

static void *emit_for_ever(void *ring)
{
    for (uint64_t i = 1;; i++) {
        emit_counted((uint32_t)(uintptr_t)ring, 0, i);
    }
    return NULL;
}

static bool is_wanted(void)
{
    const struct timespec time = {0, 1000000};
    for (int i = 0; i < 10000 && __atomic_load_n(provider->enabled[VARVE_KIND_ALLOC], __ATOMIC_RELAXED) <= 0; i++) {
        nanosleep(&time, NULL);
    }
    return __atomic_load_n(provider->enabled[VARVE_KIND_ALLOC], __ATOMIC_RELAXED) > 0;
}

static int emit_some(const char *library, const char *number, const char *how)
{
    const struct timespec moment = {0, 30000000};
    unsigned long long count = strtoull(number, NULL, 10);
    if (open_provider(library) != 0 || !is_wanted()) {
        return 3;
    }
    for (unsigned long long i = 1; i <= count; i++) {
        emit_counted(1, (int32_t)getpid(), i);
    }
    printf("%llu\n", count);
    fflush(stdout);
    for (uintptr_t ring = 2; strcmp(how, "storm") == 0 && ring < 8; ring++) {
        pthread_t thread;
        pthread_create(&thread, NULL, emit_for_ever, (void *)ring);
    }
    if (how[0] != '\0') {
        nanosleep(&moment, NULL);
        raise(SIGKILL);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        return emit_some(argv[1], argv[2], argc > 3 ? argv[3] : "");
    }
    char line[4200];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        int status = obey(line);
        if (status != 0) {
            return status;
        }
        fflush(stdout);
    }
    return 0;
}
