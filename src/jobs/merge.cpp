#include "corank/merge.hpp"

#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "backend/backends.hpp"
#include "exec/pipeline.hpp"
#include "exec/statistics.hpp"
#include "io/part_files.hpp"
#include "jobs/diagnostics.hpp"
#include "jobs/partial_output.hpp"
#include "jobs/resume.hpp"
#include "jobs/run_cuts.hpp"
#include "plan/budget.hpp"
#include "plan/option_checks.hpp"
#include "run/header.hpp"
#include "run/run_io.hpp"
#include "run/run_ranges.hpp"
#include "util/digest.hpp"
#include "util/math.hpp"

namespace corank {
namespace {

// Below this the page cache costs less than it saves.
constexpr std::uint64_t min_direct_bytes = std::uint64_t{64} << 20;

// Where passes before the last put their files: where the output needs as much space anyway.
std::filesystem::path folder_for_passes(const std::filesystem::path& output) {
  if (output != "-") {
    if (std::filesystem::is_directory(output)) return output;  // of parts
    if (!std::filesystem::exists(output) || std::filesystem::is_regular_file(output))
      return output.has_parent_path() ? output.parent_path() : ".";
  }
  return std::filesystem::temp_directory_path();
}

// Slices of whole groups, by one of the last records before each, and in it; empty: there is none.
struct Edges {
  std::vector<std::byte> before, last;
};

constexpr std::string_view differs = "it does not hold what the runs do";

void warn_starting_over(const Options& options, const std::filesystem::path& output,
                        std::string_view why) {
  if (options.notice)
    options.notice(
        fmt::format("{}: what a stopped merge left cannot be gone on with, since {}; starting over",
                    output.string(), why));
}

// Returns what was written to a nameless file as a run, and leaves the writer empty.
Run run_of(Writer& temporary, std::uint32_t record_bytes) {
  const std::uint64_t records = temporary.bytes() / record_bytes;
  return Run(temporary.take_file(), temporary.path(), record_bytes, records);
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
        output_schema_(selected(options.record, options.query.select)),
        threads_(options.threads ? options.threads
                                 : std::max(std::thread::hardware_concurrency(), 1u)),
        runs_(std::move(runs)),
        budget_(options, runs_, threads_),
        fingerprints_(runs_.size()) {
    scheduler_.initialize();
    for (const Run& run : runs_) {
      has_streams_ = has_streams_ || run.is_stream();
      if (run.is_stream()) check_stream_options(options_, run);
    }
    sequential_ = has_streams_ || options.text;
    if (sequential_)
      for (Run& run : runs_) run.count_bytes();
    options.text ? prepare_text_operators() : prepare_operators();
    run_records_ = records_of(runs_);
    backends_.emplace(options_, known_bytes());
    if (options_.verify)
      fingerprint_ = backends_->uses_cuda() ? portable_fingerprint : fingerprint_sums().front();
  }

  Stats into_file(const std::filesystem::path& output) {
    std::optional<PartFiles> parts;
    std::vector<std::filesystem::path> paths{output};
    if (options_.compression)
      compression_ = *options_.compression;
    else if (options_.parts == 0)
      compression_.codec = Compression::by_name(output.native());
    if (compression_.codec != Codec::none) {
      if (options_.resume)
        throw Error(
            "--resume can't go on with a compressed output; drop it, or write the output as it is");
      compressing_threads_ = budget_.reserve(compression_);
    }
    if (options_.parts != 0)
      paths = parts.emplace(output, options_.parts, suffix_of(compression_.codec)).paths();
    std::vector<Writer> writers;
    try {
      into_writers(paths, writers, folder_for_passes(output));
      collect_stats("writing " + output.string());
      commit(writers);
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
    return finish();
  }

  Stats into_memory(std::span<std::byte> output) {
    progress_.bytes_total = output.size();
    budget_.widest(1);
    stats_.io = "memory";
    last_pass_ = true;
    const Partition all{0, run_records_};
    run_pass(runs_, {&all, 1}, {}, output);
    collect_stats("writing to memory");
    return finish();
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
  // Of what goes out.
  std::uint32_t output_bytes() const { return sequential_ ? 1 : output_schema_.record_bytes; }
  bool has_operators() const { return operators_ || text_operators_; }
  bool keeps_count() const {
    return !text_operators_ && (!operators_ || operators_->keeps_count());
  }

  // Ranges, and limits where every record goes out, are cuts of the runs.
  void prepare_operators() {
    const Query& query = options_.query;
    output_encoding_.emplace(output_schema_, selected_keys(options_.keys, query.select));
    rotate_runs();
    keep_range(runs_, options_);
    if (query.on_equal == OnEqual::error) inputs_ = runs_;
    // In a stream nothing is found but by reading.
    if (OperatorChain shape(options_.record, options_.keys, encoding_, query, runs_.size());
        !shape.keeps_all() || (has_streams_ && query.limit))
      operators_.emplace(std::move(shape));
    else if (query.limit)
      cuts_.keep_first(*query.limit, runs_);
  }

  // In a stream nothing is found but by reading; nor are CSV and pairs.
  bool finds_lines() const { return options_.text->kind == TextKind::lines && !has_streams_; }

  // See SetOperation.
  void rotate_runs() {
    const OnEqual kind = options_.query.on_equal;
    if (kind == OnEqual::intersect || kind == OnEqual::subtract)
      std::rotate(runs_.begin(), runs_.begin() + 1, runs_.end());
  }

  // The ends of a range are found in lines that are read from where they are wanted; what is in
  // between of other runs is told by reading.
  void prepare_text_operators() {
    const Query& query = options_.query;
    rotate_runs();
    if (query.on_equal == OnEqual::error) inputs_ = runs_;
    if (finds_lines()) keep_range(runs_, text_->layout(), query);
    TextOperatorChain shape(encoding_, *options_.text, header_, query, finds_lines(), runs_.size());
    if (shape.keeps_all()) return;
    text_operators_.emplace(std::move(shape));
    const TextSelection* const selection = text_operators_->selection();
    if (!selection) return;
    if (!header_.empty()) output_header_ = selection->of_header(header_);
    TextFormat format = *options_.text;
    format.keys.clear();
    output_encoding_.emplace(output_text_.emplace(format).layout());
  }

  OutputOrder order_of_output() const {
    using enum OutputOrder::Kind;
    if (options_.copy_only) return {&encoding_, none};
    if (last_pass_ && text_operators_ && text_operators_->selection())
      return {&*output_encoding_, none};
    if (last_pass_ && text_operators_ && text_operators_->groups() &&
        !text_operators_->set_operation())
      return {&encoding_, strict};
    if (!last_pass_ || !operators_) return {&encoding_, rising};
    const std::size_t keys = selected_keys(options_.keys, options_.query.select).size();
    if (keys == 0) return {&*output_encoding_, none};
    const bool all = keys == std::max<std::size_t>(options_.keys.size(), 1);
    const bool apart = operators_->groups() && !operators_->set_operation();
    return {&*output_encoding_, all && apart ? strict : rising};
  }

  void into_writers(const std::vector<std::filesystem::path>& paths, std::vector<Writer>& writers,
                    const std::filesystem::path& folder_for_intermediate) {
    // How many records each part is made from is not known where a limit ends it.
    const bool in_turn = options_.query.limit && has_operators();
    std::vector<Partition> partitions = partitions_of_output(in_turn ? 1 : paths.size());
    open_writers(paths, partitions, writers);
    const std::uint64_t widest = budget_.widest(partitions.size());
    std::optional<PassPlan> direct_plan;
    if (!sequential_) direct_plan = plan_runs(runs_, partitions.size(), runs_.size(), true, false);
    stats_.io = choose_io(runs_, options_.io, !backends_->uses_cuda(), budget_.bytes(),
                          direct_plan ? direct_plan->chunk_bytes : 0);
    if (std::ranges::any_of(runs_, &Run::is_direct))
      for (Run& input : inputs_) input.make_direct();  // which has the same descriptor
    prepare_writers(writers, partitions);
    std::uint64_t left = 0;
    for (const Partition& partition : partitions) left += partition.end - partition.begin;
    progress_.bytes_total = left * record_bytes();
    skip_written(partitions);
    const std::vector<Edges> edges = edges_of(partitions);
    run_intermediate_passes(widest, folder_for_intermediate);
    totals_.records_written = 0;
    last_pass_ = true;
    // Missing terminators have been added, and what was compressed is so no more.
    if (sequential_) partitions.back().end = records_of(runs_);
    if (stats_.passes != 0 && is_set_operation(options_.query.on_equal))
      replan_after_set_passes(partitions, edges);
    if (writers.front().bytes() == 0)
      writers.front().write(std::as_bytes(std::span(output_header_)));
    run_pass(runs_, partitions, writers, {});
    for (const Run& run : runs_) run.check_unchanged();
    if (options_.stop.stop_requested()) throw Interrupted();
  }

  void open_writers(std::span<const std::filesystem::path> paths,
                    std::span<const Partition> partitions, std::vector<Writer>& writers) const {
    const std::uint64_t output_digest =
        digest(output_description(options_, compression_, encoding_, header_, runs_));
    const std::uint64_t added_bytes =
        options_.text && options_.resume
            ? header_.size() + missing_terminators(runs_, text_->layout())
            : 0;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto [begin, end] = partitions[std::min(i, partitions.size() - 1)];
      const AtomicFile::Content content{
          digest(fmt::format("{:x} {} {}", output_digest, begin, end)),
          (end - begin) * output_bytes() + added_bytes,
          !keeps_count() || (operators_ && options_.query.limit)};
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
  }

  // Makes them go on with what a stopped merge left, and the slices with them.
  void prepare_writers(std::span<Writer> writers, std::span<Partition> partitions) {
    // Without the page cache an output is durable sooner; what is small is better left in it.
    const std::uint64_t part_bytes = run_records_ / writers.size() * record_bytes();
    const bool direct = options_.io == Io::direct ||
                        (options_.io == Io::automatic && part_bytes >= min_direct_bytes);
    for (std::size_t i = 0; i < writers.size(); ++i) {
      TraceRow row{options_.trace.empty() ? nullptr : &trace_, "write", static_cast<unsigned>(i)};
      if (i < partitions.size()) {
        const Resumption resumed = resume(writers[i], partitions[i]);
        writers[i].go_on(resumed.kept_bytes, resumed.merged_bytes);
      }
      if (compression_.codec != Codec::none)
        writers[i].compress(compression_, compressing_threads_, row);
      // How much room compressed or shaped bytes need is not known.
      if (direct && partitions.size() == writers.size())
        writers[i].make_direct(
            compression_.codec == Codec::none && !has_operators() ? part_bytes : 0, row);
    }
  }

  // No pass has to look at what stands before the first slice.
  void skip_written(std::span<Partition> partitions) {
    const std::uint64_t done = partitions.front().begin;
    if (done == 0) return;
    const std::vector<std::uint64_t> cut =
        options_.text ? cut_of_kept_
                      : cuts_.checked(done, runs_, std::vector<std::uint64_t>(runs_.size()));
    for (std::size_t i = 0; i < runs_.size(); ++i)
      runs_[i] = runs_[i].stretch(cut[i], runs_[i].records() - cut[i]);
    for (Partition& partition : partitions)
      partition = {partition.begin - done, partition.end - done};
  }

  void commit(std::span<Writer> writers) {
    for (Writer& writer : writers) {
      writer.commit();
      stats_.output_bytes += writer.bytes();
    }
    for (std::size_t i = writers.size(); i-- > 0;)
      if (writers[i].atomic()) writers[i].atomic()->forget_sidecar();
  }

  // Equally many records in each, but no group in two.
  std::vector<Partition> partitions_of_output(std::size_t count) const {
    std::vector<Partition> partitions;
    std::uint64_t rank = 0;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t end = part_of(run_records_, i + 1, count);
      if (i + 1 < count && operators_ && operators_->groups()) {
        const auto cut = cuts_.behind_group(
            cuts_.checked(end, runs_, std::vector<std::uint64_t>(runs_.size())), runs_);
        end = std::max(rank, std::reduce(cut.begin(), cut.end()));
      }
      partitions.push_back({rank, end});
      rank = end;
    }
    return partitions;
  }

  // Makes the slice begin where the merge goes on with what was left for its writer.
  Resumption resume(const Writer& writer, Partition& partition) {
    const AtomicFile* const file = writer.atomic();
    if (!file || !options_.resume) return {};
    const TextOperatorChain* const text_operators = text_operators_ ? &*text_operators_ : nullptr;
    const OutputOrigin origin{options_,       encoding_,     header_,
                              output_header_, keeps_count(), text_operators};
    const std::optional<Resumption> found = find_resumption(*file, origin, runs_, partition);
    const std::string_view reason = found ? file->why_not_resumable() : differs;
    if (!reason.empty()) warn_starting_over(options_, writer.path(), reason);
    if (!found) return {};
    partition.begin = std::max(partition.begin, found->rank);
    cut_of_kept_ = found->cut;
    stats_.resumed_bytes += found->kept_bytes;
    remerged_bytes_ += found->kept_bytes - found->merged_bytes;
    const ScanResult kept = count_left(*file, writer.path(), origin, found->merged_bytes);
    resumed_records_ += kept.records;
    totals_.checksum += kept.checksum;
    return *found;
  }

  std::optional<PassPlan> plan_runs(std::span<const Run> runs, std::size_t partitions,
                                    std::uint64_t held, bool direct, bool direct_output) const {
    return budget_.plan(runs, {.partitions = partitions,
                               .held = held,
                               .direct = direct,
                               .direct_output = direct_output,
                               .cuda = backends_->uses_cuda(),
                               .wanted_bytes = wanted_bytes()});
  }

  // What is merged where every record goes out, up to the limit: units and chunks need not be
  // larger. Small ones cost more, so much less is not worth it.
  std::uint64_t wanted_bytes() const {
    constexpr std::uint64_t least = std::uint64_t{1} << 20;
    constexpr std::uint64_t usual_text_bytes = 256;  // of a record
    if (!last_pass_ || !has_operators() || !options_.query.limit)
      return std::numeric_limits<std::uint64_t>::max();
    if (options_.text)
      return std::max(least, std::min(*options_.query.limit, run_records_) * usual_text_bytes);
    return std::max(least, *options_.query.limit < run_records_
                               ? *options_.query.limit * options_.record.record_bytes
                               : std::numeric_limits<std::uint64_t>::max());
  }

  void run_intermediate_passes(std::uint64_t widest, const std::filesystem::path& folder) {
    if (options_.copy_only) return;
    std::vector<std::uint64_t> lengths;
    for (const Run& run : runs_) lengths.push_back(run.records());
    const std::vector<IntermediatePass> passes = plan_intermediate_passes(lengths, widest);
    std::uint64_t again = 0;
    for (const IntermediatePass& pass : passes) again += pass.records * record_bytes();
    progress_.bytes_total += again;
    if (!passes.empty() && options_.notice)
      options_.notice(fmt::format(
          "the memory budget leaves {} bytes for buffers, which merge {} runs at once, not {}: {} "
          "passes, which write {}{} bytes more, to {}; a larger --memory needs fewer",
          budget_.bytes(), widest, runs_.size(), passes.size() + 1, has_streams_ ? "about " : "",
          again, folder.string()));
    for (const IntermediatePass& pass : passes) {
      const auto first = runs_.begin() + static_cast<std::ptrdiff_t>(pass.first);
      const auto end = first + static_cast<std::ptrdiff_t>(pass.count);
      Writer temporary(folder);
      const Partition all{0, records_of({first, end})};
      make_intermediate_operators(pass.count, end == runs_.end());
      const std::uint64_t merged_before = totals_.records, written_before = totals_.records_written;
      const std::uint64_t fingerprint = run_pass({first, end}, {&all, 1}, {&temporary, 1}, {});
      for (const Run& merged : std::span(first, end)) merged.check_unchanged();
      intermediate_records_ += intermediate_operators_ || intermediate_text_operators_
                                   ? totals_.records_written - written_before
                                   : totals_.records - merged_before;
      *first = run_of(temporary, record_bytes());
      runs_.erase(first + 1, end);
      fingerprints_[pass.first] = fingerprint;
      const auto gone = fingerprints_.begin() + static_cast<std::ptrdiff_t>(pass.first) + 1;
      fingerprints_.erase(gone, gone + static_cast<std::ptrdiff_t>(pass.count) - 1);
    }
  }

  // A set operation is one of its results, too; but what is subtracted is only merged.
  void make_intermediate_operators(std::size_t runs, bool last_among_them) {
    const OnEqual kind = options_.query.on_equal;
    intermediate_operators_.reset();
    intermediate_text_operators_.reset();
    if (!is_set_operation(kind) || (kind == OnEqual::subtract && !last_among_them)) return;
    Query query;
    query.where = options_.query.where;
    query.on_equal = kind;
    query.text_where = options_.query.text_where;
    if (options_.text)
      intermediate_text_operators_.emplace(encoding_, *options_.text, header_, query, true, runs);
    else
      intermediate_operators_.emplace(options_.record, options_.keys, encoding_, query, runs);
  }

  // Of several slices the last records before each and in it, where set operations may change the
  // ranks.
  std::vector<Edges> edges_of(std::span<const Partition> partitions) const {
    std::vector<Edges> edges;
    if (partitions.size() == 1 || !operators_ || !operators_->set_operation()) return edges;
    for (const Partition& partition : partitions)
      edges.push_back({cuts_.last_before(cuts_.at(partition.begin, runs_), runs_),
                       cuts_.last_before(cuts_.at(partition.end, runs_), runs_)});
    return edges;
  }

  // After passes of a set operation there are fewer runs and records than at the start.
  void replan_after_set_passes(std::span<Partition> partitions, std::span<const Edges> edges) {
    const std::uint64_t records = records_of(runs_);
    if (options_.text) {
      text_operators_.emplace(encoding_, *options_.text, header_, options_.query, finds_lines(),
                              runs_.size());
      for (std::size_t i = 0; i < partitions.size(); ++i)
        partitions[i] = {part_of(records, i, partitions.size()),
                         part_of(records, i + 1, partitions.size())};
    } else {
      operators_.emplace(options_.record, options_.keys, encoding_, options_.query, runs_.size());
      if (edges.empty()) partitions.front() = {0, records};
    }
    for (std::size_t i = 0; i < edges.size(); ++i)
      partitions[i] = {cuts_.rank_behind(edges[i].before, runs_),
                       cuts_.rank_behind(edges[i].last, runs_)};
    progress_.bytes_total = progress_.bytes_done + records * record_bytes();
  }

  // Of merged units that stay in memory, or wait there for a device: who compresses them, or sums
  // them up, reads them at once.
  std::uint64_t streamed_unit_bytes(const PassPlan& plan, std::span<const Writer> writers,
                                    std::span<const std::byte> in_place) const {
    if (writers.empty()) return in_place.size();
    const bool wait = !(last_pass_ && options_.checksum) &&
                      std::ranges::all_of(writers, [](const Writer& writer) {
                        return writer.is_direct() && !writer.compressor();
                      });
    return wait ? plan.tokens * plan.unit_bytes : 0;
  }

  // One slice for each writer, or one into memory. Returns the fingerprint of what an earlier
  // pass has written; 0 where nothing is verified. `runs` is a part of runs_.
  std::uint64_t run_pass(std::span<const Run> runs, std::span<const Partition> partitions_of_output,
                         std::span<Writer> writers, std::span<std::byte> in_place) {
    const std::size_t partitions = partitions_of_output.size();
    const auto threads = static_cast<unsigned>(std::max<std::size_t>(threads_ / partitions, 1));
    // Runs in memory hold no chunks; nor do runs that are read one after another, except for what
    // is read ahead, which is as much as of any merge.
    const std::uint64_t held =
        writers.empty() ? 2
        : options_.copy_only
            ? std::min<std::uint64_t>({runs.size(), 32, budget_.widest(partitions)})
            : runs.size();
    PassPlan plan = plan_runs(runs, partitions, held, std::ranges::any_of(runs, &Run::is_direct),
                              std::ranges::any_of(writers, &Writer::is_direct))
                        .value();

    const std::vector<std::vector<Run>> partitioned = cuts_.stretches(runs, partitions_of_output);
    std::vector<std::unique_ptr<Backend>> backends;
    if (!options_.copy_only) {
      const BackendConfig config{
          .encoding = &encoding_,
          .unit_records = plan.unit_records,
          .tokens = plan.tokens,
          .threads = threads,
          .look = options_.verify,
          .unit_bytes = plan.unit_bytes,
          .streamed_unit_bytes = streamed_unit_bytes(plan, writers, in_place),
          .shape = operators_of_pass(),
          .text_operators = text_operators_of_pass(),
          .fingerprint = fingerprint_};
      backends = backends_->make(partitions, config, plan, record_bytes());
      stats_.device = backends.front()->device();
    }
    std::vector<std::atomic<std::uint64_t>> fingerprints(options_.verify ? runs.size() : 0);
    std::atomic<std::uint64_t> written = 0;
    const OutputOrder output = order_of_output();
    constexpr auto no_limit = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t limit =
        last_pass_ && options_.query.limit
            ? *options_.query.limit - std::min(*options_.query.limit, resumed_records_)
            : no_limit;
    std::vector<Pass> passes;
    for (std::size_t i = 0; i < partitions; ++i)
      passes.push_back({.sequential = sequential_,
                        .runs = partitioned[i],
                        .encoding = encoding_,
                        .plan = plan,
                        .shape = operators_of_pass(),
                        .limit = limit,
                        .text_operators = text_operators_of_pass(),
                        .output = output,
                        .backend = options_.copy_only ? nullptr : backends[i].get(),
                        .writers = partitions == 1 ? writers : writers.subspan(i, 1),
                        .in_place = in_place,
                        .threads = threads,
                        .stop = options_.stop,
                        .checksum = last_pass_ && options_.checksum,
                        .fingerprint = fingerprint_,
                        .fingerprints = fingerprints,
                        .written = last_pass_ ? nullptr : &written,
                        .on_progress = [this](std::uint64_t bytes) { report_progress(bytes); },
                        .trace = options_.trace.empty() ? nullptr : &trace_,
                        .partition = static_cast<unsigned>(i)});
    std::vector<std::shared_ptr<void>> pinned;
    if (!backends.empty()) pinned = pin(*backends.front(), runs, in_place);
    const auto start = TraceClock::now();
    try {
      run_passes(passes, totals_);
    } catch (const RunOutOfOrder& found) {
      for (const Run& run : runs) run.check_unchanged();  // or what is no record was compared
      throw_first_out_of_order(runs[found.run], found.record, encoding_);
    } catch (const EqualKeys& found) {
      if (options_.text)
        throw_equal_text(inputs_, encoding_, text_operators_->filter(), found.record);
      throw_equal(inputs_, options_.record, encoding_, options_.query.where, found.record.data(),
                  operators_->key_text(found.record.data()));
    } catch (const Error&) {
      if (std::ranges::any_of(runs, &Run::is_mapped))
        for (const Run& run : runs) run.check_unchanged();
      throw;
    }
    stats_.pipeline_seconds += std::chrono::duration<double>(TraceClock::now() - start).count();
    ++stats_.passes;

    for (std::size_t i = 0; i < fingerprints.size() && !totals_.ended_early; ++i) {
      std::uint64_t read = 0;
      for (const std::vector<Run>& partition : partitioned) read += partition[i].records();
      if (runs[i].is_temporary() && read == runs[i].records() &&
          fingerprints[i] != fingerprints_[static_cast<std::size_t>(&runs[i] - runs_.data())])
        throw_temporary_corrupted(runs[i]);
    }
    return written;
  }

  // What shapes the records of this pass.
  const OperatorChain* operators_of_pass() const {
    const std::optional<OperatorChain>& shape = last_pass_ ? operators_ : intermediate_operators_;
    return shape ? &*shape : nullptr;
  }
  const TextOperatorChain* text_operators_of_pass() const {
    const std::optional<TextOperatorChain>& shape =
        last_pass_ ? text_operators_ : intermediate_text_operators_;
    return shape ? &*shape : nullptr;
  }

  void report_progress(std::uint64_t bytes) {
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

  // Before the output is in place: then nothing may fail any more.
  void collect_stats(std::string writing) {
    stats_.bytes_read = totals_.bytes_read;
    stats_.bytes_written = totals_.bytes_written - remerged_bytes_;
    stats_.records = sequential_ ? totals_.records - intermediate_records_ : run_records_;
    stats_.records_skipped = totals_.records_skipped;
    if (stats_.records_skipped != 0 && options_.notice)
      options_.notice(fmt::format("{} records were skipped, in which a column is no number",
                                  stats_.records_skipped));
    stats_.records_written =
        has_operators() ? totals_.records_written + resumed_records_ : stats_.records;
    stats_.units = totals_.units;
    stats_.checksum = totals_.checksum;
    stats_.busy = busy_of(totals_);
    stats_.waits = waits_of(totals_);
    stats_.verified = options_.verify;
    stats_.backend = options_.copy_only ? "none" : backends_->uses_cuda() ? "cuda" : "cpu";
    stats_.backend_reason = options_.copy_only ? "copies only" : backends_->reason();
    stats_.units_redone_on_cpu = backends_->faults().units_redone();
    stats_.device_fault = backends_->faults().first();
    if (!stats_.device_fault.empty() && options_.notice)
      options_.notice(backends_->outcome(stats_.units));
    stats_.memory_peak_bytes = peak_memory_bytes();
    stats_.seconds = seconds_so_far();
    stats_.bound = find_bound(stats_, seconds(totals_.wall), std::move(writing));
  }

  double seconds_so_far() const {
    return std::chrono::duration<double>(TraceClock::now() - start_).count();
  }

  Stats finish() {
    stats_.seconds = seconds_so_far();
    if (!options_.trace.empty()) trace_.write(options_.trace);
    return std::move(stats_);
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
  std::optional<OperatorChain> operators_;               // of the last pass
  std::optional<OperatorChain> intermediate_operators_;  // of the pass before it that is run
  std::optional<TextOperatorChain> text_operators_, intermediate_text_operators_;
  std::optional<Backends> backends_;
  unsigned threads_;
  Compression compression_;
  unsigned compressing_threads_ = 0;  // for each output
  std::vector<Run> runs_;
  Budget budget_;
  bool has_streams_ = false;  // whether a run is compressed or a pipe
  bool sequential_ = false;   // whether runs are read in order, and count bytes
  std::uint64_t run_records_ = 0;
  std::uint64_t intermediate_records_ = 0;  // that earlier passes wrote
  std::vector<std::uint64_t> cut_of_kept_;  // where a merge of lines goes on
  std::uint64_t resumed_records_ = 0;       // that went out, and are not merged again
  std::uint64_t remerged_bytes_ = 0;        // of what went out
  FingerprintSum fingerprint_ = nullptr;    // of all passes; null: nothing is verified
  std::vector<Run> inputs_;  // runs_ at the start, where errors name records of theirs
  std::vector<std::uint64_t> fingerprints_;  // of runs_ that earlier passes wrote
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
    } catch (const PartialOutputDiffers& left) {
      // That is gone now.
      warn_starting_over(options, left.output, differs);
    }
  }
}

Stats merge(std::span<const std::span<const std::byte>> memory, std::span<std::byte> output,
            const Options& options) {
  check_options(options, memory.size());
  if (options.text) throw Error("records of variable length are merged from files only");
  if (options.parts != 0 || options.resume || options.compression)
    throw Error("Options::parts, resume and compression are for files; the output is memory");
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
