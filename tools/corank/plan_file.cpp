#include "plan_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <ios>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <system_error>

#include "codec/codec.hpp"
#include "corank/error.hpp"
#include "corank/version.hpp"
#include "io/atomic_file.hpp"
#include "io/part_files.hpp"
#include "io/writer.hpp"
#include "statistics.hpp"
#include "util/digest.hpp"

namespace corank {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

// Replaces the file by one rename, whatever attempts write to it at the same time.
void replace(const std::filesystem::path& file, const Json& json) {
  std::filesystem::path written = file;
  written.replace_filename(fmt::format(".{}.{}", file.filename().string(), attempt_name()));
  try {
    const std::string text = text_of(json);
    const FileDescriptor out(
        ::open(written.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!out) throw_file_error(written, "create it");
    write_all(out, std::as_bytes(std::span(text)), written);
    if (::fsync(out.get()) != 0) throw_file_error(written, "make it durable");
    rename_file(written, file);
    make_name_durable(file);
  } catch (const Error&) {
    std::error_code nobody_to_tell;
    std::filesystem::remove(written, nobody_to_tell);
    throw;
  }
}

// Reads an object. `what` says what the file should be, and `remedy` what to do if it is not.
Json read_json(const std::filesystem::path& file, const char* what, const char* remedy) {
  constexpr int max_depth = 8;  // deeper values would overflow the stack when they are printed
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(fmt::format("{}: cannot open this {}; check its name", file.string(), what));
  std::string text;
  try {
    text.assign(std::istreambuf_iterator<char>(in), {});
  } catch (const std::ios_base::failure&) {  // a folder, say
    throw Error(fmt::format("{}: cannot be read; check that it is a {}", file.string(), what));
  }
  const auto is_kept = [](int depth, Json::parse_event_t, Json&) { return depth <= max_depth; };
  Json json = Json::parse(text, is_kept, false);
  if (!json.is_object())
    throw Error(fmt::format("{}: is not a {}; {}", file.string(), what, remedy));
  return json;
}

// Returns the number; throws if it is none, or not whole, or negative.
std::uint64_t whole_number(const Json& json) {
  if (!json.is_number_unsigned()) throw std::invalid_argument("no whole number");
  return json.get<std::uint64_t>();
}

// Returns the cuts of a plan of `num_runs` runs; throws if they cannot be such cuts.
std::vector<PartitionPlan::Cut> cuts_in(const Json& json, std::size_t num_runs) {
  std::vector<PartitionPlan::Cut> cuts;
  for (const Json& places : json) {
    PartitionPlan::Cut& cut = cuts.emplace_back();
    for (const Json& place : places) cut.push_back(whole_number(place));
    if (cut.size() != num_runs) throw std::invalid_argument("a cut of other runs");
    for (std::size_t run = 0; run < num_runs && cuts.size() > 1; ++run)
      if (cut[run] < cuts[cuts.size() - 2][run]) throw std::invalid_argument("a cut goes back");
  }
  if (cuts.size() < 2) throw std::invalid_argument("no partition");
  return cuts;
}

// Throws Error if the plan cannot hold the text: JSON is UTF-8.
void check_utf8(const std::string& text, const char* what) {
  try {
    (void)Json(text).dump();
  } catch (const Json::type_error&) {
    throw Error(
        fmt::format("{}: {} is not UTF-8 text, which a plan needs; choose another", text, what));
  }
}

std::string digest_of(Json json) {
  json.erase("digest");
  return hexadecimal(digest(json.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

std::uint64_t checksum_in(const Json& json) {
  return std::stoull(json.at("checksum").get<std::string>(), nullptr, 16);
}

std::optional<std::uint64_t> number_in(const char* text) {
  if (!text) return std::nullopt;
  std::uint64_t number = 0;
  const std::string_view digits = text;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  if (error != std::errc() || end != digits.end()) return std::nullopt;
  return number;
}

// Variables of a scheduler that number its tasks.
struct Scheduler {
  const char* number;
  const char* count;            // of tasks; null if there is none
  const char* first = nullptr;  // number of the first task; null if that is 0
  const char* step = nullptr;
};

// MPI's variables precede that of Slurm, whose value for all of them is that of the batch script.
constexpr std::array schedulers = {Scheduler{"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT",
                                             "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP"},
                                   Scheduler{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   Scheduler{"PMI_RANK", "PMI_SIZE"},
                                   Scheduler{"SLURM_PROCID", "SLURM_NTASKS"},
                                   Scheduler{"JOB_COMPLETION_INDEX", nullptr},
                                   Scheduler{"AWS_BATCH_JOB_ARRAY_INDEX", nullptr},
                                   Scheduler{"RANK", "WORLD_SIZE"}};

std::size_t partition_of(const Scheduler& scheduler, std::size_t partitions) {
  const auto value = [](const char* name, std::uint64_t absent) {
    const char* const text = name ? std::getenv(name) : nullptr;
    if (!text) return absent;
    const auto number = number_in(text);
    if (!number) throw Error(fmt::format("{}: \"{}\" is not a whole number", name, text));
    return *number;
  };
  const std::uint64_t count = value(scheduler.count, partitions);
  if (count != partitions)
    throw Error(
        fmt::format("{}: there are {} tasks and {} partitions; start as many, or name the "
                    "partition by --partition N",
                    scheduler.count, count, partitions));
  const std::uint64_t number = value(scheduler.number, 0), first = value(scheduler.first, 0),
                      step = std::max<std::uint64_t>(value(scheduler.step, 1), 1);
  if (number < first || (number - first) % step != 0 || (number - first) / step >= partitions)
    throw Error(fmt::format("{}: {} is not a task of the {} partitions, which begin at {}",
                            scheduler.number, number, partitions, first));
  return (number - first) / step;
}

const char* verb(const PlanFile& plan) {
  return plan.partitions.sorts ? "sort" : "merge";
}

// Returns the option, after a blank, for parts that are not in the folder beside their plan.
std::string folder_option(const std::filesystem::path& plan, const std::filesystem::path& folder) {
  return folder == folder_of_parts(plan, {}) ? "" : " --output-folder " + folder.string();
}

// Whoever reads all parts of the folder would read these, too.
void refuse_other_parts(const PlanFile& plan, const std::filesystem::path& folder, Codec codec) {
  std::set<std::filesystem::path> own;
  for (std::size_t i = 0; i < plan.partitions.size(); ++i) {
    const auto [part, record] = part_names(folder, i, codec);
    own.insert({part, record});
  }
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (is_part_name(entry.path().filename().string()) && !own.contains(entry.path()))
      throw Error(fmt::format("{}: is no part of this plan, and stands among its parts; remove it",
                              entry.path().string()));
}

}  // namespace

bool is_part_name(std::string_view name) {
  constexpr std::string_view part_prefix = "part-";
  if (!name.starts_with(part_prefix)) return false;
  name.remove_prefix(
      std::min(name.find_first_not_of("0123456789", part_prefix.size()), name.size()));
  return name == ".json" || std::ranges::count(all_suffixes(), name) != 0;
}

void check_is_none_of(const std::filesystem::path& file,
                      std::span<const std::filesystem::path> others) {
  std::error_code error;
  for (const std::filesystem::path& other : others)
    if (file != "-" && std::filesystem::equivalent(file, other, error))
      throw Error(
          fmt::format("{}: is also read by this command; name another file", file.string()));
}

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_file_error(to, "give it this name");
}

void make_name_durable(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) throw_file_error(folder, "open it");
  sync_folder(opened, folder);
}

void write_plan(const PlanFile& plan, const std::filesystem::path& file, bool overwrite,
                const std::stop_token& stop) {
  for (const std::string& word : plan.command) check_utf8(word, "this argument");
  for (const PartitionPlan::Input& run : plan.partitions.runs)
    check_utf8(run.path.string(), "this name");
  Json runs = Json::array();
  for (const PartitionPlan::Input& run : plan.partitions.runs)
    runs.push_back(
        {{"path", run.path.string()}, {"bytes", run.bytes}, {"modified_ns", run.modified_ns}});
  Json json = {{"corank_plan", version},
               {"command", plan.command},
               {"counts", plan.partitions.counts_bytes ? "bytes" : "records"},
               {"keeps_records", plan.partitions.keeps_records},
               {"sorts", plan.partitions.sorts},
               {"runs", std::move(runs)},
               {"cuts", plan.partitions.cuts}};
  if (plan.content) {
    json["records"] = plan.content->records;
    json["checksum"] = hexadecimal(plan.content->checksum);
  }
  if (plan.header_bytes) json["header_bytes"] = *plan.header_bytes;
  json["digest"] = digest_of(json);
  const std::string text = text_of(json);
  Writer writer(
      Destination(file), {.bytes = text.size()}, {.overwrite = overwrite},
      [](FileIdentity) { return false; }, stop);
  writer.resume_at(0, 0);
  writer.write(std::as_bytes(std::span(text)));
  writer.make_durable();
  writer.commit();
  if (AtomicFile* const written = writer.atomic()) written->forget_sidecar();
}

PlanFile read_plan(const std::filesystem::path& file) {
  const Json json = read_json(file, "plan", "make one by corank plan");
  if (!json.contains("corank_plan"))
    throw Error(file.string() + ": is not a plan; make one by corank plan");
  if (json["corank_plan"] != version)
    throw Error(
        fmt::format("{}: is a plan of corank {}, and this is corank {}; plan again, or run "
                    "that version",
                    file.string(), json["corank_plan"].dump(), version));
  PlanFile plan;
  plan.digest = digest_of(json);
  if (!json.contains("digest") || json["digest"] != plan.digest)
    throw Error(file.string() + ": was changed since corank wrote it; plan again");
  try {
    plan.command = json.at("command").get<std::vector<std::string>>();
    plan.partitions.counts_bytes = json.at("counts") == "bytes";
    plan.partitions.keeps_records = json.at("keeps_records").get<bool>();
    plan.partitions.sorts = json.at("sorts").get<bool>();
    if (json.contains("records"))
      plan.content = {whole_number(json["records"]), checksum_in(json), {}, {}};
    if (json.contains("header_bytes")) plan.header_bytes = whole_number(json["header_bytes"]);
    for (const Json& run : json.at("runs"))
      plan.partitions.runs.push_back({run.at("path").get<std::string>(),
                                      whole_number(run.at("bytes")),
                                      run.at("modified_ns").get<std::int64_t>()});
    plan.partitions.cuts = cuts_in(json.at("cuts"), plan.partitions.runs.size());
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: is damaged: {}; plan again", file.string(), error.what()));
  }
  return plan;
}

void write_record(const PartRecord& record, const std::filesystem::path& file) {
  replace(file, {{"plan", record.plan},
                 {"partition", record.partition},
                 {"records_read", record.records_read},
                 {"records_skipped", record.records_skipped},
                 {"records", record.content.records},
                 {"checksum", hexadecimal(record.content.checksum)},
                 {"bytes", record.bytes},
                 {"header_bytes", record.content.header_bytes},
                 {"first_key", record.content.first_key},
                 {"last_key", record.content.last_key}});
}

PartRecord read_record(const std::filesystem::path& file) {
  constexpr const char* remedy = "write the part again, with --force";
  const Json json = read_json(file, "record of a part", remedy);
  try {
    PartRecord record{.plan = json.at("plan").get<std::string>(),
                      .partition = json.at("partition").get<std::size_t>(),
                      .records_read = json.at("records_read").get<std::uint64_t>(),
                      .records_skipped = json.at("records_skipped").get<std::uint64_t>(),
                      .bytes = json.at("bytes").get<std::uint64_t>()};
    record.content.records = json.at("records").get<std::uint64_t>();
    record.content.checksum = checksum_in(json);
    record.content.header_bytes = whole_number(json.at("header_bytes"));
    record.content.first_key = json.at("first_key").get<std::string>();
    record.content.last_key = json.at("last_key").get<std::string>();
    return record;
  } catch (const std::exception&) {
    throw Error(fmt::format("{}: is not a record of a part; {}", file.string(), remedy));
  }
}

std::vector<PartRecord> read_records(const PlanFile& plan, const std::string& file,
                                     const std::filesystem::path& folder, Codec codec) {
  std::vector<PartRecord> records;
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < plan.partitions.size(); ++i) {
    const auto [part, record] = part_names(folder, i, codec);
    std::error_code error;
    const std::uint64_t bytes = std::filesystem::file_size(part, error);
    if (error || !std::filesystem::exists(record)) {
      missing.push_back(i);
      continue;
    }
    records.push_back(read_record(record));
    if (records.back().plan != plan.digest)
      throw Error(fmt::format("{}: is of another plan, {}, and not of {}; {}", part.string(),
                              records.back().plan, file, again(plan, file, folder, i)));
    if (records.back().partition != i)
      throw Error(fmt::format("{}: is partition {} by its record, {}; {}", part.string(),
                              records.back().partition, record.string(),
                              again(plan, file, folder, i)));
    if (bytes != records.back().bytes)
      throw Error(fmt::format("{}: has {} bytes, and {} when it was written; {}", part.string(),
                              bytes, records.back().bytes, again(plan, file, folder, i)));
    if (!plan.partitions.counts_bytes && records.back().records_read != plan.partitions.length(i))
      throw Error(fmt::format("{}: was made of {} records, and the plan has {}; {}", part.string(),
                              records.back().records_read, plan.partitions.length(i),
                              again(plan, file, folder, i)));
  }
  if (!missing.empty())
    throw Error(
        fmt::format("{}: {} lacks {} of {} partitions: {}; write them by corank {} --plan {}{} "
                    "--partition N",
                    file, folder.string(), missing.size(), plan.partitions.size(),
                    fmt::join(missing, ", "), verb(plan), file, folder_option(file, folder)));
  refuse_other_parts(plan, folder, codec);
  return records;
}

std::string again(const PlanFile& plan, const std::string& file,
                  const std::filesystem::path& folder, std::size_t partition) {
  return fmt::format("write it again by corank {} --plan {}{} --partition {} --force", verb(plan),
                     file, folder_option(file, folder), partition);
}

PartNames part_names(const std::filesystem::path& folder, std::size_t partition, Codec codec) {
  const auto number = static_cast<unsigned>(partition);
  return {folder / part_name(number, suffix_of(codec)), folder / part_name(number, ".json")};
}

std::filesystem::path folder_of_parts(const std::filesystem::path& plan,
                                      const std::string& folder) {
  return folder.empty() ? std::filesystem::path(plan).replace_extension(".parts")
                        : std::filesystem::path(folder);
}

std::string attempt_name() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  // Containers on one host may have the same process numbers.
  static const unsigned attempt = std::random_device()();
  return fmt::format("{}.{}.{:08x}", host.data(), ::getpid(), attempt);
}

std::size_t partition_number(const std::string& text, std::size_t count) {
  if (text != "auto") {
    const auto number = number_in(text.c_str());
    if (number && *number < count) return *number;
    throw Error(ErrorCode::options,
                fmt::format("--partition {}: the plan has partitions 0 to {}", text, count - 1));
  }
  for (const Scheduler& scheduler : schedulers)
    if (std::getenv(scheduler.number)) return partition_of(scheduler, count);
  std::string names;
  for (const Scheduler& scheduler : schedulers)
    names += (names.empty() ? "" : ", ") + std::string(scheduler.number);
  throw Error(ErrorCode::options, "--partition auto: no scheduler says which, by one of " + names +
                                      "; name the partition");
}

}  // namespace corank
