// Tests that merges detect injected errors: bits that flip between the stages, and units that are
// cut wrong.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu_backend.hpp"
#include "corank/merge.hpp"
#include "run/unit_cutter.hpp"
#include "support/catch.hpp"
#include "support/merge_case.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

using NextUnit = std::function<std::optional<WorkUnit>()>;

// Hooks between the stages of a merge.
struct Between {
  // Replaces the cut of each unit; `next` cuts the unit.
  std::function<std::optional<WorkUnit>(const NextUnit& next)> cutting;
  std::function<void(const WorkUnit&, MergedUnit&)> merged;
  // Called before `backend` merges a unit, by several threads concurrently.
  std::function<void(const Backend& backend)> merging;
};
const Between* between = nullptr;

class WatchedBackend final : public Backend {
 public:
  explicit WatchedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  MergedUnit merge(const WorkUnit& unit, std::byte* output) override {
    if (between->merging) between->merging(*this);
    MergedUnit merged = inner_->merge(unit, output);
    if (between->merged) between->merged(unit, merged);
    return merged;
  }
  bool computes() const override { return inner_->computes(); }
  bool verifies() const override { return inner_->verifies(); }
  std::string device() const override { return inner_->device(); }

 private:
  std::unique_ptr<Backend> inner_;
};

}  // namespace

// The linker's --wrap option puts these functions in front of UnitCutter::next(),
// Concatenation::next() and make_cpu_backend(), because the library has no hook for tests.
extern "C" {

std::optional<WorkUnit> __real__ZN6corank10UnitCutter4nextEv(UnitCutter*);
std::optional<WorkUnit> __wrap__ZN6corank10UnitCutter4nextEv(UnitCutter* cutter);
std::optional<WorkUnit> __wrap__ZN6corank10UnitCutter4nextEv(UnitCutter* cutter) {
  const auto next = [=] { return __real__ZN6corank10UnitCutter4nextEv(cutter); };
  return between && between->cutting ? between->cutting(next) : next();
}

std::optional<WorkUnit> __real__ZN6corank13Concatenation4nextEv(Concatenation*);
std::optional<WorkUnit> __wrap__ZN6corank13Concatenation4nextEv(Concatenation* concatenation);
std::optional<WorkUnit> __wrap__ZN6corank13Concatenation4nextEv(Concatenation* concatenation) {
  const auto next = [=] { return __real__ZN6corank13Concatenation4nextEv(concatenation); };
  return between && between->cutting ? between->cutting(next) : next();
}

using MadeBackend = std::unique_ptr<Backend>;
MadeBackend __real__ZN6corank16make_cpu_backendERKNS_13BackendConfigE(const BackendConfig&);
MadeBackend __wrap__ZN6corank16make_cpu_backendERKNS_13BackendConfigE(const BackendConfig& config);
MadeBackend __wrap__ZN6corank16make_cpu_backendERKNS_13BackendConfigE(const BackendConfig& config) {
  MadeBackend made = __real__ZN6corank16make_cpu_backendERKNS_13BackendConfigE(config);
  if (between && (between->merged || between->merging))
    made = std::make_unique<WatchedBackend>(std::move(made));
  return made;
}
}

namespace {

enum class Way { files, memory, copies };

// Describes the records of a merge and its operators.
struct Kind {
  const char* schema;  // null: text
  const char* by = "";
  const char* on_equal = "";
  const char* where = "";
  TextKind text = TextKind::lines;
  Way way = Way::files;
  bool shaped() const { return *on_equal || *where; }
};

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (const auto& [schema, by] : schemas_and_keys)
    for (const Way way : {Way::files, Way::memory, Way::copies})
      kinds.push_back({.schema = schema, .by = by, .way = way});
  for (const Way way : {Way::files, Way::memory})
    for (const auto& [on_equal, where] : {std::pair{"first", ""},
                                          {"last", ""},
                                          {"reduce:sum(p),count(q)", ""},
                                          {"", "q > 1000"},
                                          {"reduce:max(p)", "p != 5 and q < 60000"}})
      kinds.push_back({.schema = "a:u32,p:i64,q:u16",
                       .by = "a",
                       .on_equal = on_equal,
                       .where = where,
                       .way = way});
  for (const TextKind text : {TextKind::lines, TextKind::csv, TextKind::pairs})
    for (const Way way : {Way::files, Way::copies})
      for (const char* const on_equal : {"", "last"})
        if (!*on_equal || way != Way::copies)
          kinds.push_back({.schema = nullptr, .on_equal = on_equal, .text = text, .way = way});
  return kinds;
}

// Holds three runs that can be merged repeatedly.
class Scene {
 public:
  Scene(const Kind& kind, Random& random) : kind_(kind) {
    options_.backend = BackendChoice::cpu;
    options_.threads = 2;
    options_.io = Io::buffered;
    options_.copy_only = kind.way == Way::copies;
    if (kind.schema)
      make_records(random);
    else
      make_text(random);
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      paths_.push_back(folder_ / ("run" + std::to_string(run)));
      write_file(paths_.back(), runs_[run]);
      output_.resize(output_.size() + runs_[run].size());
    }
  }

  KeyLayout layout() const { return encoding_->layout(); }

  Stats merge(const Between& what) {
    between = &what;
    try {
      const Stats stats = kind_.way == Way::memory ? into_memory() : into_nowhere();
      between = nullptr;
      return stats;
    } catch (...) {
      between = nullptr;
      throw;
    }
  }

  bool is_found(const Between& what) {
    try {
      merge(what);
      return false;
    } catch (const Error&) {
      return true;
    }
  }

 private:
  Stats into_memory() {
    const std::vector<std::span<const std::byte>> spans(runs_.begin(), runs_.end());
    return corank::merge(spans, output_, options_);
  }
  // Writes to /dev/null, which needs no sync; syncing would take most of the time.
  Stats into_nowhere() { return corank::merge(paths_, "/dev/null", options_); }

  void make_records(Random& random) {
    options_.record = Schema::parse(kind_.schema);
    options_.keys = parse_keys(kind_.by, options_.record);
    if (*kind_.on_equal) parse_on_equal(kind_.on_equal, options_.query);
    if (*kind_.where) options_.query.where = parse_where(kind_.where);
    options_.query.overflow = Overflow::wrap;
    options_.memory_bytes = 400'000;
    encoding_.emplace(options_.record, options_.keys);
    for (int run = 0; run < 3; ++run)
      runs_.push_back(stably_sorted(
          options_.record, options_.keys,
          random_records(options_.record, 15'000 / options_.record.record_bytes,
                         run == 0 && kind_.shaped() ? Values::few : Values::any, random)));
  }

  void make_text(Random& random) {
    options_.text.emplace();
    options_.text->kind = kind_.text;
    options_.memory_bytes = std::uint64_t{2} << 20;
    if (*kind_.on_equal) options_.query.on_equal = OnEqual::last;
    text_.emplace(*options_.text);
    encoding_.emplace(text_->layout());
    for (int run = 0; run < 3; ++run) {
      std::set<std::string> keys;
      while (keys.size() < 1'000) {
        std::string key(below(random, 40), ' ');
        for (char& c : key) c = static_cast<char>('a' + below(random, 26));
        keys.insert(key);
      }
      std::string text;
      for (const std::string& key : keys)
        text += kind_.text == TextKind::pairs ? pair_of(key, "value") : key + '\n';
      const auto bytes = std::as_bytes(std::span(text));
      runs_.emplace_back(bytes.begin(), bytes.end());
    }
  }

  Kind kind_;
  Options options_;
  std::optional<TextEncoding> text_;
  std::optional<KeyEncoding> encoding_;
  TemporaryFolder folder_;
  std::vector<Bytes> runs_;
  std::vector<std::filesystem::path> paths_;
  Bytes output_;
};

// Flips one random bit of the bytes.
void flip_one(std::span<const std::byte> bytes, Random& random) {
  const std::uint64_t bit = below(random, 8 * bytes.size());
  const_cast<std::byte&>(bytes[bit / 8]) ^= std::byte{1} << bit % 8;
}

enum class FaultPlace { segment, rest_of_chunk, merged_unit, count };
constexpr const char* place_names[] = {"segments", "what is left of chunks", "merged units"};

// Flips a bit of the input of unit `unit`, of its chunk after the input, or of its output. Returns
// false if there are no such bytes.
bool flip_and_merge(Scene& scene, FaultPlace place, std::uint64_t unit, Random& random,
                    bool& found) {
  const KeyLayout layout = scene.layout();
  bool flipped = false;
  Between what;
  if (place == FaultPlace::merged_unit)
    what.merged = [&](const WorkUnit& from, MergedUnit& merged) {
      std::vector<std::span<const std::byte>> pieces = merged.pieces;
      for (const TileOutput& tile : merged.tiles) pieces.push_back(tile.between);
      std::erase_if(pieces, [](const auto piece) { return piece.empty(); });
      if (from.sequence != unit || pieces.empty()) return;
      flip_one(pieces[below(random, pieces.size())], random);
      flipped = true;
    };
  else
    what.cutting = [&](const NextUnit& next) {
      std::optional<WorkUnit> cut = next();
      if (!cut || cut->sequence != unit) return cut;
      const Segment& segment = cut->segments[below(random, cut->segments.size())];
      const std::uint64_t end = segment.first + segment.count;
      if (place == FaultPlace::segment)
        flip_one(bytes_of(layout, *segment.chunk, segment.first, segment.count), random);
      else if (end < segment.chunk->count)
        flip_one(bytes_of(layout, *segment.chunk, end, segment.chunk->count - end), random);
      else
        return cut;
      flipped = true;
      return cut;
    };
  found = scene.is_found(what);
  return flipped;
}

}  // namespace

// Set CORANK_FLIPS to change the number of flips: CORANK_FLIPS=100000 corank-tests '[flips]'.
TEST_CASE("bits flipped between the stages of a merge are found", "[flips]") {
  const char* const wanted = std::getenv("CORANK_FLIPS");
  const std::uint64_t flips = wanted ? std::strtoull(wanted, nullptr, 10) : 2'000;
  Random random(35);
  const std::vector<Kind> kinds = all_kinds();
  std::uint64_t done = 0, found = 0, at_place[3] = {};
  for (const Kind& kind : kinds) {
    Scene scene(kind, random);
    const std::uint64_t units = scene.merge({}).units;
    REQUIRE(units > 1);
    std::vector<FaultPlace> places;
    // Runs in memory are first read by the merge, so earlier flips are not detectable.
    if (kind.way != Way::memory) places = {FaultPlace::segment, FaultPlace::rest_of_chunk};
    if (kind.way != Way::copies) places.push_back(FaultPlace::merged_unit);
    for (std::uint64_t flip = 0; flip < flips / kinds.size() + 1;) {
      const FaultPlace place = places[below(random, places.size())];
      bool noticed = false;
      const bool flipped = flip_and_merge(scene, place, below(random, units), random, noticed);
      CAPTURE(kind.schema ? kind.schema : "text", static_cast<int>(place));
      CHECK(noticed == flipped);
      flip += flipped;
      done += flipped;
      found += noticed;
      at_place[static_cast<unsigned>(place)] += flipped;
    }
  }
  CHECK(found == done);
  for (const std::uint64_t count : at_place) CHECK(count > 0);
  if (!wanted) return;
  for (unsigned place = 0; place < std::size(at_place); ++place)
    std::printf("%llu bits flipped in %s\n", static_cast<unsigned long long>(at_place[place]),
                place_names[place]);
  std::printf("found %llu of %llu\n", static_cast<unsigned long long>(found),
              static_cast<unsigned long long>(done));
}

namespace {

enum class Wrong {
  lose_first_record,
  lose_last_record,
  shift_segment,  // loses a record and repeats another
  repeat_record,
  lose_segment,
  lose_unit,
  repeat_unit,
  count
};

// Cuts the unit wrong; returns false if this unit does not allow it.
bool cut_wrong(Wrong wrong, WorkUnit& unit, Random& random) {
  const std::size_t at = below(random, unit.segments.size());
  Segment& segment = unit.segments[at];
  const std::uint64_t left = segment.chunk->count - segment.first - segment.count;
  switch (wrong) {
    case Wrong::lose_first_record:
      if (segment.count == 1) return false;
      ++segment.first;
      --segment.count;
      return true;
    case Wrong::lose_last_record:
      if (segment.count == 1) return false;
      --segment.count;
      return true;
    case Wrong::shift_segment:
      if (left == 0 && segment.first == 0) return false;
      segment.first += left > 0 ? 1 : -1;
      return true;
    case Wrong::repeat_record:
      if (left == 0 && segment.first == 0) return false;
      if (left == 0) --segment.first;
      ++segment.count;
      return true;
    case Wrong::lose_segment:
      if (unit.segments.size() == 1) return false;
      unit.segments.erase(unit.segments.begin() + static_cast<std::ptrdiff_t>(at));
      return true;
    case Wrong::lose_unit:
      return true;
    default:
      return false;
  }
}

}  // namespace

TEST_CASE("units that do not hold each record once are found") {
  Random random(38);
  std::uint64_t done[static_cast<int>(Wrong::count)] = {};
  for (const Kind& kind : all_kinds()) {
    // Narrow records are often equal, so exchanging them is not an error.
    if (kind.schema && Schema::parse(kind.schema).record_bytes < 8) continue;
    Scene scene(kind, random);
    const KeyLayout layout = scene.layout();
    const std::uint64_t units = scene.merge({}).units;
    for (int i = 0; i < static_cast<int>(Wrong::count); ++i) {
      const auto wrong = static_cast<Wrong>(i);
      // Output in memory has no room for more records; in a file, only the last unit can grow.
      const bool repeats = wrong == Wrong::repeat_record || wrong == Wrong::repeat_unit;
      if (repeats && kind.way == Way::memory) continue;
      for (std::uint64_t at = 0; at < units; ++at) {
        if (wrong == Wrong::repeat_record && at + 1 != units) continue;
        bool cut_so = false;
        std::optional<WorkUnit> again;
        Between what;
        what.cutting = [&](const NextUnit& next) -> std::optional<WorkUnit> {
          std::optional<WorkUnit> unit = next();
          if (!unit) again.reset();  // releases its chunks, which the merge owns
          if (again) {
            again->sequence = unit->sequence;
            cut_so = true;
            return std::exchange(again, std::nullopt);
          }
          if (!unit || unit->sequence != at) return unit;
          cut_so = cut_wrong(wrong, *unit, random);
          if (wrong == Wrong::lose_unit) return next();
          if (wrong == Wrong::repeat_unit) {
            again = unit;  // replaces the next unit
            return unit;
          }
          unit->records = unit->bytes = 0;
          for (const Segment& segment : unit->segments) {
            unit->records += segment.count;
            unit->bytes += bytes_of(layout, *segment.chunk, segment.first, segment.count).size();
          }
          return unit;
        };
        const bool found = scene.is_found(what);
        CAPTURE(kind.schema ? kind.schema : "text", kind.on_equal, kind.where,
                static_cast<int>(kind.way), i, at);
        CHECK(found == cut_so);
        done[i] += cut_so;
      }
    }
  }
  for (const std::uint64_t count : done) CHECK(count > 10);
}

TEST_CASE("each part is merged by a backend of its own") {
  Random random(39);
  MergeCase test("a:u64,p:u64", "a");
  for (int i = 0; i < 3; ++i)
    test.add_run(random_records(test.options.record, 20'000, Values::any, random));
  test.options.backend = BackendChoice::cpu;
  test.options.parts = 4;
  std::mutex mutex;
  std::set<const Backend*> used;
  Between what;
  what.merging = [&](const Backend& backend) {
    const std::lock_guard lock(mutex);
    used.insert(&backend);
  };
  between = &what;
  merge(test.paths, test.folder / "parts", test.options);
  between = nullptr;
  CHECK(used.size() == 4);
}

TEST_CASE("a backend that is slow is the bound") {
  Random random(40);
  MergeCase test("a:u64,p:u64", "a");
  for (int i = 0; i < 3; ++i)
    test.add_run(random_records(test.options.record, 60'000, Values::any, random));
  test.options.backend = BackendChoice::cpu;
  test.options.memory_bytes = 400'000;
  Between what;
  // Thousands of times as long as a unit takes.
  what.merging = [](const Backend&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  between = &what;
  const Stats stats = merge(test.paths, "/dev/null", test.options);
  between = nullptr;
  CHECK(stats.units > 10);
  CHECK(stats.bound.what == "merging");
}
