/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of this process: as another one has ended, and without memory. */
#include "analysis/cli/process_end.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/cli/command.h"
#include "base/publish.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_STATUS_INTERRUPTED 130

static int work_status; /* as waitpid reports it, once the work is done */

void process_end_like(int wait_status)
{
    if (WIFEXITED(wait_status)) {
        exit(WEXITSTATUS(wait_status));
    }
    int number = WTERMSIG(wait_status);
    fflush(NULL);
    /* The program has left its own core file where these are wanted; a limit of 0 does not stop a core
     * handler. */
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    signal(number, SIG_DFL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    _exit(128 + number); /* a signal whose default is to do nothing, or one that we may not unblock */
}

void process_end_interrupted(void)
{
    _exit(EXIT_STATUS_INTERRUPTED);
}

/* Output is still in buffers and stays there: half an answer is worse than none. */
static void say_no_memory(void)
{
    static const char line[] = "varve: out of memory\n";
    varve_publish_abandon();
    (void)!write(STDERR_FILENO, line, sizeof(line) - 1);
}

static void end_as_failed(void)
{
    say_no_memory();
    _exit(EXIT_STATUS_FAILED);
}

static void end_as_work(void)
{
    say_no_memory();
    process_end_like(work_status);
}

void process_end_without_memory(void)
{
    memory_exhausted_then(end_as_failed);
}

void process_work_is_done(int wait_status)
{
    work_status = wait_status;
    memory_exhausted_then(end_as_work);
}
