#include "util/system_limits.hpp"

#include <string>

#include "support/catch.hpp"
#include "support/support.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// A folder that holds the files by which a system tells the limits of a process.
class System {
 public:
  void add(const std::string& file, const std::string& text) {
    const auto path = folder_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    write_file(path, bytes_of_text(text));
  }
  SystemLimit memory() const { return memory_limit(folder_.path()); }
  SystemLimit processors() const { return processor_limit(folder_.path()); }

 private:
  TemporaryFolder folder_;
};

constexpr const char* in_group = "limit of the control group";

}  // namespace

TEST_CASE("a machine without control groups limits nothing else") {
  const System system;
  CHECK(system.memory().reason.empty());
  CHECK(system.memory().value > 1'000'000);
  CHECK(system.processors().value >= 1);
}

TEST_CASE("control groups of version 2 limit memory and processors, as do their parents") {
  System system;
  system.add("proc/self/cgroup", "0::/slice/job\n");
  system.add("sys/fs/cgroup/slice/job/memory.max", "max\n");
  system.add("sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
  CHECK(system.memory().reason.empty());
  CHECK(system.processors().reason != in_group);
  system.add("sys/fs/cgroup/slice/memory.max", "268435456\n");
  system.add("sys/fs/cgroup/slice/job/cpu.max", "50000 100000\n");
  CHECK(system.memory().value == 268'435'456);
  CHECK(system.memory().reason == in_group);
  CHECK(system.processors().value == 1);
  system.add("sys/fs/cgroup/slice/job/memory.max", "1000000\n");
  CHECK(system.memory().value == 1'000'000);
}

TEST_CASE("a container sees its own control group as the root") {
  System system;
  system.add("proc/self/cgroup", "0::/\n");
  system.add("sys/fs/cgroup/memory.max", "1000000\n");
  CHECK(system.memory().value == 1'000'000);
  System other;
  other.add("proc/self/cgroup", "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n");
  other.add("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
  CHECK(other.memory().value == 2'000'000);
}

TEST_CASE("control groups of version 1 limit memory and processors") {
  System system;
  system.add("proc/self/cgroup", "5:memory:/job\n3:cpu,cpuacct:/job\n0::/\n");
  system.add("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(system.memory().reason.empty());
  system.add("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3000000\n");
  CHECK(system.memory().value == 3'000'000);
  system.add("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  system.add("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  CHECK(system.processors().reason != in_group);
  system.add("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n");
  CHECK(system.processors().value == 1);
}
