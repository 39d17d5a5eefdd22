// Makes system calls of a program fail as a FaultSchedule says. It is preloaded (LD_PRELOAD), so
// the program is the one that is shipped: its code has no place for faults. The functions below
// stand before those of the C library; what the C library calls inside itself is not seen.
//
// Without a schedule, and for threads inside the shim itself, every call goes straight on.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "tests/faults/fault_schedule.h"

namespace quire::faults {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// The C library's function of this name.
template <typename Function>
Function* Real(std::atomic<void*>& slot, const char* name) {
  void* found = slot.load(std::memory_order_acquire);
  if (found == nullptr) slot.store(found = dlsym(RTLD_NEXT, name), std::memory_order_release);
  return reinterpret_cast<Function*>(found);
}

// This thread is in the shim: its calls are the shim's own. In the model that takes no memory.
[[gnu::tls_model("initial-exec")]] thread_local bool inside = false;

class Inside {
 public:
  Inside() { inside = true; }
  ~Inside() { inside = false; }
};

class Faults {
 public:
  // The fault of this call; 0: it has none.
  int Of(std::string_view call, int fd, const char* path, uint64_t size = 0) {
    if (inside) return 0;
    const Inside guard;
    const int kept = errno;
    const int fault = Find(call, fd, path, size);
    errno = kept;
    return fault;
  }

  // How far a clock was moved.
  int64_t Jump(clockid_t clock) {
    if (inside) return 0;
    const Inside guard;
    // Without rules too: a steady clock keeps what it has moved.
    Ready();
    int64_t steady_ns = steady_ns_.load(), wall_ns = 0;
    const std::string_view which = clock == CLOCK_REALTIME ? "wall" : "steady";
    Lock();
    for (const Rule& rule : schedule_) {
      if (rule.effect != Rule::kJump || !Applies(rule, "clock_gettime")) continue;
      if (rule.clock == "wall") wall_ns += rule.jump_ns;
      if (rule.clock == "steady") steady_ns = std::max(steady_ns, rule.jump_ns);
    }
    Unlock();
    steady_ns_.store(steady_ns);
    return which == "wall" ? wall_ns : steady_ns;
  }

 private:
  bool Ready() {
    if (file_.load(std::memory_order_acquire) == nullptr) Open();
    unsigned char* const file = file_.load(std::memory_order_acquire);
    if (file == Nothing()) return false;
    const uint64_t version = VersionOf(file)->load(std::memory_order_acquire);
    if (version == version_.load(std::memory_order_acquire)) return schedule_.size() > 0;
    Lock();
    if (version != version_.load(std::memory_order_acquire)) {
      const char* const text = reinterpret_cast<const char*>(file + kTextAt);
      std::memcpy(text_, text, sizeof text_);
      text_[sizeof text_ - 1] = 0;
      if (!schedule_.Parse(text_)) {
        static constexpr std::string_view kWrong = "fault_shim: the schedule has a wrong line\n";
        syscall(SYS_write, 2, kWrong.data(), kWrong.size());
        _exit(97);
      }
      version_.store(version, std::memory_order_release);
    }
    Unlock();
    return schedule_.size() > 0;
  }

  void Open() {
    unsigned char* file = Nothing();
    if (const char* const path = getenv(kFileVariable)) {
      const long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
      if (fd >= 0) {
        const long data =
            syscall(SYS_mmap, 0, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (data > 0) file = reinterpret_cast<unsigned char*>(data);
        syscall(SYS_close, fd);
      }
    }
    unsigned char* none = nullptr;
    file_.compare_exchange_strong(none, file, std::memory_order_acq_rel);
  }

  int Find(std::string_view call, int fd, const char* path, uint64_t size) {
    if (!Ready()) return 0;
    char name[512];
    bool named = false;
    int fault = 0;
    Lock();
    for (size_t i = 0; i < schedule_.size() && fault == 0; ++i) {
      const Rule& rule = schedule_.begin()[i];
      if (rule.effect == Rule::kJump || !Applies(rule, call) || size < rule.size) continue;
      if (!rule.path.empty()) {
        if (!std::exchange(named, true)) NameOf(fd, path, name, sizeof name);
        if (std::string_view(name).find(rule.path) == std::string_view::npos) continue;
      }
      std::atomic<uint64_t>* const counts = CountsOf(i);
      const uint64_t n = counts[0].fetch_add(1) + 1;
      if (!FaultSchedule::Fails(rule, n, counts[1].load())) continue;
      counts[1].fetch_add(1);
      fault = rule.effect;
    }
    Unlock();
    return fault;
  }

  static bool Applies(const Rule& rule, std::string_view call) {
    if (!rule.Names(call)) return false;
    return rule.program.empty() || rule.program == program_invocation_short_name;
  }

  static void NameOf(int fd, const char* path, char* name, size_t size) {
    name[0] = 0;
    if (path != nullptr) {
      std::strncpy(name, path, size - 1);
      name[size - 1] = 0;
      return;
    }
    if (fd < 0) return;
    char link[32];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const long length = syscall(SYS_readlink, link, name, size - 1);
    name[length > 0 ? length : 0] = 0;
  }

  static std::atomic<uint64_t>* VersionOf(unsigned char* file) {
    return reinterpret_cast<std::atomic<uint64_t>*>(file);
  }
  std::atomic<uint64_t>* CountsOf(size_t rule) {
    return reinterpret_cast<std::atomic<uint64_t>*>(file_.load() + kCountsAt) + 2 * rule;
  }
  // In the place of a file where there is none.
  static unsigned char* Nothing() {
    static unsigned char nothing;
    return &nothing;
  }

  void Lock() {
    while (busy_.exchange(true, std::memory_order_acquire)) syscall(SYS_sched_yield);
  }
  void Unlock() { busy_.store(false, std::memory_order_release); }

  std::atomic<unsigned char*> file_{nullptr};
  std::atomic<uint64_t> version_{0};
  std::atomic<bool> busy_{false};
  std::atomic<int64_t> steady_ns_{0};
  // Under busy_.
  char text_[kCountsAt - kTextAt] = {};
  FaultSchedule schedule_;
};

constinit Faults faults;

// True if the call has failed, with errno set.
bool Failed(int fault) {
  if (fault > 0) errno = fault;
  return fault > 0;
}

// Half of the bytes, at least one.
size_t Cut(int fault, size_t count) {
  return fault == Rule::kShort && count > 1 ? count / 2 : count;
}

// The real call of one buffer.
template <typename Call>
ssize_t Transfer(const char* name, int fd, size_t count, Call call) {
  const int fault = faults.Of(name, fd, nullptr);
  if (Failed(fault)) return -1;
  if (fault == Rule::kEmpty) return 0;
  return call(Cut(fault, count));
}

// The same of several buffers: a short call moves half of the first.
template <typename Call>
ssize_t TransferPieces(const char* name, int fd, const iovec* pieces, size_t count, Call call) {
  const int fault = faults.Of(name, fd, nullptr);
  if (Failed(fault)) return -1;
  if (fault == Rule::kEmpty) return 0;
  if (fault != Rule::kShort || count == 0) return call(pieces, count);
  const iovec half{pieces[0].iov_base, Cut(fault, pieces[0].iov_len)};
  return call(&half, 1);
}

// The name in a schedule of an fcntl call: each command fails for reasons of its own.
std::string_view NameOfCommand(int command) {
  if (command == F_ADD_SEALS) return "F_ADD_SEALS";
  if (command == F_SETFL) return "F_SETFL";
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? "F_DUPFD" : "fcntl";
}

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

// The time of the machine's clock at which the moved clock shows `time`.
timespec Unmoved(clockid_t clock, const timespec& time) {
  const int64_t ns = std::max<int64_t>(0, Nanoseconds(time) - faults.Jump(clock));
  return {.tv_sec = ns / kSecond, .tv_nsec = ns % kSecond};
}

}  // namespace
}  // namespace quire::faults

using namespace quire::faults;

#define REAL(name)                            \
  ([] {                                       \
    static std::atomic<void*> slot;           \
    return Real<decltype(name)>(slot, #name); \
  }())

extern "C" {

// --- Files.

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = va_arg(list, mode_t);
  va_end(list);
  return Failed(faults.Of("open", -1, path)) ? -1 : REAL(open)(path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  return Failed(faults.Of("open", -1, path)) ? nullptr : REAL(fopen)(path, mode);
}
DIR* opendir(const char* path) {
  return Failed(faults.Of("opendir", -1, path)) ? nullptr : REAL(opendir)(path);
}
dirent* readdir(DIR* folder) {
  return Failed(faults.Of("readdir", dirfd(folder), nullptr)) ? nullptr : REAL(readdir)(folder);
}
dirent64* readdir64(DIR* folder) {
  return Failed(faults.Of("readdir", dirfd(folder), nullptr)) ? nullptr : REAL(readdir64)(folder);
}
int stat(const char* path, struct stat* facts) noexcept {
  return Failed(faults.Of("stat", -1, path)) ? -1 : REAL(stat)(path, facts);
}
int fstat(int fd, struct stat* facts) noexcept {
  return Failed(faults.Of("fstat", fd, nullptr)) ? -1 : REAL(fstat)(fd, facts);
}
int lstat(const char* path, struct stat* facts) noexcept {
  return Failed(faults.Of("lstat", -1, path)) ? -1 : REAL(lstat)(path, facts);
}
int chmod(const char* path, mode_t mode) noexcept {
  return Failed(faults.Of("chmod", -1, path)) ? -1 : REAL(chmod)(path, mode);
}
int flock(int fd, int operation) noexcept {
  return Failed(faults.Of("flock", fd, nullptr)) ? -1 : REAL(flock)(fd, operation);
}
int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (Failed(faults.Of(NameOfCommand(command), fd, nullptr))) return -1;
  return REAL(fcntl)(fd, command, argument);
}
int pipe2(int ends[2], int flags) noexcept {
  return Failed(faults.Of("pipe2", -1, nullptr)) ? -1 : REAL(pipe2)(ends, flags);
}
int rename(const char* from, const char* to) noexcept {
  return Failed(faults.Of("rename", -1, from)) ? -1 : REAL(rename)(from, to);
}
int unlink(const char* path) noexcept {
  return Failed(faults.Of("unlink", -1, path)) ? -1 : REAL(unlink)(path);
}
int ftruncate(int fd, off_t size) noexcept {
  return Failed(faults.Of("ftruncate", fd, nullptr)) ? -1 : REAL(ftruncate)(fd, size);
}
int fsync(int fd) { return Failed(faults.Of("fsync", fd, nullptr)) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) {
  return Failed(faults.Of("fdatasync", fd, nullptr)) ? -1 : REAL(fdatasync)(fd);
}
ssize_t read(int fd, void* out, size_t count) {
  return Transfer("read", fd, count, [=](size_t n) { return REAL(read)(fd, out, n); });
}
ssize_t __read_chk(int fd, void* out, size_t count, size_t) {
  return Transfer("read", fd, count, [=](size_t n) { return REAL(read)(fd, out, n); });
}
ssize_t pread(int fd, void* out, size_t count, off_t at) {
  return Transfer("pread", fd, count, [=](size_t n) { return REAL(pread)(fd, out, n, at); });
}
ssize_t __pread_chk(int fd, void* out, size_t count, off_t at, size_t) {
  return Transfer("pread", fd, count, [=](size_t n) { return REAL(pread)(fd, out, n, at); });
}
ssize_t write(int fd, const void* from, size_t count) {
  return Transfer("write", fd, count, [=](size_t n) { return REAL(write)(fd, from, n); });
}
ssize_t pwrite(int fd, const void* from, size_t count, off_t at) {
  return Transfer("pwrite", fd, count, [=](size_t n) { return REAL(pwrite)(fd, from, n, at); });
}
ssize_t readv(int fd, const iovec* pieces, int count) {
  return TransferPieces(
      "read", fd, pieces, static_cast<size_t>(count),
      [=](const iovec* p, size_t n) { return REAL(readv)(fd, p, static_cast<int>(n)); });
}
ssize_t writev(int fd, const iovec* pieces, int count) {
  return TransferPieces(
      "write", fd, pieces, static_cast<size_t>(count),
      [=](const iovec* p, size_t n) { return REAL(writev)(fd, p, static_cast<int>(n)); });
}
ssize_t preadv(int fd, const iovec* pieces, int count, off_t at) {
  return TransferPieces(
      "pread", fd, pieces, static_cast<size_t>(count),
      [=](const iovec* p, size_t n) { return REAL(preadv)(fd, p, static_cast<int>(n), at); });
}

// The same functions by the names for large files: offsets have 64 bits in any case.
decltype(open) open64 [[gnu::alias("open")]];
decltype(fopen) fopen64 [[gnu::alias("fopen")]];
decltype(fcntl) fcntl64 [[gnu::alias("fcntl")]];
decltype(ftruncate) ftruncate64 [[gnu::alias("ftruncate")]];
decltype(pread) pread64 [[gnu::alias("pread")]];
decltype(__pread_chk) __pread64_chk [[gnu::alias("__pread_chk")]];
decltype(pwrite) pwrite64 [[gnu::alias("pwrite")]];
decltype(preadv) preadv64 [[gnu::alias("preadv")]];
decltype(mmap) mmap64 [[gnu::alias("mmap")]];

// --- Memory.

void* mmap(void* place, size_t bytes, int protection, int flags, int fd, off_t at) noexcept {
  if (Failed(faults.Of("mmap", fd, nullptr, bytes))) return MAP_FAILED;
  return REAL(mmap)(place, bytes, protection, flags, fd, at);
}
int madvise(void* place, size_t bytes, int advice) noexcept {
  return Failed(faults.Of("madvise", -1, nullptr, bytes)) ? -1
                                                          : REAL(madvise)(place, bytes, advice);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  return Failed(faults.Of("memfd_create", -1, name)) ? -1 : REAL(memfd_create)(name, flags);
}
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* malloc(size_t bytes) {
  return Failed(faults.Of("malloc", -1, nullptr, bytes)) ? nullptr : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  return Failed(faults.Of("malloc", -1, nullptr, count * bytes)) ? nullptr
                                                                 : __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  return Failed(faults.Of("malloc", -1, nullptr, bytes)) ? nullptr : __libc_realloc(old, bytes);
}

// --- Sockets, processes and threads.

int socket(int domain, int type, int protocol) noexcept {
  return Failed(faults.Of("socket", -1, nullptr)) ? -1 : REAL(socket)(domain, type, protocol);
}
int bind(int fd, const sockaddr* address, socklen_t size) noexcept {
  return Failed(faults.Of("bind", fd, nullptr)) ? -1 : REAL(bind)(fd, address, size);
}
int listen(int fd, int backlog) noexcept {
  return Failed(faults.Of("listen", fd, nullptr)) ? -1 : REAL(listen)(fd, backlog);
}
int connect(int fd, const sockaddr* address, socklen_t size) {
  return Failed(faults.Of("connect", fd, nullptr)) ? -1 : REAL(connect)(fd, address, size);
}
int getsockname(int fd, sockaddr* address, socklen_t* size) noexcept {
  return Failed(faults.Of("getsockname", fd, nullptr)) ? -1 : REAL(getsockname)(fd, address, size);
}
int setsockopt(int fd, int level, int option, const void* value, socklen_t size) noexcept {
  if (Failed(faults.Of("setsockopt", fd, nullptr))) return -1;
  return REAL(setsockopt)(fd, level, option, value, size);
}
int socketpair(int domain, int type, int protocol, int ends[2]) noexcept {
  if (Failed(faults.Of("socketpair", -1, nullptr))) return -1;
  return REAL(socketpair)(domain, type, protocol, ends);
}
int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  if (Failed(faults.Of("accept", fd, nullptr))) return -1;
  return REAL(accept4)(fd, address, size, flags);
}
int accept(int fd, sockaddr* address, socklen_t* size) {
  return Failed(faults.Of("accept", fd, nullptr)) ? -1 : REAL(accept)(fd, address, size);
}
ssize_t recv(int fd, void* out, size_t count, int flags) {
  return Transfer("recv", fd, count, [=](size_t n) { return REAL(recv)(fd, out, n, flags); });
}
ssize_t __recv_chk(int fd, void* out, size_t count, size_t, int flags) {
  return Transfer("recv", fd, count, [=](size_t n) { return REAL(recv)(fd, out, n, flags); });
}
ssize_t send(int fd, const void* from, size_t count, int flags) {
  return Transfer("send", fd, count, [=](size_t n) { return REAL(send)(fd, from, n, flags); });
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return TransferPieces("recvmsg", fd, message->msg_iov, message->msg_iovlen,
                        [=](const iovec* pieces, size_t n) {
                          msghdr part = *message;
                          part.msg_iov = const_cast<iovec*>(pieces);
                          part.msg_iovlen = n;
                          const ssize_t result = REAL(recvmsg)(fd, &part, flags);
                          part.msg_iov = message->msg_iov;
                          part.msg_iovlen = message->msg_iovlen;
                          *message = part;
                          return result;
                        });
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return TransferPieces("sendmsg", fd, message->msg_iov, message->msg_iovlen,
                        [=](const iovec* pieces, size_t n) {
                          msghdr part = *message;
                          part.msg_iov = const_cast<iovec*>(pieces);
                          part.msg_iovlen = n;
                          return REAL(sendmsg)(fd, &part, flags);
                        });
}
int poll(pollfd* places, nfds_t count, int milliseconds) {
  return Failed(faults.Of("poll", -1, nullptr)) ? -1 : REAL(poll)(places, count, milliseconds);
}
int __poll_chk(pollfd* places, nfds_t count, int milliseconds, size_t) {
  return Failed(faults.Of("poll", -1, nullptr)) ? -1 : REAL(poll)(places, count, milliseconds);
}
int epoll_wait(int fd, epoll_event* events, int count, int milliseconds) {
  if (Failed(faults.Of("epoll_wait", fd, nullptr))) return -1;
  return REAL(epoll_wait)(fd, events, count, milliseconds);
}
int eventfd(unsigned value, int flags) noexcept {
  return Failed(faults.Of("eventfd", -1, nullptr)) ? -1 : REAL(eventfd)(value, flags);
}
int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const arguments[],
                char* const environment[]) {
  const int fault = faults.Of("posix_spawn", -1, path);
  if (fault > 0) return fault;
  return REAL(posix_spawn)(pid, path, actions, attributes, arguments, environment);
}
int waitid(idtype_t kind, id_t id, siginfo_t* facts, int options) {
  return Failed(faults.Of("waitid", -1, nullptr)) ? -1 : REAL(waitid)(kind, id, facts, options);
}
pid_t waitpid(pid_t pid, int* status, int options) {
  return Failed(faults.Of("waitpid", -1, nullptr)) ? -1 : REAL(waitpid)(pid, status, options);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  const int fault = faults.Of("pthread_create", -1, nullptr);
  return fault > 0 ? fault : REAL(pthread_create)(thread, attributes, body, argument);
}

// --- Time and sleep. Waits until a time of a moved clock end when the clock shows it.

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = REAL(clock_gettime)(clock, time);
  const int64_t jump_ns = faults.Jump(clock);
  if (result != 0 || jump_ns == 0) return result;
  const int64_t ns = Nanoseconds(*time) + jump_ns;
  *time = {.tv_sec = ns / kSecond, .tv_nsec = ns % kSecond};
  return 0;
}
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* time) {
  const timespec unmoved = Unmoved(clock, *time);
  return REAL(pthread_cond_clockwait)(condition, mutex, clock, &unmoved);
}
long syscall(long number, ...) noexcept {
  long a[6];
  va_list list;
  va_start(list, number);
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  const bool waits = number == SYS_futex && (a[1] & FUTEX_CMD_MASK) != FUTEX_WAKE;
  timespec unmoved{};
  if (waits) {
    if (Failed(faults.Of("futex", -1, nullptr))) return -1;
    if ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && a[3] != 0) {
      const bool wall = (a[1] & FUTEX_CLOCK_REALTIME) != 0;
      unmoved = Unmoved(wall ? CLOCK_REALTIME : CLOCK_MONOTONIC,
                        *reinterpret_cast<const timespec*>(a[3]));
      a[3] = reinterpret_cast<long>(&unmoved);
    }
  }
  return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"
