// Copies of hashes, at the worst times.
#include "engine/worker/fake/shadow_copier.h"

#include <algorithm>
#include <set>
#include <span>

#include "kernels/check.h"

namespace quire {
namespace {

size_t Index(CopyDirection direction) { return static_cast<size_t>(direction); }

}  // namespace

ShadowCopier::ShadowCopier(int32_t num_pages, int32_t block_size, const ShadowFaults& faults)
    : block_size_(block_size),
      faults_(faults),
      random_(faults.seed),
      pages_(static_cast<size_t>(num_pages) * block_size) {}

void ShadowCopier::Require(bool ok, const char* what) {
  if (!ok && violation_.empty()) violation_ = what;
}

int32_t ShadowCopier::in_flight(CopyDirection direction) const {
  return static_cast<int32_t>(flights_[Index(direction)].size());
}

bool ShadowCopier::Happens(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

std::span<uint64_t> ShadowCopier::Page(PageId page) {
  return std::span(pages_).subspan(static_cast<size_t>(page) * block_size_, block_size_);
}

void ShadowCopier::FillWithGarbage(std::span<uint64_t> slots) {
  for (uint64_t& slot : slots) slot = random_();
}

// Whether a job in flight moves the block or the page of `copy`.
bool ShadowCopier::InUse(const CopyJob& job, const BlockCopy& copy) const {
  for (const auto& flights : flights_) {
    for (const JobInFlight& flight : flights) {
      if (flight.job.job == job.job) continue;
      for (const BlockCopy& other : flight.job.copies) {
        if (other.block == copy.block || other.page == copy.page) return true;
      }
    }
  }
  return false;
}

void ShadowCopier::CheckJob(const CopyJob& job) {
  const int32_t num_pages = static_cast<int32_t>(pages_.size()) / block_size_;
  std::set<int32_t> blocks, pages;
  Require(job.job == last_job_ + 1, "job number is not the next one");
  Require(in_flight(job.direction) < CopyJob::kMaxInFlight, "too many jobs in flight");
  Require(!job.copies.empty() && job.copies.size() <= size_t{CopyJob::kMaxCopies},
          "empty job, or more copies than a job may hold");
  for (const BlockCopy& copy : job.copies) {
    Require(copy.page >= 0 && copy.page < num_pages, "page out of range");
    Require(blocks.insert(copy.block).second, "block twice in a job");
    Require(pages.insert(copy.page).second, "page twice in a job");
    Require(!InUse(job, copy), "block or page of another job in flight");
  }
  last_job_ = job.job;
}

void ShadowCopier::Submit(const CopyJob& job, ShadowWorker& worker) {
  CheckJob(job);
  if (!violation_.empty()) return;
  JobInFlight flight{.job = job, .early = Happens(0.5)};
  if (flight.early) Read(job, worker, flight.content);
  for (const BlockCopy& copy : job.copies) {
    FillWithGarbage(job.direction == CopyDirection::kStore ? Page(copy.page)
                                                           : worker.Block(copy.block));
  }
  flights_[Index(job.direction)].push_back(std::move(flight));
}

void ShadowCopier::Read(const CopyJob& job, ShadowWorker& worker, std::vector<uint64_t>& content) {
  for (const BlockCopy& copy : job.copies) {
    const auto from =
        job.direction == CopyDirection::kStore ? worker.Block(copy.block) : Page(copy.page);
    content.insert(content.end(), from.begin(), from.end());
  }
}

// The first copies get the bytes that were read; the rest stay garbage.
void ShadowCopier::Write(const JobInFlight& flight, int32_t num_good, ShadowWorker& worker) {
  for (int32_t i = 0; i < num_good; ++i) {
    const BlockCopy& copy = flight.job.copies[i];
    const auto to =
        flight.job.direction == CopyDirection::kStore ? Page(copy.page) : worker.Block(copy.block);
    std::copy_n(flight.content.begin() + static_cast<ptrdiff_t>(i) * block_size_, block_size_,
                to.begin());
  }
}

CopyAck ShadowCopier::Finish(CopyDirection direction, ShadowWorker& worker) {
  std::deque<JobInFlight>& flights = flights_[Index(direction)];
  CHECK(!flights.empty());
  JobInFlight flight = std::move(flights.front());
  flights.pop_front();
  if (!flight.early) Read(flight.job, worker, flight.content);
  const auto num_copies = static_cast<int32_t>(flight.job.copies.size());
  CopyAck ack{.job = flight.job.job, .num_good = num_copies};
  ack.ns = 1000 + 100 * num_copies;
  if (Happens(faults_.fail)) {
    ack.status = CopyStatus::kFailed;
    ack.num_good = 0;
  }
  for (int32_t i = 0; direction == CopyDirection::kLoad && i < ack.num_good; ++i) {
    if (!Happens(faults_.corrupt)) continue;
    FillWithGarbage(Page(flight.job.copies[i].page));
    ack.status = CopyStatus::kCorrupt;
    ack.num_good = i;
  }
  Write(flight, ack.num_good, worker);
  ack.bytes = int64_t{ack.num_good} * block_size_ * static_cast<int64_t>(sizeof(uint64_t));
  return ack;
}

void ShadowCopier::Die() {
  for (const JobInFlight& flight : flights_[Index(CopyDirection::kStore)]) {
    for (const BlockCopy& copy : flight.job.copies) FillWithGarbage(Page(copy.page));
  }
  for (auto& flights : flights_) flights.clear();
  last_job_ = 0;
}

}  // namespace quire
