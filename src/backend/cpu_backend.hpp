// The CPU backend: cuts units into tiles and merges these in TBB tasks.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.hpp"
#include "corank/algorithm/multiway_merge.hpp"

namespace corank {

// Returns a backend with config.threads threads, which all units in flight share.
std::unique_ptr<Backend> make_cpu_backend(const BackendConfig& config);

// Returns the key words of records with this layout, which must outlive them.
std::unique_ptr<detail::KeyWords> make_key_words(const KeyLayout& layout);

std::string cpu_model();  // from /proc/cpuinfo

}  // namespace corank
