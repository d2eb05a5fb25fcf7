/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of the model in the comments of generated Python code, as torch.fx and Inductor of several versions write
 * them; and files that are no such code, or nothing that can be read.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "trace/callsites/callsite_output.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A path of this test's in a folder of its own, which goes with remove_all. */
static char folder[256];

static const char *path_of(const char *name)
{
    static char path[512];
    const char *base = getenv("TMPDIR");
    if (folder[0] == '\0') {
        snprintf(folder, sizeof(folder), "%s/varve-compiled-XXXXXX", base ? base : "/tmp");
        assert_non_null(mkdtemp(folder));
    }
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void remove_all(void)
{
    char command[300];
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    folder[0] = '\0';
}

/* FILE:LINE FUNCTION, or "". */
static const char *find(struct compiled *compiled, const char *name, uint32_t line)
{
    static char text[8192];
    struct compiled_line found;
    text[0] = '\0';
    if (compiled_find(compiled, path_of(name), line, &found)) {
        snprintf(text, sizeof(text), "%s:%u %s", found.file, found.line, found.function ? found.function : "-");
    }
    return text;
}

TEST(test_lines)
{
    static const char code[] = "# File: /opt/me/early.py:3 in f, code: x\n"                         /* 1 */
                               "import torch\n"                                                     /* 2 */
                               "def call(args):\n"                                                  /* 3 */
                               "    arg0, = args\n"                                                 /* 4 */
                               "    # File: /opt/me/model.py:12 in forward, code: y = self.fc(x)\n" /* 5 */
                               "    buf0 = empty_strided_cuda((8, 8), (8, 1))\n"                    /* 6 */
                               "    # Topologically Sorted Source Nodes: [y]\n"                     /* 7 */
                               "    buf1 = empty_strided_cuda((8, 8), (8, 1))\n"                    /* 8 */
                               "    \n"                                                             /* 9 */
                               "    # File: /opt/me/model.py:13, code: a: b = {'in': 1}\n"          /* 10 */
                               "    buf2 = 1\n"                                                     /* 11 */
                               "\t# File: model.py:14\n"                                            /* 12 */
                               "    buf3 = 1  # File: /opt/me/model.py:99\n"                        /* 13 */
                               "    # File: /opt/a:1 b/c in d.py:15 in <lambda>\n"                  /* 14 */
                               "    return (buf3,)\n"                                               /* 15 */
                               "    class Inner:\n"                                                 /* 16 */
                               "        x = 1\n"                                                    /* 17 */
                               "async def later():\n"                                               /* 18 */
                               "    # File: C:/x.py:2 in g";                                        /* 19 */
    static const char *const lines[] = {"",
                                        "/opt/me/early.py:3 f",
                                        "/opt/me/early.py:3 f",
                                        "",
                                        "",
                                        "/opt/me/model.py:12 forward",
                                        "/opt/me/model.py:12 forward",
                                        "/opt/me/model.py:12 forward",
                                        "/opt/me/model.py:12 forward",
                                        "/opt/me/model.py:12 forward",
                                        "/opt/me/model.py:13 -",
                                        "/opt/me/model.py:13 -",
                                        "model.py:14 -",
                                        "model.py:14 -",
                                        "/opt/a:1 b/c in d.py:15 <lambda>",
                                        "/opt/a:1 b/c in d.py:15 <lambda>",
                                        "",
                                        "",
                                        "",
                                        "C:/x.py:2 g",
                                        "C:/x.py:2 g"};
    struct compiled compiled = {0};
    write_bytes("code.py", code, sizeof(code) - 1);
    for (uint32_t line = 0; line < sizeof(lines) / sizeof(lines[0]); line++) {
        if (strcmp(find(&compiled, "code.py", line), lines[line]) != 0) {
            fail_msg("line %u: '%s', expected '%s'", line, find(&compiled, "code.py", line), lines[line]);
        }
    }
    assert_string_equal(find(&compiled, "code.py", UINT32_MAX), "C:/x.py:2 g");
    compiled_free(&compiled);
    remove_all();
}

TEST(test_no_comments)
{
    static const char *const codes[] = {"# File: ",
                                        "# File: :1",
                                        "# File: a.py",
                                        "# File: a.py:",
                                        "# File: a.py:0",
                                        "# File: a.py:x",
                                        "# File: a.py:12x",
                                        "# File: a.py:99999999999",
                                        "# File:a.py:1",
                                        "# file: a.py:1",
                                        "# File: a\x01.py:1",
                                        "#",
                                        "",
                                        "\n\n"};
    struct compiled compiled = {0};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        char name[16];
        snprintf(name, sizeof(name), "%zu.py", i);
        write_bytes(name, codes[i], strlen(codes[i]));
        if (find(&compiled, name, 9)[0] != '\0') {
            fail_msg("'%s': %s", codes[i], find(&compiled, name, 9));
        }
    }
    write_bytes("zero.py", "# File: a\0b.py:1\n", 17);
    assert_string_equal(find(&compiled, "zero.py", 9), "");
    write_bytes("odd.py", "# File: a.py:1 in f\0g, code: x\n", 31);
    assert_string_equal(find(&compiled, "odd.py", 9), "a.py:1 -");
    write_bytes("long.py", "# File: a.py:1 in \n", 19);
    assert_string_equal(find(&compiled, "long.py", 9), "a.py:1 -");
    compiled_free(&compiled);
    remove_all();
}

/* What is not a file of sensible size is not read, and nothing waits for it. */
TEST(test_no_files)
{
    static const char comment[] = "# File: a.py:1\n";
    struct compiled compiled = {0};
    assert_string_equal(find(&compiled, "none.py", 1), "");
    assert_int_equal(mkfifo(path_of("fifo.py"), 0600), 0);
    assert_string_equal(find(&compiled, "fifo.py", 1), "");
    assert_int_equal(mkdir(path_of("folder.py"), 0700), 0);
    assert_string_equal(find(&compiled, "folder.py", 1), "");
    write_bytes("code.py", comment, strlen(comment));
    assert_int_equal(symlink("code.py", path_of("link.py")), 0);
    assert_string_equal(find(&compiled, "link.py", 1), "");
    assert_string_equal(find(&compiled, "code.py", 1), "a.py:1 -");
    assert_int_equal(truncate(path_of("code.py"), (16 << 20) + 1), 0);
    assert_string_equal(find(&compiled, "code.py", 1), "a.py:1 -"); /* the file was read before */
    assert_string_equal(find(&compiled, "none.py", 1), "");
    assert_string_equal(find(&compiled, "code.py", 1), "");
    struct compiled_line found;
    assert_int_equal(chdir(folder), 0);
    write_bytes("here.py", comment, strlen(comment));
    assert_false(compiled_find(&compiled, "here.py", 1, &found)); /* relative to a folder that is not known */
    assert_int_equal(chdir("/"), 0);
    compiled_free(&compiled);
    remove_all();
}

/* More comments than are kept: the lines that follow are not those of the last one. */
TEST(test_many)
{
    FILE *file = fopen(path_of("many.py"), "w");
    assert_non_null(file);
    for (int i = 0; i < 70000; i++) {
        assert_true(fputs("# File: a.py:1\n", file) >= 0);
    }
    assert_int_equal(fclose(file), 0);
    struct compiled compiled = {0};
    assert_string_equal(find(&compiled, "many.py", 65535), "a.py:1 -");
    assert_string_equal(find(&compiled, "many.py", 65536), "");
    assert_string_equal(find(&compiled, "many.py", 70000), "");
    compiled_free(&compiled);
    remove_all();
}
