#include "backend/backend.hpp"

#include "util/setting_text.hpp"

namespace corank {

DeviceError::DeviceError(const std::string& problem, bool out_of_memory)
    : Error(ErrorCode::device,
            problem + "; " + setting_is(Setting::backend, "cpu") + " needs no GPU"),
      problem_(problem),
      out_of_memory_(out_of_memory) {}

}  // namespace corank
