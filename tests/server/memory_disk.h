// MemoryDisk: a Disk in memory with faults on demand. Its folder outlives it, as a real one
// outlives a killed server.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/session/archive/disk.h"

namespace quire {

struct MemoryFolder {
  std::mutex mutex;
  std::map<std::string, std::string> files;  // under mutex

  int64_t Bytes() {
    int64_t bytes = 0;
    for (const auto& [name, file] : files) bytes += static_cast<int64_t>(file.size());
    return bytes;
  }
};

// Faults, to be set at any time by any thread.
class DiskFaults {
 public:
  // The server dies in its `operation`th change of the folder from now on (0: the next). Of that
  // change `share` is done, and nothing of later ones.
  void DieAt(int64_t operation, double share) {
    const std::lock_guard lock(mutex_);
    left_ = operation;
    share_ = share;
  }
  // The folder holds at most so many bytes.
  void SetSpace(int64_t bytes) { space_.store(bytes); }
  int64_t space() const { return space_.load(); }
  // Every change fails.
  void Break(bool broken) { broken_.store(broken); }
  bool broken() const { return broken_.load(); }
  // Every change waits until the disk goes on.
  void Stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  // Every removal of a file waits likewise.
  void StopRemovals() {
    const std::lock_guard lock(mutex_);
    removals_stopped_ = true;
  }
  // Every read waits likewise.
  void StopReads() {
    const std::lock_guard lock(mutex_);
    reads_stopped_ = true;
  }
  void GoOn() {
    const std::lock_guard lock(mutex_);
    stopped_ = removals_stopped_ = reads_stopped_ = false;
    changed_.notify_all();
  }
  int64_t changes() const { return changes_.load(); }
  // Removals that have begun and not ended.
  int64_t removals() const { return removals_.load(); }

  void AdmitRead() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !reads_stopped_; });
  }
  double AdmitRemoval() {
    ++removals_;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !removals_stopped_; });
    }
    const double share = Admit();
    --removals_;
    return share;
  }
  // The share of a change that is done.
  double Admit() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !stopped_; });
    ++changes_;
    if (left_ < 0) return dead_ ? 0 : 1;
    if (left_-- > 0) return 1;
    dead_ = true;
    return share_;
  }

 private:
  std::atomic<int64_t> space_{int64_t{1} << 40};
  std::atomic<bool> broken_{false};
  std::atomic<int64_t> changes_{0};
  std::atomic<int64_t> removals_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  bool removals_stopped_ = false;
  bool reads_stopped_ = false;
  bool dead_ = false;
  int64_t left_ = -1;
  double share_ = 0;
};

class MemoryDisk final : public Disk {
 public:
  MemoryDisk(std::shared_ptr<MemoryFolder> folder, std::shared_ptr<DiskFaults> faults)
      : folder_(std::move(folder)), faults_(std::move(faults)) {}

  absl::StatusOr<std::vector<Entry>> List() override {
    const std::lock_guard lock(folder_->mutex);
    std::vector<Entry> entries;
    for (const auto& [name, file] : folder_->files) {
      entries.push_back({name, static_cast<int64_t>(file.size())});
    }
    return entries;
  }
  absl::StatusOr<std::unique_ptr<DiskFile>> Open(const std::string& name, Mode mode) override {
    if (mode == Mode::kCreate) {
      const double share = faults_->Admit();
      if (faults_->broken()) return absl::UnknownError("EIO");
      const std::lock_guard lock(folder_->mutex);
      if (share > 0.5) folder_->files[name] = "";
      if (share > 0) return std::make_unique<File>(*this, name);
      return absl::UnknownError("dead");
    }
    const std::lock_guard lock(folder_->mutex);
    const auto found = folder_->files.find(name);
    if (found == folder_->files.end()) return absl::NotFoundError(name);
    auto file = std::make_unique<File>(*this, name);
    // A file that is replaced or removed meanwhile is read as it was.
    if (mode == Mode::kRead) file->Freeze(found->second);
    return file;
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    const double share = faults_->Admit();
    if (faults_->broken()) return absl::UnknownError("EIO");
    const std::lock_guard lock(folder_->mutex);
    const auto found = folder_->files.find(from);
    if (share < 1 || found == folder_->files.end()) return absl::UnknownError("dead");
    folder_->files[to] = std::move(found->second);
    folder_->files.erase(from);
    return absl::OkStatus();
  }
  absl::Status Remove(const std::string& name) override {
    const double share = faults_->AdmitRemoval();
    if (faults_->broken()) return absl::UnknownError("EIO");
    const std::lock_guard lock(folder_->mutex);
    if (share < 1) return absl::UnknownError("dead");
    folder_->files.erase(name);
    return absl::OkStatus();
  }

 private:
  class File final : public DiskFile {
   public:
    File(MemoryDisk& disk, std::string name) : disk_(disk), name_(std::move(name)) {}
    void Freeze(const std::string& bytes) { bytes_ = bytes; }

    absl::StatusOr<size_t> Append(std::string_view bytes) override {
      // Short writes: at most 1000 bytes at a time.
      bytes = bytes.substr(0, 1000);
      const double share = disk_.faults_->Admit();
      if (disk_.faults_->broken()) return absl::UnknownError("EIO");
      const std::lock_guard lock(disk_.folder_->mutex);
      const auto found = disk_.folder_->files.find(name_);
      if (found == disk_.folder_->files.end()) return absl::UnknownError("gone");
      const int64_t room = disk_.faults_->space() - disk_.folder_->Bytes();
      if (room <= 0) return absl::ResourceExhaustedError("ENOSPC");
      bytes = bytes.substr(0, static_cast<size_t>(room));
      bytes = bytes.substr(0, static_cast<size_t>(share * static_cast<double>(bytes.size())));
      found->second += bytes;
      if (share < 1) return absl::UnknownError("dead");
      return bytes.size();
    }
    absl::Status Read(int64_t offset, std::span<std::byte> out) override {
      disk_.faults_->AdmitRead();
      if (offset + static_cast<int64_t>(out.size()) > static_cast<int64_t>(bytes_.size())) {
        return absl::OutOfRangeError("short");
      }
      std::copy_n(std::as_bytes(std::span(bytes_)).begin() + offset, out.size(), out.begin());
      return absl::OkStatus();
    }
    absl::StatusOr<int64_t> Size() override { return static_cast<int64_t>(bytes_.size()); }
    absl::Status Truncate(int64_t size) override {
      const double share = disk_.faults_->Admit();
      if (disk_.faults_->broken()) return absl::UnknownError("EIO");
      const std::lock_guard lock(disk_.folder_->mutex);
      if (share < 1) return absl::UnknownError("dead");
      disk_.folder_->files[name_].resize(static_cast<size_t>(size));
      return absl::OkStatus();
    }

   private:
    MemoryDisk& disk_;
    const std::string name_;
    std::string bytes_;  // of a file that is read
  };

  const std::shared_ptr<MemoryFolder> folder_;
  const std::shared_ptr<DiskFaults> faults_;
};

}  // namespace quire
