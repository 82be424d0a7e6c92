// Exceptions of the library. Every message names the file, the place in it, and the remedy.
//
// All of them derive from Error. std::bad_alloc and std::system_error pass through unchanged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

namespace corank {

// Any reason to stop: bad input, bad options, a failing system call, a failing device.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A run is not sorted: one of its records sorts before its predecessor.
class OutOfOrder : public Error {
 public:
  OutOfOrder(std::filesystem::path file, std::uint64_t record, std::uint64_t byte)
      : OutOfOrder(std::move(file), record, byte,
                   "record " + std::to_string(record) + " (byte " + std::to_string(byte) + ")") {}
  // `place` describes the record for the message, such as "line 7". `byte` is 0 if unknown.
  // `more_advice` is appended to the remedy.
  OutOfOrder(std::filesystem::path file, std::uint64_t record, std::uint64_t byte,
             const std::string& place, const std::string& more_advice = {})
      : Error(file.string() + ": " + place +
              " is out of order; sort this run by the same keys, or correct --by" + more_advice),
        file_(std::move(file)),
        record_(record),
        byte_(byte) {}

  const std::filesystem::path& file() const { return file_; }
  // Number of the record in the file, counted from 0.
  std::uint64_t record() const { return record_; }
  // Byte at which the record begins; 0 if that is unknown, as in a pipe.
  std::uint64_t byte() const { return byte_; }

 private:
  std::filesystem::path file_;
  std::uint64_t record_;
  std::uint64_t byte_ = 0;
};

// The output does not match the input: the memory, a disk or a device of this machine, or this
// library, is at fault. Detected by the self-verification; see Options::verify.
class Corrupted : public Error {
 public:
  explicit Corrupted(const std::string& what)
      : Error("wrong bytes were found by the self-verification: " + what +
              "; nothing was replaced and the runs are as they were; try again, and check the "
              "memory and the disks of this machine") {}
};

// The caller's stop token was triggered. The output is as it was before the call.
class Interrupted : public Error {
 public:
  Interrupted() : Error("interrupted; the output is unchanged") {}
};

}  // namespace corank
