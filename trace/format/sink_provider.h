/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider library (libvarve_lttng.so): the one part that knows LTTng-UST. Recorder and collector open it
 * by dlopen when a session asks for it, and call it through this table, so nothing depends on LTTng
 * otherwise.
 *
 * Who emits what. A recorded process emits its own records, each before it commits it to the ring, and marks
 * it with VARVE_FLAG_SECOND_SINK. The collector emits the records without that mark (emitted before LTTng was up
 * in the process, after it was down, or in a fork child), and everything in sink.h. The
 * union is what the rings held, but for what LTTng does not deliver of a killed program.
 */
#ifndef VARVE_TRACE_FORMAT_SINK_PROVIDER_H
#define VARVE_TRACE_FORMAT_SINK_PROVIDER_H

#include "trace/sink.h"
#include "trace/record.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define SINK_INTERFACE_VERSION 3U
#define SINK_PROVIDER_SYMBOL "varve_sink_provider" /* sink_provider_open */

/* What the provider may call: in a thread of LTTng's, which holds a lock of LTTng's meanwhile (so it must not
 * wait for a thread that forks, exits or opens libraries), perhaps before sink_provider_open has returned.
 */
struct sink_host {
    void *context;
    /* A trace that wants our events has begun, or one more. Not for one that runs already when the library is
     * opened, nor for events that are enabled in a running one: look at `enabled`. */
    void (*started)(void *context);
};

struct sink_provider {
    uint32_t version;
    /* [kind]: above 0 while the tracepoint of that kind is on; kinds without one point to a 0. */
    const int *const *enabled;
    /* Async-signal-safe after the thread's first call, which may allocate; errno is changed. */
    void (*record)(const struct varve_sink_origin *origin, uint64_t ring_seq, const struct varve_record *record);
    void (*process)(const struct varve_sink_process *process);
    void (*process_end)(const struct varve_sink_process_end *end);
    void (*thread)(const struct varve_sink_thread *thread);
    void (*thread_end)(const struct varve_sink_thread_end *end);
    void (*clock)(const struct varve_sink_clock *clock);
    void (*module)(const struct varve_sink_module *module);
    void (*module_gone)(uint32_t process, int32_t pid, uint32_t number);
    void (*code)(const struct varve_sink_code *code);
    void (*callsite)(const struct varve_sink_callsite *callsite);
    void (*meta_text)(uint64_t trace_id, const char *key, const char *value);
    void (*meta_integer)(uint64_t trace_id, const char *key, int64_t value);
};

/// Of the library, once per process; NULL if `version` is another one, or without memory. `host` must stay.
typedef const struct sink_provider *sink_provider_open(uint32_t version, const struct sink_host *host);

/// The library's one function; NULL if it cannot be opened (dlerror says why). The library stays open.
static inline sink_provider_open *sink_provider_find(const char *path)
{
    sink_provider_open *found = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library != NULL ? dlsym(library, SINK_PROVIDER_SYMBOL) : NULL;

    memcpy(&found, &symbol, sizeof(symbol)); /* ISO C knows no cast from one to the other */
    return found;
}

#endif
