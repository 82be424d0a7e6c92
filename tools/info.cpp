#include "info.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "ceilings.hpp"
#include "corank/version.hpp"
#include "cpu_backend.hpp"
#include "cuda_backend.hpp"

namespace corank {

nlohmann::ordered_json describe_machine() {
  const CudaDevice device = find_cuda_device(0);
  struct utsname system {};
  ::uname(&system);
  return {
      {"cpu", cpu_model()},
      {"threads", std::thread::hardware_concurrency()},
      {"memory_bytes", static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))},
      {"kernel", fmt::format("{} {}", system.sysname, system.release)},
      {"cuda", device.description},
      {"backend", device.usable ? "cuda" : "cpu"},
  };
}

InfoCommand::InfoCommand(CLI::App& app) {
  command_ = app.add_subcommand("info", "Show what this machine offers, and measure its ceilings");
  command_
      ->add_option("--in", folder_, "Folder whose file system is measured; without it, this one")
      ->type_name("FOLDER");
  command_->add_flag("--json", json_, "Print JSON");
  command_->footer(
      "Takes a few seconds, 512 MiB of disk and about as much memory, which it gives back.\n"
      "Rates count every byte that is moved once. A merge to one file cannot pass the lowest of\n"
      "those that it needs.\n"
      "Example:\n  corank info --in /data");
}

int InfoCommand::run() const {
  CeilingOptions options;
  options.folder = folder_;
  nlohmann::ordered_json machine = describe_machine();
  if (!json_) {
    fmt::print("corank {}\n", version);
    fmt::print("cpu:     {}, {} threads\n", machine["cpu"].get<std::string>(),
               machine["threads"].get<unsigned>());
    fmt::print("memory:  {:.1f} GiB\n", machine["memory_bytes"].get<double>() / (1u << 30));
    fmt::print("cuda:    {}\n", machine["cuda"].get<std::string>());
    fmt::print("backend: auto takes {}\n", machine["backend"].get<std::string>());
    fmt::print("ceilings, with files in {}:\n", folder_);
    std::fflush(stdout);
  }
  const std::vector<Ceiling> ceilings = measure_ceilings(options);
  if (!json_) {
    for (const Ceiling& ceiling : ceilings)
      if (ceiling.bytes_per_second > 0)
        fmt::print("  {:44} {:8.2f} GB/s\n", ceiling.what, ceiling.bytes_per_second * 1e-9);
      else
        fmt::print("  {:44} not measured: {}\n", ceiling.what, ceiling.note);
    return 0;
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
  return 0;
}

}  // namespace corank
