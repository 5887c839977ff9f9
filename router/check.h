/* SPDX-License-Identifier: Apache-2.0 */
/** @file check.h
 *
 * A router that is asked whether it could start, and does not: as the first
 * argument, `--check` in front of its options. All that it finds wrong are
 * lines of its log on standard error, in JSON. No port is taken, no file
 * written.
 */
#ifndef BT_ROUTER_CHECK_H
#define BT_ROUTER_CHECK_H

/** @param [in] argc, argv  Options, with anything as the first one.
 *  @return the exit code that a start would have ended with, or 0 */
int bt_router_check(int argc, char **argv);

#endif
