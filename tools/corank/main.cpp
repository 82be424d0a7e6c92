// The command-line program: parses the commands, runs them and reports errors.
#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "arguments.hpp"
#include "bench.hpp"
#include "check_command.hpp"
#include "command_line.hpp"
#include "corank/version.hpp"
#include "finish_command.hpp"
#include "generate_command.hpp"
#include "generated_documents.hpp"
#include "help_formatter.hpp"
#include "info.hpp"
#include "merge_command.hpp"
#include "plan_command.hpp"
#include "standard_streams.hpp"
#include "stop_on_signal.hpp"

namespace {

using corank::Error;
using corank::report;

constexpr int failed = 2;

constexpr const char* examples =
    "corank: say what to do, for example\n"
    "  corank merge --lines -o all.txt logs/*.txt\n"
    "  corank merge --csv --header -b city,population:u64:desc -o all.csv cities/*.csv\n"
    "  corank sort --lines -m 1G -o sorted.txt logs/*.txt.gz\n"
    "  corank merge --kv --on-equal last -o now.kv old.kv new.kv\n"
    "  corank subtract --lines -o gone.txt yesterday.txt today.txt\n"
    "All commands: corank --help. The options of one: corank help merge\n";

constexpr const char* no_threads =
    "the system gives no more threads, or no memory for them; try fewer --threads or fewer "
    "--parts, or raise the limits (ulimit -u, ulimit -v)";

// oneTBB knows only a text for threads that it cannot start.
bool lacks_threads(const std::exception& error) {
  const auto* const failure = dynamic_cast<const std::system_error*>(&error);
  return failure ? failure->code() == std::errc::resource_unavailable_try_again
                 : std::string_view(error.what()).find("pthread_create") != std::string_view::npos;
}

// oneTBB starts threads from others of its own, too, where nothing catches what it throws.
[[noreturn]] void end_without_threads() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    if (lacks_threads(error)) ::_exit(report(Error(no_threads), failed));
  } catch (...) {
  }
  std::abort();
}

[[noreturn]] void print_document(const CLI::App& app, std::string_view what) {
  fmt::print("{}", what == "man" ? corank::manual_page(app) : corank::bash_completion(app));
  throw CLI::Success();
}

int run(int argc, char** argv) {
  CLI::App app("Sorts and merges records, lines, CSV, JSON and pairs larger than memory.",
               "corank");
  app.set_version_flag("--version", std::string("corank ") + corank::version);
  app.require_subcommand(1);
  app.add_flag_callback(
      "--log-json", corank::log_as_json,
      "Print warnings, errors and progress as JSON, one a line; with any command");
  app.add_option_function<std::string>(
         "--generate", [&app](const std::string& what) { print_document(app, what); },
         "Print the manual page (man) or completions for bash (bash)")
      ->option_text("WHAT")
      ->check(CLI::IsMember({"man", "bash"}));
  app.formatter(std::make_shared<corank::HelpFormatter>());
  using corank::MergeCommand, corank::OnEqual;
  MergeCommand merge(app, "merge", "Merge sorted runs into one sorted file");
  MergeCommand unite(app, "union", "Write the records that any of the sorted runs has",
                     OnEqual::unite);
  MergeCommand intersect(app, "intersect", "Write the records that all of the sorted runs have",
                         OnEqual::intersect);
  MergeCommand subtract(app, "subtract", "Write the records that only the first run has",
                        OnEqual::subtract);
  MergeCommand sort(app, "sort", "Sort files of records into one sorted file", OnEqual::keep,
                    MergeCommand::Verb::sort);
  corank::PlanCommand plan(app);
  corank::FinishCommand finish(app);
  corank::CheckCommand check(app);
  corank::GenerateCommand generate(app);
  corank::InfoCommand info(app);
  corank::BenchCommand bench(app);
  if (argc <= 1) {
    corank::say(examples);
    return failed;
  }
  const std::vector<std::string> arguments = corank::reversed_arguments(app, argc, argv);
  try {
    app.parse(std::vector(arguments));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const CLI::App* command = &app;
    while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
    return report(Error(corank::ErrorCode::options,
                        fmt::format("{}; see corank {}--help", corank::problem(*command, error),
                                    command == &app ? "" : corank::full_name(*command) + " ")),
                  failed);
  }
  for (const CLI::App* const command : app.get_subcommands()) corank::require_values(*command);
  for (MergeCommand* const command : {&merge, &unite, &intersect, &subtract, &sort})
    if (command->chosen()) return command->run();
  if (plan.chosen()) return plan.run({arguments.rbegin(), arguments.rend()});
  if (finish.chosen()) return finish.run();
  if (check.chosen()) return check.run();
  if (generate.chosen()) return generate.run();
  if (bench.chosen()) return bench.run();
  return info.run([](const Error& error) { return report(error, failed); });
}

}  // namespace

int main(int argc, char** argv) {
  corank::fill_closed_streams();
  std::set_terminate(end_without_threads);
  std::signal(SIGXFSZ, SIG_IGN);  // makes exceeding `ulimit -f` an error
  // Under `ulimit -v`, the C library's per-thread arenas would take the address space that stacks
  // need.
  struct rlimit addresses {};
  if (::getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    ::mallopt(M_ARENA_MAX, 1);
  try {
    const int code = run(argc, argv);
    corank::finish_printing();
    return code;
  } catch (const corank::Interrupted& interrupted) {
    return report(interrupted, corank::StopOnSignal::exit_code());
  } catch (const Error& error) {
    return report(error);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(Error(fmt::format("{}: {}; check the name", error.path1().string(),
                                    error.code().message())),
                  failed);
  } catch (const std::bad_alloc&) {
    return report(
        Error("the system gives no more memory; try a smaller --memory, fewer --threads or fewer "
              "--parts, or raise the limit (ulimit -v)"),
        failed);
  } catch (const std::exception& error) {
    return lacks_threads(error) ? report(Error(no_threads), failed) : report(error.what(), failed);
  }
}
