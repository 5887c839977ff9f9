/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cluster/cluster.h"

#include <limits.h>

#include "common/base/alloc.h"
#include "common/cluster/cluster_priv.h"
#include "common/coll/coll_shm.h"

#define CHUNK_FLOATS 16384u      /* of one all-reduce step, per rank */
#define CHUNK_BYTES  (64u << 20) /* of one broadcast or message */
#define ROWS_TAG     3

static bt_status_t all_reduce_sum(void *ctx, float *buf, size_t n)
{
    bt_coll_mpi_t *coll = ctx;

    while (n > 0) {
        const uint32_t part = (n < CHUNK_FLOATS) ? (uint32_t)n : CHUNK_FLOATS;
        const bt_status_t status = bt_cluster_check(
            MPI_Allgather(buf, (int)part, MPI_FLOAT, coll->gathered, (int)part,
                          MPI_FLOAT, coll->comm),
            "all-gather of a sum");

        if (status != BT_OK) {
            return status;
        }
        /* Every rank adds the same numbers in the same order: bit-identical. */
        for (uint32_t r = 0; r < coll->table.size; r++) {
            coll->parts[r] = coll->gathered + (size_t)r * part;
        }
        bt_coll_tree_sum(coll->parts, coll->table.size, part, buf);
        buf += part;
        n -= part;
    }
    return BT_OK;
}

static bt_status_t all_gather(void *ctx, const void *send, void *recv,
                              size_t bytes_each)
{
    const bt_coll_mpi_t *coll = ctx;

    if (bytes_each > INT_MAX) {
        return BT_ERR_TOO_LARGE;
    }
    return bt_cluster_check(MPI_Allgather(send, (int)bytes_each, MPI_BYTE, recv,
                                          (int)bytes_each, MPI_BYTE,
                                          coll->comm),
                            "all-gather");
}

static bt_status_t broadcast(void *ctx, void *buf, size_t bytes, uint32_t root)
{
    const bt_coll_mpi_t *coll = ctx;
    char *at = buf;

    if (root >= coll->table.size) {
        return BT_ERR_INVALID_PARAM;
    }
    while (bytes > 0) {
        const size_t part = (bytes < CHUNK_BYTES) ? bytes : CHUNK_BYTES;
        const bt_status_t status = bt_cluster_check(
            MPI_Bcast(at, (int)part, MPI_BYTE, (int)root, coll->comm),
            "broadcast");

        if (status != BT_OK) {
            return status;
        }
        at += part;
        bytes -= part;
    }
    return BT_OK;
}

static bt_status_t send_to(void *ctx, const void *buf, size_t bytes,
                           uint32_t to)
{
    const bt_coll_mpi_t *coll = ctx;
    const char *at = buf;
    bt_status_t status = BT_OK;

    if ((to >= coll->table.size) || (to == coll->table.rank)) {
        return BT_ERR_INVALID_PARAM;
    }
    while ((status == BT_OK) && (bytes > 0)) {
        const size_t part = (bytes < CHUNK_BYTES) ? bytes : CHUNK_BYTES;

        status = bt_cluster_check(
            MPI_Send(at, (int)part, MPI_BYTE, (int)to, ROWS_TAG, coll->comm),
            "send");
        at += part;
        bytes -= part;
    }
    return status;
}

static bt_status_t recv_from(void *ctx, void *buf, size_t bytes, uint32_t from)
{
    const bt_coll_mpi_t *coll = ctx;
    char *at = buf;
    bt_status_t status = BT_OK;

    if ((from >= coll->table.size) || (from == coll->table.rank) ||
        (coll->n_begun > 0)) {
        return BT_ERR_INVALID_PARAM;
    }
    while ((status == BT_OK) && (bytes > 0)) {
        const size_t part = (bytes < CHUNK_BYTES) ? bytes : CHUNK_BYTES;

        status =
            bt_cluster_check(MPI_Recv(at, (int)part, MPI_BYTE, (int)from,
                                      ROWS_TAG, coll->comm, MPI_STATUS_IGNORE),
                             "receive");
        at += part;
        bytes -= part;
    }
    return status;
}

/* All parts of a message, as send_to() splits it. */
static bt_status_t recv_begin(void *ctx, void *buf, size_t bytes, uint32_t from)
{
    bt_coll_mpi_t *coll = ctx;
    bt_coll_mpi_begun_t *begun =
        &coll->begun[(coll->first_begun + coll->n_begun) % BT_COLL_MAX_BEGUN];
    char *at = buf;
    bt_status_t status = BT_OK;

    if ((from >= coll->table.size) || (from == coll->table.rank)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (bytes > (size_t)BT_COLL_MPI_MAX_PARTS * CHUNK_BYTES) {
        return BT_ERR_TOO_LARGE;
    }
    if (coll->n_begun == BT_COLL_MAX_BEGUN) {
        return BT_ERR_BUSY;
    }
    begun->n = 0;
    while ((status == BT_OK) && (bytes > 0)) {
        const size_t part = (bytes < CHUNK_BYTES) ? bytes : CHUNK_BYTES;

        status = bt_cluster_check(MPI_Irecv(at, (int)part, MPI_BYTE, (int)from,
                                            ROWS_TAG, coll->comm,
                                            &begun->parts[begun->n]),
                                  "begin of a receive");
        begun->n += (status == BT_OK);
        at += part;
        bytes -= part;
    }
    coll->n_begun++;
    return status;
}

static bt_status_t recv_end(void *ctx)
{
    bt_coll_mpi_t *coll = ctx;
    bt_coll_mpi_begun_t *begun = &coll->begun[coll->first_begun];

    if (coll->n_begun == 0) {
        return BT_ERR_INVALID_PARAM;
    }
    coll->first_begun = (coll->first_begun + 1) % BT_COLL_MAX_BEGUN;
    coll->n_begun--;
    return bt_cluster_check(
        MPI_Waitall((int)begun->n, begun->parts, MPI_STATUSES_IGNORE),
        "end of a receive");
}

void bt_coll_mpi_init(bt_coll_mpi_t *coll)
{
    *coll = (bt_coll_mpi_t){.comm = MPI_COMM_NULL};
}

bt_status_t bt_coll_mpi_open(MPI_Comm comm, uint32_t color, bt_coll_mpi_t *coll)
{
    int rank = 0;
    int size = 0;
    bt_status_t status = bt_cluster_check(MPI_Comm_rank(comm, &rank), "rank");

    if (status == BT_OK) {
        status = bt_cluster_check(
            MPI_Comm_split(comm, (int)color, rank, &coll->comm), "split");
    }
    if (status == BT_OK) {
        status = bt_cluster_check(MPI_Comm_rank(coll->comm, &rank), "rank");
    }
    if (status == BT_OK) {
        status = bt_cluster_check(MPI_Comm_size(coll->comm, &size), "size");
    }
    if (status != BT_OK) {
        return status;
    }
    coll->gathered = bt_calloc((size_t)size * CHUNK_FLOATS, sizeof(float));
    coll->parts = bt_calloc((size_t)size, sizeof(*coll->parts));
    if ((coll->gathered == NULL) || (coll->parts == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    coll->table = (bt_collectives_t){.ctx = coll,
                                     .rank = (uint32_t)rank,
                                     .size = (uint32_t)size,
                                     .all_reduce_sum = all_reduce_sum,
                                     .all_gather = all_gather,
                                     .broadcast = broadcast,
                                     .send = send_to,
                                     .recv = recv_from,
                                     .recv_begin = recv_begin,
                                     .recv_end = recv_end};
    return BT_OK;
}

void bt_coll_mpi_close(bt_coll_mpi_t *coll)
{
    if (coll->comm != MPI_COMM_NULL) {
        (void)MPI_Comm_free(&coll->comm);
    }
    bt_free(coll->gathered);
    bt_free(coll->parts);
    bt_coll_mpi_init(coll);
}
