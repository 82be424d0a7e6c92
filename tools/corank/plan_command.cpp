#include "plan_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "arguments.hpp"
#include "corank/error.hpp"
#include "stop_on_signal.hpp"

namespace corank {
namespace {

// Plans the merge of the runs that the tasks of a planned sort have made.
PlanFile plan_merge_of_sort(const std::string& file, const std::string& given_folder,
                            std::size_t num_partitions, const std::stop_token& stop) {
  const PlanFile sort = read_plan(file);
  if (!sort.partitions.sorts)
    throw Error(file + ": is not a plan of a sort; name one, or the runs themselves");
  const std::filesystem::path folder = folder_of_parts(file, given_folder);
  std::vector<std::filesystem::path> runs;
  PlanFile plan{.command = sort.command, .partitions = {}};
  PartContent content;
  for (const PartRecord& run : read_records(sort, file, folder, Codec::none)) {
    plan.header_bytes = run.content.header_bytes;  // each run has the header
    runs.push_back(part_names(folder, run.partition, Codec::none).part);
    content.records += run.content.records;
    content.checksum += run.content.checksum;
  }
  Options options = options_of(plan);
  options.stop = stop;
  plan.partitions = plan_partitions(runs, num_partitions, options);
  const Query& query = options.query;
  if (query.from.empty() && query.to.empty() && !query.limit) plan.content = content;
  return plan;
}

// Names such as /dev/stdin mean other files in the processes that write the parts.
void refuse_own_file(std::string_view path) {
  for (const std::string_view folder : {"/dev/stdin", "/dev/fd/", "/proc/"})
    if (path.starts_with(folder))
      throw Error(
          fmt::format("{}: is another file in other processes; name the file itself", path));
}

}  // namespace

PlanCommand::PlanCommand(CLI::App& app)
    : command_(app.add_subcommand("plan", "Cut a merge or sort into partitions for a cluster")) {
  command_->require_subcommand(1);
  const auto add = [&](const char* name, OnEqual on_equal,
                       MergeCommand::Verb verb = MergeCommand::Verb::plan) {
    commands_.push_back(std::make_unique<MergeCommand>(
        *command_, name, fmt::format("Plan corank {}", name).c_str(), on_equal, verb));
  };
  add("merge", OnEqual::keep);
  add("sort", OnEqual::keep, MergeCommand::Verb::plan_sort);
  add("union", OnEqual::unite);
  add("intersect", OnEqual::intersect);
  add("subtract", OnEqual::subtract);
  show_ = command_->add_subcommand("show", "Print a plan for people");
  show_->add_option("PLAN", shown_, "File of the plan")->required()->type_name("");
  command_->footer(
      "Examples:\n  corank plan merge --lines --partitions 8 -o plan.json runs/*.txt\n"
      "  corank plan show plan.json\n  corank merge --plan plan.json --partition 3\n"
      "  corank finish plan.json --concatenate all.txt\n"
      "Of a sort, whose parts are runs to be merged:\n"
      "  corank plan sort --lines --partitions 8 -o sort.json files/*.txt\n"
      "  corank sort --plan sort.json --partition 3\n"
      "  corank plan merge --runs-of sort.json --partitions 8 -o plan.json");
}

const MergeCommand& PlanCommand::planned() const {
  const auto chosen = std::ranges::find_if(commands_, &MergeCommand::chosen);
  if (chosen == commands_.end()) throw Error("the plan is of no merge; plan again");
  return **chosen;
}

int PlanCommand::run(const std::vector<std::string>& arguments) const {
  if (show_->parsed()) {
    show();
    return 0;
  }
  const MergeCommand& command = planned();
  const bool is_of_sort = !command.runs_of().empty();
  const std::vector<std::string> names =
      is_of_sort ? std::vector<std::string>() : command.names_of_runs();
  const StopOnSignal signals;  // a plan is written to its end
  PlanFile plan{.command = without_force(*command_->get_subcommands().front(), arguments),
                .partitions = {}};
  std::vector<std::filesystem::path> sources{command.list_of_runs(), command.runs_of()};
  if (!is_of_sort) {
    const std::vector<std::filesystem::path> files(names.begin(), names.end());
    const auto cut = command.sorts() ? plan_sort : plan_partitions;
    Options options = command.options();
    options.stop = signals.token();
    plan.partitions = cut(files, command.num_partitions(), options);
  } else {
    command.check_beside_plan();
    plan = plan_merge_of_sort(command.runs_of(), command.folder(), command.num_partitions(),
                              signals.token());
    for (const PartitionPlan::Input& run : plan.partitions.runs)
      sources.push_back(std::filesystem::path(run.path).replace_extension(".json"));
  }
  for (const PartitionPlan::Input& run : plan.partitions.runs) {
    refuse_own_file(run.path.native());
    sources.push_back(run.path);
  }
  check_is_none_of(command.output(), sources);
  write_plan(plan, command.output(), command.overwrites(), signals.token());
  return 0;
}

void PlanCommand::show() const {
  const PlanFile plan = read_plan(shown_);
  const PartitionPlan& partitions = plan.partitions;
  const char* const unit = partitions.counts_bytes ? "bytes" : "records";
  std::uint64_t bytes = 0;
  for (const PartitionPlan::Input& run : partitions.runs) bytes += run.bytes;
  const bool is_of_sort = !partitions.sorts && plan.command.size() > 1 && plan.command[1] == "sort";
  fmt::print("{}     corank {}\n", is_of_sort ? "runs of" : "command",
             fmt::join(plan.command, " "));
  fmt::print("runs        {}, {} bytes\n", partitions.runs.size(), bytes);
  fmt::print("partitions  {}\n", partitions.size());
  fmt::print("digest      {}\n", plan.digest);
  for (std::size_t i = 0; i < partitions.size(); ++i) {
    const PartitionPlan::Cut &from = partitions.cuts[i], &to = partitions.cuts[i + 1];
    std::size_t num_runs = 0;
    for (std::size_t run = 0; run < from.size(); ++run) num_runs += from[run] != to[run];
    fmt::print("part-{:05}  {} {} of {} runs\n", i, partitions.length(i), unit, num_runs);
  }
}

Options options_of(const PlanFile& plan) {
  CLI::App app;
  PlanCommand command(app);
  try {
    app.parse(std::vector<std::string>(plan.command.rbegin(), plan.command.rend()));
  } catch (const CLI::ParseError& error) {
    throw Error(
        fmt::format("the command of the plan cannot be read: {}; plan again", error.what()));
  }
  Options options = command.planned().options();
  if (plan.partitions.sorts) {
    // The merge of its runs applies the rest.
    options.query = {};
    options.drop_header = options.parts_by_key = false;
    options.compression.reset();
  } else if (command.planned().sorts()) {
    // Each run of the sort has the header, and begins with any record after it.
    options.decompress = false;
    options.record.header_bytes = options.record.header_bytes.value_or(0);
    if (options.text) {
      options.text->first_header = false;
      options.text->header_bytes = plan.header_bytes;
      // Their columns were checked when they were read first. Short records may come first now.
      if (options.text->kind == TextKind::csv || options.text->delimiter)
        options.text->ragged = RaggedRecords::empty;
    }
  }
  return options;
}

}  // namespace corank
