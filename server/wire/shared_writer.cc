// Every call out is made unlocked, as the last act on the writer's state: a member that is told of
// its message may write the next one, and the call's end may destroy the writer.
#include "server/wire/shared_writer.h"

#include <utility>

#include "server/call/raw_service.h"

namespace quire {

bool SharedWriter::Join(std::shared_ptr<Member> member) {
  const std::lock_guard lock(mutex_);
  if (closed_ || stopped_) return false;
  ++present_;
  Member* const key = member.get();
  members_[key].member = std::move(member);
  return true;
}

void SharedWriter::Write(Member* member, const std::string& message) {
  grpc::ByteBuffer bytes = ToByteBuffer(message.data(), message.size());
  std::unique_lock lock(mutex_);
  if (stopped_) {
    lock.unlock();
    return member->Written(false);
  }
  queue_.push_back({std::move(bytes), member, false});
  Next(std::move(lock));
}

void SharedWriter::Leave(Member* member, const std::optional<std::string>& last) {
  std::unique_lock lock(mutex_);
  members_[member].left = true;
  --present_;
  if (last.has_value() && !stopped_) {
    queue_.push_back({ToByteBuffer(last->data(), last->size()), member, true});
  }
  Next(std::move(lock));
}

void SharedWriter::Next(std::unique_lock<std::mutex> lock) {
  if (finished_) return;
  const bool closing = closed_ && present_ == 0;
  if (closing && !status_.ok()) {
    finished_ = true;
    lock.unlock();
    return call_->FinishWith(nullptr, status_);
  }
  if (writing_) return;
  if (queue_.empty()) {
    if (!closing) return;
    finished_ = true;
    lock.unlock();
    return call_->FinishWith(nullptr, status_);
  }
  current_ = std::move(queue_.front());
  queue_.pop_front();
  finished_ = closing && queue_.empty();
  writing_ = !finished_;
  const bool last = finished_;
  lock.unlock();
  if (last) return call_->FinishWith(&current_.bytes, absl::OkStatus());
  call_->BeginWrite(&current_.bytes);
}

std::vector<std::shared_ptr<SharedWriter::Member>> SharedWriter::Present() const {
  std::vector<std::shared_ptr<Member>> present;
  for (const auto& [key, state] : members_) {
    if (!state.left) present.push_back(state.member);
  }
  return present;
}

std::vector<std::shared_ptr<SharedWriter::Member>> SharedWriter::Stop() {
  stopped_ = true;
  std::vector<std::shared_ptr<Member>> dropped;
  for (const Message& message : std::exchange(queue_, {})) {
    if (!message.last) dropped.push_back(members_[message.member].member);
  }
  return dropped;
}

void SharedWriter::Close(const absl::Status& status) {
  std::unique_lock lock(mutex_);
  if (finished_ || (closed_ && (status.ok() || !status_.ok()))) return;
  closed_ = true;
  status_ = status;
  if (status.ok()) return Next(std::move(lock));
  ++present_;  // holds the call until this is through
  const std::vector<std::shared_ptr<Member>> dropped = Stop();
  const std::vector<std::shared_ptr<Member>> present = Present();
  lock.unlock();
  for (const auto& member : dropped) member->Written(false);
  for (const auto& member : present) member->Cancel();
  lock.lock();
  --present_;
  Next(std::move(lock));
}

void SharedWriter::Cancel() {
  std::unique_lock lock(mutex_);
  const std::vector<std::shared_ptr<Member>> present = Present();
  lock.unlock();
  for (const auto& member : present) member->Cancel();
}

void SharedWriter::WriteDone(bool ok) {
  std::unique_lock lock(mutex_);
  const Message done = std::exchange(current_, {});
  writing_ = false;
  std::vector<std::shared_ptr<Member>> dropped;
  if (!ok) dropped = Stop();
  const auto at = members_.find(done.member);
  const std::shared_ptr<Member> member = at->second.member;
  if (done.last) members_.erase(at);
  // The transport gets its next message before the member makes another. OnDone waits for the end
  // of OnWriteDone, so the writer stays until this is through.
  Next(std::move(lock));
  if (done.last) {
    member->Released();
  } else {
    member->Written(ok);
  }
  for (const auto& each : dropped) each->Written(false);
}

void SharedWriter::Done() {
  std::unordered_map<Member*, State> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(members_);
  }
  for (const auto& [key, state] : left) state.member->Released();
}

}  // namespace quire
