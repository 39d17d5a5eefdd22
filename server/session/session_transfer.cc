// Two reactors over the session thread, which reads and writes pages in place.
#include "server/session/session_transfer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "quire/v1/sessions.pb.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/generate/stream_table.h"
#include "server/session/session_stream.h"
#include "server/session/session_watches.h"

namespace quire {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
// How long an export waits for KV to come to the host: several times the time that the largest
// session takes. Later KV is left out, and its tokens travel alone.
constexpr double kPatienceSeconds = 5;

absl::Status CallerGone() { return absl::CancelledError("the call was cancelled"); }

// The pages of the blocks in the arenas; kNoPage has no bytes. Without host memory there are ranks
// but no arenas.
RankPages PagesIn(const SessionResources& resources, std::vector<PageId> pages) {
  return {.ranks = resources.model.setup.memory.ranks,
          .page_of = [arenas = resources.arenas, pages = std::move(pages)](
                         int32_t block, int32_t rank) -> std::span<std::byte> {
            const PageId page = pages[static_cast<size_t>(block)];
            if (page == kNoPage) return {};
            return arenas[static_cast<size_t>(rank)]->page(page);
          }};
}

// The common part of exports and imports: a bound on their number, and a deadline, since they hold
// a session or pages.
class Transfer : public SessionStream {
 public:
  using SessionStream::SessionStream;

 protected:
  absl::Status Enter() {
    if (!resources_->transfers.Enter(tenant_)) {
      resources_->transfers.Leave(tenant_);
      return Refusal(absl::StatusCode::kUnavailable, "TOO_MANY_STREAMS",
                     "too many sessions are being exported and imported; retry later", 1);
    }
    entered_ = true;
    RETURN_IF_ERROR(resources_->streams.Enter(tenant_));
    SetAlarm(deadline_, resources_->calls.options.default_deadline_seconds, [this] {
      End(Refusal(absl::StatusCode::kDeadlineExceeded, "DEADLINE", "the transfer took too long"));
    });
    return absl::OkStatus();
  }
  void Leave() {
    deadline_.Cancel();
    if (!std::exchange(entered_, false)) return;
    resources_->transfers.Leave(tenant_);
    resources_->streams.Leave(tenant_);
  }

 private:
  CallAlarm deadline_;
  bool entered_ = false;
};

class ExportCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                         public Transfer,
                         public SessionWatcher {
 public:
  ExportCall(SessionResources* resources, const IncomingCall& call)
      : Transfer(resources, call, "quire.v1.Sessions/Export") {}

  void Start(const grpc::ByteBuffer& bytes) {
    v1::ExportSessionRequest request;
    absl::Status status = ParseMessage(bytes, &request);
    if (status.ok()) status = CheckName("session_id", request.session_id());
    name_ = request.session_id();
    Begin();
    Post([this, status]() mutable {
      if (status.ok()) status = Enter();
      if (!status.ok()) return End(status);
      Save();
    });
  }

  void OnWriteDone(bool ok) override {
    Post([this, ok] {
      if (!ok) return End(CallerGone());
      Pump();
    });
  }
  void OnCancel() override {
    Post([this] { End(CallerGone()); });
  }
  void OnDone() override { Done(); }

  // The scheduler thread.
  void Changed(const SessionInfo& info) override {
    if (OnHost(info)) Post([this] { StopWaiting(); });
  }

 private:
  // Whether all existing KV is on the host.
  static bool OnHost(const SessionInfo& info) {
    return info.state == SessionState::kClosed ||
           info.tiers.host_tokens + info.tiers.absent_tokens >= info.position;
  }

  // Asks for the KV on the host and waits for it a while. Watches first, so that no change is
  // missed.
  void Save() {
    const auto self = std::static_pointer_cast<ExportCall>(shared_from_this());
    if (resources_->arenas.empty()) return StopWaiting();
    if (!resources_->watches.Add(tenant_, name_, self)) return StopWaiting();
    Run({.tenant = tenant_, .name = name_, .action = SessionOperation::Save()},
        [this](const SessionAnswer& answer) {
          if (!answer.status.ok()) return End(FromSessions(answer.status));
          if (OnHost(answer.sessions.front())) return StopWaiting();
          if (!ended() && !collecting_) {
            SetAlarm(patience_, kPatienceSeconds, [this] { StopWaiting(); });
          }
        });
  }

  void StopWaiting() {
    resources_->watches.Remove(tenant_, name_, this);
    patience_.Cancel();
    if (ended() || std::exchange(collecting_, true)) return;
    Run({.tenant = tenant_, .name = name_, .action = SessionOperation::BeginExport()},
        [this](SessionAnswer answer) {
          if (!answer.status.ok()) return End(FromSessions(answer.status));
          Send(std::move(answer.transfer));
        });
  }

  void Send(SessionTransfer begun) {
    turn_ = begun.turn;
    if (ended()) return ReleaseTurn();
    SessionFileHeader header{.shape = ShapeOf(resources_->model),
                             .num_tokens = static_cast<int32_t>(begun.tokens.size()),
                             .kv_tokens = resources_->arenas.empty() ? 0 : begun.kv_tokens};
    writer_.emplace(header, begun.tokens, PagesIn(*resources_, std::move(begun.pages)));
    Pump();
  }

  void Pump() {
    if (ended()) return;
    v1::SessionChunk chunk;
    if (!writer_->Next(kChunkBytes, chunk.mutable_data())) return End(absl::OkStatus());
    const std::string bytes = chunk.SerializeAsString();
    buffer_ = ToByteBuffer(bytes.data(), bytes.size());
    StartWrite(&buffer_);
  }

  void ReleaseTurn() {
    if (turn_ == 0) return;
    Run({.action = SessionOperation::EndExport{std::exchange(turn_, 0)}},
        [](const SessionAnswer&) {});
  }
  void ReleaseAll() override {
    resources_->watches.Remove(tenant_, name_, this);
    patience_.Cancel();
    ReleaseTurn();
    Leave();
  }
  void FinishWith(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  SessionName name_;  // constant after Start
  // The session thread's.
  CallAlarm patience_;
  bool collecting_ = false;
  uint64_t turn_ = 0;  // holds the session
  std::optional<SessionFileWriter> writer_;
  grpc::ByteBuffer buffer_;  // of the write in flight
};

class ImportCall final : public grpc::ServerReadReactor<grpc::ByteBuffer>, public Transfer {
 public:
  ImportCall(SessionResources* resources, const IncomingCall& call, grpc::ByteBuffer* response)
      : Transfer(resources, call, "quire.v1.Sessions/Import"),
        response_(response),
        reader_(FileLimits(resources->model)) {}

  void Start() {
    Begin();
    Post([this] {
      absl::Status status = resources_->drain.CheckAccepts();
      if (status.ok()) status = Enter();
      if (!status.ok()) return End(status);
      StartRead(&in_);
    });
  }

  void OnReadDone(bool ok) override {
    Post([this, ok] {
      if (ended()) return;
      // The client has sent everything, or the call is broken off: this looks alike. To a call that
      // is broken off nothing can be sent.
      if (!ok) return StartSendInitialMetadata();
      const absl::Status status = TakeMessage();
      if (!status.ok()) End(status);
    });
  }
  void OnSendInitialMetadataDone(bool ok) override {
    Post([this, ok] {
      if (ended()) return;
      const absl::Status status = ok ? Commit() : CallerGone();
      if (!status.ok()) End(status);
    });
  }
  void OnCancel() override {
    Post([this] { End(CallerGone()); });
  }
  void OnDone() override { Done(); }

 private:
  absl::Status TakeMessage() {
    v1::ImportSessionRequest request;
    RETURN_IF_ERROR(ParseMessage(in_, &request));
    if (name_.empty()) {
      ASSIGN_OR_RETURN(name_,
                       DecodeNewName("session_id", request.has_session_id(), request.session_id()));
      RETURN_IF_ERROR(CheckOptions(request.options(), resources_->max_ttl_seconds()));
      options_ = DecodeOptions(request.options());
    } else if (request.has_session_id() || request.has_options()) {
      return InvalidField(request.has_session_id() ? "session_id" : "options",
                          "belongs into the first message");
    }
    if (request.chunk().data().size() > kChunkBytes) {
      return InvalidField("chunk.data", "has " + std::to_string(request.chunk().data().size()) +
                                            " bytes; send at most 1 MiB at a time");
    }
    data_ = std::move(*request.mutable_chunk()->mutable_data());
    left_ = data_;
    return TakeBytes();
  }

  // The rest of the message; then reads the next one.
  absl::Status TakeBytes() {
    RETURN_IF_ERROR(reader_.Take(&left_));
    for (; signed_ < reader_.blocks_read(); ++signed_) Sign(signed_);
    if (reader_.AwaitsPages()) {
      Run(BeginImport(), [this](SessionAnswer answer) { TakePages(std::move(answer)); });
    } else {
      StartRead(&in_);
    }
    return absl::OkStatus();
  }

  SessionOperation BeginImport() const {
    return {.tenant = tenant_,
            .name = name_,
            .action = SessionOperation::BeginImport{
                .options = options_,
                .tokens = reader_.tokens(),
                .kv_tokens = resources_->arenas.empty() ? 0 : reader_.header().kv_tokens}};
  }

  void TakePages(SessionAnswer answer) {
    if (!answer.status.ok()) return End(FromSessions(answer.status));
    turn_ = answer.transfer.turn;
    if (ended()) return ReleaseImport();
    pages_ = std::move(answer.transfer.pages);
    pages_.resize(static_cast<size_t>(reader_.header().num_blocks()), kNoPage);
    reader_.SetPages(PagesIn(*resources_, pages_));
    if (const absl::Status status = TakeBytes(); !status.ok()) End(status);
  }

  // For --kv-checksum, as a store would have done.
  void Sign(int32_t block) {
    const PageId page = pages_[static_cast<size_t>(block)];
    if (page == kNoPage) return;
    for (const std::shared_ptr<HostArena>& arena : resources_->arenas) arena->Sign(page);
  }

  // The client has sent everything. A file without KV needed no pages: its import begins here.
  absl::Status Commit() {
    RETURN_IF_ERROR(reader_.Finish());
    if (turn_ != 0) {
      EndImport();
      return absl::OkStatus();
    }
    Run(BeginImport(), [this](const SessionAnswer& answer) {
      if (!answer.status.ok()) return End(FromSessions(answer.status));
      turn_ = answer.transfer.turn;
      if (ended()) return ReleaseImport();
      EndImport();
    });
    return absl::OkStatus();
  }

  void EndImport() {
    Run({.action = SessionOperation::EndImport{std::exchange(turn_, 0), /*complete=*/true}},
        [this](const SessionAnswer& answer) { Answer(answer); });
  }

  void Answer(const SessionAnswer& answer) {
    if (answer.status.ok() && !ended()) {
      v1::Session message;
      EncodeSession(answer.sessions.front(), SteadyNowNs(), &message);
      const std::string bytes = message.SerializeAsString();
      *response_ = ToByteBuffer(bytes.data(), bytes.size());
    }
    End(FromSessions(answer.status));
  }

  void ReleaseImport() {
    if (turn_ == 0) return;
    Run({.action = SessionOperation::EndImport{std::exchange(turn_, 0), /*complete=*/false}},
        [](const SessionAnswer&) {});
  }
  void ReleaseAll() override {
    ReleaseImport();
    Leave();
  }
  void FinishWith(const absl::Status& status) override { Finish(ToGrpcStatus(status)); }

  grpc::ByteBuffer* const response_;
  // The session thread's.
  grpc::ByteBuffer in_;  // of the read in flight
  SessionName name_;     // empty before the first message
  SessionOptions options_;
  SessionFileReader reader_;
  std::string data_;       // of the last message
  std::string_view left_;  // the rest of data_, not yet read
  uint64_t turn_ = 0;      // holds the new session; 0: not begun, or ended
  std::vector<PageId> pages_;
  int32_t signed_ = 0;  // blocks
};

}  // namespace

SessionFileShape ShapeOf(const ServingModel& model) {
  KvLayout layout = model.setup.kv_layout;
  layout.num_kv_heads = model.setup.model.num_kv_heads;
  return {.model = model.name,
          .model_identity = model.identity,
          .kv_dtype = Name(layout.dtype),
          .num_layers = layout.num_layers,
          .num_kv_heads = layout.num_kv_heads,
          .head_dim = layout.head_dim,
          .block_size = model.setup.memory.block_size,
          .block_bytes = layout.block_bytes()};
}

SessionFileReader::Limits FileLimits(const ServingModel& model) {
  return {.shape = ShapeOf(model),
          .max_tokens = model.setup.limits.max_model_len,
          .vocab_size = model.setup.model.vocab_size};
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartExport(SessionResources* resources,
                                                        const IncomingCall& call,
                                                        const grpc::ByteBuffer* request) {
  const auto made = std::make_shared<ExportCall>(resources, call);
  made->Start(*request);
  return made.get();
}

grpc::ServerReadReactor<grpc::ByteBuffer>* StartImport(SessionResources* resources,
                                                       const IncomingCall& call,
                                                       grpc::ByteBuffer* response) {
  const auto made = std::make_shared<ImportCall>(resources, call, response);
  made->Start();
  return made.get();
}

}  // namespace quire
