#include "info.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>

#include "backend/cpu_backend.hpp"
#include "codec/codec.hpp"
#include "corank/options.hpp"
#include "corank/version.hpp"
#include "each_file.hpp"
#include "jobs/check_share.hpp"
#include "kernels/backend/cuda_backend.hpp"
#include "setting_flags.hpp"
#include "standard_streams.hpp"
#include "tools/corank/hardware_limits.hpp"
#include "util/system_limits.hpp"

namespace corank {
namespace {

std::string size_of(const FileReport& report) {
  if (report.is_pipe) return fmt::format("{} bytes from a pipe", report.bytes);
  if (report.codec == Codec::none) return fmt::format("{} bytes", report.file_bytes);
  return fmt::format("{} bytes, {}; decompressed {} bytes, {:.2f} times as many", report.file_bytes,
                     name_of(report.codec), report.bytes,
                     static_cast<double>(report.bytes) / static_cast<double>(report.file_bytes));
}

void print(const std::string& file, const FileReport& report) {
  fmt::print("{}\n  size:       {}\n  records:    {}\n", file, size_of(report), report.records);
  if (report.records_skipped != 0)
    fmt::print("  skipped:    {}, as --bad skip says\n", report.records_skipped);
  if (report.records == 0) return;
  fmt::print("  first key:  {}\n  last key:   {}\n", report.first_key, report.last_key);
  if (report.out_of_order)
    fmt::print("  order:      record {} (byte {}) sorts before its predecessor\n",
               report.out_of_order->record, report.out_of_order->byte);
  else
    fmt::print("  order:      in order\n");
  fmt::print("  duplicates: {} records have the key of the one before\n", report.duplicates);
}

nlohmann::ordered_json json_of(const std::string& file, const FileReport& report) {
  nlohmann::ordered_json json = {{"file", file},
                                 {"file_bytes", report.file_bytes},
                                 {"codec", name_of(report.codec)},
                                 {"bytes", report.bytes},
                                 {"records", report.records},
                                 {"records_skipped", report.records_skipped},
                                 {"first_key", report.first_key},
                                 {"last_key", report.last_key},
                                 {"in_order", !report.out_of_order},
                                 {"duplicates", report.duplicates}};
  if (report.out_of_order)
    json["disorder"] = {{"record", report.out_of_order->record},
                        {"byte", report.out_of_order->byte}};
  return json;
}

}  // namespace

nlohmann::ordered_json describe_machine() {
  const CudaDevice device = find_cuda_device(0);
  struct utsname system {};
  ::uname(&system);
  return {
      {"cpu", cpu_model()},
      {"threads", processor_limit().value},
      {"memory_bytes", static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))},
      {"kernel", fmt::format("{} {}", system.sysname, system.release)},
      {"cuda", device.description},
      {"backend", device.usable ? "cuda" : "cpu"},
  };
}

InfoCommand::InfoCommand(CLI::App& app) {
  command_ = app.add_subcommand("info", "Describe files, or measure this machine");
  CLI::Option* const folder =
      command_->add_option("--in", folder_, "Folder whose file system is measured [this one]")
          ->type_name("FOLDER");
  record_.add_to(*command_);
  record_.add_text_to(*command_);
  add_compressed_to(*command_, decompress_);
  add_memory_to(*command_, memory_bytes_);
  command_->add_option("FILE", files_, "Files of records; without any, the machine is shown")
      ->type_name("")
      ->excludes(folder);
  command_->add_flag("--json", json_, "Print JSON");
  command_->footer(
      "Files are read to their ends. Shown are their sizes, records, first and last keys, order, "
      "and\n"
      "how many records have the key of the one before. Nothing is guessed: say what they hold.\n"
      "Without files it takes a few seconds, 512 MiB of disk and about as much memory, which it "
      "gives back.\n"
      "Rates count every byte that is moved once. A merge to one file cannot pass the lowest of\n"
      "those that it needs.\n"
      "Examples:\n  corank info --in /data\n  corank info -r key:u64,value:u64 runs/run-*.bin");
}

int InfoCommand::run(const std::function<int(const Error&)>& report) const {
  if (!files_.empty()) return show_files(report);
  show_machine();
  return 0;
}

int InfoCommand::show_files(const std::function<int(const Error&)>& report) const {
  Options options = record_.options();
  options.decompress = decompress_;
  options.memory_bytes = memory_bytes_;
  options.notice = say_warning;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  int code = 0;
  EachFile<FileReport> reports(files_, options, describe_within);
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const std::string& file = files_[i];
    try {
      const FileReport found = reports.result(i);
      if (json_)
        all.push_back(json_of(file, found));
      else
        print(file, found);
    } catch (const Error& error) {
      finish_printing();
      code = report(error);
      if (json_) all.push_back({{"file", file}, {"error", error.worded(flag_of)}});
    }
  }
  // A key may contain bytes that are not UTF-8.
  if (json_)
    fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  return code;
}

void InfoCommand::show_machine() const {
  CeilingOptions options;
  options.folder = folder_;
  nlohmann::ordered_json machine = describe_machine();
  if (!json_) {
    fmt::print("corank {}\n", version);
    fmt::print("cpu:     {}, {} threads\n", machine["cpu"].get<std::string>(),
               machine["threads"].get<unsigned>());
    fmt::print("memory:  {:.1f} GiB\n", machine["memory_bytes"].get<double>() / (1u << 30));
    fmt::print("cuda:    {}\n", machine["cuda"].get<std::string>());
    const auto backend = machine["backend"].get<std::string>();
    fmt::print("backend: auto takes {}{}\n", backend,
               backend == "cpu" ? "" : " for large sorts and merges, else cpu");
    fmt::print("hardware limits, with files in {}:\n", folder_);
    finish_printing();
  }
  const std::vector<Ceiling> ceilings = measure_ceilings(options);
  if (!json_) {
    for (const Ceiling& ceiling : ceilings)
      if (ceiling.bytes_per_second > 0)
        fmt::print("  {:44} {:8.2f} GB/s\n", ceiling.what, ceiling.bytes_per_second * 1e-9);
      else
        fmt::print("  {:44} not measured: {}\n", ceiling.what, ceiling.note);
    return;
  }
  nlohmann::ordered_json json = {
      {"version", version}, {"machine", std::move(machine)}, {"folder", folder_}};
  for (const Ceiling& ceiling : ceilings) {
    auto& entry = json["ceilings"][ceiling.name] = {{"what", ceiling.what}};
    if (ceiling.bytes_per_second > 0)
      entry["bytes_per_second"] = ceiling.bytes_per_second;
    else
      entry["not_measured"] = ceiling.note;
  }
  fmt::print("{}\n", json.dump(2));
}

}  // namespace corank
