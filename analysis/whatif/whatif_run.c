/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of the settings only the capacity changes what is inferred (replay_infer without follow), so there is one inference
 * for each capacity; plays only read it.
 */
#include "analysis/whatif/whatif_run.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/parallel.h"
#include "analysis/base/progress.h"
#include "analysis/whatif/memory_profile.h"

#include <pthread.h>
#include <stdlib.h>

struct inference {
    uint64_t capacity;
    struct replay_inference *inference;
};

struct whatif {
    const struct history *history;
    struct replay_before before;
    struct whatif_profile profile; /* made when a setting first needs it */
    struct inference *inferences;
    size_t inference_count, inference_capacity;
};

/* The inference for a capacity; NULL with the reason in `message`. */
static struct replay_inference *whatif_run_infer(struct whatif *whatif, uint64_t capacity, int *error_out,
                                                 struct varve_message *message)
{
    struct replay_options options = {.capacity = capacity, .finds_limit = whatif->before.limit != 0};
    struct inference made = {.capacity = capacity};
    for (size_t i = 0; i < whatif->inference_count; i++) {
        if (whatif->inferences[i].capacity == capacity) {
            return whatif->inferences[i].inference;
        }
    }
    struct replay_result ignored;
    *error_out = replay_infer(whatif->history, &options, &made.inference, &ignored, message);
    if (*error_out != VARVE_OK) {
        return NULL;
    }
    *MEMORY_ADD(whatif->inferences, whatif->inference_count, whatif->inference_capacity) = made;
    return made.inference;
}

int whatif_open(const struct history *history, struct whatif **whatif_out, struct varve_message *message)
{
    struct whatif *whatif = memory_resize(NULL, sizeof(*whatif));
    *whatif_out = NULL;
    *whatif = (struct whatif){.history = history};
    int error = replay_before_load(history, NULL, &whatif->before);
    if (error != VARVE_OK || whatif_run_infer(whatif, 0, &error, message) == NULL) {
        whatif_close(whatif);
        return error;
    }
    *whatif_out = whatif;
    return VARVE_OK;
}

const struct replay_before *whatif_recorded(const struct whatif *whatif)
{
    return &whatif->before;
}

void whatif_close(struct whatif *whatif)
{
    if (whatif == NULL) {
        return;
    }
    for (size_t i = 0; i < whatif->inference_count; i++) {
        replay_inference_free(whatif->inferences[i].inference);
    }
    whatif_profile_free(&whatif->profile);
    free(whatif->inferences);
    free(whatif);
}

bool whatif_knew_future(const struct whatif *whatif)
{
    return whatif->profile.is_whole;
}

struct plays {
    const struct whatif_profile *profile;
    const struct whatif_setting *settings;
    struct replay_inference **inferences; /* of each setting; NULL: its outcome has the error */
    struct whatif_outcome *outcomes;
    size_t count;
    struct progress *progress;
    pthread_mutex_t lock; /* of progress and `done` */
    size_t done;
};

static void play_setting(void *context, size_t index)
{
    struct plays *plays = context;
    const struct whatif_setting *setting = &plays->settings[index];
    struct whatif_outcome *outcome = &plays->outcomes[index];
    struct replay_options options = {
        .policy = setting->policy,
        .conf = setting->conf,
        .memory_limit = setting->memory_limit,
        .capacity = setting->capacity,
        .stop_at_oom = setting->stop_at_oom,
        .served_only = setting->served_only,
        .skip = setting->skip,
        .skip_context = setting->skip_context,
        .plans = plays->profile->plans,
        .counts_addresses = setting->counts_addresses,
        .empty_cache_before = setting->empty_cache_before,
        .observe = setting->observe != NULL ? setting->observe : whatif_observe,
        .observe_context = setting->observe != NULL ? setting->observe_context : &outcome->moments,
    };
    if (plays->inferences[index] != NULL) {
        outcome->error = replay_play(plays->inferences[index], &options, &outcome->result, &outcome->message);
        outcome->figures = replay_figures_of(&outcome->result);
    }
    pthread_mutex_lock(&plays->lock);
    plays->done++;
    if (plays->progress != NULL) {
        progress_step(plays->progress, "replaying settings", plays->done, plays->count);
    }
    pthread_mutex_unlock(&plays->lock);
}

void whatif_play(struct whatif *whatif, const struct whatif_setting *settings, size_t count, unsigned threads,
                 struct whatif_outcome *outcomes, struct progress *progress)
{
    struct plays plays = {
        .profile = &whatif->profile, .settings = settings, .outcomes = outcomes, .count = count, .progress = progress};
    plays.inferences = memory_resize(NULL, (count + 1) * sizeof(struct replay_inference *));
    for (size_t i = 0; i < count; i++) {
        outcomes[i] = (struct whatif_outcome){.error = VARVE_OK};
        plays.inferences[i] = whatif_run_infer(whatif, settings[i].capacity, &outcomes[i].error, &outcomes[i].message);
        if (plays.inferences[i] != NULL && whatif_needs_profile(settings[i].policy) && whatif->profile.count == 0) {
            outcomes[i].error = whatif_profile_make(whatif->history, &whatif->profile, &outcomes[i].message);
            plays.inferences[i] = outcomes[i].error == VARVE_OK ? plays.inferences[i] : NULL;
        }
    }
    pthread_mutex_init(&plays.lock, NULL);
    parallel_run(count, threads, play_setting, &plays);
    pthread_mutex_destroy(&plays.lock);
    free(plays.inferences);
}
