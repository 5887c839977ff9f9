/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/rank_group_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/status.h"

#define ENV        "BATON_TEAM" /* rank, size, tp, segment, link to rank 0 */
#define SLOT_BYTES (1u << 20)
#define SEGMENT_FD 1000 /* of a child: above what is open here */
#define LINK_FD    1001
#define WAIT_MS    2000 /* for children that were told to end */
#define LOOK_MS                                                   \
    100 /* the watcher sees bt_rank_group_t.ends within this time \
         */

bool bt_rank_group_is_child(void)
{
    return getenv(ENV) != NULL;
}

const bt_collectives_t *bt_rank_group_collectives(const bt_rank_group_t *team)
{
    return (team->shm != NULL) ? bt_coll_shm_collectives(team->shm)
                               : team->coll;
}

const bt_collectives_t *bt_rank_group_stage(const bt_rank_group_t *team)
{
    return (team->shm != NULL) ? bt_coll_shm_group(team->shm) : team->stage;
}

bt_status_t bt_rank_group_map(bt_rank_group_t *team, int fd)
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

int bt_rank_group_segment(const bt_rank_group_t *team)
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

/* ---- a child ---- */

static bt_status_t find_place(bt_rank_group_t *team)
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
    status = bt_rank_group_map(team, fd);
    close(fd);
    unsetenv(ENV);
    (void)fcntl(link, F_SETFD, FD_CLOEXEC);
    team->links = bt_calloc(1, sizeof(*team->links));
    if (team->links == NULL) {
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
static char **env_of(char *place)
{
    size_t n = 0;
    char **env;

    while (environ[n] != NULL) {
        n++;
    }
    env = calloc(n + 2, sizeof(*env));
    if (env != NULL) {
        memcpy(env, environ, n * sizeof(*env));
        env[n] = place;
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

static bt_status_t start_child(bt_rank_group_t *team, uint32_t rank, int fd,
                               char **argv)
{
    const pid_t self = getpid();
    char path[PATH_MAX];
    char place[64];
    int ends[2];
    char **env;
    pid_t pid;

    find_self(path);
    snprintf(place, sizeof(place), ENV "=%u %u %u %d %d", rank, team->size,
             team->tp, SEGMENT_FD, LINK_FD);
    env = env_of(place);
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

static void tell_who(const bt_rank_group_t *team)
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
    bt_rank_group_t *team = arg;
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

static bt_status_t start_all(bt_rank_group_t *team, char **argv)
{
    const int fd = bt_rank_group_segment(team);
    bt_status_t status = BT_OK;

    team->links = bt_calloc(team->size - 1, sizeof(*team->links));
    if (team->links == NULL) {
        status = BT_ERR_NO_MEMORY;
    } else if (fd < 0) {
        status = BT_ERR_NO_MEMORY;
    }
    if (status == BT_OK) {
        status = bt_rank_group_map(team, fd);
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

bt_status_t bt_rank_group_open(uint32_t tp, uint32_t pp, char **argv,
                               const char *host, bt_cluster_t *cluster,
                               bt_rank_group_t *team)
{
    const uint32_t size = tp * pp;
    bt_status_t status = BT_OK;

    *team = (bt_rank_group_t){.size = 1, .tp = 1};
    if (bt_rank_group_is_child()) {
        status = find_place(team);
    } else if (size > BT_TEAM_MAX) {
        BT_LOG_ERROR("%u ranks (--tp %u x --pp %u) are asked for; an instance "
                     "has %u at most",
                     size, tp, pp, BT_TEAM_MAX);
        return BT_ERR_INVALID_PARAM;
    } else if (bt_process_is_of_mpi()) {
        status = bt_rank_group_join(tp, pp, host, cluster, team);
    } else if (size > 1) {
        team->size = size;
        team->tp = tp;
        status = start_all(team, argv);
    }
    if (status != BT_OK) {
        bt_rank_group_close(team);
    }
    return status;
}

static void end_child(bt_rank_group_t *team, uint32_t rank)
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

static uint32_t n_links(const bt_rank_group_t *team)
{
    return (team->links == NULL) ? 0 : (team->rank > 0) ? 1 : team->size - 1;
}

void bt_rank_group_expect_end(bt_rank_group_t *team)
{
    atomic_store(&team->ends, true);
}

void bt_rank_group_close(bt_rank_group_t *team)
{
    bt_rank_group_expect_end(team);
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
    *team = (bt_rank_group_t){.size = 1};
}
