/* SPDX-License-Identifier: Apache-2.0 */
/** @file check.h
 *
 * Checks whether a router could start, without starting it: `--check` as the
 * first argument, before the options. All problems are logged on standard
 * error, as JSON. No port is opened, no file written.
 */
#ifndef BT_ROUTER_CHECK_H
#define BT_ROUTER_CHECK_H

/** Checks the options. @param [in] argc, argv  Options, with anything as the
 *  first one.
 *  @return the exit code that a start would have ended with, or 0 */
int bt_router_check(int argc, char **argv);

#endif
