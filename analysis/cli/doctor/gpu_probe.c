/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, the CUDA driver and CUPTI as they really are: loaded, started and asked. A driver that does
 * not suit its kernel module, its container or its GPU may hang or crash then, so this is done by a child,
 * which says each step before it takes it; its last line is where it stopped. The few declarations of
 * the driver that are needed here are our own.
 */
#include "analysis/cli/doctor/gpu_probe.h"

#include "alloc/alloc.h"
#include "analysis/base/memory.h"
#include "analysis/cli/doctor/doctor.h"
#include "analysis/cli/doctor/program.h"
#include "trace/trace.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define STEP_LIMIT_MS 5000
#define ANSWER_BYTES 8192
#define CUDA_LIBRARY "libcuda.so.1"

/* ---- in the child: a line for each thing, "key words" ---- */

static void say(int output, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(int output, const char *format, ...)
{
    char line[600];
    va_list arguments;
    size_t length;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line) - 1, format, arguments);
    va_end(arguments);
    for (char *at = line; *at != '\0'; at++) {
        *at = *at == '\n' ? ' ' : *at;
    }
    length = strlen(line);
    line[length] = '\n';
    (void)!write(output, line, length + 1);
}

static void say_step(int output, enum probe_step step)
{
    say(output, "step %d", (int)step);
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

static void function_find(void *library, const char *name, void *field)
{
    void *found = dlsym(library, name);

    memcpy(field, &found, sizeof(found)); /* POSIX allows what C has no conversion for */
}

static void ask_devices(int output, const struct functions *functions)
{
    int count = 0;

    if (functions->count == NULL || functions->count(&count) != 0) {
        return;
    }
    say(output, "count %d", count);
    for (int ordinal = 0; ordinal < count && ordinal < PROBE_DEVICES; ordinal++) {
        char name[64] = "";
        size_t bytes = 0;
        int device = 0;

        if (functions->get != NULL && functions->get(&device, ordinal) == 0 && functions->name != NULL &&
            functions->name(name, (int)sizeof(name) - 1, device) == 0 && functions->total != NULL) {
            functions->total(&bytes, device);
        }
        say(output, "device %zu %s", bytes, name);
    }
}

/* Returns 0 if the driver has started. */
static int start_driver(int output, const struct functions *functions)
{
    const char *name = NULL;
    const char *text = NULL;
    int version = 0;
    int result;

    if (functions->version != NULL && functions->version(&version) == 0) {
        say(output, "version %d", version);
    }
    say_step(output, PROBE_STARTING);
    if (functions->init == NULL) {
        say(output, "result 500 it has no cuInit");
        return 500;
    }
    result = functions->init(0);
    if (result != 0) {
        /* the toolkit's stub has no words for anything */
        if (functions->error_name != NULL && functions->error_name(result, &name) != 0) {
            name = NULL;
        }
        if (functions->error_text != NULL && functions->error_text(result, &text) != 0) {
            text = NULL;
        }
    }
    if (name != NULL && text != NULL) {
        say(output, "result %d %s (%s)", result, name, text);
    } else {
        say(output, "result %d %s", result, name != NULL ? name : "");
    }
    return result;
}

static void say_library(int output, void *library)
{
    struct link_map *map = NULL;

    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != NULL) {
        say(output, "library %s", map->l_name);
    }
}

static void open_device(int output)
{
    const struct varve_cuda_options options = {0};
    struct varve_message message = {""};
    struct varve_device *device;
    int error = varve_cuda_open(&options, &device, &message);

    say(output, "opened %d %s", error, message.text);
    if (error == VARVE_OK) {
        device->ops->close(device);
    }
}

static void work_driver(int output)
{
    struct functions functions;
    void *library;

    say_step(output, PROBE_LOADING);
    library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();

        say(output, "unloadable %s", reason != NULL ? reason : "");
        return;
    }
    say_library(output, library);
    say_step(output, PROBE_FINDING);
#define PROBE_FIND(field, symbol, parameters) function_find(library, #symbol, &functions.field);
    PROBE_LIST(PROBE_FIND)
#undef PROBE_FIND
    if (start_driver(output, &functions) == 0) {
        say_step(output, PROBE_COUNTING);
        ask_devices(output, &functions);
        say_step(output, PROBE_OPENING);
        open_device(output);
    }
    say_step(output, PROBE_DONE);
}

/* ---- what it said ---- */

static void take_line(struct driver_probe *probe, const char *line)
{
    const char *space = strchr(line, ' ');
    const char *words = space != NULL ? space + 1 : "";
    char *rest;
    long long number = strtoll(words, &rest, 10);

    rest += *rest == ' ' ? 1 : 0;
    if (strncmp(line, "step ", 5) == 0) {
        probe->step = (enum probe_step)number;
    } else if (strncmp(line, "unloadable ", 11) == 0) {
        snprintf(probe->reason, sizeof(probe->reason), "%s", words);
    } else if (strncmp(line, "library ", 8) == 0) {
        snprintf(probe->library, sizeof(probe->library), "%s", words);
    } else if (strncmp(line, "version ", 8) == 0) {
        probe->version = (int)number;
    } else if (strncmp(line, "result ", 7) == 0) {
        probe->result = (int)number;
        snprintf(probe->reason, sizeof(probe->reason), "%s", rest);
    } else if (strncmp(line, "count ", 6) == 0) {
        probe->devices = (int)number;
    } else if (strncmp(line, "device ", 7) == 0 && probe->named < PROBE_DEVICES) {
        probe->device[probe->named].bytes = number;
        snprintf(probe->device[probe->named++].name, sizeof(probe->device[0].name), "%s", rest);
    } else if (strncmp(line, "opened ", 7) == 0) {
        probe->opened = (int)number;
        snprintf(probe->refusal, sizeof(probe->refusal), "%s", rest);
    }
}

void driver_probe(struct driver_probe *probe)
{
    char *text = memory_resize(NULL, ANSWER_BYTES);
    char *rest = NULL;
    int status;

    *probe = (struct driver_probe){.step = PROBE_LOADING};
    probe->answer = child_run(work_driver, STEP_LIMIT_MS, text, ANSWER_BYTES, &status);
    probe->signal = probe->answer == PROGRAM_FAILED && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        take_line(probe, line);
    }
    free(text);
}

const char *probe_step_text(enum probe_step step)
{
    static const char *const texts[] = {
        "being loaded", "being queried for its version", "cuInit", "listing the devices", "opening device 0",
        "the end",
    };

    return (unsigned)step <= PROBE_DONE ? texts[step] : "";
}

/* ---- CUPTI ---- */

static const char *cupti_path; /* for the child alone */

static void work_cupti(int output)
{
    int (*get_version)(uint32_t * version_out);
    void *library = dlopen(cupti_path, RTLD_NOW | RTLD_LOCAL);
    uint32_t version = 0;

    if (library == NULL) {
        const char *reason = dlerror();

        say(output, "unloadable %s", reason != NULL ? reason : "");
        return;
    }
    function_find(library, "cuptiGetVersion", &get_version);
    if (get_version != NULL && get_version(&version) == 0) {
        say(output, "version %u", version);
    }
}

void cupti_probe(struct cupti_probe *probe, const char *path)
{
    char *text = memory_resize(NULL, ANSWER_BYTES);
    char *rest = NULL;
    int status;

    *probe = (struct cupti_probe){.version = 0};
    cupti_path = path;
    probe->answer = child_run(work_cupti, STEP_LIMIT_MS, text, ANSWER_BYTES, &status);
    probe->signal = probe->answer == PROGRAM_FAILED && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "version ", 8) == 0) {
            probe->version = (int)strtol(line + 8, NULL, 10);
        } else if (strncmp(line, "unloadable ", 11) == 0) {
            snprintf(probe->reason, sizeof(probe->reason), "%s", line + 11);
        }
    }
    free(text);
}
