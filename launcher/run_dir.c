/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"

/* ---- run directory ---- */

#define KEY_BYTES      32
#define KEY_TEXT_BYTES (2 * KEY_BYTES + 1)
#define KEY_FILE_BYTES 4096 /* another file may have been put there */
#define N_PARENTS      3
#define LEAF_BYTES     (sizeof("/baton-XXXXXX") - 1)

/* Lists where run directories are made, the best place first. Some are NULL. */
static void list_parents(const char *parents[N_PARENTS])
{
    parents[0] = getenv("XDG_RUNTIME_DIR");
    parents[1] = getenv("TMPDIR");
    parents[2] = "/tmp";
}

/* A path in a log line must not break the line. */
static bool has_controls(const char *path)
{
    while ((*path != '\0') && ((unsigned char)*path >= ' ') &&
           (*path != 0x7f)) {
        path++;
    }
    return *path != '\0';
}

static bool make_under(const char *parent, bt_run_dir_t *dir)
{
    return (parent != NULL) && (parent[0] == '/') && !has_controls(parent) &&
           (strlen(parent) + LEAF_BYTES < BT_RUN_DIR_BYTES) &&
           (bt_own_dir_create(parent, &dir->own) == BT_OK);
}

static bool make_key(char text[KEY_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char key[KEY_BYTES];

    if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(key); i++) {
        text[2 * i] = digits[key[i] >> 4];
        text[2 * i + 1] = digits[key[i] & 15u];
    }
    text[2 * sizeof(key)] = '\n';
    explicit_bzero(key, sizeof(key));
    return true;
}

/* @return the file's descriptor, or -1 */
static int write_key(const char *path, const char *text, size_t bytes)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if ((fd >= 0) && (write(fd, text, bytes) != (ssize_t)bytes)) {
        close(fd);
        (void)unlink(path);
        return -1;
    }
    return fd;
}

/* An existing key file is kept as it is: another one may have been put in its
 * place. @return whether there is one */
static bool keep_key(bt_run_dir_t *dir)
{
    char text[KEY_FILE_BYTES];
    struct stat named;
    struct stat known;
    ssize_t n;
    int fd;

    if (stat(dir->key_file, &named) == 0) {
        if ((fstat(dir->key_fd, &known) == 0) &&
            (known.st_dev == named.st_dev) && (known.st_ino == named.st_ino)) {
            return true;
        }
        fd = open(dir->key_file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } else {
        n = pread(dir->key_fd, text, sizeof(text), 0);
        fd = (n > 0) ? write_key(dir->key_file, text, (size_t)n) : -1;
        explicit_bzero(text, sizeof(text));
        if (fd >= 0) {
            BT_LOG_WARN("%s was removed and is recreated", dir->key_file);
        }
    }
    if (fd < 0) {
        return false;
    }
    close(dir->key_fd);
    dir->key_fd = fd;
    return true;
}

bt_status_t bt_run_dir_create(bt_run_dir_t *dir)
{
    const char *parents[N_PARENTS];
    char text[KEY_TEXT_BYTES];
    bt_run_dir_t made;

    list_parents(parents);
    if (!make_under(parents[0], &made) && !make_under(parents[1], &made) &&
        !make_under(parents[2], &made)) {
        BT_LOG_ERROR("cannot make a directory for sockets in /tmp: %m");
        return BT_ERR_IO;
    }
    snprintf(made.path, sizeof(made.path), "%.*s", BT_RUN_DIR_BYTES - 1,
             made.own.path);
    snprintf(made.key_file, sizeof(made.key_file), "%s/key", made.path);
    made.is_broken = false;
    made.key_fd =
        make_key(text) ? write_key(made.key_file, text, sizeof(text)) : -1;
    explicit_bzero(text, sizeof(text));
    if (made.key_fd < 0) {
        BT_LOG_ERROR("cannot write the cluster key %s: %m", made.key_file);
        bt_run_dir_remove(&made);
        return BT_ERR_IO;
    }
    *dir = made;
    return BT_OK;
}

bt_status_t bt_run_dir_restore(bt_run_dir_t *dir)
{
    const bool was_whole = bt_own_dir_is_whole(&dir->own);

    if ((!was_whole && (bt_own_dir_restore(&dir->own) != BT_OK)) ||
        !keep_key(dir)) {
        if (!dir->is_broken) {
            BT_LOG_ERROR(
                "%s was removed and cannot be recreated: %m; until then no process can start",
                dir->path);
        }
        dir->is_broken = true;
        return BT_ERR_IO;
    }
    dir->is_broken = false;
    if (!was_whole) {
        BT_LOG_WARN("the run directory %s was removed and is recreated",
                    dir->path);
    }
    return BT_OK;
}

bool bt_run_dir_ends_with_session(const bt_run_dir_t *dir)
{
    char path[64];
    char linger[320];
    struct passwd entry;
    struct passwd *user = NULL;
    char text[1024];

    snprintf(path, sizeof(path), "/run/user/%u/", (unsigned)geteuid());
    if (strncmp(dir->path, path, strlen(path)) != 0) {
        return false;
    }
    if ((getpwuid_r(geteuid(), &entry, text, sizeof(text), &user) != 0) ||
        (user == NULL)) {
        return true;
    }
    snprintf(linger, sizeof(linger), "/var/lib/systemd/linger/%s",
             user->pw_name);
    return access(linger, F_OK) != 0;
}

/* True when @a i is the first parent of its name. */
static bool is_parent(const char *const parents[N_PARENTS], size_t i)
{
    if ((parents[i] == NULL) || (parents[i][0] != '/')) {
        return false;
    }
    for (size_t k = 0; k < i; k++) {
        if ((parents[k] != NULL) && (strcmp(parents[k], parents[i]) == 0)) {
            return false;
        }
    }
    return true;
}

void bt_run_dir_each(bt_own_dir_fn fn, void *arg)
{
    const char *parents[N_PARENTS];

    list_parents(parents);
    for (size_t i = 0; i < N_PARENTS; i++) {
        if (is_parent(parents, i)) {
            bt_own_dir_each(parents[i], fn, arg);
        }
    }
}

void bt_run_dir_remove(bt_run_dir_t *dir)
{
    if (dir->key_fd >= 0) {
        close(dir->key_fd);
        dir->key_fd = -1;
    }
    bt_own_dir_remove(&dir->own);
}

void bt_run_dir_remove_dead(void)
{
    const char *parents[N_PARENTS];

    list_parents(parents);
    for (size_t i = 0; i < N_PARENTS; i++) {
        if (is_parent(parents, i)) {
            bt_own_dir_remove_dead(parents[i]);
        }
    }
}

/* ---- shared port ---- */

/* Binds without SO_REUSEPORT, which fails if any process uses the port.
 * @return 0, or the error of the bind */
static int try_to_bind(const struct addrinfo *ai)
{
    static const int on = 1;
    const int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = 0;

    if (fd < 0) {
        return errno;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) != 0) {
        error = errno;
    }
    close(fd);
    return error;
}

bt_status_t bt_reuseport_check(const bt_config_t *config)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[256];
    char service[8];
    uint16_t port = 0;
    int error;

    if (!config->reuse_http_port || (config->routers == 1) ||
        (bt_config_split_address(config->http, host, sizeof(host), &port) !=
         BT_OK)) {
        return BT_OK; /* the router reports the problem */
    }
    snprintf(service, sizeof(service), "%u", port);
    if (getaddrinfo(host, service, &hints, &found) != 0) {
        return BT_OK; /* the router reports the problem */
    }
    error = try_to_bind(found);
    freeaddrinfo(found);
    if (error != 0) {
        BT_LOG_ERROR("cannot serve at %s: %s; choose another address with "
                     "--http",
                     config->http, strerrordesc_np(error));
        return bt_status_of_bind(error);
    }
    return BT_OK;
}
