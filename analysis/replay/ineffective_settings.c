/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules: reference of the settings in PyTorch's c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size,
 * get_free_block, garbage_collect_cached_blocks) and what alloc/policy takes of them.
 */
#include "analysis/replay/replay_before.h"

#include "analysis/base/number_format.h"
#include "analysis/history/infer_device.h"

#include <stdio.h>
#include <string.h>

struct facts {
    const struct history *history;
    const struct replay_options *options;
    const struct replay_result *result;
    struct varve_alloc_config config;
    bool is_pytorch; /* the policy */
    bool has_limit;
    uint64_t limit;                     /* 0 if it goes by a total that is not known here */
    uint64_t largest_segment;           /* that a request needs under these settings */
    size_t rounded_up, resized_segment; /* requests to which the settings give other sizes than none would */
};

/* Sizes of blocks and segments, with and without the settings about them. */
static void look_at_requests(struct facts *facts)
{
    const char *policy = facts->options->policy;
    struct varve_alloc_config plain;
    varve_alloc_config_init(&plain);
    for (size_t i = 0; i < facts->history->device_count; i++) {
        const struct history_device *device = &facts->history->devices[i];
        for (size_t j = 0; j < device->event_count; j++) {
            const struct history_event *event = &device->events[j];
            if (event->action != HISTORY_ALLOC && event->action != HISTORY_OOM) {
                continue;
            }
            uint64_t block = varve_alloc_block_size(policy, &facts->config, event->size);
            uint64_t segment = varve_alloc_segment_size(policy, &facts->config, block);
            facts->rounded_up += block != varve_alloc_block_size(policy, &plain, event->size);
            facts->resized_segment += segment != varve_alloc_segment_size(policy, &plain, block);
            facts->largest_segment = segment > facts->largest_segment ? segment : facts->largest_segment;
        }
    }
}

static const char *policy_name(const struct facts *facts)
{
    return facts->options->policy != NULL ? facts->options->policy : "pytorch";
}

/* ---- a check for each setting: true, with the reason, if it had no effect ---- */

typedef bool (*check_function)(const struct facts *facts, char reason[REPLAY_REASON_BYTES]);

static bool ineffective_settings_check_policy(const struct facts *facts, char *reason)
{
    if (!facts->is_pytorch) {
        snprintf(reason, REPLAY_REASON_BYTES, "policy %s has no such rule", policy_name(facts));
    }
    return !facts->is_pytorch;
}

static bool check_gc(const struct facts *facts, char *reason)
{
    double threshold = facts->config.garbage_collection_threshold;
    uint64_t bytes = (uint64_t)(threshold * (double)facts->limit);
    int64_t peak = facts->result->stats.reserved_bytes[VARVE_ALLOC_STAT_ALL].peak;
    if (ineffective_settings_check_policy(facts, reason)) {
        return true;
    }
    if (threshold <= 0) {
        snprintf(reason, REPLAY_REASON_BYTES, "0 is off");
        return true;
    }
    if (!facts->has_limit) {
        snprintf(reason, REPLAY_REASON_BYTES,
                 "it is a share of a memory limit, and there is none (--memory-limit BYTES; in a program "
                 "set_per_process_memory_fraction)");
        return true;
    }
    if (facts->config.expandable_segments && !facts->result->starts_late) {
        snprintf(reason, REPLAY_REASON_BYTES, "it releases whole segments, and none of expandable_segments");
        return true;
    }
    if (facts->limit > 0 && facts->history->device_count == 1 && peak >= 0 && (uint64_t)peak <= bytes) {
        snprintf(reason, REPLAY_REASON_BYTES, "at most %s was reserved, and it acts above %s of %s",
                 format_bytes(peak).text, format_bytes((int64_t)bytes).text, format_bytes((int64_t)facts->limit).text);
        return true;
    }
    return false;
}

static bool check_max_split(const struct facts *facts, char *reason)
{
    if (ineffective_settings_check_policy(facts, reason)) {
        return true;
    }
    if (facts->config.expandable_segments || facts->result->starts_late ||
        facts->largest_segment >= facts->config.max_split_size) {
        return false;
    }
    snprintf(reason, REPLAY_REASON_BYTES, "no block can be that large: the largest segment that a request needs is %s",
             format_bytes((int64_t)facts->largest_segment).text);
    return true;
}

static bool check_rounding(const struct facts *facts, char *reason)
{
    if (facts->rounded_up > 0) {
        return false;
    }
    snprintf(reason, REPLAY_REASON_BYTES, "no request is rounded to another size by it");
    return true;
}

static bool has_private_pools(const struct history *history)
{
    bool has = history->pool_count > 1;
    for (size_t i = 0; i < history->device_count && !has; i++) {
        for (size_t j = 0; j < history->devices[i].segment_count && !has; j++) {
            const uint64_t *id = history->devices[i].segments[j].pool_id;
            has = id[0] != 0 || id[1] != 0;
        }
    }
    return has;
}

static bool check_expandable(const struct facts *facts, char *reason)
{
    const char *policy = policy_name(facts);
    if (!facts->config.expandable_segments) {
        snprintf(reason, REPLAY_REASON_BYTES, "False is the default");
        return true;
    }
    if (strcmp(policy, "cuda-async") == 0 && !has_private_pools(facts->history)) {
        snprintf(reason, REPLAY_REASON_BYTES, "policy %s takes memory from the driver's own pool", policy);
        return true;
    }
    return false;
}

static bool check_large_segment(const struct facts *facts, char *reason)
{
    if (facts->resized_segment > 0 || facts->config.expandable_segments ||
        facts->config.max_split_size != VARVE_ALLOC_UNLIMITED) {
        return false;
    }
    snprintf(reason, REPLAY_REASON_BYTES, "no request gets a segment of another size by it");
    return true;
}

static bool check_non_split_rounding(const struct facts *facts, char *reason)
{
    if (ineffective_settings_check_policy(facts, reason)) {
        return true;
    }
    if (facts->config.max_split_size != VARVE_ALLOC_UNLIMITED) {
        return false;
    }
    snprintf(reason, REPLAY_REASON_BYTES, "it is about requests of max_split_size_mb and more, and that is not set");
    return true;
}

static bool was_refused(const struct facts *facts)
{
    return facts->result->stats.num_alloc_retries > 0 || facts->result->stats.num_ooms > 0 || facts->result->ooms > 0;
}

static bool check_never_reached(const struct facts *facts, char *reason)
{
    /* collections and releases of a policy come before a retry */
    if (was_refused(facts) || facts->config.garbage_collection_threshold > 0 ||
        facts->config.max_split_size != VARVE_ALLOC_UNLIMITED) {
        return false;
    }
    snprintf(reason, REPLAY_REASON_BYTES, "it was never reached: at most %s was reserved",
             format_bytes(facts->result->stats.reserved_bytes[VARVE_ALLOC_STAT_ALL].peak).text);
    return true;
}

static bool check_fraction(const struct facts *facts, char *reason)
{
    if (facts->options->memory_limit != 0) {
        snprintf(reason, REPLAY_REASON_BYTES, "--memory-limit takes its place");
        return true;
    }
    return check_never_reached(facts, reason);
}

static bool check_research(const struct facts *facts, char *reason)
{
    if (was_refused(facts)) {
        return false;
    }
    snprintf(reason, REPLAY_REASON_BYTES, "it is about requests that are tried again, and none was");
    return true;
}

static bool check_lock(const struct facts *facts, char *reason)
{
    (void)facts;
    snprintf(reason, REPLAY_REASON_BYTES, "it is about threads that wait for each other: decisions are the same");
    return true;
}

static bool check_backend(const struct facts *facts, char *reason)
{
    (void)facts;
    snprintf(reason, REPLAY_REASON_BYTES, "native is the default; --policy chooses another");
    return true;
}

static bool check_pinned(const struct facts *facts, char *reason)
{
    (void)facts;
    snprintf(reason, REPLAY_REASON_BYTES, "it is about pinned memory of the host, which is not in the history");
    return true;
}

static const struct {
    const char *name;
    check_function check;
} settings[] = {
    {"garbage_collection_threshold", check_gc},
    {"max_split_size_mb", check_max_split},
    {"max_non_split_rounding_mb", check_non_split_rounding},
    {"roundup_power2_divisions", check_rounding},
    {"expandable_segments", check_expandable},
    {"large_segment_size_mb", check_large_segment},
    {"per_process_memory_fraction", check_fraction},
    {"research_after_release", check_research},
    {"release_lock_on_cudamalloc", check_lock},
    {"backend", check_backend},
    {"pinned_use_cuda_host_register", check_pinned},
    {"pinned_num_register_threads", check_pinned},
    {"pinned_reserve_segment_size_mb", check_pinned},
    {"pinned_use_background_threads", check_pinned},
};

/* The parser has accepted the text: a name is followed by a colon, and no other word is equal to it. */
static bool is_set(const char *conf, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = conf; at != NULL && (at = strstr(at, name)) != NULL; at += length) {
        if ((at == conf || strchr(" \t,", at[-1]) != NULL) && strchr(" \t:", at[length]) != NULL) {
            return true;
        }
    }
    return false;
}

static size_t ineffective_settings_add(const struct facts *facts, const char *name, check_function check,
                                       struct replay_ineffective *items, size_t count)
{
    if (count < REPLAY_INEFFECTIVE_MAX && check(facts, items[count].reason)) {
        items[count++].setting = name;
    }
    return count;
}

size_t replay_ineffective(const struct history *history, const struct replay_options *options,
                          const struct replay_result *result, struct replay_ineffective items[REPLAY_INEFFECTIVE_MAX])
{
    struct facts facts = {.history = history, .options = options, .result = result};
    if (replay_config(history, options->conf, &facts.config, NULL) != VARVE_OK) {
        return 0;
    }
    facts.is_pytorch = strcmp(policy_name(&facts), "pytorch") == 0;
    facts.limit = options->memory_limit;
    if (facts.limit == 0 && facts.config.memory_fraction < 1 && options->capacity != 0) {
        facts.limit = (uint64_t)(facts.config.memory_fraction * (double)options->capacity);
    }
    facts.has_limit = facts.limit != 0 || (facts.config.memory_fraction < 1 && options->conf != NULL);
    look_at_requests(&facts);
    size_t count = 0;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        if (is_set(options->conf, settings[i].name)) {
            count = ineffective_settings_add(&facts, settings[i].name, settings[i].check, items, count);
        }
    }
    if (options->memory_limit != 0) {
        count = ineffective_settings_add(&facts, "--memory-limit", check_never_reached, items, count);
    }
    if (options->capacity != 0 && facts.config.memory_fraction >= 1) {
        count = ineffective_settings_add(&facts, "--capacity", check_never_reached, items, count);
    }
    return count;
}
