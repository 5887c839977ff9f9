/* SPDX-License-Identifier: Apache-2.0 */
/** @file programs.h
 *
 * Baton's other programs: their paths, their output when they are run to the
 * end, and how all of them were built (`baton version`).
 *
 * A probe runs a program to its end and collects its output, up to a limit; a
 * program that takes too long is killed.
 */
#ifndef BT_LAUNCHER_PROGRAMS_H
#define BT_LAUNCHER_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"

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

#define BT_PROBE_BYTES (1u << 20) /**< limit of each of the two outputs */

typedef struct bt_probe {
    bt_strbuf_t out, err; /**< cut at the limit */
    int exit_status;      /**< exit status; 128 and the number of a signal */
    bool took_too_long;
} bt_probe_t;

/** Runs a program.
 *  @param [in] argv  argv[0] is the program's path; ends with NULL
 *  @retval BT_ERR_IO  No pipe or process; logged. Otherwise call
 *                     bt_probe_fini(). */
BT_MUST_CHECK bt_status_t bt_probe_run(char *const *argv, uint32_t timeout_ms,
                                       bt_probe_t *probe_p);
void bt_probe_fini(bt_probe_t *probe);

/** Appends lines: kind of build and compiler, kernel tiers (from the plainest)
 *  and back ends of the build, external libraries with the versions that they
 *  were compiled against. */
void bt_build_info_print(bt_strbuf_t *out);

#endif
