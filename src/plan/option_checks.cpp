#include "plan/option_checks.hpp"

#include <fmt/format.h>

#include "corank/error.hpp"
#include "util/setting_format.hpp"

namespace corank {
namespace {

[[noreturn]] void throw_not_copied() {
  throw Error(ErrorCode::options,
              fmt::format("{} leaves the records as they are; drop it, or what chooses among them",
                          Setting::copy_only));
}

void check_tombstone(const Query& query, bool is_given) {
  if (is_given && (query.on_equal == OnEqual::keep || query.on_equal == OnEqual::error ||
                   is_set_operation(query.on_equal)))
    throw Error(ErrorCode::options,
                fmt::format("{} drops what equal keys turn into; choose {}, last or reduce as well",
                            Setting::tombstone, setting_is(Setting::on_equal, "first")));
}

void check_text_query(const Options& options) {
  const Query& query = options.query;
  if (query.on_equal == OnEqual::reduce)
    throw Error(ErrorCode::options,
                fmt::format("{} combines fields of records of a fixed size; of text and pairs keep "
                            "first or last, or convert them",
                            setting_is(Setting::on_equal, "reduce")));
  if (query.tombstone || !query.where.steps.empty() || !query.select.empty() ||
      !query.having.steps.empty() || !query.from.empty() || !query.to.empty())
    throw Error(ErrorCode::options,
                "text and pairs have no fields; of Query, what begins with text_ is for them");
  check_tombstone(query, query.text_tombstone.has_value());
  if (options.copy_only &&
      (query.on_equal != OnEqual::keep || query.limit || !query.text_from.empty() ||
       !query.text_to.empty() || !query.text_where.steps.empty() ||
       !query.text_having.steps.empty() || !query.text_select.empty()))
    throw_not_copied();
}

void check_query(const Options& options) {
  const Query& query = options.query;
  const bool groups = query.on_equal != OnEqual::keep;
  if (options.text) return check_text_query(options);
  if (!query.text_from.empty() || !query.text_to.empty() || query.text_tombstone ||
      !query.text_where.steps.empty() || !query.text_having.steps.empty() ||
      !query.text_select.empty())
    throw Error(ErrorCode::options, "Query::text_… is for records of variable length");
  if (options.copy_only &&
      (groups || query.tombstone || !query.where.steps.empty() || !query.having.steps.empty() ||
       !query.select.empty() || !query.from.empty() || !query.to.empty()))
    throw_not_copied();
  check_tombstone(query, query.tombstone.has_value());
  if (query.limit && options.parts > 1 && options.resume &&
      (groups || !query.where.steps.empty() || !query.having.steps.empty() ||
       !query.select.empty()))
    throw Error(ErrorCode::options,
                fmt::format("{} needs to know beforehand where each part ends; drop it, or {}, or "
                            "{}, or {}, {}, {} and {}",
                            Setting::resume, Setting::limit, Setting::parts, Setting::where,
                            Setting::on_equal, Setting::having, Setting::select));
  if (query.on_equal == OnEqual::reduce && query.reductions.empty())
    throw Error(ErrorCode::options, fmt::format("{} names no fields; write reduce:sum(field)",
                                                setting_is(Setting::on_equal, "reduce")));
}

}  // namespace

void check_options(const Options& options, std::size_t runs) {
  if (options.record.record_bytes == 0 && !options.text)
    throw Error(ErrorCode::options, "Options::record has no fields; use Schema::parse");
  for (const KeyField& key : options.keys)
    if (!options.text && key.field >= options.record.fields.size())
      throw Error(ErrorCode::options,
                  fmt::format("Options::keys: there is no field {}; the record has {}", key.field,
                              options.record.fields.size()));
  if (options.text && options.resume &&
      (options.text->kind != TextKind::lines || options.parts != 0 || options.copy_only ||
       options.text->bad_numbers == BadNumbers::skip))
    throw Error(ErrorCode::options,
                fmt::format("{} goes on with lines in one merged output, none of them skipped, and "
                            "with records of a fixed size; drop it",
                            Setting::resume));
  if (options.text && options.parts != 0 && options.text->kind != TextKind::lines)
    throw Error(ErrorCode::options,
                fmt::format("{} cuts lines and records of a fixed size, which can be found from "
                            "anywhere in a file; CSV and pairs can not: drop it",
                            Setting::parts));
  const bool has_header = options.text ? options.text->header || options.text->header_lines != 0 ||
                                             !options.text->comment.empty()
                                       : options.record.header_bytes.value_or(0) != 0;
  if (options.drop_header && !has_header)
    throw Error(
        ErrorCode::options,
        fmt::format(
            "{}: no header is named; say which by {}, {} or {}, or of fixed-size records by {}",
            Setting::drop_header, Setting::header, Setting::header_lines, Setting::comment,
            Setting::skip_bytes));
  if (runs == 0) throw Error(ErrorCode::options, "no runs are named; name at least one");
  check_query(options);
}

void check_stream_options(const Options& options, const Run& run) {
  const Query& query = options.query;
  const std::string option = options.resume        ? to_marker(Setting::resume)
                             : options.parts != 0  ? to_marker(Setting::parts)
                             : !query.from.empty() ? to_marker(Setting::from)
                             : !query.to.empty()   ? to_marker(Setting::to)
                             : options.text        ? ""
                             : query.on_equal == OnEqual::error
                                 ? setting_is(Setting::on_equal, "error")
                             : options.copy_only && query.limit
                                 ? fmt::format("{} with {}", Setting::copy_only, Setting::limit)
                                 : "";
  if (option.empty()) return;
  const bool pipe = run.input().is_stream;
  throw Error(
      ErrorCode::options,
      fmt::format("{}: is {}, in which {} can't find its way; {} first, or drop that option",
                  run.path().string(), pipe ? "a pipe" : "compressed", option,
                  pipe ? "write it to a file" : "decompress it"));
}

}  // namespace corank
