// Makes runs and outputs of the Sources and Sinks of Boost.Iostreams, for <corank/streams.hpp>.
//
// A device, such as file_source or a chain of compose(filter, device), is copied. A stream or a
// stream buffer, such as filtering_istream or std::istream, is held by reference, and must outlive
// the merge. The category of a device tells that it is a Source or a Sink of char.
//
// A device that is not open, or that fails to flush, is an error. Boost does not tell that of
// devices within a chain: check file_source::is_open() before it becomes part of one, and end
// chains for outputs in a sink that throws, since file_sink and std::ofstream only return false for
// bytes that they lose. Make such chains by compose(), or push the sink of a filtering_ostream
// without a buffer, by push(sink, 0): while a chain closes, as when a compressor ends its output,
// Boost ignores exceptions of writes from a buffer.
#pragma once

#include <boost/iostreams/close.hpp>
#include <boost/iostreams/compose.hpp>
#include <boost/iostreams/flush.hpp>
#include <boost/iostreams/read.hpp>
#include <boost/iostreams/stream_buffer.hpp>
#include <boost/iostreams/traits.hpp>
#include <boost/iostreams/write.hpp>
#include <chrono>
#include <ios>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "corank/streams.hpp"

namespace corank {
namespace detail {

// How a source or sink holds its device. A device with direct access, such as array_source, has no
// functions to read and write, so that a stream buffer reads or writes it.
template <class Device>
using HeldDevice =
    std::conditional_t<boost::iostreams::is_std_io<Device>::value, Device&,
                       std::conditional_t<boost::iostreams::is_direct<Device>::value,
                                          boost::iostreams::stream_buffer<Device>, Device>>;

// Throws if the device is a stream or a file that cannot be used.
template <class Device>
void check_usable(Device& device) {
  if constexpr (requires { device.is_complete(); })
    if (!device.is_complete()) throw std::runtime_error("its chain of filters has no end");
  if constexpr (requires { device.fail(); })
    if (device.fail()) throw std::runtime_error("the stream has failed, or was never opened");
  if constexpr (requires { device.is_open(); })
    if (!device.is_open()) throw std::runtime_error("it is not open, or could not be opened");
}

// Chains return false for a flush if one of their filters has nothing to flush.
template <class Device>
inline constexpr bool is_chain = false;
template <class Filter, class Device>
inline constexpr bool is_chain<boost::iostreams::composite<Filter, Device>> = true;

template <class Device>
class DeviceSource final : public ByteSource {
 public:
  explicit DeviceSource(Device& device) : device_(device) {}

  std::optional<std::size_t> read(std::span<std::byte> into) override {
    check_usable(device_);
    const std::streamsize got = boost::iostreams::read(
        device_, reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size()));
    if (got < 0) return std::nullopt;
    // A device that does not block has no byte yet.
    if (got == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return static_cast<std::size_t>(got);
  }

 private:
  HeldDevice<Device> device_;
};

template <class Device>
class DeviceSink final : public ByteSink {
 public:
  explicit DeviceSink(Device& device) : device_(device) {}

  void write(std::span<const std::byte> bytes) override {
    check_usable(device_);
    while (!bytes.empty()) {
      const std::streamsize put =
          boost::iostreams::write(device_, reinterpret_cast<const char*>(bytes.data()),
                                  static_cast<std::streamsize>(bytes.size()));
      if (put <= 0) throw std::runtime_error("it takes no more bytes");
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
  }

  void commit() override {
    check_usable(device_);
    const bool is_flushed = boost::iostreams::flush(device_);
    if (!is_chain<Device> && !is_flushed) throw std::runtime_error("its last bytes were not taken");
    boost::iostreams::close(device_, std::ios_base::out);
  }

 private:
  HeldDevice<Device> device_;
};

}  // namespace detail

// Returns a run that is read from `device`. Errors call it `name`.
template <class Device>
NamedSource source(std::string name, Device&& device) {
  using Kind = std::remove_reference_t<Device>;
  static_assert(!boost::iostreams::is_std_io<Kind>::value || std::is_lvalue_reference_v<Device>,
                "a stream must outlive the merge");
  return {std::move(name), std::make_shared<detail::DeviceSource<Kind>>(device)};
}

// Returns an output that is written to `device`, and closes it once the whole output is verified.
// If the merge fails, the device is not closed. Errors call it `name`.
template <class Device>
NamedSink sink(std::string name, Device&& device) {
  using Kind = std::remove_reference_t<Device>;
  static_assert(!boost::iostreams::is_std_io<Kind>::value || std::is_lvalue_reference_v<Device>,
                "a stream must outlive the merge");
  return {std::move(name), std::make_shared<detail::DeviceSink<Kind>>(device)};
}

}  // namespace corank
