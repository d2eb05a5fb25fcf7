/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's actions: their names, and the kinds of records that say the same. The one table for import,
 * replay and export.
 */
#include "analysis/history/history.h"

static const struct {
    const char *name;
    enum varve_kind kind;
} actions[HISTORY_ACTION_LIMIT] = {
    [HISTORY_ALLOC] = {"alloc", VARVE_KIND_ALLOC},
    [HISTORY_FREE_REQUESTED] = {"free_requested", VARVE_KIND_FREE_REQUESTED},
    [HISTORY_FREE_COMPLETED] = {"free_completed", VARVE_KIND_FREE_COMPLETED},
    [HISTORY_SEGMENT_ALLOC] = {"segment_alloc", VARVE_KIND_SEGMENT_ALLOC},
    [HISTORY_SEGMENT_FREE] = {"segment_free", VARVE_KIND_SEGMENT_FREE},
    [HISTORY_SEGMENT_MAP] = {"segment_map", VARVE_KIND_SEGMENT_MAP},
    [HISTORY_SEGMENT_UNMAP] = {"segment_unmap", VARVE_KIND_SEGMENT_UNMAP},
    [HISTORY_SNAPSHOT] = {"snapshot", VARVE_KIND_NONE},
    [HISTORY_OOM] = {"oom", VARVE_KIND_OOM},
};

/* The other way round, for each record of a replay: action + 1, 0 for kinds that no action says. */
static const uint8_t action_of_kind[VARVE_KIND_LIMIT] = {
    [VARVE_KIND_ALLOC] = HISTORY_ALLOC + 1,
    [VARVE_KIND_FREE_REQUESTED] = HISTORY_FREE_REQUESTED + 1,
    [VARVE_KIND_FREE_COMPLETED] = HISTORY_FREE_COMPLETED + 1,
    [VARVE_KIND_SEGMENT_ALLOC] = HISTORY_SEGMENT_ALLOC + 1,
    [VARVE_KIND_SEGMENT_FREE] = HISTORY_SEGMENT_FREE + 1,
    [VARVE_KIND_SEGMENT_MAP] = HISTORY_SEGMENT_MAP + 1,
    [VARVE_KIND_SEGMENT_UNMAP] = HISTORY_SEGMENT_UNMAP + 1,
    [VARVE_KIND_OOM] = HISTORY_OOM + 1,
};

const char *history_action_name(unsigned action)
{
    return actions[action].name;
}

enum varve_kind history_action_kind(unsigned action)
{
    return actions[action].kind;
}

unsigned history_action_of_kind(unsigned kind)
{
    unsigned action = kind < VARVE_KIND_LIMIT ? action_of_kind[kind] : 0;

    return action != 0 ? action - 1 : HISTORY_ACTION_LIMIT;
}
