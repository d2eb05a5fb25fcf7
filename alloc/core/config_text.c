/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration strings in PyTorch's syntax, by its rules of 2.11: white space means nothing, a name given
 * twice takes its last value, a comma may end the string, and large_segment_size_mb is read before all others
 * because limits and a default depend on it. What PyTorch lets pass by oversight is refused here: units
 * behind a number, a sign, a missing ':'. Options of host memory are checked and dropped. An option is one
 * line of the table below. Called by programs that open an allocator, and by replay with the string of a
 * recording. Source: c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp of PyTorch 2.11.
 */
#include "alloc/core/config_tokens.h"
#include "alloc/policy/rounding.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define LARGE_SEGMENT_MIN_MIB (ROUNDING_MIN_LARGE / MIB + 1)
#define LARGE_SEGMENT_MAX_MIB (ROUNDING_REQUEST_LIMIT / MIB - 1)
#define REGISTER_THREADS_MAX 128
#define NO_FIELD SIZE_MAX

struct parse {
    const struct config_tokens *tokens;
    struct varve_alloc_config *config;
    struct varve_message *message;
    const char *name; /* option that is being read */
};

struct option {
    const char *name;
    /* Read the value that begins at token `at` and set the field. */
    int (*read)(const struct parse *parse, const struct option *option, size_t at);
    size_t field;     /* offset in struct varve_alloc_config, or NO_FIELD */
    uint64_t at_most; /* larger values are cut to it */
    bool is_early;    /* read before the others */
};

static bool is_power_of_two(uint64_t number)
{
    return number != 0 && (number & (number - 1)) == 0;
}

/* "option NAME: expected EXPECTED at character N, found FOUND" */
static int config_text_fail(const struct parse *parse, size_t at, const char *expected, ...)
    __attribute__((format(printf, 3, 4)));

static int config_text_fail(const struct parse *parse, size_t at, const char *expected, ...)
{
    va_list arguments;
    va_start(arguments, expected);
    char wanted[160];
    vsnprintf(wanted, sizeof(wanted), expected, arguments);
    va_end(arguments);
    char found[80];
    config_tokens_quote(parse->tokens, at, found, sizeof(found));
    return varve_message_set(parse->message, VARVE_ERROR_INVALID, "option %s: expected %s at character %zu, found %s",
                             parse->name, wanted, config_tokens_position(parse->tokens, at), found);
}

static bool config_text_number_at(const struct parse *parse, size_t at, uint64_t *number_out)
{
    return config_text_number(config_tokens_text(parse->tokens, at), number_out);
}

static void *field_of(const struct parse *parse, const struct option *option)
{
    return (char *)parse->config + option->field;
}

/* ---- Values ---- */

static int read_bool(const struct parse *parse, const struct option *option, size_t at)
{
    bool is_true = config_tokens_is(parse->tokens, at, "True");
    if (!is_true && !config_tokens_is(parse->tokens, at, "False")) {
        return config_text_fail(parse, at, "True or False");
    }
    if (option->field != NO_FIELD) {
        *(bool *)field_of(parse, option) = is_true;
    }
    return VARVE_OK;
}

static int read_large_segment(const struct parse *parse, const struct option *option, size_t at)
{
    uint64_t number;
    if (!config_text_number_at(parse, at, &number) || number < LARGE_SEGMENT_MIN_MIB ||
        number > LARGE_SEGMENT_MAX_MIB) {
        return config_text_fail(parse, at, "a whole number of MiB, %" PRIu64 " to %" PRIu64 ",", LARGE_SEGMENT_MIN_MIB,
                                LARGE_SEGMENT_MAX_MIB);
    }
    *(uint64_t *)field_of(parse, option) = number * MIB;
    return VARVE_OK;
}

static int read_large_size(const struct parse *parse, const struct option *option, size_t at)
{
    uint64_t minimum = parse->config->large_segment_size / MIB;
    uint64_t number;
    if (!config_text_number_at(parse, at, &number) || number < minimum) {
        return config_text_fail(parse, at, "a whole number of MiB, %" PRIu64 " (large_segment_size_mb) or more,",
                                minimum);
    }
    if (number > option->at_most) {
        number = option->at_most;
    }
    *(uint64_t *)field_of(parse, option) = number * MIB;
    return VARVE_OK;
}

static int read_threshold(const struct parse *parse, const struct option *option, size_t at)
{
    double real;
    if (!config_text_real(config_tokens_text(parse->tokens, at), &real) || !(real > 0 && real < 1)) {
        return config_text_fail(parse, at, "a number above 0 and below 1");
    }
    *(double *)field_of(parse, option) = real;
    return VARVE_OK;
}

static int config_text_read_fraction(const struct parse *parse, const struct option *option, size_t at)
{
    double real;
    if (!config_text_real(config_tokens_text(parse->tokens, at), &real) || !(real >= 0 && real <= 1)) {
        return config_text_fail(parse, at, "a number from 0 to 1");
    }
    *(double *)field_of(parse, option) = real;
    return VARVE_OK;
}

static int read_backend(const struct parse *parse, const struct option *option, size_t at)
{
    (void)option;
    if (config_tokens_is(parse->tokens, at, "cudaMallocAsync") ||
        config_tokens_is(parse->tokens, at, "hipMallocAsync")) {
        return config_text_fail(parse, at, "native (the driver's own pools are the policy cuda-async)");
    }
    if (!config_tokens_is(parse->tokens, at, "native")) {
        return config_text_fail(parse, at, "native (others are not supported)");
    }
    return VARVE_OK;
}

static int read_thread_count(const struct parse *parse, const struct option *option, size_t at)
{
    (void)option;
    uint64_t number;
    if (!config_text_number_at(parse, at, &number) || !is_power_of_two(number) || number > REGISTER_THREADS_MAX) {
        return config_text_fail(parse, at, "a power of two, 1 to %d,", REGISTER_THREADS_MAX);
    }
    return VARVE_OK;
}

static int read_reserve(const struct parse *parse, const struct option *option, size_t at)
{
    (void)option;
    uint64_t number;
    if (!config_text_number_at(parse, at, &number) || number == 0) {
        return config_text_fail(parse, at, "a whole number of MiB, 1 or more,");
    }
    return VARVE_OK;
}

/* ---- The table of divisions ---- */

static void config_text_fill(uint64_t *divisions, size_t first, size_t end, uint64_t value)
{
    for (size_t i = first; i < end; i++) {
        divisions[i] = value;
    }
}

/* One "key:value" at *at. `last` is the entry of the last size listed, `is_first` whether there was none: the
 * first one is for all smaller sizes too, ">" for all entries behind the last one, and gaps between stay 0.
 */
static int read_division(const struct parse *parse, uint64_t *divisions, size_t *at, size_t *last, bool *is_first)
{
    bool is_rest = config_tokens_is(parse->tokens, *at, ">");
    uint64_t key = 1;
    if (!is_rest && (!config_text_number_at(parse, *at, &key) || !is_power_of_two(key))) {
        return config_text_fail(parse, *at, "a size in MiB that is a power of two, or \">\",");
    }
    if (!config_tokens_is(parse->tokens, *at + 1, ":")) {
        return config_text_fail(parse, *at + 1, "\":\"");
    }
    uint64_t value;
    if (!config_text_number_at(parse, *at + 2, &value) || (value != 0 && !is_power_of_two(value))) {
        return config_text_fail(parse, *at + 2, "a number of divisions, 0 or a power of two,");
    }
    *at += 3;
    if (is_rest) {
        config_text_fill(divisions, *last + 1, VARVE_ALLOC_DIVISIONS, value);
        return VARVE_OK;
    }
    *last = rounding_interval(key < ROUNDING_REQUEST_LIMIT / MIB ? key * MIB : ROUNDING_REQUEST_LIMIT);
    if (*is_first) {
        config_text_fill(divisions, 0, *last, value);
    }
    divisions[*last] = value;
    *is_first = false;
    return VARVE_OK;
}

static int read_divisions(const struct parse *parse, const struct option *option, size_t at)
{
    uint64_t *divisions = field_of(parse, option);
    uint64_t value;
    if (!config_tokens_is(parse->tokens, at, "[")) {
        if (!config_text_number_at(parse, at, &value) || !is_power_of_two(value)) {
            return config_text_fail(parse, at, "a power of two, or a table \"[size:divisions,...]\",");
        }
        config_text_fill(divisions, 0, VARVE_ALLOC_DIVISIONS, value);
        return VARVE_OK;
    }
    at++;
    bool is_first = true;
    size_t last = 0;
    while (!config_tokens_is(parse->tokens, at, "]")) {
        int error = read_division(parse, divisions, &at, &last, &is_first);
        if (error) {
            return error;
        }
        if (config_tokens_is(parse->tokens, at, ",")) {
            at++;
        } else if (!config_tokens_is(parse->tokens, at, "]")) {
            return config_text_fail(parse, at, "\",\" or \"]\"");
        }
    }
    return VARVE_OK;
}

/* ---- Options ---- */

#define FIELD(name) offsetof(struct varve_alloc_config, name)

static const struct option options[] = {
    {"large_segment_size_mb", read_large_segment, FIELD(large_segment_size), 0, true},
    {"max_split_size_mb", read_large_size, FIELD(max_split_size), UINT64_MAX / MIB, false},
    /* Cut where it is without effect already, so that adding a request to it can't overflow. */
    {"max_non_split_rounding_mb", read_large_size, FIELD(max_non_split_rounding_size), ROUNDING_REQUEST_LIMIT / MIB,
     false},
    {"garbage_collection_threshold", read_threshold, FIELD(garbage_collection_threshold), 0, false},
    {"roundup_power2_divisions", read_divisions, FIELD(roundup_power2_divisions), 0, false},
    {"expandable_segments", read_bool, FIELD(expandable_segments), 0, false},
    {"backend", read_backend, NO_FIELD, 0, false},
    {"release_lock_on_cudamalloc", read_bool, FIELD(release_lock_on_cudamalloc), 0, false},
    {"graph_capture_record_stream_reuse", read_bool, FIELD(graph_capture_record_stream_reuse), 0, false},
    {"per_process_memory_fraction", config_text_read_fraction, FIELD(memory_fraction), 0, false},
    {"research_after_release", read_bool, FIELD(research_after_release), 0, false},
    /* Of PyTorch's allocator of host memory. */
    {"pinned_use_cuda_host_register", read_bool, NO_FIELD, 0, false},
    {"pinned_num_register_threads", read_thread_count, NO_FIELD, 0, false},
    {"pinned_reserve_segment_size_mb", read_reserve, NO_FIELD, 0, false},
    {"pinned_use_background_threads", read_bool, NO_FIELD, 0, false},
};

#define OPTIONS (sizeof(options) / sizeof(options[0]))

/* Names that users bring from elsewhere, and the text of the error. */
static const struct {
    const char *name, *advice;
} strangers[] = {
    {"release_lock_on_hipmalloc", "is the name for AMD devices; here it is release_lock_on_cudamalloc"},
    {"pinned_use_hip_host_register", "is the name for AMD devices; here it is pinned_use_cuda_host_register"},
    {"throw_on_cudamalloc_oom", "came after PyTorch 2.11, whose rules hold here; remove it"},
    {"expandable_segments_reserve", "came after PyTorch 2.11, whose rules hold here; remove it"},
    {"expandable_segments_reserve_by_class", "came after PyTorch 2.11, whose rules hold here; remove it"},
    {"pinned_free_catch_all", "came after PyTorch 2.11, whose rules hold here; remove it"},
};

static const struct option *config_text_option_find(const char *name)
{
    for (size_t i = 0; i < OPTIONS; i++) {
        if (strcmp(options[i].name, name) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

/* The option that begins with `name`, else the one that the fewest changes lead to. */
static const char *option_nearest(const char *name)
{
    size_t length = strcspn(name, "=");
    const char *nearest = options[0].name;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < OPTIONS; i++) {
        size_t distance = config_text_distance(name, options[i].name);
        if (length >= 3 && strncmp(name, options[i].name, length) == 0) {
            return options[i].name;
        }
        if (distance < least) {
            least = distance;
            nearest = options[i].name;
        }
    }
    return nearest;
}

static int config_text_fail_unknown(const struct parse *parse, size_t at)
{
    const char *name = config_tokens_text(parse->tokens, at);
    size_t position = config_tokens_position(parse->tokens, at);
    char found[80];
    config_tokens_quote(parse->tokens, at, found, sizeof(found));
    if (strchr(":,[]", name[0])) {
        return varve_message_set(parse->message, VARVE_ERROR_INVALID,
                                 "expected the name of an option at character %zu, found %s", position, found);
    }
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        if (strcmp(strangers[i].name, name) == 0) {
            return varve_message_set(parse->message, VARVE_ERROR_INVALID, "option %s at character %zu %s", name,
                                     position, strangers[i].advice);
        }
    }
    return varve_message_set(parse->message, VARVE_ERROR_INVALID,
                             "unknown option %s at character %zu; the nearest one is %s%s", found, position,
                             option_nearest(name), strchr(name, '=') ? ", and \":\" is written before a value" : "");
}

/* First token behind the value at `at`, whatever it is. */
static size_t value_end(const struct config_tokens *tokens, size_t at)
{
    if (config_tokens_is(tokens, at, "[")) {
        while (at < tokens->count && !config_tokens_is(tokens, at, "]")) {
            at++;
        }
    }
    return at + 1;
}

/* Go through all options; read the values of the early ones, or of the others. */
static int read_options(struct parse *parse, bool is_early)
{
    const struct config_tokens *tokens = parse->tokens;
    for (size_t at = 0; at < tokens->count; at++) {
        const struct option *option = config_text_option_find(config_tokens_text(tokens, at));
        if (option == NULL) {
            return config_text_fail_unknown(parse, at);
        }
        parse->name = option->name;
        at++;
        if (!config_tokens_is(tokens, at, ":")) {
            return config_text_fail(parse, at, "\":\" and a value");
        }
        at++;
        int error = option->is_early == is_early ? option->read(parse, option, at) : VARVE_OK;
        if (error != VARVE_OK) {
            return error;
        }
        at = value_end(tokens, at);
        if (at < tokens->count && !config_tokens_is(tokens, at, ",")) {
            return config_text_fail(parse, at, "\",\" or the end");
        }
    }
    return VARVE_OK;
}

/* ---- Public ---- */

void varve_alloc_config_init(struct varve_alloc_config *config)
{
    *config = (struct varve_alloc_config){
        .max_split_size = VARVE_ALLOC_UNLIMITED,
        .max_non_split_rounding_size = 20 * MIB,
        .large_segment_size = 20 * MIB,
        .memory_fraction = 1,
    };
}

int varve_alloc_config_parse(const char *text, struct varve_alloc_config *config, struct varve_message *message)
{
    struct varve_alloc_config parsed;
    struct config_tokens tokens;
    struct parse parse = {&tokens, &parsed, message, NULL};
    size_t length = strlen(text);
    if (length > CONFIG_TEXT_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "an option string has at most %zu characters; this one has %zu", CONFIG_TEXT_MAX,
                                 length);
    }
    varve_alloc_config_init(&parsed);
    config_tokens_split(&tokens, text);
    int error = read_options(&parse, true);
    if (error) {
        return error;
    }
    parsed.max_non_split_rounding_size = parsed.large_segment_size;
    error = read_options(&parse, false);
    if (error) {
        return error;
    }
    memcpy(parsed.text, text, length + 1);
    *config = parsed;
    return VARVE_OK;
}

int varve_alloc_config_environment(struct varve_alloc_config *config, struct varve_message *message)
{
    static const char *const variables[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *text = getenv(variables[i]);
        struct varve_message reason = {""};

        /* A variable that is set counts, even to nothing. */
        if (text == NULL) {
            continue;
        }
        int error = varve_alloc_config_parse(text, config, &reason);
        if (error) {
            return varve_message_set(message, error, "%s: %.450s", variables[i], reason.text);
        }
        return VARVE_OK;
    }
    varve_alloc_config_init(config);
    return VARVE_OK;
}

int varve_alloc_config_check(const struct varve_alloc_config *config, struct varve_message *message)
{
    const char *wrong = NULL;
    for (size_t i = 0; i < VARVE_ALLOC_DIVISIONS; i++) {
        uint64_t divisions = config->roundup_power2_divisions[i];
        if (divisions != 0 && !is_power_of_two(divisions)) {
            wrong = "roundup_power2_divisions: each must be 0 or a power of two";
        }
    }
    if (config->large_segment_size <= ROUNDING_MIN_LARGE || config->large_segment_size >= ROUNDING_REQUEST_LIMIT) {
        wrong = "large_segment_size must be above 10 MiB and below 2^60";
    } else if (config->max_split_size < config->large_segment_size) {
        wrong = "max_split_size must be large_segment_size or more";
    } else if (config->max_non_split_rounding_size < config->large_segment_size ||
               config->max_non_split_rounding_size > ROUNDING_REQUEST_LIMIT) {
        wrong = "max_non_split_rounding_size must be large_segment_size or more, and 2^60 at most";
    } else if (!(config->garbage_collection_threshold >= 0 && config->garbage_collection_threshold < 1)) {
        wrong = "garbage_collection_threshold must be 0 or more and below 1";
    } else if (!(config->memory_fraction >= 0)) {
        wrong = "memory_fraction must be 0 or more";
    } else if (strnlen(config->text, sizeof(config->text)) == sizeof(config->text)) {
        wrong = "text has no end";
    }
    return wrong ? varve_message_set(message, VARVE_ERROR_INVALID, "configuration: %s", wrong) : VARVE_OK;
}
