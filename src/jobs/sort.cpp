#include "corank/sort.hpp"

#include "jobs/merge_job.hpp"
#include "plan/option_checks.hpp"
#include "util/messages.hpp"

namespace corank {
Stats sort(std::span<const std::filesystem::path> inputs, const std::filesystem::path& output,
           const Options& options) {
  return run_job(inputs, output, options, Inputs::unsorted);
}

Stats sort(std::span<const NamedSource> inputs, const NamedSink& output, const Options& options) {
  return run_job(inputs, output, options, Inputs::unsorted);
}

Stats sort(std::span<const NamedSource> inputs, const std::filesystem::path& output,
           const Options& options) {
  return run_job(inputs, output, options, Inputs::unsorted);
}

Stats sort(std::span<const std::filesystem::path> inputs, const NamedSink& output,
           const Options& options) {
  return run_job(inputs, output, options, Inputs::unsorted);
}

std::string explain_sort(std::span<const std::filesystem::path> inputs,
                         const std::filesystem::path& output, const Options& options) {
  return explain_job(inputs, output, options, Inputs::unsorted);
}

Stats sort(std::span<std::byte> records, const Options& options) {
  const auto format = make_format(options);
  check_options(options, format->traits(), 1);
  check_sort_options(options);
  const Query& query = options.query;
  if (!format->traits().has_fixed_size || options.parts != 0 || options.compression ||
      options.temporary_compression || options.resume || options.record.header_bytes)
    throw Error(ErrorCode::options,
                "Options::text, parts, compression, temporary_compression, resume and "
                "record.header_bytes are for files; the records are in memory");
  if (query.on_equal != OnEqual::keep || query.limit || !query.where.steps.empty() ||
      !query.having.steps.empty() || !query.select.empty() || !query.from.empty() ||
      !query.to.empty())
    throw Error(ErrorCode::options,
                "a sort in memory keeps all records; leave Options::query empty");
  return run_job(records, options);
}

}  // namespace corank
