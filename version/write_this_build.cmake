# cmake -P: writes OUTPUT from this_build.cc.in. The commit is COMMIT where it is given, else that
# of the checkout at SOURCE_DIR, else "unknown". VERSION, COMPILER, CUDA and BUILD_TYPE are texts.
if(NOT COMMIT)
  set(COMMIT unknown)
  # A tarball unpacked inside another project's checkout is not at that project's commit.
  if(EXISTS ${SOURCE_DIR}/.git)
    find_program(GIT git)
    if(GIT)
      execute_process(
        COMMAND ${GIT} -c safe.directory=* -C ${SOURCE_DIR} rev-parse --short=12 HEAD
        OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
      if(NOT failed)
        set(COMMIT ${head})
      endif()
    endif()
  endif()
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/this_build.cc.in ${OUTPUT} @ONLY)
