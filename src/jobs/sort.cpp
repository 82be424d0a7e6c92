#include "corank/sort.hpp"

#include "jobs/merge_job.hpp"
#include "plan/option_checks.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

void check_sort_options(const Options& options) {
  if (options.copy_only)
    throw_error(ErrorCode::options, "{} is for merges; drop it", Setting::copy_only);
  const Query& query = options.query;
  if (options.resume && (options.temporary_compression || query.limit ||
                         !query.where.steps.empty() || !query.from.empty() || !query.to.empty()))
    throw_error(ErrorCode::options,
                "{} of a sort goes on after whole temporary files of plain records; drop it, or "
                "{}, {}, {}, {} and {}",
                Setting::resume, Setting::temporary_compression, Setting::limit, Setting::where,
                Setting::from, Setting::to);
  if (is_set_operation(options.query.on_equal))
    throw Error(ErrorCode::options, "set operations are for sorted runs; sort each input first");
  if (!options.temporary_compression) return;
  const Codec codec = options.temporary_compression->codec;
  if (codec != Codec::lz4 && codec != Codec::zstd)
    throw_error(ErrorCode::options, "{}: the codec is lz4 or zstd", Setting::temporary_compression);
}

template <class Input>
Stats sort_inputs(std::span<const Input> inputs, const Destination& output,
                  const Options& options) {
  check_options(options, make_format(options)->traits(), inputs.size());
  check_sort_options(options);
  return run_job(inputs, output, options, Inputs::unsorted);
}

}  // namespace

Stats sort(std::span<const std::filesystem::path> inputs, const std::filesystem::path& output,
           const Options& options) {
  return sort_inputs(inputs, output, options);
}

Stats sort(std::span<const NamedSource> inputs, const NamedSink& output, const Options& options) {
  return sort_inputs(inputs, output, options);
}

Stats sort(std::span<const NamedSource> inputs, const std::filesystem::path& output,
           const Options& options) {
  return sort_inputs(inputs, output, options);
}

Stats sort(std::span<const std::filesystem::path> inputs, const NamedSink& output,
           const Options& options) {
  return sort_inputs(inputs, output, options);
}

std::string explain_sort(std::span<const std::filesystem::path> inputs,
                         const std::filesystem::path& output, const Options& options) {
  check_options(options, make_format(options)->traits(), inputs.size());
  check_sort_options(options);
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
