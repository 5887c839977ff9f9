/* SPDX-License-Identifier: Apache-2.0 */
/** @file trap_backend.h
 *
 * A device for machines that have none: a back end with memory of its own, in
 * which the operations of the CPU work, and which traps whoever else touches
 * it.
 *
 *     host     address, of no permission: ┌──────────────┐
 *              each touch is SIGSEGV      │  own memory  │ ◀── operations,
 *                                         │ (one file in │     copy_in/out,
 *              never shown to the host: ▶ │   memory)    │     the copier
 *              a second mapping of it     └──────────────┘
 *
 * All buffers lie there, the KV pool among them. The copier's copies move
 * nothing until they end, which is when they are asked for the second time, so
 * a source or a slot that is used again too early shows as wrong bytes. There
 * are no fused steps. Everything it computes has the bits of the CPU.
 *
 * Of a batch it knows what was uploaded and nothing else: rows, positions and
 * blocks come from kernels/batch.h's words in its own memory.
 *
 * It is also a plugin, baton_trap.so: `--backend trap` runs a whole cluster
 * with it where BATON_PLUGIN_DIR names its folder.
 *
 * It can be slow, and hang, for whoever has to tell one from the other:
 * BATON_TRAP_MATMUL_MS is what each matrix product takes longer, and none ends
 * while the file is there that BATON_TRAP_HANG names.
 *
 * Threads: as of any back end.
 */
#ifndef BT_TESTS_SUPPORT_TRAP_BACKEND_H
#define BT_TESTS_SUPPORT_TRAP_BACKEND_H

#include "kernels/kernels.h"

#define BT_TRAP_MEMORY_BYTES ((size_t)1 << 30) /**< of it, there when used */

/** Close it with bt_backend_close(), which ends the process when a buffer was
 *  not freed.
 *  @retval BT_ERR_NO_MEMORY
 *  @retval  any of bt_backend_open("cpu") */
__attribute__((visibility("default"))) BT_MUST_CHECK bt_status_t
bt_trap_backend_open(const bt_backend_config_t *config, bt_backend_t **be_p);

/** Called by the thread that drives the back end before each matrix product;
 *  what it waits for, the product waits for. NULL: nobody. */
void bt_trap_before_matmul(bt_backend_t *be, void (*hook)(void *ctx),
                           void *ctx);

/** Uploads of tables so far, and operations that were given a batch. */
uint64_t bt_trap_uploads(const bt_backend_t *be);
uint64_t bt_trap_batch_operations(const bt_backend_t *be);

/** Calls of copy_out() so far, and what they brought; the copier's are not
 *  among them. */
uint64_t bt_trap_copies_out(const bt_backend_t *be);
uint64_t bt_trap_bytes_out(const bt_backend_t *be);

/** The wait of that number from now on, from 1, for a slot of returns.h fails;
 *  0: none. */
void bt_trap_fail_wait(bt_backend_t *be, uint32_t number);
/** Slots of returns.h that were on their way at a time, at most. */
uint32_t bt_trap_most_under_way(const bt_backend_t *be);

#endif
