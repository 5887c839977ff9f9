/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/launch.h"

#include <cstdlib>
#include <cstring>

#define BT_CUDA_GRAPHS 64u  /* the least recently used is replaced */
#define BT_CUDA_ONCE   256u /* remembered lists of calls that came once */

struct BtGraph {
    cudaGraphExec_t exec; /* NULL: none */
    uint64_t hash;
    uint64_t used; /* time of last use, as the launcher's count of lists */
    size_t n_words;
    uint64_t *words; /* calls of the graph */
};

namespace
{

const size_t kWords = 1 << 17;  /* of recorded calls: 1 MiB */
const uint32_t kLeastCalls = 8; /* minimum calls for which a graph pays off */

/* Header of each call: its launch function and its number of words. */
struct Head {
    BtRunCall run;
    uint64_t n_words;
};

const size_t kHeadWords = sizeof(Head) / sizeof(uint64_t);

bool are_wanted()
{
    const char *value = std::getenv("BATON_CUDA_GRAPHS");

    return (value == nullptr) || (std::strcmp(value, "0") != 0);
}

/* Word-wise hash with the constants of Fowler, Noll and Vo. */
uint64_t hash_of(const uint64_t *words, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ words[i]) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}

} // namespace

struct BtLauncher {
    cudaStream_t stream;
    bool has_graphs;
    cudaError_t error; /* the first of a call's */
    uint64_t n_lists;
    uint32_t n_calls;
    size_t n_words;
    uint64_t *words;
    uint64_t once[BT_CUDA_ONCE]; /* hashes of lists, in a ring */
    BtGraph graphs[BT_CUDA_GRAPHS];
};

namespace
{

/* @return the first error */
cudaError_t run_all(const BtLauncher *l)
{
    cudaError_t first = cudaSuccess;

    for (size_t at = 0; at < l->n_words;) {
        const Head *head = reinterpret_cast<const Head *>(l->words + at);

        const cudaError_t error =
            head->run(l->words + at + kHeadWords, l->stream);

        first = (first == cudaSuccess) ? error : first;
        at += kHeadWords + head->n_words;
    }
    return first;
}

void drop(BtGraph *graph)
{
    if (graph->exec != nullptr) {
        (void)cudaGraphExecDestroy(graph->exec);
    }
    std::free(graph->words);
    *graph = BtGraph();
}

BtGraph *find(BtLauncher *l, uint64_t hash)
{
    for (BtGraph &graph : l->graphs) {
        if ((graph.exec != nullptr) && (graph.hash == hash) &&
            (graph.n_words == l->n_words) &&
            (std::memcmp(graph.words, l->words,
                         l->n_words * sizeof(uint64_t)) == 0)) {
            return &graph;
        }
    }
    return nullptr;
}

BtGraph *oldest(BtLauncher *l)
{
    BtGraph *found = &l->graphs[0];

    for (BtGraph &graph : l->graphs) {
        if (graph.used < found->used) {
            found = &graph;
        }
    }
    return found;
}

/* True when the list came once before; remembers it. */
bool came_before(BtLauncher *l, uint64_t hash)
{
    for (uint64_t other : l->once) {
        if (other == hash) {
            return true;
        }
    }
    l->once[l->n_lists % BT_CUDA_ONCE] = hash;
    return false;
}

/* Captures the recorded calls as a graph. @return NULL: not possible */
cudaGraphExec_t capture(const BtLauncher *l)
{
    cudaGraphExec_t exec = nullptr;
    cudaGraph_t graph = nullptr;
    cudaError_t error =
        cudaStreamBeginCapture(l->stream, cudaStreamCaptureModeThreadLocal);

    if (error != cudaSuccess) {
        return nullptr;
    }
    const cudaError_t call_error = run_all(l);

    error = cudaStreamEndCapture(l->stream, &graph);
    if (error != cudaSuccess) {
        return nullptr;
    }
    error = (call_error == cudaSuccess) ? cudaGraphInstantiate(&exec, graph, 0)
                                        : call_error;
    (void)cudaGraphDestroy(graph);
    return (error == cudaSuccess) ? exec : nullptr;
}

/* @return NULL: the device cannot make a graph of it, and is not asked again */
BtGraph *make(BtLauncher *l, uint64_t hash)
{
    BtGraph made = {};
    BtGraph *slot = oldest(l);

    made.words =
        static_cast<uint64_t *>(std::malloc(l->n_words * sizeof(uint64_t)));
    if (made.words != nullptr) {
        made.exec = capture(l);
    }
    if (made.exec == nullptr) {
        (void)cudaGetLastError(); /* harmless: each call is launched */
        drop(&made);
        l->has_graphs = false;
        return nullptr;
    }
    std::memcpy(made.words, l->words, l->n_words * sizeof(uint64_t));
    made.n_words = l->n_words;
    made.hash = hash;
    drop(slot);
    *slot = made;
    return slot;
}

BtGraph *graph_of(BtLauncher *l)
{
    BtGraph *graph;
    uint64_t hash;

    if (!l->has_graphs || (l->n_calls < kLeastCalls)) {
        return nullptr;
    }
    hash = hash_of(l->words, l->n_words);
    graph = find(l, hash);
    if ((graph == nullptr) && came_before(l, hash)) {
        graph = make(l, hash);
    }
    return graph;
}

} // namespace

BtLauncher *bt_launcher_create(cudaStream_t stream)
{
    BtLauncher *l = static_cast<BtLauncher *>(std::calloc(1, sizeof(*l)));

    if (l == nullptr) {
        return nullptr;
    }
    l->words = static_cast<uint64_t *>(std::calloc(kWords, sizeof(uint64_t)));
    if (l->words == nullptr) {
        std::free(l);
        return nullptr;
    }
    l->stream = stream;
    l->has_graphs = are_wanted();
    return l;
}

void bt_launcher_destroy(BtLauncher *l)
{
    if (l == nullptr) {
        return;
    }
    for (BtGraph &graph : l->graphs) {
        drop(&graph);
    }
    std::free(l->words);
    std::free(l);
}

void bt_launcher_flush(BtLauncher *l)
{
    BtGraph *graph;

    if (l->n_calls == 0) {
        return;
    }
    l->n_lists++;
    graph = graph_of(l);
    if (graph == nullptr) {
        const cudaError_t error = run_all(l);

        l->error = (l->error == cudaSuccess) ? error : l->error;
    } else {
        graph->used = l->n_lists;
        (void)cudaGraphLaunch(graph->exec, l->stream);
    }
    std::memset(l->words, 0, l->n_words * sizeof(uint64_t));
    l->n_words = 0;
    l->n_calls = 0;
}

void bt_launcher_forget(BtLauncher *l)
{
    bt_launcher_flush(l);
    for (BtGraph &graph : l->graphs) {
        drop(&graph);
    }
}

cudaError_t bt_launcher_take_error(BtLauncher *l)
{
    const cudaError_t error = l->error;

    l->error = cudaSuccess;
    return error;
}

void *bt_launcher_slot(BtLauncher *l, BtRunCall run, size_t bytes)
{
    const size_t n_words = (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
    Head head = {run, n_words};
    uint64_t *at;

    if (kHeadWords + n_words > kWords - l->n_words) {
        bt_launcher_flush(l);
    }
    at = l->words + l->n_words;
    std::memcpy(at, &head, sizeof(head));
    l->n_words += kHeadWords + n_words;
    l->n_calls++;
    return at + kHeadWords;
}
