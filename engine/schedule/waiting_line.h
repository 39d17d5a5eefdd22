// WaitingLine: takes sequences into the queue and out of it, with the accounts of their tenants,
// and keeps those that wait beside it for a prompt. One thread.
//
// Of several answers to one prompt, one *leads*: it computes the prompt. The others *follow* it:
// they are in no queue, so they delay no other sequence and no step looks at them. The leader's
// first token proves the KV of the prompt, so that its blocks are in the prefix tree; then the
// followers enter the queue, find them there, and compute the tokens behind the last full block. A
// leader that ends or is paused before that leaves its place to its first follower. A leader that
// is preempted stays the leader: it comes back before sequences behind it.
#pragma once

#include <cstddef>
#include <deque>

namespace quire {

class RequestQueue;
class TenantAccounts;
struct Sequence;

class WaitingLine {
 public:
  // Both outlive it.
  WaitingLine(RequestQueue& queue, TenantAccounts& accounts) : queue_(queue), accounts_(accounts) {}

  void Enter(Sequence& sequence);
  // Out of the queue, or away from its leader.
  void Leave(Sequence& sequence);

  // A sequence of the queue follows another one from now on. The leader waits, has no token yet,
  // and follows none.
  void Follow(Sequence& follower, Sequence& leader);
  // The followers, if there are any, enter the queue: the leader has its first token.
  void EndPrompt(Sequence& leader);
  // The leader does not compute the prompt any more: if there are followers, the first of them
  // enters the queue, and leads the others.
  void LosePrompt(Sequence& leader);

  size_t num_following() const { return num_following_; }
  // Aborts unless the followers of all records are as the above says.
  void CheckInvariants(const std::deque<Sequence>& records) const;

 private:
  void StopFollowing(Sequence& follower);

  RequestQueue& queue_;
  TenantAccounts& accounts_;
  size_t num_following_ = 0;
};

}  // namespace quire
