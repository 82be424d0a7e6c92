// The CPU as a backend: units are cut into tiles for TBB tasks.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.hpp"

namespace corank {

// Has config.threads threads for all units in flight together.
std::unique_ptr<Backend> make_cpu_backend(const BackendConfig& config);

std::string cpu_model();  // as the system calls it

}  // namespace corank
