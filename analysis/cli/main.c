/* SPDX-License-Identifier: Apache-2.0 */
/* The program `varve`: its command line is varve_command_run's. What it is doing stands in command.c. */
#include "analysis/analysis.h"

#include "analysis/cli/process_end.h"
#include "base/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

/* A file that is opened would become the standard output, where that is closed. Nothing can be written to what stands
 * there instead, so that a lost answer is an error; recorded programs find it closed. */
static void occupy_closed_descriptors(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        if (fcntl(descriptor, F_GETFD) < 0) {
            (void)open("/dev/null", (descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
        }
    }
}

static void on_ending(int number)
{
    int reason = errno;
    varve_publish_abandon();
    raise(number); /* now with its usual effect */
    errno = reason;
}

/* Who ends a long export or import finds nothing half-written. A signal that is ignored (nohup) stays so. */
static void tidy_up_on_signals(void)
{
    static const int ending[] = {SIGHUP, SIGINT, SIGTERM};
    const struct sigaction action = {.sa_handler = on_ending, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
    for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++) {
        struct sigaction before;
        if (sigaction(ending[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL) {
            sigaction(ending[i], &action, NULL);
        }
    }
}

static void on_file_size(int number)
{
    (void)number;
}

/* A limit of the size of files is an error of the write that meets it. By a handler, since programs that are started
 * from here would go on ignoring a signal. */
static void meet_file_size_limits(void)
{
    const struct sigaction action = {.sa_handler = on_file_size, .sa_flags = SA_RESTART};
    struct sigaction before;
    if (sigaction(SIGXFSZ, NULL, &before) == 0 && before.sa_handler == SIG_DFL) {
        sigaction(SIGXFSZ, &action, NULL);
    }
}

int main(int argc, char *argv[])
{
    occupy_closed_descriptors();
    tidy_up_on_signals();
    meet_file_size_limits();
    process_end_without_memory();
    return varve_command_run(argc, argv, stdout, stderr);
}
