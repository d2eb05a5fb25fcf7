/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace/symbols/symbols.c against other implementations: small programs are compiled here in many ways (optimised with
 * inlining, DWARF 4 and 5, gcc and clang, link-time optimisation, stripped), and every few bytes of their
 * code are looked up and compared with `addr2line -i -f -C`. Files that changed or went away:
 * test_symbols_files.c.
 * Costs: 6 s
 */
#include <cmocka.h>

#include "support/random.h"
#include "support/symbols.h"
#include "trace/error.h"
#include "trace/symbols/module.h"
#include "trace/symbols/range.h"
#include "trace/symbols/symbols.h"
#include "trace/trace.h"

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

static int set_up_both(void **state)
{
    int result = set_up(state);
    write_file("small.cc", cxx_source);
    return result;
}

static void check_variant(const char *tool, const char *compile, const char *name, int depth_min)
{
    int deepest = 0;
    assert_int_equal(shell("%s -o %s", compile, name), 0);
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    unsigned count = compare_code(symbols, tool, name, name, 3, &deepest);
    symbols_close(symbols);
    assert_true(count > 60);
    assert_true(deepest >= depth_min);
}

TEST(test_c_with_dwarf)
{
    check_variant("addr2line", "gcc -g -O2 small.c", "c5", 3);
    check_variant("addr2line", "gcc -gdwarf-4 -O2 small.c", "c4", 3);
    check_variant("addr2line", "gcc -g -O0 small.c", "c0", 3);
    check_variant("addr2line", "gcc -g -O2 -gz small.c", "cz", 3);
    check_variant("addr2line", "gcc -g -O2 -no-pie small.c", "cfixed", 3);
}

TEST(test_cxx_with_dwarf)
{
    check_variant("addr2line", "g++ -g -O2 small.cc", "cxx5", 5);
    check_variant("addr2line", "g++ -g -O1 -gdwarf-4 -ffunction-sections -Wl,--gc-sections small.cc", "cxx4", 3);
}

TEST(test_clang_has_no_aranges)
{
    if (shell("clang --version >log") != 0) {
        skip("clang is not installed");
    }
    check_variant("addr2line", "clang -gdwarf-4 -O2 small.c", "clang4", 3);
    /* binutils up to 2.40 at least does not read the range lists that clang writes for DWARF 5. */
    if (shell("llvm-addr2line --version >log") != 0) {
        skip("llvm-addr2line is not installed");
    }
    check_variant("llvm-addr2line", "clang -g -O2 small.c", "clang5", 3);
    check_variant("llvm-addr2line", "clang++ -g -O2 small.cc", "clangxx5", 5);
}

/* After link-time optimisation inlined functions are described in another unit than their callers. */
TEST(test_link_time_optimisation)
{
    if (shell("llvm-addr2line --version >log") != 0) {
        skip("llvm-addr2line is not installed");
    }
    check_variant("llvm-addr2line", "gcc -g -O2 -flto small.c", "lto", 3);
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

TEST(test_symbol_table_only)
{
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    assert_int_equal(shell("gcc -O2 small.c -o plain && g++ -O2 small.cc -o plainxx"), 0);
    struct answer answer = resolve(symbols, path_of("plain"), address_of("plain", "give_up"));
    assert_string_equal(answer.function[0], "give_up");
    assert_string_equal(answer.file[0], "");
    answer = resolve(symbols, path_of("plainxx"), address_of("plainxx", "_Z3runi") + 5);
    assert_string_equal(answer.function[0], "run(int)");
    /* The part that the compiler set aside as unlikely has a name of its own. */
    answer = resolve(symbols, path_of("plainxx"), address_of("plainxx", "_Z3runi.cold"));
    assert_string_equal(answer.function[0], "run(int) [clone .cold]");
    /* Stripped: what is exported keeps its name, and nothing else gets that of its neighbour. */
    uint64_t outer = address_of("plain", "outer");
    assert_int_equal(shell("gcc -O2 -rdynamic small.c -o exported && strip exported && strip plain -o bare"), 0);
    answer = resolve(symbols, path_of("bare"), outer);
    assert_string_equal(answer.function[0], "");
    symbols_close(symbols);
}

TEST(test_dynamic_symbols)
{
    assert_int_equal(shell("gcc -O2 -fPIC -shared small.c -o lib.so"), 0);
    uint64_t outer = address_of("lib.so", "outer");
    uint64_t middle = address_of("lib.so", "deregister_tm_clones");
    assert_true(outer && middle);
    assert_int_equal(shell("strip lib.so"), 0);
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    struct answer answer = resolve(symbols, path_of("lib.so"), outer + 1);
    assert_string_equal(answer.function[0], "outer");
    answer = resolve(symbols, path_of("lib.so"), middle);
    assert_string_equal(answer.function[0], "");
    symbols_close(symbols);
}

TEST(test_demangle)
{
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    assert_string_equal(symbols_demangle(symbols, "_Znwm"), "operator new(unsigned long)");
    assert_string_equal(symbols_demangle(symbols, "_ZN3foo3barEv.cold"), "foo::bar() [clone .cold]");
    assert_string_equal(symbols_demangle(symbols, "_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
    assert_string_equal(symbols_demangle(symbols, "_ZN3app5parse28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE"),
                        "app::parse::{{closure}}");
    assert_string_equal(
        symbols_demangle(symbols,
                         "_ZN60_$LT$alloc..string..String$u20$as$u20$core..fmt..Display$GT$3fmt17h0123456789abcdefE"),
        "<alloc::string::String as core::fmt::Display>::fmt");
    assert_string_equal(symbols_demangle(symbols, "_ZN3app10fmt..parse17h0123456789abcdefE"),
                        "app::fmt::parse"); /* nothing before the sign became shorter */
    assert_string_equal(symbols_demangle(symbols, "_ZN3app5parse3h01Ev"), "app::parse::h01()");
    assert_string_equal(symbols_demangle(symbols, "_Zbad"), "_Zbad");
    assert_string_equal(symbols_demangle(symbols, "i"), "i");
    assert_string_equal(symbols_demangle(symbols, ""), "");
    symbols_close(symbols);
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

TEST_FILE(set_up_both, tear_down)
