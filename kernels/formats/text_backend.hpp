// Creates the CUDA backend for variable-length records. This header includes nothing of CUDA.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.hpp"

namespace corank {

// `description` becomes the result of device(). Throws DeviceError if the device has too little
// memory.
std::unique_ptr<Backend> make_text_backend(int device, std::string description,
                                           const BackendConfig& config);

}  // namespace corank
