/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, its lines on GPUs: device nodes of every kind in a folder made for it, drivers that start,
 * refuse, crash and hang (programs/cuda/lib_doctor_cuda.c in libcuda's place), PyTorch and CUPTI here and there.
 * Costs: 2 s
 */
#include <cmocka.h>

#include "support/command.h"

#include "analysis/cli/doctor/doctor.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *folder;

static int setup(void **state)
{
    (void)state;
    folder = test_folder_enter();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("VARVE_CUPTI_LIBRARY");
    test_folder_leave(folder);
    return 0;
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
    char path[8192];
    snprintf(path, sizeof(path), "%s/programs/lib_doctor_cuda.so", VARVE_BUILD_DIR);
    assert_int_equal(symlink(path, "libcuda.so.1"), 0);
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

/* python3 of PATH: what it does about the question. */
static void python_is(const char *shell)
{
    char script[8192];
    int length = snprintf(script, sizeof(script), "#!/bin/sh\n%s\n", shell);
    mkdir("bin", 0755);
    unlink("bin/python3");
    file_write("bin/python3", script, (size_t)length);
    assert_int_equal(chmod("bin/python3", 0755), 0);
}

static void version_is(const char *version, const char *cuda)
{
    char text[256];
    int length = snprintf(text, sizeof(text),
                          "from typing import Optional\n__all__ = ['__version__', 'cuda']\n__version__ = '%s'\n"
                          "cuda: Optional[str] = %s\nhip: Optional[str] = None\n",
                          version, cuda);
    file_write("packages/torch/version.py", text, (size_t)length);
}

static struct doctor_line pytorch_line(int driver, char *where, size_t bytes)
{
    struct doctor_lines lines = {.count = 0};
    doctor_check_pytorch(&lines, driver, where, bytes);
    return *line_of(&lines, "pytorch");
}

TEST(test_pytorch)
{
    const char *given = getenv("PATH");
    char *before = strdup(given != NULL ? given : "/usr/bin:/bin");
    struct doctor_lines none = {.count = 0};
    assert_int_equal(mkdir("packages", 0755), 0);
    assert_int_equal(mkdir("packages/torch", 0755), 0);
    char path[8192];
    snprintf(path, sizeof(path), "%s/bin:%s", folder, before);
    assert_int_equal(setenv("PATH", path, 1), 0);
    snprintf(path, sizeof(path), "echo noise; echo 'varve:%s/packages/torch'", folder);
    python_is(path);
    version_is("2.11.0+cu130", "'13.0'");
    char where[4096];
    struct doctor_line line = pytorch_line(13000, where, sizeof(where));
    assert_line(&line, DOCTOR_OK, "PyTorch 2.11.0+cu130 for CUDA 13.0, ");
    snprintf(path, sizeof(path), "%s/packages", folder);
    assert_string_equal(where, path);
    assert_int_equal(pytorch_line(0, where, sizeof(where)).state, DOCTOR_OK);
    line = pytorch_line(12080, where, sizeof(where));
    assert_line(&line, DOCTOR_WARNING, "is for CUDA 13.0, the driver for CUDA 12.8");
    version_is("2.11.0+cpu", "None");
    line = pytorch_line(13000, where, sizeof(where));
    assert_line(&line, DOCTOR_WARNING, "without CUDA");
    python_is("echo varve:");
    assert_int_equal(pytorch_line(13000, where, sizeof(where)).state, DOCTOR_MISSING);
    assert_string_equal(where, "");
    python_is("exit 1");
    assert_non_null(strstr(pytorch_line(13000, where, sizeof(where)).found, "does not run"));
    assert_int_equal(setenv("PATH", "/nonexistent", 1), 0);
    doctor_check_pytorch(&none, 13000, where, sizeof(where));
    assert_int_equal(none.count, 0);
    assert_int_equal(setenv("PATH", before, 1), 0);
    free(before);
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

TEST_FILE(setup, teardown)
