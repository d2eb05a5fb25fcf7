/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of a comparison as people read them: kinds, causes and flags by name, addresses in hexadecimal. What
 * a field of a kind holds is told by the list of events: its words decide.
 */
#include "analysis/query/diff/diff.h"

#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct kind_words {
    const char *name, *addr, *arg;
};

static const struct kind_words kinds[VARVE_KIND_LIMIT] = {
#define KIND_WORDS(code, NAME, name, group, addr, size, requested, arg, meaning) [code] = {#name, addr, arg},
    VARVE_EVENT_LIST(KIND_WORDS)
#undef KIND_WORDS
};

static const char *const causes[] = {
#define CAUSE_TEXT(code, NAME, text) [code] = (text),
    VARVE_CAUSE_LIST(CAUSE_TEXT)
#undef CAUSE_TEXT
};

#define CAUSES ((int64_t)(sizeof(causes) / sizeof(causes[0])))

const char *diff_field_name(enum diff_field field)
{
    static const char *const names[DIFF_FIELD_LIMIT] = {
#define FIELD_NAME(NAME, column) #column,
        DIFF_COLUMN_LIST(FIELD_NAME)
#undef FIELD_NAME
            [DIFF_FIELD_FRAMES] = "frames",
    };

    return names[field];
}

uint32_t diff_kind_of(const struct diff_event *event)
{
    int64_t kind = event->values[DIFF_FIELD_KIND];

    return kind >= 0 && kind < VARVE_KIND_LIMIT && kinds[kind].name != NULL ? (uint32_t)kind
                                                                            : VARVE_KIND_LIMIT;
}

const char *diff_kind_name(uint32_t kind)
{
    return kind < VARVE_KIND_LIMIT ? kinds[kind].name : "unknown";
}

const char *diff_value_name(const struct diff_event *event, enum diff_field field)
{
    int64_t value = event->values[field];

    if (event->nulls >> field & 1U || value < 0) {
        return NULL;
    }
    if (field == DIFF_FIELD_KIND) {
        return value < VARVE_KIND_LIMIT ? kinds[value].name : NULL;
    }
    if (field == DIFF_FIELD_CAUSE && value < CAUSES) {
        return value == VARVE_CAUSE_NONE ? "none" : causes[value];
    }
    return NULL;
}

/* addr of `oom` is the one that holds bytes; arg is a number unless it is an address or a handle. */
static bool is_address(const struct diff_event *event, enum diff_field field)
{
    const struct kind_words *words = &kinds[diff_kind_of(event) % VARVE_KIND_LIMIT];

    if (field == DIFF_FIELD_ADDR) {
        return words->addr == NULL || strncmp(words->addr, "bytes", 5) != 0;
    }
    return field == DIFF_FIELD_ARG && words->arg != NULL &&
           (strstr(words->arg, "address") != NULL || strstr(words->arg, "handle") != NULL);
}

static struct diff_value flags_text(int64_t flags)
{
    static const struct {
        int64_t flag;
        const char *name;
    } names[] = {{VARVE_FLAG_FAILED, "failed"}, {VARVE_FLAG_NESTED, "nested"}, {VARVE_FLAG_LATE, "late"}};
    struct diff_value result;
    int used = snprintf(result.text, sizeof(result.text), "%" PRId64, flags);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if ((flags & names[i].flag) != 0) {
            used += snprintf(result.text + used, sizeof(result.text) - (size_t)used, " %s", names[i].name);
        }
    }
    return result;
}

struct diff_value diff_value_text(const struct diff_event *event, enum diff_field field)
{
    const char *name = diff_value_name(event, field);
    int64_t value = event->values[field];
    struct diff_value result;

    if (event->nulls >> field & 1U) {
        return (struct diff_value){"NULL"};
    }
    if (field == DIFF_FIELD_FLAGS) {
        return flags_text(value);
    }
    if (name != NULL) {
        snprintf(result.text, sizeof(result.text), "%s", name);
    } else if (is_address(event, field)) {
        snprintf(result.text, sizeof(result.text), "0x%" PRIx64, (uint64_t)value);
    } else {
        snprintf(result.text, sizeof(result.text), "%" PRId64, value);
    }
    return result;
}
