// A small session as an exported file and as a journal: what the targets of session files mutate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/session/archive/session_journal.h"
#include "server/session/session_file.h"

namespace quire {

inline constexpr uint64_t kSeedModel = 0x1234;
inline constexpr int kSeedTokens = 9;

// The limits of the server that wrote them.
inline SessionFileReader::Limits SeedLimits() {
  return {.shape = {.model = "demo",
                    .model_identity = kSeedModel,
                    .kv_dtype = "float32",
                    .num_layers = 1,
                    .num_kv_heads = 2,
                    .head_dim = 2,
                    .block_size = 4,
                    .block_bytes = 2 * 2 * 4 * 2 * 4},
          .max_tokens = 100,
          .vocab_size = 1000};
}

inline std::string SeedSessionFile(int32_t kv_tokens) {
  const SessionFileReader::Limits limits = SeedLimits();
  std::vector<std::byte> page(static_cast<size_t>(limits.shape.block_bytes), std::byte{7});
  SessionFileWriter writer(
      {.shape = limits.shape, .num_tokens = kSeedTokens, .kv_tokens = kv_tokens},
      {1, 2, 3, 4, 5, 6, 7, 8, 999},
      {.ranks = 1, .page_of = [&page](int32_t, int32_t) -> std::span<std::byte> { return page; }});
  std::string file;
  while (writer.Next(1 << 20, &file)) {
  }
  return file;
}

inline std::string SeedJournal(const std::string& name = "fox") {
  uint64_t sum = 0;
  std::string file = EncodeHeader(
      {.model = "demo", .model_identity = kSeedModel, .tenant = 7, .name = name, .created_ns = 1},
      &sum);
  file += EncodeRecord({.kept = 0, .turns = 1, .used_ns = 5}, std::vector<int32_t>{1, 2, 3}, &sum);
  file += EncodeRecord({.kept = 2, .turns = 2, .used_ns = 6}, std::vector<int32_t>{4}, &sum);
  file += EncodeRecord({.kept = 3, .turns = 2, .used_ns = 7}, {}, &sum);
  return file;
}

}  // namespace quire
