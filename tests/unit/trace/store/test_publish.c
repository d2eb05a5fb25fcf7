/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results that are there whole or not at all, whatever happens on the way, and the texts of errors: one line
 * that can be shown.
 * Program of its own: it defines renameat2.
 * Costs: 1 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/command.h"

#include "analysis/base/number_format.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/cli/command.h"
#include "analysis/cli/process_end.h"
#include "base/error.h"
#include "base/publish.h"
#include "trace/writer.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int enter(void **state)
{
    *state = test_folder_enter();
    return 0;
}

static int leave(void **state)
{
    test_folder_leave(*state);
    return 0;
}

static unsigned files(void)
{
    DIR *folder = opendir(".");
    unsigned count = 0;
    assert_non_null(folder);
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

/* ---- the end without memory ---- */

static void work_until_memory_ends(bool in_child)
{
    struct varve_writer *writer;
    if (varve_writer_open("o.db", false, &writer, NULL) != VARVE_OK) {
        _exit(1);
    }
    pid_t child = in_child ? fork() : 0;
    if (child == 0) {
        process_end_without_memory();
        memory_exhausted();
    }
    waitpid(child, NULL, 0);
    _exit(files() == 1 ? 3 : 4);
}

static int status_of(bool in_child)
{
    pid_t pid = fork();
    int status = 0;
    assert_true(pid >= 0);
    if (pid == 0) {
        work_until_memory_ends(in_child);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST_WITH(test_no_memory_leaves_nothing, enter, leave)
{
    assert_int_equal(status_of(false), EXIT_STATUS_FAILED);
    assert_int_equal(files(), 0);
}

/* A child, such as the one that runs babeltrace2, does not take the folder from the one that goes on. */
TEST_WITH(test_a_child_leaves_the_folder, enter, leave)
{
    assert_int_equal(status_of(true), 3);
}

/* ---- moving ---- */

TEST_WITH(test_moving, enter, leave)
{
    struct varve_message message = {""};
    file_write("from", "new", 3);
    file_write("to", "old", 3);
    assert_int_equal(varve_publish_move("from", "to", false, &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "was created meanwhile"));
    assert_int_equal(access("from", F_OK), 0);
    size_t bytes;
    char *text = file_read("to", &bytes);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(varve_publish_move("from", "to", true, &message), VARVE_OK);
    text = file_read("to", &bytes);
    assert_string_equal(text, "new");
    free(text);
    assert_int_equal(access("from", F_OK), -1);
    assert_int_equal(varve_publish_move("to", "free", false, &message), VARVE_OK);
    assert_int_equal(access("free", F_OK), 0);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(varve_publish_move("free", "pipe", true, &message), VARVE_ERROR_INVALID);
    assert_int_equal(access("free", F_OK), 0);
    assert_int_equal(symlink("nowhere", "link"), 0);
    assert_int_equal(varve_publish_move("free", "link", false, &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_publish_check("link", true, &message), VARVE_OK);
    assert_int_equal(varve_publish_move("free", "link", true, &message), VARVE_OK);
    assert_int_equal(access("nowhere", F_OK), -1);
}

/* A file system that renames, but cannot refuse to replace (NFS). */
static bool cannot_refuse;

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned int flags)
{
    if (cannot_refuse && flags != 0) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

TEST_WITH(test_moving_in_two_steps, enter, leave)
{
    struct varve_message message = {""};
    file_write("single", "new", 3);
    assert_int_equal(mkdir("full", 0700), 0);
    file_write("full/file", "new", 3);
    assert_int_equal(mkdir("taken", 0700), 0);
    cannot_refuse = true;
    assert_int_equal(varve_publish_move("single", "taken", false, &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_publish_move("full", "taken", false, &message), VARVE_ERROR_INVALID);
    assert_int_equal(access("full/file", F_OK), 0);
    assert_int_equal(access("taken/file", F_OK), -1);
    assert_int_equal(varve_publish_move("full", "full/below", false, &message), VARVE_ERROR_IO);
    assert_int_equal(access("full/below", F_OK), -1);
    assert_int_equal(varve_publish_move("full", "moved", false, &message), VARVE_OK);
    assert_int_equal(access("moved/file", F_OK), 0);
    assert_int_equal(access("full", F_OK), -1);
    assert_int_equal(varve_publish_move("single", "moved/other", false, &message), VARVE_OK);
    assert_int_equal(access("single", F_OK), -1);
    cannot_refuse = false;
}

/* ---- texts ---- */

TEST(test_what_may_be_shown)
{
    static const struct {
        const char *text;
        size_t length, shown;
    } cases[] = {
        {"a", 1, 1},
        {"\x1b", 1, 0},
        {"\x7f", 1, 0},
        {"\n", 1, 0},
        {"\xc2\x9b", 2, 0},
        {"\xc2\xa0", 2, 2},
        {"\x9b", 0, 0},
        {"\xff", 0, 0},
        {"\xc0\x9b", 0, 0},
        {"\xe0\x80\x9b", 0, 0},
        {"\xe2\x80\xa6", 3, 3},
        {"\xed\xa0\x80", 0, 0},
        {"\xf0\x9f\x98\x80", 4, 4},
        {"\xf4\x90\x80\x80", 0, 0},
        {"\xe2\x80", 0, 0},
        {"", 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t bytes = strlen(cases[i].text);
        if (varve_utf8_length(cases[i].text, bytes) != cases[i].length ||
            varve_utf8_shown(cases[i].text, bytes) != cases[i].shown) {
            fail_msg("case %zu", i);
        }
    }
}

TEST(test_messages_can_be_shown)
{
    struct varve_message message;
    varve_message_set(&message, 0, "%s", "a\x1b[31m\nb\tc\xc2\x9b\x9b\xff…");
    assert_string_equal(message.text, "a?[31m b c????…");
    char text[600];
    memset(text, 'x', sizeof(text));
    memcpy(text + sizeof(message.text) - 3, "…", 4); /* its last byte does not fit */
    varve_message_set(&message, 0, "%s", text);
    assert_int_equal(strlen(message.text), sizeof(message.text) - 3);
    assert_int_equal(message.text[sizeof(message.text) - 4], 'x');
}

TEST(test_cut_texts)
{
    assert_int_equal(format_width("a\x9b\x9b…"), 4);
    char buffer[64];
    format_head(buffer, sizeof(buffer), "\x1b\x9b……", 3);
    assert_string_equal(buffer, "??…");
    format_tail(buffer, sizeof(buffer), "……\x9b\xff", 3);
    assert_string_equal(buffer, "…??");
    format_head(buffer, 8, "…………", 10);
    assert_int_equal(strlen(buffer) % 3, 0);
    format_tail(buffer, 8, "…………", 10);
    assert_int_equal(strlen(buffer) % 3, 0);
}
