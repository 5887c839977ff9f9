/* SPDX-License-Identifier: Apache-2.0 */
/** @file programs.h  Where Baton's other programs are. */
#ifndef BT_LAUNCHER_PROGRAMS_H
#define BT_LAUNCHER_PROGRAMS_H

#include <stddef.h>

#include "common/base/status.h"

#define BT_PROGRAM_PATH_BYTES 4096

/**
 * @param [in] libexec  Their directory; NULL: beside this executable, or where
 *                      an installed one has them as seen from it
 *                      (libexec/baton), or else in the build tree that this
 *                      executable is in.
 * @param [in] program  A BT_PROG_ bit other than BT_PROG_SERVE.
 * @retval BT_ERR_IO         This executable's own place is unknown; logged.
 * @retval BT_ERR_TOO_LARGE  The path does not fit.
 */
BT_MUST_CHECK bt_status_t bt_program_path(const char *libexec, unsigned program,
                                          char *out, size_t bytes);

/** The same of a program that reads no options of ours: its name, and the
 *  folder that it is built in. */
BT_MUST_CHECK bt_status_t bt_program_path_named(const char *libexec,
                                                const char *name,
                                                const char *folder, char *out,
                                                size_t bytes);

#endif
