#include "corank/partitions.hpp"

#include <sys/stat.h>
#include <tbb/task_arena.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "codec/codec.hpp"
#include "corank/error.hpp"
#include "format/rows.hpp"
#include "io/atomic_file.hpp"
#include "jobs/merge_format.hpp"
#include "jobs/merge_job.hpp"
#include "jobs/merge_output.hpp"
#include "jobs/scan.hpp"
#include "plan/option_checks.hpp"
#include "run/block_reader.hpp"
#include "run/record_search.hpp"
#include "run/run_io.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"
#include "util/parallel_for.hpp"
#include "util/system_limits.hpp"
#include "util/worker_allowance.hpp"
#include "verify/checksum.hpp"

namespace corank {
namespace {

// Narrows the runs to the partitions in [first, end).
void slice(std::vector<Run>& runs, const PartitionPlan& plan, std::size_t first, std::size_t end) {
  const PartitionPlan::Cut &from = plan.cuts.at(first), &to = plan.cuts.at(end);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const PartitionPlan::Input& planned = plan.runs[i];
    if (runs[i].file_bytes() != planned.bytes || runs[i].modified_ns() != planned.modified_ns)
      throw_error(
          "{}: has changed since the plan was made: it had {} bytes and was modified at {} ns, now "
          "{} bytes and {} ns; plan the merge again",
          runs[i].path(), planned.bytes, planned.modified_ns, runs[i].file_bytes(),
          runs[i].modified_ns());
    if (from.at(i) > to.at(i) || to[i] > runs[i].records())
      throw_error("{}: the plan cuts it at {} and {}, and it ends at {}; plan again",
                  runs[i].path(), from[i], to[i], runs[i].records());
    runs[i] = runs[i].subspan(from[i], to[i] - from[i]);
  }
}

// Throws Error unless the plan has the partition.
void check_partition(const PartitionPlan& plan, std::size_t partition) {
  if (partition >= plan.size())
    throw_error(ErrorCode::options, "partition {}: the plan has {}, numbered from 0", partition,
                plan.size());
}

// Throws Error unless there are runs and partitions, and each cut has a position in each run.
void check_plan(const PartitionPlan& plan) {
  const auto fits = [&](const auto& cut) { return cut.size() == plan.runs.size(); };
  if (plan.runs.empty() || plan.size() == 0 || !std::ranges::all_of(plan.cuts, fits))
    throw Error(ErrorCode::options,
                "the plan is empty, or its cuts do not fit its runs; plan again");
}

std::vector<std::filesystem::path> paths_of(const PartitionPlan& plan) {
  check_plan(plan);
  std::vector<std::filesystem::path> paths;
  for (const PartitionPlan::Input& run : plan.runs) paths.push_back(run.path);
  return paths;
}

// Opens the runs of a plan, for the format of its parts.
class OpenPlan {
 public:
  OpenPlan(const PartitionPlan& plan, const Options& options)
      : options_(options),
        sorts_(plan.sorts),
        plain_(make_format(options)),
        runs_(open_runs(paths_of(plan), *plain_, options)),
        format_(options, read_start(runs_, *plain_, options, !plan.sorts), false),
        compression_(options.compression.value_or(Compression{})) {
    slice(runs_, plan, 0, plan.size());
  }

  std::span<const Run> runs() const { return runs_; }
  const MergeFormat& format() const { return format_; }
  OutputOrder::Kind order() const {
    return format_.order(format_.operators(runs_.size()), true).kind;
  }

  // Opens a part, without its header. Throws Error if it lacks the header.
  Run open(const std::filesystem::path& part, std::size_t partition) const {
    const std::string header = partition == 0 || sorts_ ? format_.output_header() : std::string();
    Run run(part, format_.output().counted_bytes(),
            {.decompress = compression_.codec != Codec::none, .header_bytes = header.size()});
    run.stop_on(options_.stop);
    if (run.is_stream()) return run;
    std::string begin(header.size(), '\0');
    read_at(*run.descriptor(), std::as_writable_bytes(std::span(begin)), 0, part);
    if (begin != header)
      throw_error(ErrorCode::corrupted,
                  "{}: does not begin with the header of the runs; write this part again", part);
    return run;
  }

 private:
  const Options& options_;
  const bool sorts_;
  std::unique_ptr<const RecordFormat> plain_;
  std::vector<Run> runs_;
  MergeFormat format_;
  Compression compression_;
};

// First and last record of a part; none if it is empty.
struct Ends {
  RowCopy first, last;
};

PartContent scan_part(const Run& run, const RecordFormat& format, bool is_ordered, Ends& ends,
                      const ScanShare& share) {
  const KeyLayout layout = format.keys().layout();
  PartContent content;
  const auto add = [&](const ScannedBlock& block) {
    const auto [rows, count] = block.rows;
    if (is_ordered) check_order(run, format, block);
    if (ends.first.empty()) ends.first.assign(layout, rows);
    ends.last.assign(layout, rows + (count - 1) * format.row_bytes());
    content.checksum += rows_checksum(layout, rows, count);
    content.records += count;
  };
  scan_blocks(run, format, add, share);
  if (content.records != 0) {
    content.first_key = format.key_text(ends.first.row());
    content.last_key = format.key_text(ends.last.row());
  }
  return content;
}

// Calls body(i, share) for all i below `count`, as many at a time as threads and memory allow.
template <class Body>
void for_each_file(std::size_t count, const Options& options, const Body& body) {
  const auto [at_once, share] = scans_at_once(count, options);
  const WorkerAllowance allowance(static_cast<unsigned>(at_once));
  tbb::task_arena(static_cast<int>(at_once)).execute([&, share = share] {
    parallel_for(0, count, [&](std::size_t i) { body(i, share); });
  });
}

PartitionPlan::Input identify(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_file_error(path, "get its status");
  return {path, static_cast<std::uint64_t>(status.st_size), modified_ns(status)};
}

void check_is(const FileDescriptor& file, const PartitionPlan::Input& part) {
  const PartitionPlan::Input found = identify(file, part.path);
  if (found.bytes != part.bytes || found.modified_ns != part.modified_ns)
    throw_error(ErrorCode::corrupted, "{}: has changed since it was checked; check it again",
                part.path);
}

// Appends a file, of which the kernel copies what it can.
void append(const FileDescriptor& output, const PartitionPlan::Input& whole,
            const std::filesystem::path& path, const std::stop_token& stop) {
  constexpr std::size_t step_bytes = 64 * MiB, block_bytes = 4 * MiB;
  const std::filesystem::path& part = whole.path;
  const FileDescriptor file = open_to_read(part);
  check_is(file, whole);
  loff_t at = 0;
  for (;;) {
    if (stop.stop_requested()) throw Interrupted();
    const ssize_t copied = ::copy_file_range(file.get(), &at, output.get(), nullptr, step_bytes, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0 && (errno == ENOSPC || errno == EIO || errno == EDQUOT || errno == EFBIG))
      throw_file_error(path, "write");
    if (copied <= 0) break;
  }
  // Some file systems copy nothing, and say so or not.
  std::vector<std::byte> block(block_bytes);
  while (const std::size_t got = read_at(file, block, static_cast<std::uint64_t>(at), part)) {
    if (stop.stop_requested()) throw Interrupted();
    write_all(output, std::span(block).first(got), path);
    at += static_cast<loff_t>(got);
  }
  check_is(file, whole);
}

// Lets searches find records in runs where they can be found only from the start: reads each run to
// its end, and keeps where some of its records start.
void index(std::vector<Run>& runs, FileStart& start, const Options& options, Inputs inputs) {
  // Max number of starts that are kept of all runs together, and min bytes between two of a run.
  constexpr std::uint64_t max_starts = std::uint64_t{4} << 20, min_step = 64;
  const auto format = make_format(options, start.columns_line);
  const std::uint64_t step = std::max(total_bytes(runs) / max_starts, min_step);
  for_each_file(runs.size(), options, [&](std::size_t i, const ScanShare& share) {
    std::vector<std::uint64_t> starts;
    const auto keep_starts = [&](const ScannedBlock& block) {
      if (inputs == Inputs::sorted) check_order(runs[i], *format, block);
      for (std::uint64_t record = 0; record < block.rows.count; ++record) {
        const std::uint64_t at = offset_of(*format, block, record) - runs[i].offset();
        if (starts.empty() || at - starts.back() >= step) starts.push_back(at);
      }
    };
    scan_blocks(runs[i], *format, keep_starts, share);
    runs[i].set_starts(std::move(starts));
  });
  start.are_indexed = true;
}

// Cuts the runs of a merge, or with Options::copy_only their concatenation.
PartitionPlan cut(std::span<const std::filesystem::path> paths, std::size_t count,
                  const Options& options, Inputs inputs) {
  if (count == 0) throw Error(ErrorCode::options, "0 partitions hold no records; plan at least 1");
  if (count > max_parts)
    throw_error(ErrorCode::options, "{} partitions are more than {}; plan fewer", count, max_parts);
  const auto format = make_format(options);
  check_options(options, format->traits(), paths.size());
  PartitionPlan plan;
  plan.counts_bytes = !format->traits().has_fixed_size;
  const std::vector<std::vector<Run>> partitions =
      cut_job(paths, count, options, inputs, [&](std::vector<Run>& runs, FileStart& start) {
        if (!format->traits().can_search) index(runs, start, options, inputs);
      });
  for (const std::vector<Run>& runs : partitions) {
    plan.cuts.emplace_back();
    for (const Run& run : runs) plan.cuts.back().push_back(run.first());
  }
  plan.cuts.emplace_back();
  for (const Run& run : partitions.back()) {
    plan.cuts.back().push_back(run.first() + run.records());
    plan.runs.push_back(
        {std::filesystem::absolute(run.path()), run.file_bytes(), run.modified_ns()});
  }
  return plan;
}

}  // namespace

std::uint64_t PartitionPlan::length(std::size_t partition) const {
  check_partition(*this, partition);
  const Cut &from = cuts.at(partition), &to = cuts.at(partition + 1);
  return std::reduce(to.begin(), to.end()) - std::reduce(from.begin(), from.end());
}

PartitionPlan plan_partitions(std::span<const std::filesystem::path> paths, std::size_t count,
                              const Options& options) {
  Query query = options.query;
  query.from.clear();
  query.to.clear();
  if (make_format(options)->traits().has_fixed_size) query.limit.reset();
  PartitionPlan plan = cut(paths, count, options, Inputs::sorted);
  plan.keeps_records = operator_names(query).empty();
  return plan;
}

PartitionPlan plan_sort(std::span<const std::filesystem::path> files, std::size_t count,
                        const Options& options) {
  Options copying = options;
  copying.query = {};
  copying.copy_only = true;
  copying.drop_header = false;  // the runs keep it
  PartitionPlan plan = cut(files, count, copying, Inputs::unsorted);
  plan.keeps_records = plan.sorts = true;
  // The merge of the runs may refuse its query, which is told now. It is asked to cut no records,
  // since those of the files are not sorted.
  check_options(options, make_format(options)->traits(), files.size());
  cut_job(files, 1, options, Inputs::sorted, [](std::vector<Run>& runs, FileStart&) {
    for (Run& run : runs) run = run.subspan(0, 0);
  });
  return plan;
}

Stats write_partition(const PartitionPlan& plan, std::size_t partition,
                      const std::filesystem::path& output, const Options& options,
                      const std::function<void(const Stats&)>& before_publish) {
  check_partition(plan, partition);
  Options slice_options = options;
  if (plan.sorts) slice_options.query = {};
  slice_options.query.from.clear();  // the cuts are within the range and the limit
  slice_options.query.to.clear();
  slice_options.query.limit.reset();
  return run_job(
      paths_of(plan), output, slice_options, plan.sorts ? Inputs::unsorted : Inputs::sorted,
      [&](std::vector<Run>& runs, FileStart& start) {
        slice(runs, plan, partition, partition + 1);
        if (partition != 0 && !plan.sorts) start.header = {};
      },
      before_publish);
}

PartContent read_part_keys(const PartitionPlan& plan, std::size_t partition,
                           const std::filesystem::path& part, const Options& options) {
  check_partition(plan, partition);
  const OpenPlan opened(plan, options);
  const Run run = opened.open(part, partition);
  const RecordFormat& format = opened.format().output();
  PartContent content;
  content.header_bytes = run.header_bytes();
  if (run.is_stream() || run.records() == 0 || !format.traits().can_search) return content;
  BlockReader reader(run);
  const auto key_at = [&](std::uint64_t position) {
    RowCopy row;
    row.assign_record(format.keys().layout(),
                      record_at(reader, format, record_before(reader, format, position + 1)));
    return format.key_text(row.row());
  };
  content.first_key = key_at(0);
  content.last_key = key_at(run.records() - 1);
  return content;
}

std::vector<PartContent> check_parts(const PartitionPlan& plan,
                                     std::span<const std::filesystem::path> parts,
                                     const Options& options) {
  if (parts.size() != plan.size())
    throw_error(ErrorCode::options, "the plan has {} partitions, and {} parts are named; name all",
                plan.size(), parts.size());
  const OpenPlan opened(plan, options);
  const RecordFormat& format = opened.format().output();
  const OutputOrder::Kind order = opened.order();
  const bool is_ordered = order != OutputOrder::Kind::none;
  std::vector<PartContent> contents(parts.size());
  std::vector<Ends> ends(parts.size());
  for_each_file(parts.size(), options, [&](std::size_t i, const ScanShare& share) {
    contents[i] = scan_part(opened.open(parts[i], i), format, is_ordered, ends[i], share);
  });
  const KeyLayout layout = format.keys().layout();
  std::size_t before = 0;
  for (std::size_t i = 0; i < parts.size() && is_ordered && !plan.sorts; ++i) {
    if (ends[i].first.empty()) continue;
    const std::byte* const first = ends[i].first.row();
    const std::byte* const last = ends[before].first.empty() ? nullptr : ends[before].last.row();
    if (i != before && last &&
        (record_less(layout, first, last) ||
         (order == OutputOrder::Kind::strict && !record_less(layout, last, first))))
      throw_error(ErrorCode::corrupted,
                  "{}: begins with {}, and {} before it ends with {}; write both again", parts[i],
                  contents[i].first_key, parts[before], contents[before].last_key);
    before = i;
  }
  return contents;
}

PartContent check_planned_runs(const PartitionPlan& plan, const Options& options) {
  const OpenPlan opened(plan, options);
  std::vector<ScanResult> results(opened.runs().size());
  for_each_file(results.size(), options, [&](std::size_t i, const ScanShare& share) {
    results[i] = scan(opened.runs()[i], opened.format().input(), true, !plan.sorts, share);
  });
  PartContent all;
  for (const ScanResult& result : results) {
    all.records += result.records;
    all.checksum += result.checksum;
  }
  return all;
}

PartitionPlan::Input identify(const std::filesystem::path& file) {
  return identify(open_to_read(file), file);
}

void check_concatenated(const std::filesystem::path& output, const Options& options) {
  check_path(output);
  Options by_name = options;
  by_name.compression.reset();
  by_name.parts = 0;
  const Codec named = compression_of(by_name, output).codec;
  const Codec written = options.compression.value_or(Compression()).codec;
  if (named != Codec::none && named != written)
    throw_error(ErrorCode::options,
                "{}: is named like a {} file, and the parts are not compressed that way; give it "
                "another name, or write the parts with this compression",
                output, name_of(named));
  const std::filesystem::path folder = output.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw Error(folder.string() + ": is not a folder; make it first");
}

void concatenate(std::span<const PartitionPlan::Input> parts, const std::filesystem::path& output,
                 const Options& options) {
  check_concatenated(output, options);
  AtomicFile::Content content;
  std::vector<FileIdentity> identities;
  for (const PartitionPlan::Input& part : parts) {
    struct stat status {};
    if (::stat(part.path.c_str(), &status) != 0) throw_file_error(part.path, "get its status");
    content.bytes += part.bytes;
    identities.push_back(identity_of(status));
  }
  const auto is_input = [&](FileIdentity file) {
    return std::ranges::find(identities, file) != identities.end();
  };
  struct stat target {};
  if (::stat(output.c_str(), &target) == 0 && is_input(identity_of(target)))
    throw Error(output.string() + ": is one of the parts, too; name another file");
  AtomicFile file(output, content, {.overwrite = options.overwrite}, is_input);
  file.keep(0);
  for (const PartitionPlan::Input& part : parts)
    append(file.descriptor(), part, output, options.stop);
  file.make_durable(content.bytes, options.stop);
  file.commit();
  file.forget_sidecar();
}

}  // namespace corank
