#include "run/header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "corank/error.hpp"
#include "corank/text_key.hpp"
#include "format/framing.hpp"
#include "run/header_doubts.hpp"
#include "util/setting_format.hpp"

namespace corank {
namespace {

// Max size of a header; a longer one means that the file holds something else.
constexpr std::uint64_t max_header_bytes = std::uint64_t{16} << 20;

std::vector<std::byte> first_bytes(Run& run, std::uint64_t bytes, const std::stop_token& stop) {
  if (run.is_stream()) {
    std::vector<std::byte> begin = run.begin(bytes, stop);
    begin.resize(std::min<std::size_t>(bytes, begin.size()));
    return begin;
  }
  std::vector<std::byte> begin(std::min(bytes, run.file_bytes()));
  begin.resize(read_at(*run.descriptor(), begin, 0, run.path()));
  return begin;
}

// Splits the first bytes of a file into its comment lines, header lines and line of names.
class HeadParser {
 public:
  HeadParser(const TextLayout& layout, const TextFormat& format, std::string_view text, bool at_end)
      : layout_(layout),
        format_(format),
        text_(text),
        at_end_(at_end),
        at_(byte_order_mark_bytes(layout.kind, text)) {}

  // Returns false if the header is longer than `text`, so that more of the file is needed.
  bool parse() { return parse_comments() && parse_lines() && parse_names(); }

  std::string_view comments() const { return text_.substr(0, comments_end_); }
  std::string_view lines() const { return text_.substr(comments_end_, lines_end_ - comments_end_); }
  std::string_view names() const { return text_.substr(lines_end_, names_end_ - lines_end_); }
  std::uint64_t header_bytes() const { return names_end_; }
  std::uint64_t num_lines() const { return num_lines_; }
  bool lacks_lines() const { return lacks_lines_; }
  // Returns the error in the quotes of the line of names; empty if there is none.
  const std::string& stray_text() const { return stray_text_; }

 private:
  bool parse_comments() {
    if (format_.comment.empty()) return true;
    for (;;) {
      const std::string_view rest = text_.substr(at_);
      if (!rest.starts_with(format_.comment))
        return at_end_ || rest.size() >= format_.comment.size();
      if (!skip_line()) return false;
      comments_end_ = lines_end_ = names_end_ = at_;
    }
  }

  bool parse_lines() {
    for (std::uint64_t line = 0; line < format_.header_lines; ++line) {
      if (at_ == text_.size() && at_end_) {
        lacks_lines_ = true;
        return true;
      }
      if (!skip_line()) return false;
      lines_end_ = names_end_ = at_;
    }
    return true;
  }

  bool parse_names() {
    if (!format_.header) return true;
    const std::string_view rest = text_.substr(at_);
    const auto record = std::as_bytes(std::span(rest));
    const std::uint64_t bytes = first_record_bytes(layout_, record);
    if (const auto stray = find_stray_text(layout_, record))
      stray_text_ = stray_text_message(layout_, record.data(), *stray);
    if (bytes == 0 && !at_end_) return false;
    names_end_ = bytes != 0 ? at_ + bytes : text_.size();
    ++num_lines_;
    return true;
  }

  // Skips a line; the last line of a file may lack its terminator.
  bool skip_line() {
    const std::size_t end = text_.find(format_.terminator, at_);
    if (end == std::string_view::npos && !at_end_) return false;
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
    ++num_lines_;
    return true;
  }

  const TextLayout layout_;
  const TextFormat& format_;
  std::string_view text_;
  bool at_end_;
  std::size_t at_;
  std::size_t comments_end_ = 0, lines_end_ = 0, names_end_ = 0;
  std::uint64_t num_lines_ = 0;
  bool lacks_lines_ = false;
  std::string stray_text_;
};

struct TextHead {
  std::string comments, lines, names;
};

std::string terminated(std::string_view lines, char terminator) {
  std::string text(lines);
  if (!text.empty() && !text.ends_with(terminator)) text += terminator;
  return text;
}

// Removes the header from the run and returns it; returns nothing if the run is empty.
std::optional<TextHead> take_head(Run& run, const TextLayout& layout, const TextFormat& format,
                                  const std::stop_token& stop) {
  for (std::uint64_t bytes = 4096; bytes <= max_header_bytes; bytes *= 4) {
    const std::vector<std::byte> begin = first_bytes(run, bytes, stop);
    const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
    HeadParser head(layout, format, text, begin.size() < bytes);
    const bool is_whole = head.parse();
    if (!head.stray_text().empty())
      throw Error(fmt::format("{}: the header: {}", run.path().string(), head.stray_text()));
    if (!is_whole) continue;
    if (text.empty()) return std::nullopt;
    if (head.lacks_lines())
      throw Error(fmt::format("{}: ends within its {} header lines; correct {}",
                              run.path().string(), format.header_lines, Setting::header_lines));
    run = run.without_header(head.header_bytes(), head.num_lines());
    return TextHead{terminated(head.comments(), format.terminator),
                    terminated(head.lines(), format.terminator),
                    terminated(head.names(), format.terminator)};
  }
  throw Error(fmt::format("{}: no header ends in its first {} bytes; check {}, {} and {}",
                          run.path().string(), max_header_bytes, Setting::header,
                          Setting::header_lines, Setting::comment));
}

// Returns the header bytes of the first run; throws Error if those of another run differ.
std::string common_header_bytes(std::vector<Run>& runs, const std::stop_token& stop) {
  std::optional<std::vector<std::byte>> header;
  const Run* first = nullptr;
  for (Run& run : runs) {
    if (run.header_bytes() == 0) continue;
    std::vector<std::byte> found = first_bytes(run, run.header_bytes(), stop);
    if (found.empty()) continue;
    if (!header) {
      header = std::move(found);
      first = &run;
    } else if (*header != found) {
      throw Error(
          fmt::format("{}: its first {} bytes differ from those of {}; check {}, or leave "
                      "the header out of the output by {}",
                      run.path().string(), run.header_bytes(), first->path().string(),
                      Setting::skip_bytes, Setting::drop_header));
    }
  }
  if (!header) return {};
  return {reinterpret_cast<const char*>(header->data()), header->size()};
}

// Returns the first record of a run, without a terminator if it lacks one; empty if the run is
// empty. Returns nothing if the record is longer than max_header_bytes.
std::optional<std::string> first_record(Run& run, const TextLayout& layout,
                                        const std::stop_token& stop) {
  for (std::uint64_t bytes = 4096; bytes <= max_header_bytes; bytes *= 4) {
    const std::vector<std::byte> begin = first_bytes(run, bytes, stop);
    const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
    const std::size_t mark_bytes = byte_order_mark_bytes(layout.kind, text);
    const std::uint64_t found = first_record_bytes(layout, std::span(begin).subspan(mark_bytes));
    if (const auto stray = find_stray_text(layout, std::span(begin).subspan(mark_bytes)))
      throw Error(fmt::format("{}: the header: {}", run.path().string(),
                              stray_text_message(layout, begin.data() + mark_bytes, *stray)));
    if (found == 0 && begin.size() == bytes) continue;
    return std::string(text.substr(0, found != 0 ? mark_bytes + found : text.size()));
  }
  return std::nullopt;
}

// Returns an encoding without keys, which suffices to find records.
TextEncoding without_keys(TextFormat format) {
  format.keys.clear();
  return TextEncoding(format);
}

// Returns the number of columns that a record needs to have every column that the options name.
std::uint32_t wanted_columns(const TextFormat& format, const Query& query) {
  std::uint32_t column = format.ragged == RaggedRecords::error ? 1 : 0;
  const auto add = [&](const TextKey& key) { column = std::max(column, key.column); };
  std::ranges::for_each(format.keys, add);
  std::ranges::for_each(query.select, add);
  for (const Condition::Step& step : query.where.steps) add(step.with.column);
  for (const Condition::Step& step : query.having.steps) add(step.with.column);
  if (query.tombstone) add(query.tombstone->column);
  for (const Reduction& reduction : query.reductions)
    if (reduction.column) add(*reduction.column);
  return column;
}

}  // namespace

Header take_header(std::vector<Run>& runs, const TextFormat& format, const HeaderRules& rules) {
  if (!format.header && format.header_lines == 0 && format.comment.empty()) return {};
  const TextEncoding encoding = without_keys(format);
  std::optional<TextHead> kept;
  const Run* first = nullptr;
  const Run* other_comments = nullptr;
  for (Run& run : runs) {
    if (kept && format.first_header) break;
    std::optional<TextHead> found = take_head(run, encoding.layout(), format, rules.stop);
    if (!found) continue;
    if (!kept) {
      kept = std::move(found);
      first = &run;
      continue;
    }
    if (found->lines != kept->lines && !rules.may_differ)
      throw Error(
          fmt::format("{}: its header lines differ from those of {}; check {}, or "
                      "leave them out of the output by {}",
                      run.path().string(), first->path().string(), Setting::header_lines,
                      Setting::drop_header));
    if (!other_comments && found->comments != kept->comments) other_comments = &run;
    if (found->names.empty()) continue;  // the run ends before its line of names
    if (kept->names.empty()) kept->names = found->names;
    // Headers may differ in quotes, a byte order mark and a carriage return.
    if (column_values(encoding.layout(), found->names) !=
        column_values(encoding.layout(), kept->names))
      throw Error(
          fmt::format("{}: its header differs from that of {}; all runs must have the same "
                      "columns, or no header: then leave out {}",
                      run.path().string(), first->path().string(), Setting::header));
  }
  if (!kept) return {};
  if (other_comments && rules.notice && !rules.may_differ)
    rules.notice(fmt::format(
        "{}: its lines that begin with {} differ from those of {}, which the output keeps",
        other_comments->path().string(), format.comment, first->path().string()));
  return {kept->comments + kept->lines, std::move(kept->names)};
}

Header take_header(std::vector<Run>& runs, const Options& options, bool are_sorted) {
  if (!options.text) {
    if (options.drop_header || options.record.header_bytes.value_or(0) == 0) return {};
    return {common_header_bytes(runs, options.stop), {}};
  }
  Header header =
      take_header(runs, *options.text, {options.drop_header, options.notice, options.stop});
  if (!options.notice) return header;
  const bool is_verified = !options.query.limit && !options.copy_only;
  const std::string doubt = options.text->header
                                ? doubt_header(*options.text, header.names)
                                : doubt_first_records(runs, *options.text, are_sorted, is_verified);
  if (!doubt.empty()) options.notice(doubt);
  return header;
}

std::string widest_first_record(std::vector<Run>& runs, const TextFormat& format,
                                const Query& query, std::stop_token stop) {
  const std::uint32_t wanted = wanted_columns(format, query);
  if (format.kind == TextKind::pairs || wanted == 0) return {};
  const TextEncoding encoding = without_keys(format);
  std::string widest;
  std::uint32_t max_columns = 0;
  for (Run& run : runs) {
    std::optional<std::string> record = first_record(run, encoding.layout(), stop);
    if (!record) return {};
    if (record->empty()) continue;
    const std::uint32_t columns = count_columns(encoding.layout(), *record);
    if (columns > max_columns) widest = *std::move(record);
    max_columns = std::max(max_columns, columns);
    if (max_columns >= wanted) break;
  }
  return widest;
}

}  // namespace corank
