// A line may run again after a crash.
#include "server/jobs/job_line.h"

#include <string>

#include "engine/base/status_macros.h"
#include "server/call/status_codec.h"
#include "server/jobs/job_files.h"

namespace quire {

absl::Status ReadJobLine(const InputLine& input, RequestLine* line) {
  line->number = input.number;
  if (input.too_long) {
    return InvalidField("line", "has more than " + std::to_string(kMaxLineBytes) + " bytes");
  }
  RETURN_IF_ERROR(ReadRequestLine(input.text, line));
  if (line->request.has_session_id()) {
    return InvalidField("request.session_id",
                        "a line of a job may run twice, and a session keeps each turn; use "
                        "GenerateBatch");
  }
  if (line->request.has_priority()) {
    return InvalidField("request.priority", "is of the whole job: JobOptions.priority");
  }
  return absl::OkStatus();
}

}  // namespace quire
