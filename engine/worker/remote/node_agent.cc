// One thread a rank: connect, prove, serve, again.
#include "engine/worker/remote/node_agent.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/worker/remote/hosted_rank.h"
#include "engine/worker/remote/stored_pages.h"
#include "kernels/check.h"

namespace quire {
namespace {

constexpr double kRetrySeconds = 0.25;   // while no leader listens
constexpr double kRefusedSeconds = 2;    // after a refusal, which only new settings end
constexpr double kGreetingSeconds = 10;  // for each answer of the leader
constexpr int64_t kLogNs = 5'000'000'000;

}  // namespace

absl::StatusOr<std::unique_ptr<NodeAgent>> NodeAgent::Start(const Options& options) {
  // Tried once, so that settings that can never work fail here.
  const auto tried = ConnectToLeader(options.leader_address, options.key.secret());
  if (absl::IsInvalidArgument(tried.status())) return tried.status();
  std::unique_ptr<NodeAgent> agent(new NodeAgent(options));
  const std::lock_guard lock(agent->mutex_);
  agent->threads_.emplace_back([raw = agent.get()] { raw->RunRank(0); });
  return agent;
}

NodeAgent::NodeAgent(const Options& options)
    : options_(options), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

NodeAgent::~NodeAgent() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  const uint64_t one = 1;
  CHECK_EQ(write(stop_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  // No thread is added from here on.
  for (std::thread& thread : threads_) thread.join();
}

void NodeAgent::RunRank(int32_t local) {
  StoredPages pages;
  int64_t log_at_ns = 0;
  while (AwaitTurn(local)) {
    absl::StatusOr<Joined> joined = Join(local);
    if (!joined.ok()) {
      if (const int64_t now_ns = SteadyNowNs(); now_ns >= log_at_ns) {
        log_at_ns = now_ns + kLogNs;
        Log(Severity::kWarning, "cannot join the leader; trying again",
            {{"leader", options_.leader_address},
             {"reason", std::string(joined.status().message())}});
      }
      Pause(absl::IsUnavailable(joined.status()) ? kRetrySeconds : kRefusedSeconds);
      continue;
    }
    log_at_ns = 0;
    const RankGrant& grant = joined->grant;
    SetRanks(grant.local_ranks);
    Log(Severity::kInfo, "joined the leader",
        {{"leader", joined->link->peer()}, {"rank", grant.rank}, {"ranks", grant.ranks}});
    absl::Status ended = pages.Renew(grant.instance);
    if (ended.ok()) {
      HostedRank rank(*joined->link, pages,
                      {.program = options_.program, .grant = grant, .local = local});
      ended = rank.Run(stop_.get());
    }
    Log(ended.ok() ? Severity::kInfo : Severity::kWarning, "a rank has ended",
        {{"rank", grant.rank},
         {"reason", ended.ok() ? "the leader ended it" : std::string(ended.message())}});
    if (!ended.ok()) Pause(kRetrySeconds);
  }
}

absl::StatusOr<NodeAgent::Joined> NodeAgent::Join(int32_t local) {
  const FollowerGreeting::Options options{
      .key = options_.key,
      .place = {.node = options_.node, .nodes = options_.nodes, .local = local}};
  FollowerGreeting greeting(options);
  ASSIGN_OR_RETURN(std::unique_ptr<Connection> link,
                   ConnectToLeader(options_.leader_address, options_.key.secret()));
  link->SetPatience(kGreetingSeconds);
  std::optional<Frame> frame = greeting.Hello();
  while (frame.has_value()) {
    RETURN_IF_ERROR(link->Send(frame->kind, frame->bytes));
    ASSIGN_OR_RETURN(const Frame answer, link->Await());
    absl::StatusOr<std::optional<Frame>> next = greeting.Take(answer);
    if (!next.ok()) {
      link->Send(FrameKind::kRefused, std::string(next.status().message())).IgnoreError();
      return next.status();
    }
    frame = *std::move(next);
  }
  link->SetPatience(0);
  return Joined{std::move(link), greeting.grant()};
}

void NodeAgent::SetRanks(int32_t ranks) {
  const std::lock_guard lock(mutex_);
  ranks_ = ranks;
  for (auto local = static_cast<int32_t>(threads_.size()); local < ranks && !stopping_; ++local) {
    threads_.emplace_back([this, local] { RunRank(local); });
  }
  changed_.notify_all();
}

bool NodeAgent::AwaitTurn(int32_t local) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || local < ranks_; });
  return !stopping_;
}

void NodeAgent::Pause(double seconds) {
  pollfd stop{.fd = stop_.get(), .events = POLLIN, .revents = 0};
  poll(&stop, 1, static_cast<int>(seconds * 1e3));
}

}  // namespace quire
