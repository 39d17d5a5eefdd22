// KvEventSource: makes KvEvents of the changes of the prefix tree, for the tenants that have
// subscribers. It notes which nodes changed, and compares them with the state that was told when
// the events are taken, so that changes that cancel out are not told. The nodes that a new tenant
// has already are told in parts, a parent always before its children.
//
// A node is on a tier when its KV can be read there: not while a copy fills it, and not on a page
// that will be freed when a copy ends. Tails are not told. One thread. Watches the tree, and has
// memory (24 bytes for each node), only while it has a tenant.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/schedule/kv/node_changes.h"
#include "engine/values/kv_events.h"

namespace quire {

class KvNodes;

class KvEventSource final : public NodeWatcher {
 public:
  // Outlives this.
  explicit KvEventSource(KvNodes& nodes) : nodes_(nodes) {}
  KvEventSource(const KvEventSource&) = delete;
  ~KvEventSource() override;

  // Tells of this tenant from now on. Requires that it does not.
  void Begin(TenantId tenant);
  // Tells of this tenant no longer; events that were not taken are lost. Requires that it does.
  void End(TenantId tenant);
  bool Tells(TenantId tenant) const { return feeds_.contains(tenant); }

  // Notes the next `count` of the nodes that were there at Begin. False: there are no more.
  bool Continue(int32_t count);

  struct Change {
    TenantId tenant = 0;
    std::vector<KvEvent> events;
    bool complete = false;  // with these events all nodes of the tenant are told
  };
  // The events since the last call; none of a tenant about which there is nothing new.
  std::vector<Change> Take();

  void OnKvChange(NodeId node) override;
  void OnForget(NodeId node) override;

 private:
  // A bit for each KvTier.
  using Tiers = uint8_t;

  // Of a node.
  struct Told {
    KvBlockHash hash = kNoKvBlock;  // kNoKvBlock: not computed yet, or a root
    NodeId root = kNoNode;          // kNoNode: likewise
    uint32_t feed = 0;              // number of the feed that `tiers` was told to
    Tiers tiers = 0;
    bool noted = false;  // is in noted_
  };
  // Of a tenant.
  struct Feed {
    uint32_t number = 0;  // of no other feed, ever
    int64_t num_told = 0;
    bool complete = false;           // all nodes were told once
    bool complete_is_taken = false;  // and the caller knows
    bool removed = false;            // `events` has a removal
    std::vector<KvEvent> events;
  };

  void Note(NodeId node);
  Tiers Now(NodeId node) const;
  Tiers ToldTo(const Feed& feed, NodeId node) const;
  Feed* FeedOf(NodeId node);
  void Identify(NodeId node);
  void TellChain(NodeId node);
  void Tell(Feed& feed, NodeId node, Tiers now);
  void AddStored(Feed& feed, NodeId node, KvTier tier);
  void AddRemoved(Feed& feed, NodeId node, KvTier tier);

  KvNodes& nodes_;
  std::map<TenantId, Feed> feeds_;
  uint32_t last_feed_ = 0;
  NodeId next_ = 0;  // node that Continue looks at next
  bool walking_ = false;
  std::vector<Told> told_;     // by node
  std::vector<NodeId> noted_;  // in the order of changes
  std::vector<NodeId> chain_;
};

}  // namespace quire
