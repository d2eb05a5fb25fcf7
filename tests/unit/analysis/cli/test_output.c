/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How answers are written: figures for people, tables, JSON of any bytes, files. Columns and colour of a terminal that
 * is made for it, and of what is none; styles pass, escape sequences of the text do not.
 * Costs: 3 s
 */
#include <cmocka.h>

#include "support/command.h"
#include "support/random.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/output_file.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/base/terminal.h"
#include "base/error.h"

#include <dirent.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

TEST(test_figures)
{
    assert_string_equal(format_count(0).text, "0");
    assert_string_equal(format_count(999).text, "999");
    assert_string_equal(format_count(-1000).text, "-1,000");
    assert_string_equal(format_count(INT64_MAX).text, "9,223,372,036,854,775,807");
    assert_string_equal(format_count(INT64_MIN).text, "-9,223,372,036,854,775,808");
    assert_string_equal(format_bytes(1023).text, "1023 B");
    assert_string_equal(format_bytes(1024).text, "1.00 KiB");
    assert_string_equal(format_bytes(1024 * 1024 - 1).text, "1.00 MiB");
    assert_string_equal(format_bytes(-2048).text, "-2.00 KiB");
    assert_string_equal(format_bytes(INT64_MAX).text, "8.00 EiB");
    assert_string_equal(format_bytes_exact(100).text, "100 B");
    assert_string_equal(format_bytes_exact(INT64_C(1288490188)).text, "1.20 GiB (1,288,490,188)");
    assert_string_equal(format_duration(-1).text, "-");
    assert_string_equal(format_duration(999).text, "999 ns");
    assert_string_equal(format_duration(999999).text, "1.00 ms");
    assert_string_equal(format_duration(INT64_C(90000000000)).text, "1.50 min");
    assert_string_equal(format_share(1, 0).text, "-");
    assert_string_equal(format_share(1, 3).text, "33.3 %");
    assert_string_equal(format_time_utc(1767225600).text, "2026-01-01 00:00:00 UTC");
}

/* A shell has what was said; what needs no quotes has none. */
TEST(test_words_of_a_shell)
{
    static const char *const words[] = {"a b.db", "it's", "''",       "$HOME/x",    "`id`",
                                        "a\\b",   "a;b",  "*",        "two\nlines", "~/x.db",
                                        "#x",     "",     "plain.db", "-x",         "\303\244 b.db"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        char command[sizeof(struct format_word) + 20], said[100] = "";
        snprintf(command, sizeof(command), "printf '<%%s>' %s", SHELL(words[i]));
        FILE *shell = popen(command, "r");
        assert_non_null(shell);
        const size_t bytes = fread(said, 1, sizeof(said) - 1, shell);
        assert_int_equal(pclose(shell), 0);
        assert_int_equal(bytes, strlen(words[i]) + 2);
        assert_memory_equal(said + 1, words[i], bytes - 2);
    }
    assert_string_equal(SHELL("/tmp/a-b_c/run.db"), "/tmp/a-b_c/run.db");
    assert_string_equal(SHELL("a b"), "'a b'");
}

TEST(test_cutting)
{
    char buffer[64];
    format_tail(buffer, sizeof(buffer), "abcdef", 6);
    assert_string_equal(buffer, "abcdef");
    format_tail(buffer, sizeof(buffer), "abcdef", 4);
    assert_string_equal(buffer, "…def");
    format_head(buffer, sizeof(buffer), "äöüäöü", 4);
    assert_string_equal(buffer, "äöü…");
    format_tail(buffer, sizeof(buffer), "äöüäöü", 4);
    assert_string_equal(buffer, "…äöü");
    format_head(buffer, sizeof(buffer), "a\033[2J\n", 10);
    assert_string_equal(buffer, "a?[2J ");
    char small[6];
    format_head(small, sizeof(small), "abcdefgh", 8);
    assert_true(strlen(small) < sizeof(small));
    format_tail(small, sizeof(small), "abcdefgh", 8);
    assert_true(strlen(small) < sizeof(small));
    assert_int_equal(format_width("…äb"), 3);
}

/* JSON of random bytes: what comes out is valid UTF-8 with no bare control character, and the valid parts
 * stay. */
TEST(test_json_of_any_bytes)
{
    uint64_t seed = 11;
    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8")); /* for mbstowcs, the judge */
    for (int round = 0; round < 500; round++) {
        char bytes[40];
        size_t length = random_below(&seed, sizeof(bytes));
        char *text = NULL;
        size_t text_bytes;
        FILE *out = open_memstream(&text, &text_bytes);
        size_t quotes = 0;
        assert_non_null(out);
        for (size_t i = 0; i < length; i++) {
            bytes[i] = (char)(random_below(&seed, 3) == 0 ? random_next(&seed) : 'a' + random_below(&seed, 26));
        }
        json_print(json_text_value(bytes, length), out);
        fclose(out);
        assert_true(text_bytes >= 3 && text[0] == '"' && text[text_bytes - 2] == '"' && text[text_bytes - 1] == '\n');
        for (size_t i = 1; i + 2 < text_bytes; i++) {
            assert_true((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
            if (text[i] == '\\') {
                assert_non_null(strchr("\"\\u", text[++i]));
            } else {
                quotes += text[i] == '"' ? 1 : 0;
            }
        }
        assert_int_equal(quotes, 0);
        assert_true(mbstowcs(NULL, text, 0) != (size_t)-1);
        free(text);
    }
}

TEST(test_table)
{
    static const struct table_column columns[] = {{"name", false}, {"n", true}, {"last", false}};
    static const char *const cells[] = {"a", "1", "x", "löng name", "12345", ""};
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    struct table table;
    table_init(&table, columns, 3);
    table.indent = "> ";
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
        table_add(&table, cells[i]);
    }
    table_print(&table, out, true);
    table_add(&table, "b");
    table_add(&table, "2");
    table_add(&table, "y\n");
    table_print(&table, out, false);
    table_free(&table);
    fclose(out);
    assert_string_equal(text, "> name           n  last\n"
                              "> a              1  x\n"
                              "> löng name  12345\n"
                              "> b              2  y \n");
    free(text);
}

static int write_bytes(const void *count, FILE *out, struct varve_message *message)
{
    for (size_t i = *(const size_t *)count; i > 0; i--) {
        fputc('x', out);
    }
    return *(const size_t *)count > 0 ? VARVE_OK
                                      : varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "nothing to write");
}

static void expect_file(const char *path, long bytes)
{
    FILE *in = fopen(path, "rb");
    DIR *folder = opendir(".");
    int entries = 0;
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        entries++;
    }
    closedir(folder);
    assert_int_equal(entries, 3); /* with "." and ".." */
    assert_non_null(in);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    assert_int_equal(ftell(in), bytes);
    assert_int_equal(fclose(in), 0);
}

/* A file of an answer is there whole, or what was there before is. */
TEST(test_file)
{
    static const size_t sizes[] = {0, 100, 1 << 20};
    struct varve_message message = {""};
    assert_int_equal(output_file("out", false, write_bytes, &sizes[1], &message), VARVE_OK);
    expect_file("out", 100);
    assert_int_equal(output_file("out", false, write_bytes, &sizes[2], &message), VARVE_ERROR_INVALID);
    expect_file("out", 100);
    assert_int_equal(output_file("out", true, write_bytes, &sizes[0], &message), VARVE_ERROR_UNSUPPORTED);
    assert_string_equal(message.text, "nothing to write");
    expect_file("out", 100);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = {.rlim_cur = 1000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(output_file("out", true, write_bytes, &sizes[2], &message), VARVE_ERROR_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_string_equal(message.text, "out: cannot be written: File too large");
    expect_file("out", 100);
    assert_int_equal(output_file("out", true, write_bytes, &sizes[2], &message), VARVE_OK);
    expect_file("out", (long)sizes[2]);
    assert_int_equal(remove("out"), 0);
}

/* ---- terminals ---- */

struct terminal_pair {
    int master;
    FILE *out;
};

static struct terminal_pair make_terminal(unsigned short columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    struct terminal_pair pair = {.master = posix_openpt(O_RDWR | O_NOCTTY)};
    assert_true(pair.master >= 0);
    assert_int_equal(grantpt(pair.master), 0);
    assert_int_equal(unlockpt(pair.master), 0);
    int descriptor = open(ptsname(pair.master), O_RDWR | O_NOCTTY);
    assert_true(descriptor >= 0);
    assert_int_equal(ioctl(descriptor, TIOCSWINSZ, &size), 0);
    pair.out = fdopen(descriptor, "w");
    assert_non_null(pair.out);
    return pair;
}

static void close_terminal(struct terminal_pair *pair)
{
    fclose(pair->out);
    close(pair->master);
}

/* What the terminal got of a title, a name from elsewhere and a line that is too wide for 60 columns. */
static void print_sample(struct terminal_pair *pair, char *got, size_t bytes)
{
    char *text;
    size_t length;
    FILE *collected = memory_stream(&text, &length);
    terminal_collect(collected);
    terminal_fold();
    terminal_style(collected, TERMINAL_TITLE);
    fputs("title", collected);
    terminal_style(collected, TERMINAL_PLAIN);
    fputs("\n  a\033[31mname ", collected);
    for (int i = 0; i < 8; i++) {
        fputs("… word12345 ", collected);
    }
    terminal_style(collected, TERMINAL_BAD);
    fputs("bad", collected);
    terminal_style(collected, TERMINAL_PLAIN);
    fputc('\n', collected);
    memory_stream_end(collected, &text);
    terminal_print(pair->out, text);
    fflush(pair->out);
    free(text);
    /* a busy machine hands it over in pieces */
    got[0] = '\0';
    ssize_t count;
    for (size_t at = 0; strstr(got, "bad") == NULL || got[at - 1] != '\n'; at += (size_t)count) {
        count = read(pair->master, got + at, bytes - 1 - at);
        assert_true(count > 0);
        got[at + (size_t)count] = '\0';
    }
}

TEST(test_terminal)
{
    struct terminal_pair pair = make_terminal(72);
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    terminal_begin(pair.out);
    assert_int_equal(terminal_columns(), 72);
    terminal_set_columns(60);
    assert_int_equal(terminal_columns(), 60);
    char got[1000];
    print_sample(&pair, got, sizeof(got));
    assert_string_equal(got, "\033[1mtitle\033[0m\r\n  a?[31mname … word12345 … word12345 … word12345 … word12345\r\n"
                             "      … word12345 … word12345 … word12345 … word12345 \033[31mbad\033[0m\r\n");
    close_terminal(&pair);
}

TEST(test_no_colour)
{
    static const struct {
        const char *name, *value;
    } settings[] = {{"NO_COLOR", "1"}, {"TERM", "dumb"}};
    for (size_t i = 0; i < 2; i++) {
        struct terminal_pair pair = make_terminal(300);
        setenv("TERM", "xterm", 1);
        unsetenv("NO_COLOR");
        setenv(settings[i].name, settings[i].value, 1);
        terminal_begin(pair.out);
        assert_int_equal(terminal_columns(), 300);
        char got[1000];
        print_sample(&pair, got, sizeof(got));
        assert_null(strchr(got, '\033'));
        close_terminal(&pair);
    }
}

TEST(test_no_terminal)
{
    FILE *out = tmpfile();
    assert_non_null(out);
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    setenv("COLUMNS", "150", 1);
    terminal_begin(out);
    assert_int_equal(terminal_columns(), 100);
    terminal_set_columns(7);
    assert_int_equal(terminal_columns(), TERMINAL_COLUMNS_MIN);
    terminal_set_columns(INT64_MAX);
    assert_int_equal(terminal_columns(), TERMINAL_COLUMNS_MAX);
    fclose(out);
}

/* Each line that goes on keeps the indent of the first one. */
TEST(test_fold)
{
    char got[1000] = "";
    char *text;
    size_t bytes;
    FILE *out = tmpfile();
    FILE *collected = memory_stream(&text, &bytes);
    assert_non_null(out);
    terminal_begin(out);
    terminal_set_columns(60);
    terminal_collect(collected);
    terminal_fold();
    fputs("    ", collected);
    for (int i = 0; i < 15; i++) {
        fputs("word12345 ", collected);
    }
    fputs("end\n", collected);
    memory_stream_end(collected, &text);
    terminal_print(out, text);
    free(text);
    rewind(out);
    assert_true(fread(got, 1, sizeof(got) - 1, out) > 0);
    assert_string_equal(got, "    word12345 word12345 word12345 word12345 word12345\n"
                             "        word12345 word12345 word12345 word12345 word12345\n"
                             "        word12345 word12345 word12345 word12345 word12345\n"
                             "        end\n");
    fclose(out);
}

/* The window says nothing: the environment does. */
TEST(test_environment)
{
    struct terminal_pair pair = make_terminal(0);
    setenv("COLUMNS", "132", 1);
    terminal_begin(pair.out);
    assert_int_equal(terminal_columns(), 132);
    setenv("COLUMNS", "many", 1);
    terminal_begin(pair.out);
    assert_int_equal(terminal_columns(), 100);
    close_terminal(&pair);
}

static void assert_function(const char *name, size_t columns, const char *expected)
{
    char cut[200];
    format_function(cut, sizeof(cut), name, columns);
    assert_string_equal(cut, expected);
}

TEST(test_names)
{
    assert_function("std::vector<int>::at(unsigned long)", 40, "std::vector<int>::at(unsigned long)");
    assert_function("std::vector<std::pair<int, long> >::at(unsigned long)", 30, "std::vector<…>::at(…)");
    assert_function("std::ostream& operator<< <char>(std::ostream&, char)", 40, "std::ostream& operator<< <char>(…)");
    assert_function("Reader::operator()(std::string const&) const", 30, "Reader::operator()(…) const");
    assert_function("(anonymous namespace)::parse(std::string const&)", 40, "(anonymous namespace)::parse(…)");
    assert_function("<module>", 4, "<mo…");
    assert_function("f(void (*)(int), g<(a)>())", 10, "f(…)");
    assert_function("unbalanced<int(", 12, "unbalanced<…");
    assert_function("closes>more)than it opens", 15, "closes>more)th…");
    char cut[200];
    format_path(cut, sizeof(cut), "/srv/app/data/loader.py", 16);
    assert_string_equal(cut, "…/data/loader.py");
    format_path(cut, sizeof(cut), "/srv/app/data/loader.py", 15);
    assert_string_equal(cut, "…/loader.py");
    format_path(cut, sizeof(cut), "/srv/averylongname.py", 10);
    assert_string_equal(cut, "…ngname.py");
    format_path(cut, sizeof(cut), "a/b", 2);
    assert_string_equal(cut, "…b");
}

/* Names from recorded programs may be this long: they are walked through once. */
TEST(test_long_path)
{
    static char path[1 << 20];
    memset(path, '/', sizeof(path) - 2);
    path[sizeof(path) - 2] = 'x';
    char cut[100];
    format_path(cut, sizeof(cut), path, 5);
    assert_string_equal(cut, "…///x");
}

TEST_FILE(test_folder_setup, test_folder_teardown)
