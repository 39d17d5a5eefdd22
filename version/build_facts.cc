// The facts as one line.
#include "version/build_facts.h"

namespace quire {

std::string Describe(const BuildFacts& build) {
  const std::string cuda = build.cuda;
  return std::string("commit ") + build.commit + ", " + build.compiler + ", " +
         (cuda == "none" ? "no CUDA" : "CUDA " + cuda) + ", " + build.build_type;
}

// The build writes the values: none holds a character that JSON escapes.
std::string ToJson(const BuildFacts& build) {
  const auto member = [](const char* name, const char* value) {
    return std::string("\"") + name + "\":\"" + value + "\"";
  };
  return "{" + member("version", build.version) + "," + member("commit", build.commit) + "," +
         member("compiler", build.compiler) + "," + member("cuda", build.cuda) + "," +
         member("build_type", build.build_type) + "}";
}

}  // namespace quire
