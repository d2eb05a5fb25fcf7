/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request takes a screen: what was asked for, what had been tried, why it failed, what was in the way, and what
 * would have served it.
 */
#include "analysis/cli/oom_print.h"

#include "analysis/base/number_format.h"
#include "analysis/base/table.h"
#include "analysis/query/segment_query.h"

#include <inttypes.h>
#include <string.h>

#define INDENT 14
#define OWNER_COLUMNS 40
#define LINE_BYTES 640
#define SETTINGS_SHOWN 3 /* of PyTorch */
#define OTHERS_SHOWN 10  /* requests that are only listed */

/* A label, "" for none, and a sentence that is wrapped behind it. */
#define LINE(out, label, ...) (fprintf(out, "  %-*s", INDENT - 2, label), format_wrap(out, INDENT, __VA_ARGS__))

/* ---- what happened ---- */

static void print_request(FILE *out, const struct oom_request *request)
{
    format_wrap(out, 0, "event %s at %s, device %" PRId64 " (process %" PRId64 ", thread %" PRId64 "): %s asked for",
                COUNT(request->seq), DURATION(request->ts_ns), request->request.device, request->pid, request->tid,
                EXACT(request->requested));
    char text[OWNER_TEXT_BYTES];
    owner_text(&request->owner, OWNER_COLUMNS, text);
    if (text[0] != '\0') {
        LINE(out, "by", "%s", text);
    }
    if (!request->failure.is_known) {
        return;
    }
    LINE(out, "needs", "a block of %s in pool %s of stream %u, or a new segment of %s", EXACT(request->memory.rounded),
         request->pool, (unsigned)request->request.stream, BYTES(request->memory.segment));
}

static void print_memory(FILE *out, const struct oom_scene *scene, const struct oom_request *request)
{
    const struct oom_memory *memory = &request->memory;
    const struct failure *failure = &request->failure;
    if (!failure->is_known) {
        if (request->reserved > 0) {
            LINE(out, "memory", "reserved %s, allocated %s", BYTES(request->reserved), BYTES(request->allocated));
        } else {
            LINE(out, "memory", "allocated %s; what was reserved is not in the trace", BYTES(request->allocated));
        }
        return;
    }
    LINE(out, "memory", "reserved %s, allocated %s, pending %s, free %s in %s %s", BYTES(memory->reserved),
         BYTES(memory->allocated), BYTES(memory->pending), BYTES(memory->own_free + memory->other_free),
         COUNT(failure->own.blocks + failure->others.blocks),
         format_plural((int64_t)(failure->own.blocks + failure->others.blocks), "block", "blocks"));
    if (memory->device_free != OOM_UNKNOWN && memory->device_free < memory->segment) {
        LINE(out, "limit", "the device was full: %s of it free", BYTES(memory->device_free));
    } else if (memory->limit != 0) {
        bool is_known = scene->explain == NULL || explain_get_facts(scene->explain)->is_given;
        LINE(out, "limit", "%s%s", EXACT(memory->limit),
             is_known ? "" : ", worked out: the most that was reserved; the true one may be higher");
    } else {
        LINE(out, "limit", "unknown: the trace has neither a memory limit nor what the device had free");
    }
}

/* Why a stage that leaves a record has left none. */
static const char *reason_of_none(const struct oom_scene *scene, const char *stage)
{
    if (strcmp(stage, "callbacks") == 0) {
        return "none";
    }
    if (strcmp(stage, "gc") == 0) {
        return scene->config.garbage_collection_threshold > 0 ? "not above its threshold" : "no threshold";
    }
    if (strcmp(stage, "release_available") == 0) {
        return scene->config.max_split_size == VARVE_ALLOC_UNLIMITED ? "no max_split_size_mb" : "not reached";
    }
    return "not during a capture";
}

static void print_stages(FILE *out, const struct oom_scene *scene, const struct oom_request *request)
{
    static const char *const names[] = {"callbacks", "gc", "release_available", "release_cached"};
    const struct oom_stage *stages = request->stages;
    size_t count = request->stage_count;
    if (count == 0) {
        LINE(out, "tried", "the trace has no stage of the chain in front of it");
        return;
    }
    int64_t freed = 0;
    for (size_t i = 0; i < count; i++) {
        LINE(out, i == 0 ? "tried" : "", "%-18s freed %s", stages[i].name, EXACT(stages[i].bytes_freed));
        freed += stages[i].bytes_freed;
    }
    char others[LINE_BYTES] = "";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bool has_run = false;
        for (size_t j = 0; j < count; j++) {
            has_run |= strcmp(stages[j].name, names[i]) == 0;
        }
        if (!has_run) {
            snprintf(others + strlen(others), sizeof(others) - strlen(others), "%s%s (%s)",
                     others[0] != '\0' ? ", " : "", names[i], reason_of_none(scene, names[i]));
        }
    }
    if (request->failure.is_known) {
        LINE(out, "", "then a segment of %s was refused; before, with %s reserved, too", BYTES(request->memory.segment),
             BYTES(request->memory.reserved + (uint64_t)freed));
    }
    if (others[0] != '\0') {
        LINE(out, "", "not run: %s", others);
    }
}

/* ---- what was in the way ---- */

static void print_block(FILE *out, const struct oom_request *request, const struct varve_layout_block *block,
                        const struct oom_holder *holder)
{
    const struct owner *owner = &holder->owner;
    char text[OWNER_TEXT_BYTES];
    const char *state = block->state == VARVE_LAYOUT_PENDING ? ", pending" : "";
    owner_text(owner, OWNER_COLUMNS, text);
    char age[80] = "";
    if (owner->alloc_seq > 0) {
        snprintf(age, sizeof(age), ", %.20s and %.20s allocations old", DURATION(request->ts_ns - owner->alloc_ns),
                 COUNT(holder->allocations));
    }
    fprintf(out, "%*s  %#-14" PRIx64 " %10s%s%s\n", INDENT, "", block->addr, BYTES(block->extent), state, age);
    if (text[0] != '\0') {
        fprintf(out, "%*s    %s\n", INDENT, "", text);
    }
}

static void oom_text_print_blocks(FILE *out, const struct oom_request *request, const struct varve_layout_block *blocks,
                                  const struct oom_holder *holders, uint64_t count)
{
    for (size_t i = 0; i < count && i < FAILURE_BLOCKS_MAX; i++) {
        print_block(out, request, &blocks[i], &holders[i]);
    }
    if (count > FAILURE_BLOCKS_MAX) {
        fprintf(out, "%*s  and %s more\n", INDENT, "", COUNT(count - FAILURE_BLOCKS_MAX));
    }
}

static void print_hole(FILE *out, const struct oom_request *request)
{
    const struct failure *failure = &request->failure;
    const struct failure_freeing *freeing = &failure->freeing;
    const struct failure_segment *best = &failure->best;
    if (failure->own.blocks == 0) {
        LINE(out, "best hole", "none: its pool and stream have no free block");
        return;
    }
    LINE(out, "best hole", "%s at %#" PRIx64 ", of %s in %s free %s of its pool and stream",
         EXACT(failure->own.largest), failure->largest_addr, BYTES(failure->own.bytes), COUNT(failure->own.blocks),
         format_plural((int64_t)failure->own.blocks, "block", "blocks"));
    if (freeing->blocks > 0 && freeing->result >= request->memory.rounded) {
        LINE(out, "blocked by", "%s %s in use, %s; without %s a free block of %s is left:", COUNT(freeing->blocks),
             format_plural((int64_t)freeing->blocks, "block", "blocks"), BYTES(freeing->bytes),
             freeing->blocks == 1 ? "it" : "them", BYTES(freeing->result));
        oom_text_print_blocks(out, request, freeing->first, request->freeing, freeing->blocks);
    } else {
        LINE(out, "blocked by",
             "no segment is as large as the request; the one with most free has %s of %s, beside %s %s in use:",
             BYTES(best->unused), BYTES(best->bytes), COUNT(best->blocks),
             format_plural((int64_t)best->blocks, "block", "blocks"));
        oom_text_print_blocks(out, request, best->first, request->best, best->blocks);
    }
}

/* ---- what would have served it ---- */

static void print_excess(FILE *out, const struct oom_request *request)
{
    const struct oom_site *sites = request->sites;
    size_t count = request->site_count;
    LINE(out, "served by", "nothing, under this limit: %s of what is in use would have to go%s",
         EXACT(oom_excess(&request->memory)), count > 0 ? "; most is of" : "");
    for (size_t i = 0; i < count; i++) {
        char text[OWNER_TEXT_BYTES];
        owner_text(&sites[i].owner, OWNER_COLUMNS, text);
        fprintf(out, "%*s  %10s in %s %s%s%s\n", INDENT, "", BYTES(sites[i].bytes), COUNT(sites[i].blocks),
                format_plural(sites[i].blocks, "block", "blocks"), text[0] != '\0' ? "  " : "",
                text[0] != '\0' ? text : " without a call site");
    }
}

static void print_cost(FILE *out, const struct oom_scene *scene, const struct explain_answer *answer)
{
    fprintf(out, "%*s", INDENT + 2, "");
    format_wrap(out, INDENT + 2, "%.20s of %.20s requests %s, peak reserved %.20s, %.20s device calls (%.20s)%s",
                answer->failures == 0 ? "none" : COUNT(answer->failures),
                COUNT(explain_get_facts(scene->explain)->requests), answer->failures <= 1 ? "fails" : "fail",
                BYTES(answer->figures.peak_reserved), COUNT(answer->figures.device_calls), DURATION(answer->device_ns),
                answer->is_luck ? "; by luck: with other addresses from the device it fails" : "");
}

static void oom_text_print_answer(FILE *out, const struct oom_scene *scene, const char *label,
                                  const struct explain_answer *answer)
{
    switch (answer->kind) {
    case EXPLAIN_EMPTY_CACHE:
        LINE(out, label, "torch.cuda.empty_cache() once, %s requests before it, when %s is in use",
             COUNT(answer->empty_requests), BYTES(answer->empty_live));
        break;
    case EXPLAIN_RULE:
        LINE(out, label,
             "searching the pool again after the release (PyTorch's pull request 191302, in no release of 2.11); "
             "until then: catch the error and make the request again");
        break;
    case EXPLAIN_POLICY:
        LINE(out, label, "policy %s", answer->change);
        break;
    default:
        LINE(out, label, "%s", answer->change);
        break;
    }
    print_cost(out, scene, answer);
}

/* One line for all of them: PyTorch has none, varve's allocators have. */
static void print_policies(FILE *out, const char *label, const struct explain_answer *answers, size_t count)
{
    char text[LINE_BYTES] = "";
    for (size_t i = 0; i < count; i++) {
        if (answers[i].kind == EXPLAIN_POLICY) {
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s%s (%.20s of device calls)",
                     text[0] != '\0' ? ", " : "other policies: ", answers[i].change,
                     answers[i].is_luck ? ", by luck" : "", DURATION(answers[i].device_ns));
        }
    }
    if (text[0] != '\0') {
        LINE(out, label, "%s", text);
    }
}

static void print_line_to_set(FILE *out, struct oom_scene *scene, const struct oom_request *request,
                              const struct explain_answer *best)
{
    uint64_t all = best->failures == 0 ? explain_smallest_limit(scene->explain, EXPLAIN_ALL, best->number) : 0;
    uint64_t one = all == 0 ? explain_smallest_limit(scene->explain, request->number, best->number) : 0;
    if (best->kind == EXPLAIN_SETTING) {
        LINE(out, "to set", "export PYTORCH_ALLOC_CONF=%s", best->conf[0] != '\0' ? best->conf : "\"\"");
    } else if (best->kind == EXPLAIN_POLICY && strcmp(best->change, "cuda-async") == 0) {
        LINE(out, "to set",
             "export PYTORCH_ALLOC_CONF=backend:cudaMallocAsync (played with an ideal pool: the driver's may need "
             "more)");
    } else if (best->kind == EXPLAIN_POLICY) {
        LINE(out, "to set", "export VARVE_TORCH_POLICY=%s, for varve's allocator in PyTorch", best->change);
    }
    if (all != 0) {
        LINE(out, "", "with it all requests are served from %s on", EXACT(all));
    } else if (one != 0) {
        LINE(out, "", "with it this request is served from %s on", EXACT(one));
    }
}

static void print_answers(FILE *out, struct oom_scene *scene, const struct oom_request *request)
{
    struct explain_answer answers[EXPLAIN_ANSWERS_MAX];
    size_t tried;
    size_t count = explain_find(scene->explain, request->number, answers, &tried);
    if (count == 0) {
        LINE(out, "served by",
             "none of the %s settings, calls of empty_cache and policies that were played under this limit",
             COUNT(tried));
        return;
    }
    size_t shown = 0;
    for (size_t i = 0; i < count; i++) {
        if (answers[i].kind != EXPLAIN_POLICY && (answers[i].kind != EXPLAIN_SETTING || i < SETTINGS_SHOWN)) {
            oom_text_print_answer(out, scene, shown++ == 0 ? "served by" : "", &answers[i]);
        }
    }
    print_policies(out, shown == 0 ? "served by" : "", answers, count);
    print_line_to_set(out, scene, request, &answers[0]);
}

static void oom_text_print_smallest(FILE *out, struct oom_scene *scene, const struct oom_request *request)
{
    uint64_t one = explain_smallest_limit(scene->explain, request->number, EXPLAIN_RECORDED);
    uint64_t all = explain_smallest_limit(scene->explain, EXPLAIN_ALL, EXPLAIN_RECORDED);
    if (one != 0) {
        LINE(out, "more memory", "as it is set, this request is served from %s on, and not 2 MiB below", EXACT(one));
    }
    if (all != 0) {
        LINE(out, one != 0 ? "" : "more memory", "all requests are served from %s on", EXACT(all));
    }
}

static void print_served(FILE *out, struct oom_scene *scene, const struct oom_request *request)
{
    bool is_played = scene->explain != NULL && request->number != OOM_NO_FAILURE;
    if (request->failure.is_known && oom_excess(&request->memory) > 0) {
        print_excess(out, request);
    } else if (is_played && explain_fails_again(scene->explain, request->number)) {
        print_answers(out, scene, request);
    } else if (is_played) {
        LINE(out, "served by",
             "not known: played again under the recorded settings and this limit it does not fail (when the "
             "program emptied the cache is not in the trace)");
    } else {
        LINE(out, "served by", "not known, as nothing could be played: %s", scene->reason);
    }
    if (is_played) {
        oom_text_print_smallest(out, scene, request);
    } else if (request->failure.is_known) {
        LINE(out, "more memory", "with %s to reserve its segment would be had",
             EXACT(request->memory.reserved + request->memory.segment));
    }
}

static void print_explained(FILE *out, struct oom_scene *scene, const struct oom_request *request)
{
    print_request(out, request);
    print_memory(out, scene, request);
    print_stages(out, scene, request);
    char cause[OOM_SENTENCE_BYTES];
    if (request->failure.is_known) {
        oom_sentence(&request->memory, cause);
        LINE(out, "cause", "%s", cause);
        print_hole(out, request);
    }
    print_served(out, scene, request);
    fprintf(out, "  varve segments --at %" PRId64 " shows the memory of that moment\n", request->seq);
}

static void oom_text_print_others(FILE *out, const struct oom_scene *scene, size_t first)
{
    static const struct table_column columns[] = {
        {"event", true}, {"time", true}, {"device", true}, {"asked for", true}, {"cause", false}};
    fprintf(out, "\n%s more %s failed; --all explains them\n", COUNT(scene->count - first),
            format_plural((int64_t)(scene->count - first), "request", "requests"));
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "  ";
    for (size_t i = first; i < scene->count && i < first + OTHERS_SHOWN; i++) {
        const struct oom_request *request = &scene->requests[i];
        table_add(&table, COUNT(request->seq));
        table_add(&table, DURATION(request->ts_ns));
        table_add(&table, COUNT(request->request.device));
        table_add(&table, BYTES(request->requested));
        table_add(&table, request->failure.is_known ? oom_cause_name(oom_cause_of(&request->memory)) : "unknown");
    }
    table_print(&table, out, true);
    table_free(&table);
}

void oom_print_text(FILE *out, struct oom_scene *scene, size_t explained)
{
    for (size_t i = 0; i < scene->count && i < explained; i++) {
        fputs(i > 0 ? "\n" : "", out);
        print_explained(out, scene, &scene->requests[i]);
    }
    if (explained < scene->count) {
        oom_text_print_others(out, scene, explained);
    }
    if (scene->count == 0) {
        fputs("no request of a caching allocator failed\n", out);
    }
}
