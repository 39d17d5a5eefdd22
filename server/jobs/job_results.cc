// A message has several results, as long as they are small. A slow reader costs a message of
// memory.
#include "server/jobs/job_results.h"

#include <algorithm>
#include <memory>
#include <string>

#include "engine/base/status_macros.h"
#include "quire/v1/jobs.pb.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"
#include "server/jobs/jobs_service.h"

namespace quire {
namespace {

constexpr size_t kMessageBytes = size_t{256} << 10;

class ResultsCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                          public JobStream,
                          public JobWatcher {
 public:
  ResultsCall(const JobResources* resources, const IncomingCall& call)
      : JobStream(resources, call, "quire.v1.Jobs/Results") {}

  void Start(const grpc::ByteBuffer& bytes) {
    if (!Begin()) return;
    Post([this, bytes] {
      const absl::Status status = Open(bytes);
      if (!status.ok()) return End(status);
      Pump();
    });
  }

  void OnWriteDone(bool ok) override {
    Post([this, ok] {
      writing_ = false;
      if (!ok) return End(absl::CancelledError("the call was cancelled"));
      Pump();
    });
  }
  void OnCancel() override {
    if (resources_->runner == nullptr) return;
    Post([this] { End(absl::CancelledError("the call was cancelled")); });
  }
  void OnDone() override { Done(); }
  void JobChanged() override { Pump(); }

 private:
  absl::Status Open(const grpc::ByteBuffer& bytes) {
    v1::JobResultsRequest request;
    RETURN_IF_ERROR(ParseMessage(bytes, &request));
    ASSIGN_OR_RETURN(Job * job, FindJob(*resources_->runner, *caller_, request.job_id()));
    number_ = job->number;
    no_wait_ = request.no_wait();
    offset_ = static_cast<int64_t>(
        std::min<uint64_t>(request.offset(), static_cast<uint64_t>(job->result_bytes) + 1));
    if (offset_ < job->result_bytes) {
      ASSIGN_OR_RETURN(const std::unique_ptr<DiskFile> file,
                       resources_->runner->files().ReadResults(number_));
      const absl::StatusOr<JobRecord> first = ReadRecordAt(*file, offset_, job->result_bytes);
      if (!first.ok()) return NoOffset(request.offset());
    } else if (offset_ > job->result_bytes) {
      return NoOffset(request.offset());
    }
    job->watchers.push_back(this);
    StartSendInitialMetadata();  // the job is there, whenever its first result comes
    return absl::OkStatus();
  }

  static absl::Status NoOffset(uint64_t offset) {
    return Refusal(absl::StatusCode::kOutOfRange, "NO_OFFSET",
                   "offset: no result begins at " + std::to_string(offset) +
                       "; take next_offset of the last message, or 0");
  }

  void Pump() {
    if (ended() || writing_) return;
    const Job* const job = resources_->runner->Find(number_);
    if (job == nullptr)
      return End(Refusal(absl::StatusCode::kNotFound, "JOB_NOT_FOUND",
                         "the job was deleted, or has expired"));
    if (offset_ == job->result_bytes) {
      if (job->ended() || no_wait_) End(absl::OkStatus());
      return;
    }
    const absl::Status status = Write(job->result_bytes);
    if (!status.ok()) End(status);
  }

  absl::Status Write(int64_t size) {
    ASSIGN_OR_RETURN(const std::unique_ptr<DiskFile> file,
                     resources_->runner->files().ReadResults(number_));
    v1::JobResults message;
    size_t bytes = 0;
    while (offset_ < size && bytes < kMessageBytes) {
      ASSIGN_OR_RETURN(JobRecord record, ReadRecordAt(*file, offset_, size));
      // One that does not fit goes alone.
      if (bytes > 0 && bytes + record.json.size() > kMessageBytes) break;
      bytes += record.json.size();
      offset_ += static_cast<int64_t>(kRecordHeadBytes + record.json.size());
      message.add_lines(std::move(record.json));
    }
    message.set_next_offset(static_cast<uint64_t>(offset_));
    const std::string encoded = message.SerializeAsString();
    buffer_ = ToByteBuffer(encoded.data(), encoded.size());
    writing_ = true;
    StartWrite(&buffer_);
    return absl::OkStatus();
  }

  void ReleaseAll() override {
    if (resources_->runner == nullptr) return;
    if (Job* const job = resources_->runner->Find(number_)) std::erase(job->watchers, this);
  }
  void FinishWith(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  // The jobs thread's.
  uint64_t number_ = 0;  // of the job
  bool no_wait_ = false;
  int64_t offset_ = 0;       // of the next result
  grpc::ByteBuffer buffer_;  // of the write in flight
  bool writing_ = false;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartJobResults(const JobResources* resources,
                                                            const IncomingCall& call,
                                                            const grpc::ByteBuffer* request) {
  const auto made = std::make_shared<ResultsCall>(resources, call);
  made->Start(*request);
  return made.get();
}

}  // namespace quire
