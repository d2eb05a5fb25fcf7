/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace/symbols/symbols.c against other implementations: small programs are compiled here in many ways (optimised with
 * inlining, DWARF 4 and 5, gcc and clang, link-time optimisation, stripped), and every few bytes of their code are
 * looked up and compared with `addr2line -i -f -C`. And the files that it reads: debug data split off and found again
 * by debuglink and by build id, names in .gnu_debugdata, files that changed since they ran, went away, are damaged, or
 * are not ELF at all, and many modules in turn.
 * Costs: 8 s
 */
#include <cmocka.h>

#include "support/random.h"
#include "trace/symbols/demangle.h"
#include "trace/symbols/symbol_module.h"
#include "trace/symbols/symbol_range.h"
#include "trace/symbols/symbols.h"
#include "base/error.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRAMES_MAX 64
#define NAME_BYTES 512

struct answer {
    char function[FRAMES_MAX][NAME_BYTES]; /* "" if unknown */
    char file[FRAMES_MAX][NAME_BYTES];     /* without folders */
    unsigned line[FRAMES_MAX];
    uint64_t start; /* of the last one, if it has no name */
    int count;
    int inlined;
};

/* A folder of its own for each program. */
static const char *symbols_folder(void)
{
    static char folder[256];
    const char *base = getenv("TMPDIR");
    if (folder[0] == '\0') {
        snprintf(folder, sizeof(folder), "%s/varve-symbols-XXXXXX", base ? base : "/tmp");
        assert_non_null(mkdtemp(folder));
    }
    return folder;
}

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", symbols_folder(), name);
    return path;
}

/* Runs a shell command in the test's folder; its exit status. */
__attribute__((format(printf, 1, 2))) static int shell(const char *format, ...)
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

static void write_file(const char *name, const char *text)
{
    FILE *stream = fopen(path_of(name), "w");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static int set_up_folder(void **state)
{
    static const char c_source[] = "#include <stdlib.h>\n"
                                   "static __attribute__((always_inline)) int leaf(int *at, int n)\n"
                                   "{\n"
                                   "    int sum = 0;\n"
                                   "    for (int i = 0; i < n; i++)\n"
                                   "        sum += at[i] * (i ^ 3);\n"
                                   "    return sum;\n"
                                   "}\n"
                                   "static __attribute__((always_inline)) int middle(int *at, int n)\n"
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

static int tear_down(void **state)
{
    (void)state;
    char command[512];
    snprintf(command, sizeof(command), "rm -rf '%s'", symbols_folder());
    return system(command);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Longer names are cut, on both sides alike. */
static void copy_text(char to[NAME_BYTES], const char *from)
{
    size_t length = from ? strnlen(from, NAME_BYTES - 1) : 0;
    if (length) {
        memcpy(to, from, length);
    }
    to[length] = '\0';
}

static void take_frame(void *context, const struct symbols_frame *frame)
{
    struct answer *answer = context;
    assert_true(answer->count < FRAMES_MAX);
    copy_text(answer->function[answer->count], frame->function);
    copy_text(answer->file[answer->count], frame->file ? base_name(frame->file) : NULL);
    answer->start = frame->start;
    answer->line[answer->count++] = frame->line;
    answer->inlined += frame->is_inlined;
}

static struct answer resolve(struct symbols *symbols, const char *path, uint64_t address)
{
    static struct answer answer;
    memset(&answer, 0, sizeof(answer));
    assert_int_equal(symbols_resolve(symbols, path, NULL, 0, NULL, address, take_frame, &answer), VARVE_OK);
    assert_true(answer.count >= 1);
    assert_int_equal(answer.inlined, answer.count - 1);
    return answer;
}

/* Address of a symbol by nm; 0 if it is not there. */
static uint64_t address_of(const char *name, const char *symbol)
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

static void code_range(const char *name, uint64_t *start, uint64_t *end)
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
static unsigned list_addresses(const char *reference, uint64_t step)
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
static bool read_expected(FILE *stream, char *line, size_t line_bytes, struct answer *answer)
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
static int equal_names(const char *got, const char *expected)
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

static int equal_answers(const struct answer *got, const struct answer *expected)
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

static void print_answer(const char *who, const struct answer *answer)
{
    for (int i = 0; i < answer->count; i++) {
        print_message("  %s %d: %s at %s:%u\n", who, i, answer->function[i], answer->file[i], answer->line[i]);
    }
}

/* Looks up every `step` bytes of the functions of `name`; addr2line reads `reference`, which has the same
 * code. */
static unsigned compare_code(struct symbols *symbols, const char *tool, const char *name, const char *reference,
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

static const char cxx_source[] = "#include <map>\n"
                                 "#include <string>\n"
                                 "#include <vector>\n"
                                 "namespace deep { namespace er {\n"
                                 "template <typename T> struct box {\n"
                                 "    std::vector<T> items;\n"
                                 "    __attribute__((noinline)) void add(const T &item) { items.push_back(item); }\n"
                                 "};\n"
                                 "static __attribute__((noinline)) int count(const std::map<std::string, int> &m)\n"
                                 "{\n"
                                 "    int sum = 0;\n"
                                 "    for (const auto &entry : m)\n"
                                 "        sum += entry.second + (int)entry.first.size();\n"
                                 "    return sum;\n"
                                 "}\n"
                                 "} }\n"
                                 "__attribute__((noinline)) int run(int n)\n"
                                 "{\n"
                                 "    deep::er::box<double> b;\n"
                                 "    std::map<std::string, int> m;\n"
                                 "    auto twice = [&](int i) { b.add(i * 2.0); m[std::to_string(i)] = i; };\n"
                                 "    for (int i = 0; i < n; i++)\n"
                                 "        twice(i);\n"
                                 "    return deep::er::count(m) + (int)b.items.size();\n"
                                 "}\n"
                                 "int main(int argc, char **) { return run(argc) == 3; }\n";

static int set_up(void **state)
{
    int result = set_up_folder(state);
    write_file("small.cc", cxx_source);
    return result;
}

/* Of one address, or of a symbol of a reference with the same code, in a look-up of its own. */
static void expect_function(const char *name, const char *reference, const char *symbol, const char *expected)
{
    struct symbols *symbols;
    uint64_t address = address_of(reference, symbol);
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    struct answer answer = resolve(symbols, path_of(name), address);
    assert_string_equal(answer.function[answer.count - 1], expected);
    symbols_close(symbols);
}

/* `root`: another place for debug data; NULL: none. Returns how many addresses were compared. */
static unsigned expect_code(const char *tool, const char *name, const char *reference, uint64_t step, const char *root,
                            int depth_min)
{
    int deepest = 0;
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    assert_int_equal(root != NULL ? symbols_add_debug_root(symbols, path_of(root)) : VARVE_OK, VARVE_OK);
    unsigned count = compare_code(symbols, tool, name, reference, step, &deepest);
    symbols_close(symbols);
    assert_true(deepest >= depth_min);
    return count;
}

/* ---- compilers ---- */

TEST(test_variants)
{
    static const struct {
        const char *tool, *compile, *name;
        int depth_min;
    } variants[] = {
        {"addr2line", "gcc -g -O2 small.c", "c5", 3},
        {"addr2line", "gcc -gdwarf-4 -O2 small.c", "c4", 3},
        {"addr2line", "gcc -g -O0 small.c", "c0", 3},
        {"addr2line", "gcc -g -O2 -gz small.c", "cz", 3},
        {"addr2line", "gcc -g -O2 -no-pie small.c", "cfixed", 3},
        {"addr2line", "g++ -g -O2 small.cc", "cxx5", 5},
        {"addr2line", "g++ -g -O1 -gdwarf-4 -ffunction-sections -Wl,--gc-sections small.cc", "cxx4", 3},
        /* clang writes no .debug_aranges */
        {"addr2line", "clang -gdwarf-4 -O2 small.c", "clang4", 3},
        /* binutils up to 2.40 at least does not read the range lists that clang writes for DWARF 5. */
        {"llvm-addr2line", "clang -g -O2 small.c", "clang5", 3},
        {"llvm-addr2line", "clang++ -g -O2 small.cc", "clangxx5", 5},
        /* After link-time optimisation inlined functions are described in another unit than their callers. */
        {"llvm-addr2line", "gcc -g -O2 -flto small.c", "lto", 3},
    };
    const char *missing = NULL;
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        const bool is_clang = strncmp(variants[i].compile, "clang", 5) == 0;
        if (is_clang && shell("clang --version >log") != 0) {
            missing = "clang is not installed";
        } else if (variants[i].tool[0] == 'l' && shell("llvm-addr2line --version >log") != 0) {
            missing = "llvm-addr2line is not installed";
        } else {
            assert_int_equal(shell("%s -o %s", variants[i].compile, variants[i].name), 0);
            assert_true(
                expect_code(variants[i].tool, variants[i].name, variants[i].name, 3, NULL, variants[i].depth_min) > 60);
        }
    }
    if (missing != NULL) {
        skip("%s", missing);
    }
}

TEST(test_split_dwarf)
{
    assert_int_equal(shell("gcc -g -O2 -gsplit-dwarf -c small.c -o split.o && gcc -g split.o -o split"), 0);
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    struct answer answer = resolve(symbols, path_of("split"), address_of("split", "outer"));
    assert_string_equal(answer.function[answer.count - 1], "outer");
    assert_string_equal(answer.file[answer.count - 1], "small.c");
    symbols_close(symbols);
}

/* Stripped: what is exported keeps its name, and nothing else gets that of its neighbour. */
TEST(test_symbol_tables_only)
{
    assert_int_equal(shell("gcc -O2 small.c -o plain && g++ -O2 small.cc -o plainxx && strip plain -o bare && "
                           "gcc -O2 -fPIC -shared small.c -o lib.full && strip lib.full -o lib.so"),
                     0);
    expect_function("plain", "plain", "give_up", "give_up");
    expect_function("bare", "plain", "outer", "");
    expect_function("plainxx", "plainxx", "_Z3runi", "run(int)");
    /* The part that the compiler set aside as unlikely has a name of its own. */
    expect_function("plainxx", "plainxx", "_Z3runi.cold", "run(int) [clone .cold]");
    expect_function("lib.so", "lib.full", "outer", "outer");
    expect_function("lib.so", "lib.full", "deregister_tm_clones", "");
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    struct answer answer = resolve(symbols, path_of("plain"), address_of("plain", "give_up"));
    assert_string_equal(answer.file[0], "");
    answer = resolve(symbols, path_of("plainxx"), address_of("plainxx", "_Z3runi") + 5);
    assert_string_equal(answer.function[0], "run(int)");
    symbols_close(symbols);
}

/* As rustc names functions, in the symbol table and in DWARF, there beside the plain name: a C compiler can do that. */
TEST(test_rust_programs)
{
    write_file("rust.c", "void parse(void) __asm__(\"_RNvCs15kBYyAo9fc_7mycrate5parse\");\n"
                         "__attribute__((noinline)) void parse(void) { __asm__ volatile(\"nop\"); }\n"
                         "void visit(void) __asm__(\"_RNvC9backtrace5visit.llvm.A5310EB9\");\n"
                         "__attribute__((noinline)) void visit(void) { __asm__ volatile(\"nop\"); }\n"
                         "int main(void) { parse(); visit(); return 0; }\n");
    assert_int_equal(shell("gcc -O2 rust.c -o rust && gcc -O2 -g rust.c -o rust.debug"), 0);
    expect_function("rust", "rust", "_RNvCs15kBYyAo9fc_7mycrate5parse", "mycrate::parse");
    expect_function("rust", "rust", "_RNvC9backtrace5visit.llvm.A5310EB9", "backtrace::visit");
    expect_function("rust.debug", "rust.debug", "_RNvCs15kBYyAo9fc_7mycrate5parse", "mycrate::parse");
    expect_function("rust.debug", "rust.debug", "_RNvC9backtrace5visit.llvm.A5310EB9", "backtrace::visit");
}

/* Names of Rust and what they stand for are those of the tests of the crate rustc-demangle and of RFC 2603. */
TEST(test_demangle)
{
    static const struct {
        const char *name, *expected; /* NULL: it stays as it is */
    } cases[] = {
        {"_Znwm", "operator new(unsigned long)"},
        {"_ZN3foo3barEv.cold", "foo::bar() [clone .cold]"},
        {"_ZN3app5parse3h01Ev", "app::parse::h01()"},
        {"_Zbad", NULL},
        {"_Z", NULL},
        {"i", NULL},
        {"", NULL},
        /* Rust's first scheme */
        {"_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"},
        {"_ZN3app5parse28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE", "app::parse::{{closure}}"},
        {"_ZN60_$LT$alloc..string..String$u20$as$u20$core..fmt..Display$GT$3fmt17h0123456789abcdefE",
         "<alloc::string::String as core::fmt::Display>::fmt"},
        {"_ZN3app10fmt..parse17h0123456789abcdefE", "app::fmt::parse"},
        {"_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE",
         "<Test + 'static as foo::Bar<Test>>::bar"},
        /* the second one, v0 */
        {"_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example"},
        {"_RNvC6_123foo3bar", "123foo::bar"},
        {"_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y", "utf8_idents::საჭმელად_გემრიელი_სადილი"},
        {"_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_", "cc::spawn::{closure#0}::{closure#0}"},
        {"_RNCINkXs25_NgCsbmNqQUJIY6D_4core5sliceINyB9_4IterhENuNgNoBb_4iter8iterator8Iterator9rpositionNCNgNpB9_"
         "6memchr7memrchrs_0E0Bb_",
         "<core::slice::Iter<u8> as core::iter::iterator::Iterator>::rposition::<core::slice::memchr::memrchr::"
         "{closure#1}>::{closure#0}"},
        {"_RINbNbCskIICzLVDPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_ECs1iopQbuBiw2_3std",
         "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<(), Output = ()>>"},
        {"_RMC0INtC8arrayvec8ArrayVechKj7b_E", "<arrayvec::ArrayVec<u8, 123>>"},
        {"_RNvC6_123fooEtra", NULL},
        {"_R", NULL},
        {"_RESTART", NULL},
        /* what link-time optimisation made global */
        {"_RNvC9backtrace3foo.llvm.A5310EB9", "backtrace::foo"},
        {"_ZN3foo17h05af221e174051e9E.llvm.9D1C9369@@16", "foo"},
        {"_ZN3foo3barEv.llvm.123", "foo::bar()"},
        {"_ZN3foo3barEv.llvm.123.cold", "foo::bar() [clone .cold]"},
        {"parse.llvm.17059302", "parse"},
        {"parse.llvm.17059302.cold", "parse.cold"},
        {"parse.llvm.", NULL},
        {"parse.llvm.main", NULL},
    };
    struct symbols_demangler demangler = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *got = symbols_demangle(&demangler, cases[i].name);
        if (cases[i].expected == NULL) {
            assert_ptr_equal(got, cases[i].name);
        } else {
            assert_string_equal(got, cases[i].expected);
        }
    }
    symbols_demangler_free(&demangler);
}

/* A tuple of two of the tuple that begins at `at`, a number of base 62 less one; at least 1, below 62². */
static void add_tuple(char *name, size_t at)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char number[] = {digits[(at - 1) / 62], digits[(at - 1) % 62], '\0'};
    sprintf(name + strlen(name), "TB%s_B%s_E", number, number);
}

/* Each template or tuple has the one before twice: few characters that stand for more than there is memory. */
TEST(test_demangle_endless)
{
    char cxx[512] = "_Z1f1AIiiE", rust[512] = "_RINvC1a1fTlhE";
    size_t inner = strlen("INvC1a1f");
    for (int i = 0; i < 30; i++) {
        const size_t begin = strlen(rust) - strlen("_R");
        const char number = (char)(i < 10 ? '0' + i : 'A' + i - 10);
        sprintf(cxx + strlen(cxx), "S_IS%c_S%c_E", number, number);
        add_tuple(rust, inner);
        inner = begin;
    }
    strcat(rust, "E");
    struct symbols_demangler demangler = {0};
    assert_ptr_equal(symbols_demangle(&demangler, cxx), cxx);
    assert_ptr_equal(symbols_demangle(&demangler, rust), rust);
    assert_in_range(demangler.length, 1 << 15, 1 << 16); /* it is one that can be read, but for its length */
    assert_string_equal(symbols_demangle(&demangler, "_Z3foov"), "foo()");
    symbols_demangler_free(&demangler);
}

/* The table of ranges against looking at every range. */
TEST(test_ranges_against_model)
{
    uint64_t seed = 99;
    for (int round = 0; round < 200; round++) {
        struct symbols_ranges table = {NULL, 0, 0};
        for (uint32_t i = 0; i < (uint32_t)(round % 40); i++) {
            uint64_t random = random_next(&seed);
            uint64_t low = (random >> 40) % 200;
            uint64_t length = (random >> 20) % ((random >> 60) ? 20 : 150);
            assert_true(symbols_ranges_add(&table, low, low + length, i, 0));
        }
        symbols_ranges_sort(&table);
        for (uint64_t address = 0; address < 400; address++) {
            const struct symbols_range *found = symbols_ranges_find(&table, address), *best = NULL;
            for (size_t i = 0; i < table.count; i++) {
                const struct symbols_range *range = &table.ranges[i];
                if (range->low <= address && address < range->high &&
                    (!best || range->low > best->low || (range->low == best->low && range->high < best->high))) {
                    best = range;
                }
            }
            assert_int_equal(found == NULL, best == NULL);
            if (best && found) {
                assert_true(found->low == best->low && found->high == best->high);
            }
        }
        symbols_ranges_free(&table);
    }
}

/* ---- files ---- */

TEST(test_mini_debug_info)
{
    if (shell("xz --version >log") != 0) {
        skip("xz is not installed");
    }
    assert_int_equal(shell("gcc -O2 -fPIC -shared small.c -o mini.so && objcopy -S --remove-section .comment "
                           "--keep-symbol deregister_tm_clones mini.so mini.debug && "
                           "nm mini.debug >log && xz -k mini.debug"),
                     0);
    assert_int_equal(
        shell("cp mini.so mini.full && strip mini.so && objcopy --add-section .gnu_debugdata=mini.debug.xz mini.so"),
        0);
    expect_function("mini.so", "mini.full", "deregister_tm_clones", "deregister_tm_clones");
}

/* Without a build id the checksum decides; beside the file, in .debug, below a root. */
TEST(test_debuglink)
{
    assert_int_equal(shell("gcc -g -O2 -Wl,--build-id=none small.c -o link && cp link link.full && "
                           "objcopy --only-keep-debug link link.debug && strip link && "
                           "objcopy --add-gnu-debuglink=link.debug link"),
                     0);
    expect_code("addr2line", "link", "link.full", 7, NULL, 3);
    assert_int_equal(shell("mkdir .debug && mv link.debug .debug/ && cp link link2"), 0);
    expect_code("addr2line", "link2", "link.full", 7, NULL, 3);
    assert_int_equal(shell("mkdir -p root\"$PWD\" && mv .debug/link.debug root\"$PWD\"/ && cp link link3"), 0);
    expect_code("addr2line", "link3", "link.full", 7, "root", 3);
    /* Another file of that name is not believed. */
    assert_int_equal(shell("rm -rf root && gcc -g -O1 small.c -o link.debug && cp link link4"), 0);
    expect_function("link4", "link.full", "outer", "");
    /* A pipe is not waited for, by whichever name. */
    assert_int_equal(shell("rm link.debug && mkfifo link.debug && cp link link5 && mkfifo .debug/link.debug && "
                           "mkdir piped && cp link piped/link6 && mkdir piped/.debug && "
                           "mkfifo piped/.debug/link.debug"),
                     0);
    expect_function("link5", "link.full", "outer", "");
    expect_function("piped/link6", "link.full", "outer", "");
}

TEST(test_build_id_tree)
{
    assert_int_equal(shell("gcc -g -O2 small.c -Wl,--build-id=0xab00112233445566778899aabbccddeeff001122 -o byid && "
                           "cp byid byid.full && mkdir -p tree/.build-id/ab && objcopy --only-keep-debug byid "
                           "tree/.build-id/ab/00112233445566778899aabbccddeeff001122.debug && strip byid"),
                     0);
    expect_code("addr2line", "byid", "byid.full", 5, "tree", 3);
    /* A debug file with another build id in that place is not used. */
    assert_int_equal(shell("gcc -g -O1 small.c -o other && objcopy --only-keep-debug other "
                           "tree/.build-id/ab/00112233445566778899aabbccddeeff001122.debug"),
                     0);
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    assert_int_equal(symbols_add_debug_root(symbols, path_of("tree")), VARVE_OK);
    assert_string_equal(resolve(symbols, path_of("byid"), address_of("byid.full", "outer")).function[0], "");
    symbols_close(symbols);
}

static void assert_unknown(struct symbols *symbols, const char *path, const uint8_t *id, size_t id_bytes,
                           uint64_t address)
{
    struct answer answer = {.count = 0};
    assert_int_equal(symbols_resolve(symbols, path, id, id_bytes, NULL, address, take_frame, &answer), VARVE_OK);
    assert_int_equal(answer.count, 1);
    assert_string_equal(answer.function[0], "");
    assert_string_equal(answer.file[0], "");
    assert_int_equal(answer.line[0], 0);
}

TEST(test_files_that_changed)
{
    static const uint8_t id[4] = {0xab, 1, 2, 3}, other[4] = {0xab, 1, 2, 4};
    struct answer answer = {.count = 0};
    assert_int_equal(shell("gcc -g -O2 small.c -Wl,--build-id=0xab010203 -o kept"), 0);
    uint64_t outer = address_of("kept", "outer");
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    assert_int_equal(symbols_resolve(symbols, path_of("kept"), id, 4, NULL, outer, take_frame, &answer), VARVE_OK);
    assert_string_equal(answer.function[answer.count - 1], "outer");
    assert_unknown(symbols, path_of("kept"), other, 4, outer);
    assert_unknown(symbols, path_of("kept"), id, 3, outer);
    assert_unknown(symbols, path_of("no-such-file"), id, 4, outer);
    assert_unknown(symbols, path_of("small.c"), id, 4, outer);
    assert_unknown(symbols, symbols_folder(), NULL, 0, outer);
    assert_unknown(symbols, "", NULL, 0, outer);
    assert_unknown(symbols, "/dev/null", NULL, 0, 0);
    assert_unknown(symbols, path_of("kept"), id, 4, 0);
    assert_unknown(symbols, path_of("kept"), id, 4, UINT64_MAX);
    assert_int_equal(symbols_resolve(symbols, "x", id, 65, NULL, 0, take_frame, &answer), VARVE_ERROR_INVALID);
    assert_int_equal(shell("mkfifo pipe"), 0);
    assert_unknown(symbols, path_of("pipe"), NULL, 0, outer);
    symbols_close(symbols);
}

/* Functions that have no name any more begin where they began; outside of all of them, and without the table that says
 * so, nothing is known. */
TEST(test_functions_without_names)
{
    static const char *const makes[] = {"gcc -O2 small.c -o named", "gcc -O0 -static-pie small.c -o named",
                                        "g++ -O2 small.cc -o named", "gcc -O2 -Wl,--no-eh-frame-hdr small.c -o named"};
    for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]); i++) {
        const bool has_table = i + 1 < sizeof(makes) / sizeof(makes[0]);
        struct symbols *symbols;
        assert_int_equal(shell("%s && strip -s -o nameless named", makes[i]), 0);
        assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
        char path[512];
        snprintf(path, sizeof(path), "%s/nameless", symbols_folder());
        assert_int_equal(shell("nm -S --defined-only named | awk 'NF == 4 && $3 ~ /[tTW]/ && $4 !~ /[.]cold/ && ($4 == "
                               "\"main\" || $4 ~ /run|outer|give_up|add/) { print $1, $2 }' >functions"),
                         0);
        FILE *in = fopen(path_of("functions"), "r");
        assert_non_null(in);
        unsigned long long start, size;
        unsigned count = 0;
        for (; fscanf(in, "%llx %llx", &start, &size) == 2; count++) {
            const uint64_t places[] = {start, start + size / 2, start + size - 1};
            for (size_t k = 0; k < 3; k++) {
                const struct answer answer = resolve(symbols, path, places[k]);
                assert_string_equal(answer.function[0], "");
                assert_int_equal(answer.start, has_table ? start : 0);
            }
        }
        assert_true(count >= 2);
        fclose(in);
        assert_int_equal(resolve(symbols, path, 0).start, 0);
        assert_int_equal(resolve(symbols, path, UINT64_MAX).start, 0);
        symbols_close(symbols);
    }
}

/* Bytes changed at random in a program with DWARF, or without anything: any answer, but one, and no fault. */
TEST(test_damaged_files)
{
    uint64_t seed = 12345, random, start, end;
    assert_int_equal(shell("gcc -g -O2 small.c -o sound && strip -s -o bare sound"), 0);
    code_range("sound", &start, &end);
    struct answer answer;
    struct symbols *symbols;
    for (int round = 0; round < 40; round++) {
        struct stat status = {.st_size = 0};
        assert_int_equal(shell("cp %s damaged", round % 2 == 0 ? "sound" : "bare"), 0);
        int file = open(path_of("damaged"), O_RDWR | O_CLOEXEC);
        assert_true(file >= 0 && fstat(file, &status) == 0);
        uint64_t size = status.st_size > 0 ? (uint64_t)status.st_size : 1;
        for (int i = 0; i < 1 + round; i++) {
            random = random_next(&seed);
            uint8_t byte = (uint8_t)(random >> 33);
            assert_int_equal(pwrite(file, &byte, 1, (off_t)((random >> 20) % size)), 1);
        }
        if (round % 5 == 4) {
            assert_int_equal(ftruncate(file, (off_t)(status.st_size * (round % 7 + 1) / 9)), 0);
        }
        close(file);
        assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
        for (uint64_t address = start; address < end; address += 16) {
            memset(&answer, 0, sizeof(answer));
            assert_int_equal(symbols_resolve(symbols, path_of("damaged"), NULL, 0, NULL, address, take_frame, &answer),
                             VARVE_OK);
            assert_true(answer.count >= 1);
        }
        symbols_close(symbols);
    }
}

TEST(test_few_modules_stay_open)
{
    unsigned open_count = 0;
    assert_int_equal(shell("gcc -g -O2 small.c -o many && for i in $(seq 40); do ln many many.$i; done"), 0);
    uint64_t outer = address_of("many", "outer");
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    char path[600];
    for (int round = 0; round < 2; round++) {
        for (int i = 1; i <= 40; i++) {
            snprintf(path, sizeof(path), "%s/many.%d", symbols_folder(), i);
            struct answer answer = resolve(symbols, path, outer);
            assert_string_equal(answer.function[answer.count - 1], "outer");
        }
    }
    for (unsigned i = 0; i < SYMBOLS_MODULES_MAX; i++) {
        open_count += symbols->modules[i] != NULL;
    }
    assert_int_equal(open_count, SYMBOLS_MODULES_MAX);
    symbols_close(symbols);
}

TEST_FILE(set_up, tear_down)
