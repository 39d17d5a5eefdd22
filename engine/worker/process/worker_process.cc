// posix_spawn with exactly the descriptors a worker needs, and a pidfd to wait for its end.
#include "engine/worker/process/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr int kFirstUnused = kWorkerArena + 1;

absl::Status Failed(const std::string& what, int error) {
  const std::string message = what + ": " + std::strerror(error);
  return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

// A copy above all numbers that the new process uses, so that no dup2 there overwrites a source.
absl::StatusOr<Descriptor> Lifted(int fd) {
  Descriptor copy(fcntl(fd, F_DUPFD_CLOEXEC, kFirstUnused));
  if (copy.get() < 0) return Failed("duplicating a descriptor", errno);
  return copy;
}

struct FileActions {
  FileActions() { posix_spawn_file_actions_init(&actions); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t actions;
};

// No signal is blocked or ignored, and a terminal's interrupt, which is for the server to handle,
// does not reach it.
struct Attributes {
  Attributes() {
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~Attributes() { posix_spawnattr_destroy(&attributes); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  posix_spawnattr_t attributes;
};

// One of our descriptors, and its number in the new process.
struct Inherited {
  int fd, number;
};

// The numbers ascend.
absl::StatusOr<pid_t> Spawn(const WorkerProcess::Options& options,
                            const std::vector<Inherited>& inherited) {
  std::vector<Descriptor> sources;
  FileActions files;
  posix_spawn_file_actions_addopen(&files.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (const Inherited& each : inherited) {
    ASSIGN_OR_RETURN(Descriptor source, Lifted(each.fd));
    posix_spawn_file_actions_adddup2(&files.actions, source.get(), each.number);
    sources.push_back(std::move(source));
  }
  posix_spawn_file_actions_addclosefrom_np(&files.actions, inherited.back().number + 1);
  const Attributes attributes;
  std::string program = options.program;
  std::array<std::string, 3> flags = {"--rank=" + std::to_string(options.rank),
                                      "--server=" + std::to_string(getpid()), "--relay=1"};
  std::array<char*, 5> arguments = {program.data(), flags[0].data(), flags[1].data(),
                                    options.relay_fd < 0 ? nullptr : flags[2].data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, program.c_str(), &files.actions, &attributes.attributes,
                                arguments.data(), environ);
  if (error != 0) return Failed("starting " + options.program, error);
  return pid;
}

std::string Words(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return "exited with code " + std::to_string(info.si_status);
  const char* name = sigdescr_np(info.si_status);
  return "was killed by signal " + std::to_string(info.si_status) + " (" +
         (name == nullptr ? "?" : name) + ")";
}

}  // namespace

absl::StatusOr<WorkerProcess> WorkerProcess::Start(const Options& options) {
  WorkerProcess process;
  std::array<int, 2> ends;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Failed("a socket for a worker", errno);
  }
  process.socket_ = Descriptor(ends[0]);
  const Descriptor its_socket(ends[1]);
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Failed("a pipe for a worker", errno);
  process.output_ = Descriptor(ends[0]);
  const Descriptor its_output(ends[1]);
  // A read of it must not wait: the thread that reads has other workers too.
  if (fcntl(process.output(), F_SETFL, O_NONBLOCK) != 0) {
    return Failed("a pipe for a worker", errno);
  }
  std::vector<Inherited> inherited = {{its_output.get(), STDOUT_FILENO},
                                      {its_output.get(), STDERR_FILENO},
                                      {its_socket.get(), kWorkerSocket},
                                      {options.memory_fd, kWorkerMemory},
                                      {options.bell_fd, kWorkerBell}};
  if (options.arena_fd >= 0) inherited.push_back({options.arena_fd, kWorkerArena});
  if (options.relay_fd >= 0) inherited.push_back({options.relay_fd, kWorkerRelay});
  ASSIGN_OR_RETURN(process.pid_, Spawn(options, inherited));
  process.pidfd_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, process.pid_, 0)));
  if (process.pidfd() < 0) return Failed("pidfd_open", errno);
  return process;
}

WorkerProcess::~WorkerProcess() {
  // Moved from, or never started.
  if (socket_.get() < 0 || pid_ < 0 || !Ending().empty()) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void WorkerProcess::Signal(int number) {
  if (Ending().empty()) syscall(SYS_pidfd_send_signal, pidfd(), number, nullptr, 0);
}

std::string WorkerProcess::Ending() {
  if (!ending_.empty()) return ending_;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0) {
    if (errno == ECHILD) ending_ = "is gone";
  } else if (info.si_pid != 0) {
    ending_ = Words(info);
  }
  return ending_;
}

bool WorkerProcess::Stopped() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

bool WorkerProcess::AwaitEnd(double seconds) {
  pollfd ended{.fd = pidfd(), .events = POLLIN, .revents = 0};
  while (poll(&ended, 1, static_cast<int>(seconds * 1e3)) < 0 && errno == EINTR) {
  }
  return !Ending().empty();
}

}  // namespace quire
