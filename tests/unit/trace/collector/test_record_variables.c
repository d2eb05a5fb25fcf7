/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment that brings the CUPTI recorder and the Python part into a program: which variables, in
 * front of what was there, and what is said of a component that is missing.
 * Costs: 1 s
 */
#include "trace/collector/programs/launch.h"
#include "base/error.h"
#include "trace/collect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char history[4096];
static struct record_variables variables;
static struct varve_message message;

static struct varve_collect_options options_make(void)
{
    struct varve_collect_options options;
    varve_collect_options_init(&options);
    options.database_path = "/tmp/of a run.db";
    options.cupti_path = "/proc/self/exe"; /* any file that can be read */
    options.torch_path = "/proc/self/exe";
    options.python_path = "/proc/self";
    return options;
}

static int make(const struct varve_collect_options *options)
{
    message.text[0] = '\0';
    return record_variables_make(&variables, options, history, &message);
}

/* What comes of options that ask for it; `before`: PYTHONPATH as it was. */
static void expect_variables(struct varve_collect_options options, const char *before, const char *expected,
                             const char *expected_history)
{
    char text[8192] = "";
    assert_int_equal(before != NULL ? setenv("PYTHONPATH", before, 1) : unsetenv("PYTHONPATH"), 0);
    assert_int_equal(make(&options), VARVE_OK);
    for (size_t i = 0; variables.items[i] != NULL; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s\n", variables.items[i]);
    }
    assert_string_equal(text, expected);
    assert_string_equal(history, expected_history);
    record_variables_free(&variables);
    assert_null(variables.items[0]);
}

TEST(test_variables)
{
    struct varve_collect_options options = options_make();
    options.cupti_path = "/nowhere"; /* not asked for: nobody looks */
    expect_variables(options, NULL, "", "");

    options = options_make();
    options.cupti = true;
    expect_variables(options, "/a",
                     "CUDA_INJECTION64_PATH=/proc/self/exe\nPYTHONPATH=/proc/self:/a\nVARVE_TORCH=profiler\n", "");
    options.python_path = "/nowhere"; /* CUPTI does without */
    expect_variables(options, "/a", "CUDA_INJECTION64_PATH=/proc/self/exe\n", "");

    options = options_make();
    options.cupti = true;
    options.torch = VARVE_TORCH_ALLOCATE;
    expect_variables(options, NULL,
                     "CUDA_INJECTION64_PATH=/proc/self/exe\nPYTHONPATH=/proc/self\nVARVE_TORCH=allocate\n"
                     "VARVE_TORCH_LIBRARY=/proc/self/exe\n",
                     "");

    options = options_make();
    options.torch = VARVE_TORCH_OBSERVE;
    options.torch_path = NULL; /* not needed for that */
    expect_variables(options, "/a:/b",
                     "PYTHONPATH=/proc/self:/a:/b\nVARVE_TORCH=observe\nVARVE_TORCH_HISTORY=/tmp/of a run.torch\n",
                     "/tmp/of a run.torch");
    options.database_path = "plain"; /* the program may go elsewhere: absolute, whatever was given */
    char folder[4096], expected[8192];
    assert_non_null(getcwd(folder, sizeof(folder)));
    assert_int_equal(make(&options), VARVE_OK);
    snprintf(expected, sizeof(expected), "%s/plain.torch", folder);
    assert_string_equal(history, expected);
    record_variables_free(&variables);
}

TEST(test_missing)
{
    struct varve_collect_options options = options_make();
    options.cupti = true;
    options.cupti_path = "/nowhere/libvarve-cupti.so";
    assert_int_equal(make(&options), VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(message.text, "/nowhere/libvarve-cupti.so"));
    assert_null(variables.items[0]);

    options = options_make();
    options.cuda = true;
    options.replace_path = "/nowhere/libvarve-replace.so";
    assert_int_equal(make(&options), VARVE_ERROR_NOT_FOUND);
    options.cuda = false; /* nothing is replaced that is not recorded */
    assert_int_equal(make(&options), VARVE_OK);

    options = options_make();
    options.torch = VARVE_TORCH_OBSERVE;
    options.database_path = "/nowhere/x.db";
    assert_int_equal(make(&options), VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(message.text, "/nowhere"));
}
