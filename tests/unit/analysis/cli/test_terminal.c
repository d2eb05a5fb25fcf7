/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns and colour: of a terminal that is made for it, and of what is none; styles pass, escape sequences of the text
 * do not.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "analysis/base/memory.h"
#include "analysis/output/format.h"
#include "analysis/output/terminal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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
