/* SPDX-License-Identifier: Apache-2.0 */
/* Measures a GPU and its vendor's library, as the comparison of
 * bench/gpu-check.py; prints a line of JSON. Compiled only there.
 *
 *     gpu-peer ROWS...    copies from device memory to device memory, and
 *                         products of bfloat16 (4096 x 4096) and ROWS rows by
 *                         cuBLASLt, sums in f32 */
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace
{

const size_t kCopyBytes = size_t(1) << 30;
const int kDim = 4096;
const int kSamples = 10;
const size_t kWorkspaceBytes = size_t(32) << 20;

void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        std::fprintf(stderr, "gpu-peer: %s: %s\n", what,
                     cudaGetErrorString(error));
        std::exit(1);
    }
}

void must(cublasStatus_t status, const char *what)
{
    if (status != CUBLAS_STATUS_SUCCESS) {
        std::fprintf(stderr, "gpu-peer: %s: status %d\n", what,
                     static_cast<int>(status));
        std::exit(1);
    }
}

void *space(size_t bytes)
{
    void *ptr = nullptr;

    must(cudaMalloc(&ptr, bytes), "memory");
    must(cudaMemset(ptr, 0, bytes), "zeros");
    return ptr;
}

/* Seconds of the fastest of some calls, n at a time. */
template <typename Call> double best_of(int n, const Call &call)
{
    cudaEvent_t begin, end;
    double best = 1e9;

    must(cudaEventCreate(&begin), "an event");
    must(cudaEventCreate(&end), "an event");
    for (int i = 0; i < kSamples + 2; i++) {
        float ms = 0.0f;

        must(cudaEventRecord(begin), "an event");
        for (int k = 0; k < n; k++) {
            call();
        }
        must(cudaEventRecord(end), "an event");
        must(cudaEventSynchronize(end), "a wait");
        must(cudaEventElapsedTime(&ms, begin, end), "a time");
        if ((i >= 2) && (ms * 1e-3 / n < best)) {
            best = ms * 1e-3 / n;
        }
    }
    must(cudaEventDestroy(begin), "an event");
    must(cudaEventDestroy(end), "an event");
    return best;
}

double copy_seconds()
{
    void *from = space(kCopyBytes);
    void *to = space(kCopyBytes);
    const double seconds = best_of(4, [&] {
        must(cudaMemcpyAsync(to, from, kCopyBytes, cudaMemcpyDeviceToDevice),
             "a copy");
    });

    must(cudaFree(from), "memory");
    must(cudaFree(to), "memory");
    return seconds;
}

/* Weights (k, outputs) transposed, rows (k, rows), both by columns as the
 * library has them: each k beside the next. */
double product_seconds(cublasLtHandle_t handle, int n_rows)
{
    const float one = 1.0f, zero = 0.0f;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    void *w = space(size_t(kDim) * kDim * 2);
    void *x = space(size_t(n_rows) * kDim * 2);
    void *out = space(size_t(n_rows) * kDim * 4);
    void *work = space(kWorkspaceBytes);
    int n_found = 0;
    double seconds;

    must(cublasLtMatmulDescCreate(&what, CUBLAS_COMPUTE_32F, CUDA_R_32F),
         "a product");
    must(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_TRANSA,
                                        &transposed, sizeof(transposed)),
         "a product");
    must(cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, kDim, kDim, kDim), "a");
    must(cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, kDim, n_rows, kDim), "b");
    must(cublasLtMatrixLayoutCreate(&c, CUDA_R_32F, kDim, n_rows, kDim), "c");
    must(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    must(cublasLtMatmulPreferenceSetAttribute(
             preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
             &kWorkspaceBytes, sizeof(kWorkspaceBytes)),
         "a preference");
    must(cublasLtMatmulAlgoGetHeuristic(handle, what, a, b, c, c, preference, 1,
                                        &found, &n_found),
         "a heuristic");
    if (n_found == 0) {
        must(CUBLAS_STATUS_NOT_SUPPORTED, "a heuristic");
    }
    seconds = best_of(8, [&] {
        must(cublasLtMatmul(handle, what, &one, w, a, x, b, &zero, out, c, out,
                            c, &found.algo, work, kWorkspaceBytes, 0),
             "a product");
    });
    must(cublasLtMatmulPreferenceDestroy(preference), "a preference");
    must(cublasLtMatrixLayoutDestroy(a), "a");
    must(cublasLtMatrixLayoutDestroy(b), "b");
    must(cublasLtMatrixLayoutDestroy(c), "c");
    must(cublasLtMatmulDescDestroy(what), "a product");
    must(cudaFree(w), "memory");
    must(cudaFree(x), "memory");
    must(cudaFree(out), "memory");
    must(cudaFree(work), "memory");
    return seconds;
}

} // namespace

int main(int argc, char **argv)
{
    cudaDeviceProp prop;
    cublasLtHandle_t handle;

    must(cudaGetDeviceProperties(&prop, 0), "the device");
    must(cublasLtCreate(&handle), "cuBLASLt");
    std::printf("{\"device\": \"%s\", \"sm\": \"%d%d\", \"l2_bytes\": %d, "
                "\"copy_gb_per_s\": %.1f, \"products\": [",
                prop.name, prop.major, prop.minor, prop.l2CacheSize,
                2.0 * kCopyBytes / copy_seconds() / 1e9);
    for (int i = 1; i < argc; i++) {
        const int n_rows = static_cast<int>(std::strtol(argv[i], nullptr, 10));
        const double seconds = product_seconds(handle, n_rows);

        std::printf("%s{\"rows\": %d, \"tflops\": %.2f}", (i == 1) ? "" : ", ",
                    n_rows, 2.0 * n_rows * kDim * kDim / seconds / 1e12);
    }
    std::printf("]}\n");
    must(cublasLtDestroy(handle), "cuBLASLt");
    return 0;
}
