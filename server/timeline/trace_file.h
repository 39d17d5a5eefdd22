// TraceFile: a recording of the timeline as JSON in the Trace Event Format, which Perfetto
// (ui.perfetto.dev) and chrome://tracing open. Times are microseconds since the recording began.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/timeline.h"

namespace quire {

class TraceFile {
 public:
  // `begin_ns`: steady clock, the zero of the file. `about`: one line for the file's reader, such
  // as the version and the model.
  TraceFile(Timeline::Recording recording, int64_t begin_ns, std::string about);

  // Appends further text to `out`, at least `bytes` unless it is the last. False: there was none.
  bool Next(size_t bytes, std::string* out);

 private:
  void AppendHead(std::string* out) const;

  const Timeline::Recording recording_;
  const int64_t begin_ns_;
  const std::string about_;
  size_t next_ = 0;  // event
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace quire
