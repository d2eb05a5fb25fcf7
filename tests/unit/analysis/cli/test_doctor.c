/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, its lines on GPUs: device nodes of every kind in a folder made for it, drivers that start, refuse,
 * crash and hang (programs/cuda/lib_doctor_cuda.c in libcuda's place), PyTorch and CUPTI here and there. And those on
 * LTTng, with scripts in the place of lttng and lttng-sessiond: a daemon that answers, one that does not, none;
 * sessions of recorders that are gone. LTTng itself is not asked.
 * Costs: 4 s
 */
#include <cmocka.h>

#include "support/command.h"

#include "analysis/cli/doctor/doctor.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *folder, *path_before, search_path[8192];

/* Programs of a folder of ours come first. */
static int setup(void **state)
{
    (void)state;
    const char *given = getenv("PATH");
    path_before = strdup(given != NULL ? given : "/usr/bin:/bin");
    folder = test_folder_enter();
    snprintf(search_path, sizeof(search_path), "%s/bin:%s", folder, path_before);
    return mkdir("bin", 0755) | setenv("PATH", search_path, 1);
}

static int teardown(void **state)
{
    (void)state;
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("VARVE_CUPTI_LIBRARY");
    test_folder_leave(folder);
    int error = setenv("PATH", path_before, 1);
    free(path_before);
    return error;
}

/* What a program of that name does. */
static void program_is(const char *name, const char *shell)
{
    char program[64], script[4096];
    snprintf(program, sizeof(program), "bin/%s", name);
    int length = snprintf(script, sizeof(script), "#!/bin/sh\n%s\n", shell);
    unlink(program);
    file_write(program, script, (size_t)length);
    assert_int_equal(chmod(program, 0755), 0);
}

static const struct doctor_line *line_of(const struct doctor_lines *lines, const char *key)
{
    for (size_t i = 0; i < lines->count; i++) {
        if (strcmp(lines->items[i].key, key) == 0) {
            return &lines->items[i];
        }
    }
    fail_msg("no line %s", key);
    return NULL;
}

static void assert_line(const struct doctor_line *line, enum doctor_state state, const char *word)
{
    assert_int_equal(line->state, state);
    if (strstr(line->found, word) == NULL) {
        fail_msg("'%s' is not in '%s'", word, line->found);
    }
}

/* ---- device nodes ---- */

static void touch(const char *path)
{
    file_write(path, "", 0);
    assert_int_equal(chmod(path, 0666), 0);
}

/* As nobody, for whom a mode means something; the line comes back by way of a file. */
static void check_as_nobody(struct doctor_lines *lines)
{
    int status = -1;
    file_write("line", "", 0);
    assert_int_equal(chmod("line", 0666), 0);
    assert_int_equal(chmod(".", 0755), 0);
    pid_t child = fork();
    if (child == 0) {
        FILE *file = geteuid() != 0 || (setgid(65534) == 0 && setuid(65534) == 0) ? fopen("line", "w") : NULL;
        if (file == NULL) {
            _exit(1);
        }
        doctor_check_gpu_nodes(lines, folder, "/nonexistent");
        bool is_written = fwrite(lines, sizeof(*lines), 1, file) == 1;
        _exit(fclose(file) == 0 && is_written ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    size_t bytes;
    char *text = file_read("line", &bytes);
    assert_int_equal(bytes, sizeof(*lines));
    memcpy(lines, text, sizeof(*lines)); /* keys are constants of this program */
    free(text);
}

static void assert_nodes(enum doctor_state state, const char *word)
{
    struct doctor_lines lines = {.count = 0};
    doctor_check_gpu_nodes(&lines, folder, "module");
    assert_int_equal(lines.count, 1);
    assert_line(line_of(&lines, "gpu"), state, word);
}

TEST(test_nodes)
{
    static const char module[] = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n";
    assert_nodes(DOCTOR_MISSING, "no NVIDIA driver");
    touch("nvidiactl");
    assert_nodes(DOCTOR_WARNING, "no device node");
    touch("nvidia0");
    touch("nvidia11");
    assert_nodes(DOCTOR_WARNING, "nvidia-uvm");
    touch("nvidia-uvm");
    file_write("module", module, sizeof(module) - 1);
    assert_nodes(DOCTOR_OK, "2 device nodes, kernel module 580.65.06");
}

TEST(test_no_right)
{
    static const char *const names[] = {"nvidiactl", "nvidia-uvm", "nvidia11"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct doctor_lines lines = {.count = 0};
        assert_int_equal(chmod(names[i], 0400), 0);
        check_as_nobody(&lines);
        assert_int_equal(lines.count, 1);
        assert_line(&lines.items[0], DOCTOR_MISSING, names[i]);
        assert_line(&lines.items[0], DOCTOR_MISSING, "mode 0400");
        assert_non_null(strstr(lines.items[0].remedy, "chmod a+rw"));
        assert_int_equal(chmod(names[i], 0666), 0);
    }
}

/* ---- the driver: the command as it is, since the dynamic linker reads its variables once ---- */

static void assert_driver(const char *fake, const char *const *words)
{
    struct command_outcome outcome = {0, calloc(1, 65536), calloc(1, 1)};
    char line[8192];
    snprintf(
        line, sizeof(line),
        "FAKE_CUDA=%s LD_LIBRARY_PATH='%s' CUDA_HOME=/nonexistent CUDA_INJECTION64_PATH=/x.so '%s/varve' doctor --json",
        fake, folder, VARVE_BUILD_DIR);
    FILE *pipe_end = popen(line, "r");

    assert_non_null(pipe_end);
    assert_true(fread(outcome.out, 1, 65535, pipe_end) > 0);
    assert_int_equal(pclose(pipe_end), 0);
    command_expect(0, outcome, fake, words);
}

#define DRIVER(fake, ...) assert_driver(fake, (const char *const[]){__VA_ARGS__, NULL})

TEST(test_drivers)
{
    char library[8192];
    snprintf(library, sizeof(library), "%s/programs/lib_doctor_cuda.so", VARVE_BUILD_DIR);
    assert_int_equal(symlink(library, "libcuda.so.1"), 0);
    DRIVER("ok", "{\"key\":\"cuda\",\"state\":\"ok\",\"found\":\"driver for CUDA 13.0, 10 devices, ",
           "\"found\":\"0: Fake 0, 1.00 GiB\"", "\"found\":\"7: Fake 7, 8.00 GiB\"", "\"found\":\"and 2 more\"",
           "{\"key\":\"cuda_memory\",\"state\":\"warning\",\"found\":\"cuda: the driver has no ",
           "{\"key\":\"cuda_injection\",\"state\":\"warning\",\"found\":\"CUDA_INJECTION64_PATH is /x.so\"");
    DRIVER("none", "{\"key\":\"cuda\",\"state\":\"missing\",\"found\":",
           "does not start: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)");
    DRIVER("stub", "does not start: CUDA_ERROR_STUB_LIBRARY", "out of LD_LIBRARY_PATH");
    DRIVER("mismatch", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (system has unsupported things)", "restart the machine");
    DRIVER("crash", "libcuda.so.1 crashes: Aborted (cuInit)");
    DRIVER("exit", "libcuda.so.1 ends the process (cuInit)");
    DRIVER("hang",
           "{\"key\":\"cuda\",\"state\":\"warning\",\"found\":\"libcuda.so.1 does not answer within 5 s (cuInit)\"");
    assert_int_equal(unlink("libcuda.so.1"), 0);
    file_write("libcuda.so.1", "no library", 10);
    DRIVER("ok", "libcuda.so.1 does not load: ");
    assert_int_equal(unlink("libcuda.so.1"), 0);
}

/* ---- PyTorch and CUPTI ---- */

static struct doctor_line pytorch_line(int driver, char *where, size_t bytes)
{
    struct doctor_lines lines = {.count = 0};
    doctor_check_pytorch(&lines, driver, where, bytes);
    return *line_of(&lines, "pytorch");
}

#define THERE "echo noise; echo \"varve:$PWD/packages/torch\""

/* What python3 does about the question, and what the package says of itself. */
static const struct {
    const char *shell, *version, *cuda;
    int driver;
    enum doctor_state state;
    const char *found;
} installed[] = {
    {THERE, "2.11.0+cu130", "'13.0'", 13000, DOCTOR_OK, "PyTorch 2.11.0+cu130 for CUDA 13.0, "},
    {THERE, "2.11.0+cu130", "'13.0'", 0, DOCTOR_OK, "PyTorch 2.11.0+cu130 for CUDA 13.0, "},
    {THERE, "2.11.0+cu130", "'13.0'", 12080, DOCTOR_WARNING, "is for CUDA 13.0, the driver for CUDA 12.8"},
    {THERE, "2.11.0+cpu", "None", 13000, DOCTOR_WARNING, "without CUDA"},
    {"echo varve:", "", "", 13000, DOCTOR_MISSING, ""},
    {"exit 1", "", "", 13000, DOCTOR_WARNING, "does not run"},
};

TEST(test_pytorch)
{
    char where[4096], text[256];
    assert_int_equal(mkdir("packages", 0755) | mkdir("packages/torch", 0755), 0);
    for (size_t i = 0; i < sizeof(installed) / sizeof(installed[0]); i++) {
        int length = snprintf(text, sizeof(text),
                              "from typing import Optional\n__all__ = ['__version__', 'cuda']\n__version__ = '%s'\n"
                              "cuda: Optional[str] = %s\nhip: Optional[str] = None\n",
                              installed[i].version, installed[i].cuda);
        file_write("packages/torch/version.py", text, (size_t)length);
        program_is("python3", installed[i].shell);
        struct doctor_line line = pytorch_line(installed[i].driver, where, sizeof(where));
        assert_line(&line, installed[i].state, installed[i].found);
        snprintf(text, sizeof(text), "%s/packages", folder);
        assert_string_equal(where, strcmp(installed[i].shell, THERE) == 0 ? text : "");
    }
    struct doctor_lines none = {.count = 0};
    assert_int_equal(setenv("PATH", "/nonexistent", 1), 0);
    doctor_check_pytorch(&none, 13000, where, sizeof(where));
    assert_int_equal(none.count, 0);
    assert_int_equal(setenv("PATH", search_path, 1), 0);
}

static struct doctor_line cupti_line(const char *packages)
{
    struct doctor_lines lines = {.count = 0};
    doctor_check_cupti(&lines, packages);
    return *line_of(&lines, "cupti");
}

TEST(test_cupti)
{
    char library[8192];
    snprintf(library, sizeof(library), "%s/programs/lib_doctor_cuda.so", VARVE_BUILD_DIR);
    assert_int_equal(symlink(library, "libcupti.so.13"), 0);
    assert_int_equal(setenv("LD_LIBRARY_PATH", folder, 1), 0);
    struct doctor_line line = cupti_line("");
    assert_line(&line, DOCTOR_OK, "API version 130001, ");
    assert_line(&line, DOCTOR_OK, folder);
    /* the one beside PyTorch comes first: the program will have it */
    assert_int_equal(mkdir("wheels", 0755) | mkdir("wheels/nvidia", 0755) | mkdir("wheels/nvidia/cu13", 0755) |
                         mkdir("wheels/nvidia/cu13/lib", 0755),
                     0);
    file_write("wheels/nvidia/cu13/lib/libcupti.so.13", "no library", 10);
    char packages[8192];
    snprintf(packages, sizeof(packages), "%s/wheels", folder);
    line = cupti_line(packages);
    assert_line(&line, DOCTOR_WARNING, "does not load: ");
    assert_int_equal(setenv("VARVE_CUPTI_LIBRARY", library, 1), 0);
    line = cupti_line(packages);
    assert_line(&line, DOCTOR_OK, "lib_doctor_cuda.so");
}

/* ---- LTTng ---- */

/* The answer to `list`: a line of shell. */
static void lttng_is(const char *list)
{
    char shell[2048];
    snprintf(shell, sizeof(shell), "[ \"$*\" = '--no-sessiond --mi xml list' ] || exit 9\n%s", list);
    program_is("lttng", shell);
}

/* Whether a child may be traced is tried here as well. */
TEST(test_attach)
{
    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    const bool may = ptrace(PTRACE_SEIZE, child, NULL, NULL) == 0;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    EXPECT(0, "doctor --json", "{\"key\":\"attach\",\"state\":");
    EXPECT(0, "doctor --json", may ? "!no process may be traced" : "no process may be traced");
}

TEST(test_daemon)
{
    program_is("lttng-sessiond", "[ \"$1\" = --version ] && echo 2.99.7");
    lttng_is("echo 'Error: none' >&2; exit 1");
    EXPECT(0, "doctor --json", "{\"key\":\"lttng_tools\",\"state\":\"ok\",\"found\":\"LTTng 2.99.7, ");
    EXPECT(0, "doctor --json", "{\"key\":\"lttng_daemon\",\"state\":\"ok\",\"found\":\"none runs; ");
    lttng_is("echo '<sessions><session><name>one</name></session></sessions>'");
    EXPECT(0, "doctor --json", "{\"key\":\"lttng_daemon\",\"state\":\"ok\",\"found\":\"runs; it has 1 session\"");
    lttng_is("sleep 600");
    EXPECT(0, "doctor --json",
           "{\"key\":\"lttng_daemon\",\"state\":\"warning\",\"found\":\"the session daemon does not answer");
}

TEST(test_sessions)
{
    pid_t gone = fork();
    if (gone == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    char list[1024];
    snprintf(list, sizeof(list),
             "for name in varve-%d-00abcd varve-1-00abcd varve-x varve- other-%d-1; do\n"
             "    echo \"<session><name>$name</name></session>\"\n"
             "done",
             (int)gone, (int)gone);
    lttng_is(list);
    snprintf(list, sizeof(list), "{\"key\":\"lttng_session\",\"state\":\"warning\",\"found\":\"varve-%d-00abcd\"",
             (int)gone);
    EXPECT(0, "doctor --json", list, "!\"found\":\"varve-x\"", "!\"found\":\"varve-\"", "!\"found\":\"other-");
    EXPECT(0, "doctor --json", "runs; it has 5 sessions");
}

/* Sessions are made by liblttng-ctl: the program lttng only shows them. */
TEST(test_tools_missing)
{
    char alone[4096];
    snprintf(alone, sizeof(alone), "%s/bin", folder);
    assert_int_equal(setenv("PATH", alone, 1), 0);
    unlink("bin/lttng");
    EXPECT(0, "doctor --json", "{\"key\":\"lttng_tools\",\"state\":\"ok\",\"found\":\"LTTng 2.99.7, ");
    EXPECT(0, "doctor --json",
           "{\"key\":\"lttng_daemon\",\"state\":\"ok\",\"found\":\"not asked for its sessions: no lttng in PATH");
    assert_int_equal(unlink("bin/lttng-sessiond"), 0);
    EXPECT(0, "doctor --json", "{\"key\":\"lttng_tools\",\"state\":\"missing\",\"found\":\"no lttng-sessiond in PATH\"",
           "!\"lttng_daemon\"");
    assert_int_equal(setenv("PATH", search_path, 1), 0);
}

TEST_FILE(setup, teardown)
