/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and field descriptions of events, made from the lists in event_list.h and indexed by code. The
 * database's vocabulary tables, the writer (which fields a kind uses) and the reports read them.
 */
#include "trace/event_names.h"

#include "trace/event_list.h"
#include "trace/record.h"

#include <assert.h>
#include <stddef.h>

#define KIND_ROW(code, NAME, name, group, addr, size, requested, arg, meaning) \
    [code] = {#name, #group, addr, size, requested, arg, meaning},
static const struct event_kind_info kinds[VARVE_KIND_LIMIT] = {VARVE_EVENT_LIST(KIND_ROW)};
#undef KIND_ROW

#define CAUSE_ROW(code, NAME, text) [code] = (text),
static const char *const causes[] = {VARVE_CAUSE_LIST(CAUSE_ROW)};
#undef CAUSE_ROW

static_assert(sizeof(causes) / sizeof(causes[0]) <= 256, "a cause is one byte of a record");

const struct event_kind_info *event_kind_info(unsigned kind)
{
    if (kind >= VARVE_KIND_LIMIT || kinds[kind].name == NULL) {
        return NULL;
    }
    return &kinds[kind];
}

const char *event_cause_text(unsigned cause)
{
    return cause < sizeof(causes) / sizeof(causes[0]) ? causes[cause] : NULL;
}
