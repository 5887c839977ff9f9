/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/crypt/key.h"
#include "worker/instance_ranks.h"

#define ENV        "BATON_TEAM" /* rank, size, tp, segment, link to rank 0 */
#define SLOT_BYTES (1u << 20)
#define SEGMENT_FD 1000 /* of a child: above what is open here */
#define LINK_FD    1001
#define WAIT_MS    2000 /* for children that were told to end */
#define LOOK_MS                                                       \
    100 /* the watcher sees bt_instance_ranks_t.ends within this time \
         */

const bt_collectives_t *
bt_instance_ranks_collectives(const bt_instance_ranks_t *team)
{
    return (team->shm != NULL) ? bt_coll_shm_collectives(team->shm)
                               : team->coll;
}

const bt_collectives_t *bt_instance_ranks_stage(const bt_instance_ranks_t *team)
{
    return (team->shm != NULL) ? bt_coll_shm_stage(team->shm) : team->stage;
}

static bt_status_t map_segment(bt_instance_ranks_t *team, int fd)
{
    team->segment_bytes = bt_coll_shm_bytes(team->size, team->tp, SLOT_BYTES);
    team->segment = mmap(NULL, team->segment_bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED, fd, 0);
    if (team->segment == MAP_FAILED) {
        BT_LOG_ERROR("memory that ranks share: %m");
        team->segment = NULL;
        return BT_ERR_NO_MEMORY;
    }
    return bt_coll_shm_open(team->segment, team->segment_bytes, team->rank,
                            team->size, team->tp, SLOT_BYTES, &team->shm);
}

static int create_segment(const bt_instance_ranks_t *team)
{
    const size_t bytes = bt_coll_shm_bytes(team->size, team->tp, SLOT_BYTES);
    const int fd = memfd_create("baton-ranks", MFD_CLOEXEC);

    if ((fd >= 0) && (ftruncate(fd, (off_t)bytes) == 0)) {
        return fd;
    }
    BT_LOG_ERROR("memory that ranks share: %m");
    if (fd >= 0) {
        close(fd);
    }
    return -1;
}

/* Streams to @a n other ranks, none of which is open yet. */
static bt_status_t create_links(bt_instance_ranks_t *team, uint32_t n)
{
    team->links = bt_calloc(n, sizeof(*team->links));
    if (team->links == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        bt_rank_link_init(&team->links[i], -1);
    }
    return BT_OK;
}

/* ---- a child ---- */

static bt_status_t find_rank(bt_instance_ranks_t *team)
{
    unsigned rank = 0;
    unsigned size = 0;
    unsigned tp = 0;
    int fd = -1;
    int link = -1;
    bt_status_t status;

    if ((sscanf(getenv(ENV), "%u %u %u %d %d", &rank, &size, &tp, &fd, &link) !=
         5) ||
        (rank == 0) || (rank >= size) || (size > BT_TEAM_MAX) || (tp == 0) ||
        (fd < 3) || (link < 3)) {
        BT_LOG_ERROR(ENV " is set by rank 0 and is invalid here");
        return BT_ERR_INVALID_PARAM;
    }
    team->rank = rank;
    team->size = size;
    team->tp = tp;
    status = map_segment(team, fd);
    close(fd);
    unsetenv(ENV);
    (void)fcntl(link, F_SETFD, FD_CLOEXEC);
    if (create_links(team, 1) != BT_OK) {
        return BT_ERR_NO_MEMORY;
    }
    bt_rank_link_init(&team->links[0], link);
    bt_rank_link_is_with(&team->links[0], getppid());
    return status;
}

/* ---- rank 0 ---- */

/* After fork(): nothing but system calls. */
static void become(const char *path, char **argv, char **env, int fd, int link,
                   pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) { /* it died before that */
        _exit(BT_EXIT_FAILURE);
    }
    (void)dup2(fd, SEGMENT_FD);
    (void)dup2(link, LINK_FD);
    (void)syscall(SYS_close_range, 3, SEGMENT_FD - 1, 0);
    (void)syscall(SYS_close_range, LINK_FD + 1, ~0u, 0);
    execve(path, argv, env);
    _exit(BT_EXIT_FAILURE);
}

/* The environment with a child's rank in it; freed by the caller. */
static char **env_of(char *assignment)
{
    size_t n = 0;
    char **env;

    while (environ[n] != NULL) {
        n++;
    }
    env = calloc(n + 2, sizeof(*env));
    if (env != NULL) {
        memcpy(env, environ, n * sizeof(*env));
        env[n] = assignment;
    }
    return env;
}

/* The program's own path, so that process lists show its name; if that is
 * another file by now, the file that runs. */
static void find_self(char path[PATH_MAX])
{
    static const char self[] = "/proc/self/exe";
    const ssize_t n = readlink(self, path, PATH_MAX - 1);

    path[(n < 0) ? 0 : n] = '\0';
    if (access(path, X_OK) != 0) {
        memcpy(path, self, sizeof(self));
    }
}

static bt_status_t start_child(bt_instance_ranks_t *team, uint32_t rank, int fd,
                               char **argv)
{
    const pid_t self = getpid();
    char path[PATH_MAX];
    char assignment[64];
    int ends[2];
    char **env;
    pid_t pid;

    find_self(path);
    snprintf(assignment, sizeof(assignment), ENV "=%u %u %u %d %d", rank,
             team->size, team->tp, SEGMENT_FD, LINK_FD);
    env = env_of(assignment);
    if (env == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        BT_LOG_ERROR("rank %u cannot be connected: %m", rank);
        free(env);
        return BT_ERR_IO;
    }
    bt_rank_link_init(&team->links[rank - 1], ends[0]);
    pid = fork();
    if (pid == 0) {
        become(path, argv, env, fd, ends[1], self);
    }
    free(env);
    close(ends[1]);
    if (pid < 0) {
        BT_LOG_ERROR("rank %u cannot be started: %m", rank);
        return BT_ERR_IO;
    }
    team->pids[rank] = pid;
    bt_rank_link_is_with(&team->links[rank - 1], pid);
    team->pidfds[rank] = (int)syscall(SYS_pidfd_open, pid, 0);
    team->n_started++;
    if (team->pidfds[rank] < 0) {
        BT_LOG_ERROR("rank %u cannot be watched: %m", rank);
        return BT_ERR_IO;
    }
    return BT_OK;
}

static void tell_who(const bt_instance_ranks_t *team)
{
    for (uint32_t r = 1; r < team->size; r++) {
        int how = 0;

        if (waitpid(team->pids[r], &how, WNOHANG) == team->pids[r]) {
            BT_LOG_ERROR("rank %u ended (%s %d): its instance exits", r,
                         WIFSIGNALED(how) ? "signal" : "exit status",
                         WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
        }
    }
}

/* Watches the children: the first to end ends the instance. */
static void *watch(void *arg)
{
    bt_instance_ranks_t *team = arg;
    struct pollfd fds[BT_TEAM_MAX];
    nfds_t n = 0;

    for (uint32_t r = 1; r < team->size; r++) {
        fds[n++] = (struct pollfd){.fd = team->pidfds[r], .events = POLLIN};
    }
    while (!atomic_load(&team->ends)) {
        const int rc = poll(fds, n, LOOK_MS);

        if ((rc > 0) && !atomic_load(&team->ends)) {
            tell_who(team);
            bt_log_flush();
            _exit(BT_EXIT_FAILURE);
        }
    }
    return NULL;
}

static bt_status_t start_all(bt_instance_ranks_t *team, char **argv)
{
    const int fd = create_segment(team);
    bt_status_t status =
        (fd < 0) ? BT_ERR_NO_MEMORY : create_links(team, team->size - 1);

    if (status == BT_OK) {
        status = map_segment(team, fd);
    }
    for (uint32_t r = 1; (status == BT_OK) && (r < team->size); r++) {
        status = start_child(team, r, fd, argv);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (status != BT_OK) {
        return status;
    }
    if (pthread_create(&team->watcher, NULL, watch, team) != 0) {
        BT_LOG_ERROR("cannot start the thread that watches the ranks");
        return BT_ERR_NO_MEMORY;
    }
    team->is_watched = true;
    return BT_OK;
}

static void end_child(bt_instance_ranks_t *team, uint32_t rank)
{
    struct pollfd fd = {.fd = team->pidfds[rank], .events = POLLIN};

    if (team->pids[rank] <= 0) {
        return;
    }
    if ((fd.fd < 0) || (poll(&fd, 1, WAIT_MS) != 1)) {
        BT_LOG_WARN("rank %u does not end: killed", rank);
        (void)kill(team->pids[rank], SIGKILL);
    }
    (void)waitpid(team->pids[rank], NULL, 0);
    if (fd.fd >= 0) {
        close(fd.fd);
    }
}

static uint32_t n_links(const bt_instance_ranks_t *team)
{
    return (team->links == NULL) ? 0 : (team->rank > 0) ? 1 : team->size - 1;
}

void bt_instance_ranks_expect_end(bt_instance_ranks_t *team)
{
    atomic_store(&team->ends, true);
}

void bt_instance_ranks_close(bt_instance_ranks_t *team)
{
    bt_instance_ranks_expect_end(team);
    if (team->is_watched) {
        (void)pthread_join(team->watcher, NULL);
    }
    if ((team->rank == 0) && (team->n_started > 0)) {
        bt_coll_shm_break(team->shm); /* wakes waiting ranks */
    }
    for (uint32_t r = 1; (team->rank == 0) && (r < BT_TEAM_MAX); r++) {
        end_child(team, r);
    }
    for (uint32_t i = 0; i < n_links(team); i++) {
        bt_rank_link_fini(&team->links[i]);
    }
    bt_free(team->links);
    bt_coll_shm_close(team->shm);
    if (team->segment != NULL) {
        (void)munmap(team->segment, team->segment_bytes);
    }
    *team = (bt_instance_ranks_t){.size = 1};
}

/* Ranks of an instance as processes of an MPI world: rank 0 sends its address
 * and a token over MPI; on one host also the location of its shared memory. */

#define TOKEN_BYTES 32
#define JOIN_MS     60000 /* for a rank to connect */
#define HELLO_MS    5000  /* for a connected rank to send its token */

/* Data that rank 0 sends to the other ranks. */
typedef struct bootstrap {
    uint8_t token[TOKEN_BYTES];
    int32_t pid; /* on one host: process whose descriptor is the segment */
    int32_t fd;
    uint32_t address; /* on several hosts: IPv4, network byte order */
    uint16_t port;
    uint8_t ok;
    uint8_t pad;
} bootstrap_t;

/* First data that a rank sends on its stream. */
typedef struct hello {
    uint8_t token[TOKEN_BYTES];
    uint32_t rank;
} hello_t;

/* On one host an abstract socket name, made from the token. */
static socklen_t local_name(const bootstrap_t *bootstrap,
                            struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)snprintf(
                           name->sun_path + 1, sizeof(name->sun_path) - 1,
                           "baton-team-%02x%02x%02x%02x%02x%02x%02x%02x-%d",
                           bootstrap->token[0], bootstrap->token[1],
                           bootstrap->token[2], bootstrap->token[3],
                           bootstrap->token[4], bootstrap->token[5],
                           bootstrap->token[6], bootstrap->token[7],
                           bootstrap->pid));
}

static struct sockaddr_in remote_name(const bootstrap_t *bootstrap)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_addr.s_addr = bootstrap->address,
                                .sin_port = bootstrap->port};
}

/* @return a listening socket, -1: logged */
static int listen_here(const bt_cluster_team_t *at, const char *host,
                       bootstrap_t *bootstrap)
{
    const int family = at->is_local ? AF_UNIX : AF_INET;
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un local;
    struct sockaddr_in remote = {0};
    socklen_t bytes = local_name(bootstrap, &local);
    int rc = -1;

    if (at->is_local) {
        rc = bind(fd, (struct sockaddr *)&local, bytes);
    } else if (inet_pton(AF_INET, host, &bootstrap->address) == 1) {
        remote = remote_name(bootstrap);
        bytes = sizeof(remote);
        rc = bind(fd, (struct sockaddr *)&remote, bytes);
        if (rc == 0) {
            rc = getsockname(fd, (struct sockaddr *)&remote, &bytes);
        }
        bootstrap->port = remote.sin_port;
    } else {
        errno = EADDRNOTAVAIL;
    }
    if ((fd < 0) || (rc != 0) || (listen(fd, BT_TEAM_MAX) != 0)) {
        BT_LOG_ERROR("rank 0 cannot listen for the others at %s "
                     "(--rank-host): %m",
                     at->is_local ? "a socket of this host" : host);
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

/* Reads the hello of a connection. @return the rank, 0: unknown */
static uint32_t greet(const bt_instance_ranks_t *team,
                      const bootstrap_t *bootstrap, int fd)
{
    const uint64_t until_ms = bt_now_ms() + HELLO_MS;
    hello_t hello;
    size_t have = 0;

    while (have < sizeof(hello)) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        const uint64_t now_ms = bt_now_ms();
        ssize_t n;

        if ((now_ms >= until_ms) ||
            (poll(&wait, 1, (int)(until_ms - now_ms)) < 0)) {
            return 0;
        }
        n = recv(fd, (uint8_t *)&hello + have, sizeof(hello) - have,
                 MSG_DONTWAIT);
        if (n > 0) {
            have += (size_t)n;
        } else if ((n == 0) || ((errno != EAGAIN) && (errno != EINTR))) {
            return 0;
        }
    }
    return ((bt_key_equal(bootstrap->token, hello.token, TOKEN_BYTES) != 0) &&
            (hello.rank > 0) && (hello.rank < team->size) &&
            (team->links[hello.rank - 1].fd < 0))
               ? hello.rank
               : 0;
}

static void set_stream(int fd, bool is_local)
{
    const int one = 1;

    if (!is_local) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }
}

static bt_status_t accept_all(bt_instance_ranks_t *team,
                              const bootstrap_t *bootstrap, bool is_local,
                              int listener)
{
    const uint64_t until_ms = bt_now_ms() + JOIN_MS;
    uint32_t n = 0;

    while (n < team->size - 1) {
        struct pollfd wait = {.fd = listener, .events = POLLIN};
        const uint64_t now_ms = bt_now_ms();
        uint32_t rank;
        int fd;

        if (now_ms >= until_ms) {
            BT_LOG_ERROR("%u of %u ranks did not connect", team->size - 1 - n,
                         team->size - 1);
            return BT_ERR_TIMED_OUT;
        }
        if (poll(&wait, 1, (int)(until_ms - now_ms)) <= 0) {
            continue;
        }
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        rank = (fd < 0) ? 0 : greet(team, bootstrap, fd);
        if (rank != 0) {
            set_stream(fd, is_local);
            bt_rank_link_init(&team->links[rank - 1], fd);
            n++;
        } else if (fd >= 0) {
            close(fd);
        }
    }
    return BT_OK;
}

static bt_status_t connect_to_lead(bt_instance_ranks_t *team,
                                   const bootstrap_t *bootstrap, bool is_local)
{
    const int family = is_local ? AF_UNIX : AF_INET;
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_in remote = remote_name(bootstrap);
    hello_t hello = {.rank = team->rank};
    struct sockaddr_un local;
    socklen_t bytes = local_name(bootstrap, &local);
    int rc;

    memcpy(hello.token, bootstrap->token, sizeof(hello.token));
    rc = is_local
             ? connect(fd, (struct sockaddr *)&local, bytes)
             : connect(fd, (const struct sockaddr *)&remote, sizeof(remote));
    if ((fd < 0) || (rc != 0) ||
        (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) !=
         (ssize_t)sizeof(hello))) {
        BT_LOG_ERROR("rank %u does not reach rank 0: %m", team->rank);
        if (fd >= 0) {
            close(fd);
        }
        return BT_ERR_PEER_LOST;
    }
    set_stream(fd, is_local);
    bt_rank_link_init(&team->links[0], fd);
    return BT_OK;
}

/* Maps rank 0's memory, which this process may open as the same user. */
static bt_status_t map_of(bt_instance_ranks_t *team,
                          const bootstrap_t *bootstrap)
{
    char path[64];
    bt_status_t status = BT_ERR_IO;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", bootstrap->pid,
             bootstrap->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        BT_LOG_ERROR("rank %u: the memory of rank 0 (%s): %m", team->rank,
                     path);
        return status;
    }
    status = map_segment(team, fd);
    close(fd);
    return status;
}

static bt_status_t lead(bt_instance_ranks_t *team, const bt_cluster_team_t *at,
                        const char *host)
{
    bootstrap_t bootstrap = {.pid = getpid(), .fd = -1};
    bt_status_t status = BT_OK;
    int listener = -1;

    bt_key_random(bootstrap.token, sizeof(bootstrap.token));
    if (at->is_local) {
        bootstrap.fd = create_segment(team);
        status = (bootstrap.fd < 0) ? BT_ERR_NO_MEMORY
                                    : map_segment(team, bootstrap.fd);
    }
    if (status == BT_OK) {
        listener = listen_here(at, host, &bootstrap);
        status = (listener < 0) ? BT_ERR_IO : BT_OK;
    }
    bootstrap.ok = status == BT_OK; /* the others wait, even after an error */
    if (at->coll->broadcast(at->coll->ctx, &bootstrap, sizeof(bootstrap), 0) !=
        BT_OK) {
        status = BT_ERR_INTERNAL;
    }
    if (status == BT_OK) {
        status = accept_all(team, &bootstrap, at->is_local, listener);
    }
    if (listener >= 0) {
        close(listener);
    }
    if (bootstrap.fd >= 0) {
        close(bootstrap.fd);
    }
    bt_key_wipe(bootstrap.token, sizeof(bootstrap.token));
    return status;
}

static bt_status_t follow(bt_instance_ranks_t *team,
                          const bt_cluster_team_t *at)
{
    bootstrap_t bootstrap;
    bt_status_t status =
        at->coll->broadcast(at->coll->ctx, &bootstrap, sizeof(bootstrap), 0);

    if ((status == BT_OK) && (bootstrap.ok == 0)) {
        status = BT_ERR_PEER_LOST; /* logged there */
    }
    if ((status == BT_OK) && at->is_local) {
        status = map_of(team, &bootstrap);
    }
    return (status == BT_OK) ? connect_to_lead(team, &bootstrap, at->is_local)
                             : status;
}

static bt_status_t join_world(uint32_t tp, uint32_t pp, const char *host,
                              bt_cluster_t *cluster, bt_instance_ranks_t *team)
{
    bt_cluster_team_t at;
    bt_status_t status = bt_cluster_team(cluster, tp, pp, &at);

    if (status != BT_OK) {
        return status;
    }
    team->index = at.index;
    team->rank = at.rank;
    team->size = at.size;
    team->tp = tp;
    if (at.size == 1) {
        return BT_OK;
    }
    team->coll = at.is_local ? NULL : at.coll;
    team->stage = at.is_local ? NULL : at.stage;
    status = create_links(team, (at.rank == 0) ? at.size - 1 : 1);
    if (status != BT_OK) {
        return status;
    }
    return (at.rank == 0) ? lead(team, &at, host) : follow(team, &at);
}

/* ---- any of them ---- */

bt_status_t bt_instance_ranks_open(uint32_t tp, uint32_t pp, char **argv,
                                   const char *host, bt_cluster_t *cluster,
                                   bt_instance_ranks_t *team)
{
    const uint32_t size = tp * pp;
    bt_status_t status = BT_OK;

    *team = (bt_instance_ranks_t){.size = 1, .tp = 1};
    if (getenv(ENV) != NULL) { /* started by rank 0 */
        status = find_rank(team);
    } else if (size > BT_TEAM_MAX) {
        BT_LOG_ERROR("%u ranks (--tp %u x --pp %u) are asked for; an instance "
                     "has %u at most",
                     size, tp, pp, BT_TEAM_MAX);
        return BT_ERR_INVALID_PARAM;
    } else if (bt_process_is_of_mpi()) {
        status = join_world(tp, pp, host, cluster, team);
    } else if (size > 1) {
        team->size = size;
        team->tp = tp;
        status = start_all(team, argv);
    }
    if (status != BT_OK) {
        bt_instance_ranks_close(team);
    }
    return status;
}
