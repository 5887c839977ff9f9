/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/turn.h"

void bt_turn_init(bt_turn_t *turn)
{
    bt_list_init(&turn->due);
    turn->since_us = 0;
}

void bt_turn_work_init(bt_turn_work_t *work, void (*run)(bt_turn_work_t *work))
{
    bt_list_init(&work->link);
    work->run = run;
}

void bt_turn_put_off(bt_turn_t *turn, bt_turn_work_t *work, uint64_t now_us)
{
    if (!bt_list_empty(&work->link)) {
        return;
    }
    if (bt_list_empty(&turn->due)) {
        turn->since_us = now_us;
    }
    bt_list_push_back(&turn->due, &work->link);
}

void bt_turn_step(bt_turn_t *turn, uint64_t now_us)
{
    if (!bt_list_empty(&turn->due) && (now_us - turn->since_us >= BT_TURN_US)) {
        bt_turn_finish(turn);
    }
}

void bt_turn_finish(bt_turn_t *turn)
{
    bt_list_t now;

    bt_list_init(&now);
    while (!bt_list_empty(&turn->due)) {
        bt_list_t *first = turn->due.next;

        bt_list_remove(first);
        bt_list_push_back(&now, first);
    }
    while (!bt_list_empty(&now)) {
        bt_turn_work_t *work = BT_CONTAINER_OF(now.next, bt_turn_work_t, link);

        bt_list_remove(&work->link);
        work->run(work);
    }
}

void bt_turn_forget(bt_turn_work_t *work)
{
    bt_list_remove(&work->link);
}
