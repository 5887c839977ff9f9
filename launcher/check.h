/* SPDX-License-Identifier: Apache-2.0 */
/** @file check.h
 *
 * `baton-launch --check [--json] [OPTION]...`, the program behind ./baton
 * check: prints every option with its value and origin, and all problems with
 * them. Nothing is started: the launcher plans as for a start, and asks the
 * programs (`--check` in front of their options) what a start would find.
 *
 *     options ─▶ config ─▶ plan ─▶ router, a prefill and a decode worker of
 *                  │                 each model: asked ─▶ needs of all
 *                  └───────────────┴──────────▶ findings ◀──┘
 */
#ifndef BT_LAUNCHER_CHECK_H
#define BT_LAUNCHER_CHECK_H

/** Runs the check.
 *  @param [in] argc, argv  Options; the first one is ignored.
 *  @return 0; 1: there are problems; 2: the check itself failed */
int bt_check_main(int argc, char **argv);

/** Runs `baton-launch --print-limits ROOT [OPTION]...`, used by ./baton doctor:
 *  prints the limits that a start would find, see bt_survey_limits_json().
 *  @param [in] root  See limits.h, or "/".
 *  @param [in] argc, argv  Options; the first one is ignored.
 *  @return 0; 2: the options are wrong, or printing failed */
int bt_check_print_limits(const char *root, int argc, char **argv);

#endif
