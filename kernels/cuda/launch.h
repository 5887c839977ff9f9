/* SPDX-License-Identifier: Apache-2.0 */
/** @file launch.h
 *
 * How kernels are launched. A step of a model is some hundred of them, each of
 * which costs the host some microseconds: more than the device has to do for a
 * few rows. So BT_LAUNCH only notes a call, and whoever needs the device to go
 * on (a copy, a wait, the next batch) hands over all that was noted. What was
 * noted the same before, word for word, is a graph by then and one launch; what
 * comes for the second time becomes one. So nobody has to say what a step is,
 * and no step can be replayed with what it did not ask for.
 *
 * A batch's tables are at the same place whenever it has as many rows,
 * sequences and results (kernels/batch.h), so the steps of as many sequences
 * that decode are the same calls; what differs among them is in the tables.
 *
 * BATON_CUDA_GRAPHS=0 in the environment: no graphs.
 *
 * Threads: the one that drives the back end.
 */
#ifndef BT_KERNELS_CUDA_LAUNCH_H
#define BT_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#include <new>
#include <tuple>
#include <type_traits>

#include "kernels/kernels.h"

struct BtLauncher;

/** What is noted goes to @a stream. @return NULL: no memory */
BtLauncher *bt_launcher_create(cudaStream_t stream);
/** Graphs too; what is noted is forgotten. NULL is allowed. */
void bt_launcher_destroy(BtLauncher *launcher);
/** Hand over what was noted. What fails is CUDA's last error, or told by
 *  bt_launcher_take_error(). */
void bt_launcher_flush(BtLauncher *launcher);
/** And have no graphs any more: what they are of goes. */
void bt_launcher_forget(BtLauncher *launcher);
/** The first error of a call that was handed over, once. */
cudaError_t bt_launcher_take_error(BtLauncher *launcher);

/** Begins a call on a stream: a BtCall of some kind, or what else can be
 *  captured. @return what went wrong with it */
typedef cudaError_t (*BtRunCall)(const void *call, cudaStream_t stream);

/** Zeroed memory for a call of so many bytes, noted as the next one: words
 *  without a destructor. */
void *bt_launcher_room(BtLauncher *launcher, BtRunCall run, size_t bytes);

/** The back end's. */
BtLauncher *bt_cuda_launcher(bt_backend_t *be);

/** A kernel and what it is given. */
template <typename... Params> struct BtCall {
    void (*kernel)(Params...);
    const char *name;
    unsigned blocks, threads;
    std::tuple<Params...> args;
};

template <typename... Params>
cudaError_t bt_run_call(const void *noted, cudaStream_t stream)
{
    BtCall<Params...> call = *static_cast<const BtCall<Params...> *>(noted);

#if defined(BT_SIMT)
    simt::enqueue(stream, call.name, call.blocks, call.threads,
                  [call] { std::apply(call.kernel, call.args); });
    return cudaSuccess;
#else
    return std::apply(
        [&](Params &...params) {
            void *args[] = {&params...};

            return cudaLaunchKernel(reinterpret_cast<const void *>(call.kernel),
                                    dim3(call.blocks), dim3(call.threads), args,
                                    0, stream);
        },
        call.args);
#endif
}

template <typename... Params, typename... Args>
void bt_launch(bt_backend_t *be, const char *name, void (*kernel)(Params...),
               size_t blocks, unsigned threads, Args... args)
{
    typedef BtCall<Params...> Call;
    static_assert(std::is_trivially_destructible<Call>::value &&
                      (alignof(Call) <= sizeof(uint64_t)),
                  "calls are words that are forgotten as they are");

    /* In place, and of zeros: what lies between its members is compared too. */
    new (bt_launcher_room(bt_cuda_launcher(be), bt_run_call<Params...>,
                          sizeof(Call)))
        Call{kernel, name, static_cast<unsigned>(blocks), threads,
             std::tuple<Params...>(static_cast<Params>(args)...)};
}

#define BT_LAUNCH(kernel, blocks, threads, be, ...) \
    bt_launch((be), #kernel, kernel, (blocks), (threads), __VA_ARGS__)

#endif
