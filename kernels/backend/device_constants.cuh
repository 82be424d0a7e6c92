// The copy of the host's description of records and queries that kernels read. A failing device
// throws DeviceError.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "corank/key.hpp"
#include "corank/text_layout.hpp"
#include "kernels/backend/cuda_check.cuh"

namespace corank {

// Copies of data of the host in device memory, for as long as the object lives.
class DeviceConstants {
 public:
  template <class T>
  const T* upload(std::span<const T> values) {
    memory_.push_back(device_array<std::byte>(std::max<std::uint64_t>(values.size_bytes(), 1)));
    CORANK_CUDA(cudaMemcpy(memory_.back().get(), values.data(), values.size_bytes(),
                           cudaMemcpyHostToDevice));
    return reinterpret_cast<const T*>(memory_.back().get());
  }
  // Return a layout whose pieces or columns are on the device.
  KeyLayout upload(KeyLayout layout) {
    layout.pieces = upload(std::span(layout.pieces, layout.pieces_count));
    return layout;
  }
  TextLayout upload(TextLayout layout) {
    layout.columns = upload(std::span(layout.columns, layout.columns_count));
    return layout;
  }

 private:
  std::vector<DeviceArray<std::byte>> memory_;
};

// The order of records.
class DeviceOrder {
  DeviceConstants constants_;

 public:
  explicit DeviceOrder(const KeyEncoding& encoding)
      : host(encoding.layout()), layout(constants_.upload(host)) {
    if (host.text) text = constants_.upload(*host.text);
  }

  KeyLayout host;     // its pieces or columns are those of the host
  KeyLayout layout;   // of fixed-size records, or of prefix references
  TextLayout text{};  // of variable-length records
};

}  // namespace corank
