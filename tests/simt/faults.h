/* SPDX-License-Identifier: Apache-2.0 */
/** @file faults.h  What a test asks of baton_cuda_sim.so besides, by dlsym().
 */
#ifndef BT_TESTS_SIMT_FAULTS_H
#define BT_TESTS_SIMT_FAULTS_H

#include <stddef.h>
#include <stdint.h>

/** Of which calls each fails once: under a sanitizer, where a walk takes thirty
 *  times as long, of some of them. */
#if defined(__SANITIZE_ADDRESS__)
#define BT_SIMT_EVERY 5u
#else
#define BT_SIMT_EVERY 1u
#endif

/** Of the run time that stands in for CUDA's (cuda_runtime.h). */
typedef struct bt_simt_state {
    uint64_t n_calls; /**< that could fail, since bt_simt_fail_at() */
    size_t bytes;     /**< of the device's memory that are taken */
    uint32_t n_pinned, n_streams, n_events, n_graphs;
    uint64_t n_graph_launches; /**< so far */
    uint32_t n_comms;          /**< of nccl.h, open */
    uint32_t n_opened;         /**< handles of other processes, not closed */
} bt_simt_state_t;

/** The call of that number from now on, from 1, fails; 0: none. */
typedef void (*bt_simt_fail_at_fn)(uint64_t number);
typedef void (*bt_simt_state_fn)(bt_simt_state_t *state_p);

#endif
