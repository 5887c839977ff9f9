/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/cluster/cluster_priv.h"

#define ROLE_ROUTER 0u
#define N_ROLES     3u
#define URL_BYTES   256
#define KEY_BYTES   32

/* Data of each process in bt_cluster_exchange(). */
typedef struct card {
    uint32_t is_router;
    char url[URL_BYTES]; /* "" = this router did not come up */
    uint8_t key[KEY_BYTES];
} card_t;

struct bt_cluster {
    bool launched;
    bool exchanged;
    uint32_t role;
    uint32_t world_rank, world_size;
    uint32_t role_rank, role_size;
    uint32_t n_routers;
    MPI_Comm parent; /* the orchestrator; MPI_COMM_NULL: none */
    MPI_Comm role_comm;
    bt_coll_mpi_t team;  /* ranks of this instance */
    bt_coll_mpi_t stage; /* and of this one's stage */
};

static bool env_is(const char *name, const char *value)
{
    const char *text = getenv(name);

    return (text != NULL) && (strcmp(text, value) == 0);
}

/* All processes of this world are on this host, as far as the launcher says. */
static bool world_is_local(void)
{
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");

    if (size != NULL) {
        return env_is("OMPI_COMM_WORLD_LOCAL_SIZE", size);
    }
    return env_is("SLURM_STEP_NUM_NODES", "1");
}

/* Settings of the operator stay. MPI only waits here at start and end: it
 * must not spin meanwhile; and on one host it needs no TCP, whose module
 * listens on all interfaces. */
void bt_cluster_prepare_environment(bool meets_others)
{
    (void)setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    if (world_is_local() && (getenv("OMPI_MCA_pml") == NULL)) {
        (void)setenv("OMPI_MCA_pml", "ob1", 0);
        (void)setenv("OMPI_MCA_btl",
                     meets_others ? "self,vader,tcp" : "self,vader", 0);
        (void)setenv("OMPI_MCA_btl_tcp_if_include", "lo", 0);
    }
}

bt_status_t bt_cluster_check(int rv, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;

    if (rv == MPI_SUCCESS) {
        return BT_OK;
    }
    (void)MPI_Error_string(rv, text, &n);
    BT_LOG_ERROR("MPI: %s: %s", what, text);
    return BT_ERR_INTERNAL;
}

/* ---- ranks and roles ---- */

static bt_status_t ask_size(MPI_Comm comm, uint32_t *rank_p, uint32_t *size_p)
{
    int rank = 0;
    int size = 0;
    bt_status_t status = bt_cluster_check(MPI_Comm_rank(comm, &rank), "rank");

    if (status == BT_OK) {
        status = bt_cluster_check(MPI_Comm_size(comm, &size), "size");
    }
    *rank_p = (uint32_t)rank;
    *size_p = (uint32_t)size;
    return status;
}

/* How many ranks of the team share this one's memory. */
static bt_status_t count_local(MPI_Comm team, uint32_t *n_p)
{
    MPI_Comm local = MPI_COMM_NULL;
    uint32_t rank = 0;
    bt_status_t status =
        bt_cluster_check(MPI_Comm_split_type(team, MPI_COMM_TYPE_SHARED, 0,
                                             MPI_INFO_NULL, &local),
                         "split by host");

    if (status == BT_OK) {
        status = ask_size(local, &rank, n_p);
        (void)MPI_Comm_free(&local);
    }
    return status;
}

/* The ranks of this instance, and of this one's stage. */
static bt_status_t open_team(bt_cluster_t *cl, uint32_t stage_size,
                             bt_cluster_team_t *team)
{
    uint32_t n_local = 1;
    bt_status_t status =
        bt_coll_mpi_open(cl->role_comm, team->index, &cl->team);

    if (status == BT_OK) {
        status = count_local(cl->team.comm, &n_local);
    }
    team->coll = &cl->team.table;
    team->rank = team->coll->rank;
    team->size = team->coll->size;
    team->is_local = n_local == team->size;
    if ((status == BT_OK) && (stage_size == team->size)) {
        team->stage = team->coll;
    } else if ((status == BT_OK) && (stage_size > 1)) {
        status = bt_coll_mpi_open(cl->team.comm, team->rank / stage_size,
                                  &cl->stage);
        team->stage = &cl->stage.table;
    }
    return status;
}

bt_status_t bt_cluster_team(bt_cluster_t *cl, uint32_t tp, uint32_t pp,
                            bt_cluster_team_t *team_p)
{
    const uint32_t size = tp * pp;
    bt_cluster_team_t team = {.size = 1, .is_local = true};
    bt_status_t status = BT_OK;

    if ((size == 0) || (cl->role_size % size != 0)) {
        BT_LOG_ERROR(
            "%u processes of this role do not form instances of %u ranks each (--tp x --pp)",
            cl->role_size, size);
        return BT_ERR_INVALID_PARAM;
    }
    team.index = cl->role_rank / size;
    if (size > 1) {
        status = open_team(cl, tp, &team);
    }
    if (status == BT_OK) {
        *team_p = team;
    }
    return status;
}

/* Sends a message to the orchestrator (orchestrate.h), if there is one. */
static bt_status_t say_hello(bt_cluster_t *cl)
{
    const int32_t pid = getpid();
    bt_status_t status =
        bt_cluster_check(MPI_Comm_get_parent(&cl->parent), "parent");

    if ((status == BT_OK) && (cl->parent != MPI_COMM_NULL)) {
        status = bt_cluster_check(
            MPI_Send(&pid, 1, MPI_INT32_T, 0, BT_CLUSTER_HELLO_TAG, cl->parent),
            "hello");
    }
    return status;
}

static bt_status_t find_roles(bt_cluster_t *cl)
{
    uint32_t mine = (cl->role == ROLE_ROUTER) ? 1 : 0;
    bt_status_t status;

    /* a failed call is a status here, not the end of the process */
    status = bt_cluster_check(
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
        "error handler");
    if (status == BT_OK) {
        status = ask_size(MPI_COMM_WORLD, &cl->world_rank, &cl->world_size);
    }
    if (status == BT_OK) {
        status = bt_cluster_check(MPI_Comm_split(MPI_COMM_WORLD, (int)cl->role,
                                                 (int)cl->world_rank,
                                                 &cl->role_comm),
                                  "split by role");
    }
    if (status == BT_OK) {
        status = ask_size(cl->role_comm, &cl->role_rank, &cl->role_size);
    }
    if (status == BT_OK) {
        status = say_hello(cl);
    }
    if (status == BT_OK) {
        status = bt_cluster_check(MPI_Allreduce(&mine, &cl->n_routers, 1,
                                                MPI_UINT32_T, MPI_SUM,
                                                MPI_COMM_WORLD),
                                  "count of routers");
    }
    return status;
}

bt_status_t bt_cluster_open(uint32_t role, int *argc, char ***argv,
                            bt_cluster_t **cl_p)
{
    bt_status_t status = BT_ERR_INTERNAL;
    int level = MPI_THREAD_SINGLE;
    bt_cluster_t *cl;

    if (role >= N_ROLES) {
        return BT_ERR_INVALID_PARAM;
    }
    cl = bt_calloc(1, sizeof(*cl));
    if (cl == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    cl->role = role;
    cl->parent = cl->role_comm = MPI_COMM_NULL;
    bt_coll_mpi_init(&cl->team);
    bt_coll_mpi_init(&cl->stage);
    cl->world_size = cl->role_size = 1;
    cl->n_routers = (role == ROLE_ROUTER) ? 1 : 0;
    cl->launched = bt_process_is_of_mpi();
    if (!cl->launched) {
        *cl_p = cl;
        return BT_OK;
    }
    bt_cluster_prepare_environment(getenv("OMPI_PARENT_PORT") != NULL);
    if (MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level) !=
        MPI_SUCCESS) {
        BT_LOG_ERROR("MPI does not start");
        goto err_cl;
    }
    if (level < MPI_THREAD_SERIALIZED) {
        BT_LOG_ERROR("MPI was built without support for threads");
        goto err_mpi;
    }
    status = find_roles(cl);
    if (status != BT_OK) {
        goto err_mpi;
    }
    *cl_p = cl;
    return BT_OK;

err_mpi:
    /* The others wait for us in a collective call: ends them, too. */
    (void)MPI_Abort(MPI_COMM_WORLD, 1);
err_cl:
    bt_free(cl);
    return status;
}

static void say_goodbye(bt_cluster_t *cl)
{
    char byte = 0;

    if (cl->parent != MPI_COMM_NULL) {
        (void)MPI_Send(&byte, 1, MPI_BYTE, 0, BT_CLUSTER_GOODBYE_TAG,
                       cl->parent);
        (void)MPI_Comm_disconnect(&cl->parent);
    }
}

void bt_cluster_close(bt_cluster_t *cl)
{
    int finalized = 0;

    if (cl == NULL) {
        return;
    }
    if (cl->launched && (MPI_Finalized(&finalized) == MPI_SUCCESS) &&
        (finalized == 0)) {
        /* A process that fails before the exchange still takes part in it,
         * so that the others are notified instead of waiting permanently. */
        if (!cl->exchanged && (cl->n_routers > 0) && (cl->world_size > 1)) {
            char url[URL_BYTES] = "";
            uint8_t key[KEY_BYTES] = {0};

            (void)!bt_cluster_exchange(cl, url, sizeof(url), key);
        }
        bt_coll_mpi_close(&cl->stage);
        bt_coll_mpi_close(&cl->team);
        if (cl->role_comm != MPI_COMM_NULL) {
            (void)MPI_Comm_free(&cl->role_comm);
        }
        say_goodbye(cl);
        (void)MPI_Finalize();
    }
    bt_free(cl);
}

uint32_t bt_cluster_world_size(const bt_cluster_t *cl)
{
    return cl->world_size;
}

bool bt_cluster_has_router(const bt_cluster_t *cl)
{
    return (cl->role != ROLE_ROUTER) && (cl->n_routers > 0);
}

/* ---- the exchange ---- */

static bool all_zero(const uint8_t *data, size_t n)
{
    uint8_t any = 0;

    for (size_t i = 0; i < n; i++) {
        any |= data[i];
    }
    return any == 0;
}

/* The routers' URLs in rank order with commas, and the first router's key. */
static bt_status_t read_cards(const card_t *cards, uint32_t n, char *url,
                              size_t url_bytes, uint8_t key[KEY_BYTES])
{
    size_t len = 0;
    bool have_key = false;

    for (uint32_t i = 0; i < n; i++) {
        const size_t more = strnlen(cards[i].url, URL_BYTES);

        if ((cards[i].is_router == 0) || (more == 0) || (more == URL_BYTES)) {
            continue;
        }
        if (len + more + 2 > url_bytes) {
            return BT_ERR_TOO_LARGE;
        }
        if (len > 0) {
            url[len++] = ',';
        }
        memcpy(url + len, cards[i].url, more);
        len += more;
        if (!have_key) {
            memcpy(key, cards[i].key, KEY_BYTES);
            have_key = true;
        }
    }
    url[len] = '\0';
    return (len > 0) ? BT_OK : BT_ERR_PEER_LOST;
}

bt_status_t bt_cluster_exchange(bt_cluster_t *cl, char *url_io,
                                size_t url_bytes, uint8_t key_io[32])
{
    card_t mine = {.is_router = (cl->role == ROLE_ROUTER) ? 1 : 0};
    uint8_t key[KEY_BYTES] = {0};
    card_t *cards = NULL;
    char *url = NULL;
    bt_status_t status;

    if ((cl->n_routers == 0) || cl->exchanged) {
        return BT_ERR_NOT_FOUND;
    }
    if (!cl->launched) { /* a router alone: its own data is all there is */
        cl->exchanged = true;
        return BT_OK;
    }
    if (mine.is_router) {
        const size_t len = strnlen(url_io, url_bytes);

        if (len >= URL_BYTES) {
            return BT_ERR_TOO_LARGE;
        }
        memcpy(mine.url, url_io, len);
        memcpy(mine.key, key_io, KEY_BYTES);
    }
    cards = bt_calloc(cl->world_size, sizeof(*cards));
    url = bt_calloc(url_bytes, 1);
    if ((cards == NULL) || (url == NULL)) {
        status = BT_ERR_NO_MEMORY;
        goto end;
    }
    cl->exchanged = true;
    status = bt_cluster_check(MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE,
                                            cards, (int)sizeof(mine), MPI_BYTE,
                                            MPI_COMM_WORLD),
                              "exchange of addresses");
    if (status == BT_OK) {
        status = read_cards(cards, cl->world_size, url, url_bytes, key);
    }
    if (status == BT_OK) {
        memcpy(url_io, url, strlen(url) + 1);
        if (all_zero(key_io, KEY_BYTES)) {
            memcpy(key_io, key, KEY_BYTES);
        }
    }

end:
    if (cards != NULL) {
        explicit_bzero(cards, cl->world_size * sizeof(*cards));
    }
    explicit_bzero(&mine, sizeof(mine));
    explicit_bzero(key, sizeof(key));
    bt_free(url);
    bt_free(cards);
    return status;
}

void bt_cluster_library(char *out, size_t bytes)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n = 0;

    if (MPI_Get_library_version(text, &n) != MPI_SUCCESS) {
        text[0] = '\0';
    }
    snprintf(out, bytes, "%.*s", (int)strcspn(text, ",\n"), text);
}
