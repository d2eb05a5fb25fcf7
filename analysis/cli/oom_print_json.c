/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/cli/oom_print.h"

#include "analysis/base/json_writer.h"

static int64_t known(uint64_t number, uint64_t unknown)
{
    return number == unknown ? -1 : (int64_t)number;
}

static struct cJSON *oom_print_blocks_json(const struct oom_request *request, const struct varve_layout_block *blocks,
                                           const struct oom_holder *holders, uint64_t count)
{
    struct cJSON *array = json_array();
    for (size_t i = 0; i < count && i < FAILURE_BLOCKS_MAX; i++) {
        const struct owner *owner = &holders[i].owner;
        struct cJSON *block = json_object();
        bool has_age = owner->alloc_seq > 0;
        json_integer(block, "address", (int64_t)blocks[i].addr);
        json_integer(block, "size", (int64_t)blocks[i].extent);
        json_integer_or_null(block, "age_ns", has_age ? request->ts_ns - owner->alloc_ns : -1);
        json_integer_or_null(block, "age_allocations", has_age ? holders[i].allocations : -1);
        owner_json(block, owner);
        json_append(array, block);
    }
    return array;
}

static struct cJSON *freeing_json(const struct oom_request *request)
{
    const struct failure_freeing *freeing = &request->failure.freeing;
    if (freeing->blocks == 0) {
        return json_null_value();
    }
    struct cJSON *object = json_object();
    json_integer(object, "blocks", (int64_t)freeing->blocks);
    json_integer(object, "bytes", (int64_t)freeing->bytes);
    json_integer(object, "result", (int64_t)freeing->result);
    json_add(object, "first", oom_print_blocks_json(request, freeing->first, request->freeing, freeing->blocks));
    return object;
}

static struct cJSON *segment_json(const struct oom_request *request)
{
    const struct failure_segment *best = &request->failure.best;
    if (best->bytes == 0) {
        return json_null_value();
    }
    struct cJSON *object = json_object();
    json_integer(object, "address", (int64_t)best->addr);
    json_integer(object, "size", (int64_t)best->bytes);
    json_integer(object, "free", (int64_t)best->unused);
    json_integer(object, "largest_free", (int64_t)best->largest);
    json_integer(object, "blocks", (int64_t)best->blocks);
    json_integer(object, "block_bytes", (int64_t)best->block_bytes);
    json_add(object, "first", oom_print_blocks_json(request, best->first, request->best, best->blocks));
    return object;
}

static struct cJSON *oom_print_sites_json(const struct oom_request *request)
{
    const struct oom_site *sites = request->sites;
    struct cJSON *array = json_array();
    for (size_t i = 0; i < request->site_count; i++) {
        struct cJSON *object = json_object();
        json_integer(object, "bytes", sites[i].bytes);
        json_integer(object, "blocks", sites[i].blocks);
        owner_json(object, &sites[i].owner);
        json_append(array, object);
    }
    return array;
}

static struct cJSON *memory_json(const struct oom_request *request)
{
    const struct oom_memory *memory = &request->memory;
    const struct failure *failure = &request->failure;
    if (!failure->is_known) {
        return json_null_value();
    }
    struct cJSON *object = json_object();
    json_integer(object, "reserved", (int64_t)memory->reserved);
    json_integer(object, "allocated", (int64_t)memory->allocated);
    json_integer(object, "pending", (int64_t)memory->pending);
    json_integer(object, "requested", (int64_t)memory->live);
    json_integer_or_null(object, "limit", known(memory->limit, 0));
    json_integer_or_null(object, "device_free", known(memory->device_free, OOM_UNKNOWN));
    json_integer_or_null(object, "device_total", known(memory->device_total, 0));
    json_integer(object, "free", (int64_t)(memory->own_free + memory->other_free));
    json_integer(object, "free_blocks", (int64_t)(failure->own.blocks + failure->others.blocks));
    json_integer(object, "own_free", (int64_t)memory->own_free);
    json_integer(object, "own_free_blocks", (int64_t)failure->own.blocks);
    json_integer(object, "own_largest_free", (int64_t)memory->own_largest);
    json_integer(object, "other_largest_free", (int64_t)memory->other_largest);
    json_integer(object, "largest_with_pending", (int64_t)memory->with_pending);
    json_integer(object, "block_needed", (int64_t)memory->rounded);
    json_integer(object, "segment_needed", (int64_t)memory->segment);
    json_add(object, "freeing", freeing_json(request));
    json_add(object, "best_segment", segment_json(request));
    json_integer(object, "must_go", (int64_t)oom_excess(memory));
    json_add(object, "largest_sites", oom_print_sites_json(request));
    return object;
}

static const char *oom_print_json_kind_name(enum explain_kind kind)
{
    static const char *const names[] = {[EXPLAIN_SETTING] = "setting",
                                        [EXPLAIN_EMPTY_CACHE] = "empty_cache",
                                        [EXPLAIN_RULE] = "rule",
                                        [EXPLAIN_POLICY] = "policy"};
    return names[kind];
}

static struct cJSON *oom_print_answer_json(const struct explain_answer *answer)
{
    struct cJSON *object = json_object();
    json_text(object, "kind", oom_print_json_kind_name(answer->kind));
    json_text(object, "change", answer->change);
    json_text(object, "conf", answer->conf);
    json_text(object, "policy", answer->kind == EXPLAIN_POLICY ? answer->change : NULL);
    if (answer->kind == EXPLAIN_EMPTY_CACHE) {
        json_integer(object, "before_event", (int64_t)answer->empty_event);
        json_integer(object, "requests_earlier", (int64_t)answer->empty_requests);
        json_integer(object, "in_use", (int64_t)answer->empty_live);
    }
    json_integer(object, "ooms", (int64_t)answer->failures);
    json_bool(object, "by_luck", answer->is_luck);
    json_integer(object, "peak_reserved", answer->figures.peak_reserved);
    json_integer(object, "device_calls", answer->figures.device_calls);
    json_integer(object, "device_ns", (int64_t)answer->device_ns);
    return object;
}

static void add_smallest(struct cJSON *object, const char *key, struct oom_scene *scene, size_t failure, size_t number)
{
    json_integer_or_null(object, key, known(explain_smallest_limit(scene->explain, failure, number), 0));
}

/* What the replays say; null where none was made. */
static struct cJSON *served_json(struct oom_scene *scene, const struct oom_request *request)
{
    if (scene->explain == NULL || request->number == OOM_NO_FAILURE) {
        return json_null_value();
    }
    struct cJSON *object = json_object();
    struct cJSON *array = json_array();
    json_bool(object, "fails_again", explain_fails_again(scene->explain, request->number));
    struct explain_answer answers[EXPLAIN_ANSWERS_MAX];
    size_t tried = 0;
    size_t count = 0;
    if (!request->failure.is_known || oom_excess(&request->memory) == 0) {
        count = explain_find(scene->explain, request->number, answers, &tried);
    }
    for (size_t i = 0; i < count; i++) {
        struct cJSON *answer = oom_print_answer_json(&answers[i]);
        if (i == 0) {
            add_smallest(answer, "smallest_limit", scene, request->number, answers[i].number);
        }
        json_append(array, answer);
    }
    json_integer(object, "tried", (int64_t)tried);
    json_add(object, "by", array);
    add_smallest(object, "smallest_limit", scene, request->number, EXPLAIN_RECORDED);
    add_smallest(object, "smallest_limit_of_all", scene, EXPLAIN_ALL, EXPLAIN_RECORDED);
    return object;
}

static struct cJSON *stages_json(const struct oom_request *request)
{
    const struct oom_stage *stages = request->stages;
    struct cJSON *array = json_array();
    for (size_t i = 0; i < request->stage_count; i++) {
        struct cJSON *object = json_object();
        json_text(object, "stage", stages[i].name);
        json_integer(object, "seq", stages[i].seq);
        json_integer(object, "bytes_freed", stages[i].bytes_freed);
        json_append(array, object);
    }
    return array;
}

static struct cJSON *request_json(struct oom_scene *scene, const struct oom_request *request, bool is_explained)
{
    struct cJSON *object = json_object();
    json_integer(object, "seq", request->seq);
    json_integer(object, "ts_ns", request->ts_ns);
    json_integer(object, "device", request->request.device);
    json_integer(object, "pid", request->pid);
    json_integer(object, "tid", request->tid);
    json_integer(object, "stream", request->request.stream);
    json_integer(object, "pool", request->request.pool);
    json_integer(object, "requested", request->requested);
    json_integer(object, "allocated", request->allocated);
    json_integer_or_null(object, "reserved",
                         request->failure.is_known || request->reserved > 0 ? request->reserved : -1);
    json_integer_or_null(object, "largest_free", request->largest_free);
    owner_json(object, &request->owner);
    json_add(object, "memory", memory_json(request));
    json_add(object, "stages", stages_json(request));
    char cause[OOM_SENTENCE_BYTES];
    if (request->failure.is_known) {
        oom_sentence(&request->memory, cause);
    }
    json_text(object, "cause", request->failure.is_known ? oom_cause_name(oom_cause_of(&request->memory)) : NULL);
    json_text(object, "because", request->failure.is_known ? cause : NULL);
    json_add(object, "served", is_explained ? served_json(scene, request) : json_null_value());
    return object;
}

void oom_print_json(FILE *out, struct oom_scene *scene, const char *path, size_t explained)
{
    struct cJSON *object = json_object();
    struct cJSON *rows = json_array();
    json_text(object, "database", path);
    if (scene->explain != NULL) {
        json_integer(object, "memory_limit", (int64_t)explain_get_facts(scene->explain)->limit);
        json_bool(object, "memory_limit_given", explain_get_facts(scene->explain)->is_given);
    } else {
        json_text(object, "not_replayed", scene->reason);
    }
    for (size_t i = 0; i < scene->count; i++) {
        json_append(rows, request_json(scene, &scene->requests[i], i < explained));
    }
    json_add(object, "ooms", rows);
    json_print(object, out);
}
