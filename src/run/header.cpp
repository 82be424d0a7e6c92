#include "run/header.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "corank/error.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

// Max size of a header; a longer one means that the file holds something else.
constexpr std::uint64_t max_header_bytes = 16 * MiB;
// Bytes that are read of a run to find its header in them; more if it does not end there.
constexpr std::uint64_t first_step_bytes = 4096;

// Returns the first bytes of `run`, which is one of `runs`, after its first `skipped` bytes.
std::vector<std::byte> first_bytes(Run& run, std::span<Run> runs, std::uint64_t skipped,
                                   std::uint64_t bytes, const std::stop_token& stop) {
  if (run.is_stream()) {
    std::vector<std::byte> begin = run.begin(skipped + bytes, stop, runs);
    begin.resize(std::min<std::size_t>(skipped + bytes, begin.size()));
    begin.erase(begin.begin(), begin.begin() + static_cast<std::ptrdiff_t>(
                                                   std::min<std::size_t>(skipped, begin.size())));
    return begin;
  }
  std::vector<std::byte> begin(std::min(bytes, run.file_bytes() - skipped));
  read_whole(*run.descriptor(), begin, skipped, run.path());
  return begin;
}

// Calls parse(begin, at_end) with growing beginnings of `run`, one of `runs`, after the header that
// was taken, until it returns a value; returns nothing if max_header_bytes do not suffice.
template <class Parse>
auto parse_begin(Run& run, std::span<Run> runs, const std::stop_token& stop, Parse parse)
    -> decltype(parse(std::span<const std::byte>(), true)) {
  for (std::uint64_t bytes = first_step_bytes; bytes <= max_header_bytes; bytes *= 4) {
    const std::vector<std::byte> begin = first_bytes(run, runs, run.offset(), bytes, stop);
    if (auto found = parse(begin, begin.size() < bytes)) return found;
  }
  return std::nullopt;
}

// Removes the header from `run`, one of `runs`, and returns it; returns nothing if it is empty.
std::optional<FileHead> take_head(Run& run, std::span<Run> runs, const TextHeader& header,
                                  const std::stop_token& stop) {
  bool is_empty = false;
  auto head = parse_begin(run, runs, stop, [&](std::span<const std::byte> begin, bool at_end) {
    is_empty = begin.empty();
    if (!header.has_known_size()) refuse_wide_text(run.path(), begin);
    return header.parse(run.path(), begin, at_end);
  });
  if (!head)
    throw_error(
        "{}: no header ends in its first {} bytes, the most that is read of one; check {}, {} and "
        "{}",
        run.path(), max_header_bytes, Setting::header, Setting::header_lines, Setting::comment);
  if (is_empty) return std::nullopt;
  run = run.without_header(head->bytes, head->num_lines);
  return head;
}

// Returns the header bytes of the first run; throws Error if those of another run differ.
std::string common_header_bytes(std::vector<Run>& runs, const std::stop_token& stop) {
  std::optional<std::vector<std::byte>> header;
  const Run* first = nullptr;
  for (Run& run : runs) {
    if (run.header_bytes() == 0) continue;
    std::vector<std::byte> found = first_bytes(run, runs, 0, run.header_bytes(), stop);
    if (found.empty()) continue;
    if (!header) {
      header = std::move(found);
      first = &run;
    } else if (*header != found) {
      throw_error(
          "{}: its first {} bytes differ from those of {}; check {}, or leave the header out of "
          "the output by {}",
          run.path(), run.header_bytes(), first->path(), Setting::skip_bytes, Setting::drop_header);
    }
  }
  if (!header) return {};
  return {reinterpret_cast<const char*>(header->data()), header->size()};
}

// Returns the first records of a run; those that end in its first 16 KiB. For a pipe, uses only the
// bytes already read for its header.
FirstRecords first_records(Run& run, const TextHeader& header) {
  constexpr std::uint64_t max_bytes = std::uint64_t{16} << 10;
  const std::uint64_t bytes =
      run.is_pipe() ? first_step_bytes - std::min(first_step_bytes, run.offset()) : max_bytes;
  const std::vector<std::byte> begin = first_bytes(run, {&run, 1}, run.offset(), bytes, run.stop());
  return header.first_records({reinterpret_cast<const char*>(begin.data()), begin.size()},
                              begin.size() < bytes);
}

// Takes the headers of the runs one after another, and compares them with the first.
class HeaderTaker {
 public:
  HeaderTaker(const TextHeader& header, const Options& options)
      : header_(header), nameless_(header.without_names()), options_(options) {}

  // Takes the header of `run`, which is one of `runs`. If the options tell of none, that is a byte
  // order mark. A pipe, which is not waited for, drops its mark as it is read.
  void take(Run& run, std::span<Run> runs) {
    if (header_.is_empty() && run.is_pipe()) return;
    const bool lacks_names = kept_ && !kept_->names.empty() && header_.is_in_first_file();
    if (lacks_names && nameless_.is_empty()) return take_mark(run, runs);
    std::optional<FileHead> found =
        take_head(run, runs, lacks_names ? nameless_ : header_, options_.stop);
    if (!found) return;
    ++num_taken_;
    if (!kept_) {
      kept_ = std::move(found);
      first_ = &run;
      return;
    }
    if (found->lines != kept_->lines && !options_.drop_header)
      throw_error(
          "{}: its header lines differ from those of {}; check {}, or leave them out of the output "
          "by {}",
          run.path(), first_->path(), Setting::header_lines, Setting::drop_header);
    if (!other_comments_ && !header_.is_in_first_file() && found->comments != kept_->comments)
      other_comments_ = &run;
    if (found->names.empty()) return;  // the run ends before its line of names
    if (kept_->names.empty()) kept_->names = found->names;
    if (const std::string difference = header_.difference(found->names, kept_->names);
        !difference.empty())
      throw_error(
          "{}: its header differs from that of {}: {}; if these lines are records, leave out {}; "
          "if the columns may differ, take {} and {} instead, and name columns by number",
          run.path(), first_->path(), difference, Setting::header,
          setting_is(Setting::header_lines, "1"), Setting::drop_header);
  }

  // Returns a warning if the line of names may be a record; an empty string if nothing suggests it.
  // The line is compared with a record only if one file has it: records hardly begin several files.
  std::string doubt() const {
    if (!kept_ || kept_->names.empty()) return {};
    const std::string doubt = header_.doubt_names(
        kept_->names, num_taken_ == 1 ? first_records(*first_, header_).first : std::string());
    return doubt.empty() ? doubt : fmt::format("{}: {}", first_->shown_path().string(), doubt);
  }

  Header finish() && {
    if (!kept_) return {};
    if (other_comments_ && !options_.drop_header)
      warn(options_.notice,
           "{}: its lines that begin with {} differ from those of {}, which the output keeps",
           other_comments_->path(), header_.comment_prefix(), first_->path());
    return {kept_->mark + kept_->comments + kept_->lines, std::move(kept_->names)};
  }

 private:
  // Removes the byte order mark of a run without a header.
  void take_mark(Run& run, std::span<Run> runs) const {
    if (run.is_pipe()) return;  // a pipe drops it as it is read
    const std::string_view mark = header_.byte_order_mark();
    const std::vector<std::byte> begin =
        first_bytes(run, runs, run.offset(), known_format_head_bytes, options_.stop);
    refuse_wide_text(run.path(), begin);
    if (std::ranges::equal(std::span(begin).first(std::min(begin.size(), mark.size())),
                           std::as_bytes(std::span(mark))))
      run = run.without_header(mark.size());
  }

  const TextHeader& header_;
  const TextHeader nameless_;  // of later files, if only the first one has names
  const Options& options_;
  std::optional<FileHead> kept_;
  Run* first_ = nullptr;
  std::size_t num_taken_ = 0;
  const Run* other_comments_ = nullptr;
};

// Returns a warning if all first records lack a field that an option names. Pipes are not read, and
// no file after the first if that one lacks nothing.
std::string doubt_fields(std::vector<Run>& runs, const TextHeader& header, const Query& query) {
  std::vector<std::string> firsts;
  for (Run& run : runs) {
    const std::string first = run.is_pipe() ? std::string() : first_records(run, header).first;
    if (first.empty()) continue;
    firsts.push_back(first);
    if (firsts.size() == 1 && header.doubt_fields(firsts, query).empty()) return {};
  }
  return header.doubt_fields(firsts, query);
}

// Returns a warning if the first records of all runs look like a header. Pipes are not read.
std::string doubt_first_records(std::vector<Run>& runs, const TextHeader& header,
                                const Options& options, bool are_sorted) {
  std::vector<FirstRecords> all;
  for (Run& run : runs)
    if (!run.is_pipe()) {
      all.push_back(first_records(run, header));
      if (all.back().first.empty())
        all.pop_back();
      else if (all.back().first != all.front().first)
        return {};
    }
  const bool is_verified = !options.query.limit && !options.copy_only;
  return all.empty() ? std::string() : header.doubt_records(all, are_sorted, is_verified);
}

}  // namespace

Header take_header(std::vector<Run>& runs, const RecordFormat& format, const Options& options,
                   bool are_sorted) {
  if (format.traits().header_bytes.value_or(0) != 0)
    return options.drop_header ? Header{} : Header{common_header_bytes(runs, options.stop), {}};
  const TextHeader* const header = format.header();
  if (!header) return {};
  HeaderTaker taker(*header, options);
  if (!header->is_empty() || !header->byte_order_mark().empty())
    for (Run& run : runs) taker.take(run, runs);
  std::string doubt = taker.doubt();
  Header taken = std::move(taker).finish();
  if (!options.notice) return taken;
  if (!header->has_names()) doubt = doubt_first_records(runs, *header, options, are_sorted);
  if (doubt.empty()) doubt = doubt_fields(runs, *header, options.query);
  if (!doubt.empty()) options.notice(doubt);
  return taken;
}

std::string widest_first_record(std::vector<Run>& runs, const TextHeader& header,
                                const Options& options) {
  const std::uint32_t wanted = header.wanted_columns(options.query);
  if (wanted == 0) return {};
  std::string widest;
  std::uint32_t max_columns = 0;
  for (Run& run : runs) {
    std::optional<std::string> record =
        parse_begin(run, runs, options.stop, [&](std::span<const std::byte> begin, bool at_end) {
          return header.first_record(begin, at_end);
        });
    if (!record) return {};
    if (record->empty()) continue;
    const std::uint32_t columns = header.num_columns(*record);
    if (columns > max_columns) widest = *std::move(record);
    max_columns = std::max(max_columns, columns);
    if (max_columns >= wanted) break;
  }
  return widest;
}

}  // namespace corank
