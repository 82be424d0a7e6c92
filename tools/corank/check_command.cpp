#include "check_command.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "corank/error.hpp"
#include "each_file.hpp"
#include "jobs/check_share.hpp"
#include "standard_streams.hpp"
#include "statistics.hpp"

namespace corank {
namespace {

void print(const CheckResult& result, const std::string& name) {
  fmt::print("{} {} {}\n", result.records, hexadecimal(result.checksum), name);
}

}  // namespace

int check_files(std::span<const std::string> files, const Options& options) {
  CheckResult total;
  int code = 0;
  EachFile<CheckResult> results(files, options, check_within);
  for (std::size_t i = 0; i < files.size(); ++i) {
    try {
      const CheckResult result = results.result(i);
      total.records += result.records;
      total.checksum += result.checksum;
      if (options.checksum) print(result, files[i]);
    } catch (const Error& error) {
      code = std::max(code, report(error));
    }
  }
  if (options.checksum && code == 0) print(total, "total");
  return code;
}

CheckCommand::CheckCommand(CLI::App& app) {
  command_ = app.add_subcommand("check", "Verify the order of files of records");
  record_.add_to(*command_);
  record_.add_text_to(*command_);
  command_->add_flag("--checksum", checksum_,
                     "Print records, checksum and name of each file, and of all together");
  add_compressed_to(*command_, decompress_);
  add_threads_to(*command_, threads_, "Threads");
  add_memory_to(*command_, memory_bytes_);
  command_->add_flag("-q,--quiet", quiet_, "Show nothing but errors");
  command_->add_option("FILE", files_, "Files of records [standard input]")->type_name("");
  command_->footer(
      "The checksum depends neither on the order of the records nor on how they are spread over\n"
      "files: the total over the runs equals the output's.\n"
      "Example:\n  corank check -r key:u64,value:u64 --checksum merged.bin");
}

int CheckCommand::run() const {
  Options options = record_.options();
  options.checksum = checksum_;
  options.decompress = decompress_;
  options.threads = threads_;
  options.memory_bytes = memory_bytes_;
  if (!quiet_) options.notice = say_warning;
  if (!files_.empty()) return check_files(files_, options);
  if (!quiet_) hint_at_standard_input("check");
  const std::string input = "-";
  return check_files({&input, 1}, options);
}

}  // namespace corank
