# Functions every folder's CMakeLists.txt uses: quire_library, quire_program, quire_man_page,
# quire_test, quire_bench.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
pkg_check_modules(microhttpd REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(libedit REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)

# What all of our own code is compiled with.
add_library(quire_flags INTERFACE)
target_include_directories(quire_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(quire_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-missing-field-initializers>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
target_link_libraries(quire_flags INTERFACE Threads::Threads)
if(QUIRE_SANITIZE)
  # gcc warns of uninitialised members of std::function where its instrumentation hides the store.
  add_compile_options(-fsanitize=${QUIRE_SANITIZE} -fno-omit-frame-pointer -g1
                      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${QUIRE_SANITIZE})
endif()
if(QUIRE_FUZZERS)
  # All code tells libFuzzer which branches an input takes; tests/fuzz adds the main programs.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# quire_library(NAME SRCS a.cc b.cc LIBS other ...)
function(quire_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  target_link_libraries(${name} PUBLIC quire_flags ${ARG_LIBS})
endfunction()

# quire_program(NAME SRCS main.cc LIBS ...): lands in build/bin.
function(quire_program name)
  cmake_parse_arguments(ARG "" "" "SRCS;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE quire_flags ${ARG_LIBS} quire_this_build)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

# quire_man_page(PROGRAM): PROGRAM writes its own manual page, to build/man/man1, and its completion
# scripts, to build/completions.
function(quire_man_page program)
  set(manual ${CMAKE_BINARY_DIR}/man/man1)
  set(words ${CMAKE_BINARY_DIR}/completions)
  add_custom_command(TARGET ${program} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E make_directory ${manual} ${words}/bash ${words}/zsh ${words}/fish
    COMMAND ${program} --help-man > ${manual}/${program}.1
    COMMAND ${program} --completion bash > ${words}/bash/${program}
    COMMAND ${program} --completion zsh > ${words}/zsh/_${program}
    COMMAND ${program} --completion fish > ${words}/fish/${program}.fish)
endfunction()

# quire_test(NAME SRCS name_test.cc LIBS ... [TIMEOUT seconds] [LABELS ...]): a GoogleTest program,
# one ctest entry. Test data lies at QUIRE_SOURCE_DIR "/tests/testdata".
function(quire_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;LIBS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(QUIRE_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")  # a sanitized program is 2 to 15 times slower
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE quire_flags ${ARG_LIBS} quire_test_build GTest::gmock
                                        GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE QUIRE_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                             QUIRE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

# quire_bench(NAME SRCS name_bench.cc LIBS ...): a Google Benchmark program in build/bench; never a
# test.
function(quire_bench name)
  cmake_parse_arguments(ARG "" "" "SRCS;LIBS" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE quire_flags ${ARG_LIBS} quire_test_build
                                        benchmark::benchmark)
  target_compile_definitions(${name} PRIVATE QUIRE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()
