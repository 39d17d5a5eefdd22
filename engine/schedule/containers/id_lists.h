// IdLists: many doubly linked lists of small ids over two arrays. An id is in at most one list.
// Every operation takes constant time and none allocates, Grow aside. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/check.h"

namespace quire {

class IdLists {
 public:
  static constexpr int32_t kNone = -1;

  // Lists are 0 to num_lists - 1, all empty; ids 0 to num_ids - 1.
  IdLists(int32_t num_lists, int32_t num_ids) : lists_(num_lists), links_(num_ids) {}
  // Makes room for more lists or ids; the lists stay as they are.
  void Grow(int32_t num_lists, int32_t num_ids) {
    CHECK(num_lists >= this->num_lists() && num_ids >= this->num_ids());
    lists_.resize(num_lists);
    links_.resize(num_ids);
  }

  int32_t num_lists() const { return static_cast<int32_t>(lists_.size()); }
  int32_t num_ids() const { return static_cast<int32_t>(links_.size()); }
  int32_t size(int32_t list) const { return lists_[list].size; }
  int32_t Front(int32_t list) const { return lists_[list].front; }  // kNone: empty
  int32_t Next(int32_t id) const { return links_[id].next; }        // kNone: it is the last
  int32_t ListOf(int32_t id) const { return links_[id].list; }      // kNone: in none
  bool Contains(int32_t id) const { return links_[id].list != kNone; }

  // Requires that `id` is in no list.
  void PushBack(int32_t list, int32_t id) {
    DCHECK(!Contains(id));
    List& whole = lists_[list];
    links_[id] = {whole.back, kNone, list};
    (whole.back == kNone ? whole.front : links_[whole.back].next) = id;
    whole.back = id;
    ++whole.size;
  }

  // Requires that `id` is in a list.
  void Erase(int32_t id) {
    Link& link = links_[id];
    CHECK(link.list != kNone);
    List& whole = lists_[link.list];
    (link.previous == kNone ? whole.front : links_[link.previous].next) = link.next;
    (link.next == kNone ? whole.back : links_[link.next].previous) = link.previous;
    --whole.size;
    link = Link();
  }

 private:
  struct List {
    int32_t front = kNone;
    int32_t back = kNone;
    int32_t size = 0;
  };
  struct Link {
    int32_t previous = kNone;
    int32_t next = kNone;
    int32_t list = kNone;
  };

  std::vector<List> lists_;
  std::vector<Link> links_;
};

}  // namespace quire
