/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For processors without a dlopen of ours: allocators of objects opened with RTLD_DEEPBIND, and namespaces, are neither
 * hooked nor noticed.
 */

typedef int loading_nothing; /* a file of C has at least one declaration */
