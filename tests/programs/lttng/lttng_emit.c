/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lttng_emit LIBRARY COUNT [kill | storm]: emits COUNT records to LTTng through the provider library, which it
 * opens by its path. Prints how many it emitted; then it ends or kills itself. `storm`: several threads go on
 * emitting for a moment before, so that it dies in the middle of an event, or nearly. Exit status 3: the
 * library cannot be opened or no session wants the events within 10 s.
 */
#include "trace/format/sink_provider.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void started(void *context)
{
    (void)context;
}

static const struct sink_provider *provider_open(const char *path)
{
    static const struct sink_host host = {.started = started};
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    sink_provider_open *open_provider = NULL;
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return NULL;
    }
    *(void **)&open_provider = dlsym(library, SINK_PROVIDER_SYMBOL);
    return open_provider != NULL ? open_provider(SINK_INTERFACE_VERSION, &host) : NULL;
}

static int is_wanted(const struct sink_provider *provider)
{
    for (int i = 0; i < 10000; i++) {
        struct timespec time = {0, 1000000};
        if (__atomic_load_n(provider->enabled[VARVE_KIND_ALLOC], __ATOMIC_RELAXED) > 0) {
            return 1;
        }
        nanosleep(&time, NULL);
    }
    return 0;
}

struct storm {
    const struct sink_provider *provider;
    uint32_t ring;
};

static void *emit_for_ever(void *argument)
{
    const struct storm *storm = argument;
    struct varve_sink_origin origin = {.process = 1, .ring = storm->ring, .pid = (int32_t)getpid()};
    for (uint64_t i = 1;; i++) {
        struct varve_record record = {.addr = 16 * i, .size = 16};
        record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_ALLOC, 0);
        storm->provider->record(&origin, i, &record);
    }
    return NULL;
}

static void storm(const struct sink_provider *provider)
{
    static struct storm storms[6];
    struct timespec time = {0, 30000000};
    for (uint32_t i = 0; i < sizeof(storms) / sizeof(storms[0]); i++) {
        storms[i] = (struct storm){provider, i + 2};
        pthread_t thread;
        pthread_create(&thread, NULL, emit_for_ever, &storms[i]);
    }
    nanosleep(&time, NULL);
}

int main(int argc, char **argv)
{
    const struct sink_provider *provider = argc > 2 ? provider_open(argv[1]) : NULL;
    struct varve_sink_origin origin = {.process = 1, .ring = 1, .pid = (int32_t)getpid()};
    unsigned long long count = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (provider == NULL || !is_wanted(provider)) {
        return 3;
    }
    origin.tid = origin.pid;
    for (unsigned long long i = 1; i <= count; i++) {
        struct varve_record record = {.addr = 16 * i, .size = 16};
        record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_ALLOC, 0);
        provider->record(&origin, i, &record);
    }
    printf("%llu\n", count);
    fflush(stdout);
    if (argc > 3 && strcmp(argv[3], "storm") == 0) {
        storm(provider);
    }
    if (argc > 3 && argv[3][0] != '\0') {
        raise(SIGKILL);
    }
    return 0;
}
