// A device and a host whose KV are hashes.
#include "tests/engine/schedule/session_world.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/check.h"

namespace quire {

SessionWorld::SessionWorld(const WorldConfig& world)
    : config(world),
      pool(world.num_blocks),
      tree(pool, world.block_size, world.num_pages),
      sessions(world.sessions, world.block_size, tree),
      tiering(world.tiering, pool, tree, sessions),
      blocks_(world.num_blocks, Kv(world.block_size)),
      pages_(world.num_pages, Kv(world.block_size)) {
  tree.SetAccounts(&accounts);
  sessions.SetAccounts(&accounts);
}

void SessionWorld::SetPages(TenantId tenant, int32_t pages) {
  std::erase_if(tenants_.tenants, [&](const auto& entry) { return entry.first == tenant; });
  tenants_.tenants.emplace_back(
      tenant, TenantLimits{.max_host_kv_tokens = int64_t{pages} * config.block_size});
  accounts.SetTable(tenants_);
  tree.host().GiveBackExcess();
}

int32_t SessionWorld::CountPages(TenantId tenant) const {
  const NodeTree& nodes = tree.nodes().tree();
  int32_t count = 0;
  for (NodeId id = 0; id < nodes.num_nodes(); ++id) {
    if (!nodes.InUse(id) || tree.Kv(id).page == kNoPage) continue;
    NodeId root = id;
    while (!nodes.IsRoot(root)) root = nodes.Parent(root);
    count += nodes.Key(root) == tenant;
  }
  return count;
}

std::vector<uint64_t> SessionWorld::Hashes(TenantId tenant,
                                           const std::vector<int32_t>& tokens) const {
  std::vector<uint64_t> hashes;
  uint64_t hash = tenant * 0x9e3779b97f4a7c15 + 1;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 0xd6e8feb86659fd93;
    hash ^= hash >> 32;
    hashes.push_back(hash | 1);
  }
  return hashes;
}

void SessionWorld::CheckSlots(const Kv& kv, const std::vector<uint64_t>& hashes, int32_t begin,
                              int32_t end) {
  CHECK(end - begin <= config.block_size && end <= static_cast<int32_t>(hashes.size()));
  for (int32_t i = begin; i < end; ++i) CHECK_EQ(kv[i - begin], hashes[i]);
}

void SessionWorld::CheckKv(TenantId tenant, const std::vector<int32_t>& tokens) {
  const std::vector<uint64_t> hashes = Hashes(tenant, tokens);
  for (NodeId node = tree.Find(tenant, tokens); tree.Depth(node) > 0; node = tree.Parent(node)) {
    const NodeKv& kv = tree.Kv(node);
    const int32_t end = tree.NumTokens(node);
    if (kv.on_device()) CheckSlots(blocks_[kv.block], hashes, end - config.block_size, end);
    if (kv.on_host()) CheckSlots(pages_[kv.page], hashes, end - config.block_size, end);
  }
}

// --- Turns.

std::optional<WorldTurn> SessionWorld::Begin(TenantId tenant, const SessionName& name,
                                             const std::vector<int32_t>& added) {
  const auto started = sessions.BeginTurn(tenant, name, std::nullopt, now_ns);
  if (!started.ok()) return std::nullopt;
  const std::span<const int32_t> before = sessions.TokensOf(*started);
  WorldTurn turn{.turn = *started, .tenant = tenant, .tokens = {before.begin(), before.end()}};
  turn.tokens.insert(turn.tokens.end(), added.begin(), added.end());
  const std::span known(turn.tokens);
  turn.node = tree.Find(tenant, known.first(known.size() - 1));
  const NodeId tail = sessions.KeptBy(turn.turn);
  // A node without KV was not found. It may be filled with a whole block before the turn continues.
  turn.has_tail = tail != kNoNode && tree.Parent(tail) == turn.node && tree.HasKv(tail);
  if (turn.has_tail) turn.node = tail;
  if (tree.HoldCost(turn.node) > pool.available()) {
    sessions.AbortTurn(turn.turn, now_ns);
    return std::nullopt;
  }
  tree.Hold(turn.node);
  const auto blocks = tiering.BlocksToRestore(turn.node, tree.NumTokens(turn.node), now_ns);
  if (blocks && pool.Reserve(*blocks)) {
    const Tiering::Restore restore =
        tiering.BeginRestore(turn.node, tree.NumTokens(turn.node), now_ns);
    CHECK_EQ(restore.blocks, *blocks);
    turn.ticket = restore.ticket;
  }
  return turn;
}

NodeId SessionWorld::DeepestOnDevice(NodeId node) const {
  std::vector<NodeId> chain;
  tree.Chain(node, chain);
  while (tree.Depth(node) > 0) node = tree.Parent(node);
  for (const NodeId each : chain) {
    if (!tree.Kv(each).on_device()) break;
    node = each;
  }
  return node;
}

bool SessionWorld::Advance(WorldTurn& turn) {
  if (!tiering.EndRestoreIfDone(turn.ticket, now_ns)) return false;
  turn.ticket = 0;
  const NodeId usable = DeepestOnDevice(turn.node);
  const bool ends_in_tail = turn.has_tail && usable == turn.node;
  tree.Hold(usable);
  tree.Release(std::exchange(turn.node, usable));
  if (ends_in_tail) ContinueTail(turn);
  turn.found = tree.NumTokens(turn.node);
  CheckKv(turn.tenant, {turn.tokens.begin(), turn.tokens.begin() + turn.found});
  if (turn.partial != kNullBlock) turn.found = turn.tail_end;
  if (Compute(turn)) return true;
  Abort(turn);
  return false;
}

// The turn holds its session's tail. Takes over the tail's block; if another session or a copy
// needs the block, copies it instead, if a block is available.
void SessionWorld::ContinueTail(WorldTurn& turn) {
  const NodeId tail = turn.node;
  const int32_t begin = (tree.Depth(tail) - 1) * config.block_size;
  const int32_t end =
      std::min(tree.NumTokens(tail), static_cast<int32_t>(sessions.TokensOf(turn.turn).size()));
  turn.node = tree.Parent(tail);
  tree.Hold(turn.node);
  if (tree.IsTail(tail) && tree.NumKeepers(tail) == 1) turn.partial = tree.TakeTail(tail);
  turn.took_tail = turn.partial != kNullBlock;
  if (turn.took_tail) {
    CHECK(sessions.KeptBy(turn.turn) != tail);
  } else {
    if (pool.available() > 0) turn.partial = pool.Take();
    if (turn.partial != kNullBlock) blocks_[turn.partial] = blocks_[tree.Kv(tail).block];
    tree.Release(tail);
    if (turn.partial == kNullBlock) return;
  }
  CheckSlots(blocks_[turn.partial], Hashes(turn.tenant, turn.tokens), begin, end);
  turn.tail_end = end;
}

// The last node of the turn's session when the turn took its tail; kNoNode if it took none. Held if
// it is a tail again.
NodeId SessionWorld::GiveBackTail(WorldTurn& turn) {
  if (!turn.took_tail) return kNoNode;
  const int32_t filled = turn.tail_end % config.block_size;
  NodeId node = turn.node;
  if (tree.Depth(node) == turn.tail_end / config.block_size) {
    return tree.InsertTail(node, filled, std::exchange(turn.partial, kNullBlock));
  }
  while ((tree.Depth(node) - 1) * config.block_size >= turn.tail_end) node = tree.Parent(node);
  return node;
}

// Takes a block if the next token needs one.
bool SessionWorld::Grow(WorldTurn& turn) {
  if (turn.partial != kNullBlock) return true;
  if (pool.available() <= 0) return false;
  turn.partial = pool.Take();
  blocks_[turn.partial].assign(config.block_size, ++rubbish_ << 1);
  return true;
}

bool SessionWorld::Compute(WorldTurn& turn) {
  const std::vector<uint64_t> hashes = Hashes(turn.tenant, turn.tokens);
  const std::span known(turn.tokens);
  const int32_t size = config.block_size;
  for (int32_t i = turn.found; i < static_cast<int32_t>(hashes.size()); ++i) {
    if (!Grow(turn)) return false;
    blocks_[turn.partial][i % size] = hashes[i];
    if ((i + 1) % size != 0) continue;
    const BlockId block = std::exchange(turn.partial, kNullBlock);
    const auto inserted = tree.Insert(turn.node, known.subspan(i + 1 - size, size), block);
    if (!inserted.adopted) turn.own.push_back(block);
    tree.Release(std::exchange(turn.node, inserted.node));
  }
  turn.found = static_cast<int32_t>(hashes.size());
  return true;
}

void SessionWorld::Commit(WorldTurn& turn, const std::vector<int32_t>& output) {
  turn.tokens.insert(turn.tokens.end(), output.begin(), output.end());
  const int32_t last = turn.tokens.back();
  turn.tokens.pop_back();
  if (!Compute(turn)) {
    turn.tokens.push_back(last);
    return Abort(turn);
  }
  const int32_t filled = turn.found % config.block_size;
  NodeId tail = kNoNode;
  if (filled > 0) tail = tree.InsertTail(turn.node, filled, std::exchange(turn.partial, 0));
  turn.tokens.push_back(last);
  sessions.CommitTurn(turn.turn, turn.tokens, tail == kNoNode ? turn.node : tail, now_ns);
  if (tail != kNoNode) tree.Release(tail);
  Release(turn);
}

void SessionWorld::Abort(WorldTurn& turn) {
  tiering.AbandonRestore(turn.ticket);
  const NodeId node = GiveBackTail(turn);
  sessions.AbortTurn(turn.turn, node, now_ns);
  if (node != kNoNode && tree.IsTail(node)) tree.Release(node);
  Release(turn);
}

void SessionWorld::Release(WorldTurn& turn) {
  tree.Release(turn.node);
  for (const BlockId block : turn.own) pool.Release(block);
  if (turn.partial != kNullBlock) pool.Release(turn.partial);
  turn = WorldTurn{.tokens = std::move(turn.tokens)};
}

bool SessionWorld::Converse(TenantId tenant, const SessionName& name,
                            const std::vector<int32_t>& added, const std::vector<int32_t>& output) {
  auto turn = Begin(tenant, name, added);
  if (!turn) return false;
  if (turn->ticket != 0) Pump();
  if (!Advance(*turn)) return false;
  Commit(*turn, output);
  return true;
}

// --- Bytes.

void SessionWorld::CheckPages(TenantId tenant, const std::vector<int32_t>& tokens,
                              int32_t kv_tokens, const std::vector<PageId>& pages) {
  const std::vector<uint64_t> hashes = Hashes(tenant, tokens);
  int32_t begin = 0;
  for (const PageId page : pages) {
    const int32_t end = std::min(kv_tokens, begin + config.block_size);
    CHECK_LT(begin, end);
    CheckSlots(pages_[page], hashes, begin, end);
    begin = end;
  }
  CHECK_EQ(begin, kv_tokens);
}

void SessionWorld::FillPages(TenantId tenant, const std::vector<int32_t>& tokens,
                             const std::vector<PageId>& pages) {
  const std::vector<uint64_t> hashes = Hashes(tenant, tokens);
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i] == kNoPage) continue;
    for (size_t slot = 0; slot < pages_[pages[i]].size(); ++slot) {
      const size_t token = i * config.block_size + slot;
      pages_[pages[i]][slot] = token < hashes.size() ? hashes[token] : 0;
    }
  }
}

// --- Copies.

bool SessionWorld::Send() {
  Job job;
  if (!tiering.NextJob(now_ns, job.job)) return false;
  jobs.push_back(std::move(job));
  return true;
}

void SessionWorld::Execute(size_t i, bool broken) {
  Job& job = jobs[i];
  if (std::exchange(job.executed, true)) return;
  const bool load = job.job.direction == CopyDirection::kLoad;
  for (const BlockCopy& copy : job.job.copies) {
    Kv& to = load ? blocks_[copy.block] : pages_[copy.page];
    to = load ? pages_[copy.page] : blocks_[copy.block];
    if (broken) to.assign(config.block_size, ++rubbish_ << 1);
  }
}

void SessionWorld::Ack(size_t i, CopyStatus status, int32_t num_good) {
  Execute(i, status == CopyStatus::kFailed);
  const Job job = std::move(jobs[i]);
  jobs.erase(jobs.begin() + i);
  const int32_t count = static_cast<int32_t>(job.job.copies.size());
  if (status == CopyStatus::kCorrupt) {
    for (int32_t c = num_good; c < count; ++c) {
      blocks_[job.job.copies[c].block].assign(config.block_size, ++rubbish_ << 1);
    }
  }
  const int64_t bytes = count * config.tiering.block_bytes;
  tiering.OnAck({.job = job.job.job,
                 .status = status,
                 .num_good = status == CopyStatus::kOk ? count : num_good,
                 .bytes = bytes,
                 .ns = bytes},
                now_ns);
}

void SessionWorld::Pump() {
  while (Send() || !jobs.empty()) {
    while (Send()) {
    }
    if (!jobs.empty()) Ack(0);
  }
}

void SessionWorld::LoseDevice() {
  jobs.clear();
  tiering.ForgetJobs();
  tree.ForgetDevice();
  for (Kv& block : blocks_) block.assign(config.block_size, ++rubbish_ << 1);
}

void SessionWorld::CheckInvariants() const {
  pool.CheckIntegrity();
  tree.CheckInvariants();
  sessions.CheckInvariants();
  tiering.CheckInvariants();
}

std::vector<int32_t> SomeTokens(int32_t count, int32_t seed) {
  std::vector<int32_t> tokens;
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 12345;
  for (int32_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<int32_t>(state >> 16));
  }
  return tokens;
}

}  // namespace quire
