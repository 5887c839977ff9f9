/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/admin_state.h"

#include "common/base/log.h"
#include "worker/loop.h"

bool bt_admin_state_is_draining(const bt_worker_t *w)
{
    return w->draining || w->leaves || w->off_duty;
}

bool bt_admin_state_is_drained(const bt_worker_t *w)
{
    return w->leaves && !w->draining && (w->n_jobs == 0);
}

bt_admin_state_t bt_admin_state_of(const bt_worker_t *w)
{
    if (w->draining || w->leaves) {
        return BT_ADMIN_STATE_END;
    }
    return w->off_duty ? BT_ADMIN_STATE_OFF : BT_ADMIN_STATE_ON;
}

void bt_admin_state_send(bt_worker_t *w)
{
    const bt_msg_t msg = {.type = BT_MSG_DRAIN};

    for (uint32_t i = 0; i < w->n_links; i++) {
        bt_worker_send(w, w->links[i], &msg);
    }
    w->next_stats_ms = 0;
}

static void go_off(bt_worker_t *w, bool leaves)
{
    BT_LOG_INFO("draining by an admin command%s, %u requests left",
                leaves ? ", then exiting" : "", w->n_jobs);
    w->off_duty = true;
    w->leaves = leaves;
    bt_admin_state_send(w);
}

static void go_on(bt_worker_t *w)
{
    BT_LOG_INFO("in service again");
    w->off_duty = false;
    w->next_stats_ms = 0;
    for (uint32_t i = 0; i < w->n_links; i++) {
        if (!w->links[i]->reads_duty) {
            bt_rpc_link_close(w->links[i]->rpc, "it is in service again");
        }
    }
}

static void take_duty(bt_worker_t *w, bt_admin_state_t duty)
{
    if (w->draining || w->leaves) {
        return; /* cannot be undone */
    }
    switch (duty) {
    case BT_ADMIN_STATE_AS_IT_IS:
        break;
    case BT_ADMIN_STATE_ON:
        if (w->off_duty) {
            go_on(w);
        }
        break;
    case BT_ADMIN_STATE_OFF:
        if (!w->off_duty) {
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
