// Options that describe the files' format and order, shared by several commands.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "corank/options.hpp"

namespace corank {

class RecordArguments {
 public:
  void add_to(CLI::App& command);
  // Adds the options for variable-length records; otherwise --record is required.
  void add_text_to(CLI::App& command);

  // Returns options with the format and the keys of the records. Throws Error if the arguments
  // contradict each other.
  Options options() const;
  Schema schema() const;
  std::vector<KeyField> keys(const Schema& schema) const { return parse_keys(by_, schema); }

 private:
  std::optional<TextFormat> text() const;
  void add_header_to(CLI::App& command);

  CLI::Option* record_option_ = nullptr;
  std::string record_;
  std::string by_;
  bool lines_ = false;
  bool csv_ = false;
  bool pairs_ = false;
  bool json_lines_ = false;
  bool zero_ended_ = false;
  std::string header_;
  std::optional<std::uint64_t> skip_bytes_;
  std::uint64_t header_lines_ = 0;
  std::string comment_;
  std::optional<std::string> delimiter_, escape_;
  std::string bad_numbers_, ragged_;
};

// Adds --threads. The help says `what` it counts.
void add_threads_to(CLI::App& command, unsigned& threads, const std::string& what);

// Adds --compressed to a command that reads files.
void add_compressed_to(CLI::App& command, bool& decompress);
// Adds --memory.
void add_memory_to(CLI::App& command, std::uint64_t& bytes);

}  // namespace corank
