// The options that say what files hold and how it is ordered, of several commands.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "corank/record.hpp"
#include "corank/text.hpp"

namespace corank {

class RecordArguments {
 public:
  void add_to(CLI::App& command);
  // Those for records of variable length; without them, --record is required.
  void add_text_to(CLI::App& command);

  // The format of records of variable length; none if they are of a fixed size. Throws Error where
  // options contradict one another.
  std::optional<TextFormat> text() const;
  Schema schema() const { return Schema::parse(record_); }
  std::vector<KeyField> keys(const Schema& schema) const { return parse_keys(by_, schema); }

 private:
  CLI::Option* record_option_ = nullptr;
  std::string record_;
  std::string by_;
  bool lines_ = false;
  bool csv_ = false;
  bool pairs_ = false;
  bool zero_ended_ = false;
  bool header_ = false;
  std::optional<std::string> delimiter_;
  std::string bad_numbers_;
};

// --compressed, of commands that read files.
void add_compressed_to(CLI::App& command, bool& decompress);

}  // namespace corank
