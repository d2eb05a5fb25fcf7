/* SPDX-License-Identifier: Apache-2.0 */
/* See device_play.h. */
#include "support/cuda/device_play.h"

#include "support/alloc/rig.h"
#include "tests/cmocka.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- the words: calls of the device ---- */

/* X(name, what it does) */
/* clang-format off */
#define WORDS(X) \
    X(alloc, ops->segment_alloc(device, at[0], step->stream, out)) \
    X(free, ops->segment_free(device, at[0], at[1])) \
    X(reserve, ops->vmm_reserve(device, at[0], step->stream == 0 ? NULL : &reservation, out)) \
    X(unreserve, ops->vmm_address_free(device, at[0], at[1])) \
    X(create, ops->vmm_create(device, at[0], out)) \
    X(map, ops->vmm_map(device, at[0], at[1], at[2])) \
    X(access, ops->vmm_set_access(device, at[0], at[1], step->count < 3 ? device->index : (int)at[2])) \
    X(unmap, ops->vmm_unmap(device, at[0], at[1])) \
    X(release, ops->vmm_release(device, at[0], at[1])) \
    X(finish, ops->stream_synchronize(device, step->stream)) \
    X(event, ops->event_create(device, out)) \
    X(no_event, ops->event_destroy(device, at[0])) \
    X(record, ops->event_record(device, at[0], step->stream)) \
    X(query, gives(step, ops->event_query(device, at[0]))) \
    X(sync, ops->event_synchronize(device, at[0])) \
    X(wait, ops->stream_wait_event(device, step->stream, at[0])) \
    X(alloc_async, ops->alloc_async(device, at[0], step->stream, out)) \
    X(free_async, ops->free_async(device, at[0], at[1], step->stream)) \
    X(join, ops->join_stream(device, out)) \
    X(trim, ops->pool_trim(device, at[0])) \
    X(stream, ops->stream_create(device, out)) \
    X(no_stream, ops->stream_destroy(device, at[0])) \
    X(in, ops->copy(device, at[0], at[1], at[2], VARVE_COPY_HOST_TO_DEVICE, step->stream)) \
    X(out, ops->copy(device, at[0], at[1], at[2], VARVE_COPY_DEVICE_TO_HOST, step->stream)) \
    X(peer_in, ops->copy(device, at[0], at[1], at[2], VARVE_COPY_PEER_TO_DEVICE, step->stream)) \
    X(peer_out, ops->copy(device, at[0], at[1], at[2], VARVE_COPY_DEVICE_TO_PEER, step->stream)) \
    X(copy, ops->copy(device, at[0], at[1], at[2], VARVE_COPY_WITHIN, step->stream)) \
    X(no_copy, ops->copy(device, at[0], at[1], at[2], VARVE_COPY_DIRECTION_LIMIT, step->stream)) \
    X(rows, copy_rows(step, VARVE_COPY_WITHIN)) \
    X(rows_in, copy_rows(step, VARVE_COPY_HOST_TO_DEVICE)) \
    X(fill, ops->fill(device, at[0], at[1], (unsigned)at[2], at[3], step->stream)) \
    X(pin, ops->host_alloc(device, at[0], out)) \
    X(unpin, ops->host_free(device, at[0])) \
    X(peer, ops->peer_enable(device, (int)at[0])) \
    X(export, ops->ipc_export(device, at[0], &step->play->handles[at[1]])) \
    X(import, ops->ipc_open(device, &step->play->handles[at[0]], out)) \
    X(unimport, ops->ipc_close(device, at[0])) \
    /* ---- what there is to see ---- */ \
    X(used, memory_of(step, true)) \
    X(total, memory_of(step, false)) \
    X(value, (*out = at[0], VARVE_OK)) \
    X(differ, gives(step, at[0] != at[1])) \
    X(mod, gives(step, (int64_t)(at[0] % at[1]))) \
    X(apart, gives(step, are_apart(step))) \
    /* Of memory that this process can read: */ \
    X(byte, gives(step, *(unsigned char *)(uintptr_t)at[0])) \
    X(set, gives(step, memset((void *)(uintptr_t)at[0], (int)at[2], at[1]) == NULL)) \
    X(all, gives(step, all_are(at[0], at[1]))) \
    X(readable, gives(step, device_is_readable(at[0]))) \
    /* ---- sim ---- */ \
    X(clock, gives(step, (int64_t)varve_sim_clock_ns(device))) \
    X(fail, varve_sim_fail(device, (enum varve_device_call)at[0], at[1], at[2], (int)at[3])) \
    X(calls, gives(step, (int64_t)varve_sim_calls(device, (enum varve_device_call)at[0]))) \
    X(pass, (varve_sim_clock_advance(device, at[0]), VARVE_OK)) \
    X(complete, step->count == 0 ? varve_sim_stream_complete(device, step->stream) \
                                 : varve_sim_event_complete(device, at[0])) \
    /* ---- host ---- */ \
    X(hold, varve_host_stream_block(device, step->stream)) \
    X(go, varve_host_stream_release(device, step->stream))
/* clang-format on */

#define WORD_FUNCTION(name, expression)                                               \
    static int word_##name(struct device_step *step)                                  \
    {                                                                                 \
        struct varve_device *device = step->device;                                   \
        const struct varve_device_ops *ops = device != NULL ? device->ops : NULL;     \
        const struct varve_device_reservation reservation = {.stream = step->stream}; \
        const uint64_t *at = step->at;                                                \
        uint64_t *out = &step->out;                                                   \
        (void)ops, (void)reservation, (void)at, (void)out;                            \
        return expression;                                                            \
    }

/* What some calls return beside errors, and what a word finds, is what the word gives. */
static int gives(struct device_step *step, int64_t value)
{
    step->out = value < 0 ? step->out : (uint64_t)value;
    return value < 0 ? (int)value : VARVE_OK;
}

static int copy_rows(struct device_step *step, enum varve_copy_direction direction)
{
    const uint64_t *at = step->at;
    const struct varve_copy_2d rows = {direction, at[0], at[1], at[2], at[3], at[4], at[5]};
    return step->device->ops->copy_2d(step->device, &rows, step->stream);
}

static int memory_of(struct device_step *step, bool is_used)
{
    uint64_t free_bytes = 0, total = 0;
    int error = step->device->ops->memory_info(step->device, &free_bytes, &total);
    step->out = is_used ? total - free_bytes : total;
    return error;
}

/* Of ranges of so many bytes. */
static bool are_apart(const struct device_step *step)
{
    for (unsigned i = 1; i < step->count; i++) {
        for (unsigned k = 1; k < step->count; k++) {
            if (i != k && step->at[i] - step->at[k] < step->at[0]) {
                return false;
            }
        }
    }
    return true;
}

/* What all bytes there are; 256: several. */
static int all_are(uint64_t addr, uint64_t bytes)
{
    const unsigned char *first = (const unsigned char *)(uintptr_t)addr;
    return bytes <= 1 || memcmp(first, first + 1, bytes - 1) == 0 ? *first : 256;
}

/* Can this process read there? The kernel looks for us, so that a "no" kills nobody. */
bool device_is_readable(uint64_t addr)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    bool result = write(ends[1], at(addr), 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return result;
}
WORDS(WORD_FUNCTION)
#undef WORD_FUNCTION

#define WORD_ENTRY(name, expression) {#name, word_##name},
static const struct device_word device_words_known[] = {WORDS(WORD_ENTRY){NULL, NULL}};
#undef WORD_ENTRY

/* clang-format off */
static const struct { const char *name; int error; } errors[] = {
    {"invalid", VARVE_ERROR_INVALID}, {"missing", VARVE_ERROR_NOT_FOUND}, {"memory", VARVE_ERROR_NO_MEMORY},
    {"busy", VARVE_ERROR_BUSY}, {"io", VARVE_ERROR_IO}, {"unsupported", VARVE_ERROR_UNSUPPORTED},
    {"full", VARVE_ERROR_FULL},
};
/* clang-format on */

/* ---- reading ---- */

static void wrong(const struct device_play *play, const char *word, const char *what)
{
    fail_msg("%s, %s: %s: %s", play->kind->name, play->now, word, what);
}

static const struct device_word *find_word(const struct device_word *words, const char *name, size_t length)
{
    for (; words != NULL && words->name != NULL; words++) {
        if (strncmp(words->name, name, length) == 0 && words->name[length] == '\0') {
            return words;
        }
    }
    return NULL;
}

/* 'alloc is a call's number, 'io an error's. */
static uint64_t read_name(const char **at)
{
    size_t length = strcspn(*at, ":@!? ");
    enum varve_device_call call = VARVE_DEVICE_CALL_LIMIT;
    uint64_t value = rig_find_call(*at, length, &call) ? (uint64_t)call : 0;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (strlen(errors[i].name) == length && strncmp(errors[i].name, *at, length) == 0) {
            value = (uint64_t)(int64_t)errors[i].error;
        }
    }
    *at += length;
    return value;
}

static uint64_t read_term(const struct device_play *play, const char **at)
{
    static const struct {
        char name;
        uint64_t bytes;
    } units[] = {{'u', UNIT}, {'K', 1 << 10}, {'M', 1 << 20}, {'G', 1 << 30}};
    if (strncmp(*at, "max", 3) == 0) {
        *at += 3;
        return UINT64_MAX;
    }
    if (**at == '\'') {
        ++*at;
        return read_name(at);
    }
    if (islower(**at)) {
        return play->named[*(*at)++ - 'a'];
    }
    char *end = NULL;
    uint64_t value = strtoull(*at, &end, 0);
    *at = end;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (*end == units[i].name) {
            ++*at;
            return value * units[i].bytes;
        }
    }
    return value;
}

static uint64_t read_value(const struct device_play *play, const char **at)
{
    uint64_t value = **at == '-' ? 0 : read_term(play, at);
    while (**at == '+' || **at == '-') {
        bool is_less = *(*at)++ == '-';
        uint64_t term = read_term(play, at);
        value = is_less ? value - term : value + term;
    }
    return value;
}

/* `at` is what stands behind the name. Returns what is to come of it: an error, and where a value stands that it gives.
 */
static int read_step(struct device_step *step, const char **at, const char *word)
{
    int error = VARVE_OK;
    while (**at == ':' && step->count < 6) {
        ++*at;
        step->at[step->count++] = read_value(step->play, at);
    }
    if (**at == '@') {
        ++*at;
        step->stream = read_value(step->play, at);
    }
    if (**at == '!') {
        size_t i = 0, count = sizeof(errors) / sizeof(errors[0]);
        while (i < count && strcmp(errors[i].name, *at + 1) != 0) {
            i++;
        }
        if (i == count) {
            wrong(step->play, word, "no such error");
        } else {
            error = errors[i].error;
        }
        *at = "";
    }
    return error;
}

static void reason_of(const struct device_play *play, struct varve_message *message)
{
    if (play->kind->reason != NULL) {
        snprintf(message->text, sizeof(message->text), "%s", play->kind->reason());
    } else {
        play->device->ops->reason(play->device, message);
    }
}

static void play_word(struct device_play *play, const char *word)
{
    const uint64_t untouched = UINT64_C(0x5a5a5a5a5a5a5a5a);
    struct device_step step = {.play = play, .device = play->device, .out = untouched};
    bool is_named = word[1] == '=';
    const char *at = is_named ? word + 2 : word;
    size_t length = strcspn(at, ":@!?");
    const struct device_word *known = find_word(device_words_known, at, length);
    known = known != NULL ? known : find_word(play->kind->words, at, length);
    if (known == NULL) {
        wrong(play, word, "no such word");
        return;
    }
    at += length;
    int expected = read_step(&step, &at, word), error = known->call(&step);
    if (error != expected && play->error_out != NULL) {
        *play->error_out = error;
        return;
    }
    if (error != expected) {
        struct varve_message message = {""};
        reason_of(play, &message);
        fail_msg("%s, %s: %s: error %d, not %d (%s)", play->kind->name, play->now, word, error, expected, message.text);
    }
    if (error != VARVE_OK && step.out != untouched) {
        wrong(play, word, "it failed and gave something");
    }
    if (*at == '?') {
        at++;
        uint64_t value = read_value(play, &at);
        if (step.out != value) {
            fail_msg("%s, %s: %s: it gave %#" PRIx64 ", not %#" PRIx64, play->kind->name, play->now, word, step.out,
                     value);
        }
    }
    if (*at != '\0') {
        wrong(play, word, "can't be read");
    }
    if (is_named) {
        play->named[word[0] - 'a'] = step.out;
    }
}

static void play_reason(struct device_play *play, const char *text)
{
    struct varve_message message;
    reason_of(play, &message);
    if (text[0] == '\0' ? message.text[0] != '\0' : strstr(message.text, text) == NULL) {
        fail_msg("%s, %s: the reason is \"%s\", not \"%s\"", play->kind->name, play->now, message.text, text);
    }
}

static void read_words(struct device_play *play, const char *words, bool is_checked)
{
    char copy[4096];
    char *at = copy;
    assert_true(strlen(words) < sizeof(copy));
    memcpy(copy, words, strlen(words) + 1);
    while (*at != '\0' && (play->error_out == NULL || *play->error_out == VARVE_OK)) {
        char *word = at;
        at += strcspn(at, " {");
        if (*at == '{') {
            char *end = strchr(at, '}');
            assert_non_null(end);
            *end = '\0';
            play_reason(play, at + 1);
            at = end + 1;
        } else if (at > word) {
            at += *at != '\0';
            at[-1] = at[-1] == ' ' ? '\0' : at[-1];
            play_word(play, word);
            if (is_checked) {
                device_check(play);
            }
        }
        at += strspn(at, " ");
    }
}

void device_words(struct device_play *play, const char *words)
{
    read_words(play, words, true);
}

void device_words_unchecked(struct device_play *play, const char *words)
{
    read_words(play, words, false);
}

int device_words_until(struct device_play *play, const char *words)
{
    int error = VARVE_OK;
    play->error_out = &error;
    read_words(play, words, true);
    play->error_out = NULL;
    return error;
}

/* ---- life ---- */

void device_check(struct device_play *play)
{
    struct varve_message message = {""};
    if (play->kind->check(play->device, &message) != VARVE_OK) {
        wrong(play, "check", message.text);
    }
}

uint64_t device_used(struct device_play *play)
{
    struct device_step step = {.play = play, .device = play->device};
    assert_int_equal(memory_of(&step, true), VARVE_OK);
    return step.out;
}

void device_play_open(struct device_play *play, const struct device_kind *kind, const struct device_case *one)
{
    *play = (struct device_play){.kind = kind, .now = one->what};
    play->named['s' - 'a'] = kind->stream;
    play->named['p' - 'a'] = (uint64_t)sysconf(_SC_PAGESIZE);
    if (kind->open(one, &play->device) != VARVE_OK) {
        wrong(play, "open", "fails");
    }
    device_check(play);
}

void device_play_close(struct device_play *play)
{
    struct varve_device *device = play->device;
    device_check(play);
    play->device = NULL;
    if (play->kind->closing != NULL) {
        play->kind->closing();
    }
    if (device != NULL) {
        device->ops->close(device);
    }
    if (play->kind->closed != NULL) {
        play->kind->closed();
    }
    play->now = NULL;
}

int device_play_setup(void **state)
{
    *state = calloc(1, sizeof(struct device_play));
    return *state == NULL;
}

int device_play_teardown(void **state)
{
    struct device_play *play = *state;
    if (play->device != NULL) { /* the test has failed */
        play->device->ops->close(play->device);
    }
    free(play);
    return 0;
}

void device_play_cases(struct device_play *play, const struct device_kind *kind, const struct device_case *cases,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        device_play_open(play, kind, &cases[i]);
        device_words(play, cases[i].words);
        device_play_close(play);
    }
}

/* ---- kinds ---- */

static int open_sim(const struct device_case *one, struct varve_device **device_out)
{
    return varve_sim_open(&one->sim, device_out, NULL);
}

static int open_host(const struct device_case *one, struct varve_device **device_out)
{
    return varve_host_open(&(struct varve_host_options){.limit_bytes = one->limit}, device_out, NULL);
}

const struct device_kind sim_kind = {.name = "sim", .open = open_sim, .check = varve_sim_check};
const struct device_kind host_kind = {.name = "host", .open = open_host, .check = varve_host_check};
