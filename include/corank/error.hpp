// What the library throws. Every message names the file, the place in it and what to do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

namespace corank {

// Anything that stops a merge: bad input, bad options, a failing system call, a failing device.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A run whose record `record()` (counted from 0, at byte `byte()`) sorts before its predecessor.
class OutOfOrder : public Error {
 public:
  OutOfOrder(std::filesystem::path file, std::uint64_t record, std::uint64_t byte)
      : OutOfOrder(std::move(file), record, byte,
                   "record " + std::to_string(record) + " (byte " + std::to_string(byte) + ")") {}
  // `place` says in words which record it is. The byte is 0 where it is not known: in a pipe.
  OutOfOrder(std::filesystem::path file, std::uint64_t record, std::uint64_t byte,
             const std::string& place)
      : Error(file.string() + ": " + place +
              " is out of order; sort this run by the same keys, or correct --by"),
        file_(std::move(file)),
        record_(record),
        byte_(byte) {}

  const std::filesystem::path& file() const { return file_; }
  std::uint64_t record() const { return record_; }
  std::uint64_t byte() const { return byte_; }

 private:
  std::filesystem::path file_;
  std::uint64_t record_;
  std::uint64_t byte_ = 0;
};

// What was merged is not what was read: the memory, a disk or a device of this machine, or this
// library, is at fault. Found by the self-verification; see Options::verify.
class Corrupted : public Error {
 public:
  explicit Corrupted(const std::string& what)
      : Error("wrong bytes were found by the self-verification: " + what +
              "; nothing was replaced and the runs are as they were; try again, and check the "
              "memory and the disks of this machine") {}
};

// The caller's stop token was triggered; the output is as it was before the call.
class Interrupted : public Error {
 public:
  Interrupted() : Error("interrupted; the output is unchanged") {}
};

}  // namespace corank
