// Tests of traces.
#include "util/trace.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

TEST_CASE("each stage has a track of its own, in the order of the stages") {
  const std::vector<const char*> stages{"read",     "cut",   "sort",  "merge",
                                        "compress", "write", "verify"};
  Trace trace;
  const auto now = TraceClock::now();
  for (std::size_t i = stages.size(); i-- > 0;) trace.add({&trace, stages[i]}, i, now, now);
  const TemporaryFolder folder;
  trace.write(folder / "trace");
  std::vector<std::string> tracks(stages.size());
  for (const auto& event : nlohmann::json::parse(text_of(folder / "trace")))
    if (event["ph"] == "X") tracks.at(event["tid"].get<std::size_t>() - 1) = event["name"];
  CHECK(tracks == std::vector<std::string>(stages.begin(), stages.end()));
}
