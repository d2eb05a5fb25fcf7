/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files that trace/symbols/symbols.c reads: debug data split off and found again by debuglink and by build id,
 * names in .gnu_debugdata, files that changed since they ran, went away, are damaged, or are not ELF at all, and many
 * modules in turn. Answers as such: test_symbols.c.
 * Costs: 2 s
 */
#include <cmocka.h>

#include "support/random.h"
#include "support/symbols.h"
#include "trace/error.h"
#include "trace/symbols/module.h"
#include "trace/symbols/symbols.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(test_mini_debug_info)
{
    if (shell("xz --version >log") != 0) {
        skip("xz is not installed");
    }
    assert_int_equal(shell("gcc -O2 -fPIC -shared small.c -o mini.so && objcopy -S --remove-section .comment "
                           "--keep-symbol deregister_tm_clones mini.so mini.debug && "
                           "nm mini.debug >log && xz -k mini.debug"),
                     0);
    uint64_t clones = address_of("mini.so", "deregister_tm_clones");
    assert_int_equal(shell("strip mini.so && objcopy --add-section .gnu_debugdata=mini.debug.xz mini.so"), 0);
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    struct answer answer = resolve(symbols, path_of("mini.so"), clones);
    assert_string_equal(answer.function[0], "deregister_tm_clones");
    symbols_close(symbols);
}

TEST(test_debuglink)
{
    int deepest = 0;

    /* Without a build id the checksum decides; beside the file, in .debug, below a root. */
    assert_int_equal(shell("gcc -g -O2 -Wl,--build-id=none small.c -o link && cp link link.full && "
                           "objcopy --only-keep-debug link link.debug && strip link && "
                           "objcopy --add-gnu-debuglink=link.debug link"),
                     0);
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    compare_code(symbols, "addr2line", "link", "link.full", 7, &deepest);
    symbols_close(symbols);
    assert_true(deepest >= 3);

    assert_int_equal(shell("mkdir .debug && mv link.debug .debug/ && cp link link2"), 0);
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    compare_code(symbols, "addr2line", "link2", "link.full", 7, &deepest);
    symbols_close(symbols);

    assert_int_equal(shell("mkdir -p root\"$PWD\" && mv .debug/link.debug root\"$PWD\"/ && cp link link3"), 0);
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    assert_int_equal(symbols_add_debug_root(symbols, path_of("root")), VARVE_OK);
    compare_code(symbols, "addr2line", "link3", "link.full", 7, &deepest);
    symbols_close(symbols);

    /* Another file of that name is not believed. */
    assert_int_equal(shell("rm -rf root && gcc -g -O1 small.c -o link.debug && cp link link4"), 0);
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    assert_string_equal(resolve(symbols, path_of("link4"), address_of("link.full", "outer")).function[0], "");
    symbols_close(symbols);

    /* A pipe is not waited for, by whichever name. */
    assert_int_equal(shell("rm link.debug && mkfifo link.debug && cp link link5 && mkfifo .debug/link.debug && "
                           "mkdir piped && cp link piped/link6 && mkdir piped/.debug && "
                           "mkfifo piped/.debug/link.debug"),
                     0);
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    assert_string_equal(resolve(symbols, path_of("link5"), address_of("link.full", "outer")).function[0], "");
    assert_string_equal(resolve(symbols, path_of("piped/link6"), address_of("link.full", "outer")).function[0], "");
    symbols_close(symbols);
}

TEST(test_build_id_tree)
{
    int deepest = 0;
    assert_int_equal(shell("gcc -g -O2 small.c -Wl,--build-id=0xab00112233445566778899aabbccddeeff001122 -o byid && "
                           "cp byid byid.full && mkdir -p tree/.build-id/ab && objcopy --only-keep-debug byid "
                           "tree/.build-id/ab/00112233445566778899aabbccddeeff001122.debug && strip byid"),
                     0);
    struct symbols *symbols;
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    assert_int_equal(symbols_add_debug_root(symbols, path_of("tree")), VARVE_OK);
    compare_code(symbols, "addr2line", "byid", "byid.full", 5, &deepest);
    symbols_close(symbols);
    assert_true(deepest >= 3);
    /* A debug file with another build id in that place is not used. */
    assert_int_equal(shell("gcc -g -O1 small.c -o other && objcopy --only-keep-debug other "
                           "tree/.build-id/ab/00112233445566778899aabbccddeeff001122.debug"),
                     0);
    assert_int_equal(symbols_open(&symbols, NULL), VARVE_OK);
    assert_int_equal(symbols_add_debug_root(symbols, path_of("tree")), VARVE_OK);
    assert_string_equal(resolve(symbols, path_of("byid"), address_of("byid.full", "outer")).function[0], "");
    symbols_close(symbols);
}

static void assert_unknown(struct symbols *symbols, const char *path, const uint8_t *id, size_t id_bytes,
                           uint64_t address)
{
    struct answer answer = {.count = 0};
    assert_int_equal(symbols_resolve(symbols, path, id, id_bytes, address, take_frame, &answer), VARVE_OK);
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
    assert_int_equal(symbols_resolve(symbols, path_of("kept"), id, 4, outer, take_frame, &answer), VARVE_OK);
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
    assert_int_equal(symbols_resolve(symbols, "x", id, 65, 0, take_frame, &answer), VARVE_ERROR_INVALID);
    assert_int_equal(shell("mkfifo pipe"), 0);
    assert_unknown(symbols, path_of("pipe"), NULL, 0, outer);
    symbols_close(symbols);
}

/* Bytes changed at random in a program with DWARF: any answer, but one, and no fault. */
TEST(test_damaged_files)
{
    uint64_t seed = 12345, random, start, end;
    assert_int_equal(shell("gcc -g -O2 small.c -o sound"), 0);
    code_range("sound", &start, &end);
    struct answer answer;
    struct symbols *symbols;
    for (int round = 0; round < 40; round++) {
        struct stat status = {.st_size = 0};
        assert_int_equal(shell("cp sound damaged"), 0);
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
            assert_int_equal(symbols_resolve(symbols, path_of("damaged"), NULL, 0, address, take_frame, &answer),
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
