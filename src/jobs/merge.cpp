#include "corank/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "corank/streams.hpp"
#include "jobs/diagnostics.hpp"
#include "jobs/merge_job.hpp"
#include "plan/option_checks.hpp"
#include "run/run_io.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

void check_job_options(const Options& options, const FormatTraits& traits, std::size_t files,
                       Inputs inputs) {
  check_options(options, traits, files);
  if (inputs == Inputs::unsorted)
    check_sort_options(options);
  else if (options.temporary_compression)
    throw_error(ErrorCode::options, "{} is for sorts; drop it", Setting::temporary_compression);
}

// Makes the job of `runs`, which begin with their headers.
MergeJob make_job(std::vector<Run> runs, const RecordFormat& format, const Options& options,
                  Inputs inputs, const Prepare& prepare = {}) {
  FileStart start = read_start(runs, format, options, inputs == Inputs::sorted);
  if (prepare) prepare(runs, start);
  return MergeJob(ordered(std::move(runs), format.traits(), options, inputs), options, inputs,
                  std::move(start));
}

template <class Input>
Stats run_inputs(std::span<const Input> given, const Destination& output, const Options& options,
                 Inputs inputs, const Prepare& prepare = {},
                 const std::function<void(const Stats&)>& before_publish = {}) {
  const auto format = make_format(options);
  check_job_options(options, format->traits(), given.size(), inputs);
  for (;;) {
    const std::vector<Run> runs = open_runs(given, *format, options);
    try {
      Stats stats = make_job(runs, *format, options, inputs, prepare).into(output, before_publish);
      warn_of_cut_off_pipes(runs, options);
      return stats;
    } catch (const PartialOutputDiffers& left) {
      // The next round finds no partial output any more.
      warn_starting_over(options, left.output, output_differs);
    }
  }
}

}  // namespace

Stats run_job(std::span<const std::filesystem::path> files, const Destination& output,
              const Options& options, Inputs inputs, const Prepare& prepare,
              const std::function<void(const Stats&)>& before_publish) {
  return run_inputs(files, output, options, inputs, prepare, before_publish);
}

Stats run_job(std::span<const NamedSource> sources, const Destination& output,
              const Options& options, Inputs inputs) {
  return run_inputs(sources, output, options, inputs);
}

std::vector<std::vector<Run>> cut_job(std::span<const std::filesystem::path> files,
                                      std::size_t count, const Options& options, Inputs inputs,
                                      const Prepare& prepare) {
  const auto format = make_format(options);
  std::vector<Run> runs = open_runs(files, *format, options);
  for (const Run& run : runs)
    if (run.is_stream())
      throw_error("{}: is {}, which cannot be cut into partitions; {} first", run.path(),
                  run.is_pipe() ? "a pipe" : "compressed",
                  run.is_pipe() ? "write it to a file" : "decompress it");
  std::vector<std::vector<Run>> partitions =
      make_job(std::move(runs), *format, options, inputs, prepare).partitions(count);
  const OnEqual kind = options.query.on_equal;
  if (kind == OnEqual::intersect || kind == OnEqual::subtract)  // as ordered() rotated them
    for (std::vector<Run>& parts : partitions)
      std::rotate(parts.begin(), parts.end() - 1, parts.end());
  return partitions;
}

Stats merge(std::span<const std::filesystem::path> runs, const std::filesystem::path& output,
            const Options& options) {
  return run_job(runs, output, options, Inputs::sorted);
}

Stats merge(std::span<const NamedSource> runs, const NamedSink& output, const Options& options) {
  return run_job(runs, output, options, Inputs::sorted);
}

Stats merge(std::span<const NamedSource> runs, const std::filesystem::path& output,
            const Options& options) {
  return run_job(runs, output, options, Inputs::sorted);
}

Stats merge(std::span<const std::filesystem::path> runs, const NamedSink& output,
            const Options& options) {
  return run_job(runs, output, options, Inputs::sorted);
}

std::string explain_merge(std::span<const std::filesystem::path> paths,
                          const std::filesystem::path& output, const Options& options) {
  return explain_job(paths, output, options, Inputs::sorted);
}

std::string explain_job(std::span<const std::filesystem::path> paths,
                        const std::filesystem::path& output, const Options& options,
                        Inputs inputs) {
  const auto format = make_format(options);
  check_job_options(options, format->traits(), paths.size(), inputs);
  MergeJob job = make_job(open_runs(paths, *format, options), *format, options, inputs);
  return explain(inputs == Inputs::sorted ? job.plan(output) : job.plan_sort(output));
}

Stats merge(std::span<const std::span<const std::byte>> memory, std::span<std::byte> output,
            const Options& options) {
  const auto format = make_format(options);
  check_job_options(options, format->traits(), memory.size(), Inputs::sorted);
  if (!format->traits().has_fixed_size)
    throw Error(ErrorCode::options, "records of variable length are merged from files only");
  if (options.parts != 0 || options.resume || options.compression || options.record.header_bytes)
    throw Error(
        ErrorCode::options,
        "Options::parts, resume, compression and record.header_bytes are for files; the output is "
        "memory");
  std::vector<Run> runs;
  std::uint64_t bytes = 0;
  for (const auto& run : memory) {
    runs.emplace_back(run, fmt::format("run {}", runs.size()), format->record_bytes());
    runs.back().stop_on(options.stop);
    bytes += run.size();
    if (!run.empty() && run.data() < output.data() + output.size() &&
        output.data() < run.data() + run.size())
      throw Error(runs.back().path().string() + ": overlaps the output");
  }
  if (bytes != output.size())
    throw_error(ErrorCode::options, "the output has {} bytes, the runs have {}; give it as many",
                output.size(), bytes);
  return MergeJob(ordered(std::move(runs), format->traits(), options, Inputs::sorted), options,
                  Inputs::sorted)
      .into_memory(output);
}

Stats run_job(std::span<std::byte> records, const Options& options) {
  Run run(records, "the records", options.record.record_bytes);
  run.stop_on(options.stop);
  return MergeJob({std::move(run)}, options, Inputs::unsorted).into_memory(records);
}

}  // namespace corank
