/* SPDX-License-Identifier: Apache-2.0 */
#include "support/storage/remat_world.h"

#include "storage/remat/planner.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUTS_MOST 4
#define OUTPUTS_MOST 3
#define LOCKS_MOST 3
#define PINS_MOST 4
#define BYTES_MOST 1000

#define WRONG(world, ...)                                                  \
    do {                                                                   \
        if ((world)->wrong[0] == '\0') {                                   \
            snprintf((world)->wrong, sizeof((world)->wrong), __VA_ARGS__); \
        }                                                                  \
    } while (0)

/* ---- values ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* A tensor that the storage has; its elements are those of its value. */
#define FOR_EACH_OF(world, storage_number, t)                                                              \
    for (uint32_t t = 0, tensors_of_world = (world)->remat->graph.tensor_count; t < tensors_of_world; t++) \
        if ((world)->tensors[t].is_listed && (world)->tensors[t].storage == (storage_number))

/* ---- the driver ---- */

static uint64_t pick(struct remat_world *world, uint64_t limit)
{
    return world->choose(world->source, limit);
}

static int drive_run(void *context, struct varve_remat_run *run, struct varve_message *message)
{
    struct remat_world *world = context;
    uint64_t hash = (uint64_t)(uintptr_t)varve_remat_user(world->remat, run->op);
    if (world->remat->used + world->remat->graph.ops[run->op].total_size > world->remat->options.budget) {
        WRONG(world, "a run of operator %u beyond the budget", run->op);
    }
    if (world->runs_until_failure > 0 && --world->runs_until_failure == 0) {
        return varve_message_set(message, VARVE_ERROR_IO, "a run that fails");
    }
    /* As if an allocator had no such block. */
    while (world->options.stumbles && pick(world, 4) == 0 && varve_remat_make_room(world->remat, 1) > 0) {
        world->stumbles++;
    }
    run->cost_ns = hash % 7 == 0 ? 0 : hash % 1000;
    for (unsigned i = 0; i < run->input_count; i++) {
        if (!world->tensors[run->inputs[i]].is_present) {
            WRONG(world, "run of operator %u without its input %u", run->op, run->inputs[i]);
        }
        if (world->remat->graph.storages[varve_remat_storage(world->remat, run->inputs[i])].locks == 0 &&
            world->options.dealloc != VARVE_REMAT_DEALLOC_BANISH) {
            WRONG(world, "run of operator %u, whose input %u is not locked", run->op, run->inputs[i]);
        }
        hash = mix(hash, world->tensors[run->inputs[i]].value);
    }
    for (unsigned i = 0; i < run->output_count; i++) {
        if (run->outputs[i] == VARVE_REMAT_NONE) {
            continue;
        }
        struct remat_world_tensor *tensor = &world->tensors[run->outputs[i]];
        if (!run->is_remat) {
            *tensor = (struct remat_world_tensor){.storage = varve_remat_storage(world->remat, run->outputs[i]),
                                                  .is_listed = true};
        }
        tensor->value = mix(hash, i);
        tensor->is_present = true;
    }
    return 0;
}

static void drive_evict(void *context, uint32_t storage)
{
    struct remat_world *world = context;
    FOR_EACH_OF(world, storage, t)
    {
        world->tensors[t].is_present = false;
        world->tensors[t].value = 0;
    }
    if (world->storages[storage].locks > 0) {
        WRONG(world, "storage %u was evicted under a lock", storage);
    }
}

static void drive_forget(void *context, uint32_t storage)
{
    struct remat_world *world = context;
    FOR_EACH_OF(world, storage, t)
    {
        if (world->tensors[t].is_present) {
            WRONG(world, "storage %u was forgotten with its elements", storage);
        }
        world->tensors[t].is_listed = false;
    }
    world->storages[storage] = (struct remat_world_storage){0};
    world->forgotten++;
}

/* The victim has left the pool already, its neighbours have not noticed. A scan ends at 0, even before sums of
 * classes below it. */
static void check_victim(struct remat_world *world, const struct varve_remat_event *event)
{
    struct varve_remat *remat = world->remat;
    bool is_time = remat->heuristic->score == VARVE_REMAT_SCORE_LAST_ACCESS;
    double score =
        is_time ? (double)remat->graph.storages[event->storage].last_access : search_score(remat, event->storage);
    for (uint32_t i = 0; i < remat->pool.used; i++) {
        uint32_t other = remat->pool.slots[i];
        double least;
        if (other != VARVE_REMAT_NONE) {
            least = is_time ? (double)remat->graph.storages[other].last_access : search_score(remat, other);
            if (score != 0 && least < score - 1e-6 * fabs(score)) {
                WRONG(world, "step %" PRIu64 ": storage %u with score %g was evicted, not %u with %g", world->steps,
                      event->storage, score, other, least);
            }
        }
    }
}

static void drive_event(void *context, const struct varve_remat_event *event)
{
    struct remat_world *world = context;
    switch (event->kind) {
    case VARVE_REMAT_EVENT_OP:
        world->seen.operators++;
        world->seen.model_ns += event->cost_ns;
        break;
    case VARVE_REMAT_EVENT_EVICT:
        world->seen.evictions[event->cause]++;
        world->seen.evicted_bytes += event->bytes;
        if ((event->cause == VARVE_REMAT_CAUSE_BUDGET || event->cause == VARVE_REMAT_CAUSE_ALLOCATOR) &&
            world->options.checks_victims) {
            check_victim(world, event);
        }
        break;
    case VARVE_REMAT_EVENT_REMAT:
        world->seen.direct += event->cause == VARVE_REMAT_CAUSE_DIRECT;
        world->seen.collateral += event->cause == VARVE_REMAT_CAUSE_COLLATERAL;
        world->seen.remat_ns += event->cost_ns;
        break;
    case VARVE_REMAT_EVENT_FAILED:
        world->seen.failed++;
        break;
    case VARVE_REMAT_EVENT_BLOCKED:
        if (world->remat->graph.storages[event->storage].locks == 0) {
            WRONG(world, "storage %u could have been evicted", event->storage);
        }
        break;
    case VARVE_REMAT_EVENT_PIN:
    case VARVE_REMAT_EVENT_UNPIN:
    case VARVE_REMAT_EVENT_BUDGET:
        break;
    }
}

/* ---- what must hold between steps ---- */

static void check_counters(struct remat_world *world)
{
    struct varve_remat_counters c;
    const uint64_t *by = world->seen.evictions;
    uint64_t all = 0;
    varve_remat_get_counters(world->remat, &c);
    for (unsigned i = 0; i < REMAT_WORLD_CAUSES; i++) {
        all += by[i];
    }
    if (c.evictions != all || c.evicted_bytes != world->seen.evicted_bytes ||
        c.evictions_released != by[VARVE_REMAT_CAUSE_RELEASED] || c.evictions_budget != by[VARVE_REMAT_CAUSE_BUDGET] ||
        c.evictions_allocator != by[VARVE_REMAT_CAUSE_ALLOCATOR] ||
        c.evictions_requested != by[VARVE_REMAT_CAUSE_REQUESTED] ||
        c.evictions_banished != by[VARVE_REMAT_CAUSE_BANISHED] ||
        c.evictions_released + c.evictions_budget + c.evictions_allocator + c.evictions_requested +
                c.evictions_banished !=
            c.evictions) {
        WRONG(world, "evictions: the counters and the events differ");
    }
    if (c.operators != world->seen.operators || c.model_compute_ns != world->seen.model_ns ||
        c.remat_compute_ns != world->seen.remat_ns || c.remats_direct != world->seen.direct ||
        c.remats_collateral != world->seen.collateral || c.failures != world->seen.failed ||
        c.executions != c.operators + c.remats_direct || c.clock != 1 + c.model_compute_ns + c.remat_compute_ns) {
        WRONG(world, "runs: the counters and the events differ");
    }
    if (c.used_bytes > c.max_used_bytes) {
        WRONG(world, "%" PRIu64 " bytes used, at most %" PRIu64, c.used_bytes, c.max_used_bytes);
    }
}

static void check_storages(struct remat_world *world)
{
    const struct remat_graph *graph = &world->remat->graph;
    for (uint32_t t = 0; t < graph->tensor_count; t++) {
        const struct remat_world_tensor *tensor = &world->tensors[t];
        if (!tensor->is_listed) {
            continue;
        }
        uint32_t i = tensor->storage, locks = world->storages[i].locks + world->storages[i].is_pinned;
        if (graph->tensors[t].storage == i && tensor->is_present != varve_remat_is_defined(world->remat, t)) {
            WRONG(world, "tensor %u is %s, not so its value", t, tensor->is_present ? "undefined" : "defined");
        }
        if (world->options.dealloc != VARVE_REMAT_DEALLOC_BANISH && graph->storages[i].locks != locks) {
            WRONG(world, "storage %u has %u locks, not %u", i, graph->storages[i].locks, locks);
        }
    }
    for (unsigned i = 0; i < world->handle_count; i++) {
        uint32_t tensor = world->handles[i].tensor;
        if (graph->tensors[tensor].storage != world->tensors[tensor].storage ||
            (world->tensors[tensor].is_present && world->tensors[tensor].value != world->tensors[tensor].expected)) {
            WRONG(world, "tensor %u has a wrong value", tensor);
        }
    }
}

static void check(struct remat_world *world)
{
    if (world->is_over || world->remat->is_broken || world->options.check_every == 0 ||
        world->steps % world->options.check_every != 0) {
        return;
    }
    int error = varve_remat_check(world->remat, &world->message);
    if (error != 0 && error != VARVE_ERROR_NO_MEMORY) {
        WRONG(world, "step %" PRIu64 ": %s", world->steps, world->message.text);
    }
    check_counters(world);
    check_storages(world);
}

/* ---- what the program does ---- */

/* An operation ended with this. */
static bool is_done(struct remat_world *world, int error)
{
    if (error == 0) {
        return true;
    }
    world->failures++;
    world->is_over |= !world->options.is_live;
    uint64_t budget;
    const char *figure;
    if (error == VARVE_ERROR_NO_MEMORY && !world->remat->is_broken) {
        figure = strstr(world->message.text, "a budget of ");
        if (figure == NULL || sscanf(figure, "a budget of %" SCNu64, &budget) != 1 ||
            budget <= world->remat->options.budget) {
            WRONG(world, "no figure that would do: %s", world->message.text);
        }
    } else if (error != VARVE_ERROR_IO && !world->remat->is_broken) {
        WRONG(world, "unexpected error %d: %s", error, world->message.text);
    }
    return false;
}

static void drop(struct remat_world *world, unsigned which)
{
    struct remat_world_handle *handle = &world->handles[which];
    uint32_t tensor = handle->tensor;
    if (--handle->refs == 0) {
        *handle = world->handles[--world->handle_count];
    }
    varve_remat_release(world->remat, tensor);
}

/* The operator, with room for what is chosen. */
struct chosen {
    struct varve_remat_op op;
    uint32_t inputs[INPUTS_MOST];
    uint64_t sizes[OUTPUTS_MOST];
    int32_t aliases[OUTPUTS_MOST];
};

static void choose_op(struct remat_world *world, struct chosen *chosen)
{
    struct varve_remat_op *op = &chosen->op;
    *op = (struct varve_remat_op){.inputs = chosen->inputs, .sizes = chosen->sizes, .aliases = chosen->aliases};
    op->input_count = world->handle_count > 0 ? (unsigned)pick(world, INPUTS_MOST) : 0;
    op->output_count = pick(world, 4) == 0 ? 1 + (unsigned)pick(world, OUTPUTS_MOST) : 1;
    op->cost_ns = 1;
    op->user = (void *)(uintptr_t)++world->serial; /* NOLINT: a number */
    for (unsigned i = 0; i < op->input_count; i++) {
        /* recent ones mostly, so that chains are deep */
        unsigned from = pick(world, 2) == 0 && world->handle_count > 6 ? world->handle_count - 6 : 0;
        chosen->inputs[i] = world->handles[from + pick(world, world->handle_count - from)].tensor;
    }
    for (unsigned i = 0; i < op->output_count; i++) {
        bool is_view = world->options.has_views && op->input_count > 0 && pick(world, 5) == 0;
        if (is_view && !world->options.has_wide_views) {
            op->input_count = op->output_count = 1;
            i = 0;
        }
        chosen->aliases[i] = is_view ? (int32_t)pick(world, op->input_count) : -1;
        chosen->sizes[i] = is_view || pick(world, 16) == 0 ? 0 : 1 + pick(world, BYTES_MOST);
    }
}

static void take_outputs(struct remat_world *world, const struct chosen *chosen, const uint32_t *outputs)
{
    uint64_t hash = world->serial;
    for (unsigned i = 0; i < chosen->op.input_count; i++) {
        hash = mix(hash, world->tensors[chosen->inputs[i]].expected);
    }
    for (unsigned i = 0; i < chosen->op.output_count; i++) {
        world->tensors[outputs[i]].expected = mix(hash, i);
        if (!varve_remat_is_defined(world->remat, outputs[i])) {
            WRONG(world, "output %u is not defined", i);
        }
    }
    for (unsigned i = 0; i < chosen->op.output_count; i++) {
        while (world->handle_count == REMAT_WORLD_HANDLES) {
            drop(world, (unsigned)pick(world, world->handle_count));
        }
        world->handles[world->handle_count++] = (struct remat_world_handle){.tensor = outputs[i], .refs = 1};
    }
}

static void step_compute(struct remat_world *world)
{
    struct chosen chosen;
    choose_op(world, &chosen);
    if (world->options.fails && pick(world, 8) == 0) {
        world->runs_until_failure = 1 + pick(world, 4);
    }
    uint32_t outputs[OUTPUTS_MOST];
    int error = varve_remat_compute(world->remat, &chosen.op, outputs, &world->message);
    world->runs_until_failure = 0;
    for (unsigned i = 0; i < chosen.op.output_count; i++) {
        world->storages_made += chosen.aliases[i] < 0;
    }
    if (is_done(world, error)) {
        take_outputs(world, &chosen, outputs);
    }
}

static bool make_defined(struct remat_world *world, uint32_t tensor)
{
    if (world->options.fails && pick(world, 8) == 0) {
        world->runs_until_failure = 1 + pick(world, 3);
    }
    int error = varve_remat_materialize(world->remat, tensor, &world->message);
    world->runs_until_failure = 0;
    if (!is_done(world, error)) {
        return false;
    }
    if (!varve_remat_is_defined(world->remat, tensor) ||
        world->tensors[tensor].value != world->tensors[tensor].expected) {
        WRONG(world, "tensor %u was made defined with a wrong value", tensor);
    }
    return true;
}

static unsigned pins(const struct remat_world *world)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < world->remat->graph.storage_count; i++) {
        count += world->storages[i].is_pinned;
    }
    return count;
}

static void step_pin(struct remat_world *world, uint32_t tensor)
{
    struct remat_world_storage *storage = &world->storages[world->tensors[tensor].storage];
    if (storage->is_pinned && pick(world, 2) == 0) {
        varve_remat_unpin(world->remat, tensor);
        storage->is_pinned = world->remat->graph.storages[world->tensors[tensor].storage].is_pinned;
    } else if (pins(world) < PINS_MOST && make_defined(world, tensor)) {
        storage->is_pinned = true;
        if (world->options.is_live && pick(world, 3) == 0) {
            varve_remat_drop_recipe(world->remat, tensor);
        } else {
            varve_remat_pin(world->remat, tensor);
        }
    }
}

static void unlock(struct remat_world *world, unsigned which)
{
    uint32_t tensor = world->locked[which];
    world->locked[which] = world->locked[--world->lock_count];
    world->storages[world->tensors[tensor].storage].locks--;
    varve_remat_unlock(world->remat, tensor);
}

static void step_lock(struct remat_world *world, uint32_t tensor)
{
    if (world->lock_count == LOCKS_MOST || (world->lock_count > 0 && pick(world, 2) == 0)) {
        unlock(world, (unsigned)pick(world, world->lock_count));
    } else if (make_defined(world, tensor)) {
        varve_remat_lock(world->remat, tensor);
        world->storages[world->tensors[tensor].storage].locks++;
        world->locked[world->lock_count++] = tensor;
    }
}

static void step_evict(struct remat_world *world, uint32_t tensor)
{
    const struct remat_storage *storage = &world->remat->graph.storages[varve_remat_storage(world->remat, tensor)];
    bool is_possible = storage->is_resident && storage->locks == 0;
    int error = varve_remat_evict(world->remat, tensor, &world->message);
    if (!world->remat->is_broken && (error != (is_possible ? 0 : VARVE_ERROR_BUSY) ||
                                     (is_possible && varve_remat_is_defined(world->remat, tensor)))) {
        WRONG(world, "eviction of tensor %u", tensor);
    }
}

/* Steps that change what the planner does: rare. */
static void step_setting(struct remat_world *world)
{
    uint64_t budget = world->options.budget;
    switch (pick(world, 3)) {
    case 0:
        varve_remat_set_budget(world->remat, pick(world, 2) == 0 ? budget : budget + pick(world, budget));
        break;
    case 1:
        varve_remat_set_search(world->remat, pick(world, 2) == 0 ? VARVE_REMAT_SEARCH_SCAN : world->options.search);
        break;
    default:
        varve_remat_set_ignores_small(world->remat, pick(world, 2) == 0);
        break;
    }
}

static void step_live(struct remat_world *world, uint32_t tensor, uint64_t kind)
{
    if (kind < 4) {
        step_pin(world, tensor);
    } else if (kind < 8) {
        step_lock(world, tensor);
    } else if (kind < 14) {
        step_evict(world, tensor);
    } else if (kind == 14 && world->options.budget != VARVE_REMAT_UNLIMITED) {
        step_setting(world);
    }
}

bool remat_world_step(struct remat_world *world)
{
    uint64_t kind = pick(world, 100);
    if (world->remat->graph.tensor_count > REMAT_WORLD_NUMBERS - REMAT_WORLD_HANDLES) {
        WRONG(world, "more tensors than there is room for");
    }
    if (world->is_over || world->wrong[0] != '\0') {
        return world->wrong[0] == '\0';
    }
    world->steps++;
    unsigned which;
    if (kind < 40 || world->handle_count == 0) {
        step_compute(world);
    } else {
        which = (unsigned)pick(world, world->handle_count);
        if (kind < 70) {
            drop(world, which);
        } else if (kind < 76) {
            varve_remat_retain(world->remat, world->handles[which].tensor);
            world->handles[which].refs++;
        } else if (kind < 84) {
            make_defined(world, world->handles[which].tensor);
        } else if (world->options.is_live) {
            step_live(world, world->handles[which].tensor, kind - 84);
        }
    }
    check(world);
    return world->wrong[0] == '\0';
}

/* ---- beginning and end ---- */

int remat_world_open(struct remat_world *world, const struct remat_world_options *options,
                     uint64_t (*choose)(void *source, uint64_t limit), void *source)
{
    *world = (struct remat_world){.options = *options,
                                  .choose = choose,
                                  .source = source,
                                  .tensors = calloc(REMAT_WORLD_NUMBERS, sizeof(*world->tensors)),
                                  .storages = calloc(REMAT_WORLD_NUMBERS, sizeof(*world->storages))};
    struct varve_remat_options planner;
    varve_remat_options_init(&planner);
    planner.heuristic = varve_remat_heuristic_find(options->heuristic);
    planner.dealloc = options->dealloc;
    planner.search = options->search;
    planner.budget = options->budget;
    planner.seed = options->seed;
    planner.is_live = options->is_live;
    planner.driver = (struct varve_remat_driver){
        .context = world, .run = drive_run, .evict = drive_evict, .forget = drive_forget, .event = drive_event};
    int error = world->tensors == NULL || world->storages == NULL
                    ? VARVE_ERROR_NO_MEMORY
                    : varve_remat_open(&planner, &world->remat, &world->message);
    if (error != 0) {
        free(world->tensors);
        free(world->storages);
    }
    return error;
}

bool remat_world_finish(struct remat_world *world)
{
    const struct remat_graph *graph = &world->remat->graph;
    while (world->lock_count > 0) {
        unlock(world, 0);
    }
    while (world->handle_count > 0 && world->wrong[0] == '\0') {
        drop(world, (unsigned)pick(world, world->handle_count));
        world->steps++;
        check(world);
    }
    struct varve_remat_counters c;
    varve_remat_get_counters(world->remat, &c);
    if (world->options.is_live && !world->remat->is_broken &&
        (c.storages != 0 || c.used_bytes != 0 || c.pinned_bytes != 0 || c.candidates != 0 ||
         world->remat->locked_bytes != 0)) {
        WRONG(world, "left: %" PRIu64 " storages, %" PRIu64 " bytes", c.storages, c.used_bytes);
    }
    if (world->options.is_live && !world->remat->is_broken &&
        (graph->free_storages.count != graph->storage_count || graph->free_tensors.count != graph->tensor_count ||
         graph->free_ops.count != graph->op_count || world->forgotten != world->storages_made)) {
        WRONG(world,
              "numbers that are not free: %u of %u storages, %u tensors, %u operators; %" PRIu64 " of %" PRIu64
              " forgotten",
              graph->storage_count - graph->free_storages.count, graph->storage_count,
              graph->tensor_count - graph->free_tensors.count, graph->op_count - graph->free_ops.count,
              world->forgotten, world->storages_made);
    }
    return world->wrong[0] == '\0';
}

void remat_world_close(struct remat_world *world)
{
    varve_remat_close(world->remat);
    free(world->tensors);
    free(world->storages);
}
