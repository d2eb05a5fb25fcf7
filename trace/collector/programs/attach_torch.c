/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other side is varve_torch/attached.py. It waits at a FIFO for its end, which it also finds where this process has
 * died, and leaves a line in a file of what has come of it. Each byte that comes before asks for a snapshot. Called by
 * record_run.c.
 */
#include "trace/collector/programs/attach_torch.h"

#include "base/error.h"
#include "base/monotonic.h"
#include "base/proc_file.h"
#include "trace/collect.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/format/attach_format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAP_NS 2000000L
#define PATIENCE_NS UINT64_C(60000000000) /* for a Python that lets nobody else run, and for a long history */
#define SHOW_EVERY_NS UINT64_C(1000000000)
#define ENDED "ended "

/* What a state of attached.py means for who reads the trace; "": as expected. */
static const struct {
    const char *state, *remark;
    bool has_history;
} remarks[] = {
    {ENDED "on", "", true},
    {ENDED "theirs", "the program keeps PyTorch's history itself: the trace has what it has asked for", true},
    {ENDED "waits", "CUDA was not started in it: PyTorch has no history", false},
    {ATTACH_TORCH_NO_PYTHON, "no Python runs in it, by which PyTorch's history is switched on", false},
    {"absent", "its PyTorch has no CUDA, or keeps no history", false},
};

static int variables_write(int folder, const struct varve_collect_options *options, const char *history)
{
    const int fd = openat(folder, ATTACH_VARIABLES, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    const bool is_written = fd >= 0 && dprintf(fd,
                                               ATTACH_VARIABLE_PYTHON "=%s/sitecustomize.py%cVARVE_TORCH_HISTORY=%s%c"
                                                                      "VARVE_TORCH_LIBRARY=%s%c",
                                               options->python_path, 0, history, 0, options->torch_path, 0) > 0;
    if (fd >= 0) {
        close(fd);
    }
    return is_written ? VARVE_OK : VARVE_ERROR_IO;
}

int attach_torch_prepare(struct attach_torch *torch, const struct session_directory *directory,
                         const struct varve_collect_options *options, const char *history,
                         struct varve_message *message)
{
    int error = variables_write(directory->fd, options, history);
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
    torch->has_asked = is_watched;
    if (!is_watched) {
        unlinkat(torch->folder, ATTACH_TORCH_NOW, 0);
    } else if (unheard(torch) == 0) {
        (void)!write(torch->ask, &show, 1);
    }
}

/* False: there is none yet. */
static bool answer_read(const struct attach_torch *torch, char *text, size_t bytes)
{
    const int fd = openat(torch->folder, ATTACH_TORCH_ANSWER, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const ssize_t length = fd >= 0 ? read(fd, text, bytes - 1) : -1;
    text[length > 0 ? length : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
    return length > 0;
}

/* Nothing more comes after it. */
static bool is_last(const char *answer)
{
    return answer[0] != '\0' && strcmp(answer, "begun") != 0;
}

static bool remark_on(const char *answer, struct varve_message *remark_out)
{
    for (size_t i = 0; i < sizeof(remarks) / sizeof(remarks[0]); i++) {
        if (strcmp(answer, remarks[i].state) == 0) {
            varve_message_set(remark_out, VARVE_OK, "%s", remarks[i].remark);
            return remarks[i].has_history;
        }
    }
    varve_message_set(remark_out, VARVE_ERROR_UNSUPPORTED, "PyTorch's history: %.300s",
                      is_last(answer) ? answer : "Python lets nobody run; it ends when it does");
    return false;
}

bool attach_torch_end(struct attach_torch *torch, int32_t pid, void (*idle)(void *context), void *idle_context,
                      struct varve_message *remark_out)
{
    const uint64_t until_ns = monotonic_ns() + PATIENCE_NS;
    char answer[512] = "";
    if (torch->ask < 0) {
        return false;
    }
    session_descriptor_close(&torch->ask);
    while ((!answer_read(torch, answer, sizeof(answer)) || !is_last(answer)) && monotonic_ns() < until_ns &&
           proc_file_thread(pid) != 0) {
        idle(idle_context);
        monotonic_nap(NAP_NS);
    }
    return answer[0] == '\0' && proc_file_thread(pid) == 0 ? true : remark_on(answer, remark_out);
}

void attach_torch_close(struct attach_torch *torch)
{
    session_descriptor_close(&torch->ask);
}
