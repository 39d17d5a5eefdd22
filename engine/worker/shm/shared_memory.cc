// A sealed memfd.
#include "engine/worker/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "engine/base/status_macros.h"

namespace quire {
namespace {

absl::Status Failed(const std::string& what) {
  return absl::ResourceExhaustedError("shared memory: " + what + ": " + std::strerror(errno));
}

}  // namespace

void Descriptor::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

absl::StatusOr<SharedMemory> SharedMemory::Create(const char* name) {
  SharedMemory memory;
  memory.fd_ = Descriptor(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.fd() < 0) return Failed("memfd_create");
  return memory;
}

absl::Status SharedMemory::Allocate(int64_t bytes) {
  if (ftruncate(fd(), bytes) != 0) return Failed("ftruncate to " + std::to_string(bytes));
  if (fcntl(fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Failed("sealing");
  }
  return MapAll(bytes, MAP_SHARED);
}

absl::StatusOr<SharedMemory> SharedMemory::Private(int64_t bytes) {
  SharedMemory memory;
  RETURN_IF_ERROR(memory.MapAll(bytes, MAP_PRIVATE | MAP_ANONYMOUS));
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::Map(Descriptor fd) {
  SharedMemory memory;
  memory.fd_ = std::move(fd);
  struct stat info {};
  if (fstat(memory.fd(), &info) != 0) return Failed("fstat");
  RETURN_IF_ERROR(memory.MapAll(info.st_size, MAP_SHARED));
  return memory;
}

absl::Status SharedMemory::MapAll(int64_t bytes, int flags) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags, fd(), 0);
  if (data == MAP_FAILED) return Failed("mapping " + std::to_string(bytes) + " bytes");
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
  return absl::OkStatus();
}

}  // namespace quire
