// Settings of a connection: sources, files, profiles, and what is refused.
// Covers clients/connect/client_files.cc
// Covers clients/connect/endpoint.cc
// Covers clients/connect/profile.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "clients/connect/client_files.h"
#include "clients/connect/endpoint.h"
#include "clients/connect/settings.h"
#include "flags/parser.h"
#include "tests/server/made_certificate.h"

namespace quire::connect {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

class ConnectTest : public testing::Test {
 protected:
  // Resolves a command line in this environment, by the table that the programs use.
  absl::StatusOr<Endpoint> Resolve(const std::vector<std::string>& arguments) {
    ConnectionFlags flags;
    flags::Program program{.root = {.name = "test", .flags = ConnectionRows(&flags, "G")}};
    program.root.flags.push_back(ServerRow(&flags, "G"));
    flags::CommandLine line = flags::ReadArguments(program, arguments);
    flags::Apply(program, line.given, flags::AsFlag, &line);
    EXPECT_EQ(line.faults, std::vector<std::string>());
    flags.said_tls = line.Said("tls");
    return ResolveEndpoint(flags, environment_);
  }
  Endpoint Good(const std::vector<std::string>& arguments = {}) {
    const absl::StatusOr<Endpoint> endpoint = Resolve(arguments);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    return endpoint.value_or(Endpoint());
  }
  std::string Fault(const std::vector<std::string>& arguments = {}) {
    return std::string(Resolve(arguments).status().message());
  }
  void Profiles(const std::string& json) {
    environment_["QUIRE_PROFILE_FILE"] = WriteTestFile("profiles.json", json);
  }

  const MadeCertificate authority_ = MakeCertificate({.name = "authority", .authority = true});
  const MadeCertificate client_ = MakeCertificate({.name = "client"}, &authority_);
  const std::string ca_ = WriteTestFile("ca.pem", authority_.pem);
  const std::string cert_ = WriteTestFile("client.pem", client_.pem);
  const std::string key_ = WriteTestFile("client.key", client_.key_pem);
  Environment environment_;
};

TEST_F(ConnectTest, DefaultsArePlaintextOnThisMachine) {
  const Endpoint endpoint = Good();
  EXPECT_EQ(endpoint.server, "127.0.0.1:50051");
  EXPECT_FALSE(endpoint.tls);
  EXPECT_EQ(Good({"--server", "localhost"}).server, "localhost:50051");
}

TEST_F(ConnectTest, AFlagBeatsTheEnvironmentWhichBeatsTheProfile) {
  Profiles(R"({"profiles": {"default": {"server": "a", "headers": {"X-One": "p", "x-two": "p"}},
                            "far": {"server": "far:1"}}})");
  EXPECT_EQ(Good().server, "a:50051");
  EXPECT_EQ(Good({"--profile", "far"}).server, "far:1");
  environment_["QUIRE_PROFILE"] = "far";
  EXPECT_EQ(Good().server, "far:1");
  EXPECT_EQ(Good({"--profile", "default"}).server, "a:50051");
  environment_["QUIRE_PROFILE"] = "default";
  environment_["QUIRE_SERVER"] = "b:2";
  environment_["QUIRE_HEADERS"] = "x-two: e\n\n  x-three:e:e \n";
  EXPECT_EQ(Good().server, "b:2");
  EXPECT_EQ(Good({"--server", "c:3"}).server, "c:3");
  EXPECT_THAT(Good({"--header", "X-Three: f"}).headers,
              ElementsAre(Pair("x-one", "p"), Pair("x-three", "f"), Pair("x-two", "e")));
}

TEST_F(ConnectTest, TheProfileOfAnotherServerIsLeftOutUnlessItIsNamed) {
  Profiles(R"({"profiles": {"default": {"server": "a", "headers": {"x-one": "p"}}}})");
  environment_["QUIRE_PROFILE"] = "";
  EXPECT_THAT(Good({"--server", "b"}).headers, IsEmpty());
  EXPECT_THAT(Good({"--server", "a:50051"}).headers, ElementsAre(Pair("x-one", "p")));
  EXPECT_THAT(Good({"--server", "b", "--profile", "default"}).headers,
              ElementsAre(Pair("x-one", "p")));
  environment_["QUIRE_SERVER"] = "b";
  EXPECT_THAT(Good().headers, IsEmpty());
}

TEST_F(ConnectTest, AKeyGoesToAnotherMachineOverTlsAlone) {
  environment_["QUIRE_API_KEY"] = "qk-1";
  for (const std::string server : {"unixbox.example", "gpu.example", "10.0.0.1:50051"}) {
    environment_["QUIRE_SERVER"] = server;
    EXPECT_THAT(Fault(), HasSubstr("in plaintext")) << server;
    EXPECT_EQ(Good({"--tls"}).api_key, "qk-1") << server;
  }
  environment_["QUIRE_SERVER"] = "unix:/run/q";
  EXPECT_EQ(Good().api_key, "qk-1");
}

TEST_F(ConnectTest, CertificatesTurnTlsOnAndAreRead) {
  const Endpoint endpoint = Good({"--ca-cert", ca_, "--client-cert", cert_, "--client-key", key_,
                                  "--server-name", "inner.example"});
  EXPECT_TRUE(endpoint.tls);
  EXPECT_EQ(endpoint.ca_cert, authority_.pem);
  EXPECT_EQ(endpoint.client_cert, client_.pem);
  EXPECT_EQ(endpoint.client_key, client_.key_pem);
  EXPECT_EQ(endpoint.server_name, "inner.example");
  EXPECT_TRUE(Good({"--tls"}).tls);
  environment_["QUIRE_CA_CERT"] = ca_;
  EXPECT_TRUE(Good().tls);
  EXPECT_FALSE(Good({"--no-tls"}).tls);
  environment_["QUIRE_TLS"] = "off";
  EXPECT_THAT(Fault(), AllOf(HasSubstr("QUIRE_TLS"), HasSubstr("QUIRE_CA_CERT")));
  EXPECT_TRUE(Good({"--tls"}).tls);
  environment_["QUIRE_TLS"] = "perhaps";
  EXPECT_THAT(Fault(), HasSubstr("QUIRE_TLS: must be true or false, not 'perhaps'"));
}

TEST_F(ConnectTest, WrongFilesAreNamed) {
  EXPECT_THAT(Fault({"--ca-cert", "/nowhere.pem"}),
              HasSubstr("--ca-cert: cannot read /nowhere.pem: No such file"));
  EXPECT_THAT(Fault({"--ca-cert", key_}), HasSubstr("holds no certificate in PEM form"));
  EXPECT_THAT(Fault({"--client-cert", cert_}),
              HasSubstr("--client-cert: is set, but client_key is not"));
  EXPECT_THAT(Fault({"--tls", "--client-key", key_}),
              HasSubstr("--client-key: is set, but client_cert is not"));
  const std::string other = WriteTestFile("other.key", authority_.key_pem);
  EXPECT_THAT(Fault({"--client-cert", cert_, "--client-key", other}),
              HasSubstr("is not the key of " + cert_));
  EXPECT_THAT(Fault({"--server-name", "a"}), HasSubstr("uses no TLS: add --tls"));
  EXPECT_FALSE(CheckPem(client_.pem.substr(0, 100), false).ok());
  EXPECT_FALSE(CheckPem(client_.pem, true).ok());
}

TEST_F(ConnectTest, AKeyComesFromItsFileOrTheEnvironmentOnly) {
  environment_["QUIRE_API_KEY"] = "qk-env-secret";
  EXPECT_EQ(Good().api_key, "qk-env-secret");
  const std::string file = WriteTestFile("key.txt", "  qk-file-secret\n");
  EXPECT_EQ(Good({"--api-key-file", file}).api_key, "qk-file-secret");
  environment_["QUIRE_API_KEY_FILE"] = file;
  EXPECT_THAT(Fault(), HasSubstr("QUIRE_API_KEY_FILE too"));
  environment_.clear();
  EXPECT_THAT(Fault({"--api-key-file", WriteTestFile("empty.txt", "\n")}),
              HasSubstr("1 to 4096 printable characters"));
  const std::string fault = Fault({"--api-key-file", WriteTestFile("two.txt", "one two")});
  EXPECT_THAT(fault, AllOf(HasSubstr("two.txt"), Not(HasSubstr("one two"))));
}

TEST_F(ConnectTest, AKeyNeverLeavesThisMachineInPlaintext) {
  environment_["QUIRE_API_KEY"] = "qk-env-secret";
  for (const char* near : {"localhost", "127.0.0.2:1", "[::1]:1", "unix:/tmp/q", "/tmp/q"}) {
    EXPECT_EQ(Good({"--server", near}).api_key, "qk-env-secret") << near;
  }
  for (const char* far : {"10.0.0.1", "gpu:50051", "dns:///gpu:1", "[2001:db8::1]:1", "dns:gpu"}) {
    EXPECT_THAT(Fault({"--server", far}),
                AllOf(HasSubstr("in plaintext"), HasSubstr("--ca-cert"), Not(HasSubstr("secret"))));
    EXPECT_TRUE(Resolve({"--server", far, "--tls"}).ok());
  }
  environment_ = {{"QUIRE_HEADERS", "Authorization: Basic eDp5"}};
  EXPECT_THAT(Fault({"--server", "gpu"}), HasSubstr("in plaintext"));
}

TEST_F(ConnectTest, WrongHeadersAreNamed) {
  EXPECT_THAT(Fault({"--header", "no colon"}), HasSubstr("\"name: value\""));
  EXPECT_THAT(Fault({"--header", "a b: c"}), HasSubstr("'a b' is no name of a header"));
  EXPECT_THAT(Fault({"--header", "grpc-x: c"}), HasSubstr("belongs to gRPC"));
  EXPECT_THAT(Fault({"--header", "x-bin: c"}), HasSubstr("belongs to gRPC"));
  EXPECT_THAT(Fault({"--header", "x: \x01"}), HasSubstr("printable"));
  EXPECT_THAT(Fault({"--header", "x: 1", "--header", "X: 2"}), HasSubstr("given twice"));
  EXPECT_THAT(Fault({"--header", "Authorization: Bearer s3cret"}),
              AllOf(HasSubstr("--api-key-file"), Not(HasSubstr("s3cret"))));
  environment_ = {{"QUIRE_API_KEY", "k"}, {"QUIRE_HEADERS", "authorization: Bearer s3cret"}};
  EXPECT_THAT(Fault(), AllOf(HasSubstr("keep one"), Not(HasSubstr("s3cret"))));
  environment_ = {{"QUIRE_HEADERS", "x: 1\nnothing"}};
  EXPECT_THAT(Fault(), HasSubstr("QUIRE_HEADERS: line 2"));
}

TEST_F(ConnectTest, PathsOfAProfileAreRelativeToItsFile) {
  const std::string name = ca_.substr(ca_.rfind('/') + 1);
  Profiles(R"({"profiles": {"default": {"ca_cert": ")" + name + R"("}}})");
  EXPECT_EQ(Good().ca_cert, authority_.pem);
}

TEST_F(ConnectTest, WrongProfilesAreNamedWithTheNearestField) {
  const auto fault = [this](const std::string& json) {
    Profiles(json);
    return Fault();
  };
  EXPECT_THAT(fault(R"({"profiles": {"default": {"sever": "a"}}})"),
              AllOf(HasSubstr("profiles.json: profiles.default: unknown field sever"),
                    HasSubstr("the nearest is server")));
  EXPECT_THAT(fault(R"({"profile": {}})"), HasSubstr("unknown field profile"));
  EXPECT_THAT(fault(R"({"profiles": {"default": {"api_key": "s3cret"}}})"),
              AllOf(HasSubstr("api_key_file"), Not(HasSubstr("s3cret"))));
  EXPECT_THAT(fault(R"({"profiles": {"default": {"tls": "yes"}}})"),
              HasSubstr("profiles.default.tls: must be true or false"));
  EXPECT_THAT(fault(R"({"profiles": {"default": {"server": 3}}})"),
              HasSubstr("profiles.default.server: must be a text"));
  EXPECT_THAT(fault(R"({"profiles": {"default": {"headers": {"a": 1}}}})"),
              HasSubstr("profiles.default.headers.a: must be a text"));
  EXPECT_THAT(fault(R"({"profiles": {"default": {"tls": true, "tls": false}}})"),
              HasSubstr("the field tls is there twice"));
  EXPECT_THAT(fault(R"({"profiles": )"), HasSubstr("not JSON"));
  EXPECT_THAT(fault("[]"), HasSubstr("must be an object"));
  Profiles(R"({"profiles": {"home": {}, "work": {}}})");
  EXPECT_THAT(Fault({"--profile", "hone"}),
              AllOf(HasSubstr("no profile hone"), HasSubstr("the nearest is home")));
}

TEST_F(ConnectTest, TheFileOfProfilesIsFoundByXdgAndHome) {
  EXPECT_EQ(Good().server, "127.0.0.1:50051");
  environment_ = {{"HOME", "/nowhere"}};
  EXPECT_EQ(Good().server, "127.0.0.1:50051");
  EXPECT_THAT(Fault({"--profile", "a"}), HasSubstr("/nowhere/.config/quire/profiles.json"));
  environment_["XDG_CONFIG_HOME"] = "/elsewhere";
  EXPECT_THAT(Fault({"--profile", "a"}), HasSubstr("/elsewhere/quire/profiles.json"));
  environment_["QUIRE_PROFILE_FILE"] = "/given.json";
  EXPECT_THAT(Fault(), HasSubstr("/given.json: cannot read the profiles: No such file"));
}

TEST(EndpointTest, AddressesAreSplitAsGrpcDialsThem) {
  const auto split = [](const char* text) {
    const HostPort address = SplitAddress(text);
    return address.host + "|" + address.port;
  };
  EXPECT_EQ(split("gpu:50051"), "gpu|50051");
  EXPECT_EQ(split("[::1]:7"), "::1|7");
  EXPECT_EQ(split("dns:gpu:1"), "gpu|1");
  EXPECT_EQ(split("dns:///gpu:1"), "gpu|1");
  EXPECT_EQ(split("dns://8.8.8.8/gpu:1"), "gpu|1");
  EXPECT_EQ(split("ipv6:[::1]:7"), "::1|7");
  EXPECT_EQ(split("unix:/tmp/a:1"), "|");
}

}  // namespace
}  // namespace quire::connect
