#include "plan/option_checks.hpp"

#include <fmt/format.h>

#include "corank/error.hpp"

namespace corank {
namespace {

void check_tombstone(const Shaping& shaping, bool is_given) {
  if (is_given && (shaping.on_equal == OnEqual::keep || shaping.on_equal == OnEqual::error ||
                   is_set_operation(shaping.on_equal)))
    throw Error(
        "--tombstone drops what equal keys turn into; choose --on-equal first, last or "
        "reduce as well");
}

void check_text_shaping(const Options& options) {
  const Shaping& shaping = options.shaping;
  if (shaping.on_equal == OnEqual::reduce)
    throw Error(
        "--on-equal reduce combines fields of records of a fixed size; of text and pairs keep "
        "first or last, or convert them");
  if (shaping.tombstone || !shaping.where.steps.empty() || !shaping.select.empty() ||
      !shaping.from.empty() || !shaping.to.empty())
    throw Error("text and pairs have no fields; of Shaping, what begins with text_ is for them");
  check_tombstone(shaping, shaping.text_tombstone.has_value());
  if (options.copy_only && (shaping.on_equal != OnEqual::keep || shaping.limit ||
                            !shaping.text_from.empty() || !shaping.text_to.empty() ||
                            !shaping.text_where.steps.empty() || !shaping.text_select.empty()))
    throw Error("--copy-only leaves the records as they are; drop it, or what chooses among them");
}

void check_shaping(const Options& options) {
  const Shaping& shaping = options.shaping;
  const bool groups = shaping.on_equal != OnEqual::keep;
  if (options.text) return check_text_shaping(options);
  if (!shaping.text_from.empty() || !shaping.text_to.empty() || shaping.text_tombstone ||
      !shaping.text_where.steps.empty() || !shaping.text_select.empty())
    throw Error("Shaping::text_… is for records of variable length");
  if (options.copy_only &&
      (groups || shaping.tombstone || !shaping.where.steps.empty() || !shaping.select.empty() ||
       !shaping.from.empty() || !shaping.to.empty()))
    throw Error("--copy-only leaves the records as they are; drop it, or what chooses among them");
  check_tombstone(shaping, shaping.tombstone.has_value());
  if (shaping.limit && options.parts > 1 && options.resume &&
      (groups || !shaping.where.steps.empty() || !shaping.select.empty()))
    throw Error(
        "--resume needs to know beforehand where each part ends; drop it, or --limit, or --parts, "
        "or --where, --on-equal and --select");
  if (shaping.on_equal == OnEqual::reduce && shaping.reductions.empty())
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
  if (runs == 0) throw Error("no runs are named; name at least one");
  check_shaping(options);
}

void check_stream_options(const Options& options, const Run& run) {
  const Shaping& shaping = options.shaping;
  const char* const option = options.resume                       ? "--resume"
                             : options.parts != 0                 ? "--parts"
                             : !shaping.from.empty()              ? "--from"
                             : !shaping.to.empty()                ? "--to"
                             : options.text                       ? nullptr
                             : shaping.on_equal == OnEqual::error ? "--on-equal error"
                             : options.copy_only && shaping.limit ? "--copy-only with --limit"
                                                                  : nullptr;
  if (!option) return;
  const bool pipe = run.input().is_stream;
  throw Error(
      fmt::format("{}: is {}, in which {} can't find its way; {} first, or drop that option",
                  run.path().string(), pipe ? "a pipe" : "compressed", option,
                  pipe ? "write it to a file" : "decompress it"));
}

}  // namespace corank
