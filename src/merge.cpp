#include "corank/merge.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <tbb/task_arena.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "checksum.hpp"
#include "cpu_backend.hpp"
#include "cuda_backend.hpp"
#include "fallback_backend.hpp"
#include "header.hpp"
#include "key_search.hpp"
#include "line_search.hpp"
#include "merge_errors.hpp"
#include "option_checks.hpp"
#include "output_parts.hpp"
#include "pipeline.hpp"
#include "resume.hpp"
#include "run_cuts.hpp"
#include "scan.hpp"
#include "stream_reader.hpp"

namespace corank {
namespace {

// Descriptors left to everything but the runs: the output, passes, runs opened for one read.
constexpr std::size_t other_descriptors = 96;

// What is known of a run, its name and where the merge is in it, shows where runs are this many.
constexpr std::uint64_t many_runs = 10'000;
constexpr std::uint64_t bytes_known_of_a_run = 768;

// Below these the page cache costs less than it saves.
constexpr std::uint64_t least_direct_bytes = std::uint64_t{64} << 20;
constexpr std::uint64_t least_direct_chunk_bytes = std::uint64_t{64} << 10;
// A process may have 65,530 mappings, by default.
constexpr std::size_t most_mapped = 16'384;

// Of a chunk that begins and ends within a page.
std::uint64_t direct_edge_bytes() {
  return 2 * page_bytes();
}

std::vector<Run> open_runs(std::span<const std::filesystem::path> paths, std::uint32_t record_bytes,
                           const Options& options) {
  if (std::ranges::count(paths, "-") > 1)
    throw Error("-: standard input is named more than once; it can be one run only");
  const std::size_t limit = descriptor_limit();
  const std::size_t keep_open =
      limit > 2 * other_descriptors ? limit - other_descriptors : limit / 4;
  std::vector<Run> runs;
  runs.reserve(paths.size());
  for (const auto& path : paths) {
    if (options.stop.stop_requested()) throw Interrupted();
    runs.emplace_back(path, record_bytes, runs.size() < keep_open, options.decompress);
    runs.back().stop_on(options.stop);
  }
  return runs;
}

std::uint64_t default_memory_bytes() {
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  return std::min(pages * page_bytes() / 4, std::uint64_t{4} << 30);
}

struct BackendDecision {
  bool cuda = false;
  std::string reason;
};

// Of what holds `bytes` bytes.
BackendDecision decide_backend(const Options& options, std::uint64_t bytes) {
  if (options.backend == BackendChoice::cpu) return {false, "asked for"};
  if (options.text && std::ranges::any_of(options.text->keys, [](const TextKey& key) {
        return key.type == TextType::f64;
      })) {
    if (options.backend == BackendChoice::cuda)
      throw Error(
          "--backend cuda does not read decimal fractions; use --backend cpu or auto where a key "
          "is of type f64");
    return {false, "decimal fractions are read on the CPU"};
  }
  if (options.backend == BackendChoice::automatic && built_with_cuda() &&
      bytes < options.least_device_bytes)
    return {false, "the runs hold too little to start a device for"};
  const CudaDevice device = find_cuda_device(options.device);
  if (options.backend == BackendChoice::automatic)
    return {device.usable, device.usable ? "a usable device was found" : device.description};
  if (!device.usable)
    throw Error(fmt::format("--backend cuda: {}; use --backend cpu or auto", device.description));
  return {true, "asked for"};
}

// Where passes before the last put their files: where the output needs as much space anyway.
std::filesystem::path folder_for_passes(const std::filesystem::path& output) {
  if (output == "-" || std::filesystem::exists(output))
    if (output == "-" || !std::filesystem::is_regular_file(output))
      return std::filesystem::temp_directory_path();
  return output.has_parent_path() ? output.parent_path() : ".";
}

// The pages of runs in memory and of their output, without overlaps: one page may hold several
// runs, but can be pinned only once.
std::vector<std::span<const std::byte>> pages_of(std::span<const Run> runs,
                                                 std::span<const std::byte> output) {
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  const auto add = [&](const std::byte* begin, std::size_t bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    if (bytes != 0)
      ranges.emplace_back(address - address % page_bytes(),
                          round_up(address + bytes, page_bytes()));
  };
  for (const Run& run : runs)
    if (run.in_place(0)) add(run.in_place(0), run.bytes());
  add(output.data(), output.size());
  std::ranges::sort(ranges);
  std::vector<std::span<const std::byte>> pages;
  for (std::size_t i = 0; i < ranges.size();) {
    auto [begin, end] = ranges[i++];
    for (; i < ranges.size() && ranges[i].first <= end; ++i) end = std::max(end, ranges[i].second);
    pages.emplace_back(reinterpret_cast<const std::byte*>(begin), end - begin);
  }
  return pages;
}

// Slices of whole groups, by one of the last records before each, and in it; empty: there is none.
struct Edges {
  std::vector<std::byte> before, last;
};

constexpr std::string_view differs = "it does not hold what the runs do";

void say_starting_over(const Options& options, const std::filesystem::path& output,
                       std::string_view why) {
  if (options.notice)
    options.notice(
        fmt::format("{}: what a stopped merge left cannot be gone on with, since {}; starting over",
                    output.string(), why));
}

std::uint64_t digest(const std::string& text) {
  return records_checksum(std::as_bytes(std::span(text)), static_cast<std::uint32_t>(text.size()));
}

// One call of merge().
class Merge {
 public:
  // The runs stand behind their headers.
  Merge(std::vector<Run> runs, const Options& options, std::string header = {})
      : options_(options),
        header_(std::move(header)),
        output_header_(header_),
        encoding_(options.text ? KeyEncoding(text_.emplace(*options.text, header_).layout())
                               : KeyEncoding(options.record, options.keys)),
        cuts_(encoding_, options.copy_only),
        output_schema_(selected(options.record, options.shaping.select)),
        threads_(options.threads ? options.threads
                                 : std::max(std::thread::hardware_concurrency(), 1u)),
        memory_bytes_(options.memory_bytes ? options.memory_bytes : default_memory_bytes()),
        runs_(std::move(runs)),
        fingerprints_(runs_.size()) {
    scheduler_.initialize();
    for (const Run& run : runs_) {
      has_streams_ = has_streams_ || run.is_stream();
      decoder_bytes_ = std::max(decoder_bytes_, run.input().memory_bytes);
      if (run.is_stream()) check_stream_options(options_, run);
    }
    sequential_ = has_streams_ || options.text;
    if (sequential_)
      for (Run& run : runs_) run.count_bytes();
    options.text ? prepare_text_shape() : prepare_shape();
    run_records_ = records_of(runs_);
    decision_ = decide_backend(options_, known_bytes());
    if (options_.verify)
      fingerprint_ = decision_.cuda ? portable_fingerprint : fingerprint_sums().front();
    if (runs_.size() >= many_runs) {
      const std::uint64_t least_bytes = smallest_budget() * std::max(options.parts, 1u);
      memory_bytes_ =
          std::max(memory_bytes_ - std::min(memory_bytes_ / 4, runs_.size() * bytes_known_of_a_run),
                   std::min(memory_bytes_, least_bytes));
    }
  }

  Stats into_file(const std::filesystem::path& output) {
    std::optional<OutputParts> parts;
    std::vector<std::filesystem::path> paths{output};
    if (options_.compression)
      compression_ = *options_.compression;
    else if (options_.parts == 0)
      compression_.codec = Compression::by_name(output.native());
    reserve_for_compression();
    if (options_.parts != 0)
      paths = parts.emplace(output, options_.parts, suffix_of(compression_.codec)).paths();
    std::vector<Writer> writers;
    try {
      into_writers(paths, writers, folder_for_passes(output));
    } catch (const Error& error) {
      if (options_.resume && (dynamic_cast<const Interrupted*>(&error) != nullptr ||
                              dynamic_cast<const FileError*>(&error) != nullptr))
        for (const Writer& writer : writers) {
          writer.atomic()->leave();
          if (&writer == &writers.front() && options_.notice)
            options_.notice(output.string() +
                            ": what was written is kept; with --resume a merge goes on from there");
        }
      throw;
    }
    return finish("writing " + output.string());
  }

  Stats into_memory(std::span<std::byte> output) {
    progress_.bytes_total = output.size();
    widest_of(1);
    stats_.io = "memory";
    last_pass_ = true;
    const Slice all{0, run_records_};
    run_pass(runs_, {&all, 1}, {}, output);
    return finish("writing to memory");
  }

 private:
  // As much as can be where some run is a pipe.
  std::uint64_t known_bytes() const {
    std::uint64_t bytes = 0;
    for (const Run& run : runs_) {
      if (run.input().is_stream) return std::numeric_limits<std::uint64_t>::max();
      bytes += run.bytes();
    }
    return bytes;
  }

  // Of what runs count, which are the bytes themselves where runs are read in order.
  std::uint32_t record_bytes() const { return sequential_ ? 1 : options_.record.record_bytes; }
  std::uint64_t smallest_budget() const {
    const std::uint64_t bytes =
        options_.text ? smallest_text_memory() : smallest_memory(options_.record.record_bytes);
    return has_streams_ ? std::max(2 * bytes, 4 * decoder_bytes_) : bytes;
  }
  // Of what goes out.
  std::uint32_t output_bytes() const { return sequential_ ? 1 : output_schema_.record_bytes; }
  bool is_shaped() const { return shape_ || text_shape_; }
  bool keeps_number() const { return !text_shape_ && (!shape_ || shape_->keeps_number()); }

  // Ranges, and limits where every record goes out, are cuts of the runs.
  void prepare_shape() {
    const Shaping& shaping = options_.shaping;
    output_encoding_.emplace(output_schema_, keys_of_output());
    rotate_runs();
    keep_range();
    if (shaping.on_equal == OnEqual::error) inputs_ = runs_;
    // In a stream nothing is found but by reading.
    if (Shape shape(options_.record, options_.keys, encoding_, shaping, runs_.size());
        !shape.keeps_all() || (has_streams_ && shaping.limit))
      shape_.emplace(std::move(shape));
    else if (shaping.limit)
      keep_first(*shaping.limit);
  }

  // In a stream nothing is found but by reading; nor are CSV and pairs.
  bool finds_lines() const { return options_.text->kind == TextKind::lines && !has_streams_; }

  // See SetOperation.
  void rotate_runs() {
    const OnEqual kind = options_.shaping.on_equal;
    if (kind == OnEqual::intersect || kind == OnEqual::subtract)
      std::rotate(runs_.begin(), runs_.begin() + 1, runs_.end());
  }

  // The ends of a range are found in lines that are read from where they are wanted; what is in
  // between of other runs is told by reading.
  void prepare_text_shape() {
    const Shaping& shaping = options_.shaping;
    rotate_runs();
    if (shaping.on_equal == OnEqual::error) inputs_ = runs_;
    const auto bound = [&](const std::vector<std::string>& values, const char* option) {
      return values.empty() ? std::nullopt
                            : std::optional<TextBound>({text_->layout(), values, option});
    };
    const auto from = bound(shaping.text_from, "--from"), to = bound(shaping.text_to, "--to");
    for (Run& run : runs_) {
      if (!finds_lines()) break;
      const auto find = [&](const std::optional<TextBound>& key, std::uint64_t without) {
        return key ? find_line(run, key->layout(), key->record(), Bound::lower, 0, run.records())
                   : without;
      };
      const std::uint64_t first = find(from, 0), end = find(to, run.records());
      run = run.stretch(first, std::max(first, end) - first);
    }
    TextShape shape(encoding_, *options_.text, header_, shaping, finds_lines(), runs_.size());
    if (shape.keeps_all()) return;
    text_shape_.emplace(std::move(shape));
    const TextSelection* const selection = text_shape_->selection();
    if (!selection) return;
    if (!header_.empty()) output_header_ = selection->of_header(header_);
    TextFormat format = *options_.text;
    format.keys.clear();
    output_encoding_.emplace(output_text_.emplace(format).layout());
  }

  // The first of the key fields that go out, up to one that does not.
  std::vector<KeyField> keys_of_output() const {
    std::vector<KeyField> keys;
    for (const KeyField& key : options_.keys.empty() ? std::vector<KeyField>{{0}} : options_.keys) {
      const auto& select = options_.shaping.select;
      const auto at = std::ranges::find(select, key.field);
      if (!select.empty() && at == select.end()) break;
      keys.push_back({select.empty() ? key.field : static_cast<std::uint32_t>(at - select.begin()),
                      key.descending});
    }
    return keys;
  }

  OutputOrder order_of_output() const {
    using enum OutputOrder::Kind;
    if (options_.copy_only) return {&encoding_, none};
    if (last_pass_ && text_shape_ && text_shape_->selection()) return {&*output_encoding_, none};
    if (last_pass_ && text_shape_ && text_shape_->groups() && !text_shape_->set_operation())
      return {&encoding_, strict};
    if (!last_pass_ || !shape_) return {&encoding_, rising};
    const std::size_t keys = keys_of_output().size();
    if (keys == 0) return {&*output_encoding_, none};
    const bool all = keys == std::max<std::size_t>(options_.keys.size(), 1);
    const bool apart = shape_->groups() && !shape_->set_operation();
    return {&*output_encoding_, all && apart ? strict : rising};
  }

  // Only what is within the bounds is a part of the runs.
  void keep_range() {
    std::vector<std::uint64_t> first = search(options_.shaping.from, 0);
    std::vector<std::uint64_t> end =
        search(options_.shaping.to, std::numeric_limits<std::uint64_t>::max());
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      end[i] = std::min(end[i], runs_[i].records());
      runs_[i] = runs_[i].stretch(first[i], std::max(first[i], end[i]) - first[i]);
    }
  }

  // Where in each run the bound is; `without` if there is none.
  std::vector<std::uint64_t> search(const std::vector<FieldValue>& bound,
                                    std::uint64_t without) const {
    std::vector<std::uint64_t> found(runs_.size(), without);
    if (bound.empty()) return found;
    std::vector<KeyField> keys = options_.keys;
    keys.resize(bound.size());  // without keys, it is the first field, ascending
    const KeyEncoding encoding(options_.record, keys);
    std::vector<std::byte> record(record_bytes());
    for (const FieldValue& value : bound)
      std::ranges::copy(value.value, record.begin() + options_.record.fields[value.field].offset);
    for (std::size_t i = 0; i < runs_.size(); ++i)
      found[i] = lower_bound(runs_[i], encoding.layout(), record.data());
    return found;
  }

  // Only the first `count` merged records are a part of the runs.
  void keep_first(std::uint64_t count) {
    if (!options_.copy_only)
      for (Run& run : runs_) run = run.stretch(0, std::min(count, run.records()));
    if (count >= records_of(runs_)) return;
    const std::vector<std::uint64_t> end = cuts_.at(count, runs_);
    for (std::size_t i = 0; i < runs_.size(); ++i) runs_[i] = runs_[i].stretch(0, end[i]);
  }

  void into_writers(const std::vector<std::filesystem::path>& paths, std::vector<Writer>& writers,
                    const std::filesystem::path& folder_for_earlier) {
    const std::uint64_t output_digest =
        digest(output_description(options_, compression_, encoding_, header_, runs_));
    // How many records each part is made from is not known where a limit ends it.
    const bool in_turn = options_.shaping.limit && is_shaped();
    std::vector<Slice> slices = slices_of_output(in_turn ? 1 : paths.size());
    const std::uint64_t added_bytes =
        options_.text && options_.resume ? header_.size() + missing_terminators(runs_) : 0;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto [begin, end] = slices[std::min(i, slices.size() - 1)];
      const AtomicFile::Content content{
          digest(fmt::format("{:x} {} {}", output_digest, begin, end)),
          (end - begin) * output_bytes() + added_bytes,
          !keeps_number() || (shape_ && options_.shaping.limit)};
      writers.emplace_back(
          paths[i], content,
          AtomicFile::Settings{options_.overwrite, options_.resume, options_.checkpoint_interval},
          [this](FileIdentity file) {
            return std::ranges::any_of(runs_,
                                       [&](const Run& run) { return run.identity() == file; });
          },
          options_.stop);
      if (i > 0 && options_.resume && writers.front().atomic()->is_in_place())
        writers.back().atomic()->take_forgotten_target(content);
    }
    const std::uint64_t widest = widest_of(slices.size());
    stats_.io = choose_io(slices.size());
    // Without the page cache an output is durable sooner; what is small is better left in it.
    const std::uint64_t part_bytes = run_records_ / writers.size() * record_bytes();
    const bool direct = options_.io == Io::direct ||
                        (options_.io == Io::automatic && part_bytes >= least_direct_bytes);
    for (std::size_t i = 0; i < writers.size(); ++i) {
      if (i < slices.size()) {
        const Resumption resumed = resume(writers[i], slices[i]);
        writers[i].go_on(resumed.kept_bytes, resumed.merged_bytes);
      }
      if (compression_.codec != Codec::none)
        writers[i].compress(
            compression_, compressing_threads_,
            {options_.trace.empty() ? nullptr : &trace_, "compress", static_cast<unsigned>(i)});
      // How much room compressed or shaped bytes need is not known.
      if (direct && slices.size() == writers.size())
        writers[i].make_direct(compression_.codec == Codec::none && !is_shaped() ? part_bytes : 0);
    }
    std::uint64_t left = 0;
    for (const Slice& slice : slices) left += slice.end - slice.begin;
    progress_.bytes_total = left * record_bytes();

    // No pass has to look at what stands before the first slice.
    const std::uint64_t done = slices.front().begin;
    if (done != 0) {
      const std::vector<std::uint64_t> cut =
          options_.text ? cut_of_kept_
                        : cuts_.checked(done, runs_, std::vector<std::uint64_t>(runs_.size()));
      for (std::size_t i = 0; i < runs_.size(); ++i)
        runs_[i] = runs_[i].stretch(cut[i], runs_[i].records() - cut[i]);
      for (Slice& slice : slices) slice = {slice.begin - done, slice.end - done};
    }
    const std::vector<Edges> edges = edges_of(slices);
    run_earlier_passes(widest, folder_for_earlier);
    totals_.records_written = 0;
    last_pass_ = true;
    // Missing terminators have been added, and what was compressed is so no more.
    if (sequential_) slices.back().end = records_of(runs_);
    if (stats_.passes != 0 && is_set_operation(options_.shaping.on_equal))
      go_on_with_fewer(slices, edges);
    if (writers.front().bytes() == 0)
      writers.front().write(std::as_bytes(std::span(output_header_)));
    run_pass(runs_, slices, writers, {});
    for (const Run& run : runs_) run.check_unchanged();
    if (options_.stop.stop_requested()) throw Interrupted();
    for (Writer& writer : writers) {
      writer.commit();
      stats_.output_bytes += writer.bytes();
    }
    for (std::size_t i = writers.size(); i-- > 0;)
      if (writers[i].atomic()) writers[i].atomic()->forget_sidecar();
  }

  void reserve_for_compression() {
    if (compression_.codec == Codec::none) return;
    if (options_.resume)
      throw Error(
          "--resume can't go on with a compressed output; drop it, or write the output as it is");
    const unsigned outputs = std::max(options_.parts, 1u);
    const auto bytes = [&] {
      return outputs * Compressor::memory_bytes(compression_, compressing_threads_);
    };
    compressing_threads_ = std::max(threads_ / outputs, 1u);
    while (compressing_threads_ > 1 && bytes() > memory_bytes_ / 2) --compressing_threads_;
    reserved_bytes_ = bytes();
    memory_bytes_ -= std::min(memory_bytes_, reserved_bytes_);
  }

  // Equally many records in each, but no group in two.
  std::vector<Slice> slices_of_output(std::size_t count) const {
    std::vector<Slice> slices;
    std::uint64_t rank = 0;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t end = part_of(run_records_, i + 1, count);
      if (i + 1 < count && shape_ && shape_->groups()) {
        const auto cut = cuts_.behind_group(
            cuts_.checked(end, runs_, std::vector<std::uint64_t>(runs_.size())), runs_);
        end = std::max(rank, std::reduce(cut.begin(), cut.end()));
      }
      slices.push_back({rank, end});
      rank = end;
    }
    return slices;
  }

  // Makes the slice begin where the merge goes on with what was left for its writer.
  Resumption resume(const Writer& writer, Slice& slice) {
    const AtomicFile* const file = writer.atomic();
    if (!file || !options_.resume) return {};
    const std::optional<Resumption> found = find_resumption(*file, slice);
    const std::string_view reason = found ? file->why_nothing_left() : differs;
    if (!reason.empty()) say_starting_over(options_, writer.path(), reason);
    if (!found) return {};
    slice.begin = std::max(slice.begin, found->rank);
    cut_of_kept_ = found->cut;
    stats_.resumed_bytes += found->kept_bytes;
    merged_again_bytes_ += found->kept_bytes - found->merged_bytes;
    if (text_ && found->merged_bytes != 0)
      add_lines(written(*file, found->merged_bytes), writer.path());
    if (!text_) resumed_records_ += found->merged_bytes / output_bytes();
    if (options_.checksum && !text_)
      add_checksum(file->descriptor(), found->merged_bytes, writer.path());
    return *found;
  }

  // None if what was left is not of these runs.
  std::optional<Resumption> find_resumption(const AtomicFile& file, const Slice& slice) const {
    const std::uint64_t left_bytes = file.left_bytes();
    if (file.is_in_place()) return Resumption{left_bytes, left_bytes, slice.end, ends_of(runs_)};
    std::optional<Resumption> found;
    if (text_shape_ && text_shape_->selection()) {
      found = resume_from_start(written(file, left_bytes), text_->layout());
    } else if (text_) {
      found = resume_at_line(written(file, left_bytes), text_->layout(), header_,
                             text_shape_.has_value(), runs_);
    } else if (keeps_number()) {
      found = resume_at_rank(left_bytes, output_bytes());
      found->rank += slice.begin;
    } else {
      std::vector<KeyField> keys = options_.keys, output_keys = keys_of_output();
      keys.resize(output_keys.size());  // without keys, it is the first field, ascending
      found = resume_at_key(written(file, left_bytes),
                            {options_.record, options_.shaping.select, output_schema_,
                             std::move(keys), std::move(output_keys)},
                            runs_);
    }
    if (found && found->kept_bytes != 0 && found->rank >= slice.end) return std::nullopt;
    return found;
  }

  // What was written to `file`, its whole records.
  Run written(const AtomicFile& file, std::uint64_t bytes) const {
    Run run(FileDescriptor(::fcntl(file.descriptor().get(), F_DUPFD_CLOEXEC, 0)),
            "the unfinished output", output_bytes(), bytes / output_bytes());
    run.stop_on(options_.stop);
    return run;
  }

  static std::vector<std::uint64_t> ends_of(std::span<const Run> runs) {
    std::vector<std::uint64_t> ends;
    for (const Run& run : runs) ends.push_back(run.records());
    return ends;
  }

  // Of lines that end with their run.
  std::uint64_t missing_terminators(std::span<const Run> runs) const {
    if (options_.text->kind == TextKind::pairs) return 0;
    std::uint64_t missing = 0;
    for (const Run& run : runs) {
      std::byte last{};
      if (run.records() == 0) continue;
      run.read(run.records() - 1, 1, {&last, 1});
      missing += last != static_cast<std::byte>(options_.text->terminator);
    }
    return missing;
  }

  // How many lines they are is asked for only where some may have gone.
  void add_lines(const Run& lines, const std::filesystem::path& path) {
    if (!options_.checksum && !text_shape_) return;
    try {
      TextFormat format = *options_.text;
      if (text_shape_ && text_shape_->selection()) {
        // By a column that no line has, they are in order as they are.
        format.keys.assign(1, {});
        format.keys.front().column = ~std::uint32_t{0};
      }
      const TextEncoding text(format, header_);
      const ScanResult found =
          scan(lines.behind(output_header_.size()), KeyEncoding(text.layout()), options_.checksum);
      resumed_records_ += found.records;
      totals_.checksum += found.checksum;
    } catch (const OutOfOrder&) {
      throw LeftDiffers(path);
    }
  }

  void add_checksum(const FileDescriptor& file, std::uint64_t bytes,
                    const std::filesystem::path& path) {
    const std::uint64_t block_bytes =
        std::max<std::uint64_t>((std::uint64_t{1} << 20) / output_bytes(), 1) * output_bytes();
    std::vector<std::byte> block(block_bytes);
    for (std::uint64_t at = 0; at < bytes; at += block_bytes) {
      if (options_.stop.stop_requested()) throw Interrupted();
      const auto wanted = std::span(block).first(std::min(block_bytes, bytes - at));
      if (read_at(file, wanted, at, path) != wanted.size())
        throw Error(path.string() + ": its unfinished file became shorter; start again");
      totals_.checksum += records_checksum(wanted, output_bytes());
    }
  }

  // The most runs that each of `slices` can merge at once.
  std::uint64_t widest_of(std::size_t slices) const {
    // Half of the memory is left to what decompresses.
    const std::uint64_t bytes = memory_bytes_ / slices / (has_streams_ ? 2 : 1);
    std::uint64_t widest =
        options_.text ? widest_text_pass(bytes) : widest_pass(options_.record.record_bytes, bytes);
    if (decoder_bytes_ != 0) widest = std::min(widest, bytes / decoder_bytes_);
    if (widest < 2)
      throw Error(fmt::format(
          "--memory {}: too little to merge records of {} bytes{}; the smallest budget that works "
          "is {} bytes",
          memory_bytes_ + reserved_bytes_,
          options_.text ? "any number of" : std::to_string(options_.record.record_bytes),
          slices > 1 ? fmt::format(" into {} parts", slices) : "",
          smallest_budget() * slices + reserved_bytes_));
    return widest;
  }

  // Makes the runs ready to be read as options_.io says.
  const char* choose_io(std::size_t slices) {
    if (std::ranges::all_of(runs_, &Run::is_stream)) return "streamed";
    const bool cached = are_cached();
    if (options_.io == Io::mapped || (options_.io == Io::automatic && cached && !decision_.cuda &&
                                      runs_.size() <= most_mapped)) {
      if (runs_.size() > most_mapped)
        throw Error(
            fmt::format("--io mapped: maps no more than {} runs, and there are {}; use auto",
                        most_mapped, runs_.size()));
      std::uint64_t area_bytes = 0;
      for (const Run& run : runs_) area_bytes += round_up(run.file_bytes(), page_bytes());
      const auto files = std::make_shared<MappedFiles>(area_bytes);
      for (Run& run : runs_) run.map_into(files);
      return "mapped";
    }
    if (!sequential_ && (options_.io == Io::direct || (options_.io == Io::automatic && !cached))) {
      const auto plan = plan_runs(runs_, slices, runs_.size(), direct_edge_bytes());
      if (plan && plan->chunk_bytes >= least_direct_chunk_bytes &&
          std::ranges::all_of(runs_, &Run::make_direct))
        return "direct";
    }
    return "buffered";
  }

  // Whether a few of the runs, the first of them, are in the page cache.
  bool are_cached() const {
    constexpr std::size_t samples = 16;
    const std::size_t step = (runs_.size() + samples - 1) / samples;
    for (std::size_t i = 0; i < runs_.size(); i += step)
      if (!runs_[i].is_cached()) return false;
    return true;
  }

  std::optional<PassPlan> plan_runs(std::span<const Run> runs, std::size_t slices,
                                    std::uint64_t held, std::uint64_t edge_bytes) const {
    std::uint64_t merged_bytes = 0;
    std::uint64_t decoders_bytes = 0;
    for (const Run& run : runs) {
      merged_bytes += run.bytes();
      decoders_bytes += run.input().memory_bytes;
    }
    const std::uint64_t memory_bytes =
        memory_bytes_ / slices - std::min(decoders_bytes, held * decoder_bytes_);
    // How many bytes a stream will give is not known.
    if (has_streams_) merged_bytes = std::numeric_limits<std::uint64_t>::max();
    merged_bytes = std::min(merged_bytes, wanted_bytes());
    if (options_.text)
      return plan_text_pass(held, memory_bytes, merged_bytes / slices,
                            decision_.cuda ? largest_cuda_unit_bytes : largest_text_unit_bytes);
    if (sequential_) edge_bytes = stream_margin_bytes;
    return plan_pass(
        held, options_.record.record_bytes, memory_bytes, merged_bytes / slices,
        std::min(std::max(decision_.cuda ? largest_cuda_unit_bytes
                                         : cpu_unit_bytes(std::max(
                                               threads_ / static_cast<unsigned>(slices), 1u)),
                          enough_unit_bytes(runs.size(), merged_bytes / slices)),
                 wanted_bytes()),
        edge_bytes, std::ranges::all_of(runs, &Run::is_mapped));
  }

  // What is merged where every record goes out, up to the limit: units and chunks need not be
  // larger. Small ones cost more, so much less is not worth it.
  std::uint64_t wanted_bytes() const {
    constexpr std::uint64_t least = std::uint64_t{1} << 20;
    constexpr std::uint64_t usual_text_bytes = 256;  // of a record
    if (!last_pass_ || !is_shaped() || !options_.shaping.limit)
      return std::numeric_limits<std::uint64_t>::max();
    if (options_.text)
      return std::max(least, std::min(*options_.shaping.limit, run_records_) * usual_text_bytes);
    return std::max(least, *options_.shaping.limit < run_records_
                               ? *options_.shaping.limit * options_.record.record_bytes
                               : std::numeric_limits<std::uint64_t>::max());
  }

  void run_earlier_passes(std::uint64_t widest, const std::filesystem::path& folder) {
    if (options_.copy_only) return;
    std::vector<std::uint64_t> lengths;
    for (const Run& run : runs_) lengths.push_back(run.records());
    const std::vector<EarlierPass> passes = plan_earlier_passes(lengths, widest);
    std::uint64_t again = 0;
    for (const EarlierPass& pass : passes) again += pass.records * record_bytes();
    progress_.bytes_total += again;
    if (!passes.empty() && options_.notice)
      options_.notice(fmt::format(
          "the memory budget leaves {} bytes for buffers, which merge {} runs at once, not {}: {} "
          "passes, which write {}{} bytes more, to {}; a larger --memory needs fewer",
          memory_bytes_, widest, runs_.size(), passes.size() + 1, has_streams_ ? "about " : "",
          again, folder.string()));
    for (const EarlierPass& pass : passes) {
      const auto first = runs_.begin() + static_cast<std::ptrdiff_t>(pass.first);
      const auto end = first + static_cast<std::ptrdiff_t>(pass.count);
      Writer temporary(folder);
      const Slice all{0, records_of({first, end})};
      shape_earlier(pass.count, end == runs_.end());
      const std::uint64_t merged_before = totals_.records, written_before = totals_.records_written;
      const std::uint64_t fingerprint = run_pass({first, end}, {&all, 1}, {&temporary, 1}, {});
      for (const Run& merged : std::span(first, end)) merged.check_unchanged();
      earlier_records_ += earlier_shape_ || earlier_text_shape_
                              ? totals_.records_written - written_before
                              : totals_.records - merged_before;
      *first = temporary.into_run(record_bytes());
      runs_.erase(first + 1, end);
      fingerprints_[pass.first] = fingerprint;
      const auto gone = fingerprints_.begin() + static_cast<std::ptrdiff_t>(pass.first) + 1;
      fingerprints_.erase(gone, gone + static_cast<std::ptrdiff_t>(pass.count) - 1);
    }
  }

  // A set operation is one of its results, too; but what is subtracted is only merged.
  void shape_earlier(std::size_t runs, bool last_among_them) {
    const OnEqual kind = options_.shaping.on_equal;
    earlier_shape_.reset();
    earlier_text_shape_.reset();
    if (!is_set_operation(kind) || (kind == OnEqual::subtract && !last_among_them)) return;
    Shaping shaping;
    shaping.where = options_.shaping.where;
    shaping.on_equal = kind;
    shaping.text_where = options_.shaping.text_where;
    if (options_.text)
      earlier_text_shape_.emplace(encoding_, *options_.text, header_, shaping, true, runs);
    else
      earlier_shape_.emplace(options_.record, options_.keys, encoding_, shaping, runs);
  }

  // Of several slices the last records before each and in it, where set operations may change the
  // ranks.
  std::vector<Edges> edges_of(std::span<const Slice> slices) const {
    std::vector<Edges> edges;
    if (slices.size() == 1 || !shape_ || !shape_->set_operation()) return edges;
    for (const Slice& slice : slices)
      edges.push_back({cuts_.last_before(cuts_.at(slice.begin, runs_), runs_),
                       cuts_.last_before(cuts_.at(slice.end, runs_), runs_)});
    return edges;
  }

  // After passes of a set operation there are fewer runs and records than at the start.
  void go_on_with_fewer(std::span<Slice> slices, std::span<const Edges> edges) {
    const std::uint64_t records = records_of(runs_);
    if (options_.text) {
      text_shape_.emplace(encoding_, *options_.text, header_, options_.shaping, finds_lines(),
                          runs_.size());
      for (std::size_t i = 0; i < slices.size(); ++i)
        slices[i] = {part_of(records, i, slices.size()), part_of(records, i + 1, slices.size())};
    } else {
      shape_.emplace(options_.record, options_.keys, encoding_, options_.shaping, runs_.size());
      if (edges.empty()) slices.front() = {0, records};
    }
    for (std::size_t i = 0; i < edges.size(); ++i)
      slices[i] = {cuts_.rank_behind(edges[i].before, runs_),
                   cuts_.rank_behind(edges[i].last, runs_)};
    progress_.bytes_total = progress_.bytes_done + records * record_bytes();
  }

  // One slice for each writer, or one into memory. Returns the fingerprint of what an earlier
  // pass has written; 0 where nothing is verified. `runs` is a part of runs_.
  std::uint64_t run_pass(std::span<const Run> runs, std::span<const Slice> slices_of_output,
                         std::span<Writer> writers, std::span<std::byte> in_place) {
    const std::size_t slices = slices_of_output.size();
    const auto threads = static_cast<unsigned>(std::max<std::size_t>(threads_ / slices, 1));
    // Runs in memory hold no chunks; nor do runs that are read one after another, except for what
    // is read ahead, which is as much as of any merge.
    const std::uint64_t held = writers.empty() ? 2
                               : options_.copy_only
                                   ? std::min<std::uint64_t>({runs.size(), 32, widest_of(slices)})
                                   : runs.size();
    const bool direct = std::ranges::any_of(runs, &Run::is_direct);
    PassPlan plan = plan_runs(runs, slices, held, direct ? direct_edge_bytes() : 0).value();

    const std::vector<std::vector<Run>> sliced = cuts_.stretches(runs, slices_of_output);
    std::vector<std::unique_ptr<Backend>> backends;
    if (!options_.copy_only) backends = make_backends(plan, slices, threads);
    std::vector<std::atomic<std::uint64_t>> fingerprints(options_.verify ? runs.size() : 0);
    std::atomic<std::uint64_t> written = 0;
    const OutputOrder output = order_of_output();
    constexpr auto no_limit = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t limit =
        last_pass_ && options_.shaping.limit
            ? *options_.shaping.limit - std::min(*options_.shaping.limit, resumed_records_)
            : no_limit;
    std::vector<Pass> passes;
    for (std::size_t i = 0; i < slices; ++i)
      passes.push_back({.sequential = sequential_,
                        .runs = sliced[i],
                        .encoding = encoding_,
                        .plan = plan,
                        .shape = shape_of_pass(),
                        .limit = limit,
                        .text_shape = text_shape_of_pass(),
                        .output = output,
                        .backend = options_.copy_only ? nullptr : backends.back().get(),
                        .writers = slices == 1 ? writers : writers.subspan(i, 1),
                        .in_place = in_place,
                        .threads = threads,
                        .stop = options_.stop,
                        .checksum = last_pass_ && options_.checksum,
                        .fingerprint = fingerprint_,
                        .fingerprints = fingerprints,
                        .written = last_pass_ ? nullptr : &written,
                        .did = [this](std::uint64_t bytes) { did(bytes); },
                        .trace = options_.trace.empty() ? nullptr : &trace_,
                        .slice = static_cast<unsigned>(i)});
    std::vector<std::shared_ptr<void>> pinned;
    const bool mapped = std::ranges::any_of(runs, &Run::is_mapped);
    if (!backends.empty())
      for (const auto& pages : pages_of(runs, in_place))
        pinned.push_back(backends.front()->pin(pages, mapped));
    const auto start = TraceClock::now();
    try {
      run_passes(passes, totals_);
    } catch (const RunDisorder& found) {
      for (const Run& run : runs) run.check_unchanged();  // or what is no record was compared
      throw_first_disorder(runs[found.run], found.record, encoding_);
    } catch (const EqualKeys& found) {
      if (options_.text) throw_equal_text(inputs_, encoding_, found.record);
      throw_equal(inputs_, options_.record, encoding_, options_.shaping.where, found.record.data(),
                  shape_->key_text(found.record.data()));
    } catch (const Error&) {
      if (mapped)
        for (const Run& run : runs) run.check_unchanged();
      throw;
    }
    stats_.pipeline_seconds += std::chrono::duration<double>(TraceClock::now() - start).count();
    ++stats_.passes;

    for (std::size_t i = 0; i < fingerprints.size() && !totals_.ended_early; ++i) {
      std::uint64_t read = 0;
      for (const std::vector<Run>& slice : sliced) read += slice[i].records();
      if (runs[i].is_temporary() && read == runs[i].records() &&
          fingerprints[i] != fingerprints_[static_cast<std::size_t>(&runs[i] - runs_.data())])
        throw_temporary_corrupted(runs[i]);
    }
    return written;
  }

  // One for each slice; where a device has too little memory, for a plan that takes less, and where
  // it fails otherwise, on the CPU.
  std::vector<std::unique_ptr<Backend>> make_backends(PassPlan& plan, std::size_t slices,
                                                      unsigned threads) {
    if (decision_.cuda && faults_.given_up())
      decision_ = {false, "the device failed: " + faults_.first()};
    for (;;) {
      const BackendConfig config{.encoding = &encoding_,
                                 .unit_records = plan.unit_records,
                                 .tokens = plan.tokens,
                                 .threads = threads,
                                 .look = options_.verify,
                                 .unit_bytes = plan.unit_bytes,
                                 .shape = shape_of_pass(),
                                 .text_shape = text_shape_of_pass(),
                                 .fingerprint = fingerprint_};
      std::vector<std::unique_ptr<Backend>> backends;
      try {
        while (backends.size() < slices) {
          auto backend = decision_.cuda ? make_cuda_backend(options_.device, config)
                                        : make_cpu_backend(config);
          if (decision_.cuda && !options_.strict_backend)
            backend = make_fallback_backend(std::move(backend), config, faults_);
          backends.push_back(std::move(backend));
        }
        stats_.device = backends.front()->device();
        return backends;
      } catch (const DeviceError& fault) {
        if (options_.strict_backend) throw;
        faults_.add(fault);
        if (!fault.out_of_memory() || !take_less(plan, record_bytes()))
          decision_ = {false, std::string("the device failed: ") + fault.what()};
      }
    }
  }

  // What shapes the records of this pass.
  const Shape* shape_of_pass() const {
    const std::optional<Shape>& shape = last_pass_ ? shape_ : earlier_shape_;
    return shape ? &*shape : nullptr;
  }
  const TextShape* text_shape_of_pass() const {
    const std::optional<TextShape>& shape = last_pass_ ? text_shape_ : earlier_text_shape_;
    return shape ? &*shape : nullptr;
  }

  void did(std::uint64_t bytes) {
    const std::lock_guard lock(progress_mutex_);
    progress_.bytes_done += bytes;
    const auto now = TraceClock::now();
    const bool due = now - reported_ >= std::chrono::milliseconds(100);
    if (!options_.progress || (!due && progress_.bytes_done != progress_.bytes_total)) return;
    reported_ = now;
    Progress progress = progress_;
    if (has_streams_) progress.bytes_total = 0;
    options_.progress(progress);
  }

  Stats finish(std::string writing) {
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
    stats_.bytes_read = totals_.bytes_read;
    stats_.bytes_written = totals_.bytes_written - merged_again_bytes_;
    stats_.records = sequential_ ? totals_.records - earlier_records_ : run_records_;
    stats_.records_skipped = totals_.records_skipped;
    if (stats_.records_skipped != 0 && options_.notice)
      options_.notice(fmt::format("{} records were skipped, in which a column is no number",
                                  stats_.records_skipped));
    stats_.records_written =
        is_shaped() ? totals_.records_written + resumed_records_ : stats_.records;
    stats_.units = totals_.units;
    stats_.checksum = totals_.checksum;
    stats_.busy = {seconds(totals_.read),  seconds(totals_.cut),      seconds(totals_.merge),
                   seconds(totals_.write), seconds(totals_.compress), seconds(totals_.verify)};
    stats_.verified = options_.verify;
    stats_.waits = {seconds(totals_.read_for_cut),      seconds(totals_.cut_for_read),
                    seconds(totals_.cut_for_merge),     seconds(totals_.merge_for_cut),
                    seconds(totals_.merge_for_write),   seconds(totals_.write_for_merge),
                    seconds(totals_.write_for_compress)};
    stats_.backend = options_.copy_only ? "none" : decision_.cuda ? "cuda" : "cpu";
    stats_.backend_reason = options_.copy_only ? "copies only" : decision_.reason;
    stats_.units_redone_on_cpu = faults_.units_redone();
    stats_.device_fault = faults_.first();
    if (!stats_.device_fault.empty() && options_.notice)
      options_.notice(
          !decision_.cuda ? "the CPU merged what was left to do, since " + decision_.reason
          : stats_.units_redone_on_cpu == 0
              ? "smaller units were merged, for want of memory on the device: " +
                    stats_.device_fault
              : fmt::format("the device failed and the CPU merged {} of {} units: {}",
                            stats_.units_redone_on_cpu, stats_.units, stats_.device_fault));
    stats_.memory_peak_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
    stats_.seconds = std::chrono::duration<double>(TraceClock::now() - start_).count();
    stats_.bound = find_bound(std::move(writing));
    if (!options_.trace.empty()) trace_.write(options_.trace);
    return stats_;
  }

  // From the end of the pipeline upstream: the first stage that does not mostly wait for the one
  // before it.
  Stats::Bound find_bound(std::string writing) const {
    const double wall = seconds(totals_.wall);  // of all slices
    if (wall == 0) return {};
    const auto bound = [&](std::string what, double at_work) {
      const auto bytes = static_cast<double>(stats_.bytes_written);
      const double slices = wall / stats_.seconds;
      return Stats::Bound{std::move(what), bytes / stats_.seconds, bytes * slices / at_work};
    };
    if (stats_.waits.write_for_compress > wall / 2)
      return bound("compressing", stats_.waits.write_for_compress);
    if (stats_.busy.write > wall / 2) return bound(std::move(writing), stats_.busy.write);
    if (stats_.waits.merge_for_cut < wall / 2)
      return bound("merging", wall - stats_.waits.merge_for_cut);
    if (stats_.waits.cut_for_read < stats_.busy.cut) return bound("cutting", stats_.busy.cut);
    return bound("reading", stats_.waits.cut_for_read);
  }

  TraceClock::time_point start_ = TraceClock::now();
  // Keeps oneTBB's scheduler alive from a time on at which there is memory: where there is none,
  // 2022.1 does not fail to start it, but hangs.
  tbb::task_arena scheduler_{1};
  const Options& options_;
  std::string header_, output_header_;
  std::optional<TextEncoding> text_;
  KeyEncoding encoding_;
  RunCuts cuts_;
  Schema output_schema_;
  std::optional<TextEncoding> output_text_;  // of records that columns of others make up
  std::optional<KeyEncoding> output_encoding_;
  std::optional<Shape> shape_;          // of the last pass
  std::optional<Shape> earlier_shape_;  // of the pass before it that is run
  std::optional<TextShape> text_shape_, earlier_text_shape_;
  BackendDecision decision_;
  unsigned threads_;
  std::uint64_t memory_bytes_;
  std::uint64_t reserved_bytes_ = 0;  // of the budget, for compression
  Compression compression_;
  unsigned compressing_threads_ = 0;  // for each output
  std::vector<Run> runs_;
  bool has_streams_ = false;         // whether a run is compressed or a pipe
  bool sequential_ = false;          // whether runs are read in order, and count bytes
  std::uint64_t decoder_bytes_ = 0;  // the most memory that decompressing a run takes
  std::uint64_t run_records_ = 0;
  std::uint64_t earlier_records_ = 0;       // that earlier passes wrote
  std::vector<std::uint64_t> cut_of_kept_;  // where a merge of lines goes on
  std::uint64_t resumed_records_ = 0;       // that went out, and are not merged again
  std::uint64_t merged_again_bytes_ = 0;    // of what went out
  FingerprintSum fingerprint_ = nullptr;    // of all passes; null: nothing is verified
  std::vector<Run> inputs_;  // runs_ at the start, where errors name records of theirs
  std::vector<std::uint64_t> fingerprints_;  // of runs_ that earlier passes wrote
  DeviceFaults faults_;
  bool last_pass_ = false;
  PassTotals totals_;
  Trace trace_;
  Stats stats_;

  std::mutex progress_mutex_;
  Progress progress_;
  TraceClock::time_point reported_ = start_;
};

}  // namespace

Stats merge(std::span<const std::filesystem::path> paths, const std::filesystem::path& output,
            const Options& options) {
  check_options(options, paths.size());
  const std::uint32_t counted_bytes = options.text ? 1 : options.record.record_bytes;
  for (;;) {
    std::vector<Run> runs = open_runs(paths, counted_bytes, options);
    std::string header;
    if (options.text && options.text->header)
      header = take_header(runs, *options.text, options.stop);
    try {
      return Merge(std::move(runs), options, std::move(header)).into_file(output);
    } catch (const LeftDiffers& left) {
      // That is gone now.
      say_starting_over(options, left.output, differs);
    }
  }
}

Stats merge(std::span<const std::span<const std::byte>> memory, std::span<std::byte> output,
            const Options& options) {
  check_options(options, memory.size());
  if (options.text) throw Error("records of variable length are merged from files only");
  std::vector<Run> runs;
  std::uint64_t bytes = 0;
  for (const auto& run : memory) {
    runs.emplace_back(run, fmt::format("run {}", runs.size()), options.record.record_bytes);
    runs.back().stop_on(options.stop);
    bytes += run.size();
    if (run.data() < output.data() + output.size() && output.data() < run.data() + run.size())
      throw Error(runs.back().path().string() + ": overlaps the output");
  }
  if (bytes != output.size())
    throw Error(fmt::format("the output has {} bytes, the runs have {}; give it as many",
                            output.size(), bytes));
  return Merge(std::move(runs), options).into_memory(output);
}

}  // namespace corank
