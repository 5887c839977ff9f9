/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/trap_backend.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "kernels/batch.h"
#include "tests/support/reference_draw.h"

#define ALIGN     64u
#define QUESTIONS 2u /* until a copy ends */

/* In front of each buffer, in the memory itself. */
typedef struct head {
    size_t bytes; /* of the buffer with its head */
} head_t;

typedef struct copy {
    void *dst; /* as the copier may write and read it */
    const void *src;
    size_t bytes;
    uint32_t n_asked;
    bool under_way;
} copy_t;

typedef struct trap {
    bt_backend_t base; /* first */
    bt_kernels_ops_t ops;
    bt_kernels_caps_t caps;
    bt_backend_t *cpu;
    uint8_t *address; /* no permission */
    uint8_t *bytes;   /* the same memory */
    size_t used;      /* buffers lie below */
    uint32_t n_buffers;
    copy_t *copies; /* by ticket; owned, NULL: no copier is open */
    uint32_t n_copies;
    bt_batch_limits_t limits;
    uint32_t *host_words;  /* an upload is packed here */
    uint32_t *words;       /* own memory: its address */
    bt_batch_t batch;      /* of the last upload: made of words alone */
    bt_ragged_seq_t *seqs; /* its */
    bt_draw_t *draws;      /* its, whose edits are where theirs begin */
    uint64_t n_uploads;
    uint64_t n_batch_operations;
    uint64_t n_copies_out;
    uint64_t bytes_out;
    uint8_t *sent; /* of each slot, until it is waited for; NULL: none */
    uint8_t *slots;
    size_t slot_bytes;
    uint32_t n_under_way, most_under_way; /* slots that were sent */
    uint32_t wait_fails_in;               /* waits, the last one; 0: none */
    void (*before_matmul)(void *ctx);
    void *hook_ctx;
    uint32_t matmul_ms;    /* that each takes longer */
    const char *hang_path; /* NULL: no product hangs */
} trap_t;

static trap_t *trap_of(bt_backend_t *be)
{
    return (trap_t *)(void *)be;
}

static bt_backend_t *cpu_of(bt_backend_t *be)
{
    return trap_of(be)->cpu;
}

/* Where the memory at an address can be reached. */
static void *reach(const trap_t *t, const void *ptr)
{
    const size_t at = (size_t)((const uint8_t *)ptr - t->address);

    BT_ASSERT_ALWAYS(at < t->used);
    return t->bytes + at;
}

static float *floats(bt_backend_t *be, const float *ptr)
{
    return reach(trap_of(be), ptr);
}

/* ---- memory ---- */

static bt_status_t buffer_alloc(bt_backend_t *be, size_t bytes, void **ptr_p)
{
    trap_t *t = trap_of(be);
    const size_t need = ALIGN + (bytes + ALIGN - 1) / ALIGN * ALIGN;

    if ((bytes > BT_TRAP_MEMORY_BYTES) ||
        (need > BT_TRAP_MEMORY_BYTES - t->used)) {
        return BT_ERR_NO_MEMORY;
    }
    ((head_t *)(void *)(t->bytes + t->used))->bytes = need;
    memset(t->bytes + t->used + ALIGN, 0, need - ALIGN);
    *ptr_p = t->address + t->used + ALIGN;
    t->used += need;
    t->n_buffers++;
    return BT_OK;
}

/* The last buffer's place comes back at once, all others' with the last. */
static void buffer_free(bt_backend_t *be, void *ptr)
{
    trap_t *t = trap_of(be);
    uint8_t *begin;

    if (ptr == NULL) {
        return;
    }
    begin = (uint8_t *)reach(t, ptr) - ALIGN;
    if (begin + ((head_t *)(void *)begin)->bytes == t->bytes + t->used) {
        t->used = (size_t)(begin - t->bytes);
    }
    t->used = (--t->n_buffers == 0) ? 0 : t->used;
}

static bt_status_t copy_in(bt_backend_t *be, void *dst, const void *src,
                           size_t bytes)
{
    if (bytes > 0) {
        memcpy(reach(trap_of(be), dst), src, bytes);
    }
    return BT_OK;
}

static bt_status_t copy_out(bt_backend_t *be, void *dst, const void *src,
                            size_t bytes)
{
    if (bytes > 0) {
        memcpy(dst, reach(trap_of(be), src), bytes);
    }
    trap_of(be)->n_copies_out++;
    trap_of(be)->bytes_out += bytes;
    return BT_OK;
}

static void clear(bt_backend_t *be, void *ptr, size_t bytes)
{
    memset(reach(trap_of(be), ptr), 0, bytes);
}

static bt_status_t sync_nothing(bt_backend_t *be)
{
    (void)be;
    return BT_OK;
}

static bt_status_t memory_left(bt_backend_t *be, uint64_t *bytes_p)
{
    *bytes_p = BT_TRAP_MEMORY_BYTES - trap_of(be)->used;
    return BT_OK;
}

/* ---- tables of a batch ---- */

static void batch_free(trap_t *t)
{
    buffer_free(&t->base, t->words);
    bt_free(t->host_words);
    bt_free(t->seqs);
    bt_free(t->draws);
}

static bt_status_t batch_reserve(bt_backend_t *be,
                                 const bt_batch_limits_t *limits)
{
    const size_t n_words = bt_batch_max_words(limits);
    uint32_t *host_words = bt_calloc(n_words, sizeof(*host_words));
    bt_ragged_seq_t *seqs = bt_calloc(limits->max_seqs, sizeof(*seqs));
    bt_draw_t *draws = bt_calloc(limits->max_draws + 1, sizeof(*draws));
    trap_t *t = trap_of(be);
    void *words = NULL;

    if ((host_words == NULL) || (seqs == NULL) || (draws == NULL) ||
        (buffer_alloc(be, n_words * sizeof(uint32_t), &words) != BT_OK)) {
        bt_free(host_words);
        bt_free(seqs);
        bt_free(draws);
        return BT_ERR_NO_MEMORY;
    }
    batch_free(t);
    t->host_words = host_words;
    t->seqs = seqs;
    t->draws = draws;
    t->words = words;
    t->limits = *limits;
    return BT_OK;
}

/* Of the batch, out of its words. */
static void find_draws(trap_t *t, const bt_batch_t *batch,
                       const bt_batch_layout_t *at)
{
    uint32_t *const words = reach(t, t->words);

    t->batch.draws = t->draws;
    t->batch.edits = (bt_draw_edit_t *)(void *)(words + at->edit);
    t->batch.scorings =
        (const bt_scoring_t *)(const void *)(words + at->scoring);
    t->batch.n_draws = batch->n_draws;
    t->batch.n_edits = batch->n_edits;
    t->batch.n_scorings = batch->n_scorings;
    memcpy(t->draws, words + at->draw, batch->n_draws * sizeof(*t->draws));
    for (uint32_t i = 0; i < batch->n_draws; i++) {
        t->draws[i].first_edit =
            (uint32_t)((t->draws[i].first_edit - at->edit) /
                       BT_BATCH_EDIT_WORDS);
    }
}

static bt_status_t batch_begin(bt_backend_t *be, const bt_batch_t *batch)
{
    const bt_batch_layout_t at = bt_batch_layout(batch);
    trap_t *t = trap_of(be);
    const uint32_t *words;

    if ((t->words == NULL) || !bt_batch_fits(batch, &t->limits)) {
        return BT_ERR_INVALID_PARAM;
    }
    bt_batch_pack(batch, t->host_words);
    (void)copy_in(be, t->words, t->host_words, at.n_words * sizeof(uint32_t));
    memset(t->host_words, 0xee, at.n_words * sizeof(uint32_t));
    t->n_uploads++;
    words = reach(t, t->words);
    t->batch = (bt_batch_t){
        .tokens = words + at.token,
        .seqs = t->seqs,
        .logit_rows = words + at.logit_row,
        .n_rows = batch->n_rows,
        .n_seqs = batch->n_seqs,
        .n_logit_rows = batch->n_logit_rows,
        .tokens_per_block = batch->tokens_per_block,
        .n_other_groups = batch->n_other_groups,
        .from_ids = (batch->from_ids == NULL) ? NULL : words + at.from_id,
    };
    for (uint32_t s = 0; s < batch->n_seqs; s++) {
        const uint32_t *seq = words + at.seq + (size_t)BT_BATCH_SEQ_WORDS * s;

        t->seqs[s] = (bt_ragged_seq_t){.row = seq[0],
                                       .n_rows = seq[1],
                                       .pos = seq[2],
                                       .blocks = words + at.id + seq[3]};
    }
    find_draws(t, batch, &at);
    return BT_OK;
}

/* The batch as uploaded. What the caller gave is not looked at. */
static const bt_batch_t *uploaded(bt_backend_t *be)
{
    trap_t *t = trap_of(be);

    BT_ASSERT_ALWAYS(t->n_uploads > 0);
    t->n_batch_operations++;
    return &t->batch;
}

static void take_tokens(bt_backend_t *be, const bt_batch_t *batch,
                        const uint32_t *ids)
{
    const uint32_t *from = uploaded(be)->from_ids;
    uint32_t *tokens = (uint32_t *)reach(trap_of(be), trap_of(be)->words) +
                       bt_batch_layout(batch).token;

    for (uint32_t r = 0; (from != NULL) && (r < batch->n_rows); r++) {
        if (from[r] != UINT32_MAX) {
            tokens[r] = *(const uint32_t *)reach(trap_of(be), ids + from[r]);
        }
    }
}

/* ---- words that come back ---- */

static void send(void *user, uint32_t slot, const void *src, size_t bytes)
{
    trap_t *t = user;

    BT_ASSERT_ALWAYS(bytes <= t->slot_bytes);
    if (bytes > 0) {
        memcpy(t->sent + slot * t->slot_bytes, reach(t, src), bytes);
    }
    memset(t->slots + slot * t->slot_bytes, 0xee, t->slot_bytes);
    t->n_under_way++;
    if (t->n_under_way > t->most_under_way) {
        t->most_under_way = t->n_under_way;
    }
}

static bt_status_t wait_for(void *user, uint32_t slot, const void **host_p)
{
    trap_t *t = user;

    BT_ASSERT_ALWAYS(t->n_under_way > 0);
    t->n_under_way--;
    if ((t->wait_fails_in > 0) && (--t->wait_fails_in == 0)) {
        t->n_under_way = 0; /* nobody waits for the others */
        return BT_ERR_DEVICE;
    }
    memcpy(t->slots + slot * t->slot_bytes, t->sent + slot * t->slot_bytes,
           t->slot_bytes);
    *host_p = t->slots + slot * t->slot_bytes;
    return BT_OK;
}

static bt_status_t returns_open(bt_backend_t *be, uint32_t n_slots,
                                size_t bytes, bt_returns_t *returns_p)
{
    trap_t *t = trap_of(be);

    t->sent = bt_calloc(n_slots, bytes);
    t->slots = bt_calloc(n_slots, bytes);
    if ((t->sent == NULL) || (t->slots == NULL)) {
        bt_free(t->sent);
        bt_free(t->slots);
        return BT_ERR_NO_MEMORY;
    }
    t->slot_bytes = bytes;
    *returns_p = (bt_returns_t){
        .user = t, .n_slots = n_slots, .send = send, .wait = wait_for};
    return BT_OK;
}

static void returns_close(bt_returns_t *returns)
{
    trap_t *t = returns->user;

    if (t != NULL) {
        bt_free(t->sent);
        bt_free(t->slots);
        t->sent = t->slots = NULL;
        returns->user = NULL;
    }
}

/* ---- copier ---- */

static bt_status_t host_alloc(void *user, size_t bytes, void **ptr_p)
{
    (void)user;
    *ptr_p = bt_calloc_aligned(bytes, 1);
    return (*ptr_p == NULL) ? BT_ERR_NO_MEMORY : BT_OK;
}

static void host_free(void *user, void *ptr)
{
    (void)user;
    bt_free(ptr);
}

static bt_status_t copy_begin(trap_t *t, void *dst, const void *src,
                              size_t bytes, uint32_t ticket)
{
    BT_ASSERT_ALWAYS((ticket < t->n_copies) && !t->copies[ticket].under_way);
    t->copies[ticket] =
        (copy_t){.dst = dst, .src = src, .bytes = bytes, .under_way = true};
    return BT_OK;
}

static bt_status_t to_host(void *user, void *host, const void *device,
                           size_t bytes, uint32_t ticket)
{
    return copy_begin(user, host, reach(user, device), bytes, ticket);
}

static bt_status_t to_device(void *user, void *device, const void *host,
                             size_t bytes, uint32_t ticket)
{
    return copy_begin(user, reach(user, device), host, bytes, ticket);
}

static void copy_end(copy_t *c)
{
    memcpy(c->dst, c->src, c->bytes);
    c->under_way = false;
}

static bt_status_t query(void *user, uint32_t ticket)
{
    copy_t *c = &((trap_t *)user)->copies[ticket];

    BT_ASSERT_ALWAYS(c->under_way);
    if (++c->n_asked < QUESTIONS) {
        return BT_INPROGRESS;
    }
    copy_end(c);
    return BT_OK;
}

static void wait_all(void *user)
{
    trap_t *t = user;

    for (uint32_t i = 0; i < t->n_copies; i++) {
        if (t->copies[i].under_way) {
            copy_end(&t->copies[i]);
        }
    }
}

static bt_status_t copier_open(bt_backend_t *be, uint32_t n_tickets,
                               bt_copier_t *copier_p)
{
    trap_t *t = trap_of(be);

    BT_ASSERT_ALWAYS(t->copies == NULL);
    t->copies = bt_calloc(n_tickets, sizeof(*t->copies));
    if (t->copies == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    t->n_copies = n_tickets;
    *copier_p = (bt_copier_t){.user = t,
                              .n_tickets = n_tickets,
                              .host_alloc = host_alloc,
                              .host_free = host_free,
                              .to_host = to_host,
                              .to_device = to_device,
                              .query = query,
                              .wait_all = wait_all};
    return BT_OK;
}

static void copier_close(bt_copier_t *copier)
{
    trap_t *t = copier->user;

    for (uint32_t i = 0; i < t->n_copies; i++) {
        BT_ASSERT_ALWAYS(!t->copies[i].under_way);
    }
    bt_free(t->copies);
    t->copies = NULL;
    copier->user = NULL;
}

/* ---- operations ---- */

static bt_status_t weight_pack(bt_backend_t *be, bt_ktype_t type,
                               uint32_t n_out, uint32_t n_in, const void *data,
                               bt_weight_t **weight_p)
{
    return cpu_of(be)->ops->weight_pack(cpu_of(be), type, n_out, n_in, data,
                                        weight_p);
}

static void weight_free(bt_backend_t *be, bt_weight_t *weight)
{
    cpu_of(be)->ops->weight_free(cpu_of(be), weight);
}

static void embed(bt_backend_t *be, const bt_weight_t *w,
                  const bt_batch_t *batch, float *out)
{
    (void)batch;
    cpu_of(be)->ops->embed(cpu_of(be), w, uploaded(be), floats(be, out));
}

static void wait_ms(uint32_t ms)
{
    const struct timespec time = {.tv_sec = ms / 1000,
                                  .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

/* What the product has to wait for, as tests want it. */
static void hold(const trap_t *t)
{
    if (t->before_matmul != NULL) {
        t->before_matmul(t->hook_ctx);
    }
    if (t->matmul_ms > 0) {
        wait_ms(t->matmul_ms);
    }
    while ((t->hang_path != NULL) && (access(t->hang_path, F_OK) == 0)) {
        wait_ms(10);
    }
}

static void matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                   uint32_t n_rows, float *out)
{
    hold(trap_of(be));
    cpu_of(be)->ops->matmul(cpu_of(be), w, floats(be, x), n_rows,
                            floats(be, out));
}

static void rmsnorm(bt_backend_t *be, const float *x, const float *weight,
                    float eps, uint32_t n_rows, uint32_t dim, float *out)
{
    cpu_of(be)->ops->rmsnorm(cpu_of(be), floats(be, x), floats(be, weight), eps,
                             n_rows, dim, floats(be, out));
}

static bt_kv_view_t own_view(bt_backend_t *be, const bt_kv_view_t *kv)
{
    bt_kv_view_t own = *kv;

    own.base = reach(trap_of(be), kv->base);
    return own;
}

static void rope_store(bt_backend_t *be, float *qkv, uint32_t n_heads,
                       const bt_rotation_t *rotation, const bt_batch_t *batch,
                       const bt_kv_view_t *kv, uint32_t layer)
{
    const bt_kv_view_t own = own_view(be, kv);
    bt_rotation_t own_r = *rotation;

    (void)batch;
    if (rotation->dims > 0) {
        own_r.cos_sin = floats(be, rotation->cos_sin);
    }
    cpu_of(be)->ops->rope_store(cpu_of(be), floats(be, qkv), n_heads, &own_r,
                                uploaded(be), &own, layer);
}

static void layer_norm(bt_backend_t *be, const float *x, const float *weight,
                       const float *bias, float eps, uint32_t n_rows,
                       uint32_t dim, float *out)
{
    cpu_of(be)->ops->layer_norm(cpu_of(be), floats(be, x), floats(be, weight),
                                (bias == NULL) ? NULL : floats(be, bias), eps,
                                n_rows, dim, floats(be, out));
}

static void head_norm(bt_backend_t *be, float *x, const float *weight,
                      float eps, uint32_t n_rows, size_t row_floats, size_t at,
                      uint32_t n_heads, uint32_t dim)
{
    cpu_of(be)->ops->head_norm(cpu_of(be), floats(be, x), floats(be, weight),
                               eps, n_rows, row_floats, at, n_heads, dim);
}

static void add_positions(bt_backend_t *be, const bt_weight_t *w,
                          const bt_batch_t *batch, float *x)
{
    (void)batch;
    cpu_of(be)->ops->add_positions(cpu_of(be), w, uploaded(be), floats(be, x));
}

/* The same tables, with addresses that the CPU can reach. */
static bt_expert_rows_t reached(bt_backend_t *be, const bt_expert_rows_t *rows)
{
    const trap_t *const t = trap_of(be);
    bt_expert_rows_t real = *rows;

    real.ids = reach(t, rows->ids);
    real.weights = reach(t, rows->weights);
    real.slots = reach(t, rows->slots);
    real.first = reach(t, rows->first);
    real.rows = reach(t, rows->rows);
    return real;
}

static void route(bt_backend_t *be, const bt_routing_t *routing, const float *z,
                  uint32_t n_rows, const bt_expert_rows_t *rows)
{
    const bt_expert_rows_t real = reached(be, rows);
    bt_routing_t own = *routing;

    own.bias = (own.bias != NULL) ? floats(be, own.bias) : NULL;
    cpu_of(be)->ops->route(cpu_of(be), &own, floats(be, z), n_rows, &real);
}

static void matmul_experts(bt_backend_t *be, const bt_weight_t *const *weights,
                           uint32_t n_weights, const bt_expert_rows_t *rows,
                           uint32_t n_rows, const float *x, bool by_row,
                           float *out)
{
    const bt_expert_rows_t real = reached(be, rows);

    cpu_of(be)->ops->matmul_experts(cpu_of(be), weights, n_weights, &real,
                                    n_rows, floats(be, x), by_row,
                                    floats(be, out));
}

static void add_expert_bias(bt_backend_t *be, const bt_expert_rows_t *rows,
                            uint32_t n_rows, const float *bias, uint32_t dim,
                            float *x)
{
    const bt_expert_rows_t real = reached(be, rows);

    cpu_of(be)->ops->add_expert_bias(cpu_of(be), &real, n_rows,
                                     floats(be, bias), dim, floats(be, x));
}

static void gate_rows(bt_backend_t *be, float *x, const float *z,
                      uint32_t n_rows, uint32_t dim)
{
    cpu_of(be)->ops->gate_rows(cpu_of(be), floats(be, x), floats(be, z), n_rows,
                               dim);
}

static void combine(bt_backend_t *be, const bt_expert_rows_t *rows,
                    uint32_t n_rows, const float *x, uint32_t dim, float *out)
{
    const bt_expert_rows_t real = reached(be, rows);

    cpu_of(be)->ops->combine(cpu_of(be), &real, n_rows, floats(be, x), dim,
                             floats(be, out));
}

static void activate(bt_backend_t *be, bt_activation_t act, bool gated,
                     const float *x, uint32_t n_rows, uint32_t dim, float *out)
{
    cpu_of(be)->ops->activate(cpu_of(be), act, gated, floats(be, x), n_rows,
                              dim, floats(be, out));
}

static void add_bias(bt_backend_t *be, float *x, const float *bias,
                     uint32_t n_rows, uint32_t dim)
{
    cpu_of(be)->ops->add_bias(cpu_of(be), floats(be, x), floats(be, bias),
                              n_rows, dim);
}

static void scale(bt_backend_t *be, float *x, float factor, size_t n)
{
    cpu_of(be)->ops->scale(cpu_of(be), floats(be, x), factor, n);
}

static void soft_cap(bt_backend_t *be, float *x, float cap, size_t n)
{
    cpu_of(be)->ops->soft_cap(cpu_of(be), floats(be, x), cap, n);
}

static void clamp(bt_backend_t *be, float *x, float limit, size_t n)
{
    cpu_of(be)->ops->clamp(cpu_of(be), floats(be, x), limit, n);
}

static void scale_positions(bt_backend_t *be, float *x, const float *factors,
                            const bt_batch_t *batch, size_t row_floats,
                            uint32_t dim)
{
    (void)batch;
    cpu_of(be)->ops->scale_positions(cpu_of(be), floats(be, x),
                                     floats(be, factors), uploaded(be),
                                     row_floats, dim);
}

static void attention(bt_backend_t *be, const bt_attention_t *a,
                      const float *qkv, const bt_batch_t *batch,
                      const bt_kv_view_t *kv, uint32_t layer, float *out)
{
    const bt_kv_view_t own = own_view(be, kv);
    bt_attention_t own_a = *a;

    (void)batch;
    own_a.sinks = (a->sinks == NULL) ? NULL : floats(be, a->sinks);
    own_a.slopes = (a->slopes == NULL) ? NULL : floats(be, a->slopes);
    cpu_of(be)->ops->attention(cpu_of(be), &own_a, floats(be, qkv),
                               uploaded(be), &own, layer, floats(be, out));
}

static void add(bt_backend_t *be, float *x, const float *y, size_t n)
{
    cpu_of(be)->ops->add(cpu_of(be), floats(be, x), floats(be, y), n);
}

static void gather_rows(bt_backend_t *be, const float *x,
                        const bt_batch_t *batch, uint32_t dim, float *out)
{
    (void)batch;
    cpu_of(be)->ops->gather_rows(cpu_of(be), floats(be, x), uploaded(be), dim,
                                 floats(be, out));
}

static void copy_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                         uint32_t dim, float *out, uint32_t out_dim,
                         uint32_t at)
{
    cpu_of(be)->ops->copy_columns(cpu_of(be), floats(be, x), n_rows, dim,
                                  floats(be, out), out_dim, at);
}

static void cut_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                        uint32_t x_dim, uint32_t at, uint32_t dim, float *out)
{
    cpu_of(be)->ops->cut_columns(cpu_of(be), floats(be, x), n_rows, x_dim, at,
                                 dim, floats(be, out));
}

static void argmax(bt_backend_t *be, const float *x, uint32_t n_rows,
                   uint32_t dim, uint32_t *ids)
{
    cpu_of(be)->ops->argmax(cpu_of(be), floats(be, x), n_rows, dim,
                            reach(trap_of(be), ids));
}

static void top(bt_backend_t *be, const float *x, uint32_t n_rows, uint32_t dim,
                uint32_t k, uint32_t *ids, float *values)
{
    bt_reference_top(floats(be, x), n_rows, dim, k, reach(trap_of(be), ids),
                     floats(be, values));
}

static void draw(bt_backend_t *be, float *logits, const bt_batch_t *batch,
                 uint32_t dim, uint32_t *ids)
{
    (void)batch;
    bt_reference_draw(floats(be, logits), uploaded(be), dim,
                      reach(trap_of(be), ids));
}

static void score(bt_backend_t *be, const float *logits,
                  const bt_batch_t *batch, uint32_t dim, const uint32_t *ids,
                  bt_scored_t *out)
{
    (void)batch;
    bt_reference_score(floats(be, logits), uploaded(be), dim,
                       reach(trap_of(be), ids), reach(trap_of(be), out));
}

static void trap_close(bt_backend_t *be)
{
    trap_t *t = trap_of(be);

    batch_free(t);
    BT_ASSERT_ALWAYS((t->n_buffers == 0) && (t->copies == NULL) &&
                     (t->slots == NULL));
    bt_backend_close(t->cpu);
    munmap(t->address, BT_TRAP_MEMORY_BYTES);
    munmap(t->bytes, BT_TRAP_MEMORY_BYTES);
    bt_free(t);
}

static const bt_kernels_ops_t trap_ops = {
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .clear = clear,
    .sync = sync_nothing,
    .memory_left = memory_left,
    .batch_reserve = batch_reserve,
    .batch_begin = batch_begin,
    .take_tokens = take_tokens,
    .weight_pack = weight_pack,
    .weight_free = weight_free,
    .embed = embed,
    .matmul = matmul,
    .rmsnorm = rmsnorm,
    .layer_norm = layer_norm,
    .head_norm = head_norm,
    .rope_store = rope_store,
    .add_positions = add_positions,
    .attention = attention,
    .route = route,
    .matmul_experts = matmul_experts,
    .add_expert_bias = add_expert_bias,
    .gate_rows = gate_rows,
    .combine = combine,
    .activate = activate,
    .add_bias = add_bias,
    .scale = scale,
    .soft_cap = soft_cap,
    .clamp = clamp,
    .scale_positions = scale_positions,
    .add = add,
    .gather_rows = gather_rows,
    .copy_columns = copy_columns,
    .cut_columns = cut_columns,
    .argmax = argmax,
    .top = top,
    .draw = draw,
    .score = score,
    .close = trap_close,
    .copier_open = copier_open,
    .copier_close = copier_close,
    .returns_open = returns_open,
    .returns_close = returns_close,
};

static bt_status_t map_twice(trap_t *t)
{
    const int fd = memfd_create("trap", MFD_CLOEXEC);

    if (fd < 0) {
        return BT_ERR_NO_MEMORY;
    }
    if (ftruncate(fd, (off_t)BT_TRAP_MEMORY_BYTES) != 0) {
        close(fd);
        return BT_ERR_NO_MEMORY;
    }
    t->address = mmap(NULL, BT_TRAP_MEMORY_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
    t->bytes = mmap(NULL, BT_TRAP_MEMORY_BYTES, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    if ((t->address == MAP_FAILED) || (t->bytes == MAP_FAILED)) {
        return BT_ERR_NO_MEMORY; /* a test ends here: what is left is its */
    }
    return BT_OK;
}

bt_status_t bt_trap_backend_open(const bt_backend_config_t *config,
                                 bt_backend_t **be_p)
{
    trap_t *t = bt_calloc(1, sizeof(*t));
    bt_status_t status;

    if (t == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status = bt_backend_open("cpu", config, &t->cpu);
    if (status != BT_OK) {
        goto err_trap;
    }
    status = map_twice(t);
    if (status != BT_OK) {
        goto err_cpu;
    }
    if (getenv("BATON_TRAP_MATMUL_MS") != NULL) {
        t->matmul_ms =
            (uint32_t)strtoul(getenv("BATON_TRAP_MATMUL_MS"), NULL, 10);
    }
    t->hang_path = getenv("BATON_TRAP_HANG");
    t->ops = trap_ops;
    t->ops.weight_bytes = t->cpu->ops->weight_bytes;
    t->caps = *t->cpu->caps;
    t->caps.name = "test/trap";
    t->caps.pack_version = 0;
    t->caps.kv_align_bytes = ALIGN;
    t->base.ops = &t->ops;
    t->base.caps = &t->caps;
    *be_p = &t->base;
    return BT_OK;

err_cpu:
    bt_backend_close(t->cpu);
err_trap:
    bt_free(t);
    return status;
}

void bt_trap_before_matmul(bt_backend_t *be, void (*hook)(void *ctx), void *ctx)
{
    trap_of(be)->before_matmul = hook;
    trap_of(be)->hook_ctx = ctx;
}

uint64_t bt_trap_uploads(const bt_backend_t *be)
{
    return ((const trap_t *)(const void *)be)->n_uploads;
}

uint64_t bt_trap_batch_operations(const bt_backend_t *be)
{
    return ((const trap_t *)(const void *)be)->n_batch_operations;
}

uint64_t bt_trap_copies_out(const bt_backend_t *be)
{
    return ((const trap_t *)(const void *)be)->n_copies_out;
}

uint64_t bt_trap_bytes_out(const bt_backend_t *be)
{
    return ((const trap_t *)(const void *)be)->bytes_out;
}

void bt_trap_fail_wait(bt_backend_t *be, uint32_t number)
{
    trap_of(be)->wait_fails_in = number;
}

uint32_t bt_trap_most_under_way(const bt_backend_t *be)
{
    return ((const trap_t *)(const void *)be)->most_under_way;
}
