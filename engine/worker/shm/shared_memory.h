// SharedMemory: one run of memory that this process and those it starts both see: a descriptor to
// be inherited, and a mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

// Closes what it owns.
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

  // A descriptor without memory yet, so that it can be inherited before the size is known.
  static absl::StatusOr<SharedMemory> Create(const char* name);
  // Gives what Create made its size, zeros, for good (nobody can shrink it under a reader), and
  // maps it.
  absl::Status Allocate(int64_t bytes);
  // Memory that nobody inherits, zeros, without a descriptor: the system gives it in huge pages,
  // which it may not do for shared ones.
  static absl::StatusOr<SharedMemory> Private(int64_t bytes);
  // Maps what another process has allocated; takes the descriptor.
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
