#include "generate_command.hpp"

#include "command_line.hpp"
#include "corank/error.hpp"

namespace corank {

GenerateCommand::GenerateCommand(CLI::App& app) {
  command_ = app.add_subcommand("gen", "Generate sorted runs");
  record_.add_to(*command_);
  command_->get_option("--record")->required(false);
  command_
      ->add_option("--lines", options_.line_bytes,
                   "Lines of BYTES bytes, the newline among them, in place of --record")
      ->transform(whole_number(1, 1 << 20))
      ->excludes("--record")
      ->excludes("--by")
      ->option_text("BYTES");
  command_->add_option("--records", options_.records, "Records of all runs together")
      ->required()
      ->transform(whole_number(0))
      ->option_text("N");
  command_->add_option("--runs", options_.runs, "Number of runs")
      ->required()
      ->transform(whole_number(1, 10'000'000))
      ->option_text("K");
  command_->add_option("--seed", options_.seed, "The same seed gives the same bytes [1]")
      ->transform(whole_number(0))
      ->option_text("S");
  command_
      ->add_option("--distribution", options_.distribution,
                   "Of the keys: uniform, equal, disjoint, zipf, interleaved or lopsided [uniform]")
      ->transform(one_of<Distribution>({{"uniform", Distribution::uniform},
                                        {"equal", Distribution::equal},
                                        {"disjoint", Distribution::disjoint},
                                        {"zipf", Distribution::zipf},
                                        {"interleaved", Distribution::interleaved},
                                        {"lopsided", Distribution::lopsided}}))
      ->option_text("D");
  command_
      ->add_option("-o,--output", folder_,
                   "Folder for run-00000.bin, or of lines run-00000.txt, and so on")
      ->required()
      ->type_name("DIR");
  command_->footer(
      "Example:\n  corank gen -r key:u64,value:u64 --records 1000000 --runs 16 -o runs");
}

int GenerateCommand::run() {
  if (options_.line_bytes == 0) {
    if (command_->count("--record") == 0)
      throw Error(ErrorCode::options,
                  "say what the runs are to hold by one of --record SCHEMA and --lines BYTES");
    options_.record = record_.schema();
    options_.keys = record_.keys(options_.record);
  }
  generate(options_, folder_);
  return 0;
}

}  // namespace corank
