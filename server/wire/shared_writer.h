// SharedWriter: several streams of answers on one gRPC call. Their messages go out in the order in
// which they come, with one write in flight; the call ends when it is closed and the last member
// has left. A member has at most one message on its way, so the queue is as long as the number of
// members at most.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"

namespace quire {

// Any thread may call any member function, WriteDone and Done aside. Members and the call are never
// called with the writer's lock held.
class SharedWriter {
 public:
  // The gRPC end: a reactor that writes.
  class Call {
   public:
    virtual ~Call() = default;
    // Starts a write; WriteDone follows. `message` stays until then.
    virtual void BeginWrite(const grpc::ByteBuffer* message) = 0;
    // Ends the call, behind `last` if that is not null. Comes once; the call's OnDone may destroy
    // the writer before this returns.
    virtual void FinishWith(const grpc::ByteBuffer* last, const absl::Status& status) = 0;
    // Tears the call down without waiting for the peer.
    virtual void Reset() = 0;
  };

  // One stream of answers.
  class Member {
   public:
    virtual ~Member() = default;
    // The message of Write is out, or, with false, never will be.
    virtual void Written(bool ok) = 0;
    // The call ends before its time: the member should leave soon.
    virtual void Cancel() = 0;
    // Its last message is out or the call is done. Nothing is called after this.
    virtual void Released() = 0;
  };

  // `call` outlives the writer, except as FinishWith says.
  explicit SharedWriter(Call* call) : call_(call) {}

  // From here on the call does not end until the member leaves. The writer keeps the member until
  // it has released it. False if the call is closed: the member is not taken.
  bool Join(std::shared_ptr<Member> member);
  // Queues a message; Written follows, maybe before this returns. Not again before it has.
  void Write(Member* member, const std::string& message);
  // The member writes no more. A member without a last message is released when the call is done.
  void Leave(Member* member, const std::optional<std::string>& last);

  // No member joins any more. An error drops all queued messages, cancels the members, and does not
  // wait for a write that is stuck; only the first call counts, except that an error may follow OK.
  void Close(const absl::Status& status);
  // Cancels all members: the peer is gone.
  void Cancel();
  void Reset() { call_->Reset(); }

  // From OnWriteDone.
  void WriteDone(bool ok);
  // From OnDone: releases the members that are left.
  void Done();
  // The status of Close; for the caller's accounts, from Done on.
  const absl::Status& status() const { return status_; }

 private:
  struct Message {
    grpc::ByteBuffer bytes;
    Member* member = nullptr;  // null: none in flight
    bool last = false;
  };

  // Starts whatever can start; gives the lock up. The writer may be gone afterwards.
  void Next(std::unique_lock<std::mutex> lock);
  // Under mutex_: the members that are still in, kept alive.
  std::vector<std::shared_ptr<Member>> Present() const;
  // Under mutex_: stops sending. Gives the members whose messages are dropped.
  std::vector<std::shared_ptr<Member>> Stop();

  Call* const call_;
  std::mutex mutex_;
  // Under mutex_.
  struct State {
    std::shared_ptr<Member> member;
    bool left = false;
  };
  std::unordered_map<Member*, State> members_;
  int present_ = 0;  // members that have not left, and calls of Close that are not through
  std::deque<Message> queue_;
  Message current_;  // in flight while writing_
  bool writing_ = false;
  bool stopped_ = false;  // a write failed, or the call ends with an error
  bool closed_ = false;
  bool finished_ = false;
  absl::Status status_;
};

}  // namespace quire
