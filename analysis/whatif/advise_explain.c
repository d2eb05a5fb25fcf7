/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One play of a setting answers for every request that failed: plays are kept, each with the numbers of the requests
 * that failed in it. A setting under which a request fails that the recording served has only moved the failure,
 * unless that is later.
 */
#include "analysis/whatif/advise_explain.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/whatif/advise_candidates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRID (UINT64_C(2) << 20)
#define EMPTY_MOMENTS 6

/* Of each family the best is an answer. Those of single options are 1 + enum candidate_option. */
#define FAMILY_RECORDED 0
#define FAMILY_PAIRS (CANDIDATE_OPTIONS + 1)
#define FAMILY_RULE (CANDIDATE_OPTIONS + 2)
#define FAMILY_DEFAULTS (CANDIDATE_OPTIONS + 3)
#define FAMILY_EMPTY_CACHE (CANDIDATE_OPTIONS + 4)
#define FAMILY_POLICIES (CANDIDATE_OPTIONS + 5) /* and one more for each of them */

struct setting {
    enum explain_kind kind;
    unsigned family;
    char change[CANDIDATE_TEXT_BYTES];
    char conf[CANDIDATE_TEXT_BYTES + 64];
    bool is_recorded; /* the settings of the history, whatever their text */
    const char *policy;
    size_t empty_event; /* 0: no call; else the setting is about the failure `for_failure` alone */
    size_t for_failure;
    uint64_t empty_live, empty_requests;
};

struct failed {
    unsigned device;
    size_t request;
};

struct play {
    size_t setting;
    uint64_t limit;
    bool counts_addresses;
    int error;
    struct replay_figures figures;
    uint64_t device_ns;
    struct failed *failed; /* by device and request */
    size_t failed_count, failed_capacity;
    unsigned device; /* of the running play, and the next request of it */
    size_t request;
};

struct explain {
    struct explain_options options;
    const struct history *history;
    struct whatif *whatif;
    struct explain_facts facts;
    struct explain_failure *failures;
    size_t failure_capacity;
    struct setting **settings; /* number 0: as recorded */
    size_t setting_count, setting_capacity;
    struct play **plays;
    size_t play_count, play_capacity;
    bool has_settings, has_pairs; /* what is about every failure; two options at a time */
};

/* ---- plays ---- */

static void advise_explain_note_request(void *context, struct varve_alloc *alloc, bool has_failed)
{
    struct play *play = context;
    unsigned device = (unsigned)varve_alloc_get_device(alloc)->index;
    if (device != play->device) {
        play->device = device;
        play->request = 0;
    }
    if (has_failed) {
        *MEMORY_ADD(play->failed, play->failed_count, play->failed_capacity) = (struct failed){device, play->request};
    }
    play->request++;
}

static struct play *find_play(const struct explain *explain, size_t setting, uint64_t limit, bool counts_addresses)
{
    for (size_t i = 0; i < explain->play_count; i++) {
        struct play *play = explain->plays[i];
        if (play->setting == setting && play->limit == limit && play->counts_addresses == counts_addresses) {
            return play;
        }
    }
    return NULL;
}

static void want_play(struct explain *explain, size_t setting, uint64_t limit, bool counts_addresses)
{
    if (find_play(explain, setting, limit, counts_addresses) == NULL) {
        struct play *play = memory_resize(NULL, sizeof(*play));
        *play = (struct play){.setting = setting, .limit = limit, .counts_addresses = counts_addresses};
        *MEMORY_ADD(explain->plays, explain->play_count, explain->play_capacity) = play;
    }
}

static struct whatif_setting as_whatif(const struct explain *explain, struct play *play)
{
    const struct setting *setting = explain->settings[play->setting];
    return (struct whatif_setting){
        .policy = setting->policy,
        .conf = setting->is_recorded ? NULL : setting->conf,
        .memory_limit = play->limit,
        /* the limit of reserved bytes is a rule of PyTorch's */
        .capacity = setting->kind == EXPLAIN_POLICY ? play->limit : 0,
        .counts_addresses = play->counts_addresses,
        .empty_cache_before = setting->empty_event,
        .observe = advise_explain_note_request,
        .observe_context = play,
    };
}

/* All that were wanted since there were `begin` plays. */
static void play_wanted(struct explain *explain, size_t begin)
{
    size_t count = explain->play_count - begin;
    struct whatif_setting *settings = memory_resize(NULL, (count + 1) * sizeof(*settings));
    struct whatif_outcome *outcomes = memory_resize(NULL, (count + 1) * sizeof(*outcomes));
    for (size_t i = 0; i < count; i++) {
        settings[i] = as_whatif(explain, explain->plays[begin + i]);
    }
    whatif_play(explain->whatif, settings, count, explain->options.threads, outcomes, explain->options.progress);
    for (size_t i = 0; i < count; i++) {
        explain->plays[begin + i]->error = outcomes[i].error;
        explain->plays[begin + i]->figures = outcomes[i].figures;
        explain->plays[begin + i]->device_ns = outcomes[i].result.device_ns;
    }
    free(settings);
    free(outcomes);
}

static const struct play *play_one(struct explain *explain, size_t setting, uint64_t limit)
{
    size_t begin = explain->play_count;
    want_play(explain, setting, limit, false);
    play_wanted(explain, begin);
    return find_play(explain, setting, limit, false);
}

static bool advise_explain_has_failed(const struct play *play, unsigned device, size_t request)
{
    size_t low = 0;
    size_t high = play->failed_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct failed *failed = &play->failed[middle];
        if (failed->device < device || (failed->device == device && failed->request < request)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < play->failed_count && play->failed[low].device == device && play->failed[low].request == request;
}

static bool was_recorded(const struct explain *explain, const struct failed *failed)
{
    for (size_t i = 0; i < explain->facts.failure_count; i++) {
        if (explain->failures[i].device == failed->device && explain->failures[i].request == failed->request) {
            return true;
        }
    }
    return false;
}

/* It is served, and so are those before it that were served in the recording. */
static bool serves(const struct explain *explain, const struct play *play, size_t failure)
{
    const struct explain_failure *target = &explain->failures[failure];
    if (play->error != VARVE_OK || advise_explain_has_failed(play, target->device, target->request)) {
        return false;
    }
    for (size_t i = 0; i < play->failed_count; i++) {
        const struct failed *failed = &play->failed[i];
        if (failed->device == target->device && failed->request < target->request && !was_recorded(explain, failed)) {
            return false;
        }
    }
    return true;
}

/* ---- settings ---- */

static struct setting *advise_explain_add_setting(struct explain *explain, enum explain_kind kind, unsigned family)
{
    struct setting *setting = memory_resize(NULL, sizeof(*setting));
    *setting = (struct setting){.kind = kind, .family = family, .policy = explain->options.policy};
    *MEMORY_ADD(explain->settings, explain->setting_count, explain->setting_capacity) = setting;
    return setting;
}

/* `changed` are the options that are not as recorded: `candidate` has all. */
static void add_candidate(struct explain *explain, unsigned family, const struct candidate *candidate,
                          const struct candidate *changed)
{
    struct setting *setting = advise_explain_add_setting(explain, EXPLAIN_SETTING, family);
    candidate_text(changed, setting->change);
    candidate_text(candidate, setting->conf);
}

/* Each value of one option, and none if one is recorded. */
static void add_option(struct explain *explain, const struct candidate *recorded, enum candidate_option option)
{
    struct candidate_range range = candidate_range(explain->history, option, true);
    for (size_t i = 0; i < range.count; i++) {
        struct candidate candidate = *recorded;
        struct candidate changed = {.rest = ""};
        if (strcmp(recorded->values[option].text, range.values[i].text) != 0) {
            candidate.values[option] = changed.values[option] = range.values[i];
            add_candidate(explain, option + 1, &candidate, &changed);
        }
    }
    if (recorded->values[option].text[0] != '\0') {
        struct candidate candidate = *recorded;
        struct candidate left_out = {.rest = ""};
        struct setting *setting = advise_explain_add_setting(explain, EXPLAIN_SETTING, option + 1);
        candidate.values[option].text[0] = '\0';
        candidate_text(&candidate, setting->conf);
        left_out.values[option] = recorded->values[option];
        char text[CANDIDATE_TEXT_BYTES];
        candidate_text(&left_out, text);
        snprintf(setting->change, sizeof(setting->change), "without %.1000s", text);
    }
}

static void add_pair(struct explain *explain, const struct candidate *recorded, enum candidate_option a,
                     enum candidate_option b)
{
    struct candidate_range first = candidate_range(explain->history, a, true);
    struct candidate_range second = candidate_range(explain->history, b, true);
    for (size_t i = 0; i < first.count * second.count; i++) {
        struct candidate candidate = *recorded;
        struct candidate changed = {.rest = ""};
        candidate.values[a] = changed.values[a] = first.values[i / second.count];
        candidate.values[b] = changed.values[b] = second.values[i % second.count];
        add_candidate(explain, FAMILY_PAIRS, &candidate, &changed);
    }
}

/* A rule that is no option of PyTorch's, and its defaults. */
static void add_others(struct explain *explain, const struct candidate *recorded)
{
    char conf[CANDIDATE_TEXT_BYTES];
    candidate_text(recorded, conf);
    struct setting *setting;
    if (strstr(conf, "research_after_release") == NULL) {
        setting = advise_explain_add_setting(explain, EXPLAIN_RULE, FAMILY_RULE);
        snprintf(setting->change, sizeof(setting->change), "research_after_release:True");
        snprintf(setting->conf, sizeof(setting->conf), "%s%sresearch_after_release:True", conf,
                 conf[0] != '\0' ? "," : "");
    }
    if (conf[0] != '\0') {
        setting = advise_explain_add_setting(explain, EXPLAIN_SETTING, FAMILY_DEFAULTS);
        snprintf(setting->change, sizeof(setting->change), "no settings");
    }
}

static void add_policies(struct explain *explain)
{
    const char *recorded = explain->options.policy != NULL ? explain->options.policy : "pytorch";
    const char *const *policies = varve_alloc_policies();
    for (unsigned i = 0; policies[i] != NULL; i++) {
        if (strcmp(policies[i], recorded) != 0) {
            struct setting *setting = advise_explain_add_setting(explain, EXPLAIN_POLICY, FAMILY_POLICIES + i);
            snprintf(setting->change, sizeof(setting->change), "%s", policies[i]);
            setting->policy = policies[i];
            setting->is_recorded = true; /* as far as it has such settings */
        }
    }
}

static void add_settings(struct explain *explain)
{
    struct candidate recorded;
    candidate_of_history(explain->history, &recorded);
    for (enum candidate_option option = CANDIDATE_EXPANDABLE; option < CANDIDATE_FRACTION; option++) {
        add_option(explain, &recorded, option);
    }
    add_others(explain, &recorded);
    add_policies(explain);
    explain->has_settings = true;
}

static void advise_explain_add_pairs(struct explain *explain)
{
    struct candidate recorded;
    candidate_of_history(explain->history, &recorded);
    add_pair(explain, &recorded, CANDIDATE_MAX_SPLIT, CANDIDATE_GC);
    add_pair(explain, &recorded, CANDIDATE_MAX_SPLIT, CANDIDATE_ROUNDUP);
    add_pair(explain, &recorded, CANDIDATE_EXPANDABLE, CANDIDATE_ROUNDUP);
    explain->has_pairs = true;
}

/* Where a call of empty_cache may help: the moments with the least memory in use, over all that came before the
 * request, over the later half of it, quarter, and so on. */
static void add_empty_caches(struct explain *explain, size_t failure)
{
    const struct explain_failure *target = &explain->failures[failure];
    const struct history_device *device = &explain->history->devices[target->device];
    size_t best[EMPTY_MOMENTS] = {0};
    int64_t least[EMPTY_MOMENTS] = {0}, live = 0;
    size_t requests[EMPTY_MOMENTS] = {0}, request = 0;
    for (size_t i = 0; i < target->event; i++) {
        const struct history_event *event = &device->events[i];
        bool is_request = event->action == HISTORY_ALLOC || event->action == HISTORY_OOM;
        for (unsigned k = 0; k < EMPTY_MOMENTS && is_request && i > 0; k++) {
            if (i >= target->event - (target->event >> k) && (best[k] == 0 || live <= least[k])) {
                best[k] = i;
                least[k] = live;
                requests[k] = request;
            }
        }
        request += is_request;
        live += event->action == HISTORY_ALLOC ? (int64_t)event->size : 0;
        live -= event->action == HISTORY_FREE_REQUESTED ? (int64_t)event->size : 0;
    }
    for (unsigned k = 0; k < EMPTY_MOMENTS; k++) {
        if (best[k] != 0 && (k == 0 || best[k] != best[k - 1])) {
            struct setting *setting = advise_explain_add_setting(explain, EXPLAIN_EMPTY_CACHE, FAMILY_EMPTY_CACHE);
            setting->is_recorded = true;
            snprintf(setting->change, sizeof(setting->change), "torch.cuda.empty_cache()");
            setting->empty_event = best[k];
            setting->for_failure = failure;
            setting->empty_live = least[k] > 0 ? (uint64_t)least[k] : 0;
            setting->empty_requests = target->request - requests[k];
        }
    }
}

static bool is_about(const struct setting *setting, size_t failure)
{
    return setting->empty_event == 0 || setting->for_failure == failure;
}

static bool has_empty_caches(const struct explain *explain, size_t failure)
{
    for (size_t i = 0; i < explain->setting_count; i++) {
        if (explain->settings[i]->empty_event != 0 && explain->settings[i]->for_failure == failure) {
            return true;
        }
    }
    return false;
}

/* ---- answers ---- */

static unsigned complexity(const char *change)
{
    unsigned count = 0;
    for (; change != NULL; change = strchr(change + 1, ',')) {
        count++;
    }
    return count;
}

static int advise_explain_compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* Settings of PyTorch first; then what leaves fewest failures, is simplest, and costs least. */
static int compare_answers(const void *a_untyped, const void *b_untyped)
{
    const struct explain_answer *a = a_untyped;
    const struct explain_answer *b = b_untyped;
    int order = advise_explain_compare_numbers(a->kind, b->kind);
    order = order != 0 ? order : advise_explain_compare_numbers(a->is_luck, b->is_luck);
    order = order != 0 ? order : advise_explain_compare_numbers(a->failures, b->failures);
    order = order != 0 ? order : advise_explain_compare_numbers(complexity(a->change), complexity(b->change));
    order = order != 0 ? order : advise_explain_compare_numbers(a->device_ns, b->device_ns);
    order = order != 0 ? order
                       : advise_explain_compare_numbers((uint64_t)a->figures.peak_reserved,
                                                        (uint64_t)b->figures.peak_reserved);
    return order != 0 ? order : advise_explain_compare_numbers(a->number, b->number);
}

static struct explain_answer answer_of(const struct explain *explain, size_t number, const struct play *play)
{
    const struct setting *setting = explain->settings[number];
    return (struct explain_answer){
        .kind = setting->kind,
        .change = setting->change,
        .conf = setting->is_recorded || setting->kind == EXPLAIN_POLICY ? NULL : setting->conf,
        .empty_event = setting->empty_event,
        .empty_live = setting->empty_live,
        .empty_requests = setting->empty_requests,
        .failures = play->failed_count,
        .figures = play->figures,
        .device_ns = play->device_ns,
        .number = number,
    };
}

/* All settings that are about the failure, and those that serve it once more, with other addresses. */
static void play_all(struct explain *explain, size_t failure)
{
    uint64_t limit = explain->facts.limit;
    size_t begin = explain->play_count;
    for (size_t i = 1; i < explain->setting_count; i++) {
        if (is_about(explain->settings[i], failure)) {
            want_play(explain, i, limit, false);
        }
    }
    play_wanted(explain, begin);
    begin = explain->play_count;
    for (size_t i = 1; i < explain->setting_count; i++) {
        if (is_about(explain->settings[i], failure) && serves(explain, find_play(explain, i, limit, false), failure)) {
            want_play(explain, i, limit, true);
        }
    }
    play_wanted(explain, begin);
}

/* The better one of each family stays. */
static size_t take_answer(const struct explain *explain, const struct explain_answer *answer,
                          struct explain_answer answers[EXPLAIN_ANSWERS_MAX], size_t count)
{
    unsigned family = explain->settings[answer->number]->family;
    size_t at = 0;
    while (at < count && explain->settings[answers[at].number]->family != family) {
        at++;
    }
    if (at == count && count < EXPLAIN_ANSWERS_MAX) {
        answers[count++] = *answer;
    } else if (at < count && compare_answers(answer, &answers[at]) < 0) {
        answers[at] = *answer;
    }
    return count;
}

static size_t advise_explain_collect(const struct explain *explain, size_t failure,
                                     struct explain_answer answers[EXPLAIN_ANSWERS_MAX], size_t *tried_out)
{
    uint64_t limit = explain->facts.limit;
    *tried_out = 0;
    size_t count = 0;
    for (size_t i = 1; i < explain->setting_count; i++) {
        const struct play *play = find_play(explain, i, limit, false);
        if (!is_about(explain->settings[i], failure) || play->error != VARVE_OK) {
            continue;
        }
        ++*tried_out;
        if (serves(explain, play, failure)) {
            struct explain_answer answer = answer_of(explain, i, play);
            answer.is_luck = !serves(explain, find_play(explain, i, limit, true), failure);
            count = take_answer(explain, &answer, answers, count);
        }
    }
    qsort(answers, count, sizeof(answers[0]), compare_answers);
    return count;
}

size_t explain_find(struct explain *explain, size_t failure, struct explain_answer answers[EXPLAIN_ANSWERS_MAX],
                    size_t *tried_out)
{
    if (!explain->has_settings) {
        add_settings(explain);
    }
    if (!has_empty_caches(explain, failure)) {
        add_empty_caches(explain, failure);
    }
    play_all(explain, failure);
    size_t count = advise_explain_collect(explain, failure, answers, tried_out);
    if (!explain->has_pairs &&
        (count == 0 || answers[0].kind != EXPLAIN_SETTING || answers[0].is_luck || answers[0].failures > 0)) {
        advise_explain_add_pairs(explain);
        play_all(explain, failure);
        count = advise_explain_collect(explain, failure, answers, tried_out);
    }
    return count;
}

bool explain_fails_again(const struct explain *explain, size_t failure)
{
    const struct play *play = find_play(explain, 0, explain->facts.limit, false);
    const struct explain_failure *target = &explain->failures[failure];
    return play->error == VARVE_OK && advise_explain_has_failed(play, target->device, target->request);
}

/* ---- the smallest limit ---- */

static bool passes(struct explain *explain, size_t failure, size_t setting, uint64_t limit)
{
    const struct play *play = play_one(explain, setting, limit);
    return failure == EXPLAIN_ALL ? play->error == VARVE_OK && play->failed_count == 0 : serves(explain, play, failure);
}

/* Two limits of the grid, the lower of which fails; false if there are none. */
static bool bracket(struct explain *explain, size_t failure, size_t setting, uint64_t *low_out, uint64_t *high_out)
{
    uint64_t low = explain->facts.limit / GRID * GRID;
    uint64_t high = low + GRID;
    if (setting == 0) {
        /* with what it takes without a limit nothing is ever refused */
        const struct play *free_play = play_one(explain, setting, 0);
        uint64_t peak = free_play->error == VARVE_OK ? (uint64_t)free_play->figures.peak_reserved : 0;
        high = peak > low ? (peak + GRID - 1) / GRID * GRID : high;
    }
    uint64_t step = GRID;
    for (; !passes(explain, failure, setting, high); high += step, step *= 2) {
        if (step > explain->facts.limit + (GRID << 10)) {
            return false;
        }
    }
    for (step = GRID; low > 0 && passes(explain, failure, setting, low); step *= 2) {
        high = low;
        low = low > step ? low - step : 0; /* at 0 nothing can be had */
    }
    *low_out = low;
    *high_out = high;
    return true;
}

uint64_t explain_smallest_limit(struct explain *explain, size_t failure, size_t number)
{
    size_t setting = number == EXPLAIN_RECORDED ? 0 : number;
    uint64_t low, high;
    if (!bracket(explain, failure, setting, &low, &high)) {
        return 0;
    }
    while (high - low > GRID) {
        uint64_t middle = low + (high - low) / GRID / 2 * GRID;
        if (passes(explain, failure, setting, middle)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return high;
}

/* ---- opening ---- */

static void list_failures(struct explain *explain)
{
    const struct history *history = explain->history;
    for (unsigned i = 0; i < history->device_count; i++) {
        const struct history_device *device = &history->devices[i];
        size_t request = 0;
        for (size_t j = 0; j < device->event_count; j++) {
            if (device->events[j].action == HISTORY_OOM) {
                *MEMORY_ADD(explain->failures, explain->facts.failure_count, explain->failure_capacity) =
                    (struct explain_failure){.device = i, .event = j, .request = request};
            }
            request += device->events[j].action == HISTORY_ALLOC || device->events[j].action == HISTORY_OOM;
        }
        explain->facts.requests += request;
    }
    explain->facts.failures = explain->failures;
}

static int advise_explain_find_limit(struct explain *explain, struct varve_message *message)
{
    const struct replay_before *before = whatif_recorded(explain->whatif);
    explain->facts.is_given = explain->options.memory_limit != 0;
    explain->facts.is_reproduced = before->limit != 0;
    if (explain->facts.is_given) {
        explain->facts.limit = explain->options.memory_limit;
    } else if (before->limit != 0) {
        explain->facts.limit = before->limit;
    } else if (before->figures.peak_reserved > 0) {
        explain->facts.limit = (uint64_t)before->figures.peak_reserved;
    } else {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "the trace does not say how much was reserved, so not under which limit it failed; "
                                 "--memory-limit gives it");
    }
    return VARVE_OK;
}

int explain_open(const struct history *history, const struct explain_options *options, struct explain **explain_out,
                 struct varve_message *message)
{
    struct explain *explain = memory_resize(NULL, sizeof(*explain));
    *explain = (struct explain){.options = *options, .history = history};
    list_failures(explain);
    int error = whatif_open(history, &explain->whatif, message);
    VARVE_THEN(error, advise_explain_find_limit(explain, message));
    if (error != VARVE_OK) {
        explain_close(explain);
        return error;
    }
    advise_explain_add_setting(explain, EXPLAIN_SETTING, FAMILY_RECORDED)->is_recorded = true;
    play_one(explain, 0, explain->facts.limit);
    *explain_out = explain;
    return VARVE_OK;
}

void explain_close(struct explain *explain)
{
    if (explain == NULL) {
        return;
    }
    for (size_t i = 0; i < explain->play_count; i++) {
        free(explain->plays[i]->failed);
        free(explain->plays[i]);
    }
    for (size_t i = 0; i < explain->setting_count; i++) {
        free(explain->settings[i]);
    }
    free(explain->plays);
    free(explain->settings);
    free(explain->failures);
    whatif_close(explain->whatif);
    free(explain);
}

const struct explain_facts *explain_get_facts(const struct explain *explain)
{
    return &explain->facts;
}
