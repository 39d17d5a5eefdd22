// StepWatch: how a step is watched while it runs. It computes the same bits either way.
#pragma once

namespace quire {

struct StepWatch {
  bool timed = false;       // the result says how long each part took; the step runs uncaptured
  bool uncaptured = false;  // its operations are enqueued one by one, so that profiles name them
  bool recorded = false;    // attached profilers record it
};

}  // namespace quire
