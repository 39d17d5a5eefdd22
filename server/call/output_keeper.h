// OutputKeeper: takes a stream's output token by token and keeps it, for readers that come and go
// while the stream is live and after its end (server/detach/kept_answer.h).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
namespace quire {

struct OutputDelta;

// Called without a lock of the stream.
class OutputKeeper {
 public:
  virtual ~OutputKeeper() = default;

  // --- The thread of the stream's output shard.
  // Takes one token, or, of none, the text that the end of the output lets go of; clears `output`.
  // `holds_text`: more text may come of the tokens so far without a further one.
  virtual void Keep(OutputDelta& output, bool holds_text) = 0;
  // Hands what was kept since the last call of this to the reader.
  virtual void Show() = 0;

  // --- Any thread.
  // The stream has ended and is aborted: forgets all.
  virtual void Drop(const absl::Status& why) = 0;
  // Instead of GenerationStream::CheckStall.
  virtual int64_t Check(int64_t now_ns) = 0;
};

}  // namespace quire
