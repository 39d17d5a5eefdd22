// Followers are in no container but their leader's list.
#include "engine/schedule/waiting_line.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/schedule/request_queue.h"
#include "engine/schedule/sequence.h"
#include "engine/schedule/tenants/tenant_accounts.h"
#include "kernels/check.h"

namespace quire {

void WaitingLine::Enter(Sequence& sequence) {
  queue_.Insert(sequence);
  accounts_.AddWaiting(sequence.account, 1, sequence.known());
}

void WaitingLine::Leave(Sequence& sequence) {
  if (sequence.leader != nullptr) {
    auto& followers = sequence.leader->followers;
    followers.erase(std::find(followers.begin(), followers.end(), &sequence));
    return StopFollowing(sequence);
  }
  queue_.Erase(sequence);
  accounts_.AddWaiting(sequence.account, -1, -sequence.known());
}

void WaitingLine::Follow(Sequence& follower, Sequence& leader) {
  CHECK(leader.output.empty() && leader.leader == nullptr && follower.followers.empty());
  Leave(follower);
  follower.leader = &leader;
  leader.followers.push_back(&follower);
  accounts_.AddFollowing(follower.account, 1);
  ++num_following_;
}

void WaitingLine::StopFollowing(Sequence& follower) {
  follower.leader = nullptr;
  accounts_.AddFollowing(follower.account, -1);
  --num_following_;
}

void WaitingLine::EndPrompt(Sequence& leader) {
  for (Sequence* follower : std::exchange(leader.followers, {})) {
    StopFollowing(*follower);
    Enter(*follower);
  }
}

void WaitingLine::LosePrompt(Sequence& leader) {
  if (leader.followers.empty()) return;
  std::vector<Sequence*> others = std::exchange(leader.followers, {});
  Sequence& next = *others.front();
  others.erase(others.begin());
  StopFollowing(next);
  Enter(next);
  for (Sequence* other : others) other->leader = &next;
  next.followers = std::move(others);
}

void WaitingLine::CheckInvariants(const std::deque<Sequence>& records) const {
  size_t num_following = 0;
  for (const Sequence& s : records) {
    num_following += s.leader != nullptr;
    CHECK(s.followers.empty() || (s.live() && !s.paused && s.output.empty()));
    for (const Sequence* follower : s.followers) CHECK(follower->leader == &s);
    if (s.leader == nullptr) continue;
    CHECK(s.state == SequenceState::kQueued && s.followers.empty());
    const auto& others = s.leader->followers;
    CHECK_EQ(std::count(others.begin(), others.end(), &s), 1);
  }
  CHECK_EQ(num_following, num_following_);
}

}  // namespace quire
