// Fuzzes the framing and ordering of variable-length records. Records must be found where a
// character-by-character decoder finds them, for any block size. Their key words must order them as
// the decoded columns do, without reading past a record.
#include <algorithm>
#include <memory>
#include <string>

#include "corank/error.hpp"
#include "format/framing.hpp"
#include "fuzz/target.hpp"
#include "support/text_reference.hpp"

using namespace corank;

namespace {

const TextFormat& format(std::size_t number) {
  static const std::vector<TextFormat> all = [] {
    std::vector<TextFormat> made;
    const auto add = [&](TextKind kind, const char* keys, BadNumbers bad, char terminator = '\n') {
      TextFormat next;
      next.kind = kind;
      next.keys = parse_text_keys(keys);
      next.bad_numbers = bad;
      next.terminator = terminator;
      if (kind != TextKind::pairs) next.delimiter = ',';
      made.push_back(std::move(next));
    };
    add(TextKind::lines, "line", BadNumbers::error);
    add(TextKind::lines, "line:desc", BadNumbers::error, '\0');
    add(TextKind::lines, "2:nocase,1:desc", BadNumbers::error);
    add(TextKind::lines, "1:u64,2", BadNumbers::error);
    add(TextKind::lines, "2:i64:desc,line:nocase", BadNumbers::last);
    add(TextKind::lines, "1:f64,2:f64:desc", BadNumbers::last);
    add(TextKind::csv, "1", BadNumbers::error);
    add(TextKind::csv, "2:nocase:desc,1", BadNumbers::error);
    add(TextKind::csv, "1:i64,2:f64", BadNumbers::skip);
    add(TextKind::csv, "2:u64:desc,3", BadNumbers::last);
    add(TextKind::pairs, "key", BadNumbers::error);
    add(TextKind::pairs, "key:desc:nocase", BadNumbers::error);
    return made;
  }();
  return all[number % all.size()];
}

bool less_by_words(const TextLayout& layout, std::span<const std::byte> a,
                   std::span<const std::byte> b) {
  const std::uint64_t words =
      std::max(text_words(layout, a.data(), a.size()), text_words(layout, b.data(), b.size()));
  for (std::uint64_t word = 0; word <= words; ++word) {
    const std::uint64_t x = text_word(layout, a.data(), a.size(), word);
    const std::uint64_t y = text_word(layout, b.data(), b.size(), word);
    if (x != y) return x < y;
  }
  return false;
}

// Returns the part of a record that the reference compares: a pair's key, or the line without its
// end.
std::string decoded(const TextFormat& of, const std::string& record) {
  if (of.kind != TextKind::pairs) return record.substr(0, record.size() - 1);
  std::uint32_t key_bytes;
  std::memcpy(&key_bytes, record.data(), 4);
  return record.substr(8, key_bytes);
}

// Checks that `record` is the next record: a good one, or the bad one that `bad` describes.
void check_record(const TextFormat& of, const TextLayout& layout, const std::string& record,
                  const BadRecord* bad) {
  bool good = true;
  if (of.bad_numbers != BadNumbers::last)
    for (const TextKey& key : of.keys) {
      if (key.type == TextType::bytes) continue;
      const test::Strings columns = test::columns_of(record.substr(0, record.size() - 1), of, true);
      good &= columns.size() >= key.column &&
              test::number_of(columns[key.column - 1], key.type).has_value();
    }
  require(good == !bad);
  if (!bad) return;
  require(bad->bytes == record.size());
  try {
    throw_bad_record("run", {0, {}, 0}, layout, *bad,
                     reinterpret_cast<const std::byte*>(record.data()));
  } catch (const Error&) {
  }
}

}  // namespace

void corank::fuzz(std::span<const std::uint8_t> input) {
  if (input.size() < 3) return;
  const TextFormat& of = format(input[0]);
  const TextEncoding encoding(of);
  const TextLayout layout = encoding.layout();
  const std::size_t room = 1 + input[1] % 80;
  input = input.subspan(3);
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  const auto [records, rest] = test::records_of(text, of);

  // A separate allocation of exact size, so that a sanitizer detects reads past the end.
  const std::unique_ptr<std::byte[]> memory(new std::byte[text.size()]);
  std::ranges::copy(std::as_bytes(std::span(text)), memory.get());
  std::vector<PrefixRef> entries(room), all;
  std::size_t record = 0, at = 0;
  for (;;) {
    const Indexed found =
        index_records(layout, {memory.get() + at, text.size() - at}, false, entries);
    require(found.records <= room && record + found.records <= records.size());
    for (std::size_t i = 0; i < found.records; ++i, ++record) {
      require(record_of(entries[i]) == memory.get() + at);
      require(record_bytes(layout, entries[i]) == records[record].size());
      require(record_bytes(layout, memory.get() + at) == records[record].size());
      require(entries[i].word == text_word(layout, memory.get() + at, records[record].size(), 0));
      check_record(of, layout, records[record], nullptr);
      at += records[record].size();
      all.push_back(entries[i]);
    }
    if (found.bad && found.bad->reason == BadRecord::Reason::stray_text) {
      require(test::has_stray_text(text.substr(at), of));
      return;
    }
    if (found.bad) {
      require(record < records.size());
      check_record(of, layout, records[record], &*found.bad);
      at += records[record++].size();
    } else if (found.records < room) {
      require(record == records.size() && at + rest.size() == text.size());
      break;
    }
  }
  const Indexed last = index_records(layout, {memory.get() + at, rest.size()}, true, entries);
  require(last.records == 0 &&
          last.bad.has_value() == (!rest.empty() && of.kind != TextKind::lines));

  const auto bytes_of = [&](const PrefixRef& entry) {
    return std::span(record_of(entry), record_bytes(layout, entry));
  };
  const auto text_of = [&](const PrefixRef& entry) {
    const auto bytes = bytes_of(entry);
    return decoded(of, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  for (std::size_t i = 1; i < all.size(); ++i)
    for (const std::size_t j : {i - 1, i / 2}) {
      const int order = test::compare_records(text_of(all[i]), text_of(all[j]), of);
      for (const bool swapped : {false, true}) {
        const PrefixRef& a = all[swapped ? j : i];
        const PrefixRef& b = all[swapped ? i : j];
        const bool expected = swapped ? order > 0 : order < 0;
        require(text_less(layout, a, b) == expected);
        require(less_by_words(layout, bytes_of(a), bytes_of(b)) == expected);
      }
    }
}
