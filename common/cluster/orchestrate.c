/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cluster/orchestrate.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/cluster/cluster_priv.h"

#define LOOK_NS 20000000 /* MPI has no wait that costs nothing */

typedef struct spawned {
    MPI_Comm comm;
    uint32_t n_left;
    uint32_t n;
    int32_t *pids; /* n */
} spawned_t;

static long env_number(const char *name)
{
    const char *text = getenv(name);

    return (text == NULL) ? 0 : strtol(text, NULL, 10);
}

bt_status_t bt_cluster_may_orchestrate(char *why, size_t why_bytes)
{
    const char *other = "";

    if (getenv("OMPI_COMM_WORLD_SIZE") == NULL) {
        other = "srun cannot start further processes (MPI_Comm_spawn): use "
                "slurm/baton.sbatch, or mpirun -np 1 inside of salloc";
    } else if (env_number("OMPI_COMM_WORLD_SIZE") != 1) {
        other = "it is one process that starts the others: mpirun -np 1";
    } else if (env_number("OMPI_MCA_orte_num_nodes") > 1) {
        other = "it starts processes on one host: over several use "
                "slurm/baton.sbatch, or one mpirun for each instance";
    } else {
        return BT_OK;
    }
    snprintf(why, why_bytes, "%s", other);
    return BT_ERR_UNSUPPORTED;
}

static bt_status_t take_hellos(const bt_cluster_job_t *job, spawned_t *s)
{
    bt_status_t status = BT_OK;

    s->pids = bt_calloc(job->n, sizeof(*s->pids));
    if (s->pids == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    s->n = s->n_left = job->n;
    for (uint32_t i = 0; (status == BT_OK) && (i < s->n); i++) {
        status = bt_cluster_check(MPI_Recv(&s->pids[i], 1, MPI_INT32_T, (int)i,
                                           BT_CLUSTER_HELLO_TAG, s->comm,
                                           MPI_STATUS_IGNORE),
                                  job->program);
    }
    return status;
}

static bt_status_t spawn(const bt_cluster_job_t *job, spawned_t *out)
{
    MPI_Info info = MPI_INFO_NULL;
    bt_status_t status =
        bt_cluster_check(MPI_Info_create(&info), "settings of a start");

    if (status != BT_OK) {
        return status;
    }
    if (MPI_Info_set(info, "bind_to", "none") != MPI_SUCCESS ||
        MPI_Info_set(info, "map_by", "slot:OVERSUBSCRIBE") != MPI_SUCCESS) {
        status = BT_ERR_INTERNAL;
    } else {
        status = bt_cluster_check(
            MPI_Comm_spawn(job->program, job->args, (int)job->n, info, 0,
                           MPI_COMM_SELF, &out->comm, MPI_ERRCODES_IGNORE),
            job->program);
    }
    (void)MPI_Info_free(&info);
    return (status == BT_OK) ? take_hellos(job, out) : status;
}

/* Goodbyes that have come. The last one ends the connection. */
static bt_status_t take_goodbyes(spawned_t *s)
{
    MPI_Status from;
    char byte;
    int is_there = 1;
    bt_status_t status = BT_OK;

    while ((status == BT_OK) && (s->n_left > 0)) {
        status =
            bt_cluster_check(MPI_Iprobe(MPI_ANY_SOURCE, BT_CLUSTER_GOODBYE_TAG,
                                        s->comm, &is_there, &from),
                             "look for goodbyes");
        if ((status != BT_OK) || !is_there) {
            return status;
        }
        status = bt_cluster_check(MPI_Recv(&byte, 1, MPI_BYTE, from.MPI_SOURCE,
                                           BT_CLUSTER_GOODBYE_TAG, s->comm,
                                           MPI_STATUS_IGNORE),
                                  "goodbye");
        s->n_left--;
    }
    return (status != BT_OK)
               ? status
               : bt_cluster_check(MPI_Comm_disconnect(&s->comm), "disconnect");
}

static void tell_all(const spawned_t *all, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; (all[i].n_left > 0) && (k < all[i].n); k++) {
            (void)kill(all[i].pids[k], SIGTERM);
        }
    }
}

static bt_status_t wait_for_all(spawned_t *all, uint32_t n,
                                const bt_cluster_end_t *end)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    bt_status_t status = BT_OK;
    uint32_t n_there = n;
    bool is_told = false;

    while ((status == BT_OK) && (n_there > 0)) {
        n_there = 0;
        for (uint32_t i = 0; (status == BT_OK) && (i < n); i++) {
            if (all[i].n_left > 0) {
                status = take_goodbyes(&all[i]);
                n_there += all[i].n_left > 0;
            }
        }
        if (!is_told && end->is_due(end->ctx)) {
            tell_all(all, n);
            is_told = true;
        }
        if ((n_there > 0) && end->is_over(end->ctx)) {
            status = BT_ERR_CANCELED;
        } else if (n_there > 0) {
            (void)nanosleep(&pause, NULL);
        }
    }
    return status;
}

bt_status_t bt_cluster_orchestrate(const bt_cluster_job_t *jobs,
                                   uint32_t n_jobs, const bt_cluster_end_t *end)
{
    spawned_t *all = bt_calloc(n_jobs, sizeof(*all));
    bt_status_t status;

    if (all == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_cluster_prepare_environment(true);
    status = bt_cluster_check(MPI_Init(NULL, NULL), "start");
    if (status != BT_OK) {
        goto out;
    }
    /* A call that fails is a status, and not the end of the process. */
    status = bt_cluster_check(
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN),
        "error handler");
    for (uint32_t i = 0; (status == BT_OK) && (i < n_jobs); i++) {
        status = spawn(&jobs[i], &all[i]);
    }
    if (status == BT_OK) {
        status = wait_for_all(all, n_jobs, end);
    }
    if (status != BT_OK) { /* mpirun ends those that exist */
        (void)MPI_Abort(MPI_COMM_WORLD, 1);
    } else {
        (void)MPI_Finalize();
    }

out:
    for (uint32_t i = 0; i < n_jobs; i++) {
        bt_free(all[i].pids);
    }
    bt_free(all);
    return status;
}
