// Python's two ways to format text: "%s" % values and "{}".format(values).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/text/jinja/values/access.h"
#include "server/text/jinja/values/budget.h"
#include "server/text/jinja/values/value.h"

namespace quire::jinja {

// `values`: a tuple, a dict for %(name)s, or one value. INVALID_ARGUMENT for values that do not fit
// and for a text longer than the budget's.
absl::StatusOr<std::string> PercentFormat(const std::string& text, const Value& values,
                                          Budget* budget);
// Fields may name attributes and items: "{0.name[key]!r:>8}". A width within {} is refused.
absl::StatusOr<std::string> BraceFormat(const std::string& text, const Arguments& args,
                                        Budget* budget);

}  // namespace quire::jinja
