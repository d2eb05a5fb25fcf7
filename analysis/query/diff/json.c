/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A comparison as JSON: the figures of the text, all values as numbers but kinds and causes, whole stacks.
 * Keys are stable: they may be added to, never renamed; the manual page lists them.
 */
#include "analysis/output/json.h"
#include "analysis/query/db.h"
#include "analysis/query/diff/diff.h"
#include "analysis/query/loss.h"
#include "analysis/query/stack.h"

#include <stdio.h>

static struct cJSON *trace_json(const struct diff_trace *trace)
{
    struct cJSON *object = json_object();
    struct report_loss loss;

    json_text(object, "database", database_path(trace->database));
    json_integer(object, "events", trace->events);
    json_integer(object, "lost_rows", trace->lost_rows);
    json_integer(object, "lost_events", trace->lost_events);
    json_integer(object, "gap_rows", trace->gap_rows);
    json_integer(object, "gap_events", trace->gap_events);
    json_integer(object, "without_number", trace->without_number);
    json_integer(object, "without_thread", trace->without_thread);
    json_integer(object, "out_of_order", trace->out_of_order);
    report_loss_load(&loss, trace->database);
    json_add(object, "loss", report_loss_json(trace->database, &loss));
    return object;
}

static void add_totals(struct cJSON *object, const struct diff_totals *totals)
{
    json_integer(object, "in_both", totals->both);
    json_integer(object, "only_in_a", totals->alone[DIFF_A]);
    json_integer(object, "only_in_b", totals->alone[DIFF_B]);
    json_integer(object, "differing", totals->differing);
}

static struct cJSON *kinds_json(const struct diff *diff)
{
    struct cJSON *array = json_array();

    for (uint32_t kind = 0; kind < DIFF_KINDS; kind++) {
        const struct diff_totals *totals = &diff->kinds[kind];

        if (totals->both + totals->alone[DIFF_A] + totals->alone[DIFF_B] > 0) {
            struct cJSON *object = json_object();

            json_text(object, "kind", diff_kind_name(kind));
            add_totals(object, totals);
            json_append(array, object);
        }
    }
    return array;
}

static struct cJSON *fields_json(const struct diff *diff)
{
    struct cJSON *object = json_object();

    for (unsigned field = 0; field < DIFF_FIELD_LIMIT; field++) {
        if (diff->fields[field] > 0) {
            json_integer(object, diff_field_name((enum diff_field)field), diff->fields[field]);
        }
    }
    return object;
}

static void add_value(struct cJSON *object, const char *key, const struct diff_event *event,
                      enum diff_field field)
{
    const char *name = diff_value_name(event, field);

    if ((event->nulls >> field & 1U) != 0) {
        json_add(object, key, json_null_value());
    } else if (name != NULL) {
        json_text(object, key, name);
    } else {
        json_integer(object, key, event->values[field]);
    }
}

static struct cJSON *field_json(const struct diff *diff, const struct diff_detail *detail,
                                enum diff_field field)
{
    static const char *const keys[DIFF_SIDES] = {"a", "b"};
    static const char *const partner_keys[DIFF_SIDES] = {"a_belongs_to", "b_belongs_to"};
    struct cJSON *object = json_object();

    json_text(object, "field", diff_field_name(field));
    for (int side = 0; side < DIFF_SIDES; side++) {
        if (field == DIFF_FIELD_FRAMES) {
            struct stack stack;

            stack_load(&stack, diff->traces[side].database,
                       detail->events[side].values[DIFF_FIELD_CALLSITE_ID]);
            json_add(object, keys[side], stack_json(&stack, -1));
            stack_free(&stack);
        } else {
            add_value(object, keys[side], &detail->events[side], field);
        }
    }
    for (int side = 0; side < DIFF_SIDES && (field == DIFF_FIELD_ID || field == DIFF_FIELD_CALLSITE_ID);
         side++) {
        int64_t partner = field == DIFF_FIELD_ID ? detail->id_partners[side] : detail->site_partners[side];

        json_integer_or_null(object, partner_keys[side], partner != 0 ? partner : -1);
    }
    return object;
}

static void add_detail(struct cJSON *object, const struct diff *diff, const struct diff_detail *detail)
{
    struct cJSON *fields = json_array();

    add_value(object, "kind", &detail->events[DIFF_A], DIFF_FIELD_KIND);
    json_integer(object, "seq_a", detail->events[DIFF_A].seq);
    json_integer(object, "seq_b", detail->events[DIFF_B].seq);
    for (unsigned field = 0; field < DIFF_FIELD_LIMIT; field++) {
        if ((detail->fields >> field & 1U) != 0) {
            json_append(fields, field_json(diff, detail, (enum diff_field)field));
        }
    }
    json_add(object, "fields", fields);
}

static struct cJSON *entry_json(const struct diff *diff, const struct diff_entry *entry)
{
    static const char *const whats[] = {
        [DIFF_ONLY_A] = "only_in_a", [DIFF_ONLY_B] = "only_in_b", [DIFF_DIFFERS] = "differing"};
    struct cJSON *object = json_object();

    json_text(object, "what", whats[entry->what]);
    json_integer(object, "process_id", diff->rings[entry->ring].process_id);
    json_integer(object, "ring", diff->rings[entry->ring].ring);
    json_integer(object, "first", entry->first);
    json_integer(object, "last", entry->last);
    if (entry->what == DIFF_DIFFERS) {
        add_detail(object, diff, entry->detail);
    } else {
        struct cJSON *kinds = json_object();

        json_integer(object, "seq", entry->seq);
        for (size_t i = 0; i < entry->kind_count; i++) {
            json_integer(kinds, diff_kind_name(entry->kinds[i].kind), entry->kinds[i].events);
        }
        json_add(object, "kinds", kinds);
    }
    return object;
}

static struct cJSON *remark_json(const struct diff_remark *remark)
{
    struct cJSON *object = json_object();

    json_text(object, "table", remark->table);
    json_integer(object, "process_id", remark->process_id);
    json_integer_or_null(object, "ring", remark->ring);
    if (remark->column == NULL) {
        json_text(object, "only_in", remark->values[DIFF_A] != NULL ? "a" : "b");
        return object;
    }
    json_text(object, "column", remark->column);
    json_text(object, "a", remark->values[DIFF_A]);
    json_text(object, "b", remark->values[DIFF_B]);
    return object;
}

static struct cJSON *remarks_json(const struct diff *diff)
{
    struct cJSON *array = json_array();

    for (size_t i = 0; i < diff->remarks.count && i < diff->entry_limit; i++) {
        json_append(array, remark_json(&diff->remarks.items[i]));
    }
    return array;
}

void diff_print_json(FILE *out, const struct diff *diff)
{
    static const char *const runs[] = {
        [DIFF_RUNS_UNKNOWN] = "unknown", [DIFF_RUNS_SAME] = "same", [DIFF_RUNS_OTHER] = "other"};
    struct diff_totals all = diff_result_totals(diff);
    struct cJSON *object = json_object();
    struct cJSON *entries = json_array();

    json_bool(object, "equal", diff_result_is_equal(diff));
    json_text(object, "run", runs[diff->runs]);
    json_add(object, "a", trace_json(&diff->traces[DIFF_A]));
    json_add(object, "b", trace_json(&diff->traces[DIFF_B]));
    json_integer(object, "rings", diff_rings_used(diff));
    add_totals(object, &all);
    json_add(object, "kinds", kinds_json(diff));
    json_add(object, "fields", fields_json(diff));
    json_integer(object, "callsites", diff->site_pairs);
    json_integer(object, "callsites_differing", diff->site_pairs_odd);
    json_integer(object, "differences_all", diff->entries_all);
    for (size_t i = 0; i < diff->entry_count; i++) {
        json_append(entries, entry_json(diff, &diff->entries[i]));
    }
    json_add(object, "differences", entries);
    json_bool(object, "with_tables", diff->with_tables);
    json_integer(object, "tables_all", (int64_t)diff->remarks.count);
    json_add(object, "tables", remarks_json(diff));
    json_print(object, out);
}
