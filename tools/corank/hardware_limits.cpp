#include "tools/corank/hardware_limits.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <future>
#include <span>

#include "corank/error.hpp"
#include "io/file.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "kernels/backend/link.hpp"
#include "util/buffer_pool.hpp"
#include "util/system_limits.hpp"

namespace corank {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t piece_bytes = std::uint64_t{4} << 20;
constexpr int rounds = 3;
constexpr unsigned files_at_once = 4;
// Requests in flight, one a thread: more do not help any disk, fewer leave fast disks idle.
constexpr unsigned direct_threads = 16;

struct Round {
  std::uint64_t pieces;  // the number of pieces done, from the first on
  double seconds;
  double rate() const { return static_cast<double>(pieces * piece_bytes) / seconds; }
};

// Runs `work` for each piece on several threads, until the time is up. Each thread does at least
// one piece.
Round run_round(unsigned threads, std::uint64_t pieces, Clock::duration time,
                const std::function<void(std::uint64_t)>& work) {
  std::atomic<std::uint64_t> next = 0;
  const auto start = Clock::now();
  const auto take = [&] {
    do {
      const std::uint64_t piece = next++;
      if (piece >= pieces) return;
      work(piece);
    } while (Clock::now() - start < time);
  };
  std::vector<std::future<void>> others;
  for (unsigned i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, take));
  take();
  for (auto& other : others) other.get();
  // A thread may have taken a number past the last piece.
  const std::uint64_t done = std::min(next.load(), pieces);
  return {done, std::chrono::duration<double>(Clock::now() - start).count()};
}

class Measurement {
 public:
  explicit Measurement(const CeilingOptions& options)
      : options_(options),
        pieces_(pieces_with_room(options)),
        pool_(piece_bytes * pieces_, 1, nullptr),
        memory_(pool_.lease()) {
    run_round(all_, pieces_, Clock::duration::max(), [this](std::uint64_t i) {
      std::memset(piece(i).data(), static_cast<int>(i), piece_bytes);
    });
  }

  std::vector<Ceiling> all() && {
    memory_copies();
    page_cache();
    direct();
    link();
    return std::move(found_);
  }

 private:
  static std::uint64_t pieces_with_room(const CeilingOptions& options) {
    const std::uint64_t pieces =
        std::max<std::uint64_t>(options.bytes / piece_bytes, files_at_once);
    std::error_code unknown;
    const std::uint64_t room = std::filesystem::space(options.folder, unknown).available;
    if (!unknown && room < piece_bytes * pieces)
      throw Error(
          fmt::format("{}: {} MiB are free, and measuring needs {}; free some space or name "
                      "another folder by --in",
                      options.folder.string(), room >> 20, piece_bytes * pieces >> 20));
    return pieces;
  }

  std::span<std::byte> piece(std::uint64_t i) const {
    return memory_.bytes().subspan(i % pieces_ * piece_bytes, piece_bytes);
  }

  static std::string threads_text(unsigned threads) {
    return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
  }

  std::vector<unsigned> one_and_all() const {
    return all_ == 1 ? std::vector{1u} : std::vector{1u, all_};
  }

  void add(std::string name, std::string what, double rate, std::string note = {}) {
    found_.push_back({std::move(name), std::move(what), rate, std::move(note)});
  }

  // Returns the best rate over an unlimited number of pieces.
  double endless(unsigned threads, const std::function<void(std::uint64_t)>& work) const {
    double best = 0;
    for (int i = 0; i < rounds; ++i)
      best = std::max(best, run_round(threads, ~std::uint64_t{0}, options_.round, work).rate());
    return best;
  }

  void memory_copies() {
    const std::uint64_t half = pieces_ / 2;
    for (const unsigned threads : one_and_all())
      add(fmt::format("memory_copy_{}", threads == 1 ? "one" : "all"),
          "memory copy, " + threads_text(threads), endless(threads, [&](std::uint64_t i) {
            std::memcpy(piece(half + i % half).data(), piece(i % half).data(), piece_bytes);
          }));
  }

  void write_piece(const FileDescriptor& file, std::uint64_t i, std::uint64_t at) const {
    const std::span<const std::byte> bytes = piece(i);
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t put = ::pwrite(file.get(), bytes.data() + done, bytes.size() - done,
                                   static_cast<off_t>(at * piece_bytes + done));
      if (put >= 0)
        done += static_cast<std::size_t>(put);
      else if (errno != EINTR)
        throw_file_error(options_.folder, "write to a temporary file");
    }
  }

  void read_piece(const FileDescriptor& file, std::uint64_t i, std::uint64_t at) const {
    if (read_at(file, piece(i), at * piece_bytes, options_.folder) != piece_bytes)
      throw Error(options_.folder.string() + ": a temporary file here became shorter");
  }

  void page_cache() {
    // New files each round, because a merge's output is not in the page cache yet.
    const auto write = [&](unsigned threads, unsigned files) {
      double best = 0;
      for (int round = 0; round < rounds; ++round) {
        std::array<FileDescriptor, files_at_once> opened;
        for (unsigned f = 0; f < files; ++f) opened[f] = open_nameless(options_.folder);
        const Round done = run_round(threads, pieces_, options_.round, [&](std::uint64_t i) {
          write_piece(opened[i % files], i, i / files);
        });
        best = std::max(best, done.rate());
      }
      return best;
    };
    for (const unsigned threads : one_and_all())
      add(fmt::format("page_cache_write_{}", threads == 1 ? "one" : "all"),
          "page cache, write one file, " + threads_text(threads), write(threads, 1));
    add("page_cache_write_files", fmt::format("page cache, write {} files", files_at_once),
        write(files_at_once, files_at_once));

    const FileDescriptor file = open_nameless(options_.folder);
    const std::uint64_t written = run_round(1, pieces_, options_.round, [&](std::uint64_t i) {
                                    write_piece(file, i, i);
                                  }).pieces;
    for (const unsigned threads : one_and_all())
      add(fmt::format("page_cache_read_{}", threads == 1 ? "one" : "all"),
          "page cache, read, " + threads_text(threads),
          endless(threads, [&](std::uint64_t i) { read_piece(file, i, i % written); }));
  }

  void direct() {
    const auto open_direct = [this] {
      FileDescriptor file = open_nameless(options_.folder);
      return make_direct(file) ? std::move(file) : FileDescriptor();
    };
    if (!open_direct()) {
      add("direct", "disk, direct", 0,
          "the folder is in memory, or its file system refuses direct access (O_DIRECT)");
      return;
    }
    const auto time = 2 * options_.round;  // disks need longer to reach their rate
    double write = 0, read = 0;
    for (int round = 0; round < rounds; ++round) {
      const FileDescriptor file = open_direct();
      // Without support for fallocate(), the file grows as it is written, like a merge's output.
      if (::fallocate(file.get(), 0, 0, static_cast<off_t>(pieces_ * piece_bytes)) != 0 &&
          errno != EOPNOTSUPP)
        throw_file_error(options_.folder, "make room for a temporary file");
      const Round written = run_round(direct_threads, pieces_, time,
                                      [&](std::uint64_t i) { write_piece(file, i, i); });
      write = std::max(write, written.rate());
      read = std::max(read, run_round(direct_threads, written.pieces, time, [&](std::uint64_t i) {
                              read_piece(file, i, i);
                            }).rate());
    }
    add("direct_write", "disk, direct, write", write);
    add("direct_read", "disk, direct, read", read);
  }

  void link() {
    const CudaDevice device = find_cuda_device(options_.device);
    if (!device.usable) {
      add("link", "link to the GPU", 0, device.description);
      return;
    }
    const LinkRates rates = measure_link({options_.device});
    add("link_up", "link to the GPU, up", rates.up);
    add("link_down", "link to the GPU, down", rates.down);
    add("link_both", "link to the GPU, both ways at once, each way", rates.both);
  }

  const CeilingOptions options_;
  const unsigned all_ = static_cast<unsigned>(processor_limit().value);
  const std::uint64_t pieces_;
  BufferPool pool_;
  Buffer memory_;
  std::vector<Ceiling> found_;
};

}  // namespace

std::vector<Ceiling> measure_ceilings(const CeilingOptions& options) {
  return Measurement(options).all();
}

}  // namespace corank
