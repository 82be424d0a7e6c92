// Tests of the host side of the CUDA backend on a stub runtime in which each call fails in turn.
#include "gpu/cuda_stub.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "corank/merge.hpp"
#include "corank/sort.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;
using cuda_stub::Kernels;
using cuda_stub::Outcome;
using cuda_stub::Setup;

namespace {

// Describes the records of a merge, where they are, and its operators.
struct Kind {
  const char* name;
  const char* schema;  // null: lines
  Io io = Io::buffered;
  bool in_memory = false;
  unsigned parts = 0;
  const char* on_equal = "";
  OnEqual operation = OnEqual::keep;
  const char* where = "";
  const char* select = "";
  std::uint64_t memory_bytes = 320 << 10;
  bool sorts = false;                // the runs are unsorted
  bool sums = false;                 // with a checksum of the output
  std::uint64_t run_bytes = 60'000;  // of records; about

  // Whether a device sorts all records where they are.
  bool sorts_at_once() const { return sorts && in_memory && !sums; }
};

constexpr Kind kinds[] = {
    {.name = "narrow records", .schema = "a:u32,p:bytes20"},
    {.name = "long keys of mapped files", .schema = "a:bytes40,p:u64", .io = Io::mapped},
    {.name = "records in memory", .schema = "a:u64be,p:u64", .in_memory = true},
    {.name = "parts", .schema = "a:u16,b:u64,p:u8", .parts = 2, .memory_bytes = 520 << 10},
    {.name = "first ones", .schema = "a:u16,p:u32", .on_equal = "first", .where = "p > 99"},
    {.name = "sums", .schema = "a:u16,p:i32", .on_equal = "reduce:sum(p)", .select = "p,a"},
    {.name = "a selection", .schema = "a:u16,p:u32", .where = "p > 99", .select = "a"},
    {.name = "lines", .schema = nullptr, .memory_bytes = 1 << 20},
    {.name = "first of equal lines",
     .schema = nullptr,
     .on_equal = "first",
     .where = "line > '3'",
     .memory_bytes = 1 << 20},
    {.name = "columns of the last of equal lines",
     .schema = nullptr,
     .on_equal = "last",
     .select = "2,1",
     .memory_bytes = 1 << 20},
    {.name = "columns of some lines",
     .schema = nullptr,
     .where = "1 != '3' and not 2 < '4'",
     .select = "1",
     .memory_bytes = 1 << 20},
    {.name = "union of lines",
     .schema = nullptr,
     .operation = OnEqual::unite,
     .memory_bytes = 1 << 20},
    {.name = "unsorted records",
     .schema = "a:u32,p:bytes20",
     .memory_bytes = 16 << 20,
     .sorts = true},
    {.name = "first of unsorted records with long keys",
     .schema = "a:bytes40,p:u64",
     .on_equal = "first",
     .memory_bytes = 16 << 20,
     .sorts = true},
    {.name = "unsorted records in memory",
     .schema = "a:u64be,p:u64",
     .in_memory = true,
     .memory_bytes = 16 << 20,
     .sorts = true,
     .sums = true},
    {.name = "unsorted records in memory, all at once",
     .schema = "a:u64be,p:u64",
     .in_memory = true,
     .memory_bytes = 16 << 20,
     .sorts = true},
};

// Errors that calls fail with. Only the first one, out of memory, makes the backend try smaller
// units.
constexpr std::array errors{cudaErrorMemoryAllocation, cudaErrorIllegalAddress,
                            cudaErrorDevicesUnavailable, cudaErrorLaunchFailure,
                            cudaErrorECCUncorrectable};

// Holds runs that can be merged repeatedly.
class Scene {
 public:
  explicit Scene(const Kind& kind) : kind_(kind) {
    Random random(61);
    options.threads = 2;
    if (kind.schema) options.record = Schema::parse(kind.schema);
    options.io = kind.io;
    options.overwrite = true;
    options.memory_bytes = kind.memory_bytes;
    options.checksum = kind.sums;
    if (kind.parts != 0) options.parts = kind.parts;
    give_shape();
    for (int run = 0; run < 4; ++run) {
      runs_.push_back(kind.schema ? records_of_run(run, random) : lines_of_run(random));
      paths_.push_back(folder_ / ("run" + std::to_string(run)));
      write_file(paths_.back(), runs_.back());
    }
    options.backend = BackendChoice::cpu;
    merge_it();
    expected_ = output();
    REQUIRE(!expected_.empty());
    options.backend = BackendChoice::automatic;
    options.min_device_bytes = 0;
  }

  // The outcome of a merge that may have failed.
  struct Result {
    Outcome outcome;
    Stats stats;
    std::string error;  // the message; empty if there was no error
    bool right;         // the output is correct
    bool untouched;     // the output is the old one
  };
  Result merge_with(const Setup& setup) {
    alarm(60);  // ends the program if the merge hangs
    if (!kind_.in_memory && kind_.parts == 0) write_file(folder_ / "output", Bytes(1));
    const Bytes before = output();
    Result result;
    cuda_stub::begin(setup);
    try {
      result.stats = merge_it();
    } catch (const std::exception& error) {
      result.error = error.what();
    }
    result.outcome = cuda_stub::end();
    result.right = output() == expected_;
    result.untouched = output() == before;
    alarm(0);
    return result;
  }

  std::size_t names() const { return folder_.names().size(); }

  const std::vector<Bytes>& runs() const { return runs_; }

  Options options;

 private:
  void give_shape() {
    options.query.on_equal = kind_.operation;
    if (*kind_.on_equal) parse_on_equal(kind_.on_equal, options.query);
    if (!kind_.schema) {
      options.text.emplace();
      if (*kind_.select) options.text->delimiter = '5';
    }
    if (*kind_.where) options.query.where = parse_where(kind_.where);
    if (*kind_.select) options.query.select = parse_select(kind_.select);
    options.query.overflow = Overflow::wrap;
  }
  Bytes records_of_run(int run, Random& random) {
    const Bytes records =
        random_records(options.record, kind_.run_bytes / options.record.record_bytes,
                       run == 0 ? Values::few : Values::any, random);
    return kind_.sorts ? records : stably_sorted(options.record, {{0}}, records);
  }
  Bytes lines_of_run(Random& random) {
    std::vector<std::string> lines(4'000);
    for (std::string& line : lines)
      line = std::to_string(random()).substr(below(random, 12)) + '\n';
    std::ranges::sort(lines);
    Bytes bytes;
    for (const std::string& line : lines)
      for (const char c : line) bytes.push_back(static_cast<std::byte>(c));
    return bytes;
  }

  Stats merge_it() {
    if (!kind_.in_memory)
      return kind_.sorts ? sort(paths_, folder_ / "output", options)
                         : merge(paths_, folder_ / "output", options);
    if (kind_.sorts) {
      in_memory_.clear();
      for (const Bytes& run : runs_) in_memory_.insert(in_memory_.end(), run.begin(), run.end());
      return sort(in_memory_, options);
    }
    const std::vector<std::span<const std::byte>> spans(runs_.begin(), runs_.end());
    in_memory_.assign(4 * runs_.front().size(), std::byte{0});
    return merge(spans, in_memory_, options);
  }
  Bytes output() const {
    if (kind_.in_memory) return in_memory_;
    if (kind_.parts == 0) return read_file(folder_ / "output");
    Bytes all;
    for (unsigned part = 0; part < kind_.parts; ++part) {
      const Bytes more = read_file(folder_ / ("output/part-0000" + std::to_string(part)));
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  const Kind& kind_;
  TemporaryFolder folder_;
  std::vector<Bytes> runs_;
  std::vector<std::filesystem::path> paths_;
  Bytes in_memory_, expected_;
};

// A device that fails while it overwrites records in memory, last of all, loses them, and says so.
bool says_records_are_lost(const Scene::Result& result, const std::string& call, bool is_last) {
  return result.error.ends_with("and are lost") && is_last &&
         (call == "cudaMemcpyAsync" || call.starts_with("cudaEvent"));
}

void check_is_right(const Scene::Result& result) {
  CHECK(result.error == "");
  CHECK(result.right);
  CHECK(result.stats.verified);
  CHECK(result.outcome.wrong == std::vector<std::string>{});
}

// If true, every call of a merge fails with every error. Otherwise ever fewer of the later calls
// fail, with one error each, because they resemble the earlier ones.
const bool all_faults = std::getenv("CORANK_ALL_FAULTS") != nullptr;

std::uint64_t next_number(std::uint64_t number) {
  return all_faults || number < 3 ? number + 1 : 2 * number + 1;
}

}  // namespace

TEST_CASE("units are merged on a device that is made up") {
  for (const Kind& kind : kinds) {
    CAPTURE(kind.name);
    Scene scene(kind);
    const Scene::Result result = scene.merge_with({});
    check_is_right(result);
    CHECK(result.stats.backend == "cuda");
    if (kind.sorts_at_once())
      CHECK(result.stats.units == 1);
    else
      CHECK(result.stats.units > (kind.sorts ? 0 : 4));
    CHECK(result.stats.units_redone_on_cpu == 0);
    CHECK(result.stats.device_fault == "");
  }
}

TEST_CASE("for runs that hold little no device is looked for") {
  for (const Kind& kind : kinds) {
    CAPTURE(kind.name);
    Scene scene(kind);
    std::uint64_t bytes = 0;
    for (const auto& run : scene.runs()) bytes += run.size();
    // Each doubling of the runs, up to 256, counts an eighth; a sort counts four times, but no more
    // than its bytes. Threads divide it.
    const std::uint64_t counted =
        kind.sorts ? bytes
                   : bytes / 8 * std::bit_width(scene.runs().size() - 1) / scene.options.threads;
    for (const bool enough : {false, true}) {
      scene.options.min_device_bytes = counted + !enough;
      const Scene::Result result = scene.merge_with({});
      check_is_right(result);
      CHECK(result.outcome.calls.empty() == !enough);
      CHECK(result.stats.backend == (enough ? "cuda" : "cpu"));
    }
    scene.options.backend = BackendChoice::cuda;
    scene.options.min_device_bytes = bytes + 1;
    CHECK(scene.merge_with({}).stats.backend == "cuda");
  }
}

TEST_CASE("what the limit leaves out does not count as enough for a device") {
  Scene scene(kinds[0]);
  scene.options.threads = 1;
  scene.options.min_device_bytes = 10 * scene.options.record.record_bytes / 8 * 2;
  for (const std::uint64_t limit : {9, 10}) {
    scene.options.query.limit = limit;
    CHECK(scene.merge_with({}).stats.backend == (limit == 10 ? "cuda" : "cpu"));
  }
}

TEST_CASE("whatever call to the runtime fails the output is the same and nothing is left") {
  std::uint64_t merges = 0, redone = 0, on_device = 0, lost = 0;
  for (const Kind& kind : kinds) {
    Scene scene(kind);
    const Outcome clean = scene.merge_with({}).outcome;
    REQUIRE(clean.calls.size() > 20);
    for (const auto& [call, count] : clean.calls) {
      bool failed = true;
      for (std::uint64_t number = 0; failed; number = next_number(number)) {
        for (std::size_t e = 0; e < (all_faults ? errors.size() : 1); ++e) {
          const cudaError_t error = errors[merges % errors.size()];
          const Scene::Result result =
              scene.merge_with({.call = call, .before = number, .error = error});
          CAPTURE(kind.name, call, number, error, result.stats.device_fault);
          if (kind.sorts_at_once() && says_records_are_lost(result, call, number + 1 == count))
            ++lost;
          else
            check_is_right(result);
          failed = result.outcome.failed;
          if (!failed) break;
          ++merges;
          redone += result.stats.units_redone_on_cpu != 0;
          on_device += result.stats.backend == "cuda" &&
                       result.stats.units_redone_on_cpu < result.stats.units;
        }
        CHECK((failed || number > 0));
      }
    }
  }
  std::printf(
      "calls that failed: %llu; units redone after %llu of them, %llu left the device to "
      "go on\n",
      static_cast<unsigned long long>(merges), static_cast<unsigned long long>(redone),
      static_cast<unsigned long long>(on_device));
  CHECK(redone > merges / 8);
  CHECK(on_device > merges / 8);
  CHECK(lost > 0);
}

TEST_CASE("a device sorts pieces of a unit, each while the next is uploaded") {
  Kind kind = kinds[std::size(kinds) - 1];
  REQUIRE(kind.sorts_at_once());
  const std::uint64_t in_one = Scene(kind).merge_with({}).outcome.calls.at("cudaEventRecord");
  kind.run_bytes = 9 << 20;  // three pieces
  Scene scene(kind);
  const std::size_t memory_bytes = std::size_t{256} << 20;
  const Scene::Result all = scene.merge_with({.memory_bytes = memory_bytes});
  check_is_right(all);
  CHECK(all.stats.backend == "cuda");
  CHECK(all.stats.units == 1);
  CHECK(all.stats.units_redone_on_cpu == 0);
  CHECK(all.outcome.calls.at("cudaEventRecord") == in_one + 4);  // two a piece
  for (const std::string call : {"cudaEventRecord", "cudaMemcpyAsync", "__cudaLaunchKernel"}) {
    for (const std::uint64_t part : {0, 1, 2, 3}) {
      const std::uint64_t count = all.outcome.calls.at(call), before = count * part / 4;
      CAPTURE(call, before, count);
      const Scene::Result result = scene.merge_with({.memory_bytes = memory_bytes,
                                                     .call = call,
                                                     .before = before,
                                                     .error = cudaErrorIllegalAddress});
      CHECK(result.outcome.failed);
      check_is_right(result);
    }
  }
}

TEST_CASE("a call that must not fail ends the merge and leaves the output alone") {
  for (const Kind& kind : kinds) {
    if (kind.in_memory) continue;  // the only output is in memory
    Scene scene(kind);
    const Outcome clean = scene.merge_with({}).outcome;
    const std::size_t names = scene.names();
    scene.options.backend = BackendChoice::cuda;
    scene.options.strict_backend = true;
    bool memory_lacks = false;
    for (const auto& [call, count] : clean.calls) {
      memory_lacks = !memory_lacks;
      const cudaError_t error = memory_lacks ? cudaErrorMemoryAllocation : cudaErrorIllegalAddress;
      const Scene::Result result =
          scene.merge_with({.call = call, .before = count / 2, .error = error});
      CAPTURE(kind.name, call, error, result.error);
      CHECK((result.error.empty() ? result.right : result.untouched));
      CHECK(scene.names() == names);
      CHECK(result.outcome.wrong == std::vector<std::string>{});
      if (!result.error.empty())
        CHECK(result.error.find("Options::backend = cpu") != std::string::npos);
      else if (call == "cudaMalloc" || call == "cudaMemcpyAsync" || call == "__cudaLaunchKernel")
        CHECK_FALSE(result.outcome.failed);
    }
  }
}

TEST_CASE("kernels that do nothing and say nothing are found out") {
  for (const Kind& kind : kinds) {
    CAPTURE(kind.name);
    Scene scene(kind);
    const Scene::Result result = scene.merge_with({.kernels = Kernels::idle});
    check_is_right(result);
    CHECK(result.stats.units_redone_on_cpu > 0);
    CHECK(result.stats.device_fault != "");

    // Without verification, idle kernels may leave any output, but the host must stay within its
    // memory.
    scene.options.verify = false;
    CHECK(scene.merge_with({.kernels = Kernels::idle}).outcome.wrong == std::vector<std::string>{});
  }
}

TEST_CASE("an error that a call left behind on a thread is none of a later merge") {
  for (const Kind& kind : kinds) {
    Scene scene(kind);
    cuda_stub::begin({.call = "cudaFree", .error = cudaErrorDevicesUnavailable});
    CHECK(cudaFree(nullptr) == cudaErrorDevicesUnavailable);
    CHECK(cuda_stub::end().failed);
    const Scene::Result result = scene.merge_with({});
    CAPTURE(kind.name);
    check_is_right(result);
    CHECK(result.stats.device_fault == "");
  }
}

TEST_CASE("a device that selects more records than there are is not believed") {
  for (const Kind& kind : kinds) {
    CAPTURE(kind.name);
    Scene scene(kind);
    const Scene::Result result = scene.merge_with({.kernels = Kernels::boastful});
    check_is_right(result);
    const bool shapes = *kind.on_equal || *kind.where;
    CAPTURE(result.stats.device_fault);
    // Intermediate passes over lines apply no operators, so only the last pass is affected.
    CHECK((result.stats.units_redone_on_cpu != 0) == shapes);
  }
}

TEST_CASE("a device with any amount of memory gives the same output") {
  for (const Kind& kind : kinds) {
    Scene scene(kind);
    bool on_device = false, on_cpu = false;
    for (std::size_t memory_bytes = 16 << 20; memory_bytes > 0; memory_bytes /= 2) {
      const Scene::Result result = scene.merge_with({.memory_bytes = memory_bytes});
      CAPTURE(kind.name, memory_bytes);
      check_is_right(result);
      on_device |= result.stats.backend == "cuda" && result.stats.units_redone_on_cpu == 0;
      on_cpu |= result.stats.backend == "cpu";
    }
    CHECK(on_device);
    CHECK(on_cpu);
  }
}

TEST_CASE("a machine without an NVIDIA driver, or without a device, is told so") {
  const bool has_driver = std::filesystem::exists("/proc/driver/nvidia");
  const auto says = [](cudaError_t error) {
    cuda_stub::begin({.call = "cudaGetDeviceCount", .error = error});
    const CudaDevice device = find_cuda_device(0);
    CHECK(cuda_stub::end().failed);
    CHECK(!device.usable);
    return device.description;
  };
  CHECK((says(cudaErrorInsufficientDriver) == "no NVIDIA driver found") != has_driver);
  CHECK(says(cudaErrorNoDevice).starts_with("no usable CUDA device: "));
}
