// The Jobs service over real gRPC, with a disk in memory: whose jobs are whose, disks that are full
// or break, limits of tenants, drains, and that lines give way to requests.
// Covers server/jobs/jobs_service.cc, server/jobs/job_runner.cc
#include "server/jobs/jobs_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "tests/server/memory_disk.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

struct Folder {
  std::shared_ptr<MemoryFolder> folder = std::make_shared<MemoryFolder>();
  std::shared_ptr<DiskFaults> faults = std::make_shared<DiskFaults>();
  std::shared_ptr<Disk> disk = std::make_shared<MemoryDisk>(folder, faults);
};

std::string Lines(int count, int max_tokens) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text +=
        "{\"custom_id\":\"" + std::to_string(i) +
        "\",\"request\":{\"text\":\"hi\",\"stop\":{\"max_tokens\":" + std::to_string(max_tokens) +
        "}}}\n";
  }
  return text;
}

struct Client {
  v1::Jobs::Stub& stub;
  std::string tenant = {};

  void Name(grpc::ClientContext* context) const {
    if (!tenant.empty()) context->AddMetadata(kTestTenant, tenant);
  }
  grpc::Status Create(const std::string& id, const std::string& data, v1::Job* job) const {
    grpc::ClientContext context;
    Name(&context);
    const auto writer = stub.Create(&context, job);
    v1::CreateJobRequest request;
    request.mutable_options()->set_job_id(id);
    request.set_data(data);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }
  grpc::Status Get(const std::string& id, v1::Job* job) const {
    grpc::ClientContext context;
    Name(&context);
    v1::GetJobRequest request;
    request.set_job_id(id);
    return stub.Get(&context, request, job);
  }
  grpc::Status Cancel(const std::string& id) const {
    grpc::ClientContext context;
    Name(&context);
    v1::CancelJobRequest request;
    v1::Job job;
    request.set_job_id(id);
    return stub.Cancel(&context, request, &job);
  }
  grpc::Status Delete(const std::string& id) const {
    grpc::ClientContext context;
    Name(&context);
    v1::DeleteJobRequest request;
    v1::DeleteJobResponse response;
    request.set_job_id(id);
    return stub.Delete(&context, request, &response);
  }
  grpc::Status Results(const std::string& id, std::vector<std::string>* lines) const {
    grpc::ClientContext context;
    Name(&context);
    v1::JobResultsRequest request;
    request.set_job_id(id);
    const auto reader = stub.Results(&context, request);
    v1::JobResults results;
    while (reader->Read(&results)) {
      lines->insert(lines->end(), results.lines().begin(), results.lines().end());
    }
    return reader->Finish();
  }
  bool Ends(const std::string& id, v1::Job::State state) const {
    v1::Job job;
    return TestServer::Eventually([&] { return Get(id, &job).ok() && job.state() == state; });
  }
};

TEST(JobsServiceTest, EachLineHasItsResultOnce) {
  Folder folder;
  TestServer server({.job_disk = folder.disk});
  const Client client{server.jobs()};
  v1::Job job;
  ASSERT_TRUE(client.Create("all", Lines(150, 4), &job).ok());
  EXPECT_EQ(job.lines(), 150u);
  std::vector<std::string> lines;
  ASSERT_TRUE(client.Results("all", &lines).ok());
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), 150u);
  for (const std::string& line : lines) EXPECT_THAT(line, HasSubstr("\"text\":\"abcd\""));
  EXPECT_TRUE(client.Ends("all", v1::Job::STATE_COMPLETED));
  EXPECT_THAT(server.Metrics(), HasSubstr("status=\"answered\"} 150"));
  server.ExpectNothingLeft();
}

// The Sessions service has methods of the same names.
TEST(JobsServiceTest, CallsAreCountedUnderTheirWholeNames) {
  Folder folder;
  TestServer server({.job_disk = folder.disk});
  const Client client{server.jobs()};
  v1::Job job;
  ASSERT_TRUE(client.Create("a", Lines(1, 2), &job).ok());
  ASSERT_TRUE(client.Get("a", &job).ok());
  grpc::ClientContext context;
  v1::Session session;
  v1::GetSessionRequest request;
  request.set_session_id("none");
  EXPECT_EQ(server.sessions().Get(&context, request, &session).error_code(),
            grpc::StatusCode::NOT_FOUND);
  for (const char* labels :
       {"code=\"OK\",method=\"quire.v1.Jobs/Create\"", "code=\"OK\",method=\"quire.v1.Jobs/Get\"",
        "code=\"NOT_FOUND\",method=\"quire.v1.Sessions/Get\""}) {
    EXPECT_THAT(server.Metrics(), HasSubstr(std::string(labels) + "} 1\n"));
  }
}

TEST(JobsServiceTest, AnotherTenantsJobIsNotFound) {
  Folder folder;
  TestServer server({.front = {.door = TenantInMetadata()}, .job_disk = folder.disk});
  const Client owner{server.jobs(), "1"}, other{server.jobs(), "2"};
  v1::Job job;
  ASSERT_TRUE(owner.Create("mine", Lines(2, 2), &job).ok());
  std::vector<std::string> lines;
  for (const grpc::Status& status : {other.Get("mine", &job), other.Cancel("mine"),
                                     other.Delete("mine"), other.Results("mine", &lines)}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_EQ(Reason(status), "JOB_NOT_FOUND");
  }
  EXPECT_TRUE(other.Create("mine", Lines(1, 1), &job).ok()) << "names are a tenant's own";
  EXPECT_TRUE(owner.Results("mine", &lines).ok());
  EXPECT_EQ(lines.size(), 2u);
}

TEST(JobsServiceTest, AFullDiskEndsItsJobAndNothingElse) {
  Folder folder;
  TestServer server({.job_disk = folder.disk});
  const Client client{server.jobs()};
  v1::Job job;
  folder.faults->SetSpace(30'000);
  ASSERT_TRUE(client.Create("large", Lines(100, 4), &job).ok());
  ASSERT_TRUE(client.Ends("large", v1::Job::STATE_FAILED));
  ASSERT_TRUE(client.Get("large", &job).ok());
  EXPECT_THAT(job.failure(), HasSubstr("ENOSPC"));
  std::vector<std::string> lines;
  ASSERT_TRUE(client.Results("large", &lines).ok());
  EXPECT_EQ(lines.size(), job.done_lines());
  EXPECT_FALSE(client.Create("more", Lines(500, 4), &job).ok());
  EXPECT_TRUE(Stream(server.inference(), AskFor(2)).status.ok());
  EXPECT_TRUE(client.Delete("large").ok());
  EXPECT_TRUE(folder.folder->files.empty());
  server.ExpectNothingLeft();
}

TEST(JobsServiceTest, WhatIsLeftOfAFullDiskIsTakenOver) {
  Folder folder;
  v1::Job job;
  uint64_t done = 0;
  {
    TestServer server({.job_disk = folder.disk});
    const Client client{server.jobs()};
    folder.faults->SetSpace(30'000);
    ASSERT_TRUE(client.Create("large", Lines(100, 4), &job).ok());
    ASSERT_TRUE(client.Ends("large", v1::Job::STATE_FAILED));
    ASSERT_TRUE(client.Get("large", &job).ok());
    done = job.done_lines();
  }
  folder.faults->SetSpace(1 << 30);
  TestServer server({.job_disk = folder.disk});
  const Client client{server.jobs()};
  std::vector<std::string> lines;
  ASSERT_TRUE(client.Results("large", &lines).ok());
  EXPECT_GE(lines.size(), done);
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), lines.size());
}

TEST(JobsServiceTest, LimitsAreNamed) {
  Folder folder;
  TestServer server({.front = {.door = TenantInMetadata()},
                     .job_disk = folder.disk,
                     .job_limits = {.max_bytes = 100'000, .max_jobs = 4, .max_lines = 50}});
  const Client client{server.jobs(), "1"}, other{server.jobs(), "2"};
  v1::Job job;
  grpc::Status status = client.Create("lines", Lines(51, 1), &job);
  EXPECT_EQ(Reason(status), "JOB_LIMIT");
  EXPECT_THAT(status.error_message(), HasSubstr("50 lines"));
  status = client.Create("bytes", std::string(50'001, ' '), &job);
  EXPECT_EQ(Reason(status), "JOB_LIMIT");
  EXPECT_THAT(status.error_message(), HasSubstr("50000"));
  EXPECT_TRUE(client.Create("1", "", &job).ok());
  EXPECT_TRUE(client.Create("2", "", &job).ok());
  EXPECT_EQ(Reason(client.Create("3", "", &job)), "JOB_LIMIT") << "half of all jobs";
  EXPECT_TRUE(other.Create("3", "", &job).ok());
}

TEST(JobsServiceTest, RequestsRunBeforeLines) {
  Folder folder;
  TestServer server({.max_num_seqs = 4, .job_disk = folder.disk});
  const Client client{server.jobs()};
  v1::Job job;
  ASSERT_TRUE(client.Create("long", Lines(50, 500), &job).ok());
  ASSERT_TRUE(TestServer::Eventually([&] { return server.engine().Stats().load.running > 0; }));
  for (int i = 0; i < 20; ++i) {
    const StreamedOutput out = Stream(server.inference(), AskFor(3));
    EXPECT_TRUE(out.status.ok());
    EXPECT_EQ(out.finished.usage().preemptions(), 0u);
  }
  ASSERT_TRUE(client.Get("long", &job).ok());
  ASSERT_TRUE(client.Cancel("long").ok());
  server.ExpectNothingLeft();
}

TEST(JobsServiceTest, ADrainSendsLinesBackAndAnUndrainGoesOn) {
  Folder folder;
  TestServer server({.job_disk = folder.disk});
  const Client client{server.jobs()};
  v1::Job job;
  server.gate().Allow(3);
  ASSERT_TRUE(client.Create("on", Lines(20, 30), &job).ok());
  ASSERT_TRUE(TestServer::Eventually([&] { return server.engine().Stats().load.running > 0; }));
  grpc::ClientContext drain, undrain;
  v1::DrainResponse drained;
  v1::UndrainResponse undrained;
  ASSERT_TRUE(server.control().Drain(&drain, {}, &drained).ok());
  EXPECT_EQ(Reason(client.Create("late", "", &job)), "DRAINING");
  server.gate().Allow(-1);
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().open_streams() == 0; }));
  ASSERT_TRUE(server.control().Undrain(&undrain, {}, &undrained).ok());
  EXPECT_TRUE(client.Ends("on", v1::Job::STATE_COMPLETED));
  std::vector<std::string> lines;
  ASSERT_TRUE(client.Results("on", &lines).ok());
  EXPECT_EQ(lines.size(), 20u);
}

TEST(JobsServiceTest, ALimitOfTheTenantDelaysItsLines) {
  Folder folder;
  TestServer server({.job_disk = folder.disk});
  ASSERT_TRUE(server.engine().SetTenants({.defaults = {.max_queued_requests = 1}}).ok());
  const Client client{server.jobs()};
  v1::Job job;
  ASSERT_TRUE(client.Create("slow", Lines(6, 2), &job).ok());
  EXPECT_TRUE(client.Ends("slow", v1::Job::STATE_COMPLETED));
  ASSERT_TRUE(client.Get("slow", &job).ok());
  EXPECT_EQ(job.failed_lines(), 0u);
}

// The library tells the end of an upload and its breaking off alike.
TEST(JobsServiceTest, AnUploadThatBreaksOffLeavesNoJob) {
  Folder folder;
  TestServer server({.job_disk = folder.disk});
  const Client client{server.jobs()};
  v1::Job job;
  for (int round = 0; round < 30; ++round) {
    grpc::ClientContext context;
    if (round % 3 == 0) {
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(40));
    }
    const auto writer = server.jobs().Create(&context, &job);
    v1::CreateJobRequest request;
    request.mutable_options()->set_job_id("cut");
    request.set_data(Lines(4, 2).substr(0, 99));
    writer->Write(request);
    usleep(5000);  // so that the message is there, mostly
    if (round % 3 != 0) context.TryCancel();
    EXPECT_FALSE(writer->Finish().ok());
    ASSERT_TRUE(TestServer::Eventually([&] { return client.Create("cut", "", &job).ok(); }));
    EXPECT_TRUE(client.Delete("cut").ok());
  }
  server.ExpectNothingLeft();
}

TEST(JobsServiceTest, ADeletedJobEndsItsResults) {
  Folder folder;
  TestServer server({.job_disk = folder.disk});
  const Client client{server.jobs()};
  v1::Job job;
  server.gate().Allow(0);
  ASSERT_TRUE(client.Create("gone", Lines(3, 2), &job).ok());
  grpc::ClientContext context;
  v1::JobResultsRequest request;
  request.set_job_id("gone");
  const auto reader = server.jobs().Results(&context, request);
  reader->WaitForInitialMetadata();
  ASSERT_TRUE(client.Delete("gone").ok());
  v1::JobResults results;
  EXPECT_FALSE(reader->Read(&results));
  const grpc::Status status = reader->Finish();
  // Not OK: the results that came are not all.
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << status.error_message();
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
}

}  // namespace
}  // namespace quire
