/* SPDX-License-Identifier: Apache-2.0 */
/** @file programs.h  Locations of Baton's other programs. */
#ifndef BT_LAUNCHER_PROGRAMS_H
#define BT_LAUNCHER_PROGRAMS_H

#include <stddef.h>

#include "common/base/status.h"

#define BT_PROGRAM_PATH_BYTES 4096

/**
 * Finds the path of a program.
 *
 * @param [in] libexec  Directory of the programs; NULL: beside this executable,
 *                      or at the installed location relative to it
 *                      (libexec/baton), or else in the build tree that contains
 *                      this executable.
 * @param [in] program  A BT_PROG_ bit other than BT_PROG_SERVE.
 * @retval BT_ERR_IO         The location of this executable is unknown; logged.
 * @retval BT_ERR_TOO_LARGE  The path does not fit.
 */
BT_MUST_CHECK bt_status_t bt_program_path(const char *libexec, unsigned program,
                                          char *out, size_t bytes);

/** Finds the path of a program without a BT_PROG_ bit, by its name and the
 *  folder of the build tree; otherwise like bt_program_path(). */
BT_MUST_CHECK bt_status_t bt_program_path_named(const char *libexec,
                                                const char *name,
                                                const char *folder, char *out,
                                                size_t bytes);

#endif
