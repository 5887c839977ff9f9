/* SPDX-License-Identifier: Apache-2.0 */
/** @file core_dump.h
 *
 * A core dump has what the process had: keys, prompts, KV. So none is written
 * unless the operator asks for it (--core-dumps).
 */
#ifndef BT_COMMON_BASE_CORE_DUMP_H
#define BT_COMMON_BASE_CORE_DUMP_H

/** No core dump from now on, of this process and those that it starts: to no
 *  file, and to no program that the system would hand it to. The process stays
 *  as dumpable as it was: its peers open its memory by /proc/PID/fd. */
void bt_core_dump_forbid(void);

#endif
