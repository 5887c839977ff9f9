/* SPDX-License-Identifier: Apache-2.0 */
/** @file probe.h
 *
 * What only the program knows of this machine, for ./baton doctor: as the first
 * argument `--probe`, and behind it perhaps the interface of --net-device. One
 * object on standard output; what UCX or a limit has against it is a line of
 * the log in JSON on standard error.
 *
 *     {"cpu":"cpu/avx2","mpi":"Open MPI v4.1.4","ucx":"1.13.1",
 *       "net_device":"lo","kv_network":true,"kv_shm":true}
 *
 * cpu is the back end that computes here, mpi and ucx the libraries that it is
 * linked with, kv_network and kv_shm whether KV can go either way: a pool of a
 * megabyte is opened for that, and closed.
 */
#ifndef BT_WORKER_PROBE_H
#define BT_WORKER_PROBE_H

/** @return the exit code */
int bt_worker_probe(const char *net_device);

#endif
