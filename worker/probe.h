/* SPDX-License-Identifier: Apache-2.0 */
/** @file probe.h
 *
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
#ifndef BT_WORKER_PROBE_H
#define BT_WORKER_PROBE_H

/** Runs the probe. @return the exit code */
int bt_worker_probe(const char *net_device);

#endif
