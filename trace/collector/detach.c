/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve detach`, without its command line: the collector is told to end its recording, or, where it has died, its work
 * is done here. Numbers of processes are given out again: the collector is known by the lock that it holds, and told by
 * a descriptor that was its own when that was seen.
 */
#include "trace/collector/programs/attach_run.h"
#include "trace/collector/session/mapped_recordings.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "trace/collect.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAP_NS 5000000L

/* `pidfd` -1: this kernel has none. One that nobody has waited for yet has ended. */
static bool detach_has_ended(const struct session_mapped *recording, int pidfd)
{
    struct pollfd ready = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 ? poll(&ready, 1, 0) > 0 : !session_collector_is(recording->collector, recording->trace_id, NULL);
}

static bool detach_tell(const struct session_mapped *recording, int pidfd)
{
    return (pidfd >= 0 ? syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0)
                       : kill(recording->collector, SIGTERM)) == 0 ||
           errno == ESRCH;
}

/* It ends, and has ended when this returns. A second signal would stop one that writes its database. */
static int end_collector(const struct session_mapped *recording, struct varve_message *message)
{
    int pidfd = (int)syscall(SYS_pidfd_open, recording->collector, 0);
    int error = VARVE_OK;
    if (!session_collector_is(recording->collector, recording->trace_id, NULL)) {
        error = VARVE_OK; /* it has ended since, and its number may be another's */
    } else if (!recording->is_finishing && !detach_tell(recording, pidfd)) {
        error = varve_message_set(message, VARVE_ERROR_PERMISSION, "varve attach (pid %d) can't be told: %s",
                                  recording->collector, strerror(errno));
    } else {
        while (!detach_has_ended(recording, pidfd)) {
            monotonic_nap(NAP_NS);
        }
    }
    session_descriptor_close(&pidfd);
    return error;
}

/* Nobody else is left to do it. */
struct leaving {
    int error; /* the first one */
    struct varve_message *message;
};

static void detach_leave(void *context, int32_t pid)
{
    struct leaving *leaving = context;
    struct varve_message why = {""};
    int error = attach_stop(NULL, pid, NULL, NULL, &why);
    VARVE_THEN(error, attach_release(NULL, pid, &why));
    if (error != VARVE_OK && error != VARVE_ERROR_NOT_FOUND && leaving->error == VARVE_OK) {
        leaving->error = varve_message_set(leaving->message, error, "%s", why.text);
    }
}

int varve_collect_detach(int32_t pid, bool *was_alone_out, struct varve_message *message)
{
    struct session_mapped recording;
    int error = attach_find(pid, &recording, message);
    *was_alone_out = false;
    struct session_mapped left;
    if (error == VARVE_OK && recording.collector != 0) {
        error = end_collector(&recording, message);
        if (error != VARVE_OK || !session_mapped_find(pid, &left) || left.trace_id != recording.trace_id) {
            return error;
        }
        recording = left; /* it was killed before it had come to that, or could not */
    }
    if (error == VARVE_OK) {
        struct leaving leaving = {VARVE_OK, message};
        *was_alone_out = !recording.is_removed;
        detach_leave(&leaving, pid);
        hooked_each(recording.trace_id, 0, detach_leave, &leaving); /* what it has released has it no more */
        error = leaving.error;
    }
    return error;
}
