/* SPDX-License-Identifier: Apache-2.0 */
/** @file nccl.h
 *
 * Stands in for NCCL's where the plugin is compiled for the machine of
 * machine.h: the few calls that coll_nccl.cu makes. Ranks are processes of one
 * host. The unique id names a piece of memory of rank 0's (a memfd, which is no
 * file and ends with the last process that has it), in which they meet:
 *
 *     said of each rank │ slots of each, even rounds and odd │ channel of each
 *                       │                                    │ pair
 *
 * A call is put into its stream and carried out as cuda_runtime.h says; only
 * then is memory of the device touched. Ranks that do not make the same calls,
 * one that ended, was aborted, or has said nothing for BATON_SIMT_NCCL_MS
 * (120000) make the streams of all fail: nobody waits without an end.
 *
 * Names, values and meanings: NCCL User Guide, 2.28. Only what is used here.
 */
#ifndef BT_TESTS_SIMT_NCCL_H
#define BT_TESTS_SIMT_NCCL_H

#include "tests/simt/cuda_runtime.h"

enum ncclResult_t {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInvalidArgument = 4,
    ncclRemoteError = 6,
};

enum ncclDataType_t {
    ncclUint8 = 1,
};

struct ncclUniqueId {
    char internal[128];
};

struct SimtComm;
typedef SimtComm *ncclComm_t;

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n_ranks, ncclUniqueId id,
                              int rank);
ncclResult_t ncclCommAbort(ncclComm_t comm);

ncclResult_t ncclAllGather(const void *send, void *recv, size_t n,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *send, void *recv, size_t n,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSend(const void *send, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *recv, size_t n, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);

#endif
