// Connects a fuzzing target to libFuzzer.
#include "fuzz/target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  corank::fuzz({data, size});
  return 0;
}
