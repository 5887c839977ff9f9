/* SPDX-License-Identifier: Apache-2.0 */
/** @file order.h  The command line of those who give orders to a launcher:
 *  `baton-launch --order status --json`, which is `./baton status --json`. */
#ifndef BT_LAUNCHER_ORDER_H
#define BT_LAUNCHER_ORDER_H

/** @param [in] argv  The order's words and options, without what stands before
 *                    them.
 *  @return the exit status: 0 done, 1 refused or nobody there, 2 not
 *  understood. */
int bt_order_main(int argc, char **argv);

#endif
