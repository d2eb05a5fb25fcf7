/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, the CUDA driver and CUPTI as they really are: loaded, started and asked. A driver that does
 * not suit its kernel module, its container or its GPU may hang or crash then, so this is done by a child,
 * which says each step before it takes it; its last line is where it stopped. The few declarations of
 * the driver that are needed here are our own.
 */
#include "analysis/cli/doctor/doctor_gpu_probe.h"

#include "alloc/alloc.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/cli/doctor/doctor.h"
#include "analysis/cli/doctor/doctor_program.h"
#include "base/error.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_LIMIT_MS 5000
#define ANSWER_BYTES (sizeof(struct driver_probe) * 16)
#define CUDA_LIBRARY "libcuda.so.1"

/* ---- in the child, which writes what it knows at each step ---- */

static void say(int output, const struct driver_probe *probe)
{
    (void)!write(output, probe, sizeof(*probe));
}

static void say_step(int output, struct driver_probe *probe, enum probe_step step)
{
    probe->step = step;
    say(output, probe);
}

/* A name or a reason of others; "" for NULL. */
static void set_words(char *words, size_t bytes, const char *text)
{
    snprintf(words, bytes, "%s", text != NULL ? text : "");
    for (; *words != '\0'; words++) {
        *words = *words == '\n' ? ' ' : *words;
    }
}

/* X(field, exported name, parameters) */
/* clang-format off */
#define PROBE_LIST(X)                                               \
    X(version, cuDriverGetVersion, (int *version_out))              \
    X(init, cuInit, (unsigned flags))                               \
    X(error_name, cuGetErrorName, (int result, const char **out))   \
    X(error_text, cuGetErrorString, (int result, const char **out)) \
    X(count, cuDeviceGetCount, (int *count_out))                    \
    X(get, cuDeviceGet, (int *device_out, int ordinal))             \
    X(name, cuDeviceGetName, (char *name, int bytes, int device))   \
    X(total, cuDeviceTotalMem_v2, (size_t *bytes_out, int device))
/* clang-format on */

struct functions {
#define PROBE_FIELD(field, symbol, parameters) int(*field) parameters;
    PROBE_LIST(PROBE_FIELD)
#undef PROBE_FIELD
};

static void doctor_gpu_probe_function_find(void *library, const char *name, void *field)
{
    void *found = dlsym(library, name);
    memcpy(field, &found, sizeof(found)); /* POSIX allows what C has no conversion for */
}

static void ask_devices(struct driver_probe *probe, const struct functions *functions)
{
    if (functions->count == NULL || functions->count(&probe->devices) != 0) {
        return;
    }
    for (int ordinal = 0; ordinal < probe->devices && ordinal < PROBE_DEVICES; ordinal++) {
        char name[64] = "";
        size_t bytes = 0;
        int device = 0;
        if (functions->get != NULL && functions->get(&device, ordinal) == 0 && functions->name != NULL &&
            functions->name(name, (int)sizeof(name) - 1, device) == 0 && functions->total != NULL) {
            functions->total(&bytes, device);
        }
        probe->device[ordinal].bytes = (int64_t)bytes;
        set_words(probe->device[ordinal].name, sizeof(probe->device[ordinal].name), name);
        probe->named = ordinal + 1;
    }
}

static void start_driver(int output, struct driver_probe *probe, const struct functions *functions)
{
    if (functions->version == NULL || functions->version(&probe->version) != 0) {
        probe->version = 0;
    }
    say_step(output, probe, PROBE_STARTING);
    if (functions->init == NULL) {
        probe->result = 500;
        set_words(probe->reason, sizeof(probe->reason), "it has no cuInit");
        return;
    }
    probe->result = functions->init(0);
    if (probe->result == 0) {
        return;
    }
    const char *name = NULL;
    /* the toolkit's stub has no words for anything */
    if (functions->error_name != NULL && functions->error_name(probe->result, &name) != 0) {
        name = NULL;
    }
    const char *text = NULL;
    if (functions->error_text != NULL && functions->error_text(probe->result, &text) != 0) {
        text = NULL;
    }
    char reason[sizeof(probe->reason)];
    snprintf(reason, sizeof(reason), name != NULL && text != NULL ? "%s (%s)" : "%s", name != NULL ? name : "", text);
    set_words(probe->reason, sizeof(probe->reason), reason);
}

static void doctor_gpu_probe_open_device(struct driver_probe *probe)
{
    const struct varve_cuda_options options = {0};
    struct varve_message message = {""};
    struct varve_device *device;
    probe->opened = varve_cuda_open(&options, &device, &message);
    set_words(probe->refusal, sizeof(probe->refusal), message.text);
    if (probe->opened == VARVE_OK) {
        device->ops->close(device);
    }
}

static void work_driver(int output, const void *context)
{
    struct driver_probe probe = *(const struct driver_probe *)context;
    struct functions functions;
    struct link_map *map = NULL;
    void *library;
    say_step(output, &probe, PROBE_LOADING);
    library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        set_words(probe.reason, sizeof(probe.reason), dlerror());
        say(output, &probe);
        return;
    }
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != NULL) {
        set_words(probe.library, sizeof(probe.library), map->l_name);
    }
    say_step(output, &probe, PROBE_FINDING);
#define PROBE_FIND(field, symbol, parameters) doctor_gpu_probe_function_find(library, #symbol, &functions.field);
    PROBE_LIST(PROBE_FIND)
#undef PROBE_FIND
    start_driver(output, &probe, &functions);
    if (probe.result == 0) {
        say_step(output, &probe, PROBE_COUNTING);
        ask_devices(&probe, &functions);
        say_step(output, &probe, PROBE_OPENING);
        doctor_gpu_probe_open_device(&probe);
    }
    say_step(output, &probe, PROBE_DONE);
}

void driver_probe(struct driver_probe *probe)
{
    char *text = memory_resize(NULL, ANSWER_BYTES);
    *probe = (struct driver_probe){.step = PROBE_LOADING};
    struct child_end end = child_run(work_driver, probe, STEP_LIMIT_MS, text, ANSWER_BYTES);
    if (end.bytes >= sizeof(*probe)) {
        memcpy(probe, text + (end.bytes / sizeof(*probe) - 1) * sizeof(*probe), sizeof(*probe));
    }
    probe->answer = end.answer;
    probe->signal = end.signal;
    free(text);
}

const char *probe_step_text(enum probe_step step)
{
    static const char *const texts[] = {
        "being loaded", "being queried for its version", "cuInit", "listing the devices", "opening device 0", "the end",
    };
    return (unsigned)step <= PROBE_DONE ? texts[step] : "";
}

/* ---- CUPTI ---- */

static void work_cupti(int output, const void *path)
{
    struct cupti_probe probe = {.version = 0};
    int (*get_version)(uint32_t * version_out);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    uint32_t version = 0;
    if (library == NULL) {
        set_words(probe.reason, sizeof(probe.reason), dlerror());
    } else {
        doctor_gpu_probe_function_find(library, "cuptiGetVersion", &get_version);
        if (get_version != NULL && get_version(&version) == 0) {
            probe.version = (int)version;
        }
    }
    (void)!write(output, &probe, sizeof(probe));
}

void cupti_probe(struct cupti_probe *probe, const char *path)
{
    char text[sizeof(*probe) + 1];
    struct child_end end = child_run(work_cupti, path, STEP_LIMIT_MS, text, sizeof(text));
    *probe = (struct cupti_probe){.version = 0};
    if (end.bytes == sizeof(*probe)) {
        memcpy(probe, text, sizeof(*probe));
    }
    probe->answer = end.answer;
    probe->signal = end.signal;
}
