/* SPDX-License-Identifier: Apache-2.0 */
/** @file core_dump.h
 *
 * Core dumps contain what the process had in memory: keys, prompts, KV. So none
 * is written unless the operator asks for it (--core-dumps).
 */
#ifndef BT_COMMON_BASE_CORE_DUMP_H
#define BT_COMMON_BASE_CORE_DUMP_H

/** Disables core dumps of this process and of those that it starts: to a
 *  file, and to a program that the system would pipe them to. The process
 *  stays as dumpable as before: its peers open its memory by /proc/PID/fd. */
void bt_core_dump_forbid(void);

#endif
