/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * What the tests of symbol look-up share: a folder with small programs, compiled by the test, and the
 * comparison of our answers for their code with another tool's.
 */
#ifndef VARVE_TESTS_SUPPORT_SYMBOLS_H
#define VARVE_TESTS_SUPPORT_SYMBOLS_H

#include <cmocka.h>

#include "trace/error.h"
#include "trace/symbols/symbols.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_MAX 64
#define NAME_BYTES 512

struct answer {
    char function[FRAMES_MAX][NAME_BYTES]; /* "" if unknown */
    char file[FRAMES_MAX][NAME_BYTES];     /* without folders */
    unsigned line[FRAMES_MAX];
    int count;
    int inlined;
};

/* A folder of its own for each program. */
static inline const char *symbols_folder(void)
{
    static char folder[256];
    const char *base = getenv("TMPDIR");
    if (folder[0] == '\0') {
        snprintf(folder, sizeof(folder), "%s/varve-symbols-XXXXXX", base ? base : "/tmp");
        assert_non_null(mkdtemp(folder));
    }
    return folder;
}

static inline const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", symbols_folder(), name);
    return path;
}

/* Runs a shell command in the test's folder; its exit status. */
__attribute__((format(printf, 1, 2))) static inline int shell(const char *format, ...)
{
    char command[4096];
    int start = snprintf(command, sizeof(command), "cd '%s' && { ", symbols_folder());
    va_list arguments;
    va_start(arguments, format);
    start += vsnprintf(command + start, sizeof(command) - (size_t)start, format, arguments);
    va_end(arguments);
    snprintf(command + start, sizeof(command) - (size_t)start, "; } 2>>log");
    return system(command);
}

static inline void write_file(const char *name, const char *text)
{
    FILE *stream = fopen(path_of(name), "w");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static inline int set_up(void **state)
{
    static const char c_source[] = "#include <stdlib.h>\n"
                                   "static inline __attribute__((always_inline)) int leaf(int *at, int n)\n"
                                   "{\n"
                                   "    int sum = 0;\n"
                                   "    for (int i = 0; i < n; i++)\n"
                                   "        sum += at[i] * (i ^ 3);\n"
                                   "    return sum;\n"
                                   "}\n"
                                   "static inline __attribute__((always_inline)) int middle(int *at, int n)\n"
                                   "{\n"
                                   "    return leaf(at, n) + leaf(at + 1, n - 1);\n"
                                   "}\n"
                                   "__attribute__((noinline)) int outer(int *at, int n)\n"
                                   "{\n"
                                   "    int extra = n > 7 ? middle(at, n - 7) : 0;\n"
                                   "    return middle(at, n) - extra;\n"
                                   "}\n"
                                   "__attribute__((noinline, cold)) void give_up(int code)\n"
                                   "{\n"
                                   "    exit(code);\n"
                                   "}\n"
                                   "int main(int argc, char **argv)\n"
                                   "{\n"
                                   "    int *memory = malloc(sizeof(int) * 64);\n"
                                   "    (void)argv;\n"
                                   "    if (!memory)\n"
                                   "        give_up(3);\n"
                                   "    for (int i = 0; i < 64; i++)\n"
                                   "        memory[i] = argc * i;\n"
                                   "    return outer(memory, argc + 8) == 17;\n"
                                   "}\n";
    (void)state;
    write_file("small.c", c_source);
    return shell("cc --version >log && c++ --version >log && addr2line --version >log && objcopy --version >log");
}

static inline int tear_down(void **state)
{
    (void)state;
    char command[512];
    snprintf(command, sizeof(command), "rm -rf '%s'", symbols_folder());
    return system(command);
}

static inline const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Longer names are cut, on both sides alike. */
static inline void copy_text(char to[NAME_BYTES], const char *from)
{
    size_t length = from ? strnlen(from, NAME_BYTES - 1) : 0;
    if (length) {
        memcpy(to, from, length);
    }
    to[length] = '\0';
}

static inline void take_frame(void *context, const struct symbols_frame *frame)
{
    struct answer *answer = context;
    assert_true(answer->count < FRAMES_MAX);
    copy_text(answer->function[answer->count], frame->function);
    copy_text(answer->file[answer->count], frame->file ? base_name(frame->file) : NULL);
    answer->line[answer->count++] = frame->line;
    answer->inlined += frame->is_inlined;
}

static inline struct answer resolve(struct symbols *symbols, const char *path, uint64_t address)
{
    static struct answer answer;
    memset(&answer, 0, sizeof(answer));
    assert_int_equal(symbols_resolve(symbols, path, NULL, 0, address, take_frame, &answer), VARVE_OK);
    assert_true(answer.count >= 1);
    assert_int_equal(answer.inlined, answer.count - 1);
    return answer;
}

/* Address of a symbol by nm; 0 if it is not there. */
static inline uint64_t address_of(const char *name, const char *symbol)
{
    unsigned long long address = 0;
    assert_int_equal(shell("nm '%s' | awk '$3 == \"%s\" { print $1 }' >address", name, symbol), 0);
    FILE *stream = fopen(path_of("address"), "r");
    assert_non_null(stream);
    char line[1024];
    if (fgets(line, sizeof(line), stream)) {
        address = strtoull(line, NULL, 16);
    }
    fclose(stream);
    return address;
}

static inline void code_range(const char *name, uint64_t *start, uint64_t *end)
{
    unsigned long long address = 0, size = 0;
    assert_int_equal(shell("objdump -h '%s' | awk '$2 == \".text\" { print $4, $3 }' >range", name), 0);
    FILE *stream = fopen(path_of("range"), "r");
    assert_non_null(stream);
    assert_int_equal(fscanf(stream, "%llx %llx", &address, &size), 2);
    fclose(stream);
    *start = address;
    *end = address + size;
}

/* Every `step` bytes of every function of the symbol table into the file `addresses`. Not between them: there
 * addr2line goes on with the function before, which would be a guess. */
static inline unsigned list_addresses(const char *reference, uint64_t step)
{
    unsigned count = 0;
    assert_int_equal(
        shell("nm -S --defined-only '%s' | awk 'NF == 4 && $3 ~ /[tTwW]/ { print $1, $2 }' >functions", reference), 0);
    FILE *in = fopen(path_of("functions"), "r");
    FILE *out = fopen(path_of("addresses"), "w");
    assert_true(in && out);
    unsigned long long start, size;
    while (fscanf(in, "%llx %llx", &start, &size) == 2) {
        for (unsigned long long at = 0; at < size; at += step, count++) {
            fprintf(out, "0x%llx\n", start + at);
        }
    }
    fclose(in);
    assert_int_equal(fclose(out), 0);
    return count;
}

/* Reads addr2line's frames of one address; the stream is at the line with the address. */
static inline bool read_expected(FILE *stream, char *line, size_t line_bytes, struct answer *answer)
{
    memset(answer, 0, sizeof(*answer));
    while (fgets(line, (int)line_bytes, stream) && strncmp(line, "0x", 2) != 0) {
        assert_true(answer->count < FRAMES_MAX);
        line[strcspn(line, "\n")] = '\0';
        copy_text(answer->function[answer->count], strcmp(line, "??") == 0 ? NULL : line);
        assert_non_null(fgets(line, (int)line_bytes, stream));
        line[strcspn(line, " \n")] = '\0';
        char *colon = strrchr(line, ':');
        assert_non_null(colon);
        *colon = '\0';
        copy_text(answer->file[answer->count], strcmp(line, "??") == 0 ? NULL : base_name(line));
        answer->line[answer->count++] = (unsigned)strtoul(colon + 1, NULL, 10);
    }
    return answer->count > 0;
}

/* Demanglers differ in blanks ("operator< <int>"), and LLVM names clones (.constprop.0) where we name the
 * function. An inlined lambda has no linkage name: binutils takes the symbol around it instead. */
static inline int equal_names(const char *got, const char *expected)
{
    if (strcmp(got, "operator()") == 0) {
        return 1;
    }
    while (*got && *expected) {
        if (*got == ' ') {
            got++;
        } else if (*expected == ' ') {
            expected++;
        } else if (*got++ != *expected++) {
            return 0;
        }
    }
    return *got == *expected || (*got == '\0' && *expected == '.');
}

static inline int equal_answers(const struct answer *got, const struct answer *expected)
{
    if (got->count != expected->count) {
        return 0;
    }
    for (int i = 0; i < got->count; i++) {
        if (!equal_names(got->function[i], expected->function[i]) || strcmp(got->file[i], expected->file[i]) != 0 ||
            got->line[i] != expected->line[i]) {
            return 0;
        }
    }
    return 1;
}

static inline void print_answer(const char *who, const struct answer *answer)
{
    for (int i = 0; i < answer->count; i++) {
        print_message("  %s %d: %s at %s:%u\n", who, i, answer->function[i], answer->file[i], answer->line[i]);
    }
}

/* Looks up every `step` bytes of the functions of `name`; addr2line reads `reference`, which has the same
 * code. */
static inline unsigned compare_code(struct symbols *symbols, const char *tool, const char *name, const char *reference,
                                    uint64_t step, int *deepest)
{
    unsigned count = list_addresses(reference, step);
    assert_int_equal(shell("%s -a -i -f -C -e '%s' <addresses >expected", tool, reference), 0);
    char line[8192], path[512];
    snprintf(path, sizeof(path), "%s/%s", symbols_folder(), name);
    FILE *stream = fopen(path_of("expected"), "r");
    assert_non_null(stream);
    assert_non_null(fgets(line, sizeof(line), stream));
    struct answer expected, got;
    for (unsigned i = 0; i < count; i++) {
        uint64_t address = strtoull(line, NULL, 16);
        assert_true(read_expected(stream, line, sizeof(line), &expected));
        got = resolve(symbols, path, address);
        if (got.count > *deepest) {
            *deepest = got.count;
        }
        if (!equal_answers(&got, &expected)) {
            print_answer(tool, &expected);
            print_answer("varve", &got);
            fail_msg("%s at %#llx differs from %s", name, (unsigned long long)address, tool);
        }
    }
    fclose(stream);
    return count;
}

#endif
