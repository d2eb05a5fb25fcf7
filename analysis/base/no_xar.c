/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of libarchive's, where that is linked statically (VARVE_STATIC_LIBARCHIVE): nothing here reads xar, and its
 * reader alone would bring libxml2 with it.
 */
#include <archive.h>

int archive_read_support_format_xar(struct archive *archive)
{
    (void)archive;
    return ARCHIVE_WARN;
}
