/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "tests/simt/cuda_runtime.h"
#include "tests/simt/faults.h"
#include "tests/simt/stream_work.h"

typedef std::function<bool()> Work; /* false: it failed */

struct SimtGraph {
    std::vector<Work> work;
    bool broken;
};

struct SimtStream {
    std::deque<Work> todo;
    uint64_t n_queued, n_done;
    bool failed;
    SimtGraph *captures; /* what it is told goes there; NULL: it is done */
};

struct SimtEvent {
    cudaStream_t stream; /* NULL: never recorded */
    uint64_t behind;     /* done when so many of it are */
};

namespace
{

const size_t kAlign = 256; /* as cudaMalloc() has it */

struct Piece {
    void *map;
    size_t map_bytes;
    size_t bytes;
    int fd;           /* of the file that it lies in; -1: it is not shared */
    uint32_t n_opens; /* of another process' piece: how often; else 0... */
    ino_t inode;      /* ...and its file */
};

struct Device {
    std::map<uintptr_t, Piece> pieces;  /* by address */
    std::map<uintptr_t, size_t> pinned; /* the host's, the same */
    size_t used, most_used;
    cudaError_t last;
    uint64_t n_calls, fails_at; /* the call of that number fails; 0: none */
    std::set<cudaStream_t> streams;
    uint32_t n_events, n_graphs;
    uint64_t n_graph_launches;
    uint64_t bytes_in;  /* that came from the host */
    uint64_t bytes_out; /* that came to the host */
    uint32_t n_opened;  /* pieces of others */
    uint64_t n_opens;   /* ...so far */
};

Device device;

/* What became of it, for a test that cannot ask a process: a line into the file
 * that BATON_SIMT_STATE names. */
struct LastWords {
    ~LastWords()
    {
        const char *path = std::getenv("BATON_SIMT_STATE");
        FILE *file = (path == nullptr) ? nullptr : std::fopen(path, "a");

        if (file != nullptr) {
            std::fprintf(
                file,
                "calls %llu graph_launches %llu bytes_left %zu "
                "graphs_left %u bytes_in %llu bytes_out %llu opens %llu "
                "opened_left %u bytes_most %zu\n",
                static_cast<unsigned long long>(device.n_calls),
                static_cast<unsigned long long>(device.n_graph_launches),
                device.used, device.n_graphs,
                static_cast<unsigned long long>(device.bytes_in),
                static_cast<unsigned long long>(device.bytes_out),
                static_cast<unsigned long long>(device.n_opens),
                device.n_opened, device.most_used);
            (void)std::fclose(file);
        }
    }
} last_words;

/* From the environment, for the process that loads the plugin. */
uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = std::getenv(name);

    return (text == nullptr) ? otherwise : std::strtoull(text, nullptr, 10);
}

size_t device_bytes()
{
    static const size_t bytes =
        number_of("BATON_SIMT_MEMORY", uint64_t(4) << 30);

    return bytes;
}

/* Calls come from several threads of the host, and memory is open to all of
 * them while one is carried out: one at a time. */
std::recursive_mutex turn;

#define BT_IN_TURN() const std::lock_guard<std::recursive_mutex> mine(turn)

cudaError_t done(cudaError_t error)
{
    if (error != cudaSuccess) {
        device.last = error;
    }
    return error;
}

/* Of every call that can fail. */
bool is_to_fail()
{
    return ++device.n_calls == device.fails_at;
}

/* What kind of host this is, as a test says it by BATON_SIMT_HOST. */
bool is_host(const char *kind)
{
    const char *value = std::getenv("BATON_SIMT_HOST");

    return (value != nullptr) && (std::strcmp(value, kind) == 0);
}

size_t page()
{
    static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));

    return bytes;
}

void protect(int how)
{
    for (const auto &piece : device.pieces) {
        if (mprotect(piece.second.map, piece.second.map_bytes - page(), how) !=
            0) {
            std::perror("memory of the device");
            std::abort();
        }
    }
}

/* May kernels and copies touch all of it? */
bool is_of_device(const void *p, size_t bytes)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);
    auto next = device.pieces.upper_bound(at);

    if (next == device.pieces.begin()) {
        return false;
    }
    --next;
    return (at - next->first <= next->second.bytes) &&
           (bytes <= next->second.bytes - (at - next->first));
}

bool is_pinned(const void *p)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);
    auto next = device.pinned.upper_bound(at);

    return (next != device.pinned.begin()) &&
           (at - std::prev(next)->first < std::prev(next)->second);
}

bool is_right(const void *p, size_t bytes, bool on_device)
{
    return (bytes == 0) || (is_of_device(p, bytes) == on_device);
}

void put(cudaStream_t stream, Work what)
{
    if (stream->captures != nullptr) {
        stream->captures->work.push_back(std::move(what));
        return;
    }
    stream->todo.push_back(std::move(what));
    stream->n_queued++;
}

void copy_rows(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
               size_t width, size_t height)
{
    for (size_t i = 0; (width > 0) && (i < height); i++) {
        std::memcpy(static_cast<char *>(dst) + i * dst_pitch,
                    static_cast<const char *>(src) + i * src_pitch, width);
    }
}

std::vector<char> rows_of(const void *src, size_t pitch, size_t width,
                          size_t height)
{
    std::vector<char> rows(width * height);

    if (!rows.empty()) {
        copy_rows(rows.data(), width, src, pitch, width, height);
    }
    return rows;
}

/* All that comes before number @a until. */
cudaError_t drain(cudaStream_t stream, uint64_t until)
{
    if (stream->n_done < until) {
        protect(PROT_READ | PROT_WRITE);
    }
    while ((stream->n_done < until) && !stream->todo.empty()) {
        const Work what = stream->todo.front();

        stream->todo.pop_front();
        stream->n_done++;
        if (!stream->failed && !what()) {
            stream->failed = true; /* for good, as a context's */
        }
    }
    protect(PROT_NONE);
    return done(stream->failed ? cudaErrorLaunchFailure : cudaSuccess);
}

/* As cudaFree() and cudaFreeHost() wait for all that is under way. */
void drain_all()
{
    for (cudaStream_t stream : device.streams) {
        (void)drain(stream, stream->n_queued);
    }
}

} // namespace

/* ---- device ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
    BT_IN_TURN();
    *version = is_host("without-driver")    ? 0
               : is_host("with-old-driver") ? 11080
                                            : 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNotSupported:
        return "operation not supported";
    case cudaErrorPeerAccessUnsupported:
        return "peer access is not supported between these two devices";
    case cudaErrorMapBufferObjectFailed:
        return "mapping of buffer object failed";
    default:
        return "a failure of the tests";
    }
}

cudaError_t cudaGetDeviceCount(int *count)
{
    BT_IN_TURN();
    if (is_to_fail()) {
        return done(cudaErrorInvalidDevice);
    }
    if (is_host("without-driver") || is_host("with-old-driver")) {
        return done(cudaErrorInsufficientDriver);
    }
    if (is_host("without-device")) {
        return done(cudaErrorNoDevice);
    }
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int number)
{
    BT_IN_TURN();
    return done((is_to_fail() || (number != 0)) ? cudaErrorInvalidDevice
                                                : cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int number)
{
    BT_IN_TURN();
    if (is_to_fail() || (number != 0)) {
        return done(cudaErrorInvalidDevice);
    }
    std::snprintf(prop->name, sizeof(prop->name), "a device of the tests");
    prop->major = is_host("of-turing") ? 7 : 8; /* the least that is taken */
    prop->minor = is_host("of-turing") ? 5 : 0;
    return cudaSuccess;
}

cudaError_t cudaGetLastError()
{
    BT_IN_TURN();
    const cudaError_t last = device.last;

    device.last = cudaSuccess;
    return last;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    BT_IN_TURN();
    if (is_to_fail()) {
        return done(cudaErrorInvalidValue);
    }
    *left = device_bytes() - device.used;
    *total = device_bytes();
    return cudaSuccess;
}

/* ---- memory ---- */

/* [pages, of which the last bytes are the piece | a page that nobody has] */
cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
    BT_IN_TURN();
    const size_t whole = (bytes + kAlign - 1) / kAlign * kAlign;
    const size_t pages = (whole + page() - 1) / page() * page();
    Piece piece = {nullptr, pages + page(), bytes, -1, 0, 0};
    uintptr_t at;

    if (is_to_fail() || (whole > device_bytes() - device.used)) {
        return done(cudaErrorMemoryAllocation);
    }
    piece.map = mmap(nullptr, piece.map_bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece.map == MAP_FAILED) {
        return done(cudaErrorMemoryAllocation);
    }
    at = reinterpret_cast<uintptr_t>(piece.map) + pages - whole;
    device.pieces[at] = piece;
    device.used += whole;
    device.most_used =
        (device.used > device.most_used) ? device.used : device.most_used;
    *ptr = reinterpret_cast<void *>(at);
    return cudaSuccess;
}

cudaError_t cudaFree(void *ptr)
{
    BT_IN_TURN();
    const auto found = device.pieces.find(reinterpret_cast<uintptr_t>(ptr));

    if (ptr == nullptr) {
        return cudaSuccess;
    }
    if ((found == device.pieces.end()) || (found->second.n_opens > 0)) {
        return done(cudaErrorInvalidValue);
    }
    drain_all();
    if (found->second.fd >= 0) {
        close(found->second.fd);
    }
    device.used -= (found->second.bytes + kAlign - 1) / kAlign * kAlign;
    munmap(found->second.map, found->second.map_bytes);
    device.pieces.erase(found);
    return cudaSuccess;
}

/* ---- memory of a process that another one opens ---- */

/* What a handle says: where the piece's file is, and which one that is, as its
 * number may be another's by then. */
struct SharedPiece {
    pid_t pid;
    int fd;
    ino_t inode;
    size_t map_bytes, bytes;
};

static_assert(sizeof(SharedPiece) <= sizeof(cudaIpcMemHandle_t), "room for it");

/* From now on it lies in a file in memory, which ends with its last owner. */
static bool move_to_file(Piece *piece)
{
    const size_t n = piece->map_bytes - page();
    const int fd = memfd_create("memory of a device", MFD_CLOEXEC);
    bool well = (fd >= 0) && (ftruncate(fd, static_cast<off_t>(n)) == 0) &&
                (mprotect(piece->map, n, PROT_READ | PROT_WRITE) == 0) &&
                (pwrite(fd, piece->map, n, 0) == static_cast<ssize_t>(n));

    well = well && (mmap(piece->map, n, PROT_NONE, MAP_SHARED | MAP_FIXED, fd,
                         0) != MAP_FAILED);
    if (!well) {
        close(fd);
        return false;
    }
    piece->fd = fd;
    return true;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr)
{
    BT_IN_TURN();
    const auto found = device.pieces.find(reinterpret_cast<uintptr_t>(ptr));
    SharedPiece said = {};
    struct stat file;

    if (is_to_fail() || is_host("without-ipc")) {
        return done(cudaErrorNotSupported);
    }
    if ((found == device.pieces.end()) || (found->second.n_opens > 0)) {
        return done(cudaErrorInvalidValue);
    }
    if (((found->second.fd < 0) && !move_to_file(&found->second)) ||
        (fstat(found->second.fd, &file) != 0)) {
        return done(cudaErrorMemoryAllocation);
    }
    said.pid = getpid();
    said.fd = found->second.fd;
    said.inode = file.st_ino;
    said.map_bytes = found->second.map_bytes;
    said.bytes = found->second.bytes;
    std::memset(handle, 0, sizeof(*handle));
    std::memcpy(handle, &said, sizeof(said));
    return cudaSuccess;
}

/* @return what it lies in here, or MAP_FAILED */
static void *map_shared(const SharedPiece &said)
{
    const size_t n = said.map_bytes - page();
    char path[64];
    struct stat file;
    void *map = MAP_FAILED;
    int fd;

    std::snprintf(path, sizeof(path), "/proc/%d/fd/%d",
                  static_cast<int>(said.pid), said.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return map;
    }
    if ((fstat(fd, &file) == 0) && (file.st_ino == said.inode) &&
        (file.st_size == static_cast<off_t>(n))) {
        map = mmap(nullptr, said.map_bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if ((map != MAP_FAILED) && (mmap(map, n, PROT_NONE, MAP_SHARED | MAP_FIXED,
                                     fd, 0) == MAP_FAILED)) {
        munmap(map, said.map_bytes);
        map = MAP_FAILED;
    }
    close(fd); /* the mapping keeps it */
    return map;
}

cudaError_t cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t handle,
                                 unsigned flags)
{
    BT_IN_TURN();
    SharedPiece said;
    Piece piece = {nullptr, 0, 0, -1, 1, 0};
    uintptr_t at;

    std::memcpy(&said, &handle, sizeof(said));
    if (is_to_fail() || (flags != cudaIpcMemLazyEnablePeerAccess) ||
        (said.pid == getpid()) || (said.map_bytes <= page()) ||
        (said.bytes == 0) || (said.bytes > said.map_bytes - page())) {
        return done(cudaErrorInvalidResourceHandle);
    }
    if (is_host("without-peer-access")) {
        return done(cudaErrorPeerAccessUnsupported);
    }
    for (auto &each : device.pieces) {
        if ((each.second.n_opens > 0) && (each.second.inode == said.inode)) {
            each.second.n_opens++;
            device.n_opens++;
            *ptr = reinterpret_cast<void *>(each.first);
            return cudaSuccess;
        }
    }
    piece.map = map_shared(said);
    if (piece.map == MAP_FAILED) {
        return done(cudaErrorMapBufferObjectFailed);
    }
    piece.map_bytes = said.map_bytes;
    piece.bytes = said.bytes;
    piece.inode = said.inode;
    at = reinterpret_cast<uintptr_t>(piece.map) + said.map_bytes - page() -
         (said.bytes + kAlign - 1) / kAlign * kAlign;
    device.pieces[at] = piece;
    device.n_opened++;
    device.n_opens++;
    *ptr = reinterpret_cast<void *>(at);
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *ptr)
{
    BT_IN_TURN();
    const auto found = device.pieces.find(reinterpret_cast<uintptr_t>(ptr));

    if ((found == device.pieces.end()) || (found->second.n_opens == 0)) {
        return done(cudaErrorInvalidValue);
    }
    drain_all();
    if (--found->second.n_opens == 0) {
        munmap(found->second.map, found->second.map_bytes);
        device.pieces.erase(found);
        device.n_opened--;
    }
    /* It closed all the same, as with the run time's other ends. */
    return is_to_fail() ? done(cudaErrorInvalidResourceHandle) : cudaSuccess;
}

/* ---- pinned memory ---- */

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned)
{
    BT_IN_TURN();
    void *made = is_to_fail() ? nullptr : std::malloc((bytes == 0) ? 1 : bytes);

    if (made == nullptr) {
        return done(cudaErrorMemoryAllocation);
    }
    device.pinned[reinterpret_cast<uintptr_t>(made)] = bytes;
    *ptr = made;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *ptr)
{
    BT_IN_TURN();
    drain_all();
    device.pinned.erase(reinterpret_cast<uintptr_t>(ptr));
    std::free(ptr);
    return cudaSuccess;
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    BT_IN_TURN();
    if (is_to_fail()) {
        return done(cudaErrorMemoryAllocation);
    }
    *stream = new SimtStream();
    device.streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    BT_IN_TURN();
    const cudaError_t error = drain(stream, stream->n_queued);

    device.streams.erase(stream);
    delete stream;
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    BT_IN_TURN();
    if (stream->captures != nullptr) {
        return done(cudaErrorStreamCaptureUnsupported);
    }
    const cudaError_t error = drain(stream, stream->n_queued);

    return is_to_fail() ? done(cudaErrorLaunchFailure) : error;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    BT_IN_TURN();
    if (is_to_fail()) {
        return done(cudaErrorMemoryAllocation);
    }
    *event = new SimtEvent();
    device.n_events++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    BT_IN_TURN();
    delete event;
    device.n_events--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    BT_IN_TURN();
    if (is_to_fail()) {
        return done(cudaErrorInvalidResourceHandle);
    }
    event->stream = stream;
    event->behind = stream->n_queued;
    return cudaSuccess;
}

/* A little is done each time, so that who only asks comes to an end. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    BT_IN_TURN();
    const cudaStream_t stream = event->stream;

    if (is_to_fail()) {
        return done(cudaErrorLaunchFailure);
    }
    if ((stream == nullptr) || (stream->n_done >= event->behind)) {
        return cudaSuccess;
    }
    if (drain(stream, stream->n_done + 1) != cudaSuccess) {
        return cudaErrorLaunchFailure;
    }
    return (stream->n_done >= event->behind) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    BT_IN_TURN();
    if (is_to_fail()) {
        return done(cudaErrorLaunchFailure);
    }
    return (event->stream == nullptr) ? cudaSuccess
                                      : drain(event->stream, event->behind);
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
    BT_IN_TURN();
    if (is_to_fail() || (stream->captures != nullptr)) {
        return done(cudaErrorStreamCaptureUnsupported);
    }
    stream->captures = new SimtGraph();
    device.n_graphs++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    BT_IN_TURN();
    SimtGraph *made = stream->captures;

    stream->captures = nullptr;
    if (made == nullptr) {
        return done(cudaErrorStreamCaptureUnsupported);
    }
    if (is_to_fail() || made->broken) {
        delete made;
        device.n_graphs--;
        return done(cudaErrorStreamCaptureInvalidated);
    }
    *graph = made;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    BT_IN_TURN();
    delete graph;
    device.n_graphs--;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long)
{
    BT_IN_TURN();
    if (is_to_fail()) {
        return done(cudaErrorMemoryAllocation);
    }
    *exec = new SimtGraph(*graph);
    device.n_graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return cudaGraphDestroy(exec);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    BT_IN_TURN();
    if (is_to_fail()) {
        return done(cudaErrorLaunchFailure);
    }
    device.n_graph_launches++;
    for (const Work &what : exec->work) {
        put(stream, what);
    }
    return cudaSuccess;
}

/* ---- what streams are told ---- */

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream)
{
    BT_IN_TURN();
    return cudaMemcpy2DAsync(dst, bytes, src, bytes, bytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src,
                              size_t src_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream)
{
    BT_IN_TURN();
    const bool from =
        (kind == cudaMemcpyDeviceToHost) || (kind == cudaMemcpyDeviceToDevice);
    const bool to =
        (kind == cudaMemcpyHostToDevice) || (kind == cudaMemcpyDeviceToDevice);
    const size_t rest = (height == 0) ? 0 : height - 1;

    if (is_to_fail() || (width > dst_pitch) || (width > src_pitch) ||
        !is_right(dst, rest * dst_pitch + width, to) ||
        !is_right(src, rest * src_pitch + width, from)) {
        return done(cudaErrorInvalidValue);
    }
    if (kind == cudaMemcpyHostToDevice) {
        device.bytes_in += width * height;
    }
    /* Of memory that is not pinned the bytes are taken before the call returns,
     * and brought before it does. */
    if ((kind == cudaMemcpyHostToDevice) && !is_pinned(src)) {
        const std::vector<char> taken = rows_of(src, src_pitch, width, height);

        put(stream, [=] {
            copy_rows(dst, dst_pitch, taken.data(), width, width, height);
            return true;
        });
        return cudaSuccess;
    }
    if (kind == cudaMemcpyDeviceToHost) {
        device.bytes_out += width * height;
    }
    put(stream, [=] {
        copy_rows(dst, dst_pitch, src, src_pitch, width, height);
        return true;
    });
    return ((kind == cudaMemcpyDeviceToHost) && !is_pinned(dst))
               ? drain(stream, stream->n_queued)
               : cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes,
                            cudaStream_t stream)
{
    BT_IN_TURN();
    if (is_to_fail() || !is_right(ptr, bytes, true)) {
        return done(cudaErrorInvalidValue);
    }
    put(stream, [=] {
        std::memset(ptr, value, bytes);
        return true;
    });
    return cudaSuccess;
}

void simt::enqueue(cudaStream_t stream, const char *kernel, unsigned blocks,
                   unsigned threads, const std::function<void()> &thread)
{
    BT_IN_TURN();
    if (is_to_fail()) { /* a launch returns nothing */
        if (stream->captures != nullptr) {
            stream->captures->broken = true;
        }
        (void)done(cudaErrorLaunchFailure);
        return;
    }
    put(stream, [=] {
        static uint64_t seed = number_of("BATON_SIMT_SEED", 1);
        const std::string fault =
            simt::run(simt::Grid{blocks, threads, seed++, kernel}, thread);

        if (!fault.empty()) {
            std::fprintf(stderr, "simt: %s: %s\n", kernel, fault.c_str());
        }
        return fault.empty();
    });
}

/* ---- for nccl.cc ---- */

bool simt::call_fails()
{
    BT_IN_TURN();
    return is_to_fail();
}

bool simt::is_device_memory(const void *p, size_t bytes)
{
    BT_IN_TURN();
    return is_right(p, bytes, true);
}

void simt::enqueue_work(cudaStream_t stream, std::function<bool()> what)
{
    BT_IN_TURN();
    put(stream, std::move(what));
}

/* ---- for tests ---- */

extern "C" __attribute__((visibility("default"))) void
bt_simt_fail_at(uint64_t number)
{
    device.n_calls = 0;
    device.fails_at = number;
}

extern "C" __attribute__((visibility("default"))) void
bt_simt_state(bt_simt_state_t *state_p)
{
    state_p->n_calls = device.n_calls;
    state_p->bytes = device.used;
    state_p->n_pinned = static_cast<uint32_t>(device.pinned.size());
    state_p->n_streams = static_cast<uint32_t>(device.streams.size());
    state_p->n_events = device.n_events;
    state_p->n_graphs = device.n_graphs;
    state_p->n_graph_launches = device.n_graph_launches;
    state_p->n_comms = simt::count_comms();
    state_p->n_opened = device.n_opened;
}
