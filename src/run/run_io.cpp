#include "run/run_io.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <memory>
#include <optional>

#include "codec/decompressor.hpp"
#include "corank/error.hpp"
#include "io/file.hpp"
#include "io/mapped_file.hpp"
#include "util/buffer_pool.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"
#include "util/system_limits.hpp"

namespace corank {
namespace {

// Descriptors reserved for everything but the runs (the output, passes, runs opened for one read),
// and for each part of the output.
constexpr std::size_t other_descriptors = 96;
constexpr std::size_t part_descriptors = 2;

// Min chunk size for direct I/O; smaller reads gain more from the page cache than it costs.
constexpr std::uint64_t min_direct_chunk_bytes = std::uint64_t{64} << 10;
// Max runs to map, well below the system's default limit on mappings. See docs/tuning.md.
constexpr std::size_t max_mapped = 16'384;

// Returns whether a sample of the runs, the first included, is in the page cache.
bool are_cached(std::span<const Run> runs) {
  assert(!runs.empty());  // `step` would be 0
  constexpr std::size_t samples = 16;
  const std::size_t step = divide_up(runs.size(), samples);
  for (std::size_t i = 0; i < runs.size(); i += step)
    if (!runs[i].is_cached()) return false;
  return true;
}

void map(std::span<Run> runs, std::uint64_t resident_bytes) {
  if (runs.size() > max_mapped)
    throw_error(ErrorCode::options, "{}: maps no more than {} runs, and there are {}; use auto",
                setting_is(Setting::io, "mapped"), max_mapped, runs.size());
  std::vector<std::uint64_t> file_bytes;
  for (const Run& run : runs) file_bytes.push_back(run.file_bytes());
  const auto files = std::make_shared<MappedFiles>(file_bytes, resident_bytes);
  for (Run& run : runs) run.map_into(files);
}

// Returns whether the run is a BGZF file, made of gzip members that tell their size, without the
// empty member that all writers append.
bool lacks_bgzf_end(const Run& run) {
  if (run.is_pipe() || run.input().codec != Codec::gzip) return false;
  std::array<std::byte, bgzf_end.size()> bytes;
  if (run.file_bytes() < bytes.size()) return false;
  const auto file = run.descriptor();
  read_at(*file, bytes, 0, run.path());
  if (!is_bgzf(bytes)) return false;
  read_at(*file, bytes, run.file_bytes() - bytes.size(), run.path());
  return std::memcmp(bytes.data(), bgzf_end.data(), bytes.size()) != 0;
}

void warn_of_cut_off(const Run& run, const Options& options) {
  warn(options.notice,
       "{}: lacks the empty block that BGZF files end with, so it may have been cut off; check "
       "that it is whole",
       run.shown_path());
}

// Returns how to open one of `num_runs` runs, which share threads and memory.
Run::Opening opening_of(const RecordFormat& format, const Options& options, std::size_t num_runs,
                        bool keep_open) {
  const std::uint64_t memory_bytes = memory_budget(options.memory_bytes).value;
  const std::uint64_t threads = thread_budget(options.threads).value;
  const bool has_mark = format.header() && !format.header()->has_known_size();
  return {.keep_open = keep_open,
          .decompress = options.decompress,
          .decompression = {.max_decoder_bytes = memory_bytes,
                            .max_threads = static_cast<unsigned>(threads / num_runs),
                            .max_parallel_bytes = memory_bytes / 4 / num_runs},
          .header_bytes = format.traits().header_bytes,
          .mark = std::string(has_mark ? format.header()->byte_order_mark() : "")};
}

}  // namespace

std::vector<Run> open_runs(std::span<const std::filesystem::path> paths, const RecordFormat& format,
                           const Options& options) {
  const std::size_t limit = descriptor_limit();
  const std::size_t others = other_descriptors + part_descriptors * options.parts;
  const std::size_t keep_open = limit > 2 * others ? limit - others : limit / 4;
  std::vector<Run> runs;
  runs.reserve(paths.size());
  for (const auto& path : paths) {
    if (options.stop.stop_requested()) throw Interrupted();
    check_path(path);
    Run run(path, format.counted_bytes(),
            opening_of(format, options, paths.size(), runs.size() < keep_open));
    if (lacks_bgzf_end(run)) warn_of_cut_off(run, options);
    const InputStatus& input = run.input();
    const auto is_same_pipe = [&](const Run& other) {
      return other.is_pipe() && other.input().identity == input.identity;
    };
    if (input.is_pipe && std::ranges::any_of(runs, is_same_pipe))
      throw Error(run.path().string() +
                  ": is named more than once; a pipe or standard input can be one run only");
    run.stop_on(options.stop);
    runs.push_back(std::move(run));
  }
  if (std::ranges::any_of(runs, &Run::is_stream))
    std::ranges::transform(runs, runs.begin(), &Run::in_bytes);
  return runs;
}

std::vector<Run> open_runs(std::span<const NamedSource> sources, const RecordFormat& format,
                           const Options& options) {
  std::vector<Run> runs;
  for (const NamedSource& source : sources) {
    if (!source.bytes) throw Error(ErrorCode::options, source.name + ": has no ByteSource");
    const auto same = std::ranges::find(sources, source.bytes, &NamedSource::bytes);
    if (&*same != &source)
      throw_error(ErrorCode::options, "{}: has the ByteSource of {}; each run needs its own",
                  source.name, same->name);
    runs.emplace_back(source, opening_of(format, options, sources.size(), true), options.stop);
  }
  return runs;
}

void warn_of_cut_off_pipes(std::span<const Run> runs, const Options& options) {
  for (const Run& run : runs)
    if (const auto& lacks_end = run.input().lacks_bgzf_end; lacks_end && *lacks_end)
      warn_of_cut_off(run, options);
}

const char* choose_io(std::span<Run> runs, Io io, bool may_map, std::uint64_t resident_bytes,
                      std::uint64_t direct_chunk_bytes) {
  if (std::ranges::all_of(runs, &Run::is_stream)) return "streamed";
  // A header that is not a multiple of the widest load would leave records in place unaligned.
  constexpr std::uint64_t alignment_bytes = 16;
  if (runs.front().record_bytes() != 1 && std::ranges::any_of(runs, [](const Run& run) {
        return run.header_bytes() % alignment_bytes != 0;
      }))
    return "buffered";
  const bool automatic = io == Io::automatic, cached = are_cached(runs);
  if (io == Io::mapped || (automatic && cached && may_map && runs.size() <= max_mapped)) {
    map(runs, resident_bytes);
    return "mapped";
  }
  if ((io == Io::direct || (automatic && !cached)) &&
      direct_chunk_bytes >= min_direct_chunk_bytes &&
      std::ranges::none_of(runs, &Run::is_stream) &&  // decompressors read any number of bytes
      std::ranges::all_of(runs, &Run::make_direct))
    return "direct";
  return "buffered";
}

}  // namespace corank
