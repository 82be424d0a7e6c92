// The device backend for records of variable length. Nothing of CUDA is reachable from here.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.hpp"

namespace corank {

// `description` is what device() says.
std::unique_ptr<Backend> make_text_backend(int device, std::string description,
                                           const BackendConfig& config);

}  // namespace corank
