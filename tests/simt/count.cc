/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simt/count.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_set>
#include <vector>

namespace simt
{
namespace
{

const uintptr_t kSectorBytes = 32;
const unsigned kBanks = 32;

const struct {
    const char *name;
    uint64_t Counts::*member;
} kColumns[] = {
    {"launches", &Counts::launches},
    {"blocks", &Counts::blocks},
    {"threads", &Counts::threads},
    {"load_requests", &Counts::load_requests},
    {"load_sectors", &Counts::load_sectors},
    {"load_bytes", &Counts::load_bytes},
    {"load_sectors_once", &Counts::load_sectors_once},
    {"store_requests", &Counts::store_requests},
    {"store_sectors", &Counts::store_sectors},
    {"store_bytes", &Counts::store_bytes},
    {"store_sectors_once", &Counts::store_sectors_once},
    {"shared_requests", &Counts::shared_requests},
    {"wavefronts", &Counts::wavefronts},
    {"conflicts", &Counts::conflicts},
    {"atomics", &Counts::atomics},
    {"divergent", &Counts::divergent},
    {"products", &Counts::products},
    {"barriers", &Counts::barriers},
};

struct Request {
    uint32_t lanes; /* that have come, a bit each */
    uintptr_t at[kWarp];
};

/* A place of the source, and what is done there. */
struct Site {
    size_t bytes;
    Access access;
    Space space;
    bool rows;              /* of ldmatrix: not all lanes bring one */
    unsigned visits[kWarp]; /* by lane, since the last barrier */
    unsigned n_gone;        /* requests that are counted, the first ones */
    std::deque<Request> requests;
};

typedef std::tuple<unsigned, const char *, int, Access, Space, size_t> SiteKey;

/* What a place of the source has asked for. */
struct Line {
    uint64_t requests, sectors, bytes, wavefronts, conflicts, divergent;
};

const struct {
    const char *name;
    uint64_t Line::*member;
} kLineColumns[] = {
    {"requests", &Line::requests},   {"sectors", &Line::sectors},
    {"bytes", &Line::bytes},         {"wavefronts", &Line::wavefronts},
    {"conflicts", &Line::conflicts}, {"divergent", &Line::divergent},
};

typedef std::tuple<std::string, int, Access, Space> LineKey;
typedef std::map<LineKey, Line> Lines;

struct Kernel {
    Counts counts;
    Lines lines;
    std::map<SiteKey, Site> sites; /* of the block; the warp comes first */
    std::unordered_set<uintptr_t> loaded, stored; /* sectors of the launch */
};

/* The table, which is written when the process ends. */
struct Book {
    std::map<std::string, Counts> kernels;
    std::map<std::string, Lines> lines; /* by kernels too */
    std::string path;
    Grid grid;
    Kernel now; /* the launch that runs */
    bool counts;

    Book() : grid(), now(), counts(false)
    {
        const char *text = std::getenv("BATON_SIMT_COUNT");

        if ((text != nullptr) && (text[0] != '\0')) {
            path = text;
            counts = true;
        }
    }

    ~Book()
    {
        if (!path.empty()) {
            write();
            write_lines();
        }
    }

    void write() const
    {
        std::FILE *file = std::fopen(path.c_str(), "w");

        if (file == nullptr) {
            std::perror(path.c_str());
            return;
        }
        std::fprintf(file, "kernel");
        for (const auto &column : kColumns) {
            std::fprintf(file, "\t%s", column.name);
        }
        for (const auto &kernel : kernels) {
            std::fprintf(file, "\n%s", kernel.first.c_str());
            for (const auto &column : kColumns) {
                std::fprintf(file, "\t%llu",
                             static_cast<unsigned long long>(kernel.second.*
                                                             column.member));
            }
        }
        std::fprintf(file, "\n");
        std::fclose(file);
    }

    void write_lines() const
    {
        static const char *const kAccess[] = {"load", "store", "atomic"};
        static const char *const kSpace[] = {"global", "shared"};
        std::FILE *file = std::fopen((path + ".lines").c_str(), "w");

        if (file == nullptr) {
            std::perror(path.c_str());
            return;
        }
        std::fprintf(file, "kernel\tfile\tline\taccess\tspace");
        for (const auto &column : kLineColumns) {
            std::fprintf(file, "\t%s", column.name);
        }
        for (const auto &kernel : lines) {
            for (const auto &line : kernel.second) {
                std::fprintf(file, "\n%s\t%s\t%d\t%s\t%s", kernel.first.c_str(),
                             std::get<0>(line.first).c_str(),
                             std::get<1>(line.first),
                             kAccess[static_cast<int>(std::get<2>(line.first))],
                             kSpace[static_cast<int>(std::get<3>(line.first))]);
                for (const auto &column : kLineColumns) {
                    std::fprintf(file, "\t%llu",
                                 static_cast<unsigned long long>(
                                     line.second.*column.member));
                }
            }
        }
        std::fprintf(file, "\n");
        std::fclose(file);
    }
};

Book &book()
{
    static Book the_book;

    return the_book;
}

/* Those of the lanes' values that differ, in order. */
size_t keep_different(uintptr_t *values, size_t n)
{
    std::sort(values, values + n);
    return static_cast<size_t>(std::unique(values, values + n) - values);
}

void count_global(const Site &site, const Request &request, Line *line)
{
    Kernel &now = book().now;
    const bool loads = site.access == Access::kRead;
    const uintptr_t per_lane =
        (site.bytes + kSectorBytes - 1) / kSectorBytes; /* it is aligned */
    std::vector<uintptr_t> sectors;
    uintptr_t at[kWarp];
    size_t n = 0;

    for (unsigned lane = 0; lane < kWarp; lane++) {
        if (((request.lanes >> lane) & 1) != 0) {
            at[n++] = request.at[lane];
        }
    }
    n = keep_different(at, n);
    for (size_t i = 0; i < n; i++) {
        for (uintptr_t j = 0; j < per_lane; j++) {
            sectors.push_back(at[i] / kSectorBytes + j);
        }
    }
    sectors.resize(keep_different(sectors.data(), sectors.size()));
    (loads ? now.loaded : now.stored).insert(sectors.begin(), sectors.end());
    (loads ? now.counts.load_requests : now.counts.store_requests)++;
    (loads ? now.counts.load_sectors : now.counts.store_sectors) +=
        sectors.size();
    (loads ? now.counts.load_bytes : now.counts.store_bytes) += n * site.bytes;
    line->sectors += sectors.size();
    line->bytes += n * site.bytes;
}

/* Of @a n lanes from @a first on: words of the bank that most are wanted of. */
size_t wavefronts_of(const Site &site, const Request &request, unsigned first,
                     unsigned n)
{
    std::vector<uintptr_t> banks[kBanks];
    size_t most = 0;

    for (unsigned lane = first; lane < first + n; lane++) {
        if (((request.lanes >> lane) & 1) == 0) {
            continue;
        }
        for (uintptr_t at = request.at[lane] / 4;
             at <= (request.at[lane] + site.bytes - 1) / 4; at++) {
            banks[at % kBanks].push_back(at);
        }
    }
    for (std::vector<uintptr_t> &bank : banks) {
        most = std::max(most, keep_different(bank.data(), bank.size()));
    }
    return most;
}

/* Do all lanes that come want what the one @a beside them wants? */
bool in_pairs(const Request &request, unsigned beside)
{
    for (unsigned lane = 0; lane < kWarp; lane++) {
        const unsigned other = lane ^ beside;

        if ((((request.lanes >> lane) & (request.lanes >> other) & 1) != 0) &&
            (request.at[lane] != request.at[other])) {
            return false;
        }
    }
    return true;
}

/* In how many parts a warp is served. Of 16 bytes it is two where lanes go in
 * pairs (Nvidia's forum, "Unexpected shared memory bank conflict", 77228). */
unsigned parts_of(const Site &site, const Request &request)
{
    if (site.bytes <= 4) {
        return 1;
    }
    return ((site.bytes == 8) || in_pairs(request, 1) || in_pairs(request, 2))
               ? 2
               : 4;
}

void count_shared(const Site &site, const Request &request, Line *line)
{
    Counts &counts = book().now.counts;
    const unsigned n_parts = parts_of(site, request);

    counts.shared_requests++;
    for (unsigned i = 0; i < n_parts; i++) {
        const size_t wavefronts =
            wavefronts_of(site, request, i * kWarp / n_parts, kWarp / n_parts);

        counts.wavefronts += wavefronts;
        counts.conflicts += (wavefronts > 1) ? wavefronts - 1 : 0;
        line->wavefronts += wavefronts;
        line->conflicts += (wavefronts > 1) ? wavefronts - 1 : 0;
    }
}

uint32_t lanes_of(unsigned warp)
{
    const unsigned n = std::min(kWarp, book().grid.threads - warp * kWarp);

    return static_cast<uint32_t>((uint64_t(1) << n) - 1);
}

void count_request(const SiteKey &key, const Site &site, const Request &request)
{
    Counts &counts = book().now.counts;
    Line &line = book().now.lines[LineKey(std::get<1>(key), std::get<2>(key),
                                          site.access, site.space)];
    const bool divergent =
        !site.rows && (request.lanes != lanes_of(std::get<0>(key)));

    if (site.space == Space::kGlobal) {
        count_global(site, request, &line);
    } else {
        count_shared(site, request, &line);
    }
    counts.atomics += (site.access == Access::kAtomic) ? 1 : 0;
    counts.divergent += divergent ? 1 : 0;
    line.requests++;
    line.divergent += divergent ? 1 : 0;
}

void note(const void *p, const SiteKey &key, bool rows)
{
    const unsigned warp = std::get<0>(key);
    const unsigned lane = thread_index().x % kWarp;
    Site &site = book().now.sites[key];

    std::tie(std::ignore, std::ignore, std::ignore, site.access, site.space,
             site.bytes) = key;
    site.rows = rows;

    const unsigned i = site.visits[lane]++ - site.n_gone;

    if (i >= site.requests.size()) {
        site.requests.push_back(Request());
    }
    site.requests[i].lanes |= 1u << lane;
    site.requests[i].at[lane] = reinterpret_cast<uintptr_t>(p);
    /* What is whole need not be kept until the barrier. */
    while (!site.requests.empty() &&
           (site.requests.front().lanes == lanes_of(warp))) {
        count_request(key, site, site.requests.front());
        site.requests.pop_front();
        site.n_gone++;
    }
}

} // namespace

void count(bool on)
{
    book().counts = on;
}

Counts counts_of(const std::string &kernel)
{
    return book().kernels[kernel];
}

void count_launch(const Grid &grid)
{
    book().grid = grid;
    book().now = Kernel();
}

void count_launch_end(bool well)
{
    Kernel &now = book().now;

    if (!book().counts || !well) {
        return;
    }
    now.counts.launches = 1;
    now.counts.blocks = book().grid.blocks;
    now.counts.threads = uint64_t(book().grid.blocks) * book().grid.threads;
    now.counts.load_sectors_once = now.loaded.size();
    now.counts.store_sectors_once = now.stored.size();
    for (const auto &column : kColumns) {
        book().kernels[book().grid.kernel].*column.member +=
            now.counts.*column.member;
    }
    for (const auto &line : now.lines) {
        for (const auto &column : kLineColumns) {
            book().lines[book().grid.kernel][line.first].*column.member +=
                line.second.*column.member;
        }
    }
}

void count_epoch(bool barrier)
{
    Kernel &now = book().now;

    for (const auto &entry : now.sites) {
        for (const Request &request : entry.second.requests) {
            count_request(entry.first, entry.second, request);
        }
    }
    now.sites.clear();
    now.counts.barriers += barrier ? 1 : 0;
}

void count_access(const void *p, size_t bytes, Access access, Space space,
                  const Place &place)
{
    if (book().counts) {
        note(p,
             SiteKey(thread_index().x / kWarp, place.file, place.line, access,
                     space, bytes),
             false);
    }
}

void count_row(const void *p, const Place &place)
{
    if (book().counts) {
        note(p,
             SiteKey(thread_index().x / kWarp, place.file, place.line,
                     Access::kRead, Space::kShared, 16),
             true);
    }
}

void count_product()
{
    book().now.counts.products++;
}

} // namespace simt
