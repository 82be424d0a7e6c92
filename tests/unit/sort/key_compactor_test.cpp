// Compacted key words of random text against the order of its records.
#include "sort/key_compactor.hpp"

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "corank/text_key.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

using Strings = std::vector<std::string>;

// Returns lines of three columns, whose characters are among `alphabet`.
Strings random_lines(Random& random, const std::string& alphabet, std::uint64_t longest) {
  Strings lines(2 + below(random, 60));
  for (std::string& line : lines) {
    for (int column = 0; column < 3; ++column) {
      if (column != 0) line += ',';
      for (std::uint64_t left = below(random, longest + 1); left > 0; --left)
        line += alphabet[below(random, alphabet.size())];
    }
    line += '\n';
  }
  return lines;
}

// Checks that the words have the order of the records, also in the word that they start at.
// Returns whether they distinguish all keys.
bool check_words(const RefWords& keys, const std::vector<PrefixRef>& refs, std::uint32_t word,
                 unsigned room) {
  KeyCompactor compactor(keys);
  const auto* const records = reinterpret_cast<const std::byte*>(refs.data());
  compactor.read(records, refs.size(), word);
  const auto place = static_cast<unsigned>(std::bit_width(refs.size() - 1));
  const bool is_whole = compactor.choose_bits(room, place);
  std::vector<std::uint64_t> words(refs.size());
  compactor.put(words);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    REQUIRE(words[i] % (std::uint64_t{1} << place) == 0);
    REQUIRE(words[i] >> (room + place) == 0);
    for (std::size_t j = 0; j < refs.size(); ++j) {
      const bool less = keys.less(records + i * sizeof(PrefixRef), records + j * sizeof(PrefixRef));
      REQUIRE((is_whole ? (words[i] < words[j]) == less : !less || words[i] <= words[j]));
    }
  }
  return is_whole;
}

}  // namespace

TEST_CASE("compacted words have the order of keys of any number of words", "[sort]") {
  Random random(1);
  unsigned num_whole = 0;
  for (int round = 0; round < 400; ++round) {
    TextFormat format;
    format.kind = round % 2 == 0 ? TextKind::lines : TextKind::csv;
    format.delimiter = ',';
    format.keys = parse_text_keys(
        Strings{"1", "1:desc,2", "3,1:u64", "2:nocase,line", "1:natural:desc,3"}[below(random, 5)]);
    format.bad_numbers = BadNumbers::last;
    const TextEncoding encoding(format);
    const TextLayout layout = encoding.layout();
    const Strings lines = random_lines(random, Strings{"ab", "0123456789", "aA0"}[below(random, 3)],
                                       Strings::size_type{1} << below(random, 6));
    std::vector<PrefixRef> refs;
    for (const std::string& line : lines) {
      const auto* const at = span_of(line).data();
      refs.push_back(make_entry(text_word(layout, at, line.size(), 0), at, line.size()));
    }
    const auto room = static_cast<unsigned>(1 + below(random, 57));
    num_whole += check_words(RefWords(layout), refs, 0, room);
  }
  CHECK(num_whole > 40);
  CHECK(num_whole < 360);
}

TEST_CASE("words that vary in few bits are compacted to one", "[sort]") {
  TextFormat format;
  format.kind = TextKind::lines;
  const TextEncoding encoding(format);
  const TextLayout layout = encoding.layout();
  Random random(2);
  Strings lines(100);
  for (std::string& line : lines) {
    line = "2026-00-00 00:00:00\n";
    for (const std::size_t digit : {6, 9, 12, 15, 18})
      line[digit] = static_cast<char>('0' + below(random, 10));
  }
  std::vector<PrefixRef> refs;
  for (const std::string& line : lines) {
    const auto* const at = span_of(line).data();
    refs.push_back(make_entry(text_word(layout, at, line.size(), 0), at, line.size()));
  }
  CHECK(check_words(RefWords(layout), refs, 0, 40));
}
