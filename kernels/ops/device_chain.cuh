// An operator chain as kernels take it, whatever its records are. A failing device throws
// DeviceError.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/backend/device_constants.cuh"
#include "kernels/ops/operator_steps.hpp"
#include "ops/operator_chain.hpp"

namespace corank {

// Returns the fields that the chain reduces.
inline std::span<const FieldReduction> reduced_fields(const OperatorChain& chain) {
  return chain.reducer() ? chain.reducer()->fields() : std::span<const FieldReduction>();
}

// Returns whether devices support the whole chain. Left to the host are set operations, which ask
// for the run of each record, bounds that the runs were not cut by, sums of floating-point fields,
// which are exact, and conditions on columns that devices do not parse.
inline bool fits_device(const OperatorChain& chain) {
  const auto fits = [](const RowFilter* filter) {
    return !filter || (filter->steps().size() <= max_test_steps &&
                       std::ranges::all_of(filter->steps(), [](const RowFilter::Step& step) {
                         return !step.with || !step.with->layout().text ||
                                device_comparable(*step.with->layout().text);
                       }));
  };
  // Without groups the device cannot tell whether the filter or the tombstone dropped a record.
  return !chain.set_operation() && !chain.has_bounds() &&
         (chain.groups() || !chain.where() || !chain.dropped()) && fits(chain.where()) &&
         fits(chain.dropped()) &&
         std::ranges::none_of(reduced_fields(chain), [](const FieldReduction& reduction) {
           return reduction.operation == Reduction::Operation::sum &&
                  reduction.field.kind == FieldKind::floating;
         });
}

// The conditions of a chain. The constants must outlive it.
template <class Layout>
struct DeviceTests {
  DeviceTests(const OperatorChain& chain, DeviceConstants& constants)
      : where(test_of(chain.where(), constants)), dropped(test_of(chain.dropped(), constants)) {}

  Test<Layout> where, dropped;

 private:
  static Test<Layout> test_of(const RowFilter* filter, DeviceConstants& constants) {
    std::vector<TestStep<Layout>> steps;
    if (filter)
      for (const RowFilter::Step& step : filter->steps()) {
        TestStep<Layout>& made = steps.emplace_back(TestStep<Layout>{step.operation, {}, {}, 0});
        if (!step.with) continue;
        if constexpr (std::is_same_v<Layout, TextLayout>)
          made.field = constants.upload(*step.with->layout().text);
        else
          made.field = constants.upload(step.with->layout());
        made.value = constants.upload(step.with->record());
        made.value_bytes = step.with->record().size();
      }
    return {constants.upload(std::span<const TestStep<Layout>>(steps)),
            static_cast<std::uint32_t>(steps.size())};
  }
};

}  // namespace corank
