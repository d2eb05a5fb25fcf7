/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python stacks of every CPython that is found: in PATH, among pyenv's versions and in VARVE_TEST_PYTHONS
 * (paths, colon between them). Each runs programs/python_stack_{probe,workload}.py with
 * programs/python/lib_python_stack_probe.c preloaded: frame for frame the same as sys._getframe, also where
 * process_vm_readv is forbidden; and a stack with all its names at every single malloc, with the output of
 * the same program without. Where there is a shared libpython, one is loaded late and locally into a process
 * that had none.
 * Costs: 10 s, full 40 s
 */
#include "trace/recorder/guest/memory.h"
#include "trace/recorder/stacks/python/stack.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PYTHONS_MAX 24U
#define PATH_BYTES 1024U
#define TEXT_BYTES 4096U

static const char probe[] = VARVE_BUILD_DIR "/programs/lib_python_stack_probe.so";
static const char preload[] = "LD_PRELOAD=" VARVE_BUILD_DIR "/programs/lib_python_stack_probe.so";
static const char script[] = VARVE_SOURCE_DIR "/tests/programs/python/python_stack_probe.py";
static const char workload[] = VARVE_SOURCE_DIR "/tests/programs/python/python_stack_workload.py";

struct python {
    char executable[PATH_BYTES];
    char version[16];
    char prefix[PATH_BYTES];
    char shared_object[PATH_BYTES];
};

static struct python pythons[PYTHONS_MAX];
static unsigned python_count;
static char folder[] = "/tmp/test_python_stack.XXXXXX";

/* Runs argv with `settings` (NAME=VALUE…, NULL) added; returns its wait status, its output in `out`. */
static int run(const char *const *settings, const char *const *argv, char *out)
{
    char command[3 * TEXT_BYTES] = "env";
    size_t used = strlen(command);
    for (; settings != NULL && *settings != NULL; settings++) {
        used += (size_t)snprintf(command + used, sizeof(command) - used, " '%s'", *settings);
    }
    for (; *argv != NULL; argv++) {
        used += (size_t)snprintf(command + used, sizeof(command) - used, " '%s'", *argv);
    }
    assert_true(used < sizeof(command));
    FILE *stream = popen(command, "r");
    assert_non_null(stream);
    out[fread(out, 1, TEXT_BYTES - 1, stream)] = '\0';
    assert_int_equal(fgetc(stream), EOF);
    return pclose(stream);
}

/* ---- which interpreters ---- */

static void add_python(const char *path)
{
    static const char question[] =
        "import os, sys, sysconfig as s\n"
        "if not ((3, 9) <= sys.version_info < (3, 14)) or s.get_config_var(\"Py_GIL_DISABLED\"): sys.exit(1)\n"
        "print(os.path.realpath(sys.executable), \"%d.%d.%d\" % sys.version_info[:3], sys.base_prefix,\n"
        "      os.path.join(s.get_config_var(\"LIBDIR\") or \"\", s.get_config_var(\"LDLIBRARY\") or \"\"), "
        "sep=\"\\n\")\n";
    const char *argv[] = {path, "-c", question, NULL};
    char out[TEXT_BYTES];
    if (python_count == (test_is_full() ? PYTHONS_MAX : 1) || access(path, X_OK) != 0 || run(NULL, argv, out) != 0) {
        return;
    }
    struct python *python = &pythons[python_count];
    if (sscanf(out, "%1023[^\n]\n%15[^\n]\n%1023[^\n]\n%1023[^\n]", python->executable, python->version, python->prefix,
               python->shared_object) != 4) {
        return;
    }
    for (unsigned i = 0; i < python_count; i++) {
        if (strcmp(pythons[i].executable, python->executable) == 0) {
            return;
        }
    }
    python_count++;
}

static int find_pythons(void **state)
{
    static const char places[] =
        "echo \"$VARVE_TEST_PYTHONS\" | tr : '\\n'; ls \"$HOME\"/.pyenv/versions/*/bin/python3 2>/dev/null;"
        "for version in 3 3.9 3.10 3.11 3.12 3.13; do which -a python$version; done";
    (void)state;
    char path[PATH_BYTES];
    FILE *stream = popen(places, "r");
    while (stream != NULL && fgets(path, sizeof(path), stream) != NULL) {
        path[strcspn(path, "\n")] = '\0';
        add_python(path);
    }
    return stream != NULL && pclose(stream) >= 0 && mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void need_python(void)
{
    if (python_count == 0) {
        skip("no CPython from 3.9 to 3.13 was found");
    }
}

/* ---- tests ---- */

TEST(test_no_interpreter)
{
    struct python_frame frames[4];
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(python_stack_capture(frames, 4), 0);
    }
    assert_int_equal(python_stack_capture(frames, 0), 0);
    const struct python_frame nothing = {0};
    char text[8];
    uint32_t line;
    assert_false(python_stack_describe(&nothing, text, sizeof(text), text, sizeof(text), &line));
}

static void check_frames(const char *const *settings)
{
    need_python();
    for (unsigned i = 0; i < python_count; i++) {
        const char *argv[] = {pythons[i].executable, script, "check", probe, NULL};
        char out[TEXT_BYTES];
        int status = run(settings, argv, out);
        print_message("%s: %s", pythons[i].version, out);
        assert_int_equal(status, 0);
        assert_true(strtol(out, NULL, 10) > 900);
    }
}

TEST(test_same_as_getframe)
{
    const char *settings[] = {preload, NULL};
    check_frames(settings);
}

TEST(test_same_in_a_sandbox)
{
    const char *settings[] = {preload, "PYTHON_STACK_PROBE_SANDBOX=1", NULL};
    check_frames(settings);
}

/* What one run of the preloaded probe counted. */
struct counts {
    unsigned long calls, stacks, frames, bad, deepest;
    unsigned long hashes, wrong, unknown; /* by what was remembered; those that could not be checked by them */
};

static struct counts run_counted(const struct python *python, const char *const *settings, const char *const *argv,
                                 char *out)
{
    char report[PATH_BYTES];
    char setting[PATH_BYTES + 64];
    const char *all[8] = {preload, setting};
    snprintf(report, sizeof(report), "%s/report", folder);
    snprintf(setting, sizeof(setting), "PYTHON_STACK_PROBE_REPORT=%s", report);
    for (unsigned i = 0; settings[i] != NULL; i++) {
        all[i + 2] = settings[i];
    }
    assert_int_equal(run(all, argv, out), 0);
    FILE *stream = fopen(report, "r");
    assert_non_null(stream);
    struct counts counts;
    assert_int_equal(fscanf(stream, "%lu %lu %lu %lu %lu %lu %lu %lu", &counts.calls, &counts.stacks, &counts.frames,
                            &counts.bad, &counts.deepest, &counts.hashes, &counts.wrong, &counts.unknown),
                     8);
    fclose(stream);
    unlink(report);
    print_message("%s: %lu calls, %lu stacks, %lu frames, %lu bad, %lu deep; %lu hashes, %lu wrong, %lu unknown\n",
                  python->version, counts.calls, counts.stacks, counts.frames, counts.bad, counts.deepest,
                  counts.hashes, counts.wrong, counts.unknown);
    assert_int_equal(counts.wrong, 0);
    assert_true(counts.hashes > counts.stacks * 9 / 10);
    return counts;
}

TEST(test_every_malloc)
{
    need_python();
    const char *settings[] = {"PYTHON_STACK_PROBE=every", "PYTHONMALLOC=malloc", NULL};
    for (unsigned i = 0; i < python_count; i++) {
        const char *argv[] = {pythons[i].executable, workload, "workload", NULL};
        char plain[TEXT_BYTES];
        assert_int_equal(run(NULL, argv, plain), 0);
        char hooked[TEXT_BYTES];
        struct counts counts = run_counted(&pythons[i], settings, argv, hooked);
        assert_true(strlen(plain) == 65);
        assert_string_equal(hooked, plain);
        assert_int_equal(counts.bad, 0);
        assert_true(counts.stacks > counts.calls / 2 && counts.frames > counts.stacks && counts.deepest > 20);
    }
}

/* Stacks may be wrong there (a frame half linked), but nothing must break. */
TEST(test_signal_handler)
{
    need_python();
    const char *settings[] = {"PYTHON_STACK_PROBE=signals", NULL};
    for (unsigned i = 0; i < python_count; i++) {
        const char *argv[] = {pythons[i].executable, workload, "busy", "1", NULL};
        char out[TEXT_BYTES];
        struct counts counts = run_counted(&pythons[i], settings, argv, out);
        assert_string_equal(out, "done\n");
        assert_true(counts.calls > 100 && counts.stacks > counts.calls / 2);
    }
}

/* ---- an interpreter that comes late, into its own scope ---- */

struct method {
    const char *name;
    void *(*function)(void *self, void *arguments);
    int flags;
    const char *help;
};

static struct python_frame taken[8];
static unsigned taken_count;
static bool taken_right;

static void *take(void *self, void *arguments)
{
    (void)self;
    uint32_t line = 0;
    taken_count = python_stack_capture(taken, 8);
    char name[32];
    char file[32];
    taken_right = taken_count == 2 && python_stack_describe(&taken[0], name, sizeof(name), file, sizeof(file), &line) &&
                  strcmp(name, "function") == 0 && strcmp(file, "<string>") == 0 && line == 3 &&
                  python_stack_describe(&taken[1], name, sizeof(name), file, sizeof(file), &line) &&
                  strcmp(name, "<module>") == 0 && line == 5;
    return arguments; /* None, below */
}

/* In a child of its own. Calls of the C API by hand, since its headers may not be there. */
static int embed(const struct python *python)
{
    setenv("PYTHONHOME", python->prefix, 1);
    if (python_stack_capture(taken, 8) != 0) {
        return 2;
    }
    void *library = dlopen(python->shared_object, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return 3;
    }
    void (*initialize)(void), *(*module)(const char *), *(*dictionary)(void *);
    void *(*method)(void *, void *, void *);
    int (*set)(void *, const char *, void *), (*execute)(const char *);
    *(void **)&initialize = dlsym(library, "Py_Initialize");
    *(void **)&module = dlsym(library, "PyImport_AddModule");
    *(void **)&dictionary = dlsym(library, "PyModule_GetDict");
    *(void **)&method = dlsym(library, "PyCFunction_NewEx");
    *(void **)&set = dlsym(library, "PyDict_SetItemString");
    *(void **)&execute = dlsym(library, "PyRun_SimpleString");
    static struct method take_method = {"take", take, 8 /* METH_O */, NULL};
    initialize();
    set(dictionary(module("__main__")), "take", method(&take_method, NULL, NULL));
    static const char program[] = "\ndef function():\n    take(None)\n\nfunction()\n";
    /* Without word of the new library there is none; the object that take returns is borrowed, once each
     * time. */
    execute(program);
    if (taken_count != 0) {
        return 4;
    }
    python_stack_modules_changed();
    execute(program);
    return taken_right ? 0 : 5;
}

TEST(test_late_and_local)
{
    unsigned embedded = 0;
    for (unsigned i = 0; i < python_count; i++) {
        if (strstr(pythons[i].shared_object, ".so") == NULL || access(pythons[i].shared_object, R_OK) != 0) {
            continue;
        }
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            _exit(embed(&pythons[i]));
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 3) {
            continue;
        }
        print_message("%s: %s\n", pythons[i].version, pythons[i].shared_object);
        assert_int_equal(status, 0);
        embedded++;
    }
    if (embedded == 0) {
        skip("no shared libpython was found");
    }
}

TEST_FILE(find_pythons, remove_folder)
