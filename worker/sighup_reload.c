/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/sighup_reload.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/crypt/key.h"

bt_status_t bt_sighup_open(bt_worker_t *w)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    w->hangup_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (w->hangup_fd < 0) {
        BT_LOG_ERROR("signals: %m");
        return BT_ERR_IO;
    }
    return BT_OK;
}

static void rekey(bt_worker_t *w)
{
    const char *path = w->config->cluster_key_file;
    uint8_t key[BT_KEY_BYTES], kv_key[BT_KEY_BYTES];
    char why[BT_KEY_WHY_BYTES];

    if (path[0] == '\0') {
        BT_LOG_INFO("SIGHUP: there is no key file to read again");
        return;
    }
    if (bt_key_read(path, w->config->munge_socket, key, why) != BT_OK) {
        BT_LOG_ERROR("SIGHUP: cluster key %s: %s; the previous one is kept",
                     path, why);
        return;
    }
    if (bt_rpc_rekey(w->rpc, key, sizeof(key), bt_now_ms())) {
        bt_kvt_plane_key(key, kv_key);
        bt_kvt_rekey(w->kvt, kv_key, bt_now_ms());
        bt_key_wipe(kv_key, sizeof(kv_key));
        BT_LOG_INFO(
            "SIGHUP: new links use the new cluster key; the previous one is accepted for 10 minutes");
    } else {
        BT_LOG_INFO("SIGHUP: the cluster key is the same");
    }
    bt_key_wipe(key, sizeof(key));
}

void bt_sighup_take(bt_worker_t *w)
{
    struct signalfd_siginfo info;
    bool came = false;

    while (read(w->hangup_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        came = true;
    }
    if (came) {
        rekey(w);
    }
}

void bt_sighup_close(bt_worker_t *w)
{
    if (w->hangup_fd >= 0) {
        close(w->hangup_fd);
        w->hangup_fd = -1;
    }
}
