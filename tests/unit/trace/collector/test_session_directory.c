/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recording directory: made, found again by another process, taken over from a dead owner but not from a
 * living one, removed without a trace of it and without touching what is not its own; and in words that help
 * when none of this can be done. The owner that lives is another process: a lock does not keep its holder
 * out.
 * Costs: 1 s
 */
#include "trace/collector/collector_clock.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/collector/session/mapped_recordings.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "trace/format/session_format.h"
#include "trace/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct fixture {
    char folder[64];
    char database[96];
    char path[100]; /* the recording directory */
    struct session_directory directory;
    struct session_control settings;
    struct varve_message message;
};

static int fixture_begin(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    const char *base = getenv("TMPDIR");
    if (fixture == NULL) {
        return -1;
    }
    snprintf(fixture->folder, sizeof(fixture->folder), "%.40s/varve-unit-XXXXXX", base ? base : "/tmp");
    if (mkdtemp(fixture->folder) == NULL) {
        free(fixture);
        return -1;
    }
    snprintf(fixture->database, sizeof(fixture->database), "%s/trace.db", fixture->folder);
    snprintf(fixture->path, sizeof(fixture->path), "%s.d", fixture->database);
    fixture->settings.ring_capacity = 4096;
    fixture->settings.stack_depth = 17;
    fixture->settings.trace_id = monotonic_ns() ^ ((uint64_t)getpid() << 40);
    fixture->directory.fd = fixture->directory.rings_fd = fixture->directory.owner_fd = -1;
    *state = fixture;
    return 0;
}

static int fixture_end(void **state)
{
    struct fixture *fixture = *state;
    session_directory_close(&fixture->directory);
    char command[256];
    snprintf(command, sizeof(command), "rm -rf '%s' /dev/shm/varve-%u-%016llx", fixture->folder, (unsigned)geteuid(),
             (unsigned long long)fixture->settings.trace_id);
    free(fixture);
    return system(command);
}

static int create_at(struct fixture *fixture, const char *path)
{
    return session_directory_create(&fixture->directory, path, &fixture->settings, &fixture->message);
}

static void create(struct fixture *fixture)
{
    if (create_at(fixture, fixture->database) != VARVE_OK) {
        fail_msg("%s", fixture->message.text);
    }
}

static int adopt(struct fixture *fixture)
{
    return session_directory_adopt(&fixture->directory, fixture->path, &fixture->message);
}

static const char *in(const char *folder, const char *name)
{
    static char path[DIRECTORY_PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static bool exists(const char *folder, const char *name)
{
    struct stat status;
    return lstat(in(folder, name), &status) == 0;
}

/* Files of these names, up to NULL. */
static void touch(const char *folder, const char *const *names)
{
    for (; *names != NULL; names++) {
        int fd = open(in(folder, *names), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
}

#define TOUCH(folder, ...) touch(folder, (const char *const[]){__VA_ARGS__, NULL})

/* Exit status of what a child of ours does. */
static int in_child(struct fixture *fixture, int (*act)(struct fixture *fixture))
{
    int wait_status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(act(fixture));
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    return wait_status;
}

static void expect_error(const struct fixture *fixture, int error, int expected, const char *word)
{
    if (error != expected || strstr(fixture->message.text, word) == NULL) {
        fail_msg("error %d (%s) instead of %d, with the word '%s'", error, fixture->message.text, expected, word);
    }
}

/* ---- making ---- */

TEST_WITH(test_create_makes_what_the_workload_needs, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    create(fixture);
    assert_string_equal(fixture->directory.path, fixture->path);
    assert_true(exists(fixture->path, "owner"));
    struct stat status;
    assert_int_equal(stat(fixture->path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700); /* what a program allocates is nobody else's business */
    assert_int_equal(stat(fixture->directory.rings, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    assert_true(exists(fixture->directory.rings, "session"));
    char resolved[4096], rings[4096];
    assert_non_null(realpath(in(fixture->path, "ring"), resolved));
    assert_non_null(realpath(fixture->directory.rings, rings));
    assert_string_equal(resolved, rings);
    assert_int_equal(fixture->directory.control->magic, SESSION_MAGIC);
    assert_int_equal(fixture->directory.control->version, VARVE_TRANSPORT_VERSION);
    assert_int_equal(fixture->directory.control->state, SESSION_STATE_RECORDING);
    assert_int_equal(fixture->directory.control->collector_pid, getpid());
    assert_int_equal(fixture->directory.control->ring_capacity, 4096);
    assert_int_equal(fixture->directory.control->stack_depth, 17);
    assert_int_equal(fixture->directory.counts->process_count, 0);
}

TEST_WITH(test_relative_path_becomes_absolute, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(here >= 0);
    assert_int_equal(chdir(fixture->folder), 0);
    int error = create_at(fixture, "trace.db");
    assert_int_equal(fchdir(here), 0);
    close(here);
    assert_int_equal(error, VARVE_OK);
    assert_string_equal(fixture->directory.path, fixture->path);
}

/* Without room on tmpfs, or when its name is taken, the folder is a real one in the directory. */
TEST_WITH(test_real_folder_where_shared_memory_is_taken, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    char taken[128];
    snprintf(taken, sizeof(taken), "/dev/shm/varve-%u-%016llx", (unsigned)getuid(),
             (unsigned long long)fixture->settings.trace_id);
    if (mkdir(taken, 0700) != 0) {
        skip("no folder can be made in /dev/shm"); /* all other tests run on real folders */
    }
    create(fixture);
    struct stat status;
    assert_int_equal(lstat(fixture->directory.rings, &status), 0);
    assert_true(S_ISDIR(status.st_mode));
    assert_memory_equal(fixture->directory.rings, fixture->path, strlen(fixture->path));
    assert_true(exists(fixture->directory.rings, "session"));
    TOUCH(fixture->directory.rings, "p1.r1");
    session_directory_close(&fixture->directory);
    assert_int_equal(adopt(fixture), VARVE_OK);
    assert_non_null(fixture->directory.control);
    session_directory_remove(&fixture->directory);
    assert_false(exists(fixture->folder, "trace.db.d"));
    assert_int_equal(rmdir(taken), 0); /* it was somebody else's and empty: still so */
}

TEST_WITH(test_create_errors, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    bool is_root = geteuid() == 0;
    char path[DIRECTORY_PATH_BYTES + 64];
    TOUCH(fixture->folder, "file");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s", in(fixture->folder, i == 0 ? "missing/trace.db" : "file/trace.db"));
        expect_error(fixture, create_at(fixture, path), VARVE_ERROR_NOT_FOUND, path);
    }
    assert_int_equal(mkdir(in(fixture->folder, "locked"), 0500), 0);
    snprintf(path, sizeof(path), "%s", in(fixture->folder, "locked/trace.db"));
    if (is_root) { /* root may write everywhere, and becomes nobody for a moment */
        assert_int_equal(chmod(fixture->folder, 0711), 0);
        assert_int_equal(seteuid(65534), 0);
    }
    int error = create_at(fixture, path);
    if (is_root) {
        assert_int_equal(seteuid(0), 0);
    }
    expect_error(fixture, error, VARVE_ERROR_PERMISSION, path);
    assert_false(exists(fixture->folder, "trace.db.d"));
}

TEST_WITH(test_too_long_paths, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    char path[DIRECTORY_PATH_BYTES + 100];
    memset(path, 'x', sizeof(path));
    path[0] = '/';
    for (size_t length = DIRECTORY_PATH_BYTES - 30; length < sizeof(path); length++) {
        path[length] = '\0';
        int error = create_at(fixture, path);
        assert_true(error == VARVE_ERROR_INVALID || error == VARVE_ERROR_IO);
        if (length >= DIRECTORY_PATH_BYTES) {
            expect_error(fixture, error, VARVE_ERROR_INVALID, "too long");
        }
        error = session_directory_adopt(&fixture->directory, path, &fixture->message);
        assert_true(error == VARVE_ERROR_INVALID || error == VARVE_ERROR_IO);
        path[length] = 'x';
    }
    fixture->directory.rings[0] = '\0';
}

/* ---- owners ---- */

static int act_second(struct fixture *fixture)
{
    struct session_directory other;
    struct varve_message message = {""};
    int error = session_directory_create(&other, fixture->database, &fixture->settings, &message);
    if (error != VARVE_ERROR_BUSY || strstr(message.text, "in use") == NULL) {
        return 1;
    }
    return session_directory_adopt(&other, fixture->path, &message) == VARVE_ERROR_BUSY ? 0 : 2;
}

TEST_WITH(test_second_recorder_is_refused, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    create(fixture);
    assert_int_equal(in_child(fixture, act_second), 0);
    assert_true(exists(fixture->directory.rings, "session"));
    assert_true(exists(fixture->path, "owner"));
}

static int act_owner(struct fixture *fixture)
{
    int error = create_at(fixture, fixture->database);
    fixture->directory.counts->process_count = 5;
    return error == VARVE_OK ? 0 : 1;
}

TEST_WITH(test_directory_of_a_dead_owner, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    assert_int_equal(in_child(fixture, act_owner), 0);
    expect_error(fixture, create_at(fixture, fixture->database), VARVE_ERROR_BUSY,
                 "varve recover"); /* its data are worth something */
    assert_true(exists(fixture->path, "owner"));
    size_t length = strlen(fixture->path);
    memcpy(fixture->path + length, "//", sizeof("//")); /* as a shell completes it */
    assert_int_equal(adopt(fixture), VARVE_OK);
    fixture->path[length] = '\0';
    assert_string_equal(fixture->directory.path, fixture->path);
    assert_int_equal(fixture->directory.counts->process_count, 5);
    assert_int_equal(fixture->directory.control->trace_id, fixture->settings.trace_id);
}

TEST_WITH(test_adopt_errors, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    expect_error(fixture, adopt(fixture), VARVE_ERROR_NOT_FOUND, fixture->path);
    TOUCH(fixture->folder, "trace.db.d");
    expect_error(fixture, adopt(fixture), VARVE_ERROR_FORMAT, "not a recording directory");
    assert_int_equal(unlink(fixture->path), 0);
    expect_error(fixture, session_directory_adopt(&fixture->directory, fixture->folder, &fixture->message),
                 VARVE_ERROR_FORMAT, "not a recording directory");
    create(fixture);
    fixture->directory.control->version++;
    session_directory_close(&fixture->directory);
    expect_error(fixture, adopt(fixture), VARVE_ERROR_VERSION, "version");
    char path[4200];
    snprintf(path, sizeof(path), "%s", in(fixture->directory.rings, "session"));
    assert_int_equal(truncate(path, 100), 0);
    expect_error(fixture, adopt(fixture), VARVE_ERROR_FORMAT, "cut short");
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(truncate(path, SESSION_CONTROL_BYTES), 0); /* zeros, and something was recorded */
    TOUCH(fixture->path, "p1.r1.spill1");
    expect_error(fixture, adopt(fixture), VARVE_ERROR_FORMAT, "not a recording directory");
}

/* The rings go first when a recording is closed: what is left can still be adopted. */
TEST_WITH(test_adopt_without_rings, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    create(fixture);
    session_directory_clear(&fixture->directory);
    assert_false(exists(fixture->path, "ring"));
    assert_false(exists(fixture->directory.rings, "session"));
    assert_true(exists(fixture->path, "owner"));
    session_directory_close(&fixture->directory);
    assert_int_equal(adopt(fixture), VARVE_OK);
    assert_null(fixture->directory.control);
}

/* Names as the recorder gives them; nothing else is opened, counted or removed. */
TEST_WITH(test_names, fixture_begin, fixture_end)
{
    static const struct {
        const char *name;
        struct session_file file;
    } good[] = {
        {"p1", {SESSION_FILE_PROCESS, 1, 0, 0}},         {"p4194304", {SESSION_FILE_PROCESS, 4194304, 0, 0}},
        {"p12.r0", {SESSION_FILE_RING, 12, 0, 0}},       {"p12.r345.spill67", {SESSION_FILE_SPILL, 12, 345, 0}},
        {"p7.sites", {SESSION_FILE_CALLSITES, 7, 0, 0}},
    };
    static const char bad[] =
        ";p;p0;p01;p-1;p1x;p1.;p1.r;p1.r01;p1.r1.;p1.r1.x;p1.sites2;q1;p4194305;p4294967297;p1photo;"
        "p1.r-1;p1.r16777217;p1.r1 ; p1;p+1;P1;p1.r1.r1;p99999999999999999999;p1.r1.spill;"
        "p1.r1.spill0;p1.r1.spill01;p1.r1.spill-1;p1.r1.spill4294967296;p1.r1.spill1.;p1.spill1;";
    struct session_file file;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(session_file_parse(good[i].name, &file));
        assert_memory_equal(&file, &good[i].file, sizeof(file));
    }
    for (const char *at = bad; *at != '\0'; at = strchr(at, ';') + 1) { /* the first is empty */
        char name[64];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, ";"), at);
        assert_false(session_file_parse(name, &file));
    }
}

/* ---- removing ---- */

TEST_WITH(test_remove_leaves_nothing, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    create(fixture);
    TOUCH(fixture->directory.rings, "p1", "p1.r0", "p1.r1", "p12.r345", "p12.r345.spill1");
    TOUCH(fixture->path, "trace.db", "trace.db-wal", "trace.db-shm", "trace.db-journal", "allocations", "p1.sites",
          "p12.r345.spill67");
    char rings[4096];
    snprintf(rings, sizeof(rings), "%s", fixture->directory.rings);
    session_directory_remove(&fixture->directory);
    session_directory_remove(&fixture->directory); /* gone already: no harm */
    assert_true(access(rings, F_OK) != 0);
    assert_true(access(fixture->path, F_OK) != 0);
    assert_null(fixture->directory.control);
    assert_int_equal(fixture->directory.owner_fd, -1);
    create(fixture); /* and the name is free again */
}

TEST_WITH(test_remove_spares_what_is_not_ours, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    create(fixture);
    TOUCH(fixture->path, "notes.txt", "photo.png" /* begins like our files */, "p1.sites");
    TOUCH(fixture->directory.rings, "precious");
    session_directory_remove(&fixture->directory);
    assert_true(exists(fixture->path, "notes.txt"));
    assert_true(exists(fixture->path, "photo.png"));
    assert_int_equal(unlink(in(fixture->directory.rings, "precious")), 0);
    rmdir(fixture->directory.rings);
    assert_false(exists(fixture->path, "p1.sites"));
    assert_false(exists(fixture->path, "owner"));
}

/* ---- from a process to its recording ---- */

TEST_WITH(test_recording_that_a_process_has_mapped, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    struct session_mapped mapped;
    assert_false(session_mapped_find(getpid(), &mapped));
    fixture->settings.attached_pid = 4711;
    create(fixture);
    assert_true(session_mapped_find(getpid(), &mapped));
    assert_int_equal(mapped.collector, getpid());
    assert_true(mapped.trace_id == fixture->settings.trace_id);
    assert_string_equal(mapped.directory, fixture->path);
    assert_true(mapped.is_attached && !mapped.is_finishing && !mapped.is_removed);
    assert_false(session_collector_is(getpid(), fixture->settings.trace_id + 1, NULL));
    assert_false(session_collector_is(getppid(), fixture->settings.trace_id, NULL));
    fixture->directory.control->state = SESSION_STATE_CLOSED;
    assert_true(session_mapped_find(getpid(), &mapped) && mapped.is_finishing);
    int owner_fd = fixture->directory.owner_fd; /* this process goes on, and is not the collector */
    fixture->directory.owner_fd = -1;
    close(owner_fd);
    assert_true(session_mapped_find(getpid(), &mapped));
    assert_int_equal(mapped.collector, 0);
}

TEST_WITH(test_page_that_is_removed, fixture_begin, fixture_end)
{
    struct fixture *fixture = *state;
    struct session_mapped mapped;
    create(fixture);
    session_file_remove(&fixture->directory, "session");
    assert_true(session_mapped_find(getpid(), &mapped) && mapped.is_removed);
    assert_int_equal(mapped.collector, getpid());
    fixture->directory.control->magic++;
    assert_false(session_mapped_find(getpid(), &mapped));
}
