/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rendezvous/rendezvous.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/hash.h"

#define SUFFIX ".router"

bool bt_rendezvous_is_url(const char *url)
{
    const bool is_path = strncmp(url, "ipc:///", 7) == 0;
    const size_t n = strlen(url);
    const char *port;

    if ((n == 0) || (n >= BT_RENDEZVOUS_URL_BYTES)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)url[i];

        if ((c < ' ') || (c == 0x7f) ||
            (!is_path && ((c == ' ') || (c > '~')))) {
            return false;
        }
    }
    if (is_path) {
        return true;
    }
    port = strrchr(url, ':');
    return (strncmp(url, "tcp://", 6) == 0) && (port > url + 6) &&
           (port[1] != '\0') && (strcmp(port, ":0") != 0) &&
           (strncmp(url + 6, "0.0.0.0:", 8) != 0) && (url[6] != '*') &&
           (strncmp(url + 6, "[::]:", 5) != 0);
}

/* @return false: the write failed, and errno says why */
static bool write_file(const char *path, const char *url)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    char line[BT_RENDEZVOUS_URL_BYTES + 1];
    const int n = snprintf(line, sizeof(line), "%s\n", url);
    bool ok;

    if (fd < 0) {
        return false;
    }
    ok = (write(fd, line, (size_t)n) == (ssize_t)n) && (fsync(fd) == 0);
    return (close(fd) == 0) && ok;
}

bt_status_t bt_rendezvous_publish(const char *dir, const char *url,
                                  bt_rendezvous_t *entry_p)
{
    const uint64_t hash = bt_hash64(url, strlen(url), 0);
    char fresh[BT_RENDEZVOUS_PATH_BYTES];
    char path[BT_RENDEZVOUS_PATH_BYTES];
    char host[64] = "";
    int error;

    if (!bt_rendezvous_is_url(url)) {
        return BT_ERR_INVALID_PARAM;
    }
    /* Another host's process may have our number. */
    (void)gethostname(host, sizeof(host) - 1);
    if (((size_t)snprintf(fresh, sizeof(fresh), "%s/.%016" PRIx64 ".%s.%ld",
                          dir, hash, host, (long)getpid()) >= sizeof(fresh)) ||
        ((size_t)snprintf(path, sizeof(path), "%s/%016" PRIx64 SUFFIX, dir,
                          hash) >= sizeof(path))) {
        return BT_ERR_INVALID_PARAM;
    }
    if (!write_file(fresh, url) || (rename(fresh, path) != 0)) {
        error = errno;
        (void)unlink(fresh);
        errno = error;
        return BT_ERR_IO;
    }
    memcpy(entry_p->path, path, sizeof(path));
    snprintf(entry_p->url, sizeof(entry_p->url), "%s", url);
    return BT_OK;
}

void bt_rendezvous_withdraw(bt_rendezvous_t *entry)
{
    if (entry->path[0] != '\0') {
        (void)unlink(entry->path);
        entry->path[0] = '\0';
    }
}

/* @return false: it says no URL */
static bool read_file(int dir_fd, const char *name,
                      char url[BT_RENDEZVOUS_URL_BYTES])
{
    /* A pipe must not block us. */
    const int fd =
        openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    ssize_t n;

    if (fd < 0) {
        return false;
    }
    n = read(fd, url, BT_RENDEZVOUS_URL_BYTES);
    (void)close(fd);
    if ((n < 2) || (url[n - 1] != '\n')) {
        return false;
    }
    url[n - 1] = '\0';
    return (strlen(url) == (size_t)n - 1) && bt_rendezvous_is_url(url);
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool is_ours(const char *name)
{
    const size_t n = strlen(name);

    return (name[0] != '.') && (n > strlen(SUFFIX)) &&
           (strcmp(name + n - strlen(SUFFIX), SUFFIX) == 0);
}

bt_status_t bt_rendezvous_scan(const char *dir, bt_rendezvous_list_t *list_p)
{
    DIR *const folder = opendir(dir);
    char url[BT_RENDEZVOUS_URL_BYTES];
    const struct dirent *entry;

    if (folder == NULL) {
        return BT_ERR_IO;
    }
    memset(list_p, 0, sizeof(*list_p));
    while ((entry = readdir(folder)) != NULL) {
        if (!is_ours(entry->d_name)) {
            continue;
        }
        if (!read_file(dirfd(folder), entry->d_name, url) ||
            (list_p->n == BT_RENDEZVOUS_MAX)) {
            list_p->n_passed++;
            continue;
        }
        /* Nothing behind its end: lists are compared whole. */
        memcpy(list_p->urls[list_p->n++], url, strlen(url));
    }
    (void)closedir(folder);
    qsort(list_p->urls, list_p->n, sizeof(list_p->urls[0]), compare);
    return BT_OK;
}
