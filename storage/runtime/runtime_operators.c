/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of operators.h as recipes, by its list. */
#include "storage/runtime/runtime_internal.h"

/* What the operators have beside their inputs; each kind uses some. */
struct arguments {
    enum varve_operator operation;
    int axis;
    struct varve_scalar first, second; /* value; start, step */
    uint64_t seed, sequence;
    double a, b;
};

#define RUN_BINARY inputs[0], inputs[1]
#define RUN_UNARY inputs[0]
#define RUN_REDUCTION inputs[0], arguments->axis
#define RUN_SETTER arguments->first
#define RUN_SEQUENCE arguments->first, arguments->second
#define RUN_RANDOM arguments->seed, arguments->sequence, arguments->a, arguments->b
#define RUN_CASE(code, NAME, name, KIND) \
    case VARVE_OPERATOR_##NAME:          \
        return varve_storage_op_##name(outputs[0], RUN_##KIND, stream, message);

static int runtime_operators_run(const void *context, struct varve_storage *const *inputs,
                                 struct varve_storage *const *outputs, uint64_t stream, struct varve_message *message)
{
    const struct arguments *arguments = context;
    switch (arguments->operation) {
        VARVE_OPERATOR_LIST(RUN_CASE)
    case VARVE_OPERATOR_LIMIT:
        break;
    }
    return VARVE_ERROR_INVALID;
}

static int runtime_operators_apply(struct varve_runtime *runtime, const struct arguments *arguments,
                                   const struct varve_tensor_type *type, struct varve_tensor *a, struct varve_tensor *b,
                                   struct varve_tensor **out, struct varve_message *message)
{
    struct varve_tensor *const inputs[] = {a, b};
    const struct varve_recipe recipe = {.name = varve_operator_name(arguments->operation),
                                        .run = runtime_operators_run,
                                        .arguments = arguments,
                                        .argument_bytes = sizeof(*arguments),
                                        .outputs = type,
                                        .input_count = (a != NULL) + (unsigned)(b != NULL),
                                        .output_count = 1};
    return recipe_run(runtime, &recipe, true, inputs, out, message);
}

static int apply_BINARY(struct arguments arguments, struct varve_tensor *a, struct varve_tensor *b,
                        struct varve_tensor **out, struct varve_message *message)
{
    const struct varve_array left = {.geometry = a->geometry, .dtype = a->dtype};
    const struct varve_array right = {.geometry = b->geometry, .dtype = b->dtype};
    int64_t shape[VARVE_DIMS_MAX];
    struct varve_tensor_type type = {.dtype = a->dtype, .shape = shape};
    int error = varve_op_binary_shape(arguments.operation, &left, &right, &type.ndim, shape, message);
    return error == VARVE_OK ? runtime_operators_apply(a->runtime, &arguments, &type, a, b, out, message) : error;
}

static int apply_UNARY(struct arguments arguments, struct varve_tensor *a, struct varve_tensor **out,
                       struct varve_message *message)
{
    const struct varve_tensor_type type = {a->dtype, a->geometry.ndim, a->geometry.shape};
    return runtime_operators_apply(a->runtime, &arguments, &type, a, NULL, out, message);
}

static enum varve_dtype sum_type(enum varve_dtype dtype)
{
    bool is_real =
        dtype == VARVE_DTYPE_F64 || dtype == VARVE_DTYPE_F32 || dtype == VARVE_DTYPE_F16 || dtype == VARVE_DTYPE_BF16;
    return is_real ? dtype : VARVE_DTYPE_I64;
}

static int apply_REDUCTION(struct arguments arguments, struct varve_tensor *a, int axis, struct varve_tensor **out,
                           struct varve_message *message)
{
    struct varve_geometry geometry = a->geometry;
    struct varve_tensor_type type = {.dtype = a->dtype, .shape = geometry.shape};
    arguments.axis = axis;
    if (arguments.operation == VARVE_OPERATOR_SUM) {
        type.dtype = sum_type(a->dtype);
    }
    int error = VARVE_OK;
    if (axis != VARVE_OP_ALL_AXES) {
        error = varve_geometry_select(&geometry, axis, 0, message);
        type.ndim = geometry.ndim;
    }
    return error == VARVE_OK ? runtime_operators_apply(a->runtime, &arguments, &type, a, NULL, out, message) : error;
}

static int apply_SETTER(struct arguments arguments, struct varve_runtime *runtime, const struct varve_tensor_type *type,
                        struct varve_scalar value, struct varve_tensor **out, struct varve_message *message)
{
    arguments.first = value;
    return runtime_operators_apply(runtime, &arguments, type, NULL, NULL, out, message);
}

static int apply_SEQUENCE(struct arguments arguments, struct varve_runtime *runtime,
                          const struct varve_tensor_type *type, struct varve_scalar start, struct varve_scalar step,
                          struct varve_tensor **out, struct varve_message *message)
{
    arguments.first = start;
    arguments.second = step;
    return runtime_operators_apply(runtime, &arguments, type, NULL, NULL, out, message);
}

static int apply_RANDOM(struct arguments arguments, struct varve_runtime *runtime, const struct varve_tensor_type *type,
                        uint64_t seed, uint64_t sequence, double a, double b, struct varve_tensor **out,
                        struct varve_message *message)
{
    arguments.seed = seed;
    arguments.sequence = sequence;
    arguments.a = a;
    arguments.b = b;
    return runtime_operators_apply(runtime, &arguments, type, NULL, NULL, out, message);
}

#define PASS_BINARY a, b
#define PASS_UNARY a
#define PASS_REDUCTION a, axis
#define PASS_SETTER runtime, type, value
#define PASS_SEQUENCE runtime, type, start, step
#define PASS_RANDOM runtime, type, seed, sequence, a, b
#define DEFINE(code, NAME, name, KIND)                                                                          \
    int varve_tensor_op_##name(VARVE_TENSOR_OPERATOR_ARGUMENTS_##KIND, struct varve_tensor **out,               \
                               struct varve_message *message)                                                   \
    {                                                                                                           \
        return apply_##KIND((struct arguments){.operation = VARVE_OPERATOR_##NAME}, PASS_##KIND, out, message); \
    }
VARVE_OPERATOR_LIST(DEFINE)
