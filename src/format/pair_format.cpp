#include "format/pair_format.hpp"

#include "format/variable_format.hpp"

namespace corank {
namespace {

class PairFormat final : public VariableFormat {
 public:
  explicit PairFormat(const TextFormat& format) : VariableFormat({.name = "pairs"}, format, {}) {}

 private:
  std::string column_name(std::uint32_t column) const override {
    return column == 0 ? "key" : "value";
  }
};

}  // namespace

std::unique_ptr<const RecordFormat> make_pair_format(const TextFormat& format) {
  return std::make_unique<PairFormat>(format);
}

}  // namespace corank
