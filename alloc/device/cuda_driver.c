/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the CUDA driver at run time. A machine may have none, or one without a device, without permission, of
 * another version or only the toolkit's stub: each is one line of a reason here, never a crash. The library
 * stays loaded until the process ends, since the driver's threads and exit handlers are in it.
 *
 * After a fork the driver does not work in the child, and its calls there may hang on locks that another
 * thread held; so in the child loading fails, and nothing is called.
 */
#include "alloc/device/cuda_driver.h"
#include "base/error.h"

#include <stdbool.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define CUDA_LIBRARY "libcuda.so.1"
#define CUDA_CONTROL "/dev/nvidiactl"

/* One driver per process, as it has one itself. Written by load_once alone. */
static struct {
    pthread_once_t once;
    struct cuda_driver driver;
    int error;
    struct varve_message message;
    pid_t pid;
} loaded = {.once = PTHREAD_ONCE_INIT};

/* ---- results ---- */

struct result {
    cuda_result number;
    int error;
    const char *name; /* the driver does not always know: its stub has no names at all */
};

static const struct result results[] = {{CUDA_RESULT_SUCCESS, VARVE_OK, "CUDA_SUCCESS"},
#define CUDA_RESULT_ROW(NAME, number, error) {(number), VARVE_ERROR_##error, "CUDA_ERROR_" #NAME},
                                        CUDA_RESULT_LIST(CUDA_RESULT_ROW)
#undef CUDA_RESULT_ROW
};

static const struct result *result_find(cuda_result number)
{
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        if (results[i].number == number) {
            return &results[i];
        }
    }
    return NULL;
}

int cuda_driver_error(cuda_result result)
{
    const struct result *found = result_find(result);
    return found ? found->error : VARVE_ERROR_IO;
}

void cuda_driver_describe(const struct cuda_driver *driver, cuda_result result, char *text, size_t size)
{
    const char *name = NULL, *meaning = NULL;
    if (driver->error_name(result, &name) != CUDA_RESULT_SUCCESS || !name) {
        const struct result *found = result_find(result);
        name = found ? found->name : NULL;
    }
    if (driver->error_text(result, &meaning) != CUDA_RESULT_SUCCESS) {
        meaning = NULL;
    }
    if (!name) {
        snprintf(text, size, "CUDA error %u", result);
    } else if (!meaning) {
        snprintf(text, size, "%s", name);
    } else {
        snprintf(text, size, "%s (%s)", name, meaning);
    }
}

/* ---- finding the functions ---- */

/* POSIX promises that what dlsym returns can be a function; C has no conversion that says so. */
static void function_set(void *field, void *function)
{
    memcpy(field, &function, sizeof(function));
}

static void *cuda_driver_function_find(void *library, const char *symbol, const char *exported, int version)
{
    void *by_version_v2 = dlsym(library, "cuGetProcAddress_v2");
    void *by_version = dlsym(library, "cuGetProcAddress");
    void *found = NULL;
    cuda_result result = CUDA_RESULT_NOT_FOUND;
    if (by_version_v2) {
        cuda_address_get_v2 get;
        function_set(&get, by_version_v2);
        enum cuda_address_status status = CUDA_ADDRESS_FOUND;
        result = get(symbol, &found, version, CUDA_ADDRESS_DEFAULT, &status);
    } else if (by_version) {
        cuda_address_get get;
        function_set(&get, by_version);
        result = get(symbol, &found, version, CUDA_ADDRESS_DEFAULT);
    }
    return result == CUDA_RESULT_SUCCESS && found ? found : dlsym(library, exported);
}

static int functions_find(void *library, struct cuda_driver *driver, struct varve_message *message)
{
    const char *missing = NULL;
    void *found;

#define CUDA_DRIVER_FIND(field, symbol, exported, version, parameters)       \
    found = cuda_driver_function_find(library, #symbol, #exported, version); \
    missing = found || missing ? missing : #exported;                        \
    function_set(&driver->field, found);
    CUDA_DRIVER_LIST(CUDA_DRIVER_FIND)
#undef CUDA_DRIVER_FIND
#define CUDA_DRIVER_FIND(field, symbol, exported, version, parameters) \
    function_set(&driver->field, cuda_driver_function_find(library, #symbol, #exported, version));
    CUDA_DRIVER_POOL_LIST(CUDA_DRIVER_FIND)
    CUDA_DRIVER_TRANSFER_LIST(CUDA_DRIVER_FIND)
    CUDA_DRIVER_PROGRAM_LIST(CUDA_DRIVER_FIND)
#undef CUDA_DRIVER_FIND
    if (missing) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "cuda: the driver has no %s; one for CUDA %d.%d or newer is needed", missing,
                                 CUDA_VERSION_OLDEST / 1000, CUDA_VERSION_OLDEST % 1000 / 10);
    }
    return VARVE_OK;
}

/* ---- starting ---- */

/* With no right to its device files, the driver says that there is no device, or that something is unknown.
 */
static bool cuda_driver_is_forbidden(void)
{
    return access(CUDA_CONTROL, R_OK | W_OK) != 0 && errno == EACCES;
}

static int driver_start(const struct cuda_driver *driver, struct varve_message *message)
{
    int version = 0;
    cuda_result result = driver->driver_version(&version);
    if (result == CUDA_RESULT_SUCCESS && version < CUDA_VERSION_OLDEST) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "cuda: the driver is for CUDA %d.%d; %d.%d is the oldest that will do", version / 1000,
                                 version % 1000 / 10, CUDA_VERSION_OLDEST / 1000, CUDA_VERSION_OLDEST % 1000 / 10);
    }
    VARVE_THEN(result, driver->init(0));
    if (result == CUDA_RESULT_SUCCESS) {
        return VARVE_OK;
    }
    char text[200];
    cuda_driver_describe(driver, result, text, sizeof(text));
    if (cuda_driver_is_forbidden()) {
        return varve_message_set(message, VARVE_ERROR_PERMISSION,
                                 "cuda: no right to read and write %s; the driver says %s", CUDA_CONTROL, text);
    }
    if (result == CUDA_RESULT_NOT_INITIALIZED) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "cuda: %s; the fork child of a process that used CUDA has none until it "
                                 "executes a program",
                                 text);
    }
    /* a driver that does not start is none, whatever it calls that */
    return varve_message_set(
        message, cuda_driver_error(result) == VARVE_ERROR_PERMISSION ? VARVE_ERROR_PERMISSION : VARVE_ERROR_UNSUPPORTED,
        "cuda: the driver does not start: %s", text);
}

static void load_once(void)
{
    void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    loaded.pid = getpid();
    if (!library) {
        const char *reason = dlerror();
        loaded.error = varve_message_set(&loaded.message, VARVE_ERROR_UNSUPPORTED, "cuda: no driver here: %s",
                                         reason ? reason : CUDA_LIBRARY " can't be loaded");
        return;
    }
    loaded.error = functions_find(library, &loaded.driver, &loaded.message);
    VARVE_THEN(loaded.error, driver_start(&loaded.driver, &loaded.message));
}

int cuda_driver_load(const struct cuda_driver **driver_out, struct varve_message *message)
{
    pthread_once(&loaded.once, load_once);
    if (loaded.error != VARVE_OK) {
        return varve_message_set(message, loaded.error, "%s", loaded.message.text);
    }
    if (loaded.pid != getpid()) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "cuda: the fork child of a process that used CUDA has none until it "
                                 "executes a program");
    }
    *driver_out = &loaded.driver;
    return VARVE_OK;
}

/* ---- names ---- */

/* Of no other use here, so not in the table: a driver without them is good enough. */
void cuda_driver_identify(cuda_ordinal device, unsigned char uuid_out[16], char *name_out, size_t name_bytes)
{
    cuda_result (*get_uuid)(unsigned char *uuid_out, cuda_ordinal device);
    cuda_result (*get_name)(char *name_out, int size, cuda_ordinal device);
    void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) {
        return;
    }
    void *found = dlsym(library, "cuDeviceGetUuid_v2");
    function_set(&get_uuid, found != NULL ? found : dlsym(library, "cuDeviceGetUuid"));
    function_set(&get_name, dlsym(library, "cuDeviceGetName"));
    if (get_uuid == NULL || get_uuid(uuid_out, device) != CUDA_RESULT_SUCCESS) {
        memset(uuid_out, 0, 16);
    }
    if (get_name == NULL || get_name(name_out, (int)name_bytes, device) != CUDA_RESULT_SUCCESS) {
        name_out[0] = '\0';
    }
    dlclose(library);
}
