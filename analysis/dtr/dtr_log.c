/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines into a schedule. A handle is a name that points to a tensor; a tensor has as many references as handles point
 * to it. An operator is entered with its CALL, and its outputs are described by the lines that must follow: all before
 * `described` have sizes.
 */
#include "analysis/dtr/dtr_log.h"

#include "analysis/base/file_kind.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/input_stream.h"
#include "analysis/base/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX ((size_t)64 << 20)

/* At most so much of a text that is not ours goes into a message. */
#define SHOWN(text) (int)((text).count < 40 ? (text).count : 40), (text).bytes

/* X(INSTRUCTION, function) */
#define INSTRUCTION_LIST(X)        \
    X(ANNOTATE, take_annotate)     \
    X(CONSTANT, take_constant)     \
    X(MEMORY, dtr_log_take_memory) \
    X(ALIAS, take_alias)           \
    X(CALL, dtr_log_take_call)     \
    X(MUTATE, take_mutate)         \
    X(COPY, take_copy)             \
    X(COPY_FROM, take_copy_from)   \
    X(RELEASE, take_release)       \
    X(PIN, take_pin)

enum instruction {
#define INSTRUCTION_ENUM(name, function) INSTRUCTION_##name,
    INSTRUCTION_LIST(INSTRUCTION_ENUM)
#undef INSTRUCTION_ENUM
        INSTRUCTION_LIMIT
};

static const struct line_text instructions[INSTRUCTION_LIMIT] = {
#define INSTRUCTION_TEXT(name, function) {#name, sizeof(#name) - 1},
    INSTRUCTION_LIST(INSTRUCTION_TEXT)
#undef INSTRUCTION_TEXT
};

struct handle {
    uint32_t tensor;
    bool is_live;
};

struct reader {
    struct input_stream *input;
    struct progress *progress;
    struct dtr_log *log;
    struct line line;
    enum instruction instruction; /* of the line */
    struct name_table handle_names;
    struct handle *handles; /* by number of the name */
    uint32_t *references;   /* by tensor: its live handles */
    uint32_t described;     /* tensors whose sizes are known */
    uint64_t memory;        /* of the next of them, where is_alias_next */
    bool is_alias_next;
    bool is_backward;          /* a mark said so */
    char *long_line;           /* one that does not fit the stream's window */
    unsigned char *is_mutated; /* by input, while a MUTATE is read */
    size_t handle_capacity, event_capacity, op_capacity, input_capacity, long_line_bytes, long_line_capacity;
    size_t tensor_capacity, is_mutated_capacity;
    struct varve_message reason;
    /* of what came first, while it may still turn out to lie before ANNOTATE START */
    struct varve_message first_reason;
    bool is_waiting; /* for that, and for nothing else */
};

__attribute__((format(printf, 2, 3))) static int dtr_log_fail(struct reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char reason[300];
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return varve_message_set(&reader->reason, VARVE_ERROR_FORMAT, "%.180s: line %llu: %s",
                             input_stream_path(reader->input), (unsigned long long)reader->log->lines, reason);
}

/* ---- values of a line ---- */

static struct line_text item(const struct reader *reader, enum line_key key, size_t index)
{
    return reader->line.items[reader->line.values[key].first + index];
}

static int fail_value(struct reader *reader, enum line_key key, const char *wanted)
{
    static const char *const kinds[] = {
        [LINE_TEXT] = "a text",           [LINE_INTEGER] = "a number",
        [LINE_TEXTS] = "a list of texts", [LINE_INTEGERS] = "a list of numbers",
        [LINE_EMPTY] = "an empty list",
    };
    enum line_kind kind = reader->line.values[key].kind;
    if (kind == LINE_ABSENT) {
        return dtr_log_fail(reader, "%s has no '%s'", instructions[reader->instruction].bytes, line_key_name(key));
    }
    return dtr_log_fail(reader, "'%s' is %s, not %s", line_key_name(key), kinds[kind], wanted);
}

static int need_text(struct reader *reader, enum line_key key, struct line_text *text_out)
{
    if (reader->line.values[key].kind != LINE_TEXT) {
        return fail_value(reader, key, "a text");
    }
    *text_out = item(reader, key, 0);
    return VARVE_OK;
}

static int need_list(struct reader *reader, enum line_key key, enum line_kind kind)
{
    if (reader->line.values[key].kind != kind && reader->line.values[key].kind != LINE_EMPTY) {
        return fail_value(reader, key, kind == LINE_TEXTS ? "a list of texts" : "a list of numbers");
    }
    return VARVE_OK;
}

static int dtr_log_number_of(struct reader *reader, enum line_key key, struct line_text text, uint64_t *number_out)
{
    const char *name = line_key_name(key);
    bool is_negative = text.count > 1 && text.bytes[0] == '-';
    uint64_t number = 0;
    for (size_t i = is_negative ? 1 : 0; i < text.count; i++) {
        if (text.bytes[i] < '0' || text.bytes[i] > '9') {
            return dtr_log_fail(reader, "'%s' is '%.*s', not a whole number", name, SHOWN(text));
        }
        if (number <= DTR_SUM_MAX) { /* below 2^66 / 10 from then on, whatever follows */
            number = number > DTR_SUM_MAX / 10 ? DTR_SUM_MAX + 1 : 10 * number + (uint64_t)(text.bytes[i] - '0');
        }
    }
    if (text.count == 0) {
        return dtr_log_fail(reader, "'%s' is '', not a whole number", name);
    }
    if (is_negative) {
        return dtr_log_fail(reader, "'%s' is negative: %.*s", name, SHOWN(text));
    }
    if (number > DTR_SUM_MAX) {
        return dtr_log_fail(reader, "'%s' is %.*s, more than 2^62", name, SHOWN(text));
    }
    *number_out = number;
    return VARVE_OK;
}

/* Texts of digits are what logs have; a bare number says the same. */
static int need_number(struct reader *reader, enum line_key key, uint64_t *number_out)
{
    enum line_kind kind = reader->line.values[key].kind;
    if (kind != LINE_TEXT && kind != LINE_INTEGER) {
        return fail_value(reader, key, "a whole number");
    }
    return dtr_log_number_of(reader, key, item(reader, key, 0), number_out);
}

/* ---- handles ---- */

static int define_handle(struct reader *reader, struct line_text name, uint32_t tensor)
{
    uint32_t before = reader->handle_names.count;
    uint32_t number = name_table_add(&reader->handle_names, name.bytes, name.count);
    if (number < before) {
        return dtr_log_fail(reader, "'%.*s' is defined already", SHOWN(name));
    }
    reader->handles = memory_grow(reader->handles, &reader->handle_capacity, number, sizeof(*reader->handles));
    reader->handles[number] = (struct handle){.tensor = tensor, .is_live = true};
    reader->references[tensor]++;
    return VARVE_OK;
}

/* NULL: there is none, and the reason is set. What is released is gone: a planner may have forgotten the tensor. */
static struct handle *dtr_log_find_handle(struct reader *reader, struct line_text name)
{
    uint32_t number = name_table_find(&reader->handle_names, name.bytes, name.count);
    if (number == NAME_TABLE_NONE || !reader->handles[number].is_live) {
        (void)dtr_log_fail(reader, "'%.*s' %s", SHOWN(name),
                           number == NAME_TABLE_NONE ? "is not defined" : "was released before");
        return NULL;
    }
    return &reader->handles[number];
}

/* The same for the name that is the key's value. */
static struct handle *need_handle(struct reader *reader, enum line_key key)
{
    struct line_text name = {"", 0};
    return need_text(reader, key, &name) == VARVE_OK ? dtr_log_find_handle(reader, name) : NULL;
}

/* ---- what a schedule is made of ---- */

static void dtr_log_add_event(struct reader *reader, enum dtr_event_kind kind, uint32_t id)
{
    struct dtr_log *log = reader->log;
    *MEMORY_ADD(log->events, log->event_count, reader->event_capacity) =
        (struct dtr_event){.kind = kind & 7u, .id = id & DTR_ID_MAX};
}

static int add_sum(struct reader *reader, uint64_t *sum, uint64_t more, const char *what)
{
    if (more > DTR_SUM_MAX - *sum) {
        return dtr_log_fail(reader, "%s are more than 2^62 in sum", what);
    }
    *sum += more;
    return VARVE_OK;
}

static int add_tensor(struct reader *reader)
{
    struct dtr_log *log = reader->log;
    uint32_t tensor = log->tensor_count;
    if (tensor == DTR_ID_MAX) {
        return dtr_log_fail(reader, "more than %u tensors", (unsigned)DTR_ID_MAX);
    }
    if (tensor == reader->tensor_capacity) {
        size_t capacity = tensor == 0 ? 16 : 2 * (size_t)tensor;
        log->sizes = memory_resize(log->sizes, capacity * sizeof(*log->sizes));
        log->aliases = memory_resize(log->aliases, capacity * sizeof(*log->aliases));
        log->storage_bytes = memory_resize(log->storage_bytes, capacity * sizeof(*log->storage_bytes));
        reader->references = memory_resize(reader->references, capacity * sizeof(*reader->references));
        reader->tensor_capacity = capacity;
    }
    reader->references[tensor] = 0;
    log->tensor_count++;
    log->ops[log->op_count - 1].output_count++;
    return VARVE_OK;
}

/* The next tensor that has no sizes gets them. */
static int dtr_log_describe(struct reader *reader, uint64_t storage_bytes, int32_t alias)
{
    struct dtr_log *log = reader->log;
    uint32_t tensor = reader->described++;
    log->aliases[tensor] = alias;
    log->storage_bytes[tensor] = storage_bytes;
    log->sizes[tensor] = alias < 0 ? storage_bytes : 0;
    return add_sum(reader, &log->bytes, log->sizes[tensor], "the sizes of all tensors");
}

/* An operator without inputs and outputs. */
static int add_op(struct reader *reader, struct line_text name, uint64_t cost_ns)
{
    struct dtr_log *log = reader->log;
    static const struct line_text backward = {"backward", 8};
    struct dtr_op op = {
        .cost_ns = cost_ns,
        .line = log->lines,
        .name = name_table_add(log->names, name.bytes, name.count),
        .first_input = log->input_count,
        .first_output = log->tensor_count,
    };
    op.is_backward = reader->is_backward || memmem(name.bytes, name.count, backward.bytes, backward.count) != NULL;
    *MEMORY_ADD(log->ops, log->op_count, reader->op_capacity) = op;
    dtr_log_add_event(reader, DTR_EVENT_COMPUTE, log->op_count - 1);
    return add_sum(reader, &log->cost_ns, cost_ns, "the costs of all operators");
}

/* The ARGS of the operator. */
static int add_inputs(struct reader *reader)
{
    struct dtr_log *log = reader->log;
    size_t count = reader->line.values[LINE_KEY_ARGS].count;
    if (count > UINT32_MAX - log->input_count) {
        return dtr_log_fail(reader, "more than %u inputs", (unsigned)UINT32_MAX);
    }
    uint64_t bytes = 0;
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < count; i++) {
        const struct handle *handle = dtr_log_find_handle(reader, item(reader, LINE_KEY_ARGS, i));
        if (handle == NULL) {
            return VARVE_ERROR_FORMAT;
        }
        *MEMORY_ADD(log->inputs, log->input_count, reader->input_capacity) = handle->tensor;
        error = add_sum(reader, &bytes, log->storage_bytes[handle->tensor], "the sizes of the inputs");
    }
    log->ops[log->op_count - 1].input_count = (uint32_t)count;
    return error;
}

/* NAME, TIME and ARGS, of CALL and MUTATE. */
static int take_op(struct reader *reader)
{
    struct line_text name = {"", 0};
    uint64_t cost_ns = 0;
    int error = need_text(reader, LINE_KEY_NAME, &name);
    error = error != VARVE_OK ? error : need_number(reader, LINE_KEY_TIME, &cost_ns);
    error = error != VARVE_OK ? error : need_list(reader, LINE_KEY_ARGS, LINE_TEXTS);
    error = error != VARVE_OK ? error : add_op(reader, name, cost_ns);
    return error != VARVE_OK ? error : add_inputs(reader);
}

/* ---- instructions ---- */

static int take_annotate(struct reader *reader)
{
    struct line_text text = {"", 0};
    int error = need_text(reader, LINE_KEY_ANNOTATION, &text);
    if (error == VARVE_OK) {
        const uint32_t name = name_table_add(reader->log->names, text.bytes, text.count);
        dtr_log_add_event(reader, DTR_EVENT_MARK, name);
        reader->is_backward |= strcmp(name_table_text(reader->log->names, name), "BACKWARD") == 0;
    }
    return error;
}

static int take_constant(struct reader *reader)
{
    static const struct line_text constant = {"constant", 8};
    struct line_text name = {"", 0};
    int error = need_text(reader, LINE_KEY_NAME, &name);
    error = error != VARVE_OK ? error : add_op(reader, constant, 0);
    error = error != VARVE_OK ? error : add_tensor(reader);
    if (error == VARVE_OK) {
        reader->log->ops[reader->log->op_count - 1].is_constant = true;
        reader->log->constants++;
        dtr_log_add_event(reader, DTR_EVENT_PIN, reader->log->tensor_count - 1);
        error = define_handle(reader, name, reader->log->tensor_count - 1);
    }
    return error;
}

static int dtr_log_take_call(struct reader *reader)
{
    const struct line_value *results = &reader->line.values[LINE_KEY_RESULT];
    int error = take_op(reader);
    error = error != VARVE_OK ? error : need_list(reader, LINE_KEY_RESULT, LINE_TEXTS);
    if (error == VARVE_OK && results->count == 0) {
        error = dtr_log_fail(reader, "CALL without results");
    }
    for (size_t i = 0; error == VARVE_OK && i < results->count; i++) {
        error = add_tensor(reader);
        VARVE_THEN(error, define_handle(reader, item(reader, LINE_KEY_RESULT, i), reader->log->tensor_count - 1));
    }
    reader->log->calls++;
    return error;
}

/* The handle whose tensor is to be described. All were defined by the last operator. */
static const char *described_name(const struct reader *reader)
{
    const uint32_t left = reader->log->tensor_count - reader->described;
    return name_table_text(&reader->handle_names, reader->handle_names.count - left);
}

/* MEMORY and ALIAS: is it the turn of that tensor? */
static int need_described_name(struct reader *reader)
{
    const char *instruction = instructions[reader->instruction].bytes;
    struct line_text name = {"", 0};
    int error = need_text(reader, LINE_KEY_NAME, &name);
    if (error != VARVE_OK) {
        return error;
    }
    if (reader->described == reader->log->tensor_count) {
        return dtr_log_fail(reader, "%s of '%.*s', which no CONSTANT or CALL before it has left open", instruction,
                            SHOWN(name));
    }
    if (strlen(described_name(reader)) != name.count || memcmp(described_name(reader), name.bytes, name.count) != 0) {
        return dtr_log_fail(reader, "%s of '%.*s' where that of '%.40s' is missing", instruction, SHOWN(name),
                            described_name(reader));
    }
    return VARVE_OK;
}

static int dtr_log_take_memory(struct reader *reader)
{
    int error = need_described_name(reader);
    error = error != VARVE_OK ? error : need_number(reader, LINE_KEY_MEMORY, &reader->memory);
    if (error != VARVE_OK) {
        return error;
    }
    if (reader->log->ops[reader->log->op_count - 1].is_constant) {
        return dtr_log_describe(reader, reader->memory, -1);
    }
    reader->is_alias_next = true;
    return VARVE_OK;
}

static int take_alias(struct reader *reader)
{
    const struct dtr_log *log = reader->log;
    const struct dtr_op *op = &log->ops[log->op_count - 1];
    const struct line_value *value = &reader->line.values[LINE_KEY_ALIAS];
    int error = need_described_name(reader);
    reader->is_alias_next = false;
    if (error != VARVE_OK) {
        return error;
    }
    if ((value->kind == LINE_TEXT || value->kind == LINE_INTEGER) && item(reader, LINE_KEY_ALIAS, 0).count == 2 &&
        memcmp(item(reader, LINE_KEY_ALIAS, 0).bytes, "-1", 2) == 0) {
        return dtr_log_describe(reader, reader->memory, -1);
    }
    uint64_t alias = 0;
    error = need_number(reader, LINE_KEY_ALIAS, &alias);
    if (error != VARVE_OK) {
        return error;
    }
    if (alias >= op->input_count) {
        return dtr_log_fail(reader, "'%.40s' is a view of input %llu, but its operator has %u", described_name(reader),
                            (unsigned long long)alias, (unsigned)op->input_count);
    }
    uint64_t storage_bytes = log->storage_bytes[log->inputs[op->first_input + alias]];
    if (storage_bytes != reader->memory) {
        return dtr_log_fail(reader, "'%.40s' is a view of a storage of %llu bytes, but its MEMORY is %llu",
                            described_name(reader), (unsigned long long)storage_bytes,
                            (unsigned long long)reader->memory);
    }
    return dtr_log_describe(reader, storage_bytes, (int32_t)alias);
}

/* The handle of an input that was mutated moves to the output: this is what its name means from now on. */
static void move_handle(struct reader *reader, struct handle *handle, uint32_t tensor)
{
    reader->references[handle->tensor]--;
    dtr_log_add_event(reader, DTR_EVENT_RELEASE, handle->tensor);
    handle->tensor = tensor;
    reader->references[tensor]++;
}

/* One output for each mutated input: as large as its whole storage, since the copy on write takes all of it. */
static int add_mutated(struct reader *reader, size_t index)
{
    const struct dtr_log *log = reader->log;
    const struct dtr_op *op = &log->ops[log->op_count - 1];
    uint64_t input = 0;
    int error = dtr_log_number_of(reader, LINE_KEY_MUTATE, item(reader, LINE_KEY_MUTATE, index), &input);
    if (error != VARVE_OK) {
        return error;
    }
    if (input >= op->input_count) {
        return dtr_log_fail(reader, "'MUTATE' has input %llu, but its operator has %u", (unsigned long long)input,
                            (unsigned)op->input_count);
    }
    if (reader->is_mutated[input] != 0) {
        return dtr_log_fail(reader, "'MUTATE' has input %llu twice", (unsigned long long)input);
    }
    reader->is_mutated[input] = 1;
    error = add_tensor(reader);
    return error != VARVE_OK ? error
                             : dtr_log_describe(reader, log->storage_bytes[log->inputs[op->first_input + input]], -1);
}

static int take_mutate(struct reader *reader)
{
    const struct line_value *mutated = &reader->line.values[LINE_KEY_MUTATE];
    int error = take_op(reader);
    error = error != VARVE_OK ? error : need_list(reader, LINE_KEY_MUTATE, LINE_INTEGERS);
    if (error == VARVE_OK && mutated->count == 0) {
        error = dtr_log_fail(reader, "MUTATE without an input that is changed");
    }
    if (error != VARVE_OK) {
        return error;
    }
    const struct dtr_op *op = &reader->log->ops[reader->log->op_count - 1];
    if (op->input_count > reader->is_mutated_capacity) {
        reader->is_mutated_capacity = op->input_count;
        reader->is_mutated = memory_resize(reader->is_mutated, reader->is_mutated_capacity);
    }
    if (op->input_count > 0) {
        memset(reader->is_mutated, 0, op->input_count);
    }
    for (size_t i = 0; error == VARVE_OK && i < mutated->count; i++) {
        error = add_mutated(reader, i);
    }
    for (size_t i = 0; error == VARVE_OK && i < mutated->count; i++) {
        uint64_t input = 0;
        error = dtr_log_number_of(reader, LINE_KEY_MUTATE, item(reader, LINE_KEY_MUTATE, i), &input);
        struct handle *handle =
            error == VARVE_OK ? dtr_log_find_handle(reader, item(reader, LINE_KEY_ARGS, input)) : NULL;
        if (handle != NULL) {
            move_handle(reader, handle, op->first_output + (uint32_t)i);
        }
    }
    reader->log->mutates++;
    return error;
}

static int take_copy(struct reader *reader)
{
    struct line_text name = {"", 0};
    int error = need_text(reader, LINE_KEY_DST, &name);

    const struct handle *source = error == VARVE_OK ? need_handle(reader, LINE_KEY_SRC) : NULL;
    if (source == NULL) {
        return VARVE_ERROR_FORMAT;
    }
    uint32_t tensor = source->tensor;
    dtr_log_add_event(reader, DTR_EVENT_GET, tensor);
    reader->log->copies++;
    return define_handle(reader, name, tensor);
}

static int take_copy_from(struct reader *reader)
{
    const struct handle *source = need_handle(reader, LINE_KEY_SRC);
    struct handle *target = source != NULL ? need_handle(reader, LINE_KEY_DST) : NULL;
    if (target == NULL) {
        return VARVE_ERROR_FORMAT;
    }
    reader->log->copies_from++;
    if (target != source) { /* a handle that is copied to itself keeps its tensor alive throughout */
        move_handle(reader, target, source->tensor);
        dtr_log_add_event(reader, DTR_EVENT_GET, source->tensor);
    }
    return VARVE_OK;
}

static int take_release(struct reader *reader)
{
    struct line_text name = {"", 0};
    int error = need_text(reader, LINE_KEY_NAME, &name);
    if (error != VARVE_OK) {
        return error;
    }
    reader->log->releases++;
    if (name_table_find(&reader->handle_names, name.bytes, name.count) == NAME_TABLE_NONE) {
        reader->log->unknown_releases++;
        return VARVE_OK;
    }
    struct handle *handle = dtr_log_find_handle(reader, name);
    if (handle == NULL) {
        return VARVE_ERROR_FORMAT;
    }
    handle->is_live = false;
    reader->references[handle->tensor]--;
    dtr_log_add_event(reader, DTR_EVENT_RELEASE, handle->tensor);
    return VARVE_OK;
}

static int take_pin(struct reader *reader)
{
    const struct handle *handle = need_handle(reader, LINE_KEY_NAME);
    if (handle == NULL) {
        return VARVE_ERROR_FORMAT;
    }
    reader->log->pins++;
    dtr_log_add_event(reader, DTR_EVENT_PIN, handle->tensor);
    return VARVE_OK;
}

static int (*const takes[INSTRUCTION_LIMIT])(struct reader *reader) = {
#define INSTRUCTION_TAKE(name, function) function,
    INSTRUCTION_LIST(INSTRUCTION_TAKE)
#undef INSTRUCTION_TAKE
};

/* ---- the file ---- */

/* All but the structure, and that of the names. */
static void free_tables(struct dtr_log *log)
{
    free(log->events);
    free(log->ops);
    free(log->inputs);
    free(log->sizes);
    free(log->aliases);
    free(log->storage_bytes);
    name_table_free(log->names);
}

/* What came before ANNOTATE START never was; the number of lines stays. */
static void dtr_log_start(struct reader *reader)
{
    struct dtr_log *log = reader->log;
    struct name_table *names = log->names;
    free_tables(log);
    *log = (struct dtr_log){.names = names, .lines = log->lines, .has_start = true};
    reader->event_capacity = reader->op_capacity = reader->input_capacity = reader->tensor_capacity = 0;
    name_table_free(&reader->handle_names);
    free(reader->references);
    reader->references = NULL;
    reader->described = 0;
    reader->is_alias_next = reader->is_backward = reader->is_waiting = false;
}

/* What the line is. */
static int recognise(struct reader *reader, struct line_text text)
{
    struct line_text word = {"", 0};
    if (!line_scan(&reader->line, text.bytes, text.count)) {
        return dtr_log_fail(reader, "at byte %zu: %s", reader->line.column, reader->line.reason);
    }
    if (reader->line.values[LINE_KEY_INSTRUCTION].kind == LINE_ABSENT) {
        return dtr_log_fail(reader, "it has no 'INSTRUCTION'");
    }
    int error = need_text(reader, LINE_KEY_INSTRUCTION, &word);
    if (error != VARVE_OK) {
        return error;
    }
    for (size_t i = 0; i < INSTRUCTION_LIMIT; i++) {
        if (instructions[i].count == word.count && memcmp(instructions[i].bytes, word.bytes, word.count) == 0) {
            reader->instruction = (enum instruction)i;
            return VARVE_OK;
        }
    }
    return dtr_log_fail(reader, "'%.*s' is no instruction that is known", SHOWN(word));
}

static bool is_start(const struct reader *reader)
{
    const struct line_value *value = &reader->line.values[LINE_KEY_ANNOTATION];
    return reader->instruction == INSTRUCTION_ANNOTATE && value->kind == LINE_TEXT &&
           item(reader, LINE_KEY_ANNOTATION, 0).count == 5 &&
           memcmp(item(reader, LINE_KEY_ANNOTATION, 0).bytes, "START", 5) == 0;
}

static int take_instruction(struct reader *reader)
{
    if (reader->described < reader->log->tensor_count) {
        enum instruction wanted = reader->is_alias_next ? INSTRUCTION_ALIAS : INSTRUCTION_MEMORY;
        if (reader->instruction != wanted) {
            return dtr_log_fail(reader, "%s where the %s of '%.40s' is missing",
                                instructions[reader->instruction].bytes, instructions[wanted].bytes,
                                described_name(reader));
        }
    }
    return takes[reader->instruction](reader);
}

static int dtr_log_take_line(struct reader *reader, struct line_text text)
{
    struct dtr_log *log = reader->log;
    int error = recognise(reader, text);
    if (error == VARVE_OK && !log->has_start && is_start(reader)) {
        dtr_log_start(reader);
        return VARVE_OK;
    }
    if (reader->is_waiting) {
        return VARVE_OK;
    }
    error = error != VARVE_OK ? error : take_instruction(reader);
    if (error != VARVE_OK && !log->has_start) {
        reader->first_reason = reader->reason;
        reader->is_waiting = true;
        error = VARVE_OK;
    }
    return error;
}

/* The next line, without its end; it lives until the next call. None: `bytes` is NULL. */
static int dtr_log_next_line(struct reader *reader, struct line_text *line_out)
{
    struct input_stream *input = reader->input;
    reader->long_line_bytes = 0;
    for (;;) {
        const size_t there = (size_t)(input->end - input->next);
        const unsigned char *newline = there > 0 ? memchr(input->next, '\n', there) : NULL;
        const size_t taken = newline != NULL ? (size_t)(newline - input->next) : there;
        const bool is_whole = newline != NULL || input->is_at_end;
        if (is_whole && reader->long_line_bytes == 0) {
            *line_out = (struct line_text){there > 0 ? (const char *)input->next : NULL, taken};
            input->next += taken + (newline != NULL ? 1 : 0);
            return VARVE_OK;
        }
        if (is_whole || there >= INPUT_STREAM_WINDOW_BYTES / 2) {
            if (taken > LINE_BYTES_MAX - reader->long_line_bytes) {
                reader->log->lines++;
                return dtr_log_fail(reader, "longer than %zu bytes", LINE_BYTES_MAX);
            }
            if (reader->long_line_capacity - reader->long_line_bytes < taken) {
                reader->long_line_capacity = 2 * (reader->long_line_bytes + taken);
                reader->long_line = memory_resize(reader->long_line, reader->long_line_capacity);
            }
            memcpy(reader->long_line + reader->long_line_bytes, input->next, taken);
            reader->long_line_bytes += taken;
            input->next += taken + (newline != NULL ? 1 : 0);
        }
        if (is_whole) {
            *line_out = (struct line_text){reader->long_line, reader->long_line_bytes};
            return VARVE_OK;
        }
        int error = input_stream_fill(input, (size_t)(input->end - input->next) + 1, &reader->reason);
        if (error != VARVE_OK) {
            return error;
        }
        if (reader->progress != NULL) {
            progress_step(reader->progress, "reading the log", input_stream_done(input), input_stream_total(input));
        }
    }
}

static bool is_blank(struct line_text text)
{
    size_t i = 0;
    while (i < text.count && (text.bytes[i] == ' ' || text.bytes[i] == '\t' || text.bytes[i] == '\r')) {
        i++;
    }
    return i == text.count;
}

static int dtr_log_take_lines(struct reader *reader)
{
    struct dtr_log *log = reader->log;
    for (;;) {
        struct line_text text = {NULL, 0};
        int error = dtr_log_next_line(reader, &text);
        if (error != VARVE_OK || text.bytes == NULL) {
            return error;
        }
        if (log->lines == DTR_ID_MAX) {
            return dtr_log_fail(reader, "more than %u lines", (unsigned)DTR_ID_MAX);
        }
        log->lines++;
        error = is_blank(text) ? VARVE_OK : dtr_log_take_line(reader, text);
        if (error != VARVE_OK) {
            return error;
        }
    }
}

/* Is it whole? Then what the program still has at its end is to be there at once. */
static int dtr_log_finish(struct reader *reader)
{
    struct dtr_log *log = reader->log;
    if (reader->is_waiting) {
        reader->reason = reader->first_reason;
        return VARVE_ERROR_FORMAT;
    }
    if (reader->described < log->tensor_count) {
        return dtr_log_fail(reader, "the log ends before the %s of '%.40s'", reader->is_alias_next ? "ALIAS" : "MEMORY",
                            described_name(reader));
    }
    if (log->op_count == 0) {
        return dtr_log_fail(reader, "the log ends without an operator%s",
                            log->has_start ? " after ANNOTATE START" : "");
    }
    log->end_event = log->event_count;
    for (uint32_t i = 0; i < reader->handle_names.count; i++) {
        if (reader->references[reader->handles[i].tensor] > 0) {
            dtr_log_add_event(reader, DTR_EVENT_PIN, reader->handles[i].tensor);
        }
    }
    return VARVE_OK;
}

/* What is known to be something else; all other text is a log, if with errors. */
static int check_kind(struct input_stream *input, struct varve_message *reason)
{
    const struct file_kind *kind;
    int error = input_stream_kind(input, &kind, reason);
    return error != VARVE_OK || kind == NULL || kind->use == FILE_OPERATORS || kind->use == FILE_JSON
               ? error
               : file_kind_refuse(kind, input_stream_path(input), "a log of operators", reason);
}

int dtr_log_read_stream(struct input_stream *input, struct progress *progress, struct dtr_log **log_out,
                        struct varve_message *message)
{
    struct reader reader = {.input = input, .progress = progress, .log = memory_resize(NULL, sizeof(*reader.log))};
    *reader.log = (struct dtr_log){.names = memory_resize(NULL, sizeof(*reader.log->names))};
    *reader.log->names = (struct name_table){.count = 0};
    int error = check_kind(input, &reader.reason);
    VARVE_THEN(error, dtr_log_take_lines(&reader));
    error = error != VARVE_OK ? error : dtr_log_finish(&reader);
    line_free(&reader.line);
    name_table_free(&reader.handle_names);
    free(reader.handles);
    free(reader.references);
    free(reader.long_line);
    free(reader.is_mutated);
    input_stream_close(input);
    if (error != VARVE_OK) {
        dtr_log_free(reader.log);
        reader.log = NULL;
        varve_message_set(message, error, "%s", reader.reason.text);
    }
    *log_out = reader.log;
    return error;
}

int dtr_log_read(const char *path, struct progress *progress, struct dtr_log **log_out, struct varve_message *message)
{
    struct input_stream *input;
    int error = input_stream_open(path, &input, message);
    *log_out = NULL;
    return error != VARVE_OK ? error : dtr_log_read_stream(input, progress, log_out, message);
}

void dtr_log_free(struct dtr_log *log)
{
    if (log != NULL) {
        free_tables(log);
        free(log->names);
        free(log);
    }
}

const char *dtr_log_name(const struct dtr_log *log, uint32_t name)
{
    return name_table_text(log->names, name);
}
