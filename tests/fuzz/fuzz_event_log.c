/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes as the log of events of a recording. Reading ends, and hands out no more events than the
 * bytes can hold; what is not plain comes out by either way of reading.
 */
#include "fuzz/target.h"

#include "base/error.h"
#include "trace/model/model_event.h"
#include "trace/store/event_log.h"

#include <stdio.h>
#include <unistd.h>

static char path[64];
static uint64_t events, rest;

static int take(void *context, struct event *event, bool is_plain)
{
    (void)context;
    events += event->seq != 0 || event->addr != 1; /* so that each is read */
    rest += !is_plain;
    return VARVE_OK;
}

static bool take_rest(void *context, struct event *event)
{
    (void)event;
    ++*(uint64_t *)context;
    return true;
}

static void clean(void)
{
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct varve_message message;
    struct event_log *log = NULL;
    if (path[0] == '\0') {
        snprintf(path, sizeof(path), "/tmp/varve-fuzz-%d.log", (int)getpid());
        atexit(clean);
    }
    FILE *file = fopen(path, "wb");
    check(file != NULL);
    const bool is_written = fwrite(data, 1, size, file) == size;
    check(fclose(file) == 0 && is_written);
    check(event_log_resume(path, size, &log, &message) == VARVE_OK);
    events = rest = 0;
    uint64_t again = 0;
    int error = event_log_each(log, take, NULL, &message);
    check(error == VARVE_OK || error == VARVE_ERROR_CORRUPT);
    check(events <= 4 * size && event_log_waiting(log) == rest);
    check(event_log_rest(log, take_rest, &again, &message) == VARVE_OK && again == rest);
    event_log_close(log);
    return 0;
}
