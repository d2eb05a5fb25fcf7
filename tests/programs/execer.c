/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec in its forms. Every image allocates one block of 50000 + its number before it goes on.
 *
 *   execer chain N            N more images under the same pid
 *   execer to PROGRAM…        exec of another program (execvp)
 *   execer strip              an image without LD_PRELOAD, which allocates 50777, under the same pid
 *   execer fail               an exec that fails; then 50888
 *   execer last SIZE          allocate SIZE and end with status 9
 */
#include "workload.h"

static int run_chain(char *self, unsigned long left)
{
    char number[16], mode[] = "chain";
    take_block(50000 + left);
    if (left == 0) {
        say("{\"pid\":%d}\n", (int)getpid());
        return 0;
    }
    snprintf(number, sizeof(number), "%lu", left - 1);
    execl(self, self, mode, number, (char *)NULL);
    give_up("exec failed");
}

static int run_strip(char *self)
{
    char mode[] = "last", size[] = "50777", home[] = "HOME=/";
    char *argv[] = {self, mode, size, NULL};
    char *environment[] = {home, NULL};
    take_block(50000);
    execve(self, argv, environment);
    give_up("exec failed");
}

static int run_fail(void)
{
    char name[] = "/nonexistent/program";
    char *argv[] = {name, NULL};
    take_block(50000);
    if (execv(name, argv) != -1) {
        return 1;
    }
    take_block(50888);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0) {
        give_up("who am I?");
    }
    self[length] = '\0';
    if (strcmp(mode, "chain") == 0 && argc > 2) {
        return run_chain(self, strtoul(argv[2], NULL, 10));
    }
    if (strcmp(mode, "to") == 0 && argc > 2) {
        take_block(50000);
        execvp(argv[2], argv + 2);
        give_up("exec failed");
    }
    if (strcmp(mode, "strip") == 0) {
        return run_strip(self);
    }
    if (strcmp(mode, "fail") == 0) {
        return run_fail();
    }
    if (strcmp(mode, "last") == 0 && argc > 2) {
        take_block(strtoul(argv[2], NULL, 10));
        return 9;
    }
    give_up("execer: unknown mode");
}
