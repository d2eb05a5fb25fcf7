/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mistakes in configuration strings: each is refused with a message that says which option, what was found,
 * where, and what would be right, and leaves the configuration as it was.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/alloc/config.h"

#include <stdio.h>

/* ---- Divisions ---- */

TEST(test_wrong_divisions)
{
    static const char scalar[] = "option roundup_power2_divisions: expected a power of two, or a table "
                                 "\"[size:divisions,...]\", at character 26, found \"%s\"";
    static const char *const scalars[] = {"0", "3", "a", "-8", "]"};
    char text[64], reason[200];
    for (size_t i = 0; i < sizeof(scalars) / sizeof(scalars[0]); i++) {
        snprintf(text, sizeof(text), "roundup_power2_divisions:%s", scalars[i]);
        snprintf(reason, sizeof(reason), scalar, scalars[i]);
        refused(text, reason);
    }
    refused("roundup_power2_divisions:[3:4]",
            "option roundup_power2_divisions: expected a size in MiB that is a power of two, or \">\", "
            "at character 27, found \"3\"");
    refused("roundup_power2_divisions:[0:4]",
            "option roundup_power2_divisions: expected a size in MiB that is a power of two, or \">\", "
            "at character 27, found \"0\"");
    refused("roundup_power2_divisions:[1:4,>:5]",
            "option roundup_power2_divisions: expected a number of divisions, 0 or a power of two, "
            "at character 33, found \"5\"");
    refused("roundup_power2_divisions:[1,2:4]",
            "option roundup_power2_divisions: expected \":\" at character 28, found \",\"");
    refused("roundup_power2_divisions:[1:4:2:8]",
            "option roundup_power2_divisions: expected \",\" or \"]\" at character 30, found \":\"");
    refused("roundup_power2_divisions:[1:4",
            "option roundup_power2_divisions: expected \",\" or \"]\" at character 30, found the end");
    refused("roundup_power2_divisions:[1:4,",
            "option roundup_power2_divisions: expected a size in MiB that is a power of two, or \">\", "
            "at character 31, found the end");
    refused("roundup_power2_divisions:[1:4]expandable_segments:True",
            "option roundup_power2_divisions: expected \",\" or the end at character 31, "
            "found \"expandable_segments\"");
}

/* ---- Errors ---- */

TEST(test_values_out_of_range)
{
    static const char *const sizes[] = {
        "19", "0", "-64", "+64", "64MB", "64.5", "", "True", "18446744073709551616", "36893488147419103296"};
    char text[64], reason[200];
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        snprintf(text, sizeof(text), "max_split_size_mb:%s", sizes[i]);
        snprintf(reason, sizeof(reason),
                 "option max_split_size_mb: expected a whole number of MiB, 20 (large_segment_size_mb) or more, "
                 "at character 19, found %s%s%s",
                 sizes[i][0] ? "\"" : "", sizes[i][0] ? sizes[i] : "the end", sizes[i][0] ? "\"" : "");
        refused(text, reason);
    }
    refused("max_non_split_rounding_mb:5", "option max_non_split_rounding_mb: expected a whole number of MiB, 20 "
                                           "(large_segment_size_mb) or more, at character 27, found \"5\"");
    refused("expandable_segments:True, large_segment_size_mb : 10",
            "option large_segment_size_mb: expected a whole number of MiB, 11 to 1099511627775, at character 51, "
            "found \"10\"");
    refused("large_segment_size_mb:1099511627776", "option large_segment_size_mb: expected a whole number of MiB, "
                                                   "11 to 1099511627775, at character 23, found "
                                                   "\"1099511627776\"");
}

TEST(test_reals_out_of_range)
{
    static const char *const thresholds[] = {"0", "1", "1.5", "-0.5", "nan", "inf", "0.5x", "half", "0,5", "1e-999"};
    static const char *const fractions[] = {"1.01", "-0.1", "nan", "1e400", "50%"};
    char text[64], reason[200];
    for (size_t i = 0; i < sizeof(thresholds) / sizeof(thresholds[0]); i++) {
        snprintf(text, sizeof(text), "garbage_collection_threshold:%s", thresholds[i]);
        snprintf(reason, sizeof(reason),
                 "option garbage_collection_threshold: expected a number above 0 and below 1 at character 30, "
                 "found \"%.*s\"",
                 (int)strcspn(thresholds[i], ","), thresholds[i]);
        if (strchr(thresholds[i], ',')) {
            snprintf(reason, sizeof(reason), "unknown option \"5\" at character 32; the nearest one is backend");
        }
        refused(text, reason);
    }
    for (size_t i = 0; i < sizeof(fractions) / sizeof(fractions[0]); i++) {
        snprintf(text, sizeof(text), "per_process_memory_fraction:%s", fractions[i]);
        snprintf(reason, sizeof(reason),
                 "option per_process_memory_fraction: expected a number from 0 to 1 at character 29, found \"%s\"",
                 fractions[i]);
        refused(text, reason);
    }
}

TEST(test_flags_are_spelt_as_in_python)
{
    static const char *const values[] = {"true", "FALSE", "1", "yes", "Truee", "[", ":"};
    char text[64], reason[200];
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        snprintf(text, sizeof(text), "expandable_segments:%s", values[i]);
        snprintf(reason, sizeof(reason),
                 "option expandable_segments: expected True or False at character 21, found \"%s\"", values[i]);
        refused(text, reason);
    }
}

TEST(test_backends)
{
    refused("backend:cudaMallocAsync",
            "option backend: expected native (the driver's own pools are the policy cuda-async) "
            "at character 9, found \"cudaMallocAsync\"");
    refused("backend:Native",
            "option backend: expected native (others are not supported) at character 9, found \"Native\"");
}

TEST(test_syntax)
{
    refused(",expandable_segments:True", "expected the name of an option at character 1, found \",\"");
    refused("expandable_segments:True,,", "expected the name of an option at character 26, found \",\"");
    refused("expandable_segments", "option expandable_segments: expected \":\" and a value at character 20, "
                                   "found the end");
    refused("expandable_segments,True",
            "option expandable_segments: expected \":\" and a value at character 20, found \",\"");
    refused("expandable_segments:True:False",
            "option expandable_segments: expected \",\" or the end at character 25, found \":\"");
    refused("expandable_segments:True max_split_size_mb:64",
            "option expandable_segments: expected \",\" or the end at character 43, found \":\"");
}

TEST(test_unknown_names)
{
    refused("max_split_size:64",
            "unknown option \"max_split_size\" at character 1; the nearest one is max_split_size_mb");
    refused("expandable_segments:True, garbage_colection_treshold:0.8",
            "unknown option \"garbage_colection_treshold\" at character 27; the nearest one is "
            "garbage_collection_threshold");
    refused("expandable:True", "unknown option \"expandable\" at character 1; the nearest one is expandable_segments");
    refused("max_split_size_mb=64", "unknown option \"max_split_size_mb=64\" at character 1; the nearest one is "
                                    "max_split_size_mb, and \":\" is written before a value");
    refused("release_lock_on_hipmalloc:True", "option release_lock_on_hipmalloc at character 1 is the name for AMD "
                                              "devices; here it is release_lock_on_cudamalloc");
    refused("throw_on_cudamalloc_oom:True", "option throw_on_cudamalloc_oom at character 1 came after PyTorch 2.11, "
                                            "whose rules hold here; remove it");
}

TEST(test_long_and_hostile_strings)
{
    static char text[5000];
    struct varve_message message = {""};
    memset(text, 'x', sizeof(text) - 1);
    refused(text, "an option string has at most 1023 characters; this one has 4999");
    text[1023] = '\0';
    struct varve_alloc_config config;
    assert_int_equal(varve_alloc_config_parse(text, &config, &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "unknown option \"xxxxx"));
    assert_non_null(strstr(message.text, "xxx\"... at character 1; "));

    memset(text, '[', 1023);
    refused(text, "expected the name of an option at character 1, found \"[\"");
    refused("back\033[2Jend:native", "unknown option \"back?\" at character 1; the nearest one is backend");

    /* As many tokens as fit. */
    size_t length = (size_t)snprintf(text, sizeof(text), "roundup_power2_divisions:[");
    while (length < 1018) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "2:1,");
    }
    snprintf(text + length, sizeof(text) - length, "]");
    assert_int_equal(parsed(text).roundup_power2_divisions[1], 1);
}
