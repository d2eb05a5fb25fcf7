/* SPDX-License-Identifier: Apache-2.0 */
/* Operators first, one after the other; then the events are played on counts of references alone. */
#include "analysis/dtr/dtr_log.h"

#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>
#include <string.h>

/* Of what came before: where the next operator's inputs and outputs begin, and sums. */
struct sums {
    uint64_t inputs, outputs, cost_ns, bytes, line, constants;
};

static int dtr_check_wrong(struct varve_message *message, const char *what, size_t index)
{
    return varve_message_set(message, VARVE_ERROR_CORRUPT, "%s %zu is wrong", what, index);
}

static bool is_tensor_right(const struct dtr_log *log, const struct dtr_op *op, uint32_t tensor)
{
    const int32_t alias = log->aliases[tensor];
    if (alias < 0) {
        return alias == -1 && log->sizes[tensor] == log->storage_bytes[tensor];
    }
    return (uint32_t)alias < op->input_count && log->sizes[tensor] == 0 &&
           log->storage_bytes[tensor] == log->storage_bytes[log->inputs[op->first_input + (uint32_t)alias]];
}

static bool is_op_right(const struct dtr_log *log, const struct dtr_op *op, struct sums *sums)
{
    if (op->name >= log->names->count || op->line <= sums->line || op->line > log->lines ||
        op->first_input != sums->inputs || op->input_count > log->input_count - op->first_input ||
        op->first_output != sums->outputs || op->output_count == 0 ||
        op->output_count > log->tensor_count - op->first_output || op->cost_ns > DTR_SUM_MAX - sums->cost_ns) {
        return false;
    }
    if (op->is_constant && (op->input_count > 0 || op->output_count != 1 || op->cost_ns > 0)) {
        return false;
    }
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op->input_count; i++) {
        uint32_t input = log->inputs[op->first_input + i];
        if (input >= op->first_output || log->storage_bytes[input] > DTR_SUM_MAX - bytes) {
            return false;
        }
        bytes += log->storage_bytes[input];
    }
    for (uint32_t i = op->first_output; i < op->first_output + op->output_count; i++) {
        if (!is_tensor_right(log, op, i) || log->sizes[i] > DTR_SUM_MAX - sums->bytes) {
            return false;
        }
        sums->bytes += log->sizes[i];
    }
    sums->inputs += op->input_count;
    sums->outputs += op->output_count;
    sums->cost_ns += op->cost_ns;
    sums->line = op->line;
    sums->constants += op->is_constant ? 1 : 0;
    return true;
}

static bool are_live(const struct dtr_op *op, const uint32_t *inputs, const uint32_t *references)
{
    for (uint32_t i = 0; i < op->input_count; i++) {
        if (references[inputs[op->first_input + i]] == 0) {
            return false;
        }
    }
    return true;
}

/* Is it right after those before it, of which `ops` were operators? */
static bool dtr_check_play(const struct dtr_log *log, const struct dtr_event *event, uint32_t *ops,
                           uint32_t *references)
{
    const struct dtr_op *op = &log->ops[*ops];
    if (event->kind == DTR_EVENT_MARK) {
        return event->id < log->names->count;
    }
    if (event->kind == DTR_EVENT_COMPUTE) {
        if (event->id != *ops || *ops == log->op_count || !are_live(op, log->inputs, references)) {
            return false;
        }
        for (uint32_t i = 0; i < op->output_count; i++) {
            references[op->first_output + i] = 1;
        }
        ++*ops;
        return true;
    }
    if (event->kind >= DTR_EVENT_LIMIT || event->id >= log->tensor_count || references[event->id] == 0) {
        return false;
    }
    references[event->id] += event->kind == DTR_EVENT_GET ? 1 : 0;
    references[event->id] -= event->kind == DTR_EVENT_RELEASE ? 1 : 0;
    return true;
}

static int check_events(const struct dtr_log *log, struct varve_message *message)
{
    uint32_t *references = memory_resize(NULL, log->tensor_count * sizeof(*references));
    memset(references, 0, log->tensor_count * sizeof(*references));
    uint32_t ops = 0;
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < log->event_count; i++) {
        if (!dtr_check_play(log, &log->events[i], &ops, references) ||
            (i >= log->end_event && log->events[i].kind != DTR_EVENT_PIN)) {
            error = dtr_check_wrong(message, "event", i);
        }
    }
    if (error == VARVE_OK && ops != log->op_count) {
        error = dtr_check_wrong(message, "the number of operators", ops);
    }
    free(references);
    return error;
}

int dtr_log_check(const struct dtr_log *log, struct varve_message *message)
{
    struct sums sums = {0};
    for (uint32_t i = 0; i < log->op_count; i++) {
        if (!is_op_right(log, &log->ops[i], &sums)) {
            return dtr_check_wrong(message, "operator", i);
        }
    }
    if (log->op_count == 0 || sums.inputs != log->input_count || sums.outputs != log->tensor_count ||
        sums.cost_ns != log->cost_ns || sums.bytes != log->bytes || sums.constants != log->constants ||
        log->constants + log->calls + log->mutates != log->op_count || log->end_event > log->event_count) {
        return dtr_check_wrong(message, "a sum over operators, of which", log->op_count);
    }
    return check_events(log, message);
}
