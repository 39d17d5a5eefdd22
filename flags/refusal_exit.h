// ExitOnRefusal: how a program ends when the system refuses it memory or a thread.
#pragma once

namespace quire {

// From now on such a refusal, on any thread and in any library's C++ code, ends the process with
// `code`. The last line of stderr says what was refused, why, and which limits to raise. Nothing
// that the refused thread holds is asked for: no lock, no memory, no buffer of the log, whose
// waiting lines may be lost. Code that refuses large requests with a reason of its own asks mmap,
// and code that can do without a thread asks pthread_create; both see the refusal themselves.
//
// Call it once, first in main. Other exceptions without a catch abort as before.
void ExitOnRefusal(int code);

}  // namespace quire
