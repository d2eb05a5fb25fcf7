/* SPDX-License-Identifier: Apache-2.0 */
/* What happens as records of the trace. Names of operators have numbers, the same in all runtimes of the process. */
#include "storage/runtime/runtime_internal.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char **names; /* name of number i + 1 */
static unsigned name_count;
static pid_t owner; /* a fork child has a trace of its own, and says its names again */

/* 0: there are too many, or no memory. */
static uint16_t new_name(const char *name)
{
    char **grown = realloc(names, (name_count + 1U) * sizeof(*names));
    char *copy = strdup(name);
    if (grown != NULL) {
        names = grown;
    }
    if (grown == NULL || copy == NULL || name_count == UINT16_MAX) {
        free(copy);
        return 0;
    }
    names[name_count++] = copy;
    struct varve_record record;
    varve_remat_name_record((uint16_t)name_count, name, &record);
    varve_emit(&record);
    return (uint16_t)name_count;
}

static uint16_t runtime_emit_number_of(const char *name)
{
    pthread_mutex_lock(&lock);
    if (owner != getpid()) {
        owner = getpid();
        name_count = 0;
    }
    uint16_t number = 0;
    for (unsigned i = 0; i < name_count && number == 0; i++) {
        number = strcmp(names[i], name) == 0 ? (uint16_t)(i + 1) : 0;
    }
    number = number != 0 ? number : new_name(name);
    pthread_mutex_unlock(&lock);
    return number;
}

static uint64_t addr_of(const struct varve_runtime *runtime, uint32_t storage)
{
    uint32_t root = storage == VARVE_REMAT_NONE ? VARVE_REMAT_NONE : varve_remat_first_tensor(runtime->remat, storage);
    return root < runtime->value_capacity && runtime->values[root] != NULL
               ? (uint64_t)(uintptr_t)varve_storage_data(runtime->values[root])
               : 0;
}

void emit_event(struct varve_runtime *runtime, const struct varve_remat_event *event)
{
    if (!varve_records_wanted(UINT32_MAX)) {
        return;
    }
    struct recipe *recipe = event->op == VARVE_REMAT_NONE ? NULL : varve_remat_user(runtime->remat, event->op);
    if (recipe != NULL && recipe->name == 0) {
        recipe->name = runtime_emit_number_of(recipe->call.name);
    }
    struct varve_record record;
    varve_remat_event_record(event, recipe != NULL ? recipe->name : 0, &record);
    record.addr = addr_of(runtime, event->storage);
    record.device = (uint8_t)varve_alloc_get_device(runtime->alloc)->index;
    if (event->kind == VARVE_REMAT_EVENT_OP || event->kind == VARVE_REMAT_EVENT_FAILED) {
        record.callsite = varve_callsite_here();
    }
    varve_emit(&record);
}
