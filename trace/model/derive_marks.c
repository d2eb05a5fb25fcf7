/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Phases nest, each within those of its own name; an end without a beginning says nothing. A process that ends leaves
 * open what it was in.
 */
#include "trace/model/derive.h"

#include "base/grown_array.h"
#include "base/hash_index.h"
#include "base/error.h"
#include "trace/model/model_event.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <string.h>

static void derive_marks_name_take(const struct event *event, char name[MARK_NAME_BYTES + 1])
{
    const uint64_t words[] = {event->addr, event->size, event->requested};

    static_assert(sizeof(words) == MARK_NAME_BYTES, "a name is three words");
    memcpy(name, words, sizeof(words));
    name[MARK_NAME_BYTES] = '\0';
    memset(name + strlen(name), 0, MARK_NAME_BYTES - strlen(name));
    for (size_t i = 0; name[i] != '\0'; i++) {
        name[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?'; /* a damaged one is text all the same */
    }
}

int derive_mark(const struct derive_step *step, struct varve_message *message)
{
    const struct event *event = step->event;
    struct derive *derive = step->derive;
    struct index *open = &step->process->marks;
    struct derive_mark mark = {.begin_seq = event->seq,
                               .begin_ns = event->ts_ns,
                               .process_id = event->process_id,
                               .thread_id = event->thread_id};
    if (!ARRAY_GROW(derive->marks, derive->mark_capacity, derive->mark_count + 1) || !index_reserve(open)) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a phase of the program");
    }
    derive_marks_name_take(event, mark.name);
    uint64_t hash = index_hash(mark.name, MARK_NAME_BYTES, 0);
    uint64_t number = index_find(open, hash);
    if (event->kind == VARVE_KIND_MARK_BEGIN) {
        mark.outer = number;
        derive->marks[derive->mark_count++] = mark;
        index_insert(open, hash, derive->mark_count);
    } else if (number != 0) {
        struct derive_mark *begun = &derive->marks[number - 1];
        begun->end_seq = event->seq;
        begun->end_ns = event->ts_ns;
        if (begun->outer != 0) {
            index_insert(open, hash, begun->outer);
        } else {
            index_remove(open, hash);
        }
    }
    return VARVE_OK;
}
