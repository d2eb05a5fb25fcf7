/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program `varve`: its command line is varve_command_run's. What it is doing stands in command.c.
 */
#include "analysis/analysis.h"

int main(int argc, char *argv[])
{
    return varve_command_run(argc, argv, stdout, stderr);
}
