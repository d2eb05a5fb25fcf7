/* SPDX-License-Identifier: Apache-2.0 */
/* The records of the play are what a recording of it would have; the ladder follows from them alone. */
#include "analysis/whatif/reserved_waste.h"

#include "analysis/replay/replay.h"
#include "base/error.h"
#include "trace/layout.h"
#include "trace/record.h"

struct waste_play {
    struct varve_ladders *ladders;
    int error;
};

static void reserved_waste_record(void *context, struct replay *replay, const struct varve_record *record)
{
    struct waste_play *play = context;
    (void)replay;
    VARVE_THEN(play->error, varve_ladders_apply(play->ladders, record));
}

static int reserved_waste_play(const struct history *history, struct replay_options *options, struct waste_play *play,
                               struct varve_message *message)
{
    struct replay_inference *inference;
    struct replay_result result;
    int error = replay_infer(history, options, &inference, &result, message);
    if (error != VARVE_OK) {
        return error;
    }
    options->output = (struct replay_output){.record = reserved_waste_record, .context = play};
    error = replay_play(inference, options, &result, message);
    replay_inference_free(inference);
    return error == VARVE_OK && play->error != VARVE_OK
               ? varve_message_set(message, play->error, "no memory for the blocks of a replay")
               : error;
}

int whatif_waste_at_peak(const struct history *history, const struct whatif_setting *setting, bool finds_limit,
                         bool follow, struct whatif_waste *out, struct varve_message *message)
{
    struct replay_options options = {
        .policy = setting->policy,
        .conf = setting->conf,
        .memory_limit = setting->memory_limit,
        .capacity = setting->capacity,
        .finds_limit = finds_limit,
        .follow = follow,
    };
    struct waste_play play = {.ladders = varve_ladders_new()};
    *out = (struct whatif_waste){.is_known = false};
    if (play.ladders == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the blocks of a replay");
    }
    int error = reserved_waste_play(history, &options, &play, message);
    if (error == VARVE_OK) {
        const struct varve_ladder ladder = varve_ladders_peak(play.ladders);
        out->is_known = true;
        out->reserved = (int64_t)ladder.reserved;
        out->live_requested = (int64_t)ladder.live_requested;
#define WASTE_CAUSE(name) out->name = (int64_t)ladder.name;
        WHATIF_CAUSE_LIST(WASTE_CAUSE)
#undef WASTE_CAUSE
    }
    varve_ladders_free(play.ladders);
    return error;
}
