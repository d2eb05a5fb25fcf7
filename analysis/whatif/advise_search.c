/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search has two rounds. First each option alone, from the program's own setting and from PyTorch's defaults; then
 * pairs of what did best, with every value of the option that rounds sizes beside expandable segments. More would find
 * little: options act on the same free memory. What helps is compared by failures, then by peak reserved with a charge
 * for options and time (advise_search_cost_of).
 */
#include "analysis/whatif/advise_search.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (INT64_C(1) << 20)
#define SAME_SHARE 100 /* peaks that differ by less than one part in so many are the same */
#define TIME_SHARE 5   /* and times one part in so many */
#define FRACTION_STEPS 2

/* ---- the trials ---- */

/* Garbage collection goes by a limit, which a device's size is not: nearly all of it is made one. */
static void give_limit(const struct advice *advice, struct candidate *candidate)
{
    if (candidate->values[CANDIDATE_GC].text[0] != '\0' && advice->limit == 0 && advice->capacity != 0 &&
        candidate->values[CANDIDATE_FRACTION].text[0] == '\0') {
        snprintf(candidate->values[CANDIDATE_FRACTION].text, sizeof(candidate->values[0].text), "%s", "0.99");
    }
}

static void add_trial(struct advice *advice, const struct candidate *wanted)
{
    struct candidate candidate = *wanted;
    give_limit(advice, &candidate);
    char text[CANDIDATE_TEXT_BYTES];
    candidate_text(&candidate, text);
    if (strcmp(advice->own.text, text) == 0) {
        return;
    }
    for (size_t i = 0; i < advice->trial_count; i++) {
        if (strcmp(advice->trials[i].text, text) == 0) {
            return;
        }
    }
    struct advise_trial *trial = MEMORY_ADD(advice->trials, advice->trial_count, advice->trial_capacity);
    *trial = (struct advise_trial){.candidate = candidate};
    memcpy(trial->text, text, sizeof(text));
}

struct whatif_setting advise_setting(const struct advice *advice, const struct advise_trial *trial)
{
    return (struct whatif_setting){
        .conf = trial == &advice->own ? NULL : trial->text,
        .memory_limit = advice->limit,
        .capacity = advice->capacity,
    };
}

/* Play the trials from number `first` on. */
static void play_trials(struct advice *advice, struct whatif *whatif, const struct advise_options *options,
                        size_t first)
{
    size_t count = advice->trial_count - first;
    struct whatif_setting *settings = memory_resize(NULL, (count + 1) * sizeof(*settings));
    struct whatif_outcome *outcomes = memory_resize(NULL, (count + 1) * sizeof(*outcomes));
    for (size_t i = 0; i < count; i++) {
        settings[i] = advise_setting(advice, &advice->trials[first + i]);
    }
    whatif_play(whatif, settings, count, options->threads, outcomes, options->progress);
    for (size_t i = 0; i < count; i++) {
        advice->trials[first + i].outcome = outcomes[i];
    }
    free(settings);
    free(outcomes);
}

/* Garbage collection goes by a limit: without one nothing can be said of it, and it stays as it is. */
static bool advise_search_is_open(const struct advice *advice, int option)
{
    return option != CANDIDATE_GC || advice->limit != 0 || advice->capacity != 0;
}

/* PyTorch's defaults, as far as settings can be compared with the program's own. */
static struct candidate defaults_of(const struct advice *advice)
{
    struct candidate defaults = advice->own.candidate;
    for (int option = 0; option < CANDIDATE_OPTIONS; option++) {
        if (advise_search_is_open(advice, option)) {
            defaults.values[option].text[0] = '\0';
        }
    }
    return defaults;
}

/* Each value of each option, and without it. */
static void add_singles(struct advice *advice, const struct history *history, const struct candidate *base)
{
    add_trial(advice, base);
    for (int option = 0; option < CANDIDATE_OPTIONS; option++) {
        struct candidate_range range =
            candidate_range(history, (enum candidate_option)option, advise_search_is_open(advice, option));
        struct candidate candidate = *base;
        if (!advise_search_is_open(advice, option)) {
            continue;
        }
        candidate.values[option].text[0] = '\0';
        add_trial(advice, &candidate);
        for (size_t i = 0; i < range.count; i++) {
            candidate.values[option] = range.values[i];
            add_trial(advice, &candidate);
        }
    }
}

static const struct replay_figures *figures_of(const struct advise_trial *trial)
{
    return &trial->outcome.figures;
}

static bool is_less(const struct advise_trial *left, const struct advise_trial *right)
{
    const struct replay_figures *a = figures_of(left), *b = figures_of(right);
    if (a->ooms != b->ooms) {
        return a->ooms < b->ooms;
    }
    return a->peak_reserved != b->peak_reserved ? a->peak_reserved < b->peak_reserved
                                                : left->outcome.result.device_ns < right->outcome.result.device_ns;
}

/* The best value of an option among the trials so far; NULL: none was tried. */
static const struct advise_trial *best_with(const struct advice *advice, int option)
{
    const struct advise_trial *best = NULL;
    for (size_t i = 0; i < advice->trial_count; i++) {
        const struct advise_trial *trial = &advice->trials[i];
        if (trial->outcome.error == VARVE_OK && trial->candidate.values[option].text[0] != '\0' &&
            (best == NULL || is_less(trial, best))) {
            best = trial;
        }
    }
    return best;
}

static void advise_search_add_pairs(struct advice *advice, const struct history *history)
{
    struct candidate_value values[CANDIDATE_OPTIONS] = {{""}};
    struct candidate_range rounding = candidate_range(history, CANDIDATE_ROUNDUP, false);
    struct candidate base = defaults_of(advice);
    for (int i = 0; i < CANDIDATE_OPTIONS; i++) {
        const struct advise_trial *best = best_with(advice, i);
        if (best != NULL) {
            values[i] = best->candidate.values[i];
        }
    }
    for (int i = 0; i < CANDIDATE_FRACTION; i++) {
        for (int j = i + 1; j < CANDIDATE_FRACTION; j++) {
            struct candidate candidate = base;
            candidate.values[i] = values[i];
            candidate.values[j] = values[j];
            add_trial(advice, &candidate);
        }
    }
    for (size_t i = 0; i < rounding.count; i++) {
        struct candidate candidate = base;
        candidate.values[CANDIDATE_EXPANDABLE] = values[CANDIDATE_EXPANDABLE];
        candidate.values[CANDIDATE_ROUNDUP] = rounding.values[i];
        add_trial(advice, &candidate);
    }
}

/* A share of the device as the limit makes PyTorch give memory back before the device is full. */
static void add_fractions(struct advice *advice, const struct advise_trial *of)
{
    struct candidate candidate = of->candidate;
    double reserved = (double)figures_of(of)->peak_reserved;
    double allocated = (double)figures_of(of)->peak_allocated;
    if (of->candidate.values[CANDIDATE_FRACTION].text[0] != '\0' || allocated <= 0) {
        return;
    }
    for (int step = 0; step < FRACTION_STEPS; step++) {
        double limit = allocated + (reserved - allocated) * (step + 0.5) / FRACTION_STEPS;
        double fraction = limit / (double)advice->capacity;
        if (fraction < 0.99) {
            snprintf(candidate.values[CANDIDATE_FRACTION].text, sizeof(candidate.values[0].text), "%.3f",
                     fraction + 0.0005);
            add_trial(advice, &candidate);
        }
    }
}

/* ---- the picks ---- */

/* What was recorded, if the own setting was played under nothing else: then nothing that needs more helps. */
static int64_t least_peak(const struct advice *advice)
{
    int64_t own = advice->own.outcome.figures.peak_reserved, recorded = advice->before.figures.peak_reserved;
    return advice->is_given_room || recorded == REPLAY_UNKNOWN || recorded > own ? own : recorded;
}

bool advise_helps(const struct advice *advice, const struct advise_trial *trial)
{
    const struct replay_figures *before = figures_of(&advice->own), *after = figures_of(trial);
    uint64_t time_before = advice->own.outcome.result.device_ns, time_after = trial->outcome.result.device_ns;
    int64_t peak = least_peak(advice);
    int64_t least = peak / SAME_SHARE > 2 * MIB ? peak / SAME_SHARE : 2 * MIB;
    if (trial->outcome.error != VARVE_OK) {
        return false;
    }
    if (before->ooms != after->ooms) {
        return after->ooms < before->ooms;
    }
    return peak - after->peak_reserved >= least || (after->peak_reserved <= peak && after->retries <= before->retries &&
                                                    time_before - time_before / TIME_SHARE > time_after);
}

typedef bool (*may_be_picked)(const struct advice *advice, const struct advise_trial *trial);

static bool advise_search_any(const struct advice *advice, const struct advise_trial *trial)
{
    (void)advice;
    (void)trial;
    return true;
}

static bool without_expandable(const struct advice *advice, const struct advise_trial *trial)
{
    (void)advice;
    return trial->candidate.values[CANDIDATE_EXPANDABLE].text[0] == '\0';
}

static bool without_price(const struct advice *advice, const struct advise_trial *trial)
{
    return trial->outcome.result.device_ns <= advice->own.outcome.result.device_ns;
}

/* Peak reserved, and a hundredth of it for each option, and as large a share of it as the run takes
 * longer: less is better. */
static double advise_search_cost_of(const struct advice *advice, const struct advise_trial *trial)
{
    double more = (double)trial->outcome.result.device_ns - (double)advice->own.outcome.result.device_ns;
    double longer = advice->duration_ns > 0 && more > 0 ? more / (double)advice->duration_ns : 0;
    return (double)figures_of(trial)->peak_reserved *
           (1 + (double)candidate_size(&trial->candidate) / SAME_SHARE + longer);
}

static struct advise_trial *pick(const struct advice *advice, may_be_picked may)
{
    struct advise_trial *best = NULL;
    for (size_t i = 0; i < advice->trial_count; i++) {
        struct advise_trial *trial = &advice->trials[i];
        if (!advise_helps(advice, trial) || !may(advice, trial)) {
            continue;
        }
        int64_t fewer = best != NULL ? figures_of(best)->ooms - figures_of(trial)->ooms : 1;
        if (fewer > 0 || (fewer == 0 && advise_search_cost_of(advice, trial) < advise_search_cost_of(advice, best))) {
            best = trial;
        }
    }
    return best;
}

/* Settings that have no effect may look better: blocks of equal size lie elsewhere than recorded, and
 * others are taken. */
static bool has_effect(const struct advice *advice, const struct history *history, const struct advise_trial *trial)
{
    struct replay_options options = {.conf = trial->text, .memory_limit = advice->limit, .capacity = advice->capacity};
    return !replay_changes_nothing(history, &options, &advice->before);
}

static void pick_all(struct advice *advice, const struct history *history)
{
    static const may_be_picked tests[] = {
        [ADVISE_BEST] = advise_search_any,
        [ADVISE_WITHOUT_EXPANDABLE] = without_expandable,
        [ADVISE_WITHOUT_PRICE] = without_price,
    };
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        struct advise_trial *trial;
        while ((trial = pick(advice, tests[i])) != NULL && !has_effect(advice, history, trial)) {
            trial->outcome.error = VARVE_ERROR_UNSUPPORTED;
        }
        bool is_new = true;
        for (size_t j = 0; j < advice->pick_count; j++) {
            is_new = is_new && advice->picks[j].trial != trial;
        }
        /* what fails more than the best is none to choose instead */
        is_new = is_new && trial != NULL &&
                 (advice->pick_count == 0 || figures_of(trial)->ooms <= figures_of(advice->picks[0].trial)->ooms);
        if (is_new) {
            advice->picks[advice->pick_count++] = (struct advise_pick){.trial = trial, .reason = (enum advise_reason)i};
        }
    }
}

/* ---- what is still lost ---- */

/* Where it can't be found (no room for the database) the settings are worth knowing all the same. */
static void find_waste(struct advice *advice, const struct history *history, struct progress *progress)
{
    struct varve_message ignored = {""};
    for (size_t i = 0; i <= advice->pick_count; i++) {
        const struct advise_trial *trial = i == 0 ? &advice->own : advice->picks[i - 1].trial;
        struct whatif_setting setting = advise_setting(advice, trial);
        if (progress != NULL) {
            progress_step(progress, "looking where memory is lost", i, 1 + advice->pick_count);
        }
        whatif_waste_at_peak(history, &setting, advice->before.limit != 0, i == 0 && advice->is_followed,
                             i == 0 ? &advice->waste : &advice->picks[i - 1].waste, &ignored);
    }
}

/* ---- all of it ---- */

static void advise_search_search(struct advice *advice, const struct history *history, struct whatif *whatif,
                                 const struct advise_options *options)
{
    struct candidate defaults = defaults_of(advice);
    add_singles(advice, history, &advice->own.candidate);
    add_singles(advice, history, &defaults);
    play_trials(advice, whatif, options, 0);
    size_t first = advice->trial_count;
    advise_search_add_pairs(advice, history);
    play_trials(advice, whatif, options, first);
    if (advice->capacity != 0) {
        const struct advise_trial *best = pick(advice, advise_search_any);
        struct advise_trial chosen = best != NULL ? *best : advice->own; /* the trials move */
        first = advice->trial_count;
        add_fractions(advice, &advice->own);
        add_fractions(advice, &chosen);
        play_trials(advice, whatif, options, first);
    }
}

/* As `varve replay` does: a history that comes out again is followed, since its addresses decide where
 * sizes are equal. */
static int play_own(struct advice *advice, const struct history *history, struct whatif *whatif,
                    const struct advise_options *options, struct varve_message *message)
{
    struct whatif_setting setting = advise_setting(advice, &advice->own);
    struct replay_options follow = {.memory_limit = advice->limit, .capacity = advice->capacity};
    struct whatif_outcome *outcome = &advice->own.outcome;
    whatif_play(whatif, &setting, 1, 1, outcome, options->progress);
    if (outcome->error != VARVE_OK) {
        *message = outcome->message;
        return outcome->error;
    }
    advice->again = outcome->figures;
    struct replay_inference *inference;
    if (replay_changes_nothing(history, &follow, &advice->before)) {
        follow.follow = true;
        outcome->error = replay_infer(history, &follow, &inference, &outcome->result, message);
        if (outcome->error != VARVE_OK) {
            return outcome->error;
        }
        replay_inference_free(inference);
        outcome->figures = replay_figures_of(&outcome->result);
        advice->is_followed = true;
    }
    return VARVE_OK;
}

int advise_run(const struct history *history, struct whatif *whatif, const struct advise_options *options,
               struct advice *out, struct varve_message *message)
{
    *out = (struct advice){
        .capacity = options->capacity,
        .limit = options->memory_limit,
        .duration_ns = options->duration_ns,
        .is_given_room = options->capacity != 0 || options->memory_limit != 0,
    };
    out->before = *whatif_recorded(whatif);
    if (!out->is_given_room) {
        out->limit = out->before.limit;
    }
    candidate_of_history(history, &out->own.candidate);
    candidate_text(&out->own.candidate, out->own.text);
    int error = play_own(out, history, whatif, options, message);
    if (error != VARVE_OK) {
        return error;
    }
    advise_search_search(out, history, whatif, options);
    pick_all(out, history);
    out->least_ooms = figures_of(&out->own)->ooms;
    for (size_t i = 0; i < out->trial_count; i++) {
        if (out->trials[i].outcome.error == VARVE_OK && figures_of(&out->trials[i])->ooms < out->least_ooms) {
            out->least_ooms = figures_of(&out->trials[i])->ooms;
        }
    }
    if (out->pick_count > 0) {
        find_waste(out, history, options->progress);
    }
    return VARVE_OK;
}

void advise_free(struct advice *advice)
{
    free(advice->trials);
    *advice = (struct advice){.trials = NULL};
}
