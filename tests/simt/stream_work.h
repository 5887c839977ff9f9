/* SPDX-License-Identifier: Apache-2.0 */
/** @file stream_work.h  What runtime.cc and nccl.cc have of each other. */
#ifndef BT_TESTS_SIMT_STREAM_WORK_H
#define BT_TESTS_SIMT_STREAM_WORK_H

#include "tests/simt/cuda_runtime.h"

namespace simt
{

/** Of every call that can fail: is it this one's turn? (faults.h) */
bool call_fails();
/** May kernels and copies touch all of it? */
bool is_device_memory(const void *p, size_t bytes);
/** Behind what is in the stream. It is carried out by whoever waits for that,
 *  within the run time's lock, so it may wait for other processes and not for
 *  other threads of this one. False: it failed, and with it the stream. */
void enqueue_work(cudaStream_t stream, std::function<bool()> what);

/** Communicators that are open. */
uint32_t count_comms();

} // namespace simt

#endif
