// Tests of the program on unusual systems: containers, batch jobs, file systems without locks,
// files that cannot be replaced, and interrupted merges that are worth resuming.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "io/atomic_file.hpp"
#include "support/program.hpp"

using namespace corank;
using namespace corank::test;

namespace {

// The call by which std::rename() renames a file.
#ifdef SYS_rename
constexpr unsigned rename_call = SYS_rename;
#else
constexpr unsigned rename_call = SYS_renameat;  // 64-bit ARM
#endif

// Makes a system call fail with `error` in this process. Without `first`, each such call fails;
// otherwise those whose first argument is that value.
void make_fail(unsigned call, unsigned error, int first = -1) {
  const auto wanted = static_cast<unsigned>(first);
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, wanted, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  if (first < 0) filter[3] = BPF_STMT(BPF_LD | BPF_IMM, 0);
  struct sock_fprog program {
    static_cast<unsigned short>(std::size(filter)), filter
  };
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    ::_exit(126);
}

// Two runs of lines and an output.
struct SystemFiles {
  SystemFiles() {
    write_file(a, bytes_of_text("a\nc\n"));
    write_file(b, bytes_of_text("b\n"));
  }
  Result merge(const Strings& options, const Environment& setting = {}) const {
    Strings all{"merge", "--lines", "--backend", "cpu"};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), {a, b});
    return run(all, setting);
  }

  TemporaryFolder folder;
  std::string a = folder / "a", b = folder / "b", output = folder / "output";
};

// Enters a mount namespace, as root of a user namespace if this process is not root. Returns false
// if that is not permitted.
bool enter_mount_namespace() {
  if (const unsigned user = ::getuid(); user != 0) {
    if (::unshare(CLONE_NEWUSER) != 0) return false;
    const FileDescriptor map(::open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC));
    const std::string text = "0 " + std::to_string(user) + " 1";
    if (::write(map.get(), text.data(), text.size()) < 0) return false;
  }
  return ::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", "", MS_REC | MS_PRIVATE, "") == 0;
}

// Changes the times of a file to the start of 1970.
void make_old(const std::filesystem::path& file) {
  const struct timespec times[2]{};
  REQUIRE(::utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
}

}  // namespace

TEST_CASE("a batch job and the affinity limit threads and memory, and explanations say so") {
  const SystemFiles files;
  Environment job;
  job.before_exec = [] {
    ::setenv("SLURM_MEM_PER_NODE", "256", 1);
    ::setenv("SLURM_CPUS_PER_TASK", "1", 1);
  };
  const std::string shown = files.merge({"--explain"}, job).out;
  INFO(shown);
  CHECK(holds(shown, "64.0 MiB for buffers (limit of the Slurm job)"));
  const bool has_one = ::sysconf(_SC_NPROCESSORS_ONLN) == 1;
  CHECK((has_one || holds(shown, "1 thread (limit of the Slurm job)")));
  CHECK(!holds(files.merge({"--explain", "-T", "2", "-m", "64M"}, job).out, "Slurm"));
  Environment pinned;
  pinned.before_exec = [] {
    cpu_set_t before, one;
    ::sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&one);
    int first = 0;
    while (!CPU_ISSET(first, &before)) ++first;
    CPU_SET(first, &one);
    ::sched_setaffinity(0, sizeof one, &one);
  };
  CHECK(
      (has_one || holds(files.merge({"--explain"}, pinned).out, "1 thread (processor affinity)")));
}

TEST_CASE("a file system without locks has another guard") {
  const SystemFiles files;
  Environment unlocked;
  unlocked.before_exec = [] { make_fail(SYS_flock, ENOSYS); };
  const Result first = files.merge({"-o", files.output}, unlocked);
  INFO(first.err);
  REQUIRE(first.code == 0);
  CHECK(text_of(files.output) == "a\nb\nc\n");
  // Another merge may be writing a temporary file that was just changed.
  const auto temporary = files.folder / ".output.corank";
  write_file(temporary, bytes_of_text("a"));
  const Result second = files.merge({"-f", "-o", files.output}, unlocked);
  CHECK(second.code == 2);
  CHECK(holds(second.err, ".output.corank changed within the last minute"));
  CHECK(std::filesystem::exists(temporary));
  make_old(temporary);
  CHECK(files.merge({"-f", "-o", files.output}, unlocked).code == 0);
  CHECK(!std::filesystem::exists(temporary));
}

TEST_CASE("an output whose name may not be durable is said to be in place and whole") {
  std::size_t num_found = 0;
  for (int descriptor = 3; descriptor < 32; ++descriptor) {
    const SystemFiles files;
    Environment failing;
    failing.before_exec = [=] { make_fail(SYS_fsync, EIO, descriptor); };
    const Result result = files.merge({"-o", files.output}, failing);
    if (result.code == 0) continue;
    INFO(result.err);
    CHECK(result.code == 2);
    if (holds(result.err, "is in place and whole")) {
      ++num_found;
      CHECK(text_of(files.output) == "a\nb\nc\n");
    } else {
      CHECK(!std::filesystem::exists(files.output));
    }
  }
  CHECK(num_found == 1);
}

TEST_CASE("a partial output that a checkpoint could not make durable is not kept") {
  const SystemFiles files;
  const auto temporary = files.folder / ".output.corank";
  for (const bool fails : {true, false}) {
    bool is_kept = !fails;
    std::thread([&] {  // calls fail in this thread and in those that it starts
      if (fails) make_fail(SYS_fdatasync, EIO);
      AtomicFile file(files.output, {.digest = 1, .bytes = 8}, {.resume = true},
                      [](FileIdentity) { return false; });
      file.keep(0);
      write_all(file.descriptor(), bytes_of_text("abcd"), temporary);
      file.checkpoint(4);
      is_kept = file.leave();
    })
        .join();
    CHECK(is_kept != fails);
    CHECK(std::filesystem::exists(temporary) != fails);
  }
}

TEST_CASE("a part that cannot replace an old one is an error, though that one is there") {
  const SystemFiles files;
  const std::string plan = files.folder / "plan.json", parts = files.folder / "plan.parts";
  REQUIRE(
      run({"plan", "merge", "--lines", "--partitions", "1", "-o", plan, files.a, files.b}).code ==
      0);
  const Strings merge{"merge", "--plan", plan, "--partition", "0", "-f", "--resume"};
  REQUIRE(run(merge).code == 0);
  std::filesystem::copy(parts, parts + "/.part-00000.resume");  // as an attempt that was killed
  write_file(parts + "/part-00000", bytes_of_text("a\nx\nc\n"));
  Environment failing;
  failing.before_exec = [] { make_fail(rename_call, EACCES); };
  const Result failed = run(merge, failing);
  INFO(failed.err);
  CHECK(failed.code == 2);
  CHECK(run(merge).code == 0);
  CHECK(text_of(parts + "/part-00000") == "a\nb\nc\n");
}

TEST_CASE("a sort to parts that was killed while they got their names goes on") {
  const TemporaryFolder folder;
  const std::string input = folder / "input", output = folder / "output";
  std::string records;
  for (int i = 0; i < 3000; ++i) records += std::to_string(1000 + i * 7919 % 9000);
  write_file(input, bytes_of_text(records));
  const Strings sort{"sort",      "-r",  "k:bytes4", "--parts", "3",  "--resume",
                     "--backend", "cpu", "-o",       output,    input};
  Environment failing;
  failing.before_exec = [] { make_fail(SYS_renameat2, EIO); };
  REQUIRE(run(sort, failing).code == 2);
  REQUIRE(::rename((output + "/.part-00000.corank").c_str(), (output + "/part-00000").c_str()) ==
          0);
  const Result resumed = run(sort);
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  std::string parts;
  for (const char* part : {"/part-00000", "/part-00001", "/part-00002"})
    parts += text_of(output + part);
  const Result whole = run({"sort", "-r", "k:bytes4", "--backend", "cpu", input});
  CHECK(parts == whole.out);
}

TEST_CASE("files are read also where io_uring may be set up, but not used") {
  const TemporaryFolder folder;
  const std::string input = folder / "run";
  write_file(input, Bytes(std::size_t{1} << 20));
  const Strings merge{"merge", "-r", "k:u64", "--io", "direct", "--backend", "cpu", input, input};
  if (run(merge).code != 0) return;  // the file system refuses direct reads
  for (const unsigned error : {EPERM, EIO, ENOMEM}) {
    Environment failing;
    failing.before_exec = [=] { make_fail(SYS_io_uring_enter, error); };
    const Result result = run(merge, failing);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(result.out.size() == std::size_t{2} << 20);
  }
}

TEST_CASE("a standard output that cannot be made durable is an error") {
  const SystemFiles files;
  Environment failing;
  failing.before_exec = [] { make_fail(SYS_fsync, EIO); };
  const Result result = files.merge({}, failing);
  INFO(result.err);
  CHECK(result.code == 2);
  CHECK(holds(result.err, "standard output: cannot make durable"));
}

TEST_CASE("an output that no file can replace is overwritten, and a warning says so") {
  // The output is a mount point, or another user's in a folder like /tmp.
  for (const unsigned error : {EBUSY, EPERM}) {
    const SystemFiles files;
    write_file(files.output, bytes_of_text("an old output, which is longer"));
    Environment busy;
    busy.before_exec = [=] { make_fail(rename_call, error); };
    const Result result = files.merge({"-f", "-o", files.output}, busy);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(holds(result.err, "no file can replace it"));
    CHECK(text_of(files.output) == "a\nb\nc\n");
    CHECK(!std::filesystem::exists(files.folder / ".output.corank"));
    CHECK(!std::filesystem::exists(files.folder / ".output.corank-resume"));
  }
}

TEST_CASE("a mount point is overwritten once the merge is done") {
  const SystemFiles files;
  const std::string shared = files.folder / "shared";
  write_file(files.output, bytes_of_text("below"));
  write_file(shared, bytes_of_text("an old output, which is longer"));
  Environment mounted;
  mounted.before_exec = [&] {
    if (!enter_mount_namespace() ||
        ::mount(shared.c_str(), files.output.c_str(), "", MS_BIND, "") != 0)
      ::_exit(126);
  };
  const Result refused = files.merge({"-o", files.output}, mounted);
  if (refused.code == 126) {
    WARN("not checked: files cannot be mounted here");
    return;
  }
  CHECK(refused.code == 2);  // it exists
  CHECK(files.merge({"-f", "--resume", "-o", files.output}, mounted).code == 2);
  CHECK(files.merge({"-f", "--temp", files.folder / "none", "-o", files.output}, mounted).code ==
        2);
  write_file(files.b, bytes_of_text("b\na\n"));
  CHECK(files.merge({"-f", "-o", files.output}, mounted).code == 1);
  write_file(files.b, bytes_of_text("b\n"));
  CHECK(text_of(shared) == "an old output, which is longer");
  const Result result = files.merge({"-f", "-o", files.output}, mounted);
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(holds(result.err, "the finished output is copied into it"));
  CHECK(text_of(shared) == "a\nb\nc\n");
  CHECK(text_of(files.output) == "below");
}

TEST_CASE("a file in a folder that cannot be written to is overwritten") {
  const SystemFiles files;
  write_file(files.output, bytes_of_text("an old output, which is longer"));
  REQUIRE(::chmod(files.output.c_str(), 0666) == 0);
  REQUIRE(::chmod(files.folder.path().c_str(), 0555) == 0);
  Environment other_user;
  if (::getuid() == 0)
    other_user.before_exec = [] {
      constexpr unsigned nobody = 65534;
      if (::setgid(nobody) != 0 || ::setuid(nobody) != 0) ::_exit(126);
    };
  if (run({"--version"}, other_user).code != 0) {
    WARN("not checked: the program is in a folder that other users cannot enter");
    return;
  }
  write_file(files.b, bytes_of_text("b\na\n"));
  CHECK(files.merge({"-f", "-o", files.output}, other_user).code == 1);
  CHECK(text_of(files.output) == "an old output, which is longer");
  write_file(files.b, bytes_of_text("b\n"));
  const Result result = files.merge({"-f", "-o", files.output}, other_user);
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(holds(result.err, "the finished output is copied into it"));
  CHECK(text_of(files.output) == "a\nb\nc\n");
  REQUIRE(::chmod(files.output.c_str(), 0444) == 0);
  CHECK(holds(files.merge({"-f", "-o", files.output}, other_user).err, "overwrite"));
  CHECK(text_of(files.output) == "a\nb\nc\n");
  REQUIRE(::chmod(files.folder.path().c_str(), 0755) == 0);
}

TEST_CASE("an interrupted merge keeps much output, and names a run that changed since") {
  const TemporaryFolder folder;
  const std::string runs = folder / "runs", output = folder / "output";
  REQUIRE(run({"gen", "-r", "key:u64", "--records", "32000000", "--runs", "4", "-o", runs}).code ==
          0);
  Strings merge{"merge", "-r", "key:u64", "--backend", "cpu", "-m", "700K", "-o", output};
  for (int i = 0; i < 4; ++i) merge.push_back(runs + "/run-0000" + std::to_string(i) + ".bin");
  Environment stopping;
  stopping.before_exec = give_way;
  stopping.while_running = [&](pid_t child) {
    wait_until([&] {
      std::error_code error;
      const auto bytes = std::filesystem::file_size(folder / ".output.corank", error);
      return (!error && bytes > 80'000'000) || has_ended(child);
    });
    ::kill(child, SIGINT);
  };
  const Result stopped = run(merge, stopping);
  INFO(stopped.err);
  REQUIRE(stopped.code == 130);
  CHECK(holds(stopped.err, "what was written is kept; with --resume"));
  CHECK(std::filesystem::exists(folder / ".output.corank"));
  merge.insert(merge.end(), {"--resume", "--stats", "-"});
  SECTION("it goes on") {
    const Result resumed = run(merge);
    REQUIRE(resumed.code == 0);
    CHECK(nlohmann::json::parse(resumed.out)["resumed_bytes"] > 60'000'000);
    CHECK(std::filesystem::file_size(output) == 256'000'000);
    CHECK(run({"check", "-r", "key:u64", output}).code == 0);
  }
  SECTION("a run was touched") {
    REQUIRE(::utimensat(AT_FDCWD, merge[9].c_str(), nullptr, 0) == 0);
    const Result anew = run(merge);
    CHECK(anew.code == 0);
    CHECK(holds(anew.err, merge[9] + " was written to since; starting over"));
  }
}
