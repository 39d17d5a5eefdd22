// `quire session` and `quire generate --session` against scripted services in this process: flags
// become requests, sessions become text, turns follow each other.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "clients/cpp/call/report.h"
#include "clients/cpp/call/session_output.h"
#include "clients/cpp/flags/durations.h"
#include "clients/cpp/quire.h"
#include "quire/v1/control.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "quire/v1/sessions.grpc.pb.h"

namespace quire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAlice[] = R"({"session_id": "alice", "state": "SESSION_STATE_HOST", "position": 530,
  "turns": 3, "options": {"ttl_seconds": 3600, "idle_offload_after_seconds": 2,
  "retain_priority": -5}, "device_tokens": 96, "host_tokens": 512, "absent_tokens": 18,
  "idle_seconds": 3.14159, "expires_in_seconds": 3596.9, "age_seconds": 8000})";

template <typename Message>
Message Parse(const std::string& json) {
  Message message;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  EXPECT_TRUE(status.ok()) << json << ": " << status.ToString();
  return message;
}

// The session that a call names to proxies.
std::string SessionHeader(const grpc::ServerContext& call) {
  const auto found = call.client_metadata().find("x-quire-session");
  if (found == call.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

// Answers each call with `session`, or fails with `status`; keeps the last request as text.
class FakeSessions final : public v1::Sessions::Service {
 public:
  v1::Session session = Parse<v1::Session>(kAlice);
  std::vector<v1::ListSessionsResponse> pages;
  std::vector<v1::Session> changes;
  std::vector<std::string> chunks;
  grpc::Status status;
  std::vector<std::string> asked;  // "Fork session_id: ..."
  std::string imported;
  std::string header;  // of the last import
  std::vector<size_t> imported_sizes;

#define ANSWER(Method, Request)                                                             \
  grpc::Status Method(grpc::ServerContext*, const v1::Request* request, v1::Session* reply) \
      override {                                                                            \
    return Answer(#Method, *request, reply);                                                \
  }
  ANSWER(Create, CreateSessionRequest)
  ANSWER(Get, GetSessionRequest)
  ANSWER(Fork, ForkSessionRequest)
  ANSWER(Truncate, TruncateSessionRequest)
  ANSWER(Touch, TouchSessionRequest)
  ANSWER(Offload, OffloadSessionRequest)
  ANSWER(Prefetch, PrefetchSessionRequest)
  ANSWER(Pin, PinSessionRequest)
  ANSWER(Unpin, UnpinSessionRequest)
#undef ANSWER

  grpc::Status Close(grpc::ServerContext*, const v1::CloseSessionRequest* request,
                     v1::CloseSessionResponse*) override {
    Keep("Close", *request);
    return status;
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListSessionsRequest* request,
                    v1::ListSessionsResponse* reply) override {
    Keep("List", *request);
    if (!pages.empty()) {
      *reply = pages.front();
      pages.erase(pages.begin());
    }
    return status;
  }
  grpc::Status Watch(grpc::ServerContext*, const v1::WatchSessionRequest* request,
                     grpc::ServerWriter<v1::Session>* writer) override {
    Keep("Watch", *request);
    for (const v1::Session& change : changes) writer->Write(change);
    return status;
  }
  grpc::Status Export(grpc::ServerContext*, const v1::ExportSessionRequest* request,
                      grpc::ServerWriter<v1::SessionChunk>* writer) override {
    Keep("Export", *request);
    v1::SessionChunk chunk;
    for (const std::string& data : chunks) {
      chunk.set_data(data);
      writer->Write(chunk);
    }
    return status;
  }
  grpc::Status Import(grpc::ServerContext* context,
                      grpc::ServerReader<v1::ImportSessionRequest>* reader,
                      v1::Session* reply) override {
    header = SessionHeader(*context);
    v1::ImportSessionRequest request;
    while (status.ok() && reader->Read(&request)) {
      imported += request.chunk().data();
      imported_sizes.push_back(request.chunk().data().size());
      request.clear_chunk();
      Keep("Import", request);
    }
    *reply = session;
    return status;
  }

 private:
  template <typename Request>
  void Keep(const char* method, const Request& request) {
    asked.push_back(std::string(method) + " " + request.ShortDebugString());
  }
  template <typename Request>
  grpc::Status Answer(const char* method, const Request& request, v1::Session* reply) {
    Keep(method, request);
    *reply = session;
    return status;
  }
};

// Answers "answer N"; the session grows by ten tokens a turn.
class FakeInference final : public v1::Inference::Service {
 public:
  std::vector<v1::GenerateRequest> turns;
  bool has_sessions = true;
  uint32_t fails_at = 100;  // turn, from 1
  std::string header;       // of the last turn

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    turns.push_back(*request);
    header = SessionHeader(*context);
    const auto turn = static_cast<uint32_t>(turns.size());
    if (turn == fails_at) return {grpc::StatusCode::FAILED_PRECONDITION, "the session has 530"};
    v1::GenerateResponse frame;
    frame.mutable_tokens()->set_text("answer " + std::to_string(turn));
    frame.mutable_tokens()->set_cumulative_tokens(2);
    writer->Write(frame);
    *frame.mutable_finished() = Finished(turn);
    writer->Write(frame);
    return grpc::Status::OK;
  }
  grpc::Status GenerateUnary(grpc::ServerContext*, const v1::GenerateRequest* request,
                             v1::GenerateResult* result) override {
    turns.push_back(*request);
    result->set_text("whole");
    *result->mutable_finished() = Finished(1);
    return grpc::Status::OK;
  }

 private:
  v1::Finished Finished(uint32_t turn) const {
    v1::Finished finished;
    finished.mutable_residency()->set_device_tokens(10 * (turn - 1));
    if (has_sessions) finished.set_position(10 * turn);
    return finished;
  }
};

class SessionCliTest : public ::testing::Test {
 protected:
  SessionCliTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&sessions_);
    builder.RegisterService(&inference_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~SessionCliTest() override { server_->Shutdown(); }

  int Run(std::vector<std::string> args, const std::string& input = "", bool typed = false) {
    args.insert(args.begin(), {"--server", address_});
    std::istringstream in(input);
    std::ostringstream out, err;
    Terminal terminal{in, out, err, typed};
    const int code = RunQuire(args, terminal, interrupt_);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  // The last request that `args` made.
  std::string Asked(std::vector<std::string> args) {
    args.insert(args.begin(), "session");
    EXPECT_EQ(Run(args), 0) << err_;
    return sessions_.asked.empty() ? "" : sessions_.asked.back();
  }

  FakeSessions sessions_;
  FakeInference inference_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  Interrupt interrupt_;
  std::string out_, err_;
};

class FileTest : public SessionCliTest {
 protected:
  FileTest() : folder_(std::filesystem::path(::testing::TempDir()) / "quire-session-file") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  const std::filesystem::path folder_;
};

// A server that says who it is.
class Place {
 public:
  explicit Place(const std::string& id) : control_(id) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&sessions);
    builder.RegisterService(&control_);
    server_ = builder.BuildAndStart();
    address = "127.0.0.1:" + std::to_string(port);
  }
  ~Place() { server_->Shutdown(); }

  FakeSessions sessions;
  std::string address;
  // As a proxy: calls that name this session reach another server.
  void Forward(const std::string& session, const std::string& id) {
    control_.session = session;
    control_.other = id;
  }

 private:
  struct FakeControl final : v1::Control::Service {
    explicit FakeControl(const std::string& id_in) : id(id_in) {}
    grpc::Status GetServerInfo(grpc::ServerContext* context, const v1::GetServerInfoRequest*,
                               v1::ServerInfo* info) override {
      info->set_instance_id(SessionHeader(*context) == session ? other : id);
      return grpc::Status::OK;
    }
    const std::string id;
    std::string session = "no session", other;
  };
  FakeControl control_;
  std::unique_ptr<grpc::Server> server_;
};

class MoveTest : public ::testing::Test {
 protected:
  MoveTest() {
    v1::ListSessionsResponse page;
    for (const char* name : {"a", "b"}) page.add_sessions()->set_session_id(name);
    from_.sessions.pages = {page};
    from_.sessions.chunks = {"xy", "z"};
    to_.Forward("b", "from");
  }
  int Move(std::vector<std::string> args) {
    args.insert(args.begin(), {"session", "move", "--server", from_.address});
    std::istringstream in;
    std::ostringstream out, err;
    Terminal terminal{in, out, err, false};
    Interrupt interrupt;
    const int code = RunQuire(args, terminal, interrupt);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  Place from_{"from"}, to_{"to"};
  std::string out_, err_;
};

TEST_F(MoveTest, MovesTheSessionsWhoseTurnsGoElsewhere) {
  EXPECT_EQ(Move({to_.address}), 0) << err_;
  EXPECT_EQ(out_, "moved a\nleft b\n");
  EXPECT_THAT(from_.sessions.asked,
              ElementsAre("List ", "Export session_id: \"a\"", "Close session_id: \"a\""));
  EXPECT_THAT(to_.sessions.asked, ElementsAre("Import session_id: \"a\"", "Import "));
  EXPECT_EQ(to_.sessions.imported, "xyz");
  EXPECT_EQ(to_.sessions.header, "a");
}

TEST_F(MoveTest, ClosesNothingThatTheOtherServerDidNotTake) {
  to_.sessions.status = {grpc::StatusCode::ALREADY_EXISTS, "the name is in use"};
  EXPECT_EQ(Move({to_.address, "a"}), 16);
  EXPECT_THAT(err_, HasSubstr("a: "));
  EXPECT_THAT(err_, HasSubstr("the name is in use"));
  EXPECT_THAT(from_.sessions.asked, ElementsAre("Export session_id: \"a\""));
}

TEST_F(MoveTest, TakesNothingOfASessionThatCannotBeExported) {
  from_.sessions.status = {grpc::StatusCode::FAILED_PRECONDITION, "a turn runs"};
  from_.sessions.chunks = {};
  EXPECT_EQ(Move({to_.address, "a"}), 19);
  EXPECT_THAT(err_, HasSubstr("a turn runs"));
  EXPECT_THAT(to_.sessions.asked, ElementsAre());
}

TEST_F(SessionCliTest, TurnsNameTheirSessionToProxies) {
  EXPECT_EQ(Run({"generate", "--session", "fox", "hi"}), 0);
  EXPECT_EQ(inference_.header, "fox");
  EXPECT_EQ(Run({"generate", "hi"}), 0);
  EXPECT_EQ(inference_.header, "");
}

TEST(DurationsTest, SecondsBecomeAReadableUnit) {
  EXPECT_EQ(FormatDuration(0), "0 ms");
  EXPECT_EQ(FormatDuration(0.25), "250 ms");
  EXPECT_EQ(FormatDuration(3.14159), "3.14 s");
  EXPECT_EQ(FormatDuration(3596.9), "59.9 min");
  EXPECT_EQ(FormatDuration(86400), "24 h");
  EXPECT_EQ(FormatDuration(259200), "3 d");
}

TEST(DescribeTurnTest, NamesTheSourcesOfTheTokens) {
  const auto finished = Parse<v1::Finished>(R"({"position": 530, "residency": {
      "device_tokens": 412, "host_tokens": 96, "recomputed_tokens": 7,
      "restore_seconds": 0.0031}})");
  EXPECT_EQ(DescribeTurn(finished, "x"),
            "412 tokens from the device, 96 from the host in 3.1 ms, 7 computed again; session 'x' "
            "at 530");
  EXPECT_EQ(DescribeTurn(v1::Finished(), "x"),
            "0 tokens from the device, 0 from the host, 0 computed again; session 'x' at 0");
}

TEST_F(SessionCliTest, EveryVerbHasItsRequest) {
  EXPECT_EQ(Asked({"create"}), "Create ");
  EXPECT_EQ(Asked({"create", "a", "--ttl", "30m", "--idle-offload-after", "500ms",
                   "--retain-priority", "-7"}),
            "Create session_id: \"a\" options { ttl_seconds: 1800 idle_offload_after_seconds: 0.5 "
            "retain_priority: -7 }");
  EXPECT_EQ(Asked({"get", "a"}), "Get session_id: \"a\"");
  EXPECT_EQ(Asked({"fork", "a"}), "Fork session_id: \"a\"");
  EXPECT_EQ(Asked({"fork", "a", "b", "--position", "0"}),
            "Fork session_id: \"a\" new_session_id: \"b\" position: 0");
  EXPECT_EQ(Asked({"truncate", "a", "12"}), "Truncate session_id: \"a\" position: 12");
  EXPECT_EQ(Asked({"touch", "a"}), "Touch session_id: \"a\"");
  EXPECT_EQ(Asked({"touch", "a", "--idle-offload-after", "0"}),
            "Touch session_id: \"a\" options { idle_offload_after_seconds: 0 }");
  EXPECT_EQ(Asked({"offload", "a"}), "Offload session_id: \"a\"");
  EXPECT_EQ(Asked({"prefetch", "a"}), "Prefetch session_id: \"a\"");
  EXPECT_EQ(Asked({"pin", "a"}), "Pin session_id: \"a\"");
  EXPECT_EQ(Asked({"unpin", "a"}), "Unpin session_id: \"a\"");
  EXPECT_EQ(Asked({"close", "a"}), "Close session_id: \"a\"");
  EXPECT_EQ(out_, "closed a\n");
}

TEST_F(SessionCliTest, ASessionIsAPageOrJson) {
  EXPECT_EQ(Run({"session", "get", "alice"}), 0);
  EXPECT_EQ(out_,
            "session  alice, host\n"
            "tokens   530 in 3 turns: 96 on the device, 512 on the host, 18 in neither\n"
            "lease    idle for 3.14 s, ends in 59.9 min unless used; 2.22 h old\n"
            "options  ttl 60 min, to the host after 2 s idle, retain priority -5\n");
  EXPECT_EQ(Run({"session", "get", "alice", "--json"}), 0);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(Parse<v1::Session>(out_),
                                                                 sessions_.session));
}

TEST_F(SessionCliTest, ListShowsEveryPageAsOneTable) {
  v1::ListSessionsResponse first, last;
  *first.add_sessions() = sessions_.session;
  first.set_next_after("alice");
  *last.add_sessions() = sessions_.session;
  last.mutable_sessions(0)->set_session_id("a-longer-name");
  last.mutable_sessions(0)->set_pinned(true);
  sessions_.pages = {first, last};
  EXPECT_EQ(Run({"session", "list"}), 0);
  EXPECT_THAT(sessions_.asked, ElementsAre("List ", "List after: \"alice\""));
  std::vector<std::string> lines;
  std::istringstream text(out_);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 3u);
  // Columns are aligned.
  for (const auto& [column, value] :
       {std::pair("  STATE", "  host"), {"TOKENS", "   530"}, {" EXPIRES", "59.9 min"}}) {
    EXPECT_EQ(lines[0].find(column), lines[1].find(value)) << out_;
    EXPECT_EQ(lines[0].find(column), lines[2].find(value)) << out_;
  }
  EXPECT_THAT(lines[1], HasSubstr(" no "));
  EXPECT_THAT(lines[2], HasSubstr(" yes "));
  sessions_.pages = {first, last};
  EXPECT_EQ(Run({"session", "list", "--json"}), 0);
  EXPECT_EQ(std::count(out_.begin(), out_.end(), '\n'), 2);
}

TEST_F(SessionCliTest, WatchPrintsALinePerChange) {
  sessions_.changes = {sessions_.session, sessions_.session};
  sessions_.changes[1].set_state(v1::SESSION_STATE_CLOSED);
  EXPECT_EQ(Run({"session", "watch", "alice"}), 0);
  EXPECT_EQ(std::count(out_.begin(), out_.end(), '\n'), 3);
  EXPECT_LT(out_.find(" host "), out_.find(" closed "));
}

TEST_F(SessionCliTest, RefusalsAreReportedAsForOtherCalls) {
  sessions_.status = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "a turn is running");
  for (const char* verb : {"get", "offload", "pin", "close", "watch"}) {
    EXPECT_EQ(Run({"session", verb, "alice"}), 19) << verb;
    EXPECT_EQ(err_, "quire: FAILED_PRECONDITION: a turn is running\n");
    EXPECT_THAT(out_, Not(HasSubstr("closed"))) << verb;
  }
  EXPECT_EQ(Run({"session", "list"}), 19);
}

TEST_F(SessionCliTest, MistakesExitWithTwoAndNameTheFlag) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{"session"}, "needs a verb"},
      {{"session", "frok", "a"}, "frok"},
      {{"session", "get"}, "name"},
      {{"session", "truncate", "a"}, "position"},
      {{"session", "truncate", "a", "-1"}, "position"},
      {{"session", "truncate", "a", "4294967296"}, "position"},
      {{"session", "create", "a", "--ttl", "-1s"}, "--ttl"},
      {{"session", "create", "a", "--ttl", "soon"}, "30m"},
      {{"session", "get", "a", "--ttl", "1s"}, "--ttl"},
      {{"session", "export", "a"}, "file"},
      {{"generate", "x", "--expected-position", "5"}, "--session"},
      {{"generate", "x", "--session", "a", "--no-prefix-cache"}, "--no-prefix-cache"},
      {{"generate", "x", "--session", "a", "--chat", "--print-ids"}, "--print-ids"},
  };
  for (const auto& [args, word] : mistakes) {
    EXPECT_EQ(Run(args), kExitUsage) << ::testing::PrintToString(args);
    EXPECT_THAT(err_, HasSubstr(word));
  }
  EXPECT_TRUE(sessions_.asked.empty());
}

TEST_F(FileTest, AnExportIsTheBytesInOrder) {
  sessions_.chunks = {std::string("QS\0\1", 4), "", std::string(1 << 20, 'x'), "end\n"};
  std::string whole;
  for (const std::string& chunk : sessions_.chunks) whole += chunk;
  EXPECT_EQ(Run({"session", "export", "alice", Path("a.qs")}), 0) << err_;
  EXPECT_EQ(out_, "wrote 1048584 bytes to " + Path("a.qs") + "\n");
  EXPECT_EQ(Read(Path("a.qs")), whole);
  EXPECT_EQ(Run({"session", "export", "alice", "-"}), 0);
  EXPECT_EQ(out_, whole);
}

TEST_F(FileTest, AFailedExportKeepsTheOldFileAndLeavesNoOther) {
  Write(Path("a.qs"), "old");
  sessions_.chunks = {"half"};
  sessions_.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  EXPECT_EQ(Run({"session", "export", "alice", Path("a.qs")}), 24);
  EXPECT_EQ(Read(Path("a.qs")), "old");
  const std::filesystem::directory_iterator files(folder_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
  EXPECT_EQ(Run({"session", "export", "alice", Path("no/such/folder")}), kExitLocal);
  EXPECT_THAT(err_, HasSubstr("No such file"));
}

TEST_F(FileTest, ADeviceIsWrittenToAndNotReplaced) {
  sessions_.chunks = {"bytes"};
  EXPECT_EQ(Run({"session", "export", "alice", "/dev/full"}), kExitLocal);
  EXPECT_FALSE(std::filesystem::is_regular_file("/dev/full"));
}

TEST_F(FileTest, AnImportSendsNameAndOptionsOnceAndAllBytes) {
  const std::string bytes = std::string(1 << 20, 'a') + std::string(1 << 20, 'b') + "tail";
  Write(Path("a.qs"), bytes);
  EXPECT_EQ(Run({"session", "import", Path("a.qs"), "bob", "--ttl", "1h"}), 0) << err_;
  EXPECT_EQ(sessions_.imported, bytes);
  EXPECT_THAT(sessions_.imported_sizes, ElementsAre(1 << 20, 1 << 20, 4));
  EXPECT_THAT(sessions_.asked,
              ElementsAre("Import session_id: \"bob\" options { ttl_seconds: 3600 }", "Import ",
                          "Import "));
  EXPECT_THAT(out_, HasSubstr("session  alice, host\n"));

  sessions_.imported.clear();
  EXPECT_EQ(Run({"session", "import", "-"}, "by pipe"), 0);
  EXPECT_EQ(sessions_.imported, "by pipe");
  EXPECT_EQ(Run({"session", "import", "-"}, ""), 0);  // the server refuses it
}

TEST_F(FileTest, AnUnreadableOrRefusedImportIsReported) {
  EXPECT_EQ(Run({"session", "import", Path("none")}), kExitLocal);
  EXPECT_THAT(err_, HasSubstr("No such file"));
  EXPECT_EQ(Run({"session", "import", folder_.string()}), kExitLocal);
  EXPECT_THAT(err_, HasSubstr("directory"));
  Write(Path("big"), std::string(20 << 20, 'x'));
  sessions_.status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no export");
  EXPECT_EQ(Run({"session", "import", Path("big")}), 13);
  EXPECT_THAT(err_, HasSubstr("no export"));
}

TEST_F(SessionCliTest, ATurnIsSentAndItsResidencyPrinted) {
  EXPECT_EQ(Run({"generate", "--session", "x", "Once"}), 0) << err_;
  EXPECT_EQ(out_, "answer 1\n");
  EXPECT_EQ(err_,
            "0 tokens from the device, 0 from the host, 0 computed again; session 'x' at "
            "10\n");
  ASSERT_EQ(inference_.turns.size(), 1u);
  EXPECT_EQ(inference_.turns[0].session_id(), "x");
  EXPECT_TRUE(inference_.turns[0].create_session());
  EXPECT_FALSE(inference_.turns[0].has_expected_position());
  EXPECT_EQ(Run({"generate", "--session", "x", "--expected-position", "0", "--no-stream", "y"}), 0);
  EXPECT_TRUE(inference_.turns[1].has_expected_position());
  EXPECT_EQ(out_, "whole\n");
  EXPECT_THAT(err_, HasSubstr("session 'x' at 10"));
}

TEST_F(SessionCliTest, EachTypedLineIsATurnAtTheLastPosition) {
  EXPECT_EQ(Run({"generate", "--session", "x"}, "one\n\ntwo\nthree", /*typed=*/true), 0) << err_;
  EXPECT_EQ(out_, "answer 1\nanswer 2\nanswer 3\n");
  ASSERT_EQ(inference_.turns.size(), 3u);
  EXPECT_EQ(inference_.turns[2].text(), "three");
  EXPECT_FALSE(inference_.turns[0].has_expected_position());
  EXPECT_EQ(inference_.turns[1].expected_position(), 10u);
  EXPECT_EQ(inference_.turns[2].expected_position(), 20u);
  EXPECT_THAT(err_, HasSubstr("> 0 tokens from the device"));
  EXPECT_THAT(err_, HasSubstr("20 tokens from the device, 0 from the host, 0 computed again; "
                              "session 'x' at 30\n> "));
  EXPECT_EQ(Run({"generate", "--session", "x", "-"}, "one\ntwo\n"), 0);
  EXPECT_EQ(inference_.turns.back().text(), "one\ntwo");
}

TEST_F(SessionCliTest, AChatSendsItsHistoryAndStartsWithAnEmptySession) {
  EXPECT_EQ(Run({"generate", "--session", "x", "--system", "be brief"}, "one\ntwo\n"), 0) << err_;
  ASSERT_EQ(inference_.turns.size(), 2u);
  EXPECT_TRUE(inference_.turns[0].has_expected_position());
  EXPECT_EQ(inference_.turns[0].expected_position(), 0u);
  EXPECT_EQ(inference_.turns[1].expected_position(), 10u);
  std::vector<std::string> said;
  for (const v1::ChatMessage& message : inference_.turns[1].chat().messages()) {
    said.push_back(message.role() + ": " + message.content());
  }
  EXPECT_THAT(said,
              ElementsAre("system: be brief", "user: one", "assistant: answer 1", "user: two"));
}

TEST_F(SessionCliTest, EachTurnOfAChatTellsTheTemplateTheSame) {
  EXPECT_EQ(Run({"generate", "--session", "x", "--template-name", "rag", "--template-kwargs", "{}"},
                "one\ntwo\n"),
            0)
      << err_;
  ASSERT_EQ(inference_.turns.size(), 2u);
  for (const v1::GenerateRequest& turn : inference_.turns) {
    EXPECT_EQ(turn.chat().template_name(), "rag");
    EXPECT_EQ(turn.chat().template_kwargs(), "{}");
  }
  EXPECT_EQ(inference_.turns[1].chat().messages_size(), 3);
}

TEST_F(SessionCliTest, JsonHasOnlyFrames) {
  EXPECT_EQ(Run({"generate", "--session", "x", "--json", "Once"}), 0);
  EXPECT_EQ(err_, "");
  EXPECT_THAT(out_, HasSubstr("\"position\":10"));
}

TEST_F(SessionCliTest, AFailedTurnEndsTheConversation) {
  inference_.fails_at = 2;
  EXPECT_EQ(Run({"generate", "--session", "x"}, "one\ntwo\nthree\n"), 19);
  EXPECT_EQ(inference_.turns.size(), 2u);
  EXPECT_THAT(err_, HasSubstr("FAILED_PRECONDITION: the session has 530"));
}

TEST_F(SessionCliTest, AServerWithoutSessionsIsDetected) {
  inference_.has_sessions = false;
  EXPECT_EQ(Run({"generate", "--session", "x", "Once"}), kExitLocal);
  EXPECT_THAT(err_, HasSubstr("keeps no sessions"));
}

}  // namespace
}  // namespace quire::cli
