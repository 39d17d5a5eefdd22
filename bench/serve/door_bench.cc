// The time of one decision at the door, over a file of 10 and of 100,000 keys. Checks first that
// the right key is admitted and a wrong secret is not. Limit: 2 us.
#include <benchmark/benchmark.h>

#include <string>

#include "kernels/check.h"
#include "server/identity/key_door.h"

namespace quire {
namespace {

constexpr char kMethod[] = "/quire.v1.Inference/Generate";

std::string KeyOf(int number) {
  const std::string digits = std::to_string(number);
  return "qk-" + std::string(kKeyIdDigits - digits.size(), '0') + digits + "-" +
         std::string(kKeySecretDigits, 'a');
}

KeyTable TableOf(int keys) {
  KeyTable table;
  const auto caller = std::make_shared<const Caller>(
      Caller{.tenant = 1, .tenant_name = "acme", .scopes = {Scope::kInfer}});
  for (int i = 0; i < keys; ++i) {
    const std::string key = KeyOf(i);
    table.keys[std::string(KeyIdOf(key))] = {.caller = caller, .digest = DigestOf(key)};
  }
  return table;
}

void BM_Admit(benchmark::State& state) {
  const auto keys = static_cast<int>(state.range(0));
  const KeyDoor door(TableOf(keys), {"m"});
  std::string wrong = "Bearer " + KeyOf(keys / 2);
  wrong.back() = 'b';
  CHECK(!door.Admit({.authorization = {wrong}}, kMethod).ok());
  int number = 0;
  for (auto _ : state) {
    const std::string header = "Bearer " + KeyOf(number);
    number = (number + 7919) % keys;
    const Admission admission = door.Admit({.authorization = {header}}, kMethod);
    CHECK(admission.ok());
  }
}
BENCHMARK(BM_Admit)->Arg(10)->Arg(100'000);

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
