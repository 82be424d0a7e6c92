// Errors and warnings of the library. Every message names the file, the place in it, and the
// remedy.
//
// The library throws Error, and lets std::bad_alloc and std::system_error pass through. Messages
// refer to settings symbolically, so that each caller can name them for its own users: see
// Message::worded(). All functions may be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "corank/setting.hpp"

namespace corank {

// Text that refers to settings.
class Message {
 public:
  // `marked` holds a marker for each setting; see src/util/setting_text.hpp. Text without markers
  // is the message itself. Implicit, so that text can be passed where a message is wanted.
  Message(std::string marked) : marked_(std::move(marked)) {}
  Message(const char* marked) : marked_(marked) {}

  // Returns the text with each setting as name(setting), and `before_value` between it and its
  // value: "--bad skip", say.
  std::string worded(std::string_view (*name)(Setting), std::string_view before_value = " ") const;
  // Returns the text with the library's names: "TextFormat::bad_numbers = skip", say.
  std::string text() const;
  // Returns the settings in the order in which the text refers to them.
  std::vector<Setting> settings() const;

 private:
  std::string marked_;
};

// Reason of an Error.
enum class ErrorCode : std::uint8_t {
  options,        // options contradict each other, or the runs
  input,          // a run does not hold what it should, or the output cannot take its place
  out_of_order,   // see OutOfOrder
  duplicate_key,  // OnEqual::error, and two records have equal keys
  exists,         // the output exists
  memory,         // the memory budget or the system's memory does not suffice
  system,         // a system call failed
  device,         // a device or its driver failed, or there is none
  corrupted,      // see Corrupted
  interrupted,    // see Interrupted
};

// Base of all exceptions. what() is the message with the library's names of settings.
class Error : public std::runtime_error {
 public:
  explicit Error(Message message) : Error(ErrorCode::input, std::move(message)) {}
  Error(ErrorCode code, Message message)
      : std::runtime_error(message.text()), message_(std::move(message)), code_(code) {}

  ErrorCode code() const { return code_; }
  const Message& message() const { return message_; }
  std::vector<Setting> settings() const { return message_.settings(); }
  std::string worded(std::string_view (*name)(Setting), std::string_view before_value = " ") const {
    return message_.worded(name, before_value);
  }

 private:
  Message message_;
  ErrorCode code_;
};

// A run is not sorted: one of its records sorts before its predecessor.
class OutOfOrder : public Error {
 public:
  OutOfOrder(std::filesystem::path file, std::uint64_t record, std::uint64_t byte);
  // `place` describes the record. The byte is 0 where it is not known: in a pipe. `details` follow
  // the statement that it is out of order.
  OutOfOrder(std::filesystem::path file, std::uint64_t record, std::uint64_t byte,
             const std::string& place, const std::string& details = {});

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
  explicit Corrupted(const std::string& what);
};

// The caller's stop token was triggered. The output is as it was before the call.
class Interrupted : public Error {
 public:
  Interrupted();
};

}  // namespace corank
