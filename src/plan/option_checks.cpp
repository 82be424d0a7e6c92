#include "plan/option_checks.hpp"

#include <fmt/format.h>

#include "corank/error.hpp"

namespace corank {
namespace {

void check_tombstone(const Query& query, bool is_given) {
  if (is_given && (query.on_equal == OnEqual::keep || query.on_equal == OnEqual::error ||
                   is_set_operation(query.on_equal)))
    throw Error(
        "--tombstone drops what equal keys turn into; choose --on-equal first, last or "
        "reduce as well");
}

void check_text_query(const Options& options) {
  const Query& query = options.query;
  if (query.on_equal == OnEqual::reduce)
    throw Error(
        "--on-equal reduce combines fields of records of a fixed size; of text and pairs keep "
        "first or last, or convert them");
  if (query.tombstone || !query.where.steps.empty() || !query.select.empty() ||
      !query.having.steps.empty() || !query.from.empty() || !query.to.empty())
    throw Error("text and pairs have no fields; of Shaping, what begins with text_ is for them");
  check_tombstone(query, query.text_tombstone.has_value());
  if (options.copy_only &&
      (query.on_equal != OnEqual::keep || query.limit || !query.text_from.empty() ||
       !query.text_to.empty() || !query.text_where.steps.empty() ||
       !query.text_having.steps.empty() || !query.text_select.empty()))
    throw Error("--copy-only leaves the records as they are; drop it, or what chooses among them");
}

void check_query(const Options& options) {
  const Query& query = options.query;
  const bool groups = query.on_equal != OnEqual::keep;
  if (options.text) return check_text_query(options);
  if (!query.text_from.empty() || !query.text_to.empty() || query.text_tombstone ||
      !query.text_where.steps.empty() || !query.text_having.steps.empty() ||
      !query.text_select.empty())
    throw Error("Shaping::text_… is for records of variable length");
  if (options.copy_only &&
      (groups || query.tombstone || !query.where.steps.empty() || !query.having.steps.empty() ||
       !query.select.empty() || !query.from.empty() || !query.to.empty()))
    throw Error("--copy-only leaves the records as they are; drop it, or what chooses among them");
  check_tombstone(query, query.tombstone.has_value());
  if (query.limit && options.parts > 1 && options.resume &&
      (groups || !query.where.steps.empty() || !query.having.steps.empty() ||
       !query.select.empty()))
    throw Error(
        "--resume needs to know beforehand where each part ends; drop it, or --limit, or --parts, "
        "or --where, --on-equal, --having and --select");
  if (query.on_equal == OnEqual::reduce && query.reductions.empty())
    throw Error("--on-equal reduce names no fields; write reduce:sum(field)");
}

}  // namespace

void check_options(const Options& options, std::size_t runs) {
  if (options.record.record_bytes == 0 && !options.text)
    throw Error("Options::record has no fields; use Schema::parse");
  for (const KeyField& key : options.keys)
    if (!options.text && key.field >= options.record.fields.size())
      throw Error(fmt::format("Options::keys: there is no field {}; the record has {}", key.field,
                              options.record.fields.size()));
  if (options.text && options.resume &&
      (options.text->kind != TextKind::lines || options.parts != 0 || options.copy_only ||
       options.text->bad_numbers == BadNumbers::skip))
    throw Error(
        "--resume goes on with lines in one merged output, none of them skipped, and with records "
        "of a fixed size; drop it");
  if (options.text && options.parts != 0 && options.text->kind != TextKind::lines)
    throw Error(
        "--parts cuts lines and records of a fixed size, which can be found from anywhere in a "
        "file; CSV and pairs can not: drop it");
  const bool has_header = options.text ? options.text->header || options.text->header_lines != 0 ||
                                             !options.text->comment.empty()
                                       : options.record.header_bytes.value_or(0) != 0;
  if (options.drop_header && !has_header)
    throw Error(
        "--drop-header: no header is named; say which by --header, --header-lines or --comment, or "
        "of fixed-size records by --skip-bytes");
  if (runs == 0) throw Error("no runs are named; name at least one");
  check_query(options);
}

void check_stream_options(const Options& options, const Run& run) {
  const Query& query = options.query;
  const char* const option = options.resume                     ? "--resume"
                             : options.parts != 0               ? "--parts"
                             : !query.from.empty()              ? "--from"
                             : !query.to.empty()                ? "--to"
                             : options.text                     ? nullptr
                             : query.on_equal == OnEqual::error ? "--on-equal error"
                             : options.copy_only && query.limit ? "--copy-only with --limit"
                                                                : nullptr;
  if (!option) return;
  const bool pipe = run.input().is_stream;
  throw Error(
      fmt::format("{}: is {}, in which {} can't find its way; {} first, or drop that option",
                  run.path().string(), pipe ? "a pipe" : "compressed", option,
                  pipe ? "write it to a file" : "decompress it"));
}

}  // namespace corank
