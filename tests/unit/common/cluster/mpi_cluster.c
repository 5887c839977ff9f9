/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of an MPI world; mpirun starts several. usage: mpi_cluster CASE.
 * The exit status is 0 when everything that this rank saw was right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/cluster/cluster.h"

static int failures;

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            failures++;                                                        \
        }                                                                      \
    } while (0)

static uint32_t env_u32(const char *name)
{
    const char *text = getenv(name);

    return (text == NULL) ? UINT32_MAX : (uint32_t)strtoul(text, NULL, 10);
}

static bt_cluster_t *open_as(uint32_t role)
{
    int argc = 0;
    char **argv = NULL;
    bt_cluster_t *cl = NULL;

    if (bt_cluster_open(role, &argc, &argv, &cl) != BT_OK) {
        fprintf(stderr, "cannot open\n");
        exit(1);
    }
    CHECK(bt_cluster_world_size(cl) == env_u32("OMPI_COMM_WORLD_SIZE"));
    return cl;
}

/* Numbers for which the order of the sum shows: 1e8 + (1 - 1e8) is 0 in float
 * (1 - 1e8 rounds to -1e8), in another order it is 1. */
static float number(uint32_t rank, size_t i)
{
    static const float odd[] = {1e8f, 1.0f, -1e8f};

    return (i % 2 == 0) ? odd[rank % 3] : (float)(rank + 1);
}

static float expected_sum(uint32_t size, size_t i)
{
    static const float odd[] = {0.0f, 1e8f, 1e8f, 0.0f};   /* by size */
    static const float plain[] = {0.0f, 1.0f, 3.0f, 6.0f}; /* 1 + 2 + 3 */

    return (i % 2 == 0) ? odd[size] : plain[size];
}

static void sum_of(const bt_collectives_t *c, size_t n)
{
    float *buf = bt_calloc(n + 1, sizeof(*buf));
    float *all = bt_calloc((size_t)c->size * n + 1, sizeof(*all));
    size_t wrong = 0;

    for (size_t i = 0; i < n; i++) {
        buf[i] = number(c->rank, i);
    }
    buf[n] = 42.0f; /* behind the end */
    CHECK(c->all_reduce_sum(c->ctx, buf, n) == BT_OK);
    for (size_t i = 0; i < n; i++) {
        wrong += buf[i] != expected_sum(c->size, i);
    }
    CHECK(wrong == 0);
    CHECK(buf[n] == 42.0f);
    CHECK(c->all_gather(c->ctx, buf, all, n * sizeof(*buf)) == BT_OK);
    for (uint32_t r = 0; r < c->size; r++) {
        CHECK(memcmp(all + r * n, buf, n * sizeof(*buf)) == 0);
    }
    bt_free(all);
    bt_free(buf);
}

static void run_sums(void)
{
    static const size_t sizes[] = {1, 2, 577, 16384, 16385, 100000};
    bt_cluster_t *cl = open_as(2);
    const uint32_t size = env_u32("OMPI_COMM_WORLD_SIZE");
    bt_cluster_team_t team = {0};
    const bt_collectives_t *c;
    uint32_t word;

    CHECK(bt_cluster_team(cl, size + 1, 1, &team) == BT_ERR_INVALID_PARAM);
    CHECK(bt_cluster_team(cl, size, 1, &team) == BT_OK);
    c = team.coll;
    CHECK((c == NULL) == (size == 1));
    CHECK(team.is_local && (team.index == 0) && (team.size == size));
    CHECK(!bt_cluster_has_router(cl));
    if (c != NULL) {
        CHECK(c->size == size);
        CHECK(c->rank == env_u32("OMPI_COMM_WORLD_RANK"));
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            sum_of(c, sizes[i]);
        }
        for (uint32_t root = 0; root < size; root++) {
            word = 1000 + c->rank;
            CHECK(c->broadcast(c->ctx, &word, sizeof(word), root) == BT_OK);
            CHECK(word == 1000 + root);
        }
        CHECK(c->broadcast(c->ctx, &word, sizeof(word), size) ==
              BT_ERR_INVALID_PARAM);
        CHECK(c->all_gather(c->ctx, &word, &word, (size_t)1 << 32) ==
              BT_ERR_TOO_LARGE);
    }
    bt_cluster_close(cl);
}

/* Two calls of one's own are under way before anybody receives: each sends to
 * the next one what MPI does not send without being asked. */
static void send_round(const bt_collectives_t *c, uint32_t tp, size_t n)
{
    const uint32_t from = (c->rank + c->size - tp) % c->size;
    const uint32_t to = (c->rank + tp) % c->size;
    uint32_t *out = bt_calloc(n, sizeof(*out));
    uint32_t *in = bt_calloc(2 * n, sizeof(*in));

    for (uint32_t k = 0; k < 2; k++) {
        CHECK(c->recv_begin(c->ctx, in + k * n, n * sizeof(*in), from) ==
              BT_OK);
    }
    CHECK(c->recv(c->ctx, out, 4, from) == BT_ERR_INVALID_PARAM);
    for (uint32_t k = 0; k < 2; k++) {
        out[0] = out[n - 1] = 100 * c->rank + k;
        CHECK(c->send(c->ctx, out, n * sizeof(*out), to) == BT_OK);
    }
    for (uint32_t k = 0; k < 2; k++) {
        CHECK(c->recv_end(c->ctx) == BT_OK);
        CHECK((in[k * n] == 100 * from + k) &&
              (in[k * n + n - 1] == 100 * from + k));
    }
    CHECK(c->recv_end(c->ctx) == BT_ERR_INVALID_PARAM);
    CHECK(c->recv_begin(c->ctx, in, 4, c->rank) == BT_ERR_INVALID_PARAM);
    CHECK(c->recv_begin(c->ctx, in, (size_t)1 << 32, from) == BT_ERR_TOO_LARGE);
    bt_free(out);
    bt_free(in);
}

/* Stages of one rank each, and of two where that divides them: rows go round
 * from each to the next one. */
static void run_stages(void)
{
    const uint32_t size = env_u32("OMPI_COMM_WORLD_SIZE");
    const uint32_t tp = (size % 2 == 0) ? 2 : 1;
    const size_t n = 50000; /* above what MPI sends without being asked */
    bt_cluster_t *cl = open_as(2);
    bt_cluster_team_t team = {0};
    uint32_t *data = bt_calloc(n, sizeof(*data));
    const bt_collectives_t *c;
    float sum;

    CHECK(bt_cluster_team(cl, tp, size / tp, &team) == BT_OK);
    c = team.coll;
    sum = (float)c->rank;
    CHECK((team.stage == NULL) == (tp == 1));
    if (team.stage != NULL) {
        CHECK((team.stage->size == 2) && (team.stage->rank == c->rank % 2));
        CHECK(team.stage->all_reduce_sum(team.stage->ctx, &sum, 1) == BT_OK);
        CHECK(sum == (float)(c->rank / 2 * 4 + 1)); /* r + r + 1 */
    }
    for (uint32_t i = 0; (size > tp) && (i < 3); i++) {
        if (c->rank >= tp) {
            CHECK(c->recv(c->ctx, data, n * sizeof(*data), c->rank - tp) ==
                  BT_OK);
            CHECK((data[0] == c->rank - tp + i) && (data[n - 1] == data[0]));
        }
        for (size_t k = 0; k < n; k++) {
            data[k] = c->rank + i;
        }
        CHECK(c->send(c->ctx, data, n * sizeof(*data), (c->rank + tp) % size) ==
              BT_OK);
        if (c->rank < tp) {
            CHECK(c->recv(c->ctx, data, n * sizeof(*data),
                          c->rank + size - tp) == BT_OK);
            CHECK(data[n - 1] == c->rank + size - tp + i);
        }
    }
    CHECK(c->send(c->ctx, data, 1, size) == BT_ERR_INVALID_PARAM);
    CHECK(c->recv(c->ctx, data, 1, c->rank) == BT_ERR_INVALID_PARAM);
    if (size > tp) {
        send_round(c, tp, n);
    }
    bt_free(data);
    bt_cluster_close(cl);
}

/* Instances of one rank each are numbered by the ranks of their role. */
static uint32_t role_rank(bt_cluster_t *cl)
{
    bt_cluster_team_t team = {.index = UINT32_MAX};

    CHECK(bt_cluster_team(cl, 1, 1, &team) == BT_OK);
    return team.index;
}

/* Rank 0 routes, the others prefill and decode in turn. */
static void run_roles(void)
{
    const uint32_t rank = env_u32("OMPI_COMM_WORLD_RANK");
    bt_cluster_t *cl = open_as((rank == 0) ? 0 : 1 + (rank - 1) % 2);
    char url[64] = "";
    uint8_t key[32] = {0};

    CHECK(bt_cluster_has_router(cl) == (rank != 0));
    CHECK(role_rank(cl) == 0);
    if (rank == 0) {
        snprintf(url, sizeof(url), "tcp://127.0.0.1:12345");
        memset(key, 7, sizeof(key));
    } else if (rank == 2) {
        memset(key, 9, sizeof(key)); /* it has a key file of its own */
    }
    CHECK(bt_cluster_exchange(cl, url, sizeof(url), key) == BT_OK);
    CHECK(strcmp(url, "tcp://127.0.0.1:12345") == 0);
    CHECK((key[0] == ((rank == 2) ? 9 : 7)) && (key[31] == key[0]));
    CHECK(bt_cluster_exchange(cl, url, sizeof(url), key) == BT_ERR_NOT_FOUND);
    bt_cluster_close(cl);
}

/* A router, and the rest are instances of two ranks. */
static void run_teams(void)
{
    const uint32_t rank = env_u32("OMPI_COMM_WORLD_RANK");
    bt_cluster_t *cl = open_as((rank == 0) ? 0 : 2);
    bt_cluster_team_t team = {0};
    char url[64] = "";
    uint8_t key[32] = {0};

    if (rank == 0) {
        snprintf(url, sizeof(url), "tcp://127.0.0.1:12345");
        memset(key, 7, sizeof(key));
    } else {
        CHECK(bt_cluster_team(cl, 2, 1, &team) == BT_OK);
        CHECK(team.index == (rank - 1) / 2);
        CHECK(team.rank == (rank - 1) % 2);
        sum_of(team.coll, 577);
    }
    CHECK(bt_cluster_exchange(cl, url, sizeof(url), key) == BT_OK);
    CHECK(key[0] == 7);
    bt_cluster_close(cl);
}

/* Two routers; and a worker with little room for their addresses. */
static void run_routers(void)
{
    const uint32_t rank = env_u32("OMPI_COMM_WORLD_RANK");
    bt_cluster_t *cl = open_as((rank < 2) ? 0 : 2);
    char url[16] = "";
    uint8_t key[32] = {0};

    CHECK(role_rank(cl) == ((rank < 2) ? rank : 0));
    if (rank < 2) {
        snprintf(url, sizeof(url), "ipc://r%u", rank);
        memset(key, (int)(5 + rank), sizeof(key));
    }
    if (rank == 2) {
        CHECK(bt_cluster_exchange(cl, url, sizeof(url), key) ==
              BT_ERR_TOO_LARGE);
        CHECK((url[0] == '\0') && (key[0] == 0));
    } else {
        char more[32];

        snprintf(more, sizeof(more), "%s", url);
        CHECK(bt_cluster_exchange(cl, more, sizeof(more), key) == BT_OK);
        CHECK(strcmp(more, "ipc://r0,ipc://r1") == 0);
        CHECK(key[0] == 5 + rank);
    }
    bt_cluster_close(cl);
}

/* The router gives up before it has an address: nobody may hang. */
static void run_failed_router(void)
{
    const uint32_t rank = env_u32("OMPI_COMM_WORLD_RANK");
    bt_cluster_t *cl = open_as((rank == 0) ? 0 : 2);
    char url[64] = "untouched";
    uint8_t key[32] = {0};

    if (rank != 0) {
        CHECK(bt_cluster_exchange(cl, url, sizeof(url), key) ==
              BT_ERR_PEER_LOST);
        CHECK(strcmp(url, "untouched") == 0);
    }
    bt_cluster_close(cl);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"sums", run_sums},       {"stages", run_stages},
        {"roles", run_roles},     {"teams", run_teams},
        {"routers", run_routers}, {"failed-router", run_failed_router}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if ((argc == 2) && (strcmp(argv[1], cases[i].name) == 0)) {
            cases[i].run();
            return (failures == 0) ? 0 : 1;
        }
    }
    fprintf(stderr,
            "usage: mpi_cluster sums|stages|roles|routers|failed-router\n");
    return 2;
}
