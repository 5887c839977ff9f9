/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/weights.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "inference/hf/hf.h"
#include "worker/admin.h"
#include "worker/worker_priv.h"

static bool begins(bt_gguf_str_t key, const char *with)
{
    const size_t n = strlen(with);

    return (key.len >= n) && (memcmp(key.data, with, n) == 0);
}

static bt_hash128_t hash_of_pair(const bt_gguf_pair_t *pair)
{
    const bt_hash128_t key = bt_hash128(pair->key.data, pair->key.len, 0);
    const bt_hash128_t value = bt_hash128(pair->value, pair->bytes, 0);
    const uint64_t all[] = {key.lo,     key.hi,  value.lo,      value.hi,
                            pair->type, pair->n, pair->is_array};

    return bt_hash128(all, sizeof(all), 0);
}

static bt_hash128_t hash_of_tensor(const bt_gguf_tensor_t *tensor)
{
    const bt_hash128_t name =
        bt_hash128(tensor->name.data, tensor->name.len, 0);
    uint64_t all[2 + BT_GGUF_MAX_DIMS] = {name.lo, name.hi};

    memcpy(all + 2, tensor->dims, sizeof(tensor->dims));
    return bt_hash128(all, sizeof(all), 0);
}

/* Adds to a hash that does not depend on the order of what is added. */
static void add(bt_hash128_t *sum, bt_hash128_t one)
{
    sum->lo += one.lo;
    sum->hi += one.hi;
}

bt_weights_form_t bt_weights_form_of(const bt_gguf_t *gguf)
{
    bt_weights_form_t form = {0};

    for (uint64_t i = 0; i < bt_gguf_n_pairs(gguf); i++) {
        const bt_gguf_pair_t pair = bt_gguf_pair_at(gguf, i);

        if (begins(pair.key, "tokenizer.chat_template")) {
            continue; /* the router's */
        }
        if (begins(pair.key, "tokenizer.")) {
            add(&form.tokenizer, hash_of_pair(&pair));
        } else if (begins(pair.key, "general.architecture") ||
                   (!begins(pair.key, "general.") &&
                    !begins(pair.key, "quantize.") &&
                    !begins(pair.key, "split."))) {
            add(&form.settings, hash_of_pair(&pair));
        }
    }
    for (uint64_t i = 0; i < bt_gguf_n_tensors(gguf); i++) {
        add(&form.tensors, hash_of_tensor(bt_gguf_tensor_at(gguf, i)));
    }
    return form;
}

const char *bt_weights_form_differs(const bt_weights_form_t *form,
                                    const bt_weights_form_t *other)
{
    if (!bt_hash128_equal(form->tokenizer, other->tokenizer)) {
        return "it has another tokenizer than the model that is served";
    }
    if (!bt_hash128_equal(form->settings, other->settings)) {
        return "it has other settings than the model that is served";
    }
    if (!bt_hash128_equal(form->tensors, other->tensors)) {
        return "its tensors have other names or shapes than those of the model "
               "that is served";
    }
    return NULL;
}

bt_status_t bt_weights_resolve(const char *folder, const char *path,
                               char out[BT_WIRE_MAX_PATH], char *why,
                               size_t why_bytes)
{
    return bt_config_resolve("--allow-weight-updates", folder, path, out,
                             BT_WIRE_MAX_PATH, why, why_bytes);
}

/* ---- a look at a file ---- */

struct bt_weights_look {
    pthread_t thread;
    atomic_bool is_over;
    bt_msg_weights_t order;
    bt_worker_link_t *from; /* NULL: gone */
    const char *folder;
    bt_weights_form_t form; /* of the weights in use */
    const bt_weights_trial_ops_t *ops;
    void *trial;
    /* Results. */
    char path[BT_WIRE_MAX_PATH];
    bt_msg_weights_checked_t checked;
};

static bt_status_t look_at(bt_weights_look_t *look, char *why, size_t why_bytes)
{
    bt_gguf_t *gguf = NULL;
    bt_weights_form_t form;
    const char *difference;
    bt_status_t status = bt_weights_resolve(
        look->folder, look->order.weights.path, look->path, why, why_bytes);

    if (status == BT_OK) {
        status = bt_modelfile_open(look->path, why, why_bytes, &gguf);
    }
    if (status != BT_OK) {
        return status;
    }
    form = bt_weights_form_of(gguf);
    difference = bt_weights_form_differs(&look->form, &form);
    if (difference != NULL) {
        snprintf(why, why_bytes, "%s", difference);
        status = BT_ERR_MISMATCH;
    } else {
        look->checked.model = bt_gguf_identity(gguf);
    }
    bt_gguf_close(gguf);
    if (status != BT_OK) {
        return status;
    }
    status = look->ops->run(look->trial, look->path);
    if (status != BT_OK) {
        snprintf(why, why_bytes,
                 "the worker cannot start with it (%s); its log has the reason",
                 bt_status_str(status));
    }
    return status;
}

static void free_look(bt_weights_look_t *look)
{
    look->ops->destroy(look->trial);
    bt_free(look);
}

static void *run_look(void *arg)
{
    bt_weights_look_t *look = arg;

    look->checked.update = look->order.weights.update;
    look->checked.status =
        look_at(look, look->checked.text, sizeof(look->checked.text));
    atomic_store(&look->is_over, true);
    return NULL;
}

static void send_checked(bt_worker_t *w, bt_worker_link_t *to,
                         const bt_msg_weights_checked_t *checked)
{
    const bt_msg_t msg = {.type = BT_MSG_WEIGHTS_CHECKED,
                          .u.weights_checked = *checked};

    bt_worker_send(w, to, &msg);
}

static void refuse(bt_worker_t *w, bt_worker_link_t *from,
                   const bt_msg_weights_t *order, bt_status_t status,
                   const char *why)
{
    bt_msg_weights_checked_t checked = {.update = order->weights.update,
                                        .status = status};

    snprintf(checked.text, sizeof(checked.text), "%s", why);
    BT_LOG_WARN("weights %s at %s are refused: %s", order->weights.version,
                order->weights.path, why);
    send_checked(w, from, &checked);
}

/* The reason was logged when they failed. */
static void refuse_failed(bt_worker_t *w, bt_worker_link_t *from,
                          const bt_msg_weights_t *order)
{
    bt_msg_weights_checked_t checked = {.update = order->weights.update,
                                        .status = w->weights.failed_status};

    snprintf(checked.text, sizeof(checked.text),
             "they could not be loaded (%s); the worker's log has the reason",
             bt_status_str(w->weights.failed_status));
    send_checked(w, from, &checked);
}

static void begin_look(bt_worker_t *w, bt_worker_link_t *from,
                       const bt_msg_weights_t *order)
{
    bt_weights_look_t *look = bt_calloc(1, sizeof(*look));

    if (look != NULL) {
        look->ops = w->weights.trial;
        look->trial = look->ops->create(w);
    }
    if ((look == NULL) || (look->trial == NULL)) {
        bt_free(look);
        refuse(w, from, order, BT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    look->order = *order;
    look->from = from;
    look->folder = w->config->allow_weight_updates;
    look->form = w->weights.form;
    if (pthread_create(&look->thread, NULL, run_look, look) != 0) {
        free_look(look);
        refuse(w, from, order, BT_ERR_NO_MEMORY, "no thread can be started");
        return;
    }
    w->weights.look = look;
}

/* ---- orders ---- */

static void drain_for(bt_worker_t *w, const bt_wire_weights_t *weights,
                      const char *path)
{
    BT_LOG_INFO("weights %s are to be loaded from %s, %u requests left",
                weights->version, path, w->n_jobs);
    w->weights.are_due = true;
    w->weights.next = *weights;
    memcpy(w->weights.next.path, path, strlen(path) + 1);
    bt_admin_state_send(w);
}

/* Several routers send equal orders. */
static bool is_done(const bt_worker_t *w, const bt_msg_weights_t *order)
{
    return (order->loads != 0) &&
           ((order->weights.update <= w->weights.now.update) ||
            (w->weights.are_due &&
             (order->weights.update <= w->weights.next.update)));
}

void bt_weights_on_order(bt_worker_t *w, bt_worker_link_t *from,
                         const bt_msg_weights_t *order)
{
    bt_weights_waiting_t *waiting =
        &w->weights.waiting[(order->loads != 0) ? 1 : 0];

    if (!w->weights.are_replaceable) {
        refuse(w, from, order, BT_ERR_UNSUPPORTED,
               "this worker replaces no weights (--allow-weight-updates)");
    } else if (order->weights.update == w->weights.failed_update) {
        refuse_failed(w, from, order);
    } else if (is_done(w, order)) {
        return;
    } else if (w->weights.look == NULL) {
        begin_look(w, from, order);
    } else if (!waiting->is_set ||
               (waiting->order.weights.update <= order->weights.update)) {
        *waiting = (bt_weights_waiting_t){
            .is_set = true, .order = *order, .from = from};
    }
}

static void take(bt_worker_t *w, bt_weights_look_t *look)
{
    const bt_msg_weights_t *order = &look->order;

    if (look->checked.status != BT_OK) {
        BT_LOG_WARN("weights %s at %s are refused: %s", order->weights.version,
                    order->weights.path, look->checked.text);
    } else if (order->loads != 0) {
        if (!is_done(w, order)) {
            drain_for(w, &order->weights, look->path);
        }
        return;
    }
    send_checked(w, look->from, &look->checked);
}

void bt_weights_step(bt_worker_t *w)
{
    bt_weights_look_t *look = w->weights.look;

    if ((look == NULL) || !atomic_load(&look->is_over)) {
        return;
    }
    (void)pthread_join(look->thread, NULL);
    w->weights.look = NULL;
    take(w, look);
    free_look(look);
    for (uint32_t loads = 2; (loads-- > 0) && (w->weights.look == NULL);) {
        bt_weights_waiting_t *waiting = &w->weights.waiting[loads];

        if (waiting->is_set) {
            waiting->is_set = false;
            bt_weights_on_order(w, waiting->from, &waiting->order);
        }
    }
}

void bt_weights_router_gone(bt_worker_t *w, const bt_worker_link_t *from)
{
    for (uint32_t loads = 0; loads < 2; loads++) {
        if (w->weights.waiting[loads].from == from) {
            w->weights.waiting[loads].from = NULL;
        }
    }
    if ((w->weights.look != NULL) && (w->weights.look->from == from)) {
        w->weights.look->from = NULL;
    }
}

void bt_weights_close(bt_worker_t *w)
{
    bt_weights_look_t *look = w->weights.look;

    if (look != NULL) {
        (void)pthread_join(look->thread, NULL);
        free_look(look);
    }
    w->weights.look = NULL;
    for (uint32_t loads = 0; loads < 2; loads++) {
        w->weights.waiting[loads].is_set = false;
    }
}

bt_status_t bt_weights_opened(bt_worker_t *w, const bt_gguf_t *gguf)
{
    bt_weights_form_t form;
    const char *difference;

    if (!w->weights.are_replaceable) {
        return BT_OK;
    }
    form = bt_weights_form_of(gguf);
    if (w->weights.now.update != 0) {
        difference = bt_weights_form_differs(&w->weights.form, &form);
        if (difference != NULL) {
            BT_LOG_ERROR("weights %s at %s have changed since they were looked "
                         "at: %s",
                         w->weights.now.version, w->weights.now.path,
                         difference);
            return BT_ERR_MISMATCH;
        }
    }
    w->weights.form = form;
    w->weights.model = bt_gguf_identity(gguf);
    if (w->weights.now.update == 0) {
        w->weights.base = w->weights.model;
    }
    return BT_OK;
}

bool bt_weights_failed(bt_worker_t *w, bt_status_t status)
{
    if ((w->weights.now.update == 0) || (status == BT_ERR_CANCELED)) {
        return false;
    }
    BT_LOG_ERROR("weights %s could not be loaded from %s (%s): starting again "
                 "with those of --model",
                 w->weights.now.version, w->weights.now.path,
                 bt_status_str(status));
    w->weights.failed_update = w->weights.now.update;
    w->weights.failed_status = status;
    w->weights.next = (bt_wire_weights_t){0};
    w->weights.are_due = true;
    return true;
}
