/* SPDX-License-Identifier: Apache-2.0 */
/** @file launch.h
 *
 * Launching of kernels through CUDA graphs. A step of a model is some hundred
 * kernels, and each launch costs the host some microseconds: more than the
 * device needs for a few rows. So BT_LAUNCH only records a call, and an
 * operation that needs the device to make progress (a copy, a wait, the next
 * batch) submits all recorded calls. A sequence of calls that was recorded
 * before, byte for byte, is a graph by then and a single launch; a sequence
 * recorded for the second time becomes a graph. So no caller has to declare a
 * step, and a graph is only replayed for exactly the calls it was made of.
 *
 * The tables of a batch have equal addresses for equal numbers of rows,
 * sequences and results (kernels/batch.h), so decode steps of equally many
 * sequences record the same calls; only the contents of the tables differ.
 *
 * BATON_CUDA_GRAPHS=0 in the environment disables graphs.
 *
 * Threads: the thread that drives the back end.
 */
#ifndef BT_KERNELS_CUDA_LAUNCH_H
#define BT_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#include <new>
#include <tuple>
#include <type_traits>

#include "kernels/kernels.h"

struct BtLauncher;

/** Creates a launcher for @a stream. @return NULL: no memory */
BtLauncher *bt_launcher_create(cudaStream_t stream);
/** Destroys the launcher and its graphs; recorded calls are dropped. NULL is
 *  allowed. */
void bt_launcher_destroy(BtLauncher *launcher);
/** Submits the recorded calls. Errors are in CUDA's last error or reported by
 *  bt_launcher_take_error(). */
void bt_launcher_flush(BtLauncher *launcher);
/** Submits the recorded calls and destroys all graphs, because the memory they
 *  use is going away. */
void bt_launcher_forget(BtLauncher *launcher);
/** Returns the first error of a submitted call, once. */
cudaError_t bt_launcher_take_error(BtLauncher *launcher);

/** Runs a recorded call on a stream: a BtCall, or anything else that can be
 *  captured. @return its error */
typedef cudaError_t (*BtRunCall)(const void *call, cudaStream_t stream);

/** Records the next call and returns zeroed memory of @a bytes bytes for it, of
 *  types without a destructor. */
void *bt_launcher_slot(BtLauncher *launcher, BtRunCall run, size_t bytes);

/** Returns the back end's launcher. */
BtLauncher *bt_cuda_launcher(bt_backend_t *be);

/** Kernel call: a kernel and its arguments. */
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

    /* In place and over zeroed memory: padding between members is compared
     * too. */
    new (bt_launcher_slot(bt_cuda_launcher(be), bt_run_call<Params...>,
                          sizeof(Call)))
        Call{kernel, name, static_cast<unsigned>(blocks), threads,
             std::tuple<Params...>(static_cast<Params>(args)...)};
}

#define BT_LAUNCH(kernel, blocks, threads, be, ...) \
    bt_launch((be), #kernel, kernel, (blocks), (threads), __VA_ARGS__)

#endif
