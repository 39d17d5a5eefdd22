// Lines are counted on the way: a job knows their number before it begins.
#include "server/jobs/job_upload.h"

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "quire/v1/jobs.pb.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"
#include "server/generate/request_codec.h"
#include "server/jobs/job_codec.h"
#include "server/session/little_endian.h"

namespace quire {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr double kDefaultExpirySeconds = 7 * 86400;
constexpr double kLongestExpirySeconds = 30 * 86400;

std::string MakeJobId() {
  std::random_device device;
  return "job-" + Hex(uint64_t{device()} << 32 | device());
}

class UploadCall final : public grpc::ServerReadReactor<grpc::ByteBuffer>, public JobStream {
 public:
  UploadCall(const JobResources* resources, const IncomingCall& call, grpc::ByteBuffer* response)
      : JobStream(resources, call, "quire.v1.Jobs/Create"), response_(response) {}

  void Start() {
    if (!Begin()) return;
    const double seconds = resources_->calls.options.default_deadline_seconds;
    Post(
        [this] {
          End(Refusal(absl::StatusCode::kDeadlineExceeded, "DEADLINE", "the upload took too long"));
        },
        SteadyNowNs() + static_cast<int64_t>(seconds * 1e9));
    Post([this] {
      const absl::Status accepts = resources_->drain.CheckAccepts();
      if (!accepts.ok()) return End(accepts);
      StartRead(&in_);
    });
  }

  void OnReadDone(bool ok) override {
    Post([this, ok] {
      if (ended()) return;
      // The client has sent everything, or the call is broken off: this looks alike. To a call that
      // is broken off nothing can be sent.
      if (!ok) return StartSendInitialMetadata();
      const absl::Status status = Take();
      if (!status.ok()) return End(status);
      StartRead(&in_);
    });
  }
  void OnSendInitialMetadataDone(bool ok) override {
    Post([this, ok] {
      if (ended()) return;
      if (!ok) return End(absl::CancelledError("the upload broke off"));
      Commit();
    });
  }
  void OnCancel() override {
    if (resources_->runner == nullptr) return;
    Post([this] { End(absl::CancelledError("the call was cancelled")); });
  }
  void OnDone() override { Done(); }

 private:
  absl::Status Take() {
    v1::CreateJobRequest request;
    RETURN_IF_ERROR(ParseMessage(in_, &request));
    if (number_ == 0) {
      RETURN_IF_ERROR(TakeOptions(request.options()));
    } else if (request.has_options()) {
      return InvalidField("options", "belongs into the first message");
    }
    if (request.data().size() > kChunkBytes) {
      return InvalidField("data", "has " + std::to_string(request.data().size()) +
                                      " bytes; send at most 1 MiB at a time");
    }
    const auto bytes = static_cast<int64_t>(request.data().size());
    RETURN_IF_ERROR(resources_->runner->TakeBytes(caller_->tenant, bytes));
    state_.input_bytes += bytes;
    for (std::string_view left = request.data(); !left.empty();) {
      state_.lines += lines_.Take(&left).has_value();
    }
    RETURN_IF_ERROR(CheckLines());
    return AppendAll(*file_, request.data());
  }

  absl::Status CheckLines() const {
    const uint64_t most = resources_->runner->limits().max_lines;
    if (lines_.number() <= most) return absl::OkStatus();
    return Refusal(
        absl::StatusCode::kResourceExhausted, "JOB_LIMIT",
        "data: has more than " + std::to_string(most) + " lines; make several jobs of it");
  }

  absl::Status TakeOptions(const v1::JobOptions& options) {
    state_.id = options.has_job_id() ? options.job_id() : MakeJobId();
    RETURN_IF_ERROR(CheckName("options.job_id", state_.id));
    state_.caller = *caller_;
    if (options.has_priority()) {
      RETURN_IF_ERROR(CheckPriority(options.priority()));
      if (options.priority() > caller_->max_priority) {
        return Refusal(absl::StatusCode::kPermissionDenied, "PRIORITY",
                       "options.priority: must be at most " +
                           std::to_string(caller_->max_priority) + " for this tenant, not " +
                           std::to_string(options.priority()));
      }
      state_.priority = options.priority();
    }
    state_.expires_after_seconds = options.has_expires_after_seconds()
                                       ? options.expires_after_seconds()
                                       : kDefaultExpirySeconds;
    // Written so that what is not a number fails too.
    if (!(state_.expires_after_seconds >= 1 &&
          state_.expires_after_seconds <= kLongestExpirySeconds)) {
      return InvalidField("options.expires_after_seconds",
                          "must be between 1 and 2592000, which is 30 days");
    }
    state_.created_ns = JobClockNs();
    ASSIGN_OR_RETURN(number_, resources_->runner->BeginUpload(state_));
    ASSIGN_OR_RETURN(file_, resources_->runner->files().CreateInput(number_));
    return absl::OkStatus();
  }

  // The client has sent everything.
  void Commit() {
    if (number_ == 0) return End(InvalidField("data", "missing; send at least one message"));
    state_.lines += lines_.Finish().has_value();
    file_.reset();
    const absl::StatusOr<Job*> job = resources_->runner->EndUpload(
        std::exchange(number_, 0), state_, /*whole=*/true, state_.input_bytes);
    if (job.ok()) {
      v1::Job message;
      EncodeJob(**job, &message);
      const std::string bytes = message.SerializeAsString();
      *response_ = ToByteBuffer(bytes.data(), bytes.size());
    }
    End(job.status());
  }

  void ReleaseAll() override {
    if (number_ == 0) return;
    file_.reset();
    resources_->runner
        ->EndUpload(std::exchange(number_, 0), state_, /*whole=*/false, state_.input_bytes)
        .status()
        .IgnoreError();
  }
  void FinishWith(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  grpc::ByteBuffer* const response_;
  // The jobs thread's.
  grpc::ByteBuffer in_;  // of the read in flight
  JobState state_;
  uint64_t number_ = 0;  // of the job's files; 0: not begun, or ended
  std::unique_ptr<DiskFile> file_;
  LineSplitter lines_{kMaxLineBytes};
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* StartJobUpload(const JobResources* resources,
                                                          const IncomingCall& call,
                                                          grpc::ByteBuffer* response) {
  const auto made = std::make_shared<UploadCall>(resources, call, response);
  made->Start();
  return made.get();
}

}  // namespace quire
