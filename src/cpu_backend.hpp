// The CPU as a backend: units are cut into tiles for TBB tasks.
#pragma once

#include <memory>

#include "backend.hpp"

namespace corank {

// Runs in the caller's task arena, whose size is the number of cores that it uses.
std::unique_ptr<Backend> make_cpu_backend(const BackendConfig& config);

}  // namespace corank
