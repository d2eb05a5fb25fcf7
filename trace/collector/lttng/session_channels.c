/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channels of an LTTng session of ours and the events that go into each. Both have buffers per user and
 * CPU, in the session's folder: there lttng-crash finds what a killed program left.
 *
 * `varve` takes the records. `varve_meta` takes what these need to be understood, in buffers of its own,
 * because an event that a killed program had begun hides those after it on its CPU. Small ones: only the
 * collector tells such things, and waits if they are full.
 *
 * No contexts: the payload says who emitted a record, and of those that the collector tells for a program
 * vpid and vtid would name the collector. No switch timer either: nobody reads while it runs.
 */
#include "trace/collector/lttng/session_parts.h"
#include "trace/error.h"
#include "trace/event_list.h"
#include "trace/record.h"

#include <inttypes.h>
#include <stdio.h>

#define CHANNEL "varve"
#define CHANNEL_META "varve_meta"
/* Name by name: "varve:*" with an exclusion makes `lttng list` crash the session daemon of LTTng 2.13.9. */
#define EVENT_NAME(code, NAME, name, group, addr, size, requested, arg, meaning) ",varve:" #name
#define EVENTS (&(VARVE_EVENT_LIST(EVENT_NAME))[1])
#define EVENTS_META "varve:meta_*,varve:statedump_*"
#define INTO "--channel=varve"
#define INTO_META "--channel=varve_meta"
/* So many us an event waits for space at most; then it is discarded. */
#define MAY_BLOCK "--blocking-timeout=1000000"

int lttng_channels_make(const char *session, const struct lttng_buffers *buffers, bool may_block,
                        struct varve_message *message)
{
    char name[LTTNG_NAME_MAX + 32];
    char size[64];
    char count[64];
    char size_meta[64];
    char count_meta[64];
    const char *const calls[][12] = {
        {"lttng", "--no-sessiond", "enable-channel", "--userspace", name, size, count, "--discard", CHANNEL,
         may_block ? MAY_BLOCK : NULL},
        {"lttng", "--no-sessiond", "enable-channel", "--userspace", name, size_meta, count_meta, "--discard",
         CHANNEL_META, MAY_BLOCK},
        {"lttng", "--no-sessiond", "enable-event", "--userspace", name, INTO, EVENTS},
        {"lttng", "--no-sessiond", "enable-event", "--userspace", name, INTO_META, EVENTS_META},
    };
    int error = VARVE_OK;

    snprintf(name, sizeof(name), "--session=%s", session);
    snprintf(size, sizeof(size), "--subbuf-size=%" PRIu64, buffers->sub_buffer_bytes);
    snprintf(count, sizeof(count), "--num-subbuf=%u", buffers->sub_buffers);
    snprintf(size_meta, sizeof(size_meta), "--subbuf-size=%u", LTTNG_META_SUB_BUFFER_BYTES);
    snprintf(count_meta, sizeof(count_meta), "--num-subbuf=%u", LTTNG_META_SUB_BUFFERS);
    for (size_t i = 0; error == VARVE_OK && i < sizeof(calls) / sizeof(calls[0]); i++) {
        error = lttng_tool_simply(calls[i], message);
    }
    return error;
}
