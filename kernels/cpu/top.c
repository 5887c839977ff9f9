/* SPDX-License-Identifier: Apache-2.0 */
/* Top k of a row in the order of top() (kernels.h): a heap of the k best so
 * far, with the last of them as its root, is kept in the outputs. O(dim) where
 * few values enter once k are there; the same on all tiers. The reference for
 * devices; with a model on the CPU, the host reads the rows itself. */
#include <math.h>

#include "kernels/cpu/backend.h"

typedef struct top_job {
    const float *x;
    uint32_t dim;
    uint32_t k;
    uint32_t *ids;
    float *values;
} top_job_t;

typedef struct heap {
    uint32_t *ids;
    float *values;
    uint32_t n;
} heap_t;

static bool precedes(float x, uint32_t i, float y, uint32_t j)
{
    return (x > y) || ((x == y) && (i < j));
}

/* Puts (value, id) at position @a at, or below it. */
static void sift_down(heap_t heap, uint32_t at, float value, uint32_t id)
{
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= heap.n) {
            break;
        }
        if ((child + 1 < heap.n) &&
            precedes(heap.values[child], heap.ids[child],
                     heap.values[child + 1], heap.ids[child + 1])) {
            child++;
        }
        if (precedes(heap.values[child], heap.ids[child], value, id)) {
            break;
        }
        heap.values[at] = heap.values[child];
        heap.ids[at] = heap.ids[child];
        at = child;
    }
    heap.values[at] = value;
    heap.ids[at] = id;
}

/* Builds a heap from any order. */
static void heapify(heap_t heap)
{
    for (uint32_t i = heap.n / 2; i > 0; i--) {
        sift_down(heap, i - 1, heap.values[i - 1], heap.ids[i - 1]);
    }
}

/* Sorts a heap: each removed entry goes to its end. */
static void put_in_order(heap_t heap)
{
    while (heap.n > 1) {
        const uint32_t last = --heap.n;
        const float value = heap.values[last];
        const uint32_t id = heap.ids[last];

        heap.values[last] = heap.values[0];
        heap.ids[last] = heap.ids[0];
        sift_down(heap, 0, value, id);
    }
}

static void top_of_row(const float *x, uint32_t dim, uint32_t k, uint32_t *ids,
                       float *values)
{
    heap_t heap = {.ids = ids, .values = values};

    for (uint32_t i = 0; i < dim; i++) {
        const float value = x[i];

        if (!(value > -INFINITY)) {
            continue;
        }
        if (heap.n < k) {
            ids[heap.n] = i;
            values[heap.n++] = value;
            if (heap.n == k) {
                heapify(heap);
            }
        } else if (value > values[0]) { /* on ties the earlier one stays */
            sift_down(heap, 0, value, i);
        }
    }
    if (heap.n < k) {
        heapify(heap);
    }
    put_in_order(heap);
    for (uint32_t j = heap.n; j < k; j++) {
        ids[j] = UINT32_MAX;
        values[j] = -INFINITY;
    }
}

static void top_rows(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const top_job_t *job = ctx;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        top_of_row(job->x + r * job->dim, job->dim, job->k,
                   job->ids + r * job->k, job->values + r * job->k);
    }
}

void bt_cpu_top(bt_backend_t *be, const float *x, uint32_t n_rows, uint32_t dim,
                uint32_t k, uint32_t *ids, float *values)
{
    top_job_t job = {.x = x, .dim = dim, .k = k, .ids = ids, .values = values};

    bt_cpu_run(bt_cpu_of(be), n_rows, dim, BT_CPU_MIN_ELEMS, top_rows, &job);
}
