/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other side is varve_torch/attached.py. It waits at a FIFO for its end, which it also finds where this process has
 * died, and leaves a line in a file of what has come of it. Each byte that comes before asks for a snapshot. Called by
 * record_run.c.
 */
#include "trace/collector/programs/attach_torch.h"
#include "trace/collector/programs/attach_target.h"

#include "base/error.h"
#include "base/monotonic.h"
#include "base/proc_file.h"
#include "trace/collect.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/format/attach_format.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAP_NS 2000000L
#define LOOKS 50U                        /* naps from one look at the process to the next */
#define SILENCE_NS UINT64_C(60000000000) /* for a Python that lets nobody else run */
#define SHOW_EVERY_NS UINT64_C(1000000000)
#define VARIABLES_BYTES 16384U
#define BEGUN "begun"
#define WRITING "writing"
#define ENDED "ended "

/* What an answer means for who reads the trace; "": as expected. */
static const struct {
    const char *answer, *remark;
} remarks[] = {
    {ENDED "on", ""},
    {ENDED "theirs", "the program keeps PyTorch's history itself: the trace has what it has asked for"},
    {ENDED "waits", "CUDA was not started in it: PyTorch has no history"},
    {ATTACH_TORCH_NO_PYTHON, "no Python runs in it, by which PyTorch's history is switched on"},
    {"absent", "its PyTorch has no CUDA, or keeps no history"},
};

/* As varve_torch/backward_passes.py has it. */
static const char complete[] = "import sys; sys.path.insert(0, sys.argv[1]); "
                               "from varve_torch.backward_passes import complete_file; complete_file(*sys.argv[2:])";

static int variables_write(int folder, const struct varve_collect_options *options)
{
    const int fd = openat(folder, ATTACH_VARIABLES, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    const bool is_written =
        fd >= 0 && dprintf(fd,
                           ATTACH_VARIABLE_PYTHON "=%s/sitecustomize.py%cVARVE_TORCH_LIBRARY=%s%c"
                                                  "VARVE_RECORDER=%s%c",
                           options->python_path, 0, options->torch_path, 0, options->preload_path, 0) > 0;
    if (fd >= 0) {
        close(fd);
    }
    return is_written ? VARVE_OK : VARVE_ERROR_IO;
}

int attach_torch_prepare(struct attach_torch *torch, const struct session_directory *directory,
                         const struct varve_collect_options *options, struct varve_message *message)
{
    int error = variables_write(directory->fd, options);
    if (error == VARVE_OK && mkfifoat(directory->fd, ATTACH_TORCH_ASK, 0600) == 0) {
        torch->folder = directory->fd;
        torch->ask = openat(directory->fd, ATTACH_TORCH_ASK, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    }
    return torch->ask >= 0
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_IO, "%s: what Python is to do can't be left there: %s",
                                   directory->path, strerror(errno));
}

/* Bytes that the program has not taken. */
static int unheard(const struct attach_torch *torch)
{
    int bytes;
    return ioctl(torch->ask, FIONREAD, &bytes) == 0 ? bytes : 1;
}

void attach_torch_show(struct attach_torch *torch, bool is_watched, uint64_t now_ns)
{
    static const char show = ATTACH_TORCH_SHOW;
    if (torch->ask < 0 || now_ns < torch->next_ns || (!is_watched && !torch->has_asked)) {
        return;
    }
    torch->next_ns = now_ns + SHOW_EVERY_NS;
    if (is_watched != torch->has_asked) { /* also what came after the last watcher */
        unlinkat(torch->folder, ATTACH_TORCH_NOW, 0);
    }
    torch->has_asked = is_watched;
    if (is_watched && unheard(torch) == 0) {
        (void)!write(torch->ask, &show, 1);
    }
}

/* A text of the directory that ends with its file; "": there is none yet. */
static size_t torch_text_read(int folder, const char *name, char *text, size_t bytes)
{
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t length = fd >= 0 ? read(fd, text, bytes - 1) : -1;
    text[length > 0 ? length : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
    return length > 0 ? (size_t)length : 0;
}

/* Nothing more comes after it. */
static bool is_last(const char *answer)
{
    return answer[0] != '\0' && strcmp(answer, BEGUN) != 0 && strcmp(answer, WRITING) != 0;
}

static void remark_on(const char *answer, struct varve_message *remark_out)
{
    for (size_t i = 0; i < sizeof(remarks) / sizeof(remarks[0]); i++) {
        if (strcmp(answer, remarks[i].answer) == 0) {
            varve_message_set(remark_out, VARVE_OK, "%s", remarks[i].remark);
            return;
        }
    }
    varve_message_set(remark_out, VARVE_ERROR_UNSUPPORTED, "PyTorch's history: %.300s",
                      is_last(answer)                ? answer
                      : strcmp(answer, WRITING) == 0 ? "it was still being written, and is lost"
                                                     : "it is lost: Python has let nobody run for a minute");
}

static bool is_gone(const struct target *target)
{
    const int32_t living = proc_file_thread(target->pid);
    return living == 0 || !target_is_same(target, living);
}

void attach_torch_end(struct attach_torch *torch, const struct target *target, bool (*goes_on)(void *context),
                      void *context, struct varve_message *remark_out)
{
    const uint64_t until_ns = monotonic_ns() + SILENCE_NS;
    char answer[512] = "";
    bool waits = torch->ask >= 0;
    session_descriptor_close(&torch->ask);
    for (unsigned nap = 1; waits; nap++) {
        torch_text_read(torch->folder, ATTACH_TORCH_ANSWER, answer, sizeof(answer));
        if (nap % LOOKS == 0 && is_gone(target)) {
            return; /* what it has left is there */
        }
        waits = !is_last(answer) && goes_on(context) && (strcmp(answer, WRITING) == 0 || monotonic_ns() < until_ns);
        if (waits) {
            monotonic_nap(NAP_NS);
        } else {
            remark_on(answer, remark_out);
        }
    }
}

/* ---- what it has left ---- */

/* The folder of varve's Python, which the variables name. False: they don't. */
static bool packages_find(int folder, char *packages, size_t bytes)
{
    char text[VARIABLES_BYTES];
    const size_t length = torch_text_read(folder, ATTACH_VARIABLES, text, sizeof(text));
    packages[0] = '\0';
    for (size_t at = 0; at < length; at += strlen(text + at) + 1) {
        if (strncmp(text + at, ATTACH_VARIABLE_PYTHON "=", sizeof(ATTACH_VARIABLE_PYTHON)) == 0) {
            snprintf(packages, bytes, "%s", text + at + sizeof(ATTACH_VARIABLE_PYTHON));
        }
    }
    char *slash = strrchr(packages, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    return slash != NULL;
}

/* By a Python of ours, not by the program's: what it is started with may be the program. */
static bool passes_add(const struct session_directory *directory)
{
    char packages[DIRECTORY_PATH_BYTES], history[DIRECTORY_PATH_BYTES + 32], passes[DIRECTORY_PATH_BYTES + 32];
    snprintf(history, sizeof(history), "%s/" ATTACH_TORCH_HISTORY, directory->path);
    snprintf(passes, sizeof(passes), "%s/" ATTACH_TORCH_PASSES, directory->path);
    const char *const argv[] = {"python3", "-I", "-c", complete, packages, history, passes, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;
    if (!packages_find(directory->fd, packages, sizeof(packages)) || posix_spawn_file_actions_init(&actions) != 0) {
        return false;
    }
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    }
    const bool is_begun = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ) == 0;
    while (is_begun && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    posix_spawn_file_actions_destroy(&actions);
    return status == 0;
}

bool attach_torch_take(const struct session_directory *directory, const char *prefix, int32_t pid,
                       struct varve_message *remark_out)
{
    char path[DIRECTORY_PATH_BYTES + 32];
    if (faccessat(directory->fd, ATTACH_TORCH_HISTORY, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
        return false;
    }
    if (faccessat(directory->fd, ATTACH_TORCH_PASSES, F_OK, AT_SYMLINK_NOFOLLOW) == 0 && !passes_add(directory)) {
        varve_message_set(remark_out, VARVE_ERROR_UNSUPPORTED,
                          "what backward() allocates has no Python line: that takes python3");
    }
    snprintf(path, sizeof(path), "%s.%d.pickle", prefix, pid);
    if (renameat(directory->fd, ATTACH_TORCH_HISTORY, AT_FDCWD, path) != 0) {
        varve_message_set(remark_out, VARVE_ERROR_IO, "PyTorch's history: %s: %s", path, strerror(errno));
        return false;
    }
    return true;
}

void attach_torch_close(struct attach_torch *torch)
{
    session_descriptor_close(&torch->ask);
}
