/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/admin.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/crypt/key.h"
#include "worker/worker_priv.h"

bool bt_admin_state_is_draining(const bt_worker_t *w)
{
    return w->draining || w->admin.leaves || w->admin.off_duty ||
           w->weights.are_due || w->sleep.is_due || w->sleep.is_asleep;
}

bool bt_admin_state_is_drained(const bt_worker_t *w)
{
    return w->admin.leaves && !w->draining && (w->n_jobs == 0);
}

bt_admin_state_t bt_admin_state_of(const bt_worker_t *w)
{
    if (w->draining || w->admin.leaves) {
        return BT_ADMIN_STATE_END;
    }
    return bt_admin_state_is_draining(w) ? BT_ADMIN_STATE_OFF
                                         : BT_ADMIN_STATE_ON;
}

void bt_admin_state_send(bt_worker_t *w)
{
    const bt_msg_t msg = {.type = BT_MSG_DRAIN};

    for (uint32_t i = 0; i < w->n_links; i++) {
        bt_worker_send(w, w->links[i], &msg);
    }
    w->stats.next_ms = 0;
}

static void go_off(bt_worker_t *w, bool leaves)
{
    BT_LOG_INFO("draining by an admin command%s, %u requests left",
                leaves ? ", then exiting" : "", w->n_jobs);
    w->admin.off_duty = true;
    w->admin.leaves = leaves;
    bt_admin_state_send(w);
}

static void go_on(bt_worker_t *w)
{
    BT_LOG_INFO("in service again");
    w->admin.off_duty = false;
    w->stats.next_ms = 0;
}

static void take_duty(bt_worker_t *w, bt_admin_state_t duty)
{
    if (w->draining || w->admin.leaves) {
        return; /* cannot be undone */
    }
    switch (duty) {
    case BT_ADMIN_STATE_AS_IT_IS:
        break;
    case BT_ADMIN_STATE_ON:
        if (w->admin.off_duty) {
            go_on(w);
        }
        break;
    case BT_ADMIN_STATE_OFF:
        if (!w->admin.off_duty) {
            go_off(w, false);
        }
        break;
    case BT_ADMIN_STATE_END:
        go_off(w, true);
        break;
    }
}

/* Any router may send this, and several may send equal ones. */
void bt_admin_state_on_role(bt_worker_t *w, const bt_msg_role_t *role)
{
    if (((role->roles & ~BT_ROLES_BOTH) != 0) ||
        (role->duty > BT_ADMIN_STATE_END) ||
        ((role->roles == 0) && (role->duty == BT_ADMIN_STATE_AS_IT_IS))) {
        BT_LOG_WARN("router sent roles %u and state %u, unknown to this worker",
                    role->roles, role->duty);
        return;
    }
    if ((role->roles != 0) && (role->roles != w->roles)) {
        BT_LOG_INFO(
            "role %s, was %s; %u running requests finish in their old role",
            bt_role_name(role->roles), bt_role_name(w->roles), w->n_jobs);
        bt_worker_set_roles(w, role->roles);
    }
    take_duty(w, (bt_admin_state_t)role->duty);
}

void bt_admin_cache_reset(bt_worker_t *w, bt_worker_link_t *from,
                          const bt_msg_cache_reset_t *order)
{
    bt_msg_t msg = {.type = BT_MSG_CACHE_IS_EMPTY,
                    .u.cache_is_empty = {.number = order->number}};

    if (w->prefix != NULL) {
        msg.u.cache_is_empty.n_blocks = bt_kv_prefix_clear(w->prefix);
    }
    w->cache_epoch++;
    BT_LOG_INFO("prefix cache emptied by an admin command, %u blocks",
                msg.u.cache_is_empty.n_blocks);
    bt_worker_send(w, from, &msg);
    w->stats.next_ms = 0;
}

bt_status_t bt_sighup_open(bt_worker_t *w)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    w->admin.hangup_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (w->admin.hangup_fd < 0) {
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
    if (bt_control_rekey(w->control, key, sizeof(key), bt_now_ms())) {
        if (w->kvt != NULL) { /* it does not sleep */
            bt_kvt_plane_key(key, kv_key);
            bt_kvt_rekey(w->kvt, kv_key, bt_now_ms());
            bt_key_wipe(kv_key, sizeof(kv_key));
        }
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

    while (read(w->admin.hangup_fd, &info, sizeof(info)) ==
           (ssize_t)sizeof(info)) {
        came = true;
    }
    if (came) {
        rekey(w);
    }
}

void bt_sighup_close(bt_worker_t *w)
{
    if (w->admin.hangup_fd >= 0) {
        close(w->admin.hangup_fd);
        w->admin.hangup_fd = -1;
    }
}
