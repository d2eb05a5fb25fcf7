/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program `varve`: its command line is varve_command_run's. What it is doing stands in command.c.
 */
#include "analysis/analysis.h"

#include <fcntl.h>
#include <unistd.h>

/* A file that is opened would become the standard output, where that is closed. Nothing can be written to what stands there
 * instead, so that a lost answer is an error; recorded programs find it closed. */
static void occupy_closed_descriptors(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        if (fcntl(descriptor, F_GETFD) < 0) {
            (void)open("/dev/null", (descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
        }
    }
}

int main(int argc, char *argv[])
{
    occupy_closed_descriptors();
    return varve_command_run(argc, argv, stdout, stderr);
}
