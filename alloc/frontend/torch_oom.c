/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Observers of requests that have failed: they are called afterwards, in PyTorch's terms. They run with no lock held,
 * since Python waits for its own lock in them; so one that is being removed may still be called.
 */
#include "alloc/frontend/registry.h"
#include "alloc/frontend/torch.h"

#include <pthread.h>
#include <string.h>

#define OBSERVERS 8

struct oom_observer {
    varve_torch_oom_observer call;
    void *context;
};

static struct {
    pthread_mutex_t mutex;
    unsigned count;
    struct oom_observer observers[OBSERVERS];
} list = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void torch_oom_report(const struct frontend_device *device, const struct varve_alloc_oom *oom)
{
    pthread_mutex_lock(&list.mutex);
    unsigned count = list.count;
    struct oom_observer observers[OBSERVERS];
    memcpy(observers, list.observers, sizeof(observers));
    pthread_mutex_unlock(&list.mutex);
    for (unsigned i = 0; i < count; i++) {
        observers[i].call(observers[i].context, device->ordinal, oom->segment_bytes,
                          oom->limit != 0 ? oom->limit : oom->device_total, oom->device_free);
    }
}

int varve_torch_add_oom_observer(varve_torch_oom_observer observer, void *context)
{
    registry_set_oom_observer(torch_oom_report);
    pthread_mutex_lock(&list.mutex);
    int error = VARVE_OK;
    if (list.count < OBSERVERS) {
        list.observers[list.count++] = (struct oom_observer){observer, context};
    } else {
        error = varve_message_set(registry_message(), VARVE_ERROR_FULL, "there are %d observers already", OBSERVERS);
    }
    pthread_mutex_unlock(&list.mutex);
    return error;
}

int varve_torch_remove_oom_observer(varve_torch_oom_observer observer, void *context)
{
    pthread_mutex_lock(&list.mutex);
    int error = VARVE_ERROR_NOT_FOUND;
    for (unsigned i = 0; i < list.count; i++) {
        if (list.observers[i].call == observer && list.observers[i].context == context) {
            memmove(&list.observers[i], &list.observers[i + 1], (list.count - i - 1) * sizeof(list.observers[0]));
            list.count--;
            error = VARVE_OK;
            break;
        }
    }
    pthread_mutex_unlock(&list.mutex);
    if (error != VARVE_OK) {
        varve_message_set(registry_message(), error, "there is no such observer");
    }
    return error;
}
