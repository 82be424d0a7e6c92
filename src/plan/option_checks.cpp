#include "plan/option_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "codec/codec.hpp"
#include "corank/error.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

bool chooses(const Query& query) {
  return query.on_equal != OnEqual::keep || !query.where.steps.empty() ||
         !query.having.steps.empty() || !query.select.empty();
}

// Returns whether the records of each part are not known beforehand.
bool fills_parts_in_turn(const Options& options) {
  return options.query.limit && options.parts > 1 && chooses(options.query);
}

// Returns why a merge cannot find what a partial output holds: the format, or a setting of
// variable-length records. Empty if it can.
std::string obstacle_to_resume(const Options& options, const FormatTraits& traits) {
  if (!traits.can_search) return traits.name;
  if (traits.has_fixed_size) return {};
  if (options.parts != 0) return fmt::format("{} of {}", to_marker(Setting::parts), traits.name);
  if (options.copy_only) return fmt::format("{} of {}", to_marker(Setting::copy_only), traits.name);
  if (traits.may_skip) return setting_is(Setting::bad_numbers, "skip");
  if (options.query.on_equal == OnEqual::reduce) return setting_is(Setting::on_equal, "reduce");
  return {};
}

void check_query(const Options& options, const FormatTraits& traits) {
  const Query& query = options.query;
  if (query.on_equal == OnEqual::reduce && !traits.has_columns)
    throw_error(ErrorCode::options,
                "{} combines fields or columns, which these records lack; take first or last",
                setting_is(Setting::on_equal, "reduce"));
  const auto adds_column = [](const Reduction& reduction) {
    return !reduction.column && reduction.operation == Reduction::Operation::count;
  };
  const auto lacks_column = [&](const Reduction& reduction) {
    return !reduction.column && !(traits.has_text_columns && adds_column(reduction));
  };
  if (std::ranges::any_of(query.reductions, lacks_column))
    throw_error(ErrorCode::options, "{} names no field or column; write, for example, {}",
                setting_is(Setting::on_equal, "reduce"),
                setting_is(Setting::on_equal, "reduce:count(NAME)"));
  if (std::ranges::any_of(query.reductions, adds_column) && !traits.can_add_column)
    throw_error(ErrorCode::options, "{} adds a column: say by {} what separates it",
                setting_is(Setting::on_equal, "reduce:count()"), Setting::delimiter);
  if (query.on_equal == OnEqual::reduce && query.reductions.empty())
    throw_error(ErrorCode::options, "{} names no fields; write reduce:sum(field)",
                setting_is(Setting::on_equal, "reduce"));
  if (!query.select.empty() && !traits.has_columns)
    throw_error(ErrorCode::options,
                "{} is for fixed-size records, lines and CSV, whose columns can be copied: drop it",
                Setting::select);
  // The limit is a cut of the runs if their records can be counted.
  if (options.copy_only && (chooses(query) || query.tombstone || !query.from.empty() ||
                            !query.to.empty() || (query.limit && !traits.has_fixed_size)))
    throw_error(ErrorCode::options,
                "{} leaves the records as they are; drop it, or what chooses among them",
                Setting::copy_only);
  if (query.tombstone && (query.on_equal == OnEqual::keep || query.on_equal == OnEqual::error ||
                          is_set_operation(query.on_equal)))
    throw_error(ErrorCode::options,
                "{} drops what equal keys turn into; choose {}, last or reduce as well",
                Setting::tombstone, setting_is(Setting::on_equal, "first"));
  if (options.resume && fills_parts_in_turn(options))
    throw_error(ErrorCode::options,
                "{} needs to know beforehand where each part ends; drop it, or {}, or {}, or {}, "
                "{}, {} and {}",
                Setting::resume, Setting::limit, Setting::parts, Setting::where, Setting::on_equal,
                Setting::having, Setting::select);
}

}  // namespace

void check_options(const Options& options, const FormatTraits& traits, std::size_t runs) {
  const std::string obstacle = obstacle_to_resume(options, traits);
  if (options.resume && !obstacle.empty())
    throw_error(ErrorCode::options, "{} is not possible with {}; drop {}", Setting::resume,
                obstacle, Setting::resume);
  if (options.drop_header && !traits.has_header)
    throw_error(ErrorCode::options,
                "{}: no header is named; say which by {}, {} or {}, or of fixed-size records by {}",
                Setting::drop_header, Setting::header, Setting::header_lines, Setting::comment,
                Setting::skip_bytes);
  if (runs == 0) throw Error(ErrorCode::options, "no runs are named; name at least one");
  if (options.parts > max_parts)
    throw_error(ErrorCode::options, "{} is more than {}; write fewer", Setting::parts, max_parts);
  for (const auto& compression : {options.compression, options.temporary_compression})
    if (compression) check_level(*compression);
  check_query(options, traits);
}

void check_sort_options(const Options& options) {
  if (options.copy_only)
    throw_error(ErrorCode::options, "{} is for merges; drop it", Setting::copy_only);
  const Query& query = options.query;
  if (options.resume && (options.temporary_compression || query.limit ||
                         !query.where.steps.empty() || !query.from.empty() || !query.to.empty()))
    throw_error(
        ErrorCode::options,
        "{} of a sort keeps whole temporary files of plain records; drop it, or {}, {}, {}, "
        "{} and {}",
        Setting::resume, Setting::temporary_compression, Setting::limit, Setting::where,
        Setting::from, Setting::to);
  if (is_set_operation(options.query.on_equal))
    throw Error(ErrorCode::options, "set operations are for sorted runs; sort each input first");
  if (!options.temporary_compression) return;
  const Codec codec = options.temporary_compression->codec;
  if (codec != Codec::lz4 && codec != Codec::zstd)
    throw_error(ErrorCode::options, "{}: the codec is lz4 or zstd", Setting::temporary_compression);
}

bool can_resume(const Options& options, const FormatTraits& traits) {
  return obstacle_to_resume(options, traits).empty() && !fills_parts_in_turn(options);
}

void check_stream_options(const Options& options, const FormatTraits& traits, const Run& run) {
  const Query& query = options.query;
  const std::string option = options.resume ? to_marker(Setting::resume)
                             : traits.has_fixed_size && options.copy_only && query.limit
                                 ? fmt::format("{} with {}", Setting::copy_only, Setting::limit)
                                 : "";
  if (option.empty()) return;
  const bool pipe = run.is_pipe();
  const bool is_given = run.identity() == FileIdentity{};
  throw_error(ErrorCode::options,
              "{}: is {}, in which {} can't find its way; {} first, or drop that option",
              run.path(),
              is_given ? "a stream"
              : pipe   ? "a pipe"
                       : "compressed",
              option, pipe ? "write it to a file" : "decompress it");
}

}  // namespace corank
