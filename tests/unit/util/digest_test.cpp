// Tests of digests and of names that are cut.
#include "util/digest.hpp"

#include <string>

#include "support/catch.hpp"

using namespace corank;

TEST_CASE("a text that is shortened stays different from others") {
  const std::string longest(20, 'x'), longer = longest + 'x';
  CHECK(shortened(longest, 20) == longest);
  CHECK(shortened(longer, 20).starts_with("xxx~"));
  CHECK(shortened(longer, 20).size() == 20);
  CHECK(shortened(longer + 'a', 20) != shortened(longer + 'b', 20));
}
