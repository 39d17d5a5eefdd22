# QUIRE_HARDENING: what compiler and linker can do against faults in memory, for all of our C and
# C++ code. docs/security.md says what it costs, tests/deploy/hardening_test.py looks for its traces
# in the programs. Left out with sanitizers, which see more, and in builds for a debugger, where
# _FORTIFY_SOURCE has no effect. What nvcc compiles, code for a GPU and its launchers, has the
# linker's flags only: launchers take no bytes from outside.
option(QUIRE_HARDENING "Protect stacks, calls and buffers of release builds" ON)

set(QUIRE_HARDENED FALSE)
if(QUIRE_HARDENING AND NOT QUIRE_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL Debug)
  set(QUIRE_HARDENED TRUE)
  set(host $<COMPILE_LANGUAGE:C,CXX>)
  # Canaries behind arrays, and pages touched in order, so that no frame jumps over a guard page.
  add_compile_options($<${host}:-fstack-protector-strong> $<${host}:-fstack-clash-protection>)
  # Indirect jumps land where a function begins.
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    add_compile_options($<${host}:-fcf-protection>)
  endif()
  # Bounds of memcpy, read, snprintf and the like. Ubuntu's compiler defines another level itself.
  add_compile_options($<${host}:-U_FORTIFY_SOURCE> $<${host}:-D_FORTIFY_SOURCE=3>)
  # Addresses are random, tables of the linker read-only before main, and no stack executable.
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES CXX)
  add_link_options(LINKER:-z,relro,-z,now,-z,noexecstack)
endif()
