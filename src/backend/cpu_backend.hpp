// The CPU backend: cuts units into tiles and merges these in TBB tasks.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.hpp"

namespace corank {

// Returns a backend with config.threads threads, which all units in flight share.
std::unique_ptr<Backend> make_cpu_backend(const BackendConfig& config);

std::string cpu_model();  // from /proc/cpuinfo

}  // namespace corank
