// The words of refusals.
#include "server/identity/door.h"

#include <array>

namespace quire {
namespace {

struct Words {
  const char* name;
  absl::StatusCode code;
  const char* message;
};

constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;
constexpr auto kDenied = absl::StatusCode::kPermissionDenied;
constexpr std::array<Words, kNumRefused> kWords = {{
    {"no", absl::StatusCode::kOk, ""},
    {"missing", kUnauthenticated,
     "this server wants a key: send the metadata 'authorization: Bearer qk-...'"},
    {"malformed", kUnauthenticated,
     "the authorization metadata must be 'Bearer ' and a key of this server (qk-...)"},
    {"repeated", kUnauthenticated, "the authorization metadata was sent more than once"},
    {"unknown", kUnauthenticated, "this key is not valid here"},
    {"expired", kUnauthenticated, "this key has expired; ask for a new one"},
    {"conflict", kUnauthenticated, "the key and the client certificate are of different tenants"},
    {"scope", kDenied,
     "the caller's key has none of the scopes that open this; docs/keys.md names them"},
    {"model", kDenied, "the caller's key is not for a model that this server has"},
    {"admin_socket", kDenied,
     "not allowed on this address: start the server with --api-keys and use a key with the scope "
     "admin, or use the socket of --admin-uds"},
}};

const Words& WordsOf(Refused refused) { return kWords[static_cast<size_t>(refused)]; }

}  // namespace

const char* Name(Refused refused) { return WordsOf(refused).name; }

absl::Status StatusOf(Refused refused) {
  return absl::Status(WordsOf(refused).code, WordsOf(refused).message);
}

}  // namespace quire
