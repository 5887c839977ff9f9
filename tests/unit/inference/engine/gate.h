/* SPDX-License-Identifier: Apache-2.0 */
/** @file gate.h  An engine over a deeper model that is held in the middle of a
 *  layer, by an attention that waits: what comes meanwhile comes there, and
 *  nothing is a race. */
#ifndef BT_TESTS_UNIT_ENGINE_GATE_H
#define BT_TESTS_UNIT_ENGINE_GATE_H

#include "tests/unit/inference/engine/bench.h"

#include <semaphore.h>
#include <time.h>

#define LAYERS  6u
#define NO_GATE UINT32_MAX

typedef struct gate {
    sem_t arrived, passes;
    uint32_t calls_left; /* of attention until it holds; compute thread's */
    bt_kernels_ops_t ops;
    const bt_kernels_ops_t *inner;
} gate_t;

static gate_t gate;

static inline void gated_attention(bt_backend_t *be, const bt_attention_t *how,
                                   const float *qkv, const bt_batch_t *batch,
                                   const bt_kv_view_t *kv, uint32_t layer,
                                   float *out)
{
    if (gate.calls_left != NO_GATE) {
        if (gate.calls_left == 0) {
            gate.calls_left = NO_GATE;
            sem_post(&gate.arrived);
            while (sem_wait(&gate.passes) != 0) {
            }
        } else {
            gate.calls_left--;
        }
    }
    gate.inner->attention(be, how, qkv, batch, kv, layer, out);
}

static inline void wait_for_arrival(void)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)(DEADLINE_NS / 1000000000u);
    assert_int_equal(sem_timedwait(&gate.arrived, &end), 0);
}

static inline int make_deep_model(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    const int fd = mkstemp(model_path);

    (void)state;
    tiny.n_layers = LAYERS;
    if (fd < 0) {
        return -1;
    }
    close(fd);
    return (bt_tiny_model_write(&tiny, model_path) == BT_OK) ? 0 : -1;
}

static inline void open_gated(bench_t *b, bt_kv_type_t type, uint32_t budget)
{
    open_bench(b, type, budget);
    /* Not a number, in every type: what is read before it is written shows. */
    memset(b->pool, 0xff, N_BLOCKS * b->kv.block_bytes);
    assert_int_equal(sem_init(&gate.arrived, 0, 0), 0);
    assert_int_equal(sem_init(&gate.passes, 0, 0), 0);
    gate.calls_left = NO_GATE;
    gate.inner = b->be->ops;
    gate.ops = *b->be->ops;
    gate.ops.attention = gated_attention;
    b->be->ops = &gate.ops; /* the compute thread sleeps */
}

static inline void close_gated(bench_t *b)
{
    bt_engine_destroy(b->engine);
    b->engine = NULL;
    b->be->ops = gate.inner;
    close_bench(b);
    sem_destroy(&gate.arrived);
    sem_destroy(&gate.passes);
}

#endif
