/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/start.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/thread.h"

#define POLL_MS           20
#define COPY_BUDGET_BYTES ((size_t)4 << 20)

typedef struct follow {
    bt_worker_t *w;
    const bt_start_t *s;
    bt_rank_link_t *to_lead;
    bt_strbuf_t frame;
    uint32_t *table; /* scratch: table of one sequence */
    uint32_t max_spans;
    bt_wire_region_t regions[BT_WIRE_MAX_REGIONS];
    bt_wire_rank_t ranks[BT_WIRE_MAX_RANKS];
    pthread_t compute;
    bt_status_t computed; /* result of the compute thread */
    _Atomic bool ended;
} follow_t;

static bt_strbuf_t *new_frame(follow_t *f)
{
    bt_strbuf_reset(&f->frame);
    return &f->frame;
}

static void say_event(follow_t *f, const bt_transfer_event_t *event)
{
    bt_strbuf_t *frame = new_frame(f);

    bt_strbuf_append(frame, event, sizeof(*event));
    if (event->type == BT_TRANSFER_PEER_LOST) { /* what its pointers lead to */
        bt_rank_put_text(frame, event->at);
        bt_rank_put_text(frame, event->why);
    }
    bt_rank_link_send(f->to_lead, BT_RANK_EVENT, event->id, frame);
}

/* ---- what rank 0 asks ---- */

static void on_peer(follow_t *f, uint64_t id, bt_rank_reader_t *reader)
{
    bt_transfer_event_t lost = {
        .type = BT_TRANSFER_PEER_LOST, .id = id, .at = ""};
    bt_rank_transfer_peer_t *peer;
    bt_kv_split_t theirs;
    bt_status_t status;
    uint32_t n;

    bt_rank_read(reader, &theirs, sizeof(theirs));
    n = bt_rank_read_ranks(reader, f->ranks);
    status = bt_rank_transfer_connect(f->w->rank_transfers, id, theirs,
                                      f->ranks, n, f, &peer);
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot reach another instance's KV pool: %s",
                     bt_status_str(status));
        lost.why = bt_status_str(status);
        say_event(f, &lost);
    }
}

static void on_admit(follow_t *f, bt_rank_reader_t *reader)
{
    const uint32_t n = bt_rank_read_ranks(reader, f->ranks);

    for (uint32_t i = 0; i < n; i++) {
        const bt_status_t status =
            bt_kvt_admit(f->w->kvt, f->ranks[i].kvt, f->ranks[i].kvt_bytes);

        if (status != BT_OK) {
            BT_LOG_ERROR("cannot receive KV from another instance: %s",
                         bt_status_str(status));
        }
    }
}

/* Reads ids of the spans [first, end) to their place in a whole table.
 * @return false: they are missing, or too many */
static bool read_table(follow_t *f, bt_rank_reader_t *reader, uint32_t first,
                       uint32_t end)
{
    const size_t n_groups = f->w->groups.n;

    if ((first > end) || (end > f->max_spans)) {
        return false;
    }
    bt_rank_read(reader, f->table + first * n_groups,
                 (end - first) * n_groups * sizeof(*f->table));
    return !reader->is_short;
}

static void make_ready(follow_t *f, uint32_t n_spans)
{
    const uint32_t n = n_spans * f->w->groups.n;
    uint64_t end = 0;

    for (uint32_t i = 0; i < n; i++) {
        if ((f->table[i] != BT_KV_NO_BLOCK) && (f->table[i] + 1ull > end)) {
            end = f->table[i] + 1ull;
        }
    }
    bt_kvt_pool_ready(f->w->kvt, end * f->w->block_bytes);
}

static void on_in_open(follow_t *f, uint64_t id, bt_rank_reader_t *reader)
{
    bt_status_t status = BT_ERR_BAD_MESSAGE;
    bt_rank_transfer_in_t *in;
    uint32_t n_regions = 0;
    bt_transfer_job_t job;
    uint32_t generation;
    bt_strbuf_t *frame;
    uint32_t n_spans;

    bt_rank_read(reader, &generation, sizeof(generation));
    bt_rank_read(reader, &job, sizeof(job));
    bt_rank_read(reader, &n_spans, sizeof(n_spans));
    if (read_table(f, reader, 0, n_spans)) {
        make_ready(f, n_spans);
        status = bt_rank_transfer_in_open(f->w->rank_transfers, id, generation,
                                          &job, f->table, n_spans, f,
                                          f->regions, &n_regions, &in);
    }
    frame = new_frame(f);
    bt_strbuf_append(frame, &status, sizeof(status));
    if (status == BT_OK) {
        bt_rank_put_regions(frame, f->regions, n_regions);
    }
    bt_rank_link_send(f->to_lead, BT_RANK_OPENED, id, frame);
}

static void on_out_begin(follow_t *f, uint64_t id, bt_rank_reader_t *reader)
{
    bt_transfer_event_t failed = {.type = BT_TRANSFER_OUT_DONE, .id = id};
    bt_rank_transfer_peer_t *peer;
    bt_rank_transfer_out_t *out;
    bt_transfer_job_t job;
    uint64_t peer_id;
    uint32_t n;

    bt_rank_read(reader, &peer_id, sizeof(peer_id));
    bt_rank_read(reader, &job, sizeof(job));
    n = bt_rank_read_regions(reader, f->regions, BT_WIRE_MAX_REGIONS);
    peer = bt_rank_transfer_find_peer(f->w->rank_transfers, peer_id);
    failed.status = (peer == NULL)
                        ? BT_ERR_PEER_LOST
                        : bt_rank_transfer_out_begin(peer, id, &job, f->regions,
                                                     n, f, &out);
    if (failed.status != BT_OK) {
        say_event(f, &failed);
    }
}

/* Cancels a transfer that failed; OUT_DONE reports it. */
static void check_out(bt_rank_transfer_out_t *out, bt_status_t status)
{
    if (status != BT_OK) {
        bt_rank_transfer_out_cancel(out);
    }
}

static void on_out_post(follow_t *f, bt_rank_transfer_out_t *out,
                        bt_rank_reader_t *reader)
{
    uint32_t head[4];

    bt_rank_read(reader, head, sizeof(head));
    check_out(out, read_table(f, reader, head[0], head[1])
                       ? bt_rank_transfer_out_post(out, f->table, head[0],
                                                   head[1], head[2], head[3])
                       : BT_ERR_BAD_MESSAGE);
}

/* A message about an open send. One that failed before is gone: no error. */
static void take_out_frame(follow_t *f, const bt_rank_frame_t *frame)
{
    bt_rank_transfer_out_t *out =
        bt_rank_transfer_find_out(f->w->rank_transfers, frame->id);
    bt_rank_reader_t reader = bt_rank_reader(frame);

    if (out == NULL) {
        return;
    }
    if (frame->kind == BT_RANK_OUT_POST) {
        on_out_post(f, out, &reader);
    } else if (frame->kind == BT_RANK_OUT_FINISH) {
        check_out(out,
                  bt_rank_transfer_out_finish(out, frame->data, frame->bytes));
    } else {
        bt_rank_transfer_out_cancel(out);
    }
}

static void take_frame(follow_t *f, const bt_rank_frame_t *frame)
{
    bt_rank_transfer_t *own = f->w->rank_transfers;
    bt_rank_reader_t reader = bt_rank_reader(frame);
    bt_rank_transfer_in_t *in;

    switch (frame->kind) {
    case BT_RANK_BEAT: /* handled before */
        break;
    case BT_RANK_PEER:
        on_peer(f, frame->id, &reader);
        break;
    case BT_RANK_PEER_GONE:
        bt_rank_transfer_disconnect(bt_rank_transfer_find_peer(own, frame->id));
        break;
    case BT_RANK_ADMIT:
        on_admit(f, &reader);
        break;
    case BT_RANK_IN_OPEN:
        on_in_open(f, frame->id, &reader);
        break;
    case BT_RANK_IN_CLOSE:
        in = bt_rank_transfer_find_in(own, frame->id);
        if (in != NULL) {
            bt_rank_transfer_in_close(in);
        }
        break;
    case BT_RANK_OUT_BEGIN:
        on_out_begin(f, frame->id, &reader);
        break;
    case BT_RANK_OUT_POST:
    case BT_RANK_OUT_FINISH:
    case BT_RANK_OUT_CANCEL:
        take_out_frame(f, frame);
        break;
    case BT_RANK_EXPORT:
    case BT_RANK_OPENED:
    case BT_RANK_EVENT:
        BT_LOG_WARN("rank 0: unexpected message of type %u",
                    (unsigned)frame->kind);
        break;
    }
}

/* ---- what happens here ---- */

static void take_kvt(follow_t *f, bool *busy_p)
{
    bt_kvt_event_t event;

    *busy_p = bt_kvt_progress(f->w->kvt, bt_now_ms(), COPY_BUDGET_BYTES);
    while (bt_kvt_poll(f->w->kvt, &event)) {
        bt_transfer_event_t own;

        if (bt_rank_transfer_take(&event, &own)) {
            say_event(f, &own);
        }
    }
}

static void turn(follow_t *f)
{
    struct pollfd fds[] = {{.fd = f->to_lead->fd, .events = POLLIN},
                           {.fd = bt_kvt_fd(f->w->kvt), .events = POLLIN}};
    bt_rank_frame_t frame;
    bool busy = false;

    while (bt_rank_link_next(f->to_lead, &frame)) {
        take_frame(f, &frame);
    }
    bt_rank_link_beat(f->to_lead, bt_now_ms(), f->w->config->heartbeat_ms,
                      f->w->config->dead_ms);
    take_kvt(f, &busy);
    if (!busy && (bt_kvt_arm(f->w->kvt) == BT_OK)) {
        (void)poll(fds, BT_ARRAY_LEN(fds), POLL_MS);
    }
}

static void *compute(void *arg)
{
    follow_t *f = arg;
    const bt_kv_view_t kv = bt_start_kv_view(f->w, f->s);

    bt_thread_works_long(f->s->n_cores > 0);
    f->computed =
        bt_model_follow(f->w->model, f->w->draft_model, &kv, &f->w->own_groups);
    atomic_store(&f->ended, true);
    return NULL;
}

/* ---- life ---- */

static bt_status_t say_export(follow_t *f, bt_start_t *s)
{
    size_t bytes = 0;
    bt_strbuf_t *frame = new_frame(f);
    bt_status_t status =
        bt_kvt_export(f->w->kvt, s->export, sizeof(s->export), &bytes);
    const bt_wire_rank_t rank = {.block_bytes = f->w->block_bytes,
                                 .kvt = s->export,
                                 .kvt_bytes = (uint32_t)bytes};

    if (status == BT_OK) {
        bt_rank_put_ranks(frame, &rank, 1);
        bt_rank_link_send(f->to_lead, BT_RANK_EXPORT, 0, frame);
    }
    return status;
}

/* Waits until rank 0 has its name and role, if it is a standby. */
static bt_status_t stand_by(bt_worker_t *w, const bt_start_t *s)
{
    bt_status_t status;

    if (w->config->assignment_fd == 0) {
        return BT_OK;
    }
    status =
        bt_worker_stand_by_rank(w, bt_instance_ranks_collectives(&s->team));
    if (status == BT_OK) {
        bt_start_log_as_named(w);
    } else if (status == BT_ERR_CANCELED) { /* the order to end comes next */
        const bt_kv_view_t none = {0};
        const bt_status_t ended = bt_model_follow(w->model, NULL, &none, NULL);

        status = (ended == BT_OK) ? status : ended;
    }
    return status;
}

static bt_status_t load(bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status;

    if ((status = bt_start_file_open(w, s)) != BT_OK ||
        (status = bt_start_options_check(w, s)) != BT_OK ||
        (status = bt_start_cores_settle(w, s)) != BT_OK ||
        (status = bt_start_draft_open(w, s)) != BT_OK ||
        (status = bt_start_memory_plan(w, s)) != BT_OK ||
        (status = bt_start_model_load(w, s)) != BT_OK ||
        (status = stand_by(w, s)) != BT_OK ||
        (status = bt_start_router_find(w, s)) != BT_OK ||
        (status = bt_start_pool_open(w, s)) != BT_OK) {
        return status;
    }
    bt_start_draft_close(s);
    bt_gguf_close(s->gguf);
    s->gguf = NULL;
    return BT_OK;
}

static follow_t *follow_new(bt_worker_t *w, const bt_start_t *s)
{
    follow_t *f = bt_calloc(1, sizeof(*f));

    if (f == NULL) {
        return NULL;
    }
    f->w = w;
    f->s = s;
    f->to_lead = &s->team.links[0];
    f->max_spans = w->context_tokens / w->tokens_per_block + 1; /* round up */
    bt_strbuf_init(&f->frame, BT_RANK_LINK_MAX_BYTES);
    f->table = bt_calloc((size_t)f->max_spans * w->groups.n, sizeof(*f->table));
    if (f->table == NULL) {
        bt_free(f);
        return NULL;
    }
    return f;
}

static void follow_free(follow_t *f)
{
    bt_rank_transfer_disconnect_all(f->w->rank_transfers);
    bt_strbuf_fini(&f->frame);
    bt_free(f->table);
    bt_free(f);
}

/* Rank 0 is lost, and the compute thread waits for it: shared memory of one
 * host can be marked broken; over MPI, or on a device, waiting ranks cannot be
 * woken. */
static void leave_sums(const bt_worker_t *w, const bt_start_t *s)
{
    if ((s->team.shm != NULL) && !bt_backend_owns_memory(w->backend)) {
        bt_coll_shm_break(s->team.shm);
        return;
    }
    BT_LOG_ERROR("lost rank 0 of this instance: rank %u exits", s->team.rank);
    bt_log_flush();
    _exit(BT_EXIT_FAILURE);
}

static bt_status_t serve(bt_worker_t *w, bt_start_t *s)
{
    follow_t *f = follow_new(w, s);
    bt_status_t status = (f == NULL) ? BT_ERR_NO_MEMORY : say_export(f, s);

    if ((status == BT_OK) &&
        (pthread_create(&f->compute, NULL, compute, f) != 0)) {
        status = BT_ERR_NO_MEMORY;
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("rank %u: %s", s->team.rank, bt_status_str(status));
    } else {
        BT_LOG_INFO("ready: rank %u of %u", s->team.rank, s->team.size);
        while (!atomic_load(&f->ended) && !f->to_lead->is_lost) {
            turn(f);
        }
        if (!atomic_load(&f->ended)) { /* nothing is reported any more */
            leave_sums(w, s);
        }
        (void)pthread_join(f->compute, NULL);
        status = f->computed;
        if (status != BT_OK) {
            BT_LOG_ERROR("rank %u: the command of rank 0 failed: %s",
                         s->team.rank, bt_status_str(status));
        }
    }
    if (f != NULL) {
        follow_free(f);
    }
    return status;
}

int bt_rank_main_run(bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status = load(w, s);
    int code = bt_exit_of_start(status);

    if (status == BT_OK) {
        status = serve(w, s);
        code = (status == BT_OK) ? BT_EXIT_OK : BT_EXIT_FAILURE;
    }
    bt_key_wipe(s->key, sizeof(s->key));
    bt_start_pool_close(w);
    bt_kv_groups_fini(&w->groups);
    bt_kv_groups_fini(&w->own_groups);
    bt_model_destroy(w->draft_model);
    bt_model_destroy(w->model);
    bt_backend_close(w->backend);
    return code;
}
