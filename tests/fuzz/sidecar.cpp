// Fuzzes the sidecar of a partial output. Text that parses must be exactly what would be written;
// written numbers must read back, and a single flipped bit must be detected.
#include "io/sidecar.hpp"

#include <cstring>
#include <string>

#include "fuzz/target.hpp"

using namespace corank;

void corank::fuzz(std::span<const std::uint8_t> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  if (const auto sidecar = parse_sidecar(text)) require(sidecar_text(*sidecar) == text);

  std::uint64_t numbers[5] = {};
  if (input.size() < sizeof numbers) return;
  std::memcpy(numbers, input.data(), sizeof numbers);
  const Sidecar sidecar{numbers[0], numbers[1], numbers[2], numbers[3]};
  std::string written = sidecar_text(sidecar);
  require(parse_sidecar(written) == sidecar);
  const std::uint64_t bit = numbers[4] % (8 * written.size());
  written[bit / 8] ^= static_cast<char>(1u << bit % 8);
  require(!parse_sidecar(written));
}
