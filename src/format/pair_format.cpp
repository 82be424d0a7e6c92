#include "format/pair_format.hpp"

#include <fmt/format.h>

#include "corank/error.hpp"
#include "format/variable_format.hpp"
#include "util/setting_format.hpp"

namespace corank {
namespace {

class PairFormat final : public VariableFormat {
 public:
  explicit PairFormat(const TextFormat& format)
      : VariableFormat({.name = "pairs", .cpu_only = {}}, format, {}) {}

  std::unique_ptr<Projection> projection(const Query& query) const override {
    if (query.text_select.empty()) return nullptr;
    throw Error(ErrorCode::options,
                fmt::format("{} is for lines and CSV, which have columns; pairs do not: drop it",
                            Setting::select));
  }

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
