#include "util/system_limits.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "util/buffer_pool.hpp"
#include "util/math.hpp"
#include "util/messages.hpp"

namespace corank {
namespace {

constexpr const char* control_group = "limit of the control group";
constexpr const char* slurm = "limit of the Slurm job";

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number == 0) return std::nullopt;
  return number;
}

void lower(SystemLimit& limit, std::optional<std::uint64_t> value, const char* reason) {
  if (value && *value < limit.value) limit = {*value, reason};
}

std::optional<std::uint64_t> variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? number_of(text) : std::nullopt;
}

// Returns the words of a file; none if it cannot be read.
std::vector<std::string> words_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Returns the folders of the process's control group for `controller`, or of version 2 if that is
// empty, and of the groups that hold it. In a container, the mounted root may be the group itself.
std::vector<std::filesystem::path> groups(const std::filesystem::path& root,
                                          std::string_view controller) {
  std::vector<std::filesystem::path> folders;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string number, controllers, path;
    std::getline(fields, number, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    if (("," + controllers + ",").find("," + std::string(controller) + ",") == std::string::npos)
      continue;
    const std::filesystem::path mount = root / "sys/fs/cgroup" / controller;
    for (std::filesystem::path group = path; group.has_relative_path(); group = group.parent_path())
      folders.push_back(mount / group.relative_path());
    folders.push_back(mount);
  }
  return folders;
}

// Returns the processors that a quota amounts to, rounded up.
std::optional<std::uint64_t> processors_of(const std::string& quota, const std::string& period) {
  const auto share = number_of(quota), whole = number_of(period);
  if (!share || !whole) return std::nullopt;
  return divide_up(*share, *whole);
}

}  // namespace

SystemLimit memory_limit(const std::filesystem::path& root) {
  SystemLimit limit{static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page_bytes()};
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) == 0)
    lower(limit, addresses.rlim_cur, "limit of the address space (ulimit -v)");
  for (const auto& [controller, file] :
       {std::pair("", "memory.max"), std::pair("memory", "memory.limit_in_bytes")})
    for (const std::filesystem::path& group : groups(root, controller))
      for (const std::string& word : words_of(group / file))
        lower(limit, number_of(word), control_group);
  if (const auto mebibytes = variable("SLURM_MEM_PER_NODE"))
    lower(limit, *mebibytes * MiB, slurm);
  else if (const auto each = variable("SLURM_MEM_PER_CPU"))
    lower(limit, *each * MiB * variable("SLURM_CPUS_ON_NODE").value_or(1), slurm);
  return limit;
}

SystemLimit processor_limit(const std::filesystem::path& root) {
  SystemLimit limit{static_cast<std::uint64_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L))};
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    lower(limit, static_cast<std::uint64_t>(CPU_COUNT(&set)), "processor affinity");
  for (const std::filesystem::path& group : groups(root, "")) {
    const std::vector<std::string> words = words_of(group / "cpu.max");
    if (words.size() == 2) lower(limit, processors_of(words[0], words[1]), control_group);
  }
  for (const std::filesystem::path& group : groups(root, "cpu")) {
    const auto quota = words_of(group / "cpu.cfs_quota_us");
    const auto period = words_of(group / "cpu.cfs_period_us");
    if (!quota.empty() && !period.empty())
      lower(limit, processors_of(quota[0], period[0]), control_group);
  }
  const auto per_task = variable("SLURM_CPUS_PER_TASK");
  lower(limit, per_task ? per_task : variable("SLURM_CPUS_ON_NODE"), slurm);
  return limit;
}

SystemLimit memory_budget(std::uint64_t wanted_bytes) {
  if (wanted_bytes != 0) return {wanted_bytes};
  SystemLimit limit = memory_limit();
  limit.value /= 4;
  return limit;
}

SystemLimit thread_budget(unsigned wanted) {
  constexpr unsigned max_threads = 4096;
  if (wanted > max_threads)
    throw_error(ErrorCode::options, "Options::threads: {} is more than {}; take fewer", wanted,
                max_threads);
  return wanted != 0 ? SystemLimit{wanted} : processor_limit();
}

}  // namespace corank
