/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keyframes: now and then all layouts that changed are written down, so that the state at any event is the
 * last keyframe before it and a few thousand events after it. They wait in a file without a name and become
 * rows of `keyframe` at the end. How often: when as many events were stored as make ten times the bytes.
 *
 * All allocators are written at the same event: one without a row there has not changed since its last one.
 * Keyframes only save time, so nothing fails because of them: what does not fit on the disk is left out.
 */
#include "trace/model/derive.h"

#include "base/file_whole.h"
#include "base/error.h"
#include "trace/model/layout_state.h"
#include "trace/model/model_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVENTS_MIN 4096U
#define EVENTS_IDLE 65536U   /* without a change: a mark saves reading them */
#define EVENT_BYTES_TENTH 6U /* an event takes 60 bytes and more in the database */

static bool keyframes_open(struct derive *derive)
{
    char path[4096 + 16];
    struct derive_keyframes *keyframes = &derive->keyframes;
    if (keyframes->fd < 0) {
        snprintf(path, sizeof(path), "%s.keyframes", derive->path);
        keyframes->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (keyframes->fd >= 0) {
            unlink(path);
        }
    }
    return keyframes->fd >= 0;
}

/* `at` moves on by what was written. */
static bool keyframe_put(const struct derive *derive, struct derive_keyframe *head, const struct varve_layout *layout,
                         uint64_t *at)
{
    uint8_t *data = malloc(sizeof(*head) + (layout != NULL ? layout_encode_bound(layout) : 0));
    if (data == NULL) {
        return false;
    }
    head->bytes = layout != NULL ? layout_encode(layout, data + sizeof(*head)) : 0;
    memcpy(data, head, sizeof(*head));
    bool is_written = file_write_whole(derive->keyframes.fd, data, sizeof(*head) + head->bytes, *at);
    free(data);
    *at += sizeof(*head) + head->bytes;
    return is_written;
}

/* Call `take` for every allocator that changed. False: it did not want more. Those of ended processes are not
 * among them: what they were like was written at their end, or could not be. */
static bool dirty_each(struct derive *derive,
                       bool (*take)(void *context, uint32_t process_id, unsigned number, struct derive_device *device),
                       void *context)
{
    const struct derive_keyframes *keyframes = &derive->keyframes;
    for (size_t i = 0; i < keyframes->dirty_count; i++) {
        const struct derive_dirty *dirty = &keyframes->dirty[i];
        const struct derive_process *process = derive->processes[dirty->process_id];
        if (!process->has_ended && !take(context, dirty->process_id, dirty->device, process->devices[dirty->device])) {
            return false;
        }
    }
    return true;
}

/* What a keyframe would take now, by what the last ones took. */
struct sum {
    uint64_t bytes;
    bool is_dirty;
};

static bool sum_bytes(void *context, uint32_t process_id, unsigned number, struct derive_device *device)
{
    struct sum *sum = context;
    (void)process_id;
    (void)number;
    sum->bytes += device->keyframe_bytes;
    sum->is_dirty = true;
    return true;
}

struct put {
    const struct derive *derive;
    uint64_t seq, at, count;
};

static bool put_device(void *context, uint32_t process_id, unsigned number, struct derive_device *device)
{
    struct put *put = context;
    struct derive_keyframe head = {
        .ladder = islands_ladder(device->islands), .seq = put->seq, .process_id = process_id, .device = number};
    put->count++;
    bool is_written = keyframe_put(put->derive, &head, device->layout, &put->at);
    device->keyframe_bytes = head.bytes;
    return is_written;
}

static bool make_clean(void *context, uint32_t process_id, unsigned number, struct derive_device *device)
{
    (void)context;
    (void)process_id;
    (void)number;
    device->is_dirty = false;
    return true;
}

/* All of them or none: half an instant would say that the others have not changed. */
void keyframes_write(struct derive *derive, uint64_t seq)
{
    struct derive_keyframes *keyframes = &derive->keyframes;
    struct put put = {.derive = derive, .seq = seq, .at = keyframes->used};
    struct derive_keyframe mark = {.seq = seq};
    if (keyframes->next_seq == UINT64_MAX || seq <= keyframes->last_seq) {
        return;
    }
    bool is_written = keyframes_open(derive) && dirty_each(derive, put_device, &put);
    if (is_written && put.count == 0) {
        is_written = keyframe_put(derive, &mark, NULL, &put.at);
        put.count = 1;
    }
    if (is_written) {
        keyframes->used = put.at;
        keyframes->count += put.count;
        dirty_each(derive, make_clean, NULL);
        keyframes->dirty_count = 0;
    }
    keyframes->last_seq = seq;
    keyframes->next_seq = seq + EVENTS_MIN;
}

void keyframes_step(struct derive *derive, uint64_t seq)
{
    struct derive_keyframes *keyframes = &derive->keyframes;
    struct sum sum = {0};
    dirty_each(derive, sum_bytes, &sum);
    uint64_t wanted = sum.is_dirty ? sum.bytes / EVENT_BYTES_TENTH : EVENTS_IDLE;
    if (wanted < EVENTS_MIN) {
        wanted = EVENTS_MIN;
    }
    if (seq - keyframes->last_seq < wanted) {
        keyframes->next_seq = keyframes->last_seq + wanted;
        return;
    }
    keyframes_write(derive, seq);
}

int keyframes_each(const struct derive *derive,
                   int (*take)(void *context, const struct derive_keyframe *keyframe, const void *bytes), void *context,
                   struct varve_message *message)
{
    uint64_t at = 0;
    int error = VARVE_OK;
    for (uint64_t i = 0; i < derive->keyframes.count && error == VARVE_OK; i++) {
        struct derive_keyframe head;
        if (!file_read_whole(derive->keyframes.fd, &head, sizeof(head), at)) {
            return varve_message_set(message, VARVE_ERROR_IO, "cannot read keyframes again");
        }
        at += sizeof(head);
        uint8_t *bytes = malloc(head.bytes + 1);
        if (bytes == NULL) {
            return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a keyframe");
        }
        if (!file_read_whole(derive->keyframes.fd, bytes, head.bytes, at)) {
            error = varve_message_set(message, VARVE_ERROR_IO, "cannot read keyframes again");
        } else {
            error = take(context, &head, head.process_id != 0 ? bytes : NULL);
        }
        at += head.bytes;
        free(bytes);
    }
    return error;
}
