/* SPDX-License-Identifier: Apache-2.0 */
/** @file check.h
 *
 * `baton-launch --check [--json] [OPTION]...`, which ./baton check is: every
 * option with its value and where that came from, and all that is wrong with
 * them. Nothing is started: the launcher plans as for a start, and asks the
 * programs (`--check` in front of their options) what they would meet.
 *
 *     options ─▶ config ─▶ plan ─▶ router, a prefill and a decode worker of
 *                  │                 each model: asked ─▶ needs of all
 *                  └───────────────┴──────────▶ findings ◀──┘
 */
#ifndef BT_LAUNCHER_CHECK_H
#define BT_LAUNCHER_CHECK_H

/** @param [in] argc, argv  Options, with anything as the first one.
 *  @return 0; 1: there are problems; 2: it could not be found out */
int bt_check_main(int argc, char **argv);

/** `baton-launch --print-limits ROOT [OPTION]...`, which ./baton doctor asks:
 * the limits that a start would find, as bt_survey_limits_json() has them.
 *  @param [in] root  As in cgroup.h, or "/".
 *  @param [in] argc, argv  Options, with anything as the first one.
 *  @return 0; 2: the options are wrong, or it could not be printed */
int bt_check_print_limits(const char *root, int argc, char **argv);

#endif
