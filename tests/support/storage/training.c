/* SPDX-License-Identifier: Apache-2.0 */
#include "support/storage/training.h"

#include "base/error.h"

#include <string.h>

#define SEED UINT64_C(20260)
#define RATE 0.05

typedef struct varve_tensor tensor;

/* The first error stays, and nothing runs after it. */
struct state {
    const struct training *training;
    struct varve_runtime *runtime;
    struct varve_message *message;
    int error;
    tensor *weights[TRAINING_LAYERS_MAX];
    tensor *input, *target, *one, *minus_one, *rate, *slope; /* constants */
    tensor *sigmoids[TRAINING_LAYERS_MAX];                   /* of this step */
    tensor *outputs[TRAINING_LAYERS_MAX + 1];                /* of the layer before: [0] is the input */
};

enum { KEEP = 0, TAKE_A = 1, TAKE_B = 2, TAKE_BOTH = 3 };

static tensor *binary(struct state *state, int (*op)(tensor *, tensor *, tensor **, struct varve_message *), tensor *a,
                      tensor *b, int take)
{
    tensor *out = NULL;
    VARVE_THEN(state->error, op(a, b, &out, state->message));
    varve_tensor_release((take & TAKE_A) != 0 ? a : NULL);
    varve_tensor_release((take & TAKE_B) != 0 ? b : NULL);
    return out;
}

static tensor *unary(struct state *state, int (*op)(tensor *, tensor **, struct varve_message *), tensor *a)
{
    tensor *out = NULL;
    VARVE_THEN(state->error, op(a, &out, state->message));
    varve_tensor_release(a);
    return out;
}

static tensor *transposed(struct state *state, tensor *a)
{
    tensor *out = NULL;
    VARVE_THEN(state->error, varve_tensor_transpose(a, 0, 1, &out, state->message));
    return out;
}

static tensor *same(struct state *state, tensor *a)
{
    tensor *out = NULL;
    VARVE_THEN(state->error, varve_tensor_copy(a, &out, state->message));
    return out;
}

/* ---- constants and parameters ---- */

static tensor *number(struct state *state, double value)
{
    const struct varve_tensor_type type = {.dtype = VARVE_DTYPE_F32};
    const struct varve_scalar scalar = {.kind = VARVE_SCALAR_REAL, .real = value};
    tensor *out = NULL;
    VARVE_THEN(state->error, varve_tensor_op_fill(state->runtime, &type, scalar, &out, state->message));
    VARVE_THEN(state->error, varve_tensor_pin(out, state->message));
    return out;
}

static tensor *parameter(struct state *state, int64_t rows, int64_t columns, uint64_t sequence, double deviation)
{
    const int64_t shape[] = {rows, columns};
    const struct varve_tensor_type type = {VARVE_DTYPE_F32, 2, shape};
    tensor *out = NULL;
    VARVE_THEN(state->error,
               varve_tensor_op_normal(state->runtime, &type, SEED, sequence, 0, deviation, &out, state->message));
    VARVE_THEN(state->error, varve_tensor_pin(out, state->message));
    return out;
}

static void prepare(struct state *state)
{
    const struct training *training = state->training;
    double elements = (double)(training->batch * training->width);
    state->one = number(state, 1);
    state->minus_one = number(state, -1);
    state->rate = number(state, RATE);
    state->slope = number(state, 2 / elements);
    state->input = parameter(state, training->batch, training->width, 1, 1);
    state->target = parameter(state, training->batch, training->width, 2, 1);
    for (unsigned i = 0; i < training->layers; i++) {
        state->weights[i] = parameter(state, training->width, training->width, 3 + i, 0.3);
    }
}

/* ---- a step ---- */

/* sigmoid(h W), and with h added in a residual network. */
static void forward(struct state *state, unsigned layer)
{
    tensor *before = state->outputs[layer];
    tensor *z = binary(state, varve_tensor_op_matmul, before, state->weights[layer], KEEP);
    tensor *e = unary(state, varve_tensor_op_exp, binary(state, varve_tensor_op_mul, z, state->minus_one, TAKE_A));
    tensor *s = binary(state, varve_tensor_op_div, state->one,
                       binary(state, varve_tensor_op_add, e, state->one, TAKE_A), TAKE_B);
    state->sigmoids[layer] = s;
    state->outputs[layer + 1] =
        state->training->is_residual ? binary(state, varve_tensor_op_add, s, before, KEEP) : same(state, s);
}

/* The gradient of the layer's output becomes that of its input, and the weights go down their slope. */
static tensor *backward(struct state *state, unsigned layer, tensor *gradient)
{
    tensor *s = state->sigmoids[layer], *h = state->outputs[layer], *w = state->weights[layer];
    tensor *inner =
        binary(state, varve_tensor_op_mul, s, binary(state, varve_tensor_op_sub, state->one, s, KEEP), TAKE_B);
    tensor *dz = binary(state, varve_tensor_op_mul, inner, gradient, TAKE_A);
    tensor *dw = binary(state, varve_tensor_op_matmul, transposed(state, h), dz, TAKE_A);
    tensor *dh = binary(state, varve_tensor_op_matmul, dz, transposed(state, w), TAKE_BOTH);
    tensor *next =
        binary(state, varve_tensor_op_sub, w, binary(state, varve_tensor_op_mul, dw, state->rate, TAKE_A), TAKE_B);
    if (state->training->is_residual) {
        dh = binary(state, varve_tensor_op_add, dh, gradient, TAKE_A);
    }
    if (state->error == VARVE_OK) {
        state->error = varve_tensor_pin(next, state->message); /* its history ends here */
    }
    VARVE_THEN(state->error, varve_tensor_assign(w, next, state->message));
    varve_tensor_release(next);
    varve_tensor_release(gradient);
    varve_tensor_release(s);
    varve_tensor_release(h);
    state->sigmoids[layer] = state->outputs[layer] = NULL;
    return dh;
}

static float value_of(struct state *state, tensor *scalar)
{
    struct varve_storage *storage, *host;
    float value = 0;
    VARVE_THEN(state->error, varve_tensor_borrow(scalar, &storage, state->message));
    VARVE_THEN(state->error, varve_storage_to(storage, varve_memory_host(), VARVE_DTYPE_F32, &host, state->message));
    if (state->error == VARVE_OK) {
        value = *(const float *)varve_storage_data(host);
        varve_storage_release(host, NULL);
    }
    varve_tensor_release(scalar);
    return value;
}

static float step(struct state *state)
{
    unsigned layers = state->training->layers;
    tensor *loss = NULL;
    state->outputs[0] = same(state, state->input);
    for (unsigned i = 0; i < layers; i++) {
        forward(state, i);
    }
    varve_runtime_annotate_log(state->runtime, "BACKWARD");
    tensor *difference = binary(state, varve_tensor_op_sub, state->outputs[layers], state->target, KEEP);
    varve_tensor_release(state->outputs[layers]);
    state->outputs[layers] = NULL;
    tensor *squares = binary(state, varve_tensor_op_mul, difference, difference, KEEP);
    VARVE_THEN(state->error, varve_tensor_op_mean(squares, VARVE_OP_ALL_AXES, &loss, state->message));
    varve_tensor_release(squares);
    tensor *gradient = binary(state, varve_tensor_op_mul, difference, state->slope, TAKE_A);
    for (unsigned i = layers; i-- > 0;) {
        gradient = backward(state, i, gradient);
    }
    varve_tensor_release(gradient);
    return value_of(state, loss);
}

static void release_all(struct state *state)
{
    tensor *constants[] = {state->input, state->target, state->one, state->minus_one, state->rate, state->slope};
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
        varve_tensor_release(constants[i]);
    }
    for (unsigned i = 0; i < TRAINING_LAYERS_MAX; i++) {
        varve_tensor_release(state->weights[i]);
        varve_tensor_release(state->sigmoids[i]);
    }
    for (unsigned i = 0; i <= TRAINING_LAYERS_MAX; i++) {
        varve_tensor_release(state->outputs[i]);
    }
}

int training_run(const struct training *training, struct training_result *result_out, struct varve_message *message)
{
    struct state state = {.training = training, .message = message};
    struct varve_alloc *alloc = varve_memory_alloc(training->options.memory);
    memset(result_out, 0, sizeof(*result_out));
    varve_alloc_reset_peak_stats(alloc);
    state.error = varve_runtime_open(&training->options, &state.runtime, message);
    if (state.error != VARVE_OK) {
        return state.error;
    }
    prepare(&state);
    for (unsigned i = 0; i < TRAINING_STEPS && state.error == VARVE_OK; i++) {
        if (training->log != NULL && i == 1) {
            state.error = varve_runtime_new_log(state.runtime, training->log, message);
            varve_runtime_annotate_log(state.runtime, "START");
        }
        result_out->losses[i] = step(&state);
        if (training->log != NULL && i == 1) {
            (void)varve_runtime_new_log(state.runtime, NULL, NULL);
        }
    }
    result_out->peak_bytes = (uint64_t)varve_alloc_max_memory_allocated(alloc);
    varve_runtime_get_counters(state.runtime, &result_out->counters);
    release_all(&state);
    int error = varve_runtime_close(state.runtime, state.error == VARVE_OK ? message : NULL);
    return state.error != VARVE_OK ? state.error : error;
}
