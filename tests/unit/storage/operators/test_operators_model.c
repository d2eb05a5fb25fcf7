/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators against naive models: random views of one memory, which may overlap, of all types, with small whole numbers, so
 * that every result is exact and there is one right answer. All bytes of the memory are compared, those around the result
 * too. Rounding, special numbers and the random numbers themselves are in tests/conformance/test_operators.py.
 * Costs: 4 s
 */
#include "storage/storage.h"

#include "cmocka.h"
#include "support/random_views.h"
#include "support/structure.h"

#define MEMORY_BYTES 30000
#define ROUNDS 6000

static char *memory; /* of its exact size, so that a sanitizer sees what lies outside */
static char *expected;
static char *old;
static int compared; /* rounds that came to the end */

static int setup(void **state)
{
    (void)state;
    memory = malloc(MEMORY_BYTES);
    expected = malloc(MEMORY_BYTES);
    old = malloc(MEMORY_BYTES);
    return memory == NULL || expected == NULL || old == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    free(memory);
    free(expected);
    free(old);
    return 0;
}

static int64_t below(int64_t limit)
{
    return (int64_t)random_below(&random_state, (uint64_t)limit);
}

/* ---- random views ---- */

/* Somewhere in the memory; false: the shape needs more than that. */
static bool random_view(struct varve_array *view, enum varve_dtype dtype, unsigned ndim, const int64_t *shape)
{
    int64_t room = (MEMORY_BYTES - 8) / (int64_t)varve_dtype_bytes(dtype);

    *view = (struct varve_array){.data = memory + below(9), .dtype = dtype};
    return random_views_geometry(&random_state, &view->geometry, ndim, shape, room);
}

/* ---- elements of the model ---- */

/* The address in `base`, a copy of the memory, of the element at an index. */
static void *element_at(const struct varve_array *array, char *base, const int64_t *index)
{
    int64_t place = array->geometry.offset;

    for (unsigned i = 0; i < array->geometry.ndim; i++) {
        place += index[i] * array->geometry.strides[i];
    }
    return base + ((char *)array->data - memory) + place * (int64_t)varve_dtype_bytes(array->dtype);
}

static double number_read(const struct varve_array *array, char *base, const int64_t *index)
{
    struct varve_array from = {.data = element_at(array, base, index), .dtype = array->dtype};
    double number = 0;
    struct varve_array to = {.data = &number, .dtype = VARVE_DTYPE_F64};

    assert_int_equal(varve_array_copy(&to, &from, NULL), VARVE_OK);
    return number;
}

/* Whole numbers as i64, so that they wrap. */
static void number_write(const struct varve_array *array, char *base, const int64_t *index, double number)
{
    struct varve_array to = {.data = element_at(array, base, index), .dtype = array->dtype};
    bool is_whole = number == (double)(int64_t)number;
    struct varve_scalar value = {.kind = is_whole ? VARVE_SCALAR_INTEGER : VARVE_SCALAR_REAL,
                                 .integer = is_whole ? (int64_t)number : 0,
                                 .real = number};

    assert_int_equal(varve_array_fill(&to, value, NULL), VARVE_OK);
}

/* The next index in the usual order; false: there is none. */
static bool index_step(const struct varve_geometry *geometry, int64_t *index)
{
    for (unsigned axis = geometry->ndim; axis-- > 0;) {
        if (++index[axis] < geometry->shape[axis]) {
            return true;
        }
        index[axis] = 0;
    }
    return false;
}

/* Small whole numbers in all elements; arrays that overlap keep what was written last. */
static void numbers_write(const struct varve_array *array, int64_t least, int64_t limit)
{
    int64_t index[VARVE_DIMS_MAX] = {0};

    if (varve_geometry_count(&array->geometry) == 0) {
        return;
    }
    do {
        number_write(array, memory, index, (double)(least + below(limit - least)));
    } while (index_step(&array->geometry, index));
}

static bool are_numbers(const struct varve_array *array, double limit)
{
    int64_t index[VARVE_DIMS_MAX] = {0};

    if (varve_geometry_count(&array->geometry) == 0) {
        return true;
    }
    do {
        double number = number_read(array, memory, index);

        if (!(number >= 0 && number < limit) || number != (double)(int64_t)number) {
            return false;
        }
    } while (index_step(&array->geometry, index));
    return true;
}

/* The index of an input for one of the result: axes of size 1 are expanded, the first ones may be missing. */
static void index_narrow(const struct varve_geometry *geometry, unsigned ndim, const int64_t *index,
                         int64_t *narrow)
{
    unsigned less = ndim - geometry->ndim;

    for (unsigned i = 0; i < geometry->ndim; i++) {
        narrow[i] = geometry->shape[i] == 1 ? 0 : index[i + less];
    }
}

/* Rounds whose views did not fit, or whose inputs wrote over each other, show nothing. */
static void rounds_check(int least)
{
    if (compared < least) {
        fail_msg("only %d rounds, not %d", compared, least);
    }
    compared = 0;
}

static void memory_fill(void)
{
    for (size_t i = 0; i < MEMORY_BYTES; i++) {
        memory[i] = (char)random_next(&random_state);
    }
}

static void memory_remember(void)
{
    memcpy(old, memory, MEMORY_BYTES);
    memcpy(expected, memory, MEMORY_BYTES);
}

static void memory_compare(const char *what, enum varve_dtype dtype, int round)
{
    compared++;
    for (size_t i = 0; i < MEMORY_BYTES; i++) {
        if (memory[i] != expected[i]) {
            fail_msg("%s of %s, round %d: byte %zu is %d, not %d", what, varve_dtype_name(dtype), round, i,
                     memory[i], expected[i]);
        }
    }
}

/* ---- element by element ---- */

typedef int binary_operator(const struct varve_array *out, const struct varve_array *a,
                            const struct varve_array *b, struct varve_message *message);

static double model_of(enum varve_operator operation, enum varve_dtype dtype, double x, double y)
{
    if (dtype == VARVE_DTYPE_BOOL) {
        return operation == VARVE_OPERATOR_ADD ? x + y > 0 : x * y > 0;
    }
    switch (operation) {
    case VARVE_OPERATOR_ADD:
        return x + y;
    case VARVE_OPERATOR_SUB:
        return x - y;
    case VARVE_OPERATOR_MUL:
        return x * y;
    case VARVE_OPERATOR_DIV:
        return x / y;
    default:
        return x > 0 ? x : 0;
    }
}

static void binary_model(enum varve_operator operation, const struct varve_array *out,
                         const struct varve_array *a, const struct varve_array *b)
{
    int64_t index[VARVE_DIMS_MAX] = {0}, narrow[VARVE_DIMS_MAX];

    if (varve_geometry_count(&out->geometry) == 0) {
        return;
    }
    do {
        double x, y;

        index_narrow(&a->geometry, out->geometry.ndim, index, narrow);
        x = number_read(a, old, narrow);
        index_narrow(&b->geometry, out->geometry.ndim, index, narrow);
        y = number_read(b, old, narrow);
        number_write(out, expected, index, model_of(operation, out->dtype, x, y));
    } while (index_step(&out->geometry, index));
}

/* A shape that is expanded to `shape`. */
static unsigned narrow_shape(unsigned ndim, const int64_t *shape, int64_t *narrow)
{
    unsigned less = below(4) == 0 ? (unsigned)below(ndim + 1) : 0;

    for (unsigned i = less; i < ndim; i++) {
        narrow[i - less] = below(6) == 0 ? 1 : shape[i];
    }
    return ndim - less;
}

static void binary_round(int round)
{
    static const struct {
        enum varve_operator operation;
        binary_operator *run;
    } operators[] = {{VARVE_OPERATOR_ADD, varve_op_add},
                     {VARVE_OPERATOR_SUB, varve_op_sub},
                     {VARVE_OPERATOR_MUL, varve_op_mul},
                     {VARVE_OPERATOR_DIV, varve_op_div}};
    enum varve_dtype dtype = (enum varve_dtype)below(VARVE_DTYPE_LIMIT);
    size_t number = (size_t)below(dtype <= VARVE_DTYPE_BF16 ? 4 : 3);
    int64_t shape[VARVE_DIMS_MAX], narrow[2][VARVE_DIMS_MAX], joined[VARVE_DIMS_MAX];
    unsigned ndim = random_views_shape(&random_state, shape, 1500), joined_ndim, narrow_ndim[2];
    struct varve_array out, a, b;

    if (dtype == VARVE_DTYPE_BOOL && number == 1) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        narrow_ndim[i] = narrow_shape(ndim, shape, narrow[i]);
    }
    assert_int_equal(varve_shape_broadcast(narrow_ndim[0], narrow[0], narrow_ndim[1], narrow[1], &joined_ndim,
                                           joined, NULL),
                     VARVE_OK);
    if (!random_view(&out, dtype, joined_ndim, joined) ||
        !random_view(&a, dtype, narrow_ndim[0], narrow[0]) ||
        !random_view(&b, dtype, narrow_ndim[1], narrow[1])) {
        return;
    }
    if (below(4) == 0 && varve_geometry_has_shape(&a.geometry, joined_ndim, joined)) {
        out = a;
    }
    memory_fill();
    numbers_write(&a, 0, 8);
    if (number == 3) { /* powers of two, so that quotients are exact */
        assert_int_equal(
            varve_array_fill(&b, (struct varve_scalar){.integer = 4, .kind = VARVE_SCALAR_INTEGER}, NULL),
            VARVE_OK);
    } else {
        numbers_write(&b, 0, 8);
    }
    if (!are_numbers(&a, 8) || !are_numbers(&b, 8)) { /* written over by each other at odd addresses */
        return;
    }
    memory_remember();
    binary_model(operators[number].operation, &out, &a, &b);
    assert_int_equal(operators[number].run(&out, &a, &b, NULL), VARVE_OK);
    memory_compare(varve_operator_name(operators[number].operation), dtype, round);
}

TEST(test_binary)
{
    random_state = test_first_seed(31);
    for (int i = 0; i < ROUNDS; i++) {
        binary_round(i);
    }
    rounds_check(ROUNDS / 2);
}

TEST(test_relu)
{
    random_state = test_first_seed(32);
    for (int round = 0; round < ROUNDS / 3; round++) {
        enum varve_dtype dtype = (enum varve_dtype)below(VARVE_DTYPE_BOOL);
        int64_t shape[VARVE_DIMS_MAX];
        unsigned ndim = random_views_shape(&random_state, shape, 1500);
        struct varve_array out, a;

        if (!random_view(&out, dtype, ndim, shape) || !random_view(&a, dtype, ndim, shape)) {
            continue;
        }
        out = below(3) == 0 ? a : out;
        memory_fill();
        numbers_write(&a, dtype == VARVE_DTYPE_U8 ? 0 : -100, 100);
        memory_remember();
        binary_model(VARVE_OPERATOR_RELU, &out, &a, &a);
        assert_int_equal(varve_op_relu(&out, &a, NULL), VARVE_OK);
        memory_compare("relu", dtype, round);
    }
    rounds_check(ROUNDS / 4);
}

/* ---- reductions ---- */

static void reduction_model(bool is_max, const struct varve_array *out, const struct varve_array *a, int axis)
{
    int64_t count = varve_geometry_count(&out->geometry);
    double *results = calloc((size_t)count + 1, sizeof(*results));
    int64_t index[VARVE_DIMS_MAX] = {0}, kept[VARVE_DIMS_MAX] = {0};

    assert_non_null(results);
    if (varve_geometry_count(&a->geometry) > 0) {
        do {
            double number = number_read(a, old, index);
            int64_t place = 0;

            for (unsigned i = 0; i < a->geometry.ndim; i++) {
                if (axis != VARVE_OP_ALL_AXES && (int)i != axis) {
                    place = place * a->geometry.shape[i] + index[i];
                }
            }
            results[place] =
                is_max ? (number > results[place] ? number : results[place]) : results[place] + number;
        } while (index_step(&a->geometry, index));
    }
    for (int64_t i = 0; i < count; i++) {
        number_write(out, expected, kept, results[i]);
        index_step(&out->geometry, kept);
    }
    free(results);
}

static void reduction_round(int round)
{
    enum varve_dtype dtype = (enum varve_dtype)below(VARVE_DTYPE_LIMIT);
    bool is_max = below(2) == 0;
    enum varve_dtype out_dtype = is_max || dtype <= VARVE_DTYPE_BF16 ? dtype : VARVE_DTYPE_I64;
    int64_t shape[VARVE_DIMS_MAX], out_shape[VARVE_DIMS_MAX];
    unsigned ndim = random_views_shape(&random_state, shape, 2500), out_ndim = 0;
    int axis = ndim == 0 || below(4) == 0 ? VARVE_OP_ALL_AXES : (int)below((int64_t)ndim);
    bool is_kept = below(2) == 0;
    int64_t reduced = 1;
    struct varve_array out, a;

    for (unsigned i = 0; i < ndim; i++) {
        bool is_reduced = axis == VARVE_OP_ALL_AXES || (int)i == axis;

        reduced *= is_reduced ? shape[i] : 1;
        if (!is_reduced || is_kept) {
            out_shape[out_ndim++] = is_reduced ? 1 : shape[i];
        }
    }
    if ((is_max && reduced == 0) || !random_view(&out, out_dtype, out_ndim, out_shape) ||
        !random_view(&a, dtype, ndim, shape)) {
        return;
    }
    memory_fill();
    numbers_write(&a, 0, 3);
    memory_remember();
    reduction_model(is_max, &out, &a, axis);
    if (axis >= 0 && below(2) == 0) {
        axis -= (int)ndim;
    }
    assert_int_equal((is_max ? varve_op_max : varve_op_sum)(&out, &a, axis, NULL), VARVE_OK);
    memory_compare(is_max ? "max" : "sum", dtype, round);
}

TEST(test_reductions)
{
    random_state = test_first_seed(33);
    for (int i = 0; i < ROUNDS / 2; i++) {
        reduction_round(i);
    }
    rounds_check(ROUNDS / 4);
}

/* ---- matmul ---- */

static void matmul_model(const struct varve_array *out, const struct varve_array *a,
                         const struct varve_array *b)
{
    unsigned last = out->geometry.ndim - 1;
    int64_t index[VARVE_DIMS_MAX] = {0}, left[VARVE_DIMS_MAX], right[VARVE_DIMS_MAX];
    struct varve_geometry batch[2] = {a->geometry, b->geometry};

    if (varve_geometry_count(&out->geometry) == 0) {
        return;
    }
    batch[0].ndim -= 2;
    batch[1].ndim -= 2;
    do {
        double sum = 0;

        index_narrow(&batch[0], last - 1, index, left);
        index_narrow(&batch[1], last - 1, index, right);
        left[batch[0].ndim] = index[last - 1];
        right[batch[1].ndim + 1] = index[last];
        for (int64_t k = 0; k < a->geometry.shape[batch[0].ndim + 1]; k++) {
            left[batch[0].ndim + 1] = k;
            right[batch[1].ndim] = k;
            sum += number_read(a, old, left) * number_read(b, old, right);
        }
        number_write(out, expected, index, out->dtype == VARVE_DTYPE_BOOL ? sum > 0 : sum);
    } while (index_step(&out->geometry, index));
}

static void matmul_round(int round)
{
    enum varve_dtype dtype = (enum varve_dtype)below(VARVE_DTYPE_LIMIT);
    int64_t shape[VARVE_DIMS_MAX], left[VARVE_DIMS_MAX], right[VARVE_DIMS_MAX], joined[VARVE_DIMS_MAX];
    unsigned ndim = (unsigned)below(3), left_ndim, right_ndim, joined_ndim;
    int64_t depth = below(9);
    struct varve_array out, a, b;

    for (unsigned i = 0; i < ndim; i++) {
        shape[i] = below(4);
    }
    left_ndim = narrow_shape(ndim, shape, left) + 2;
    right_ndim = narrow_shape(ndim, shape, right) + 2;
    left[left_ndim - 2] = below(12);
    left[left_ndim - 1] = depth;
    right[right_ndim - 2] = depth;
    right[right_ndim - 1] = below(12);
    a.geometry.ndim = left_ndim;
    b.geometry.ndim = right_ndim;
    memcpy(a.geometry.shape, left, sizeof(left));
    memcpy(b.geometry.shape, right, sizeof(right));
    assert_int_equal(varve_op_binary_shape(VARVE_OPERATOR_MATMUL, &a, &b, &joined_ndim, joined, NULL),
                     VARVE_OK);
    if (!random_view(&out, dtype, joined_ndim, joined) || !random_view(&a, dtype, left_ndim, left) ||
        !random_view(&b, dtype, right_ndim, right)) {
        return;
    }
    memory_fill();
    numbers_write(&a, 0, 4);
    numbers_write(&b, 0, 4);
    if (!are_numbers(&a, 4)) {
        return;
    }
    memory_remember();
    matmul_model(&out, &a, &b);
    assert_int_equal(varve_op_matmul(&out, &a, &b, NULL), VARVE_OK);
    memory_compare("matmul", dtype, round);
}

TEST(test_matmul)
{
    random_state = test_first_seed(34);
    for (int i = 0; i < ROUNDS; i++) {
        matmul_round(i);
    }
    rounds_check(ROUNDS / 2);
}

/* ---- generators ---- */

/* Into any view as into contiguous memory, which a copy then brings there. */
TEST(test_generators)
{
    const struct varve_scalar start = {.kind = VARVE_SCALAR_INTEGER, .integer = 3};
    const struct varve_scalar step = {.kind = VARVE_SCALAR_REAL, .real = 0.5};
    static double whole_memory[3000];

    random_state = test_first_seed(35);
    for (int round = 0; round < ROUNDS / 4; round++) {
        struct varve_array whole = {.data = whole_memory, .dtype = (enum varve_dtype)below(4)};
        int64_t shape[VARVE_DIMS_MAX];
        unsigned ndim = random_views_shape(&random_state, shape, 2500);
        struct varve_array out, copied;

        if (!random_view(&out, whole.dtype, ndim, shape)) {
            continue;
        }
        assert_int_equal(varve_geometry_contiguous(ndim, shape, &whole.geometry, NULL), VARVE_OK);
        memory_fill();
        memory_remember();
        copied = out;
        copied.data = expected + ((char *)out.data - memory);
        switch (round % 3) {
        case 0:
            assert_int_equal(varve_op_arange(&whole, start, step, NULL), VARVE_OK);
            assert_int_equal(varve_op_arange(&out, start, step, NULL), VARVE_OK);
            break;
        case 1:
            assert_int_equal(varve_op_uniform(&whole, 1, 2, -1, 1, NULL), VARVE_OK);
            assert_int_equal(varve_op_uniform(&out, 1, 2, -1, 1, NULL), VARVE_OK);
            break;
        default:
            assert_int_equal(varve_op_normal(&whole, 1, 2, 0, 1, NULL), VARVE_OK);
            assert_int_equal(varve_op_normal(&out, 1, 2, 0, 1, NULL), VARVE_OK);
        }
        assert_int_equal(varve_array_copy(&copied, &whole, NULL), VARVE_OK);
        memory_compare("generator", whole.dtype, round);
    }
    rounds_check(ROUNDS / 5);
}

TEST(test_names)
{
    assert_string_equal(varve_operator_name(VARVE_OPERATOR_MATMUL), "matmul");
    assert_string_equal(varve_operator_name(VARVE_OPERATOR_LIMIT), "?");
}

TEST_FILE(setup, teardown)
