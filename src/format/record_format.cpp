#include "format/record_format.hpp"

#include <cassert>

#include "format/delimited_format.hpp"
#include "format/fixed_format.hpp"
#include "format/pair_format.hpp"

namespace corank {

std::unique_ptr<const RecordFormat> make_format(const Options& options,
                                                std::string_view columns_line) {
  if (!options.text) return make_fixed_format(options.record, options.keys);
  switch (options.text->kind) {
    case TextKind::lines:
    case TextKind::csv:
      return make_delimited_format(*options.text, columns_line);
    case TextKind::pairs:
      return make_pair_format(*options.text);
  }
  assert(false);
  return nullptr;
}

}  // namespace corank
