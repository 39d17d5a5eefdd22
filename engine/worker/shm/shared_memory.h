// SharedMemory: a run of memory that this process shares with the processes it starts: a descriptor
// that they inherit, and a mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

// Owns a file descriptor and closes it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return fd_; }
  void Close();

 private:
  int fd_ = -1;
};

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMemory();

  // Creates a descriptor without memory, which can be inherited before the size is known.
  static absl::StatusOr<SharedMemory> Create(const char* name);
  // Sets the size of a descriptor from Create, once, and maps it. The memory is zeroed and sealed:
  // no process can shrink it under a reader.
  absl::Status Allocate(int64_t bytes);
  // Zeroed memory without a descriptor, which no process inherits. The system may give it huge
  // pages, which shared memory may not get.
  static absl::StatusOr<SharedMemory> Private(int64_t bytes);
  // Maps memory that another process has allocated; takes the descriptor.
  static absl::StatusOr<SharedMemory> Map(Descriptor fd);

  int fd() const { return fd_.get(); }
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  absl::Status MapAll(int64_t bytes, int flags);

  Descriptor fd_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace quire
