/* SPDX-License-Identifier: Apache-2.0 */
/** @file admin_client.h  Command line for admin commands to a running launcher:
 *  `baton-launch --admin status --json`, which is `./baton status --json`. */
#ifndef BT_LAUNCHER_ADMIN_CLIENT_H
#define BT_LAUNCHER_ADMIN_CLIENT_H

/** Sends an admin command.
 *  @param [in] argv  Words and options of the command, without the program's
 *                    name.
 *  @return the exit status: 0 done, 1 refused or no launcher, 2 malformed. */
int bt_admin_client_main(int argc, char **argv);

#endif
