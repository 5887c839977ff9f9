/* SPDX-License-Identifier: Apache-2.0 */
/** @file preflight.h
 *
 * Resources of a worker before it starts: memory, GPUs, network interface, and
 * the dry runs --check and --probe.
 */
#ifndef BT_WORKER_PREFLIGHT_H
#define BT_WORKER_PREFLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "worker/worker.h"

/* Memory available for a model and its KV pool. */

/** Memory available for a model and its KV pool, in bytes. The pool lies in the
 *  back end's memory: the host's, or the device's own. */
typedef struct bt_memory_budget {
    uint64_t available_bytes; /**< free host memory */
    uint64_t limit_bytes;     /**< cgroup memory limit, if there is one */
    const char
        *limit_by; /**< source of limit_bytes; NULL or "": there is none */
    uint64_t model_bytes; /**< host memory that the model takes */
    bool own_memory; /**< the back end has memory of its own; the next three
                        fields apply */
    uint64_t device_available_bytes;
    uint64_t device_model_bytes;
    uint64_t device_later_bytes; /**< reserved for libraries and graphs */
    uint32_t percent; /**< share of the remaining memory for the pool; 0: a
                         quarter */
} bt_memory_budget_t;

/** Returns the default size of the KV pool: a share of the memory left after
 *  the model. Of host memory at most a quarter and 1 GiB, since other processes
 *  need it too. */
uint64_t bt_memory_pool(const bt_memory_budget_t *budget);

/** Checks that the memory holds the model and a pool of @a pool_bytes.
 *  @param [out] why  On failure: what is missing, and where.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_memory_check(const bt_memory_budget_t *budget,
                                          uint64_t pool_bytes, char *why,
                                          size_t why_bytes);

/* GPUs visible to a rank. */

/**
 * Sets CUDA_VISIBLE_DEVICES to this rank's share of a list, before any back end
 * is opened. The back end numbers the devices 0, 1 and so on.
 *
 * @param [in] list  Comma-separated names; "": nothing changes.
 * @param [in] rank  One of @a size ranks.
 * @retval BT_ERR_INVALID_PARAM  more ranks than devices; logged
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_worker_use_devices(const char *list, uint32_t rank,
                                                uint32_t size);

/* Network interface for the KV traffic of a rank. */

/** Size of an interface name with its zero byte; also of an RDMA device's name
 *  and port. */
#define BT_INTERFACE_BYTES 64u

/**
 * Returns the network interface of a rank.
 *
 * Ranks take the interfaces of a list in turn: with two, even ranks take the
 * first one. So rank-to-rank transfers between two instances use all interfaces
 * at a time.
 *
 * @param [in]  list   Comma-separated names.
 * @param [out] name   Interface of the rank.
 * @param [out] n_p    Number of names in the list; NULL: not wanted.
 * @retval BT_ERR_INVALID_PARAM  a name is empty or too long; logged
 */
BT_MUST_CHECK bt_status_t bt_interface_of(const char *list, uint32_t rank,
                                          char name[BT_INTERFACE_BYTES],
                                          uint32_t *n_p);

/*
 * Dry run of a worker's start-up: with `--check` as the first argument, in
 * front of the options, a worker checks whether it could start, and does not
 * start. Problems are JSON log lines on standard error, as at a start. If the
 * check gets that far, one object on standard output has the resources a start
 * would take:
 *
 *     {"weight_bytes":…,"weights_shared":true,"own_bytes":…,"pool_bytes":…,
 *       "ranks":1}
 *
 * Bytes are per rank. Nothing is allocated or bound: no port, no pool, no
 * weights.
 */

/** Runs the check.
 *  @param [in] w  Zero but for what bt_worker_main() sets; NULL: no memory.
 *  @param [in] argc, argv  Options; the first one is ignored.
 *  @return the exit code that a start would have ended with, or 0 */
int bt_worker_check(bt_worker_t *w, unsigned program, int argc, char **argv);

/*
 * Machine facts that only the worker program knows, for ./baton doctor: with
 * `--probe` as the first argument, optionally followed by the interface of
 * --kv-net-devices. One object on standard output; objections of UCX or of a
 * limit are JSON log lines on standard error.
 *
 *     {"cpu":"cpu/avx2","mpi":"Open MPI v4.1.4","ucx":"1.13.1",
 *       "net_device":"lo","kv_network":true,"kv_shm":true}
 *
 * cpu is the back end that computes here, mpi and ucx are the linked
 * libraries, kv_network and kv_shm say whether KV can use either path: a pool
 * of one megabyte is opened for that test, and closed.
 */

/** Runs the probe. @return the exit code */
int bt_worker_probe(const char *net_device);

#endif
